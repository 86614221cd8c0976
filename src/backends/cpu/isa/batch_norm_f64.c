/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalization in f64 over channels-last activations, seen as a matrix [M, C]: one pass for sums, kept per block
 * of rows and added in the order of the blocks, and one for the result. Sums are taken of differences from a pivot near
 * the mean, so that they do not cancel. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

#define MAX_BLOCKS  64
#define BLOCK_BYTES 65536
#define VECTORS     7

/* Vectors have c numbers. */
typedef struct job {
    int64_t m, c, rows, blocks; /* rows of a block */
    const double *x, *dy;
    double *y, *again;                     /* again: the result, with relu, in a backward pass; NULL: not wanted */
    double *mean, *scale, *bias, *fx, *f1; /* of forward: y = (x - mean) scale + bias */
    double *sum1, *sum2, *partial;         /* per block: both sums */
    bool relu;
} job;

static job job_of(const lc_call *call, const lc_view *x)
{
    job j = {.c = x->shape[1], .m = numel(x) / x->shape[1], .x = x->data, .y = call->out[0].data};
    int64_t least = (j.m + MAX_BLOCKS - 1) / MAX_BLOCKS;
    j.rows = BLOCK_BYTES / (j.c * (int64_t)sizeof(double));
    if (j.rows < least) j.rows = least;
    j.blocks = (j.m + j.rows - 1) / j.rows;
    j.relu = call->ints[0] == 1;
    return j;
}

static job placed_job(const lc_call *call, const lc_view *x)
{
    job j = job_of(call, x);
    double **vectors[VECTORS] = {&j.mean, &j.scale, &j.bias, &j.fx, &j.f1, &j.sum1, &j.sum2};
    double *scratch = call->scratch;
    for (int i = 0; i < VECTORS; i++, scratch += j.c) *vectors[i] = scratch;
    j.partial = scratch;
    return j;
}

static lc_status prepare(lc_call *call)
{
    bool backward = call->op == &lc__op_batch_norm_backward || call->op == &lc__op_batch_norm_relu_backward;
    job j = job_of(call, &call->in[backward ? 1 : 0]);
    call->scratch_bytes = (size_t)((VECTORS + 2 * j.blocks) * j.c) * sizeof(double);
    return LC_OK;
}

/* ---- sums ---- */
static void moments(const job *j, int64_t row, int64_t rows, double *restrict s1, double *restrict s2)
{
    const double *restrict pivot = j->bias;
    for (int64_t r = row; r < row + rows; r++) {
        const double *restrict x = j->x + r * j->c;
        for (int64_t c = 0; c < j->c; c++) {
            double d = x[c] - pivot[c];
            s1[c] += d;
            s2[c] += d * d;
        }
    }
}

/* s1: sum of dy, s2: sum of dy (x - mean), where dy counts only if the result was positive. */
static void gradient_sums(const job *j, int64_t row, int64_t rows, double *restrict s1, double *restrict s2)
{
    const double *restrict mean = j->mean, *restrict scale = j->scale, *restrict bias = j->bias;
    for (int64_t r = row; r < row + rows; r++) {
        const double *restrict x = j->x + r * j->c, *restrict dy = j->dy + r * j->c;
        if (j->relu) {
            for (int64_t c = 0; c < j->c; c++) {
                double d = x[c] - mean[c], g = d * scale[c] + bias[c] <= 0 ? 0 : dy[c];
                s1[c] += g;
                s2[c] += g * d;
            }
        } else {
            for (int64_t c = 0; c < j->c; c++) {
                s1[c] += dy[c];
                s2[c] += dy[c] * (x[c] - mean[c]);
            }
        }
    }
}

static void sum_blocks(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t b = begin; b < end; b++) {
        double *s1 = j->partial + b * 2 * j->c, *s2 = s1 + j->c;
        int64_t row = b * j->rows, rows = j->m - row < j->rows ? j->m - row : j->rows;
        memset(s1, 0, (size_t)(2 * j->c) * sizeof *s1);
        if (j->dy)
            gradient_sums(j, row, rows, s1, s2);
        else
            moments(j, row, rows, s1, s2);
    }
}

static void make_sums(const job *j, int threads)
{
    lc__parallel_for(threads, j->blocks, 1, sum_blocks, j);
    memcpy(j->sum1, j->partial, (size_t)j->c * sizeof(double));
    memcpy(j->sum2, j->partial + j->c, (size_t)j->c * sizeof(double));
    for (int64_t b = 1; b < j->blocks; b++) {
        const double *p = j->partial + b * 2 * j->c;
        for (int64_t c = 0; c < j->c; c++) {
            j->sum1[c] += p[c];
            j->sum2[c] += p[j->c + c];
        }
    }
}

/* ---- forward ---- */
static void affine_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const double *restrict mean = j->mean, *restrict scale = j->scale, *restrict bias = j->bias;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const double *restrict x = j->x + r * j->c;
        double *restrict y = j->y + r * j->c;
        for (int64_t c = 0; c < j->c; c++) y[c] = (x[c] - mean[c]) * scale[c] + bias[c];
        for (int64_t c = 0; j->relu && c < j->c; c++) y[c] = y[c] <= 0 ? 0 : y[c];
    }
}

static void set_parameters(const job *j, const double *mean, const double *var, const double *weight,
                           const double *bias, double eps)
{
    for (int64_t c = 0; c < j->c; c++) {
        j->mean[c] = mean[c];
        j->scale[c] = (weight ? weight[c] : 1) / sqrt(var[c] + eps);
        j->bias[c] = bias ? bias[c] : 0;
    }
}

/* The mean of some rows spread over the batch. */
static void set_pivot(const job *j, double *pivot)
{
    int64_t samples = j->m < 32 ? j->m : 32;
    memset(pivot, 0, (size_t)j->c * sizeof *pivot);
    for (int64_t s = 0; s < samples; s++) {
        const double *row = j->x + j->m * s / samples * j->c;
        for (int64_t c = 0; c < j->c; c++) pivot[c] += row[c] / (double)samples;
    }
}

static void forward_run(const lc_call *call)
{
    job j = placed_job(call, &call->in[0]);
    double *mean = call->out[1].data, *var = call->out[2].data;
    set_pivot(&j, j.bias);
    make_sums(&j, call->threads);
    for (int64_t c = 0; c < j.c; c++) {
        double d = j.sum1[c] / (double)j.m, v = j.sum2[c] / (double)j.m - d * d;
        mean[c] = j.bias[c] + d;
        var[c] = v < 0 ? 0 : v;
    }
    set_parameters(&j, mean, var, call->in[1].data, call->in[2].data, call->floats[0]);
    lc__parallel_for(call->threads, j.m, lc__block_size(j.c * 16, 1), affine_rows, &j);
}

static void inference_run(const lc_call *call)
{
    job j = placed_job(call, &call->in[0]);
    set_parameters(&j, call->in[3].data, call->in[4].data, call->in[1].data, call->in[2].data, call->floats[0]);
    lc__parallel_for(call->threads, j.m, lc__block_size(j.c * 16, 1), affine_rows, &j);
}

/* ---- backward ---- */
static void backward_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const double *restrict mean = j->mean, *restrict scale = j->scale, *restrict bias = j->bias;
    const double *restrict fx = j->fx, *restrict f1 = j->f1;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const double *restrict x = j->x + r * j->c, *restrict dy = j->dy + r * j->c;
        double *restrict dx = j->y + r * j->c, *restrict again = j->again ? j->again + r * j->c : NULL;
        for (int64_t c = 0; again && c < j->c; c++) {
            double z = (x[c] - mean[c]) * scale[c] + bias[c];
            again[c] = z <= 0 ? 0 : z;
        }
        if (j->relu) {
            for (int64_t c = 0; c < j->c; c++) {
                double d = x[c] - mean[c], g = d * scale[c] + bias[c] <= 0 ? 0 : dy[c];
                dx[c] = g * scale[c] + (d * fx[c] + f1[c]);
            }
        } else {
            for (int64_t c = 0; c < j->c; c++) dx[c] = dy[c] * scale[c] + ((x[c] - mean[c]) * fx[c] + f1[c]);
        }
    }
}

static void backward_run(const lc_call *call)
{
    job j = placed_job(call, &call->in[1]);
    const double *var = call->in[5].data;
    double *dw = call->out[1].data, *db = call->out[2].data;
    j.dy = call->in[0].data;
    j.again = call->n_out > 3 ? call->out[3].data : NULL;
    set_parameters(&j, call->in[4].data, var, call->in[2].data, call->in[3].data, call->floats[0]);
    make_sums(&j, call->threads);
    for (int64_t c = 0; c < j.c; c++) {
        double square = 1 / (var[c] + call->floats[0]);
        dw[c] = j.sum2[c] * sqrt(square);
        db[c] = j.sum1[c];
        j.fx[c] = -j.scale[c] * j.sum2[c] * square / (double)j.m;
        j.f1[c] = -j.scale[c] * j.sum1[c] / (double)j.m;
    }
    lc__parallel_for(call->threads, j.m, lc__block_size(j.c * 24, 1), backward_rows, &j);
}

static bool supports(const lc_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (given(&call->in[i]) && call->in[i].dtype != LC_F64) return false;
    return call->out[0].ndim >= 2 && numel(&call->out[0]) > 0;
}

#define KERNEL(id, run_call)                                                                                           \
    static const lc_kernel id##_kernel = {                                                                             \
        .name = #id "_f64_" LC_ISA_STRING,                                                                             \
        .layout = LC_WANT_CHANNELS_LAST,                                                                               \
        .supports = supports,                                                                                          \
        .prepare = prepare,                                                                                            \
        .run = run_call,                                                                                               \
    };
KERNEL(batch_norm, forward_run)
KERNEL(batch_norm_inference, inference_run)
KERNEL(batch_norm_backward, backward_run)
KERNEL(batch_norm_relu_backward, backward_run)

const lc__kernel_entry LC_ISA_NAME(lc__batch_norm_f64_kernels)[] = {
    {&lc__op_batch_norm, &batch_norm_kernel},
    {&lc__op_batch_norm_inference, &batch_norm_inference_kernel},
    {&lc__op_batch_norm_backward, &batch_norm_backward_kernel},
    {&lc__op_batch_norm_relu_backward, &batch_norm_relu_backward_kernel},
    {NULL, NULL},
};
