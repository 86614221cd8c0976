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

/* Pixels of three bytes, five at a time from the left of `s` and so from the right of `d`; returns how many were done.
 * A vector has a byte more, which is loaded from the next pixel, and stored where that goes. */
#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("ssse3"))) static int64_t reverse_ssse3(const char *s, char *d, int64_t width)
{
    const __m128i reversed = _mm_setr_epi8(15, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2);
    int64_t x = 0;
    for (; x + 6 <= width; x += 5) {
        const __m128i pixels = _mm_loadu_si128((const __m128i *)(s + 3 * x));
        _mm_storeu_si128((__m128i *)(d + 3 * (width - x) - 16), _mm_shuffle_epi8(pixels, reversed));
    }
    return x;
}

static int64_t reverse_vectors(const char *s, char *d, int64_t width)
{
    return __builtin_cpu_supports("ssse3") ? reverse_ssse3(s, d, width) : 0;
}
#else
static int64_t reverse_vectors(const char *s, char *d, int64_t width)
{
    (void)s, (void)d, (void)width;
    return 0;
}
#endif

/* Rows of pixels of a size that the compiler knows. */
#define REVERSE(n)                                                                                                     \
    for (; x < width; x++) memcpy(d + (width - 1 - x) * (int64_t)(n), s + x * (int64_t)(n), n)

static void reverse_row(const char *s, char *d, int64_t width, size_t pixel)
{
    int64_t x = pixel == 3 ? reverse_vectors(s, d, width) : 0;
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
    LC_TRANSFORM_OPS_INIT,  .name = "horizontal_flip",   .describe = flip_describe, .apply = horizontal_apply,
    .free = lc__owned_free, .self_size = sizeof(double), .by_rows = true,
};

static const lc_transform_ops vertical_ops = {
    LC_TRANSFORM_OPS_INIT,   .name = "vertical_flip", .describe = flip_describe,
    .apply = vertical_apply, .free = lc__owned_free,  .self_size = sizeof(double),
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
