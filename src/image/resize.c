/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing in two passes, along x and then along y. With antialias, the filter is as wide as two (bilinear) or four
 * (bicubic) of the larger pixels, so that every source counts. Between the passes values are rounded to bytes, and
 * weights are integers: the result is the same on every machine, and that of PyTorch. */
#include "image/resize.h"
#include "image/resize_rows.h"
#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A sum of 255 << 22 and a half fits into 31 bits, also with the negative weights of bicubic. */
#define MOST_BITS 22

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* With a = -0.5 as in Pillow, for antialias, or -0.75 as in PyTorch without. */
static double cubic(double x, double a)
{
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double filtered(const lc__resize_sizes *s, double x)
{
    return s->filter == LC__FILTER_BILINEAR ? triangle(x) : cubic(x, s->antialias ? -0.5 : -0.75);
}

/* By how much the filter is widened, and its width to one side, in sources. */
static double wide_of(const lc__resize_sizes *s, double scale)
{
    return s->antialias && scale > 1 ? scale : 1;
}

static double reach_of(const lc__resize_sizes *s, double scale)
{
    return (s->filter == LC__FILTER_BICUBIC ? 2 : 1) * wide_of(s, scale);
}

/* The weight of source k for a result whose center is at `center`. Without antialias the first and the last source also
 * have the weights of what would be beyond them; with it these are left out. */
static double weight_of(const lc__resize_sizes *s, int64_t k, double center, double scale, int64_t from)
{
    double w = filtered(s, ((double)k - center + 0.5) * (1 / wide_of(s, scale)));
    if (s->antialias) return w;
    for (int64_t beyond = 1; k == 0 && beyond <= 2; beyond++) w += filtered(s, (double)-beyond - center + 0.5);
    for (int64_t beyond = 1; k == from - 1 && beyond <= 2; beyond++)
        w += filtered(s, (double)(k + beyond) - center + 0.5);
    return w;
}

/* The weights of result i, at their place in `all`. Returns the largest. */
static double fill(const lc__resize_sizes *s, lc__resize_axis *a, int64_t i, double scale, double reach, double *all)
{
    double center = ((double)i + 0.5) * scale, low = center - reach + 0.5, high = center + reach + 0.5, sum = 0,
           most = 0;
    int64_t begin = low > 0 ? (int64_t)low : 0, end = high < (double)a->from ? (int64_t)high : a->from;
    double *w = all + i * a->taps;
    a->first[i] = begin;
    a->n[i] = end - begin;
    for (int64_t k = 0; k < a->taps; k++) {
        w[k] = k < end - begin ? weight_of(s, begin + k, center, scale, a->from) : 0;
        sum += w[k];
    }
    for (int64_t k = 0; k < end - begin; k++) {
        w[k] /= sum;
        if (w[k] > most) most = w[k];
    }
    return most;
}

/* Weights become integers with as many bits as the largest has room for, each rounded by itself. They take the place of
 * the doubles from the first on, so that none is lost before it is read. */
static void round_weights(lc__resize_axis *a, const double *all, double most)
{
    for (a->bits = 0; a->bits < MOST_BITS && (int)(0.5 + most * (1 << (a->bits + 1))) < 1 << 15;) a->bits++;
    for (int64_t k = 0; k < a->taps * a->to; k++) {
        const double w = all[k] * (1 << a->bits);
        a->weights[k] = (int16_t)(w < 0 ? w - 0.5 : w + 0.5);
    }
}

/* PyTorch's, whose scale is a float, and which rounds otherwise in larger results. */
static int64_t nearest(const lc__resize_sizes *s, int64_t i, int64_t from, int64_t to)
{
    const float scale = (float)from / (float)to;
    float place = (float)i * scale;
    if (s->filter == LC__FILTER_NEAREST_EXACT) {
        const float middle = (float)i + 0.5f;
        place = s->to_height + s->to_width > 128 ? fmaf(middle, scale, -0.5f) + 0.5f : middle * scale;
    }
    const int64_t k = (int64_t)floorf(place);
    return k < from ? k : from - 1;
}

static bool has_weights(const lc__resize_sizes *s)
{
    return s->filter == LC__FILTER_BILINEAR || s->filter == LC__FILTER_BICUBIC;
}

/* ---- memory ---- */

static int64_t taps_of(const lc__resize_sizes *s, int64_t from, int64_t to)
{
    return (2 * (int64_t)reach_of(s, (double)from / (double)to) + 3 + 3) / 4 * 4;
}

static bool add(size_t *sum, size_t n, size_t size)
{
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) || bytes > SIZE_MAX / 4 ||
           __builtin_add_overflow(*sum, (bytes + 63) & ~(size_t)63, sum);
}

static bool add_axis(const lc__resize_sizes *s, size_t *sum, int64_t from, int64_t to)
{
    size_t weights = 0;
    if (has_weights(s) && __builtin_mul_overflow((size_t)taps_of(s, from, to), (size_t)to, &weights)) return true;
    bool first = add(sum, (size_t)to, sizeof(int64_t)), count = add(sum, (size_t)to, sizeof(int64_t));
    return first || count || add(sum, weights, sizeof(double));
}

/* The most pixels that a resize makes, unless the picture has more: the default of max_pixels. */
#define MOST_PIXELS ((int64_t)178956970)

lc_status lc__resize_check(int64_t height, int64_t width, int64_t to_height, int64_t to_width)
{
    const int64_t sizes[2][2] = {{to_height, to_width},
                                 {height, to_width}}; /* after both passes, and after the first */
    int64_t pixels, most;
    if (__builtin_mul_overflow(height, width, &most) || most < MOST_PIXELS) most = MOST_PIXELS;
    for (int i = 0; i < 2; i++)
        if (__builtin_mul_overflow(sizes[i][0], sizes[i][1], &pixels) || pixels > most)
            return lc_fail(LC_ERR_FORMAT, "resize makes %lld x %lld pixels of %lld x %lld, more than %lld%s",
                           (long long)sizes[i][1], (long long)sizes[i][0], (long long)width, (long long)height,
                           (long long)most, i ? " before it shortens them" : "; max_size limits the longer side");
    return LC_OK;
}

size_t lc__resize_room(const lc__resize_sizes *s)
{
    size_t sum = 0, row, groups = 0;
    if (add_axis(s, &sum, s->width, s->to_width) || add_axis(s, &sum, s->height, s->to_height) ||
        __builtin_mul_overflow((size_t)s->to_width, (size_t)s->channels, &row) || add(&sum, (size_t)s->height, row))
        return 0;
    if (has_weights(s) && !lc__resize_groups_room(row, taps_of(s, s->width, s->to_width), &groups)) return 0;
    return add(&sum, groups, 1) ? 0 : sum;
}

static void *take(uint8_t **room, size_t n, size_t size)
{
    void *at = *room;
    *room += (n * size + 63) & ~(size_t)63;
    return at;
}

static void prepare_axis(const lc__resize_sizes *s, lc__resize_axis *a, int64_t from, int64_t to, uint8_t **room)
{
    double scale = (double)from / (double)to, reach = reach_of(s, scale);
    *a = (lc__resize_axis){.from = from, .to = to};
    a->first = take(room, (size_t)to, sizeof *a->first);
    a->n = take(room, (size_t)to, sizeof *a->n);
    if (!has_weights(s)) {
        for (int64_t i = 0; i < to; i++) a->first[i] = nearest(s, i, from, to);
        return;
    }
    a->taps = taps_of(s, from, to);
    void *weights = take(room, (size_t)(a->taps * to), sizeof(double));
    double most = 0;
    for (int64_t i = 0; i < to; i++) most = fmax(most, fill(s, a, i, scale, reach, weights));
    a->weights = weights;
    round_weights(a, weights, most);
}

static lc__resize_weights weights_of(const lc__resize_plan *plan)
{
    const lc__resize_axis *x = &plan->x;
    return (lc__resize_weights){x->to, x->taps, plan->sizes.channels, x->bits, x->first, x->n, x->weights};
}

void lc__resize_prepare(lc__resize_plan *plan, const lc__resize_sizes *s, void *room)
{
    uint8_t *at = room;
    plan->sizes = *s;
    prepare_axis(s, &plan->x, s->width, s->to_width, &at);
    prepare_axis(s, &plan->y, s->height, s->to_height, &at);
    plan->narrow = take(&at, (size_t)s->height, (size_t)(s->to_width * s->channels));
    plan->groups = (lc__resize_groups){0};
    if (!has_weights(s) || s->width == s->to_width) return;
    const lc__resize_weights weights = weights_of(plan);
    lc__resize_groups_prepare(&plan->groups, &weights, s->width, at);
}

/* ---- pixels ---- */

static void run_nearest(const lc__resize_plan *plan, const uint8_t *from, size_t stride, uint8_t *to)
{
    const lc__resize_sizes *s = &plan->sizes;
    const size_t pixel = (size_t)s->channels;
    for (int64_t y = 0; y < s->to_height; y++) {
        const uint8_t *row = from + stride * (size_t)plan->y.first[y];
        for (int64_t x = 0; x < s->to_width; x++, to += pixel)
            memcpy(to, row + pixel * (size_t)plan->x.first[x], pixel);
    }
}

static void rows_along_x(const lc__resize_plan *plan, const uint8_t *from, size_t stride, uint8_t *to)
{
    const lc__resize_sizes *s = &plan->sizes;
    const lc__resize_weights weights = weights_of(plan);
    for (int64_t i = 0; i < s->height; i++, from += stride, to += s->to_width * s->channels)
        if (plan->groups.n)
            lc__resize_groups_row(&plan->groups, from, to);
        else
            lc__resize_along_x(&weights, from, s->width, to);
}

void lc__resize_run(const lc__resize_plan *plan, const uint8_t *from, size_t stride, uint8_t *to)
{
    const lc__resize_sizes *s = &plan->sizes;
    const size_t to_stride = (size_t)(s->channels * s->to_width);
    const lc__resize_axis *y = &plan->y;
    if (!has_weights(s)) {
        run_nearest(plan, from, stride, to);
        return;
    }
    const bool along_x = s->width != s->to_width, along_y = s->height != s->to_height;
    const uint8_t *rows = from;
    if (along_x) {
        uint8_t *narrow = along_y ? plan->narrow : to;
        rows_along_x(plan, from, stride, narrow);
        rows = narrow;
        stride = to_stride;
    }
    if (along_y)
        for (int64_t i = 0; i < s->to_height; i++)
            lc__resize_along_y(rows + stride * (size_t)y->first[i], stride, to_stride, y->n[i],
                               y->weights + i * y->taps, y->bits, to + to_stride * (size_t)i);
    else if (!along_x)
        for (int64_t i = 0; i < s->height; i++)
            memcpy(to + to_stride * (size_t)i, from + stride * (size_t)i, to_stride);
}

/* ---- a plan that is kept ---- */

lc_status lc__resize_rgb(lc__resize *r, const uint8_t *from, int64_t height, int64_t width, uint8_t *to,
                         int64_t to_height, int64_t to_width)
{
    const lc__resize_sizes *kept = &r->plan.sizes;
    if (kept->height != height || kept->width != width || kept->to_height != to_height || kept->to_width != to_width) {
        const lc__resize_sizes s = {height, width, to_height, to_width, 3, LC__FILTER_BILINEAR, true};
        LC_TRY(lc__resize_check(height, width, to_height, to_width));
        size_t room = lc__resize_room(&s);
        if (!room) return lc_fail(LC_ERR_MEMORY, "out of memory: a picture that is resized");
        r->plan = (lc__resize_plan){0};
        LC_TRY(lc__grow(&r->room, &r->cap_room, 0, room + 63, "a picture that is resized"));
        lc__resize_prepare(&r->plan, &s, (void *)(((uintptr_t)r->room + 63) & ~(uintptr_t)63));
    }
    lc__resize_run(&r->plan, from, (size_t)(3 * width), to);
    return LC_OK;
}

void lc__resize_release(lc__resize *r)
{
    free(r->room);
    *r = (lc__resize){0};
}
