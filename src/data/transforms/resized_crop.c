/* SPDX-License-Identifier: Apache-2.0 */
/* A part of random size, shape and place, resized. */
#include "data/transforms/transform.h"

#include <math.h>
#include <stdlib.h>

typedef struct resized_crop {
    int64_t height, width;
    lc_transform_random_resized_crop_args a;
} resized_crop;

#define TRIES 10

/* Which of ten parts, with four random numbers each, is the first to fit; 10 if none does. Its size is that of *b. */
static uint64_t first_that_fits(int64_t height, int64_t width, lc_range scale, lc_range ratio, uint64_t key, lc_box *b)
{
    const double area = (double)height * (double)width;
    const lc_range log_ratio = {log(ratio.from), log(ratio.to)};
    uint64_t i = 0;
    for (; i < TRIES; i++) {
        const double part = area * lc__draw(key, 4 * i, scale), aspect = exp(lc__draw(key, 4 * i + 1, log_ratio));
        b->height = (int64_t)nearbyint(sqrt(part / aspect));
        b->width = (int64_t)nearbyint(sqrt(part * aspect));
        if (b->height > 0 && b->height <= height && b->width > 0 && b->width <= width) break;
    }
    return i;
}

/* If none fits, the largest in the middle that has an allowed ratio. */
lc_box lc__resized_crop_box(int64_t height, int64_t width, lc_range scale, lc_range ratio, uint64_t key)
{
    lc_box b = {0};
    const uint64_t i = first_that_fits(height, width, scale, ratio, key, &b);
    if (i < TRIES) {
        b.top = (int64_t)lc_random_below(key, 4 * i + 2, (uint64_t)(height - b.height + 1));
        b.left = (int64_t)lc_random_below(key, 4 * i + 3, (uint64_t)(width - b.width + 1));
        return b;
    }
    b = (lc_box){.height = height, .width = width};
    const double of = (double)width / (double)height;
    if (of < ratio.from) b.height = (int64_t)nearbyint((double)width / ratio.from);
    if (of > ratio.to) b.width = (int64_t)nearbyint((double)height * ratio.to);
    if (b.height < 1) b.height = 1;
    if (b.width < 1) b.width = 1;
    b.top = (height - b.height) / 2;
    b.left = (width - b.width) / 2;
    return b;
}

static lc_status resized_crop_describe(void *self, const lc_field *in, lc_field *out)
{
    const resized_crop *t = self;
    lc__picture m;
    *out = *in;
    LC_TRY(lc__byte_picture_of("random_resized_crop", in, 0, &m));
    if (m.height && m.width) LC_TRY(lc__resize_check(m.height, m.width, t->height, t->width));
    lc__picture_resize(out, t->height, t->width);
    return LC_OK;
}

static size_t resized_crop_scratch(void *self, const lc_field *in)
{
    const resized_crop *t = self;
    const lc__pixels from = lc__pixels_of(in, NULL);
    if (!from.height || !from.width) return 0;
    return lc__resample_scratch(&from, t->height, t->width, t->a.interpolation, t->a.antialias);
}

static lc_status resized_crop_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                    uint64_t key, void *scratch)
{
    const resized_crop *t = self;
    const lc__pixels from = lc__pixels_of(in, src), to = lc__pixels_of(out, dst);
    const lc_box b = lc__resized_crop_box(from.height, from.width, t->a.scale, t->a.ratio, key);
    lc__resample(&from, &b, &to, t->a.interpolation, t->a.antialias, scratch);
    return LC_OK;
}

static void resized_crop_reads(void *self, const lc_field *in, uint64_t key, lc_box *part)
{
    const resized_crop *t = self;
    const lc__pixels m = lc__pixels_of(in, NULL);
    *part = lc__resized_crop_box(m.height, m.width, t->a.scale, t->a.ratio, key);
}

/* Whether a picture of 1/n of the size has the same part: in one of the two, another may fit by rounding. */
static bool same_part(const resized_crop *t, int64_t height, int64_t width, int64_t n, uint64_t key)
{
    lc_box b;
    return first_that_fits(height, width, t->a.scale, t->a.ratio, key, &b) ==
           first_that_fits((height + n - 1) / n, (width + n - 1) / n, t->a.scale, t->a.ratio, key, &b);
}

/* The part has the same place in a smaller picture, up to rounding, since the numbers drawn are the same. Decoders make
 * pictures of 1/2, 1/4 and 1/8; those which would have another part are excluded. */
static double resized_crop_least_scale(void *self, const lc_field *in, uint64_t key)
{
    const resized_crop *t = self;
    lc__picture m;
    if (lc__picture_of("random_resized_crop", in, &m) < 0) return 1;
    const lc_box b = lc__resized_crop_box(m.height, m.width, t->a.scale, t->a.ratio, key);
    double least = fmin(1, fmax((double)t->height / (double)b.height, (double)t->width / (double)b.width));
    for (int64_t n = 8; n > 1; n /= 2) {
        if (1.0 / (double)n < least) continue;
        if (same_part(t, m.height, m.width, n, key)) break;
        least = 2.0 / (double)n;
    }
    return least;
}

static const lc_transform_ops resized_crop_ops = {
    LC_TRANSFORM_OPS_INIT,
    .name = "random_resized_crop",
    .describe = resized_crop_describe,
    .apply = resized_crop_apply,
    .scratch_size = resized_crop_scratch,
    .free = lc__owned_free,
    .least_scale = resized_crop_least_scale,
    .reads = resized_crop_reads,
    .self_size = sizeof(resized_crop),
};

lc_status lc_transform_random_resized_crop_with(int64_t height, int64_t width, lc_transform *out,
                                                const lc_transform_random_resized_crop_args *args)
{
    LC__TAKE(a, lc_transform_random_resized_crop, lc_transform_random_resized_crop_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const resized_crop t = {height, width, a};
    *out = (lc_transform){0};
    LC_TRY(lc__check_size("random_resized_crop", height, width));
    LC_TRY(lc__check_range("random_resized_crop", "a scale", a.scale, 1e-9, 1));
    LC_TRY(lc__check_range("random_resized_crop", "a ratio", a.ratio, 1e-6, 1e6));
    LC_TRY(lc__check_resample("random_resized_crop", a.interpolation));
    return lc__transform_make(&resized_crop_ops, &t, sizeof t, out);
}
