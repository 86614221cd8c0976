/* SPDX-License-Identifier: Apache-2.0 */
/* matmul and linear in f64, of single matrices and batches. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/product_f64.h"
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

static void run(const lc_call *call)
{
    job *j = call->state;
    j->x = call->in[0].data;
    j->y = call->in[1].data;
    j->product.out = call->out[0].data;
    j->product.bias = j->shape.bias ? call->in[2].data : NULL;
    j->product.accumulate = call->accumulate;
    lc__product_f64_run(&j->product, call->scratch, call->threads);
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

static const lc_kernel matmul_kernel = {
    .name = "matmul_f64_" LC_ISA_STRING,
    .layout = LC_WANT_MATRIX,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

static const lc_kernel linear_kernel = {
    .name = "linear_f64_" LC_ISA_STRING,
    .layout = LC_WANT_MATRIX,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__matmul_f64_kernels)[] = {
    {&lc__op_matmul, &matmul_kernel},
    {&lc__op_linear, &linear_kernel},
    {NULL, NULL},
};
