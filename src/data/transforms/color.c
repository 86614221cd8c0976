/* SPDX-License-Identifier: Apache-2.0 */
/* Random colors, gray, and blurs. */
#include "data/transforms/transform.h"
#include "image/color.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- jitter ---- */

static lc_status jitter_describe(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    lc__picture m;
    *out = *in;
    return lc__byte_picture_of("color_jitter", in, 3, &m);
}

static bool changes(lc_range r, double nothing)
{
    return r.from != nothing || r.to != nothing;
}

static void jitter_step(const lc_transform_color_jitter_args *a, int64_t step, uint64_t key, const lc__pixels *p)
{
    lc__byte_table table;
    if (step == 0 && changes(a->brightness, 1)) {
        lc__table_brightness(&table, lc__draw(key, 0, a->brightness));
        lc__bytes_mapped(&table, p, p);
    } else if (step == 1 && changes(a->contrast, 1)) {
        lc__table_contrast(&table, p, lc__draw(key, 1, a->contrast));
        lc__bytes_mapped(&table, p, p);
    } else if (step == 2 && changes(a->saturation, 1)) {
        lc__saturation(p, lc__draw(key, 2, a->saturation), p);
    } else if (step == 3 && changes(a->hue, 0)) {
        lc__hue(p, lc__draw(key, 3, a->hue), p);
    }
}

static lc_status jitter_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                              uint64_t key, void *scratch)
{
    (void)scratch;
    const lc__pixels p = lc__pixels_of(out, dst);
    int64_t order[4];
    memcpy(dst, src, lc_field_bytes(in));
    lc_random_permutation(lc_random_key_name(key, "order"), 0, 4, order);
    for (int i = 0; i < 4; i++) jitter_step(self, order[i], key, &p);
    return LC_OK;
}

static const lc_transform_ops jitter_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "color_jitter", .describe = jitter_describe,
    .apply = jitter_apply, .free = lc__owned_free, .self_size = sizeof(lc_transform_color_jitter_args),
};

lc_status lc_transform_color_jitter_with(lc_transform *out, const lc_transform_color_jitter_args *args)
{
    LC__TAKE(a, lc_transform_color_jitter, lc_transform_color_jitter_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    LC_TRY(lc__check_range("color_jitter", "a brightness", a.brightness, 0, 1e6));
    LC_TRY(lc__check_range("color_jitter", "a contrast", a.contrast, 0, 1e6));
    LC_TRY(lc__check_range("color_jitter", "a saturation", a.saturation, 0, 1e6));
    LC_TRY(lc__check_range("color_jitter", "a hue", a.hue, -0.5, 0.5));
    return lc__transform_make(&jitter_ops, &a, sizeof a, out);
}

/* ---- gray ---- */

typedef struct gray {
    int channels; /* 0: as many as there are */
    double p;
} gray;

static lc_status gray_describe(void *self, const lc_field *in, lc_field *out)
{
    const gray *t = self;
    lc__picture m;
    *out = *in;
    LC_TRY(lc__byte_picture_of("grayscale", in, 3, &m));
    if (t->channels && in->ndim != 3)
        return lc_fail(LC_ERR_SHAPE, "grayscale expects an image [C,H,W], but field '%s' has 2 dimensions", in->name);
    if (t->channels) out->shape[0] = t->channels;
    return LC_OK;
}

static lc_status gray_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                            uint64_t key, void *scratch)
{
    (void)scratch;
    const gray *t = self;
    const lc__pixels from = lc__pixels_of(in, src), to = lc__pixels_of(out, dst);
    if (lc_random_uniform(key, 0) < t->p)
        lc__gray(&from, &to);
    else
        memcpy(dst, src, lc_field_bytes(in));
    return LC_OK;
}

static const lc_transform_ops gray_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "grayscale",    .describe = gray_describe,
    .apply = gray_apply,   .free = lc__owned_free, .self_size = sizeof(gray),
};

lc_status lc_transform_grayscale(int channels, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const gray t = {channels, 1};
    *out = (lc_transform){0};
    if (channels != 1 && channels != 3)
        return lc_fail(LC_ERR_ARGUMENT, "grayscale to %d channels is not possible; it has 1 or 3", channels);
    return lc__transform_make(&gray_ops, &t, sizeof t, out);
}

lc_status lc_transform_random_grayscale(double p, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const gray t = {0, p};
    *out = (lc_transform){0};
    LC_TRY(lc__check_probability("random_grayscale", p));
    return lc__transform_make(&gray_ops, &t, sizeof t, out);
}

/* ---- blur ---- */

typedef struct blur {
    int64_t height, width;
    lc_range sigma;
} blur;

static lc_status blur_describe(void *self, const lc_field *in, lc_field *out)
{
    const blur *t = self;
    lc__picture m;
    *out = *in;
    LC_TRY(lc__byte_picture_of("gaussian_blur", in, 0, &m));
    if ((m.height && t->height / 2 >= m.height) || (m.width && t->width / 2 >= m.width))
        return lc_fail(LC_ERR_SHAPE, "gaussian_blur of %lldx%lld is too large for a picture of %lldx%lld",
                       (long long)t->height, (long long)t->width, (long long)m.height, (long long)m.width);
    return LC_OK;
}

static size_t blur_scratch(void *self, const lc_field *in)
{
    (void)self;
    const lc__pixels p = lc__pixels_of(in, NULL);
    return lc__blur_room(p.height, p.width) * sizeof(float);
}

static lc_status blur_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                            uint64_t key, void *scratch)
{
    const blur *t = self;
    const lc__pixels from = lc__pixels_of(in, src), to = lc__pixels_of(out, dst);
    lc__blur(&from, t->height, t->width, lc__draw(key, 0, t->sigma), &to, scratch);
    return LC_OK;
}

static const lc_transform_ops blur_ops = {
    LC_TRANSFORM_OPS_INIT,        .name = "gaussian_blur", .describe = blur_describe, .apply = blur_apply,
    .scratch_size = blur_scratch, .free = lc__owned_free,  .self_size = sizeof(blur),
};

lc_status lc_transform_gaussian_blur_with(int64_t height, int64_t width, lc_transform *out,
                                          const lc_transform_gaussian_blur_args *args)
{
    LC__TAKE(a, lc_transform_gaussian_blur, lc_transform_gaussian_blur_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const blur t = {height, width, a.sigma};
    *out = (lc_transform){0};
    if (height < 1 || width < 1 || height > 511 || width > 511 || height % 2 == 0 || width % 2 == 0)
        return lc_fail(LC_ERR_ARGUMENT, "gaussian_blur of %lldx%lld is not possible; each must be odd, from 1 to 511",
                       (long long)height, (long long)width);
    LC_TRY(lc__check_range("gaussian_blur", "a sigma", a.sigma, 1e-3, 1e6));
    return lc__transform_make(&blur_ops, &t, sizeof t, out);
}
