/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling in f64. Maxima are taken pixel by pixel, of all channels at once; threads take whole images. The other
 * kernels are the reference kernels, on images (or, if there are few, channels) that threads share. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <math.h>
#include <string.h>

#define FEW_IMAGES 8

/* Range [begin, end) of a dimension. */
static lc_view part_of(const lc_view *v, int dim, int64_t begin, int64_t end)
{
    lc_view part = *v;
    part.shape[dim] = end - begin;
    part.data = (char *)v->data + begin * v->stride[dim] * (int64_t)lc_dtype_size(v->dtype);
    return part;
}

static int shared_dim(const lc_call *call)
{
    return call->in[0].shape[0] < FEW_IMAGES ? 1 : 0;
}

static void run_part(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    lc_call part = *call;
    lc_view in[2], out[2];
    (void)thread;
    for (int i = 0; i < call->n_in; i++) in[i] = part_of(&call->in[i], shared_dim(call), begin, end);
    for (int i = 0; i < call->n_out; i++) out[i] = part_of(&call->out[i], shared_dim(call), begin, end);
    part.in = in;
    part.out = out;
    call->op->kernel->run(&part);
}

static void run(const lc_call *call)
{
    lc__parallel_for(call->threads, call->in[0].shape[shared_dim(call)], 1, run_part, call);
}

static bool supports(const lc_call *call)
{
    return call->in[0].dtype == LC_F64 && call->out[0].dtype == LC_F64 && call->n_in <= 2 && call->n_out <= 2;
}

/* ---- maximum ---- */
/* Sizes of images and pooled images. */
typedef struct window {
    const int64_t *k; /* ints: kh kw sh sw ph pw dh dw */
    int64_t c, h, w, oh, ow;
} window;

static window window_of(const lc_call *call, const lc_view *image, const lc_view *pooled)
{
    return (window){call->ints, image->shape[1], image->shape[2], image->shape[3], pooled->shape[2], pooled->shape[3]};
}

/* The offset of the pixel under tap i of a window; -1: outside. */
static int64_t pixel_at(const window *p, int64_t oh, int64_t ow, int64_t i)
{
    int64_t h = oh * p->k[2] - p->k[4] + i / p->k[1] * p->k[6], w = ow * p->k[3] - p->k[5] + i % p->k[1] * p->k[7];
    return h < 0 || h >= p->h || w < 0 || w >= p->w ? -1 : (h * p->w + w) * p->c;
}

static void take_larger(int64_t n, double *restrict best, uint8_t *restrict index, const double *restrict x,
                        uint8_t place)
{
    for (int64_t c = 0; c < n; c++) {
        double v = x[c], b = best[c];
        /* The first maximum wins; a NaN beats every number. */
        int wins = (v > b) | ((v != v) & (b == b));
        best[c] = wins ? v : b;
        index[c] = wins ? place : index[c];
    }
}

static void max_images(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const window p = window_of(call, &call->in[0], &call->out[0]);
    (void)thread;
    for (int64_t at = begin * p.oh * p.ow; at < end * p.oh * p.ow; at++) {
        const double *image = (const double *)call->in[0].data + at / p.ow / p.oh * p.h * p.w * p.c;
        double *best = (double *)call->out[0].data + at * p.c;
        uint8_t *index = (uint8_t *)call->out[1].data + at * p.c;
        bool any = false;
        for (int64_t c = 0; c < p.c; c++) best[c] = -(double)INFINITY;
        memset(index, 0, (size_t)p.c);
        for (int64_t i = 0; i < p.k[0] * p.k[1]; i++) {
            int64_t pixel = pixel_at(&p, at / p.ow % p.oh, at % p.ow, i);
            if (pixel < 0) continue;
            if (any)
                take_larger(p.c, best, index, image + pixel, (uint8_t)i);
            else
                memcpy(best, image + pixel, (size_t)p.c * sizeof *best), memset(index, (int)i, (size_t)p.c);
            any = true;
        }
    }
}

static void max_backward_images(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc_call *call = context;
    const window p = window_of(call, &call->out[0], &call->in[0]);
    const int64_t size = p.h * p.w * p.c;
    (void)thread;
    memset((double *)call->out[0].data + begin * size, 0, (size_t)((end - begin) * size) * sizeof(double));
    for (int64_t at = begin * p.oh * p.ow; at < end * p.oh * p.ow; at++) {
        double *image = (double *)call->out[0].data + at / p.ow / p.oh * size;
        const double *restrict dy = (const double *)call->in[0].data + at * p.c;
        const uint8_t *restrict index = (const uint8_t *)call->in[1].data + at * p.c;
        for (int64_t i = 0; i < p.k[0] * p.k[1]; i++) {
            int64_t pixel = pixel_at(&p, at / p.ow % p.oh, at % p.ow, i);
            double *restrict to = image + pixel;
            for (int64_t c = 0; pixel >= 0 && c < p.c; c++) to[c] += index[c] == i ? dy[c] : 0;
        }
    }
}

static bool max_supports(const lc_call *call)
{
    const lc_view *index = call->op == &lc__op_max_pool2d ? &call->out[1] : &call->in[1];
    return supports(call) && index->dtype == LC_U8;
}

static void max_run(const lc_call *call)
{
    lc__parallel_for(call->threads, call->in[0].shape[0], 1,
                     call->op == &lc__op_max_pool2d ? max_images : max_backward_images, call);
}

static const lc_kernel max_kernel = {
    .name = "max_pool_f64_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = max_supports,
    .run = max_run,
};

static const lc_kernel kernel = {
    .name = "pool_f64_" LC_ISA_STRING,
    .layout = LC_WANT_CHANNELS_LAST,
    .supports = supports,
    .run = run,
};

const lc__kernel_entry LC_ISA_NAME(lc__pool_f64_kernels)[] = {
    {&lc__op_max_pool2d, &max_kernel},
    {&lc__op_max_pool2d_backward, &max_kernel},
    {&lc__op_max_pool2d, &kernel},
    {&lc__op_max_pool2d_backward, &kernel},
    {&lc__op_avg_pool2d, &kernel},
    {&lc__op_avg_pool2d_backward, &kernel},
    {&lc__op_adaptive_avg_pool2d, &kernel},
    {&lc__op_adaptive_avg_pool2d_backward, &kernel},
    {NULL, NULL},
};
