/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling of channels-last images: a pixel is a vector of channels, and windows are walked pixel by pixel. Threads take
 * whole images or, if windows do not overlap, rows of windows. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/stored.h"
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
    lc_dtype dtype;             /* of both */
    const void *from;
    void *to;
    float *copies; /* of a pixel, and of a result that is not f32; `copy` floats for each thread */
    int64_t copy;
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
                 .dtype = call->in[0].dtype,
                 .from = call->in[0].data,
                 .to = call->out[0].data,
                 .copies = call->scratch};
}

/* `floats`: of a result. */
static lc_status need_copies(lc_call *call, int64_t floats)
{
    const size_t threads = call->threads > 1 ? (size_t)call->threads : 1;
    const size_t copy = (size_t)(call->in[0].shape[1] + floats);
    if (call->in[0].dtype != LC_F32) call->scratch_bytes = threads * copy * sizeof(float);
    return LC_OK;
}

/* The sums of an image's gradient. */
static lc_status backward_prepare(lc_call *call)
{
    return need_copies(call, extent(&call->out[0], 1, 4));
}

/* Both are images or gradients of one type. */
static bool supports_types(const lc_call *call)
{
    return call->in[0].ndim == 4 && is_stored(call->in[0].dtype) && call->out[0].dtype == call->in[0].dtype;
}

static int64_t rows_per_block(const job *j)
{
    return lc__block_size(larger(j->w * j->c * 4 * (j->h / larger(j->oh, 1)), 1), 1);
}

/* ---- maximum ---- */
#define MAX_TAPS 256 /* pixels of a window: indices have 8 bits */

/* The pixels of a window that are inside the image. */
typedef struct taps {
    int n;
    int64_t at[MAX_TAPS]; /* elements from the window's corner */
    uint8_t place[MAX_TAPS];
} taps;

static void find_taps(const job *j, int64_t top, int64_t left, taps *t)
{
    const int64_t *k = j->call->ints;
    t->n = 0;
    for (int64_t a = 0; a < k[0]; a++) {
        for (int64_t b = 0; b < k[1]; b++) {
            const int64_t h = top + a * k[6], w = left + b * k[7];
            if (h < 0 || h >= j->h || w < 0 || w >= j->w) continue;
            t->at[t->n] = (a * k[6] * j->w + b * k[7]) * j->c;
            t->place[t->n++] = (uint8_t)(a * k[1] + b);
        }
    }
}

/* The first maximum wins; a NaN beats every number. */
LC_INLINE void max_of_window(const lc_dtype t, const taps *window, int64_t n, const void *x, int64_t corner, void *best,
                             uint8_t *index)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW) {
        vf most = vget(t, x, corner + window->at[0] + c);
        vi place = (vi){0} + window->place[0];
        for (int i = 1; i < window->n; i++) {
            vf v = vget(t, x, corner + window->at[i] + c);
            vi wins = ~(v <= most) & (most <= vsplat(INFINITY));
            most = vselect(wins, v, most);
            place = (wins & window->place[i]) | (~wins & place);
        }
        vput(t, best, c, most);
        vstore_bytes(index + c, place);
    }
    for (; c < n; c++) {
        float most = get(t, x, corner + window->at[0] + c);
        uint8_t place = window->place[0];
        for (int i = 1; i < window->n; i++) {
            float v = get(t, x, corner + window->at[i] + c);
            bool wins = !(v <= most) && most == most;
            most = wins ? v : most;
            place = wins ? window->place[i] : place;
        }
        put(t, best, c, most);
        index[c] = place;
    }
}

LC_INLINE void max_rows_of(const lc_dtype t, const job *j, int64_t begin, int64_t end)
{
    const int64_t *k = j->call->ints;
    taps window = {0};
    bool whole = false; /* all pixels of the last window are inside: they are where those of the next are */
    for (int64_t r = begin; r < end; r++) {
        const int64_t top = r % j->oh * k[2] - k[4], image = r / j->oh * j->h;
        for (int64_t q = 0; q < j->ow; q++) {
            const int64_t left = q * k[3] - k[5], at = (r * j->ow + q) * j->c;
            const int64_t corner = ((image + top) * j->w + left) * j->c;
            const bool inside =
                top >= 0 && left >= 0 && top + (k[0] - 1) * k[6] < j->h && left + (k[1] - 1) * k[7] < j->w;
            if (!inside || !whole) find_taps(j, top, left, &window);
            whole = inside;
            if (window.n) {
                max_of_window(t, &window, j->c, j->from, corner, stored_at(t, j->to, at), j->index + at);
                continue;
            }
            for (int64_t c = 0; c < j->c; c++) put(t, j->to, at + c, -INFINITY);
            memset(j->index + at, 0, (size_t)j->c);
        }
    }
}

static void max_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    STORED(j->dtype, max_rows_of, j, begin, end);
}

static bool max_supports(const lc_call *call)
{
    return supports_types(call) && call->out[1].dtype == LC_U8;
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
    float *copy = j->copies + thread * j->copy;
    for (int64_t n = begin; n < end; n++) {
        float *image = floats_for(j->dtype, j->to, n * size, copy + j->c);
        memset(image, 0, (size_t)size * sizeof *image);
        for (int64_t p = 0; p < j->oh * j->ow; p++) {
            const int64_t at = (n * j->oh * j->ow + p) * j->c;
            const float *dy = floats_of(j->dtype, j->from, at, j->c, copy);
            const uint8_t *index = j->index + at;
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
        put_floats(j->dtype, j->to, n * size, size, image);
    }
}

static bool max_backward_supports(const lc_call *call)
{
    return supports_types(call) && call->in[1].dtype == LC_U8;
}

static void max_backward_run(const lc_call *call)
{
    job j = job_of(call, &call->out[0], &call->in[0]);
    j.index = call->in[1].data;
    j.copy = j.c + j.h * j.w * j.c;
    lc__parallel_for(call->threads, j.n, lc__block_size(larger(j.h * j.w * j.c * 4, 1), 1), max_backward_images, &j);
}

static const lc_kernel max_backward_kernel = {
    .name = "max_pool2d_backward_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = max_backward_supports,
    .prepare = backward_prepare,
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

LC_INLINE void average_rows_of(const lc_dtype t, const job *j, int64_t begin, int64_t end, float *copy)
{
    for (int64_t r = begin; r < end; r++) {
        const int64_t image = r / j->oh * j->h * j->w * j->c;
        for (int64_t q = 0; q < j->ow; q++) {
            const int64_t at = (r * j->ow + q) * j->c;
            float *restrict y = floats_for(t, j->to, at, copy + j->c);
            cell k = cell_of(j, r % j->oh, q);
            memset(y, 0, (size_t)j->c * sizeof *y);
            for (int64_t h = k.h0; h < k.h1; h++) {
                for (int64_t w = k.w0; w < k.w1; w++) {
                    const float *x = floats_of(t, j->from, image + (h * j->w + w) * j->c, j->c, copy);
                    for (int64_t c = 0; c < j->c; c++) y[c] += x[c];
                }
            }
            for (int64_t c = 0; c < j->c; c++) y[c] *= k.share;
            put_floats(t, j->to, at, j->c, y);
        }
    }
}

static void average_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    STORED(j->dtype, average_rows_of, j, begin, end, j->copies + thread * j->copy);
}

static void average_backward_images(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const int64_t size = j->h * j->w * j->c;
    float *copy = j->copies + thread * j->copy;
    for (int64_t n = begin; n < end; n++) {
        float *image = floats_for(j->dtype, j->to, n * size, copy + j->c);
        memset(image, 0, (size_t)size * sizeof *image);
        for (int64_t p = 0; p < j->oh * j->ow; p++) {
            const float *dy = floats_of(j->dtype, j->from, (n * j->oh * j->ow + p) * j->c, j->c, copy);
            cell k = cell_of(j, p / j->ow, p % j->ow);
            for (int64_t h = k.h0; h < k.h1; h++) {
                for (int64_t w = k.w0; w < k.w1; w++) {
                    float *restrict dx = image + (h * j->w + w) * j->c;
                    for (int64_t c = 0; c < j->c; c++) dx[c] += dy[c] * k.share;
                }
            }
        }
        put_floats(j->dtype, j->to, n * size, size, image);
    }
}

static lc_status average_prepare(lc_call *call)
{
    return need_copies(call, call->in[0].shape[1]);
}

static void average(const lc_call *call, bool adaptive)
{
    job j = job_of(call, &call->in[0], &call->out[0]);
    j.adaptive = adaptive;
    j.copy = 2 * j.c;
    lc__parallel_for(call->threads, j.n * j.oh, rows_per_block(&j), average_rows, &j);
}

static void average_backward(const lc_call *call, bool adaptive)
{
    job j = job_of(call, &call->out[0], &call->in[0]);
    j.adaptive = adaptive;
    j.copy = j.c + j.h * j.w * j.c;
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

#define AVERAGE_KERNEL(op, direction)                                                                                  \
    static const lc_kernel op##_kernel = {                                                                             \
        .name = "average_pool_" LC_ISA_STRING,                                                                         \
        .layout = LC_WANT_CHANNELS_LAST,                                                                               \
        .supports = supports_types,                                                                                    \
        .prepare = direction##_prepare,                                                                                \
        .run = op##_run,                                                                                               \
    };
AVERAGE_KERNEL(avg, average)
AVERAGE_KERNEL(avg_backward, backward)
AVERAGE_KERNEL(adaptive, average)
AVERAGE_KERNEL(adaptive_backward, backward)

const lc__kernel_entry LC_ISA_NAME(lc__pool_kernels)[] = {
    {&lc__op_max_pool2d, &max_kernel},
    {&lc__op_max_pool2d_backward, &max_backward_kernel},
    {&lc__op_avg_pool2d, &avg_kernel},
    {&lc__op_avg_pool2d_backward, &avg_backward_kernel},
    {&lc__op_adaptive_avg_pool2d, &adaptive_kernel},
    {&lc__op_adaptive_avg_pool2d_backward, &adaptive_backward_kernel},
    {NULL, NULL},
};
