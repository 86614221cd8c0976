/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling of channels-last images: a pixel is a vector of channels, and windows are walked pixel by pixel. Threads take
 * whole images or, if windows do not overlap, rows of windows. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

typedef struct job {
    const lc_call *call;
    int64_t n, c, h, w, oh, ow; /* images and pooled images */
    const float *from;
    float *to;
    uint8_t *index;
    bool adaptive;
} job;

static job job_of(const lc_call *call, const lc_view *image, const lc_view *pooled)
{
    return (job){.call = call,
                 .n = image->shape[0],
                 .c = image->shape[1],
                 .h = image->shape[2],
                 .w = image->shape[3],
                 .oh = pooled->shape[2],
                 .ow = pooled->shape[3],
                 .from = call->in[0].data,
                 .to = call->out[0].data};
}

static int64_t rows_per_block(const job *j)
{
    return lc__block_size(larger(j->w * j->c * 4 * (j->h / larger(j->oh, 1)), 1), 1);
}

/* ---- maximum ---- */
/* Updates the best values so far with pixel x, number `place` of the window. */
static inline void take_larger(int64_t n, float *restrict best, uint8_t *restrict index, const float *restrict x,
                               uint8_t place)
{
    for (int64_t c = 0; c < n; c++) {
        float v = x[c], b = best[c];
        /* The first maximum wins; a NaN beats every number. */
        int wins = (v > b) | ((v != v) & (b == b));
        best[c] = wins ? v : b;
        index[c] = wins ? place : index[c];
    }
}

static void max_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t *k = j->call->ints;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *image = j->from + r / j->oh * j->h * j->w * j->c;
        for (int64_t q = 0; q < j->ow; q++) {
            float *best = j->to + (r * j->ow + q) * j->c;
            uint8_t *index = j->index + (r * j->ow + q) * j->c;
            bool first = true;
            for (int64_t a = 0; a < k[0]; a++) {
                int64_t h = r % j->oh * k[2] - k[4] + a * k[6];
                if (h < 0 || h >= j->h) continue;
                for (int64_t b = 0; b < k[1]; b++) {
                    int64_t w = q * k[3] - k[5] + b * k[7];
                    if (w < 0 || w >= j->w) continue;
                    const float *x = image + (h * j->w + w) * j->c;
                    if (first) {
                        memcpy(best, x, (size_t)j->c * sizeof *best);
                        memset(index, (int)(a * k[1] + b), (size_t)j->c);
                        first = false;
                    } else {
                        take_larger(j->c, best, index, x, (uint8_t)(a * k[1] + b));
                    }
                }
            }
            if (!first) continue;
            for (int64_t c = 0; c < j->c; c++) best[c] = -INFINITY;
            memset(index, 0, (size_t)j->c);
        }
    }
}

static bool max_supports(const lc_call *call)
{
    return call->in[0].ndim == 4 && call->in[0].dtype == LC_F32 && call->out[1].dtype == LC_U8;
}

static void max_run(const lc_call *call)
{
    job j = job_of(call, &call->in[0], &call->out[0]);
    j.index = call->out[1].data;
    lc__parallel_for(call->threads, j.n * j.oh, rows_per_block(&j), max_rows, &j);
}

static const lc_kernel max_kernel = {
    .name = "max_pool2d_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = max_supports,
    .run = max_run,
};

/* Clears the images of a block, then adds every window to the pixels that won. */
static void max_backward_images(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t *k = j->call->ints;
    const int64_t size = j->h * j->w * j->c;
    (void)thread;
    for (int64_t n = begin; n < end; n++) {
        float *image = j->to + n * size;
        memset(image, 0, (size_t)size * sizeof *image);
        for (int64_t p = 0; p < j->oh * j->ow; p++) {
            const float *dy = j->from + (n * j->oh * j->ow + p) * j->c;
            const uint8_t *index = j->index + (n * j->oh * j->ow + p) * j->c;
            for (int64_t a = 0; a < k[0]; a++) {
                int64_t h = p / j->ow * k[2] - k[4] + a * k[6];
                if (h < 0 || h >= j->h) continue;
                for (int64_t b = 0; b < k[1]; b++) {
                    int64_t w = p % j->ow * k[3] - k[5] + b * k[7];
                    if (w < 0 || w >= j->w) continue;
                    float *restrict dx = image + (h * j->w + w) * j->c;
                    const int32_t place = (int32_t)(a * k[1] + b);
                    for (int64_t c = 0; c < j->c; c++) {
                        float g = dy[c];
                        dx[c] += (int32_t)index[c] == place ? g : 0.f;
                    }
                }
            }
        }
    }
}

static bool max_backward_supports(const lc_call *call)
{
    return call->in[0].ndim == 4 && call->in[0].dtype == LC_F32 && call->in[1].dtype == LC_U8;
}

static void max_backward_run(const lc_call *call)
{
    job j = job_of(call, &call->out[0], &call->in[0]);
    j.index = call->in[1].data;
    lc__parallel_for(call->threads, j.n, lc__block_size(larger(j.h * j.w * j.c * 4, 1), 1), max_backward_images, &j);
}

static const lc_kernel max_backward_kernel = {
    .name = "max_pool2d_backward_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = max_backward_supports,
    .run = max_backward_run,
};

/* ---- average ---- */
typedef struct cell {
    int64_t h0, h1, w0, w1;
    float share; /* 1 / divisor */
} cell;

static cell cell_of(const job *j, int64_t oh, int64_t ow)
{
    const int64_t *k = j->call->ints;
    if (j->adaptive) {
        cell r = {oh * j->h / j->oh, ((oh + 1) * j->h + j->oh - 1) / j->oh, ow * j->w / j->ow,
                  ((ow + 1) * j->w + j->ow - 1) / j->ow, 0};
        r.share = (float)(1.0 / (double)((r.h1 - r.h0) * (r.w1 - r.w0)));
        return r;
    }
    /* kh kw sh sw ph pw ceil count_include_pad divisor */
    int64_t h0 = oh * k[2] - k[4], w0 = ow * k[3] - k[5];
    int64_t h1 = smaller(h0 + k[0], j->h + k[4]), w1 = smaller(w0 + k[1], j->w + k[5]);
    int64_t padded = (h1 - h0) * (w1 - w0);
    cell r = {larger(h0, 0), smaller(h1, j->h), larger(w0, 0), smaller(w1, j->w), 0};
    int64_t inside = larger(r.h1 - r.h0, 0) * larger(r.w1 - r.w0, 0);
    int64_t divisor = k[8] ? k[8] : k[7] ? padded : inside;
    r.share = (float)(inside == 0 ? 1.0 : 1.0 / (double)divisor);
    return r;
}

static void average_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        const float *image = j->from + r / j->oh * j->h * j->w * j->c;
        for (int64_t q = 0; q < j->ow; q++) {
            float *restrict y = j->to + (r * j->ow + q) * j->c;
            cell k = cell_of(j, r % j->oh, q);
            memset(y, 0, (size_t)j->c * sizeof *y);
            for (int64_t h = k.h0; h < k.h1; h++) {
                for (int64_t w = k.w0; w < k.w1; w++) {
                    const float *x = image + (h * j->w + w) * j->c;
                    for (int64_t c = 0; c < j->c; c++) y[c] += x[c];
                }
            }
            for (int64_t c = 0; c < j->c; c++) y[c] *= k.share;
        }
    }
}

static void average_backward_images(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t size = j->h * j->w * j->c;
    (void)thread;
    for (int64_t n = begin; n < end; n++) {
        float *image = j->to + n * size;
        memset(image, 0, (size_t)size * sizeof *image);
        for (int64_t p = 0; p < j->oh * j->ow; p++) {
            const float *dy = j->from + (n * j->oh * j->ow + p) * j->c;
            cell k = cell_of(j, p / j->ow, p % j->ow);
            for (int64_t h = k.h0; h < k.h1; h++) {
                for (int64_t w = k.w0; w < k.w1; w++) {
                    float *restrict dx = image + (h * j->w + w) * j->c;
                    for (int64_t c = 0; c < j->c; c++) dx[c] += dy[c] * k.share;
                }
            }
        }
    }
}

static bool image_supports(const lc_call *call)
{
    return call->in[0].ndim == 4 && f32_call(call);
}

static void average(const lc_call *call, bool adaptive)
{
    job j = job_of(call, &call->in[0], &call->out[0]);
    j.adaptive = adaptive;
    lc__parallel_for(call->threads, j.n * j.oh, rows_per_block(&j), average_rows, &j);
}

static void average_backward(const lc_call *call, bool adaptive)
{
    job j = job_of(call, &call->out[0], &call->in[0]);
    j.adaptive = adaptive;
    lc__parallel_for(call->threads, j.n, lc__block_size(larger(j.h * j.w * j.c * 4, 1), 1), average_backward_images,
                     &j);
}

static void avg_run(const lc_call *call)
{
    average(call, false);
}

static void avg_backward_run(const lc_call *call)
{
    average_backward(call, false);
}

static void adaptive_run(const lc_call *call)
{
    average(call, true);
}

static void adaptive_backward_run(const lc_call *call)
{
    average_backward(call, true);
}

#define AVERAGE_KERNEL(op)                                                                                             \
    static const lc_kernel op##_kernel = {                                                                             \
        .name = "average_pool_" LC_ISA_STRING,                                                                         \
        .layout = LC_WANT_CHANNELS_LAST,                                                                               \
        .supports = image_supports,                                                                                    \
        .run = op##_run,                                                                                               \
    };
AVERAGE_KERNEL(avg)
AVERAGE_KERNEL(avg_backward)
AVERAGE_KERNEL(adaptive)
AVERAGE_KERNEL(adaptive_backward)

const lc__kernel_entry LC_ISA_NAME(lc__pool_kernels)[] = {
    {&lc__op_max_pool2d, &max_kernel},
    {&lc__op_max_pool2d_backward, &max_backward_kernel},
    {&lc__op_avg_pool2d, &avg_kernel},
    {&lc__op_avg_pool2d_backward, &avg_backward_kernel},
    {&lc__op_adaptive_avg_pool2d, &adaptive_kernel},
    {&lc__op_adaptive_avg_pool2d_backward, &adaptive_backward_kernel},
    {NULL, NULL},
};
