/* SPDX-License-Identifier: Apache-2.0 */
/* matmul and linear of one pair of matrices, or of a few large pairs: out = activation(x * y + bias). Also the fusions
 * of such a product with its neighbors (epilogue.h). The loops are in product_job.c.
 *
 * Small matrices of a batch, if stored in 16 bits, are computed whole by one thread each. */
#include "backends/cpu/isa/finite.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/product_job.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

/* Smaller matrices of a batch are left to onednn/matmul.c, which distributes them whole. */
#define BATCH_WORK ((int64_t)8 << 20)

/* Kernels that convert numbers of 16 bits can as well round those of f32. Others take numbers of bf16 as they are. */
#if defined(LC_ISA_PAIRS)
#define ROUNDS 0
#else
#define ROUNDS LC_KERNEL_ROUNDS
#endif
/* Whether products of f32 are computed from numbers of bf16 if the precision allows it. */
#if defined(LC_ISA_AMX)
#define LOWERS true
#elif defined(LC_ISA_PAIRS)
#define LOWERS false
#endif

typedef struct product {
    product_job job; /* of a matrix */
    bool by_matrix;  /* a thread computes whole matrices */
    int64_t matrices;
} product;

/* Products of finite numbers of f16 are finite in f32, and so are their sums. So a gradient is finite if both factors
 * are: the row sums show it of the first one, and panels are checked for the second. */
static bool checks_finite(const lc_op *op)
{
    return op == &lc__op_linear_weight_grad_finite;
}

static epilogue_kind epilogue_of(const lc_op *op)
{
    return op == &lc__op_linear_gelu                               ? EPILOGUE_GELU
           : op == &lc__op_matmul_gelu_backward                    ? EPILOGUE_SLOPE
           : op == &lc__op_linear_weight_grad || checks_finite(op) ? EPILOGUE_ROW_SUMS
                                                                   : EPILOGUE_NONE;
}

static bool is_f16(lc_dtype type)
{
    return type == LC_F16 || type == F32_AS_F16;
}

static bool is_low(const lc_view *v)
{
    return v->ndim >= 0 && v->dtype != LC_F32;
}

/* The type of a factor: of f32 that are rounded, what they are rounded to. */
static lc_dtype factor_type(const lc_call *call, int i)
{
    return call->rounded >> i & 1 ? call->rounded_to : call->in[i].dtype;
}

/* Sets what follows from the types. Returns whether they are supported. */
static bool plan_types(const lc_call *call, product_job *j)
{
    epilogue *e = &j->after;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const lc_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        if (v->ndim >= 0 && !is_stored(v->dtype)) return false;
        j->low |= is_low(v);
    }
    j->low |= call->rounded != 0;
    e->kind = epilogue_of(call->op);
#if defined(LC_ISA_PAIRS)
    lc_dtype type = call->in[0].dtype;
    bool lowered =
        LOWERS && type == LC_F32 && call->matmul_precision != LC_MATMUL_HIGHEST && e->kind != EPILOGUE_ROW_SUMS;
    if (call->in[1].dtype != type || (type != LC_BF16 && !lowered) || checks_finite(call->op)) return false;
    j->halves = lowered && call->matmul_precision == LC_MATMUL_HIGH ? 2 : 1;
    j->low |= lowered;
#endif
    j->x_type = stored_type(call->in[0].dtype, factor_type(call, 0));
    j->y_type = stored_type(call->in[1].dtype, factor_type(call, 1));
    j->out_type = call->out[e->kind == EPILOGUE_GELU ? call->n_out - 1 : 0].dtype;
    j->rounds = is_low(&call->out[0]) || j->out_type != LC_F32;
    e->y_type = call->out[0].dtype;
    if (e->kind == EPILOGUE_SLOPE) {
        e->x_type = call->in[2].dtype;
        e->y_type = call->out[call->n_out - 1].dtype;
        j->rounds |= is_low(&call->in[2]) || is_low(&call->out[call->n_out - 1]);
    }
    if (e->kind == EPILOGUE_ROW_SUMS) e->sums_type = call->out[1].dtype;
    if (!checks_finite(call->op)) return true;
    return is_f16(j->x_type) && is_f16(j->y_type) && all_f32(call->out, call->n_out);
}

/* Three products of halves take less time than one of f32 if each of the numbers that are split into halves is used
 * often. A processor with such units has kernels for f32, too. */
static bool splitting_pays(const product_job *j)
{
    const lc__product *p = &j->p;
    return j->halves < 2 || p->m * p->n >= 64 * (p->m + p->n);
}

static bool plan(const lc_call *call, product *all)
{
    memset(all, 0, sizeof *all);
    product_job *j = &all->job;
    lc__product *p = &j->p;
    if (!plan_types(call, j) || !lc__product_shape(call, p) || !splitting_pays(j)) return false;
    if (!j->low && (p->m < 4 || p->n < 4)) return false;
    if (j->after.kind && p->nb) return false;
    if (!lc__job_plan(j)) return false;
    all->by_matrix = p->nb && j->work < BATCH_WORK;
    if (all->by_matrix && !j->low) return false;
    all->matrices = 1;
    for (int i = 0; i < p->nb; i++) all->matrices *= p->batch[i];
    return true;
}

static bool supports(const lc_call *call)
{
    product all;
    return plan(call, &all);
}

/* Scratch for the loops; what epilogues need follows. */
static int64_t scratch_floats(const product *all, int threads)
{
    return all->by_matrix ? (threads > 1 ? threads : 1) * lc__job_floats(&all->job, 1)
                          : lc__job_floats(&all->job, threads);
}

static lc_status prepare(lc_call *call)
{
    product *all = malloc(sizeof *all);
    if (!all) return lc_fail(LC_ERR_MEMORY, "out of memory: the plan of a product");
    if (!plan(call, all)) {
        free(all);
        return lc_fail(LC_ERR_INTERNAL, "%s is not a product", call->op->name);
    }
    const product_job *j = &all->job;
    int64_t bytes = scratch_floats(all, call->threads) * (int64_t)sizeof(float);
    if (j->after.kind == EPILOGUE_ROW_SUMS) bytes += whole(j->p.m, JOB_ROWS) * (int64_t)sizeof(double);
    if (j->p.bias && call->in[2].dtype != LC_F32) bytes += j->p.n * (int64_t)sizeof(float);
    call->state = all;
    call->scratch_bytes = (size_t)bytes;
    return LC_OK;
}

/* The job of one matrix of the batch. */
static product_job matrix_of(const product *all, int64_t index)
{
    product_job j = all->job;
    const lc__product *p = &j.p;
    for (int i = p->nb - 1; i >= 0; i--) {
        int64_t at = index % p->batch[i];
        index /= p->batch[i];
        j.x = stored_at(j.x_type, j.x, at * p->xb[i]);
        j.y = stored_at(j.y_type, j.y, at * p->yb[i]);
        j.out = stored_at(j.out_type, j.out, at * p->ob[i]);
    }
    return j;
}

/* Whole matrices [begin, end), each in this thread's part of scratch. */
static void some_matrices(const void *context, int64_t begin, int64_t end, int thread)
{
    const product *all = context;
    for (int64_t i = begin; i < end; i++) {
        product_job j = matrix_of(all, i);
        j.scratch += thread * lc__job_floats(&all->job, 1);
        lc__job_run(&j, 1);
    }
}

static void set_epilogue(const lc_call *call, product_job *j, float *scratch)
{
    epilogue *e = &j->after;
    e->tanh = call->n_int && call->ints[0];
    e->y = call->out[0].data;
    if (e->kind == EPILOGUE_SLOPE) {
        e->x = call->in[2].data;
        e->y = call->n_out > 1 ? call->out[1].data : NULL;
    }
    if (e->kind == EPILOGUE_ROW_SUMS) {
        e->partial = (double *)scratch;
        e->sums = call->out[1].data;
        e->finite = checks_finite(call->op) ? call->out[2].data : NULL;
        if (e->finite) *e->finite = 0;
    }
    j->bias = j->p.bias ? call->in[2].data : NULL;
    if (j->bias && call->in[2].dtype != LC_F32) {
        get_run(call->in[2].dtype, call->in[2].data, 0, j->p.n, scratch);
        j->bias = scratch;
    }
}

static void run(const lc_call *call)
{
    product *all = call->state;
    product_job *j = &all->job;
    j->accumulate = call->accumulate;
    j->scratch = call->scratch;
    j->x = call->in[0].data;
    j->y = call->in[1].data;
    j->out = call->out[j->after.kind == EPILOGUE_GELU ? call->n_out - 1 : 0].data;
    set_epilogue(call, j, j->scratch + scratch_floats(all, call->threads));
    if (all->by_matrix) {
        lc__parallel_for(call->threads, all->matrices, 1, some_matrices, all);
        return;
    }
    for (int64_t i = 0; i < all->matrices; i++) {
        product_job one = matrix_of(all, i);
        lc__job_run(&one, call->threads);
    }
    if (j->after.finite) *j->after.finite += zero_if_finite(j->after.sums, 1, 0, j->p.m);
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

static const lc_kernel matmul_kernel = {
    .name = "product_" LC_ISA_STRING,
    .layout = LC_WANT_MATRIX,
    .flags = LC_KERNEL_ACCUMULATES | ROUNDS,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

static const lc_kernel linear_kernel = {
    .name = "product_" LC_ISA_STRING,
    .layout = LC_WANT_MATRIX,
    .flags = ROUNDS,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

static const lc_kernel gelu_kernel = {
    .name = "product_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .flags = ROUNDS,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__product_kernels)[] = {
    {&lc__op_matmul, &matmul_kernel},
    {&lc__op_linear, &linear_kernel},
    {&lc__op_linear_gelu, &gelu_kernel},
    {&lc__op_matmul_gelu_backward, &gelu_kernel},
    {&lc__op_linear_weight_grad, &matmul_kernel},
    {&lc__op_linear_weight_grad_finite, &linear_kernel},
    {NULL, NULL},
};
