/* SPDX-License-Identifier: Apache-2.0 */
/* softmax, log_softmax and their gradients along the last dimension, in f64. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath_f64.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

typedef struct job {
    const double *x, *y; /* operands */
    double *to;
    int64_t n;
} job;

/* to = exp(x - max); returns its sum. */
static double exponentials(const double *x, double max, int64_t n, double *to)
{
    LC_IVDEP
    for (int64_t i = 0; i < n; i++) to[i] = vd_exp(x[i] - max);
    return row_sum_f64(to, n);
}

static void softmax_row(const job *j, const double *x, const double *unused, double *to)
{
    (void)unused;
    const double scale = 1 / exponentials(x, row_max_f64(x, j->n), j->n, to);
    for (int64_t i = 0; i < j->n; i++) to[i] *= scale;
}

static void log_softmax_row(const job *j, const double *x, const double *unused, double *to)
{
    enum { RUN = 512 };
    const double max = row_max_f64(x, j->n);
    double run[RUN], sum = 0;
    (void)unused;
    for (int64_t i = 0; i < j->n; i += RUN) sum += exponentials(x + i, max, j->n - i < RUN ? j->n - i : RUN, run);
    const double shift = max + log(sum);
    for (int64_t i = 0; i < j->n; i++) to[i] = x[i] - shift;
}

/* dx = y (dy - sum(dy y)) */
static void softmax_backward_row(const job *j, const double *dy, const double *y, double *to)
{
    const double sum = row_dot_f64(dy, y, j->n);
    LC_IVDEP
    for (int64_t i = 0; i < j->n; i++) to[i] = y[i] * (dy[i] - sum);
}

/* dx = dy - exp(y) sum(dy) */
static void log_softmax_backward_row(const job *j, const double *dy, const double *y, double *to)
{
    const double sum = row_sum_f64(dy, j->n);
    LC_IVDEP
    for (int64_t i = 0; i < j->n; i++) to[i] = dy[i] - vd_exp(y[i]) * sum;
}

static bool supports(const lc_call *call)
{
    const lc_view *y = &call->out[0];
    return y->dtype == LC_F64 && y->ndim > 0 && call->ints[0] == y->ndim - 1 && y->shape[y->ndim - 1] > 0;
}

static job job_of(const lc_call *call)
{
    const lc_view *y = &call->out[0];
    return (job){.x = call->in[0].data,
                 .y = call->n_in > 1 ? call->in[1].data : NULL,
                 .to = y->data,
                 .n = y->shape[y->ndim - 1]};
}

#define ROW_KERNEL(op)                                                                                                 \
    static void op##_rows(const void *context, int64_t begin, int64_t end, int thread)                                 \
    {                                                                                                                  \
        const job *j = context;                                                                                        \
        (void)thread;                                                                                                  \
        for (int64_t r = begin; r < end; r++)                                                                          \
            op##_row(j, j->x + r * j->n, j->y ? j->y + r * j->n : NULL, j->to + r * j->n);                             \
    }                                                                                                                  \
    static void op##_run(const lc_call *call)                                                                          \
    {                                                                                                                  \
        job j = job_of(call);                                                                                          \
        lc__parallel_for(call->threads, numel(&call->out[0]) / j.n, lc__block_size(j.n * 8, 1), op##_rows, &j);        \
    }                                                                                                                  \
    static const lc_kernel op##_kernel = {                                                                             \
        .name = #op "_f64_" LC_ISA_STRING,                                                                             \
        .layout = LC_WANT_ROW_MAJOR,                                                                                   \
        .flags = LC_KERNEL_INPLACE_ANY,                                                                                \
        .supports = supports,                                                                                          \
        .run = op##_run,                                                                                               \
    };
ROW_KERNEL(softmax)
ROW_KERNEL(log_softmax)
ROW_KERNEL(softmax_backward)
ROW_KERNEL(log_softmax_backward)

const lc__kernel_entry LC_ISA_NAME(lc__softmax_f64_kernels)[] = {
    {&lc__op_softmax, &softmax_kernel},
    {&lc__op_softmax_backward, &softmax_backward_kernel},
    {&lc__op_log_softmax, &log_softmax_kernel},
    {&lc__op_log_softmax_backward, &log_softmax_backward_kernel},
    {NULL, NULL},
};
