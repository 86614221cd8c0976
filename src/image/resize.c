/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing in two passes, along x and then along y, with a triangle as the filter. When a picture shrinks, the triangle
 * is as wide as two of the larger pixels, so that every source counts (antialias). Between the passes values are
 * rounded to bytes, and weights are integers: the result is the same on every machine. */
#include "image/resize.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

#define BITS 22 /* 255 << 22 and a half fit into 31 bits */
#define HALF (1 << (BITS - 1))

static double triangle(double x)
{
    if (x < 0) x = -x;
    return x < 1 ? 1 - x : 0;
}

/* The weights of result i, at its place. Their sums are rounded, not each weight, so that they add up to 1 << BITS, and
 * no result can be above 255, however many there are. */
static void fill(lc__resize_axis *a, int64_t i, double scale, double reach)
{
    double center = ((double)i + 0.5) * scale, low = center - reach + 0.5, high = center + reach + 0.5, all = 0,
           sum = 0;
    int64_t begin = low > 0 ? (int64_t)low : 0, end = high < (double)a->from ? (int64_t)high : a->from;
    int32_t *w = a->weights + i * a->taps, before = 0;
    a->first[i] = begin;
    a->n[i] = end - begin;
    for (int64_t k = begin; k < end; k++) all += triangle(((double)k - center + 0.5) / reach);
    for (int64_t k = begin; k < end; k++) {
        sum += triangle(((double)k - center + 0.5) / reach);
        int32_t until = (int32_t)(sum / all * (1 << BITS) + 0.5);
        w[k - begin] = until - before;
        before = until;
    }
}

static lc_status prepare(lc__resize_axis *a, int64_t from, int64_t to)
{
    if (a->from == from && a->to == to) return LC_OK;
    double scale = (double)from / (double)to, reach = scale > 1 ? scale : 1;
    int64_t taps = 2 * ((int64_t)reach + 1) + 1, all;
    if (__builtin_mul_overflow(taps, to, &all)) return lc_fail(LC_ERR_MEMORY, "out of memory: the weights of a resize");
    a->from = a->to = 0;
    LC_TRY(lc__grow(&a->first, &a->cap_to[0], 0, to, "the weights of a resize"));
    LC_TRY(lc__grow(&a->n, &a->cap_to[1], 0, to, "the weights of a resize"));
    LC_TRY(lc__grow(&a->weights, &a->cap_weights, 0, all, "the weights of a resize"));
    a->from = from;
    a->to = to;
    a->taps = taps;
    for (int64_t i = 0; i < to; i++) fill(a, i, scale, reach);
    return LC_OK;
}

static void row_along_x(const lc__resize_axis *a, const uint8_t *from, uint8_t *to)
{
    for (int64_t i = 0; i < a->to; i++, to += 3) {
        const uint8_t *p = from + 3 * a->first[i];
        const int32_t *w = a->weights + i * a->taps;
        int32_t red = HALF, green = HALF, blue = HALF;
        for (int64_t k = 0; k < a->n[i]; k++, p += 3) {
            red += p[0] * w[k];
            green += p[1] * w[k];
            blue += p[2] * w[k];
        }
        to[0] = (uint8_t)(red >> BITS);
        to[1] = (uint8_t)(green >> BITS);
        to[2] = (uint8_t)(blue >> BITS);
    }
}

#define BLOCK 32 /* bytes whose sums stay in registers */

/* `from`: the first of n rows, which are `stride` bytes long. */
static void row_along_y(const uint8_t *from, int64_t stride, int64_t n, const int32_t *w, uint8_t *to)
{
    int64_t x = 0;
    for (; x + BLOCK <= stride; x += BLOCK) {
        int32_t sum[BLOCK];
        for (int j = 0; j < BLOCK; j++) sum[j] = HALF;
        for (int64_t k = 0; k < n; k++)
            for (int j = 0; j < BLOCK; j++) sum[j] += from[k * stride + x + j] * w[k];
        for (int j = 0; j < BLOCK; j++) to[x + j] = (uint8_t)(sum[j] >> BITS);
    }
    for (; x < stride; x++) {
        int32_t sum = HALF;
        for (int64_t k = 0; k < n; k++) sum += from[k * stride + x] * w[k];
        to[x] = (uint8_t)(sum >> BITS);
    }
}

lc_status lc__resize_rgb(lc__resize *r, const uint8_t *from, int64_t height, int64_t width, uint8_t *to,
                         int64_t to_height, int64_t to_width)
{
    const int64_t stride = 3 * to_width;
    LC_TRY(prepare(&r->x, width, to_width));
    LC_TRY(prepare(&r->y, height, to_height));
    const uint8_t *rows = from;
    if (width != to_width) {
        uint8_t *narrow = to;
        if (height != to_height) {
            int64_t bytes;
            if (__builtin_mul_overflow(height, stride, &bytes))
                return lc_fail(LC_ERR_MEMORY, "out of memory: a picture that is resized");
            LC_TRY(lc__grow(&r->narrow, &r->cap_narrow, 0, bytes, "a picture that is resized"));
            narrow = r->narrow;
        }
        for (int64_t y = 0; y < height; y++) row_along_x(&r->x, from + 3 * width * y, narrow + stride * y);
        rows = narrow;
    }
    if (height != to_height)
        for (int64_t y = 0; y < to_height; y++)
            row_along_y(rows + stride * r->y.first[y], stride, r->y.n[y], r->y.weights + y * r->y.taps,
                        to + stride * y);
    else if (width == to_width)
        memcpy(to, from, (size_t)(stride * height));
    return LC_OK;
}

static void axis_release(lc__resize_axis *a)
{
    free(a->first);
    free(a->n);
    free(a->weights);
}

void lc__resize_release(lc__resize *r)
{
    axis_release(&r->x);
    axis_release(&r->y);
    free(r->narrow);
    *r = (lc__resize){0};
}
