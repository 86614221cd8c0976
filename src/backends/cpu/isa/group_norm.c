/* SPDX-License-Identifier: Apache-2.0 */
/* Group normalization of channels-last activations: threads take whole samples, each a matrix [pixels, C] in which
 * neighboring columns form a group. Samples of 16 bits are computed in copies. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define GROUP_ROWS 32 /* rows that are added in float */

typedef struct job {
    int64_t n, c, pixels, groups, per; /* per: channels of a group */
    const lc_view *x, *dy, *y;
    const float *weight, *bias, *in_mean, *in_rstd;
    float *mean, *rstd;
    float *partial; /* backward: dw[c], db[c] of every sample */
    double eps;
    char *scratch;
    size_t scratch_step;
} job;

/* Per thread: two sums per channel, the same as floats, and three parameters per channel; copies of three samples if
 * one is not f32. */
static size_t scratch_of(const lc_call *call, const lc_view *x)
{
    const int64_t c = x->shape[1], sample = extent(x, 1, x->ndim);
    return ((size_t)c * (2 * sizeof(double) + 5 * sizeof(float)) + (f32_call(call) ? 0 : (size_t)sample * 12) + 63) /
           64 * 64;
}

static job job_of(const lc_call *call, const lc_view *x)
{
    job j = {.n = x->shape[0], .c = x->shape[1], .pixels = extent(x, 2, x->ndim), .groups = call->ints[0], .x = x};
    j.per = j.c / j.groups;
    j.scratch = call->scratch;
    j.scratch_step = scratch_of(call, x);
    return j;
}

/* sum[c] = sum over pixels of `term`, which uses row and c. */
#define SUM_PIXELS(sum, acc, term)                                                                                     \
    for (int64_t c = 0; c < channels; c++) sum[c] = 0;                                                                 \
    for (int64_t first = 0; first < j->pixels; first += GROUP_ROWS) {                                                  \
        int64_t last = first + GROUP_ROWS < j->pixels ? first + GROUP_ROWS : j->pixels;                                \
        for (int64_t c = 0; c < channels; c++) acc[c] = 0.f;                                                           \
        for (int64_t p = first; p < last; p++) {                                                                       \
            const int64_t row = p * channels;                                                                          \
            LC_IVDEP                                                                                                   \
            for (int64_t c = 0; c < channels; c++) acc[c] += term;                                                     \
        }                                                                                                              \
        for (int64_t c = 0; c < channels; c++) sum[c] += (double)acc[c];                                               \
    }

static double of_group(const double *sum, int64_t first, int64_t n)
{
    double total = 0;
    for (int64_t c = first; c < first + n; c++) total += sum[c];
    return total;
}

/* ---- forward ---- */
static void forward_samples(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t channels = j->c;
    double *sum = (double *)(j->scratch + (size_t)thread * j->scratch_step);
    float *acc = (float *)(sum + 2 * channels), *m = acc + channels, *s = m + channels;
    const double count = (double)(j->per * j->pixels);
    for (int64_t n = begin; n < end; n++) {
        const int64_t size = j->pixels * channels;
        float *copy = s + 3 * channels;
        const float *x = floats_of(j->x->dtype, j->x->data, n * size, size, copy);
        float *y = floats_for(j->y->dtype, j->y->data, n * size, copy + size);
        SUM_PIXELS(sum, acc, x[row + c])
        for (int64_t g = 0; g < j->groups; g++) {
            float mean = (float)(of_group(sum, g * j->per, j->per) / count);
            j->mean[n * j->groups + g] = mean;
            for (int64_t c = g * j->per; c < (g + 1) * j->per; c++) m[c] = mean;
        }
        SUM_PIXELS(sum, acc, (x[row + c] - m[c]) * (x[row + c] - m[c]))
        for (int64_t g = 0; g < j->groups; g++) {
            double rstd = 1 / sqrt(of_group(sum, g * j->per, j->per) / count + j->eps);
            j->rstd[n * j->groups + g] = (float)rstd;
            for (int64_t c = g * j->per; c < (g + 1) * j->per; c++)
                s[c] = (float)(rstd * (j->weight ? (double)j->weight[c] : 1));
        }
        for (int64_t p = 0; p < j->pixels; p++) {
            const int64_t row = p * channels;
            if (j->bias) {
                LC_IVDEP
                for (int64_t c = 0; c < channels; c++) y[row + c] = (x[row + c] - m[c]) * s[c] + j->bias[c];
            } else {
                LC_IVDEP
                for (int64_t c = 0; c < channels; c++) y[row + c] = (x[row + c] - m[c]) * s[c];
            }
        }
        put_floats(j->y->dtype, j->y->data, n * size, size, y);
    }
}

static bool stored_or_f32(const lc_view *v, int n, int n_stored)
{
    bool ok = all_f32(v + n_stored, n - n_stored);
    for (int i = 0; i < n_stored; i++) ok = ok && is_stored(v[i].dtype);
    return ok;
}

static bool supports(const lc_call *call)
{
    const int samples = call->op == &lc__op_group_norm ? 1 : 2;
    return stored_or_f32(call->in, call->n_in, samples) && stored_or_f32(call->out, call->n_out, 1) &&
           call->out[0].ndim >= 2 && numel(&call->out[0]) > 0;
}

static lc_status forward_prepare(lc_call *call)
{
    call->scratch_bytes = (size_t)(call->threads > 1 ? call->threads : 1) * scratch_of(call, &call->in[0]);
    return LC_OK;
}

static void forward_run(const lc_call *call)
{
    job j = job_of(call, &call->in[0]);
    j.weight = call->in[1].data;
    j.bias = call->in[2].data;
    j.y = &call->out[0];
    j.mean = call->out[1].data;
    j.rstd = call->out[2].data;
    j.eps = call->floats[0];
    lc__parallel_for(call->threads, j.n, 1, forward_samples, &j);
}

static const lc_kernel forward_kernel = {
    .name = "group_norm_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = supports,
    .prepare = forward_prepare,
    .run = forward_run,
};

/* ---- backward ---- */
static void backward_samples(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t channels = j->c;
    double *sum = (double *)(j->scratch + (size_t)thread * j->scratch_step), *product = sum + channels;
    float *acc = (float *)(product + channels), *m = acc + channels, *s = m + channels, *fx = s + channels;
    float *f1 = fx + channels;
    const double count = (double)(j->per * j->pixels);
    for (int64_t n = begin; n < end; n++) {
        const int64_t size = j->pixels * channels;
        float *copy = f1 + channels;
        const float *x = floats_of(j->x->dtype, j->x->data, n * size, size, copy);
        const float *dy = floats_of(j->dy->dtype, j->dy->data, n * size, size, copy + size);
        float *dx = floats_for(j->y->dtype, j->y->data, n * size, copy + 2 * size);
        float *dw = j->partial + n * 2 * channels, *db = dw + channels;
        for (int64_t c = 0; c < channels; c++) m[c] = j->in_mean[n * j->groups + c / j->per];
        SUM_PIXELS(sum, acc, dy[row + c])
        SUM_PIXELS(product, acc, dy[row + c] * (x[row + c] - m[c]))
        for (int64_t g = 0; g < j->groups; g++) {
            double rstd = (double)j->in_rstd[n * j->groups + g], a = 0, p = 0;
            for (int64_t c = g * j->per; c < (g + 1) * j->per; c++) {
                double w = j->weight ? (double)j->weight[c] : 1;
                dw[c] = (float)(product[c] * rstd);
                db[c] = (float)sum[c];
                a += w * sum[c];
                p += w * product[c];
                s[c] = (float)(w * rstd);
            }
            /* dx = rstd (w dy - a / count - xhat rstd p / count) */
            for (int64_t c = g * j->per; c < (g + 1) * j->per; c++) {
                f1[c] = (float)(-rstd * a / count);
                fx[c] = (float)(-rstd * rstd * rstd * p / count);
            }
        }
        for (int64_t p = 0; p < j->pixels; p++) {
            const int64_t row = p * channels;
            LC_IVDEP
            for (int64_t c = 0; c < channels; c++)
                dx[row + c] = dy[row + c] * s[c] + ((x[row + c] - m[c]) * fx[c] + f1[c]);
        }
        put_floats(j->y->dtype, j->y->data, n * size, size, dx);
    }
}

static lc_status backward_prepare(lc_call *call)
{
    const lc_view *x = &call->in[1];
    call->scratch_bytes = (size_t)(call->threads > 1 ? call->threads : 1) * scratch_of(call, x) +
                          (size_t)(x->shape[0] * 2 * x->shape[1]) * sizeof(float);
    return LC_OK;
}

static void backward_run(const lc_call *call)
{
    job j = job_of(call, &call->in[1]);
    j.dy = &call->in[0];
    j.weight = call->in[2].data;
    j.in_mean = call->in[3].data;
    j.in_rstd = call->in[4].data;
    j.y = &call->out[0];
    j.partial = (float *)(j.scratch + (size_t)(call->threads > 1 ? call->threads : 1) * j.scratch_step);
    lc__parallel_for(call->threads, j.n, 1, backward_samples, &j);
    float *dw = call->out[1].data, *db = call->out[2].data;
    for (int64_t c = 0; c < j.c; c++) {
        double w = 0, b = 0;
        for (int64_t n = 0; n < j.n; n++) {
            w += (double)j.partial[n * 2 * j.c + c];
            b += (double)j.partial[(n * 2 + 1) * j.c + c];
        }
        dw[c] = (float)w;
        db[c] = (float)b;
    }
}

static const lc_kernel backward_kernel = {
    .name = "group_norm_backward_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = supports,
    .prepare = backward_prepare,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__group_norm_kernels)[] = {
    {&lc__op_group_norm, &forward_kernel},
    {&lc__op_group_norm_backward, &backward_kernel},
    {NULL, NULL},
};
