/* SPDX-License-Identifier: Apache-2.0 */
/* A rectangle at a random place, erased. */
#include "data/transforms/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static lc_status erasing_describe(void *self, const lc_field *in, lc_field *out)
{
    const lc_transform_random_erasing_args *a = self;
    lc__picture m;
    lc__fill fill;
    *out = *in;
    LC_TRY(lc__picture_of("random_erasing", in, &m));
    if (a->random && in->dtype != LC_F32)
        return lc_fail(LC_ERR_DTYPE, "random_erasing: random values need f32, but field '%s' is %s", in->name,
                       lc_dtype_name(in->dtype));
    return lc__fill_of("random_erasing", in, a->value, &a->value_color, &fill);
}

/* Ten are tried; false: none was small enough. */
static bool find_area(const lc_transform_random_erasing_args *a, const lc__picture *m, uint64_t key, lc_box *r)
{
    const double all = (double)m->height * (double)m->width;
    const lc_range log_ratio = {log(a->ratio.from), log(a->ratio.to)};
    for (uint64_t i = 0; i < 10; i++) {
        const double part = all * lc__draw(key, 4 * i + 1, a->scale), aspect = exp(lc__draw(key, 4 * i + 2, log_ratio));
        const double h = nearbyint(sqrt(part * aspect)), w = nearbyint(sqrt(part / aspect));
        if (!(h < (double)m->height && w < (double)m->width)) continue;
        *r = (lc_box){.height = (int64_t)h, .width = (int64_t)w};
        r->top = (int64_t)lc_random_below(key, 4 * i + 3, (uint64_t)(m->height - r->height + 1));
        r->left = (int64_t)lc_random_below(key, 4 * i + 4, (uint64_t)(m->width - r->width + 1));
        return true;
    }
    return false;
}

/* Normal numbers, f32. */
static void fill_at_random(const lc__picture *m, char *data, const lc_box *r, uint64_t key)
{
    for (int64_t p = 0; p < m->planes; p++)
        for (int64_t y = r->top; y < r->top + r->height; y++) {
            const int64_t row = p * m->height + y;
            float *at = (float *)(data + (size_t)(row * m->width + r->left) * m->pixel);
            const size_t n = (size_t)r->width * m->pixel / sizeof *at;
            for (size_t i = 0; i < n; i++) at[i] = (float)lc_random_normal(lc_random_key(key, (uint64_t)row), i);
        }
}

static lc_status erasing_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                               uint64_t key, void *scratch)
{
    (void)out, (void)scratch;
    const lc_transform_random_erasing_args *a = self;
    lc__picture m;
    lc_box r;
    lc__fill fill;
    LC_TRY(lc__picture_of("random_erasing", in, &m));
    LC_TRY(lc__fill_of("random_erasing", in, a->value, &a->value_color, &fill));
    memcpy(dst, src, lc_field_bytes(in));
    if (!(lc_random_uniform(key, 0) < a->p) || !find_area(a, &m, key, &r)) return LC_OK;
    if (a->random)
        fill_at_random(&m, dst, &r, lc_random_key_name(key, "values"));
    else
        lc__fill_box(&m, dst, &r, &fill);
    return LC_OK;
}

static const lc_transform_ops erasing_ops = {
    LC_TRANSFORM_OPS_INIT,  .name = "random_erasing", .describe = erasing_describe,
    .apply = erasing_apply, .free = lc__owned_free,   .self_size = sizeof(lc_transform_random_erasing_args),
};

lc_status lc_transform_random_erasing_with(lc_transform *out, const lc_transform_random_erasing_args *args)
{
    LC__TAKE(a, lc_transform_random_erasing, lc_transform_random_erasing_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = (lc_transform){0};
    LC_TRY(lc__check_probability("random_erasing", a.p));
    LC_TRY(lc__check_range("random_erasing", "a scale", a.scale, 0, 1));
    LC_TRY(lc__check_range("random_erasing", "a ratio", a.ratio, 1e-6, 1e6));
    LC_TRY(lc__check_color("random_erasing", a.value, &a.value_color));
    if (a.random && (a.value_color.n || a.value != 0.0))
        return lc_fail(LC_ERR_ARGUMENT, "random_erasing: values are random, or given, but not both");
    return lc__transform_make(&erasing_ops, &a, sizeof a, out);
}
