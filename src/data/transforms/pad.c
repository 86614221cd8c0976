/* SPDX-License-Identifier: Apache-2.0 */
/* Padding: with a constant, or with what a picture has at its edges. */
#include "data/transforms/transform.h"

#include <stdlib.h>
#include <string.h>

/* The source of position i of a line of n, which may be beyond it. */
static int64_t source_of(int64_t i, int64_t n, lc_padding_mode mode)
{
    if (i >= 0 && i < n) return i;
    switch (mode) {
    case LC_PAD_REFLECT:
        return i < 0 ? -i : 2 * (n - 1) - i;
    case LC_PAD_SYMMETRIC:
        return i < 0 ? -1 - i : 2 * n - 1 - i;
    default:
        return i < 0 ? 0 : n - 1;
    }
}

/* Copies what the window has of `in`. */
static void copy_window(const lc__picture *in, const char *src, const lc__picture *out, char *dst, int64_t top,
                        int64_t left)
{
    int64_t x0 = left < 0 ? -left : 0, x1 = out->width;
    if (left + x1 > in->width) x1 = in->width - left;
    for (int64_t p = 0; p < in->planes; p++)
        for (int64_t y = 0; y < out->height; y++) {
            int64_t from = top + y;
            if (from < 0 || from >= in->height || x1 <= x0) continue;
            memcpy(dst + (size_t)((p * out->height + y) * out->width + x0) * out->pixel,
                   src + (size_t)((p * in->height + from) * in->width + left + x0) * in->pixel,
                   (size_t)(x1 - x0) * in->pixel);
        }
}

void lc__padded_window(const lc__picture *in, const char *src, const lc__picture *out, char *dst, int64_t top,
                       int64_t left, lc_padding_mode mode, const lc__fill *fill)
{
    const bool inside = top >= 0 && left >= 0 && top + out->height <= in->height && left + out->width <= in->width;
    const size_t pixel = out->pixel;
    if (inside || mode == LC_PAD_CONSTANT) {
        if (!inside) lc__fill_box(out, dst, &(lc_box){.height = out->height, .width = out->width}, fill);
        copy_window(in, src, out, dst, top, left);
        return;
    }
    for (int64_t p = 0; p < out->planes; p++)
        for (int64_t y = 0; y < out->height; y++) {
            const char *row =
                src + (size_t)((p * in->height + source_of(top + y, in->height, mode)) * in->width) * pixel;
            for (int64_t x = 0; x < out->width; x++, dst += pixel)
                memcpy(dst, row + (size_t)source_of(left + x, in->width, mode) * pixel, pixel);
        }
}

lc_box lc__window_reads(const lc__picture *in, lc_box window, lc_padding_mode mode)
{
    const lc_box all = {.height = in->height, .width = in->width};
    const lc_box part = lc__box_within(window, all);
    const bool inside = part.height == window.height && part.width == window.width;
    if (inside || (mode == LC_PAD_CONSTANT && part.height > 0 && part.width > 0)) return part;
    return all; /* what is mirrored may be anywhere */
}

lc_status lc__check_padding(const char *who, const lc__picture *in, const int64_t sides[4], lc_padding_mode mode)
{
    if (mode == LC_PAD_CONSTANT || mode == LC_PAD_EDGE || !in->height || !in->width) return LC_OK;
    const int64_t less = mode == LC_PAD_REFLECT;
    for (int i = 0; i < 4; i++) {
        const int64_t n = i % 2 ? in->height : in->width;
        if (sides[i] > n - less)
            return lc_fail(LC_ERR_SHAPE, "%s by %lld is more than a mirrored picture of %lld pixels has", who,
                           (long long)sides[i], (long long)n);
    }
    return LC_OK;
}

/* ---- the transform ---- */

typedef struct pad {
    int64_t sides[4]; /* left, top, right, bottom */
    lc_transform_pad_args a;
} pad;

static lc_status pad_describe(void *self, const lc_field *in, lc_field *out)
{
    const pad *t = self;
    lc__picture m;
    lc__fill fill;
    *out = *in;
    LC_TRY(lc__picture_of("pad", in, &m));
    LC_TRY(lc__check_padding("pad", &m, t->sides, t->a.padding_mode));
    lc__picture_resize(out, m.height ? m.height + t->sides[1] + t->sides[3] : 0,
                       m.width ? m.width + t->sides[0] + t->sides[2] : 0);
    return lc__fill_of("pad", in, t->a.fill, &t->a.fill_color, &fill);
}

static lc_status pad_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                           uint64_t key, void *scratch)
{
    (void)key, (void)scratch;
    const pad *t = self;
    lc__picture from, to;
    lc__fill fill;
    LC_TRY(lc__picture_of("pad", in, &from));
    LC_TRY(lc__picture_of("pad", out, &to));
    LC_TRY(lc__fill_of("pad", in, t->a.fill, &t->a.fill_color, &fill));
    lc__padded_window(&from, src, &to, dst, -t->sides[1], -t->sides[0], t->a.padding_mode, &fill);
    return LC_OK;
}

static const lc_transform_ops pad_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "pad",          .describe = pad_describe,
    .apply = pad_apply,    .free = lc__owned_free, .self_size = sizeof(pad),
};

lc_status lc_transform_pad_with(int64_t left, int64_t top, int64_t right, int64_t bottom, lc_transform *out,
                                const lc_transform_pad_args *args)
{
    LC__TAKE(a, lc_transform_pad, lc_transform_pad_args, args, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const int64_t most = 1 << 20;
    const pad t = {{left, top, right, bottom}, a};
    *out = (lc_transform){0};
    for (int i = 0; i < 4; i++)
        if (t.sides[i] < 0 || t.sides[i] > most)
            return lc_fail(LC_ERR_ARGUMENT, "pad by %lld, %lld, %lld, %lld: each must be between 0 and %lld",
                           (long long)left, (long long)top, (long long)right, (long long)bottom, (long long)most);
    LC_TRY(lc__check_padding_mode("pad", a.padding_mode, a.fill, &a.fill_color));
    return lc__transform_make(&pad_ops, &t, sizeof t, out);
}
