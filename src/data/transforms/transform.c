/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms of a field of a sample, one kind a file: describe and apply, a table, a constructor in
 * lightc/transforms.h, and a test in tests/data/transforms. Randomness comes only from the sample's key. */
#include "data/transforms/transform.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__transform_make(const lc_transform_ops *ops, const void *self, size_t size, lc_transform *out)
{
    void *copy = malloc(size ? size : 1);
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

/* Whether a whole number may be made of a value. */
static bool fits(lc_dtype dtype, double value)
{
    if (dtype == LC_U8) return value >= 0 && value <= 255;
    if (dtype == LC_I32) return value >= INT32_MIN && value <= INT32_MAX;
    if (dtype == LC_I64) return value >= -9223372036854775808.0 && value < 9223372036854775808.0;
    return true;
}

lc_status lc__element_of(const char *who, lc_dtype dtype, double value, unsigned char element[8])
{
#define ELEMENT(id, type)                                                                                              \
    case id: {                                                                                                         \
        type v = (type)value;                                                                                          \
        memcpy(element, &v, sizeof v);                                                                                 \
        return LC_OK;                                                                                                  \
    }
    if (!fits(dtype, value))
        return lc_fail(LC_ERR_ARGUMENT, "%s: %g does not fit into %s", who, value, lc_dtype_name(dtype));
    switch (dtype) {
        ELEMENT(LC_F32, float)
        ELEMENT(LC_F64, double)
        ELEMENT(LC_I64, int64_t)
        ELEMENT(LC_I32, int32_t)
        ELEMENT(LC_U8, uint8_t)
        ELEMENT(LC_BOOL, bool)
    default:
        break;
    }
#undef ELEMENT
    memset(element, 0, 8);
    if (value == 0.0) return LC_OK;
    return lc_fail(LC_ERR_DTYPE, "%s with a value is not possible on %s; apply it before the conversion", who,
                   lc_dtype_name(dtype));
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

lc_status lc__check_padding_mode(const char *who, lc_padding_mode mode)
{
    if ((unsigned)mode <= LC_PAD_SYMMETRIC) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: unknown lc_padding_mode %d", who, (int)mode);
}

lc_status lc__check_warp(const char *who, lc_resample interpolation, double fill, bool optional)
{
    if (interpolation != LC_RESAMPLE_NEAREST && interpolation != LC_RESAMPLE_BILINEAR)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: the interpolation must be LC_RESAMPLE_NEAREST or LC_RESAMPLE_BILINEAR, not %d", who,
                       (int)interpolation);
    if (isnan(fill) ? optional : fill >= 0 && fill <= 255) return LC_OK; /* comparing NaN may trap */
    return lc_fail(LC_ERR_ARGUMENT, "%s: a fill of %g is not possible; it must be from 0 to 255", who, fill);
}
