/* SPDX-License-Identifier: Apache-2.0 */
/* matmul and linear in f64, of single matrices and batches, and the fusions of these with gelu, its gradient, and the
 * gradient of a bias, which follow the product. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/product_f64.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath_f64.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/product.h"
#include "ops/ops.h"

#include <stdlib.h>

typedef struct job {
    lc__product shape;
    lc__product_f64 product;
    const double *x, *y;
} job;

/* The offset of a product of the batch in an operand that has these strides. */
static int64_t offset_of(const lc__product *p, const int64_t *stride, int64_t item)
{
    int64_t at = 0;
    for (int i = p->nb - 1; i >= 0; i--) {
        at += item % p->batch[i] * stride[i];
        item /= p->batch[i];
    }
    return at;
}

/* Rows from `first` of a matrix with these strides, of which one is 1, in groups. */
LC_INLINE void pack(const double *from, int64_t row_step, int64_t k_step, int64_t count, const int wide, int64_t depth,
                    double *to)
{
    if (k_step != 1) {
        for (int64_t k = 0; k < depth; k++) pack_neighbors_f64(from + k * k_step, 0, count, wide, k, depth, to);
        pack_end_f64(count, wide, depth, to);
        return;
    }
    for (int64_t i = 0; i < count; i += wide) {
        const double *row[PANEL_F64 + ROWS_F64];
        int64_t n = count - i < wide ? count - i : wide;
        for (int64_t q = 0; q < n; q++) row[q] = from + (i + q) * row_step;
        pack_rows_f64(row, n, wide, depth, to + i * depth);
    }
}

static void pack_x(const lc__product_f64 *p, int64_t item, int64_t first, int64_t count, int64_t k0, int64_t depth,
                   double *to)
{
    const job *j = p->context;
    const lc__product *s = &j->shape;
    pack(j->x + offset_of(s, s->xb, item) + first * s->xm + k0 * s->xk, s->xm, s->xk, count, ROWS_F64, depth, to);
}

static void pack_y(const lc__product_f64 *p, int64_t item, int64_t first, int64_t count, int64_t k0, int64_t depth,
                   double *to)
{
    const job *j = p->context;
    const lc__product *s = &j->shape;
    pack(j->y + offset_of(s, s->yb, item) + first * s->yn + k0 * s->yk, s->yn, s->yk, count, PANEL_F64, depth, to);
}

static bool supports(const lc_call *call)
{
    lc__product shape;
    return lc__product_of_type(call, LC_F64, &shape);
}

static lc_status prepare(lc_call *call)
{
    job *j = calloc(1, sizeof *j);
    if (!j) return lc_fail(LC_ERR_MEMORY, "out of memory: the plan of a product");
    if (!lc__product_of_type(call, LC_F64, &j->shape)) {
        free(j);
        return lc_fail(LC_ERR_INTERNAL, "%s is not a product", call->op->name);
    }
    const lc__product *s = &j->shape;
    j->product = (lc__product_f64){.items = 1,
                                   .m = s->m,
                                   .n = s->n,
                                   .k = s->k,
                                   .pack_a = pack_x,
                                   .pack_b = pack_y,
                                   .item_step = s->m * s->n,
                                   .row_step = s->n,
                                   .context = j,
                                   .activation = s->activation};
    for (int i = 0; i < s->nb; i++) j->product.items *= s->batch[i];
    call->state = j;
    call->scratch_bytes = lc__product_f64_plan(&j->product, call->threads);
    return LC_OK;
}

static void run_product(const lc_call *call, double *out)
{
    job *j = call->state;
    j->x = call->in[0].data;
    j->y = call->in[1].data;
    j->product.out = out;
    j->product.bias = j->shape.bias ? call->in[2].data : NULL;
    j->product.accumulate = call->accumulate;
    lc__product_f64_run(&j->product, call->scratch, call->threads);
}

static void run(const lc_call *call)
{
    run_product(call, call->out[0].data);
}

/* ---- what follows a product ---- */

static void gelu_run(bool tanh, const double *x, double *y, int64_t begin, int64_t end)
{
    if (tanh) {
        LC_IVDEP
        for (int64_t i = begin; i < end; i++) y[i] = vd_gelu_tanh(x[i]);
    } else {
        LC_IVDEP
        for (int64_t i = begin; i < end; i++) y[i] = vd_gelu_erf(x[i]);
    }
}

static void gelu(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    (void)thread;
    gelu_run(call->ints[0] != 0, call->out[call->n_out - 1].data, call->out[0].data, begin, end);
}

static void slope_of_gelu(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const double *x = call->in[2].data;
    double *y = call->out[0].data;
    (void)thread;
    if (call->ints[0]) {
        LC_IVDEP
        for (int64_t i = begin; i < end; i++) y[i] *= vd_gelu_tanh_slope(x[i]);
    } else {
        LC_IVDEP
        for (int64_t i = begin; i < end; i++) y[i] *= vd_gelu_erf_slope(x[i]);
    }
    if (call->n_out > 1) gelu_run(call->ints[0] != 0, x, call->out[1].data, begin, end);
}

static void sums_of_columns(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const lc_view *dy = &call->in[0];
    double *sums = call->out[1].data;
    (void)thread;
    for (int64_t c = begin; c < end; c++) sums[c] = 0;
    for (int64_t r = 0; r < dy->shape[0]; r++) {
        const double *row = (const double *)dy->data + r * dy->stride[0];
        if (dy->stride[1] == 1) {
            for (int64_t c = begin; c < end; c++) sums[c] += row[c];
        } else {
            for (int64_t c = begin; c < end; c++) sums[c] += row[c * dy->stride[1]];
        }
    }
}

static void linear_gelu_run(const lc_call *call)
{
    run_product(call, call->out[call->n_out - 1].data);
    lc__parallel_for(call->threads, numel(&call->out[0]), 4096, gelu, call);
}

static void gelu_backward_run(const lc_call *call)
{
    run(call);
    lc__parallel_for(call->threads, numel(&call->out[0]), 4096, slope_of_gelu, call);
}

static void weight_grad_run(const lc_call *call)
{
    run(call);
    lc__parallel_for(call->threads, call->in[0].shape[1], 64, sums_of_columns, call);
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

/* ---- kernels ---- */
#define KERNEL(id, want, more, run_call)                                                                               \
    static const lc_kernel id##_kernel = {                                                                             \
        .name = #id "_f64_" LC_ISA_STRING,                                                                             \
        .layout = want,                                                                                                \
        .flags = more,                                                                                                 \
        .supports = supports,                                                                                          \
        .prepare = prepare,                                                                                            \
        .run = run_call,                                                                                               \
        .release = release,                                                                                            \
    };
KERNEL(matmul, LC_WANT_MATRIX, LC_KERNEL_ACCUMULATES, run)
KERNEL(linear, LC_WANT_MATRIX, 0, run)
KERNEL(linear_gelu, LC_WANT_ROW_MAJOR, 0, linear_gelu_run)
KERNEL(matmul_gelu_backward, LC_WANT_ROW_MAJOR, 0, gelu_backward_run)
KERNEL(linear_weight_grad, LC_WANT_MATRIX, LC_KERNEL_ACCUMULATES, weight_grad_run)

const lc__kernel_entry LC_ISA_NAME(lc__matmul_f64_kernels)[] = {
    {&lc__op_matmul, &matmul_kernel},
    {&lc__op_linear, &linear_kernel},
    {&lc__op_linear_gelu, &linear_gelu_kernel},
    {&lc__op_matmul_gelu_backward, &matmul_gelu_backward_kernel},
    {&lc__op_linear_weight_grad, &linear_weight_grad_kernel},
    {NULL, NULL},
};
