/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing in two passes, along x and then along y, with a triangle as the filter. When a picture shrinks, the triangle
 * is as wide as two of the larger pixels, so that every source counts (antialias). Between the passes values are
 * rounded to bytes, and weights are integers: the result is the same on every machine. */
#include "image/resize.h"
#include "image/resize_rows.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

/* A weight fits into 16 bits, whose sign it does not need, since none is much above 1 / scale; a sum of 255 << 22 and a
 * half fits into 31. */
#define LEAST_BITS 14
#define MOST_BITS  22

static double triangle(double x)
{
    if (x < 0) x = -x;
    return x < 1 ? 1 - x : 0;
}

/* The weights of result i, at its place. Their sums are rounded, not each weight, so that they add up to 1 << bits, and
 * no result can be above 255, however many there are. */
static void fill(lc__resize_axis *a, int64_t i, double scale, double reach)
{
    double center = ((double)i + 0.5) * scale, low = center - reach + 0.5, high = center + reach + 0.5, all = 0,
           sum = 0;
    int64_t begin = low > 0 ? (int64_t)low : 0, end = high < (double)a->from ? (int64_t)high : a->from;
    int16_t *w = a->weights + i * a->taps;
    int32_t before = 0;
    a->first[i] = begin;
    a->n[i] = end - begin;
    for (int64_t k = begin; k < end; k++) all += triangle(((double)k - center + 0.5) / reach);
    for (int64_t k = begin; k < end; k++) {
        sum += triangle(((double)k - center + 0.5) / reach);
        int32_t until = (int32_t)(sum / all * (1 << a->bits) + 0.5);
        w[k - begin] = (int16_t)(until - before);
        before = until;
    }
    for (int64_t k = end - begin; k < a->taps; k++) w[k] = 0;
}

static lc_status prepare(lc__resize_axis *a, int64_t from, int64_t to)
{
    if (a->from == from && a->to == to) return LC_OK;
    double scale = (double)from / (double)to, reach = scale > 1 ? scale : 1;
    int64_t taps = (2 * (int64_t)reach + 3 + 3) / 4 * 4, all;
    if (__builtin_mul_overflow(taps, to, &all)) return lc_fail(LC_ERR_MEMORY, "out of memory: the weights of a resize");
    a->from = a->to = 0;
    LC_TRY(lc__grow(&a->first, &a->cap_first, 0, to, "the weights of a resize"));
    LC_TRY(lc__grow(&a->n, &a->cap_n, 0, to, "the weights of a resize"));
    LC_TRY(lc__grow(&a->weights, &a->cap_weights, 0, all, "the weights of a resize"));
    a->from = from;
    a->to = to;
    a->taps = taps;
    for (a->bits = LEAST_BITS; a->bits < MOST_BITS && reach >= 1 << (a->bits + 1 - LEAST_BITS);) a->bits++;
    for (int64_t i = 0; i < to; i++) fill(a, i, scale, reach);
    return LC_OK;
}

lc_status lc__resize_rgb(lc__resize *r, const uint8_t *from, int64_t height, int64_t width, uint8_t *to,
                         int64_t to_height, int64_t to_width)
{
    const int64_t stride = 3 * to_width;
    LC_TRY(prepare(&r->x, width, to_width));
    LC_TRY(prepare(&r->y, height, to_height));
    const lc__resize_axis *x = &r->x, *y = &r->y;
    const lc__resize_weights row = {x->to, x->taps, x->bits, x->first, x->n, x->weights};
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
        for (int64_t i = 0; i < height; i++) lc__resize_along_x(&row, from + 3 * width * i, width, narrow + stride * i);
        rows = narrow;
    }
    if (height != to_height)
        for (int64_t i = 0; i < to_height; i++)
            lc__resize_along_y(rows + stride * y->first[i], stride, y->n[i], y->weights + i * y->taps, y->bits,
                               to + stride * i);
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
