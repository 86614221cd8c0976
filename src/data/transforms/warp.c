/* SPDX-License-Identifier: Apache-2.0 */
/* Random rotations, affine maps and perspectives. */
#include "data/transforms/warp.h"

#include "data/transforms/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void lc__rotate(const lc__pixels *from, double angle, const double center[2], const lc__warp *how, const lc__pixels *to)
{
    lc__warp w = *how;
    angle = fmod(angle, 360);
    if (angle < 0) angle += 360;
    const int quarters = (int)(angle / 90);
    if (!center[0] && !center[1] && quarters * 90 == angle && (quarters % 2 == 0 || from->height == from->width)) {
        lc__turn(quarters % 4, from, to);
        return;
    }
    const lc__affine a = {.angle = -angle, .scale = 1, .center = {center[0], center[1]}};
    lc__warp_affine(&w, &a, from->height, from->width);
    lc__warp_run(&w, from, to);
}

lc__warp lc__warp_of(lc_resample interpolation, double fill, const lc_color *color)
{
    lc__warp w = {.bilinear = interpolation == LC_RESAMPLE_BILINEAR, .fills = color->n ? color->n : !isnan(fill)};
    for (int c = 0; c < w.fills; c++) w.fill[c] = (float)(color->n ? color->of[c] : fill);
    return w;
}

static lc_status describe(const char *who, const lc_color *color, const lc_field *in, lc_field *out)
{
    lc__picture m;
    *out = *in;
    LC_TRY(lc__byte_picture_of(who, in, 0, &m));
    return lc__check_channels(who, in, color);
}

/* A center from the upper left corner, or none, as one from the middle. */
static void center_of(double x, double y, const lc__pixels *p, double center[2])
{
    center[0] = isnan(x) ? 0 : x - (double)p->width * 0.5;
    center[1] = isnan(y) ? 0 : y - (double)p->height * 0.5;
}

static lc_status check_center(const char *who, double x, double y)
{
    if (isnan(x) == isnan(y) && (isnan(x) || (fabs(x) < 1e9 && fabs(y) < 1e9))) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: a center of %g, %g is not possible; give both numbers, or neither", who, x, y);
}

/* ---- rotation ---- */

typedef struct rotation {
    lc_range degrees;
    lc_transform_random_rotation_args a;
} rotation;

static lc_status rotation_describe(void *self, const lc_field *in, lc_field *out)
{
    return describe("random_rotation", &((const rotation *)self)->a.fill_color, in, out);
}

static lc_status rotation_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                uint64_t key, void *scratch)
{
    (void)scratch;
    const rotation *t = self;
    const lc__pixels from = lc__pixels_of(in, src), to = lc__pixels_of(out, dst);
    const lc__warp how = lc__warp_of(t->a.interpolation, t->a.fill, &t->a.fill_color);
    double center[2];
    center_of(t->a.center_x, t->a.center_y, &from, center);
    lc__rotate(&from, lc__draw(key, 0, t->degrees), center, &how, &to);
    return LC_OK;
}

static const lc_transform_ops rotation_ops = {
    LC_TRANSFORM_OPS_INIT,   .name = "random_rotation", .describe = rotation_describe,
    .apply = rotation_apply, .free = lc__owned_free,    .self_size = sizeof(rotation),
};

lc_status lc_transform_random_rotation_with(lc_range degrees, lc_transform *out,
                                            const lc_transform_random_rotation_args *args)
{
    LC__TAKE(a, lc_transform_random_rotation, lc_transform_random_rotation_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const rotation t = {degrees, a};
    *out = (lc_transform){0};
    LC_TRY(lc__check_range("random_rotation", "an angle", degrees, -1e6, 1e6));
    LC_TRY(lc__check_warp("random_rotation", a.interpolation, a.fill, &a.fill_color, false));
    LC_TRY(check_center("random_rotation", a.center_x, a.center_y));
    return lc__transform_make(&rotation_ops, &t, sizeof t, out);
}

/* ---- affine ---- */

typedef struct affine {
    lc_range degrees;
    lc_transform_random_affine_args a;
} affine;

static lc_status affine_describe(void *self, const lc_field *in, lc_field *out)
{
    return describe("random_affine", &((const affine *)self)->a.fill_color, in, out);
}

static lc_status affine_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                              uint64_t key, void *scratch)
{
    (void)scratch;
    const affine *t = self;
    const lc_transform_random_affine_args *a = &t->a;
    const lc__pixels from = lc__pixels_of(in, src), to = lc__pixels_of(out, dst);
    const double dx = a->translate_x * (double)from.width, dy = a->translate_y * (double)from.height;
    lc__warp w = lc__warp_of(a->interpolation, a->fill, &a->fill_color);
    lc__affine of = {
        .angle = lc__draw(key, 0, t->degrees),
        .translate = {nearbyint(lc__draw(key, 1, LC_RANGE(-dx, dx))), nearbyint(lc__draw(key, 2, LC_RANGE(-dy, dy)))},
        .scale = lc__draw(key, 3, a->scale),
        .shear = {lc__draw(key, 4, a->shear_x), lc__draw(key, 5, a->shear_y)}};
    center_of(a->center_x, a->center_y, &from, of.center);
    lc__warp_affine(&w, &of, from.height, from.width);
    lc__warp_run(&w, &from, &to);
    return LC_OK;
}

static const lc_transform_ops affine_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "random_affine", .describe = affine_describe,
    .apply = affine_apply, .free = lc__owned_free,  .self_size = sizeof(affine),
};

lc_status lc_transform_random_affine_with(lc_range degrees, lc_transform *out,
                                          const lc_transform_random_affine_args *args)
{
    LC__TAKE(a, lc_transform_random_affine, lc_transform_random_affine_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const affine t = {degrees, a};
    *out = (lc_transform){0};
    LC_TRY(lc__check_range("random_affine", "an angle", degrees, -1e6, 1e6));
    LC_TRY(lc__check_range("random_affine", "a move", LC_RANGE(a.translate_x, a.translate_x), 0, 1));
    LC_TRY(lc__check_range("random_affine", "a move", LC_RANGE(a.translate_y, a.translate_y), 0, 1));
    LC_TRY(lc__check_range("random_affine", "a scale", a.scale, 1e-6, 1e6));
    LC_TRY(lc__check_range("random_affine", "a shear", a.shear_x, -89, 89));
    LC_TRY(lc__check_range("random_affine", "a shear", a.shear_y, -89, 89));
    LC_TRY(lc__check_warp("random_affine", a.interpolation, a.fill, &a.fill_color, false));
    LC_TRY(check_center("random_affine", a.center_x, a.center_y));
    return lc__transform_make(&affine_ops, &t, sizeof t, out);
}

/* ---- perspective ---- */

/* Corners move inwards, each by a whole number of pixels. */
static void corners_of(const lc__pixels *p, double distortion, uint64_t key, double from[4][2], double to[4][2])
{
    const double right = (double)p->width - 1, bottom = (double)p->height - 1;
    const int64_t x = (int64_t)(distortion * (double)(p->width / 2)) + 1,
                  y = (int64_t)(distortion * (double)(p->height / 2)) + 1;
    for (int i = 0; i < 4; i++) {
        const bool is_right = i == 1 || i == 2, is_bottom = i >= 2;
        const double dx = (double)lc_random_below(key, 1 + 2 * (uint64_t)i, (uint64_t)x),
                     dy = (double)lc_random_below(key, 2 + 2 * (uint64_t)i, (uint64_t)y);
        from[i][0] = is_right ? right : 0;
        from[i][1] = is_bottom ? bottom : 0;
        to[i][0] = is_right ? right - dx : dx;
        to[i][1] = is_bottom ? bottom - dy : dy;
    }
}

static lc_status perspective_describe(void *self, const lc_field *in, lc_field *out)
{
    const lc_transform_random_perspective_args *a = self;
    return describe("random_perspective", &a->fill_color, in, out);
}

static lc_status perspective_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                   uint64_t key, void *scratch)
{
    (void)scratch;
    const lc_transform_random_perspective_args *a = self;
    const lc__pixels from = lc__pixels_of(in, src), to = lc__pixels_of(out, dst);
    lc__warp w = lc__warp_of(a->interpolation, a->fill, &a->fill_color);
    double corners[4][2], moved[4][2];
    corners_of(&from, a->distortion_scale, key, corners, moved);
    if (lc_random_uniform(key, 0) < a->p && lc__warp_perspective(&w, corners, moved, from.height, from.width))
        lc__warp_run(&w, &from, &to);
    else /* it is kept, or so small that its corners meet */
        memcpy(dst, src, lc_field_bytes(in));
    return LC_OK;
}

static const lc_transform_ops perspective_ops = {
    LC_TRANSFORM_OPS_INIT,      .name = "random_perspective", .describe = perspective_describe,
    .apply = perspective_apply, .free = lc__owned_free,       .self_size = sizeof(lc_transform_random_perspective_args),
};

lc_status lc_transform_random_perspective_with(lc_transform *out, const lc_transform_random_perspective_args *args)
{
    LC__TAKE(a, lc_transform_random_perspective, lc_transform_random_perspective_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    LC_TRY(lc__check_probability("random_perspective", a.p));
    LC_TRY(
        lc__check_range("random_perspective", "a distortion", LC_RANGE(a.distortion_scale, a.distortion_scale), 0, 1));
    LC_TRY(lc__check_warp("random_perspective", a.interpolation, a.fill, &a.fill_color, false));
    return lc__transform_make(&perspective_ops, &a, sizeof a, out);
}
