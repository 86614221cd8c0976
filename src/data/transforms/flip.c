/* SPDX-License-Identifier: Apache-2.0 */
/* Left and right, or top and bottom, swapped at random. */
#include "data/transforms/transform.h"

#include <stdlib.h>
#include <string.h>

static lc_status flip_describe(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    lc__picture m;
    *out = *in;
    return lc__picture_of("flip", in, &m);
}

static bool keeps(const void *self, uint64_t key)
{
    return !(lc_random_uniform(key, 0) < *(const double *)self);
}

/* Rows of pixels of a size that the compiler knows. */
#define REVERSE(n)                                                                                                     \
    for (int64_t x = 0; x < width; x++, s += n) memcpy(d -= n, s, n)

static void reverse_row(const char *s, char *d, int64_t width, size_t pixel)
{
    d += (size_t)width * pixel;
    switch (pixel) {
    case 1:
        REVERSE(1);
        break;
    case 3:
        REVERSE(3);
        break;
    case 4:
        REVERSE(4);
        break;
    case 12:
        REVERSE(12);
        break;
    default:
        REVERSE(pixel);
    }
}

static lc_status horizontal_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                  uint64_t key, void *scratch)
{
    (void)out, (void)scratch;
    lc__picture m;
    LC_TRY(lc__picture_of("horizontal_flip", in, &m));
    if (keeps(self, key)) {
        memcpy(dst, src, lc_field_bytes(in));
        return LC_OK;
    }
    const size_t row = (size_t)m.width * m.pixel;
    for (int64_t y = 0; y < m.planes * m.height; y++)
        reverse_row((const char *)src + (size_t)y * row, (char *)dst + (size_t)y * row, m.width, m.pixel);
    return LC_OK;
}

static lc_status vertical_apply(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst,
                                uint64_t key, void *scratch)
{
    (void)out, (void)scratch;
    lc__picture m;
    LC_TRY(lc__picture_of("vertical_flip", in, &m));
    const size_t row = (size_t)m.width * m.pixel;
    const bool same = keeps(self, key);
    for (int64_t p = 0; p < m.planes; p++)
        for (int64_t y = 0; y < m.height; y++)
            memcpy((char *)dst + (size_t)(p * m.height + y) * row,
                   (const char *)src + (size_t)(p * m.height + (same ? y : m.height - 1 - y)) * row, row);
    return LC_OK;
}

static const lc_transform_ops horizontal_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "horizontal_flip", .describe = flip_describe, .apply = horizontal_apply,
    .free = free,
};

static const lc_transform_ops vertical_ops = {
    LC_TRANSFORM_OPS_INIT, .name = "vertical_flip", .describe = flip_describe, .apply = vertical_apply, .free = free,
};

static lc_status make(const lc_transform_ops *ops, double p, lc_transform *out)
{
    *out = (lc_transform){0};
    LC_TRY(lc__check_probability(ops->name, p));
    return lc__transform_make(ops, &p, sizeof p, out);
}

lc_status lc_transform_horizontal_flip(double p, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return make(&horizontal_ops, p, out);
}

lc_status lc_transform_vertical_flip(double p, lc_transform *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return make(&vertical_ops, p, out);
}
