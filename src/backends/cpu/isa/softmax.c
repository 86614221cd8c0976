/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, log_softmax and their gradients along the last dimension. Rows of 16 bits are computed in copies. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

typedef struct job {
    const lc_view *x, *y; /* operands */
    const lc_view *to;
    int64_t n;
    float *copies; /* COPIES rows for each thread */
} job;

#define COPIES 3

/* A row of an operand; number: of the copy. */
static const float *row_of(const job *j, const lc_view *v, int64_t r, int thread, int number)
{
    return floats_of(v->dtype, v->data, r * j->n, j->n, j->copies + (thread * COPIES + number) * j->n);
}

static float *result_row(const job *j, int64_t r, int thread)
{
    return floats_for(j->to->dtype, j->to->data, r * j->n, j->copies + (thread * COPIES + 2) * j->n);
}

static void put_row(const job *j, int64_t r, const float *row)
{
    put_floats(j->to->dtype, j->to->data, r * j->n, j->n, row);
}

static void softmax_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_of(j, j->x, r, thread, 0);
        float *to = result_row(j, r, thread);
        const float max = row_max(x, j->n);
        double sum = 0;
        for (int64_t first = 0; first < j->n; first += ROW_CHUNK) {
            int64_t n = row_chunk(j->n - first);
            LC_IVDEP
            for (int64_t i = 0; i < n; i++) to[first + i] = vm_exp(x[first + i] - max);
            sum += row_sum(to + first, n);
        }
        const float scale = (float)(1.0 / sum);
        for (int64_t i = 0; i < j->n; i++) to[i] *= scale;
        put_row(j, r, to);
    }
}

static void log_softmax_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_of(j, j->x, r, thread, 0);
        float *to = result_row(j, r, thread);
        const float max = row_max(x, j->n), rest = (float)log(row_sum_exp(x, max, j->n));
        LC_IVDEP
        for (int64_t i = 0; i < j->n; i++) to[i] = (x[i] - max) - rest;
        put_row(j, r, to);
    }
}

/* dx = y (dy - sum(dy y)) */
static void softmax_backward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t r = begin; r < end; r++) {
        const float *dy = row_of(j, j->x, r, thread, 0), *y = row_of(j, j->y, r, thread, 1);
        float *to = result_row(j, r, thread);
        const float sum = (float)row_dot(dy, y, j->n);
        LC_IVDEP
        for (int64_t i = 0; i < j->n; i++) to[i] = y[i] * (dy[i] - sum);
        put_row(j, r, to);
    }
}

/* dx = dy - exp(y) sum(dy) */
static void log_softmax_backward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t r = begin; r < end; r++) {
        const float *dy = row_of(j, j->x, r, thread, 0), *y = row_of(j, j->y, r, thread, 1);
        float *to = result_row(j, r, thread);
        const float sum = (float)row_sum(dy, j->n);
        LC_IVDEP
        for (int64_t i = 0; i < j->n; i++) to[i] = dy[i] - vm_exp(y[i]) * sum;
        put_row(j, r, to);
    }
}

static bool supports(const lc_call *call)
{
    const lc_view *y = &call->out[0];
    return y->ndim > 0 && call->ints[0] == y->ndim - 1 && y->shape[y->ndim - 1] > 0 && is_stored(y->dtype) &&
           is_stored(call->in[0].dtype) && (call->n_in < 2 || is_stored(call->in[1].dtype));
}

static lc_status prepare(lc_call *call)
{
    const lc_view *y = &call->out[0];
    const size_t threads = call->threads > 1 ? (size_t)call->threads : 1;
    if (!f32_call(call)) call->scratch_bytes = threads * COPIES * (size_t)y->shape[y->ndim - 1] * sizeof(float);
    return LC_OK;
}

static void run_rows(const lc_call *call, lc__block_fn *rows)
{
    const lc_view *y = &call->out[0];
    job j = {.x = &call->in[0],
             .y = call->n_in > 1 ? &call->in[1] : NULL,
             .to = y,
             .n = y->shape[y->ndim - 1],
             .copies = call->scratch};
    lc__parallel_for(call->threads, numel(y) / j.n, lc__block_size(j.n * 4, 1), rows, &j);
}

#define ROW_KERNEL(op)                                                                                                 \
    static void op##_run(const lc_call *call)                                                                          \
    {                                                                                                                  \
        run_rows(call, op##_rows);                                                                                     \
    }                                                                                                                  \
    static const lc_kernel op##_kernel = {                                                                             \
        .name = #op "_" LC_ISA_STRING,                                                                                 \
        .layout = LC_WANT_ROW_MAJOR,                                                                                   \
        .flags = LC_KERNEL_INPLACE_ANY,                                                                                \
        .supports = supports,                                                                                          \
        .prepare = prepare,                                                                                            \
        .run = op##_run,                                                                                               \
    };
ROW_KERNEL(softmax)
ROW_KERNEL(log_softmax)
ROW_KERNEL(softmax_backward)
ROW_KERNEL(log_softmax_backward)

const lc__kernel_entry LC_ISA_NAME(lc__softmax_kernels)[] = {
    {&lc__op_softmax, &softmax_kernel},
    {&lc__op_softmax_backward, &softmax_backward_kernel},
    {&lc__op_log_softmax, &log_softmax_kernel},
    {&lc__op_log_softmax_backward, &log_softmax_backward_kernel},
    {NULL, NULL},
};
