/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of a field of a sample, one kind a file: describe and apply, a table, a constructor in
 * lightc/transforms.h, and a test in tests/data/transforms. Randomness comes only from the sample's key. */
#include "data/transforms/transform.h"
#include "base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__transform_make(const lc_transform_ops *ops, const void *self, size_t size, lc_transform *out)
{
    void *copy = lc__owned_new(size, NULL);
    *out = (lc_transform){0};
    if (!copy) return lc_fail(LC_ERR_MEMORY, "out of memory for transform '%s'", ops->name);
    memcpy(copy, self, size);
    *out = (lc_transform){ops, copy};
    return LC_OK;
}

/* ---- pictures ---- */

lc_status lc__picture_of(const char *who, const lc_field *f, lc__picture *m)
{
    *m = (lc__picture){0};
    if (f->ndim != 2 && f->ndim != 3)
        return lc_fail(LC_ERR_SHAPE, "%s expects an image [C,H,W] or [H,W], but field '%s' has %d dimensions", who,
                       f->name, f->ndim);
    const int64_t *hw = f->shape + f->ndim - 2;
    m->channels = f->ndim == 3 ? f->shape[0] : 1;
    m->height = hw[0];
    m->width = hw[1];
    bool last = f->ndim == 3 && f->layout == LC_CHANNELS_LAST;
    m->planes = last ? 1 : m->channels;
    m->pixel = lc_dtype_size(f->dtype) * (size_t)(last ? m->channels : 1);
    return LC_OK;
}

lc_status lc__byte_picture_of(const char *who, const lc_field *f, int channels, lc__picture *m)
{
    LC_TRY(lc__picture_of(who, f, m));
    if (f->dtype != LC_U8)
        return lc_fail(LC_ERR_DTYPE,
                       "%s expects bytes (u8), but field '%s' is %s; put it before to_tensor or normalize", who,
                       f->name, lc_dtype_name(f->dtype));
    if (channels && m->channels != 1 && m->channels != channels)
        return lc_fail(LC_ERR_SHAPE, "%s expects 1 or %d channels, but field '%s' has %lld", who, channels, f->name,
                       (long long)m->channels);
    return LC_OK;
}

void lc__picture_resize(lc_field *f, int64_t height, int64_t width)
{
    f->shape[f->ndim - 2] = height;
    f->shape[f->ndim - 1] = width;
}

lc__pixels lc__pixels_of(const lc_field *f, const void *data)
{
    const int64_t *hw = f->shape + f->ndim - 2;
    const bool last = f->ndim == 3 && f->layout == LC_CHANNELS_LAST;
    lc__pixels p = {.height = hw[0],
                    .width = hw[1],
                    .channels = f->ndim == 3 ? (int)f->shape[0] : 1,
                    .planar = f->ndim == 3 && !last,
                    .at = (uint8_t *)(uintptr_t)data};
    p.stride = (size_t)p.width * lc__pixel_bytes(&p);
    return p;
}

/* One element of a field, from a number; an error if the type cannot hold it. */
static lc_status element_of(const char *who, lc_dtype dtype, double value, unsigned char element[8])
{
    uint64_t bits = 0;
    if (!lc__number_fits(value, dtype))
        return lc_fail(LC_ERR_ARGUMENT, "%s: %g does not fit into %s", who, value, lc_dtype_name(dtype));
    lc__store_number(&bits, dtype, value);
    memcpy(element, &bits, sizeof bits);
    return LC_OK;
}

lc_status lc__fill_of(const char *who, const lc_field *f, double value, const lc_color *color, lc__fill *fill)
{
    *fill = (lc__fill){.n = color->n ? color->n : 1, .size = lc_dtype_size(f->dtype)};
    LC_TRY(lc__check_channels(who, f, color));
    for (int c = 0; c < fill->n; c++) LC_TRY(element_of(who, f->dtype, color->n ? color->of[c] : value, fill->of[c]));
    return LC_OK;
}

/* n elements, of which the first is that of channel `first`; the next ones are those of the channels after it, of
 * `channels`. */
static void fill_row(char *row, int64_t n, const lc__fill *fill, int64_t first, int64_t channels)
{
    static const unsigned char zeros[8];
    const unsigned char(*of)[8] = fill->of + (fill->n > 1 ? first : 0);
    if (fill->n > 1 && channels > 1)
        for (int64_t i = 0; i < n; i++) memcpy(row + (size_t)i * fill->size, of[i % channels], fill->size);
    else if (!memcmp(of[0], zeros, fill->size))
        memset(row, 0, (size_t)n * fill->size);
    else
        for (int64_t i = 0; i < n; i++) memcpy(row + (size_t)i * fill->size, of[0], fill->size);
}

void lc__fill_box(const lc__picture *m, char *data, const lc_box *box, const lc__fill *fill)
{
    const int64_t adjacent = m->planes > 1 ? 1 : m->channels;
    if (fill->n < 2 && box->width == m->width && box->height == m->height) {
        fill_row(data, m->planes * m->height * m->width * adjacent, fill, 0, 1); /* all of it at once */
        return;
    }
    for (int64_t p = 0; p < m->planes; p++)
        for (int64_t y = box->top; y < box->top + box->height; y++)
            fill_row(data + (size_t)((p * m->height + y) * m->width + box->left) * m->pixel, box->width * adjacent,
                     fill, p, adjacent);
}

/* ---- arguments ---- */

#define MOST_SIDE ((int64_t)1 << 24)

lc_status lc__check_probability(const char *who, double p)
{
    if (p >= 0.0 && p <= 1.0) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: %g is not a probability", who, p);
}

lc_status lc__check_range(const char *who, const char *what, lc_range r, double least, double most)
{
    if (r.from >= least && r.to <= most && r.from <= r.to) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: %s from %g to %g is not possible; both must be from %g to %g, in this order",
                   who, what, r.from, r.to, least, most);
}

lc_status lc__check_size(const char *who, int64_t height, int64_t width)
{
    if (height >= 1 && width >= 1 && height <= MOST_SIDE && width <= MOST_SIDE) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s to %lldx%lld is not possible; each must be from 1 to %lld", who,
                   (long long)height, (long long)width, (long long)MOST_SIDE);
}

lc_status lc__check_color(const char *who, double value, const lc_color *color)
{
    if (color->n < 0 || color->n > LC_MAX_COLOR)
        return lc_fail(LC_ERR_ARGUMENT, "%s: a color of %d numbers is not possible; it has from 1 to %d", who, color->n,
                       LC_MAX_COLOR);
    if (!color->n || isnan(value) || value == 0.0) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: give a color, or the number %g for all channels, but not both", who, value);
}

lc_status lc__check_channels(const char *who, const lc_field *f, const lc_color *color)
{
    const int64_t channels = f->ndim == 3 ? f->shape[0] : 1;
    if (color->n < 2 || color->n == channels) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "%s: a color of %d numbers does not fit field '%s' of %lld channel%s", who, color->n,
                   f->name, (long long)channels, channels == 1 ? "" : "s");
}

lc_status lc__check_padding_mode(const char *who, lc_padding_mode mode, double fill, const lc_color *color)
{
    if ((unsigned)mode > LC_PAD_SYMMETRIC)
        return lc_fail(LC_ERR_ARGUMENT, "%s: unknown lc_padding_mode %d", who, (int)mode);
    if (color->n && mode != LC_PAD_CONSTANT)
        return lc_fail(LC_ERR_ARGUMENT, "%s: only LC_PAD_CONSTANT has a fill_color", who);
    return lc__check_color(who, fill, color);
}

static bool fits_byte(double v)
{
    return !isnan(v) && v >= 0 && v <= 255; /* comparing NaN may trap */
}

lc_status lc__check_warp(const char *who, lc_resample interpolation, double fill, const lc_color *color, bool optional)
{
    LC_TRY(lc__check_color(who, fill, color));
    if (interpolation != LC_RESAMPLE_NEAREST && interpolation != LC_RESAMPLE_BILINEAR)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: the interpolation must be LC_RESAMPLE_NEAREST or LC_RESAMPLE_BILINEAR, not %d", who,
                       (int)interpolation);
    for (int c = 0; c < color->n; c++)
        if (!fits_byte(color->of[c]))
            return lc_fail(LC_ERR_ARGUMENT, "%s: a fill_color with %g is not possible; each must be from 0 to 255", who,
                           color->of[c]);
    if (isnan(fill) ? optional : fits_byte(fill)) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: a fill of %g is not possible; it must be from 0 to 255", who, fill);
}
