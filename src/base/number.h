/* SPDX-License-Identifier: Apache-2.0 */
/* One element of any data type, as a number. */
#ifndef LC_BASE_NUMBER_H
#define LC_BASE_NUMBER_H

#include <lightc/tensor.h>
#include "base/half.h"

#include <float.h>
#include <math.h>

static inline double lc__load_number(const void *p, lc_dtype dtype)
{
    switch (dtype) {
    case LC_F32:
        return (double)*(const float *)p;
    case LC_F64:
        return *(const double *)p;
    case LC_F16:
        return (double)lc__f16_to_f32(*(const uint16_t *)p);
    case LC_BF16:
        return (double)lc__bf16_to_f32(*(const uint16_t *)p);
    case LC_I64:
        return (double)*(const int64_t *)p;
    case LC_I32:
        return (double)*(const int32_t *)p;
    case LC_U8:
        return (double)*(const uint8_t *)p;
    case LC_BOOL:
        return *(const uint8_t *)p ? 1 : 0;
    case LC_DTYPE_DEFAULT:
        break;
    }
    return 0;
}

/* Whether a number of that type can be made of x, as PyTorch fills tensors: integers drop fractions, floats take
 * infinities and NaN, and bool takes anything. */
static inline bool lc__number_fits(double x, lc_dtype dtype)
{
    switch (dtype) {
    case LC_F32:
        return !isfinite(x) || fabs(x) <= (double)FLT_MAX;
    case LC_F16:
        return !isfinite(x) || fabs(x) <= 65504;
    case LC_BF16:
        return !isfinite(x) || fabs(x) <= 0x1.fep127;
    case LC_I64:
        return fabs(x) < 0x1p63 || x == -0x1p63;
    case LC_I32:
        return x > -0x1p31 - 1 && x < 0x1p31;
    case LC_U8:
        return x >= 0 && x < 256;
    default:
        return true;
    }
}

/* The nearest representable: integers take the nearest bound, and 0 for NaN. */
static inline void lc__store_number(void *p, lc_dtype dtype, double x)
{
    switch (dtype) {
    case LC_F32:
        *(float *)p = (float)x;
        break;
    case LC_F64:
        *(double *)p = x;
        break;
    case LC_F16:
        *(uint16_t *)p = lc__f32_to_f16((float)x);
        break;
    case LC_BF16:
        *(uint16_t *)p = lc__f32_to_bf16((float)x);
        break;
    case LC_I64:
        *(int64_t *)p = x != x                       ? 0
                        : x >= 9223372036854775808.0 ? INT64_MAX
                        : x < -9223372036854775808.0 ? INT64_MIN
                                                     : (int64_t)x;
        break;
    case LC_I32:
        *(int32_t *)p = x != x ? 0 : x >= 2147483647 ? INT32_MAX : x <= -2147483648.0 ? INT32_MIN : (int32_t)x;
        break;
    case LC_U8:
        *(uint8_t *)p = x != x ? 0 : x >= 255 ? 255 : x <= 0 ? 0 : (uint8_t)x;
        break;
    case LC_BOOL:
        *(uint8_t *)p = x != 0;
        break;
    case LC_DTYPE_DEFAULT:
        break;
    }
}

static inline bool lc__is_half(lc_dtype dtype)
{
    return dtype == LC_F16 || dtype == LC_BF16;
}

/* The type that numbers of `dtype` are computed in: halves as f32, and rounded once. */
static inline lc_dtype lc__wide_dtype(lc_dtype dtype)
{
    return lc__is_half(dtype) ? LC_F32 : dtype;
}

/* Element i of an array. */
static inline double lc__number_at(const void *data, lc_dtype dtype, int64_t i)
{
    return lc__load_number((const char *)data + (size_t)i * lc_dtype_size(dtype), dtype);
}

static inline void lc__set_number(void *data, lc_dtype dtype, int64_t i, double x)
{
    lc__store_number((char *)data + (size_t)i * lc_dtype_size(dtype), dtype, x);
}

/* to[i] += from[i]; halves are added as f32 and rounded once. */
static inline void lc__add_numbers(void *to, const void *from, lc_dtype dtype, int64_t n)
{
    if (dtype == LC_F32)
        for (int64_t i = 0; i < n; i++) ((float *)to)[i] += ((const float *)from)[i];
    else
        for (int64_t i = 0; i < n; i++)
            lc__set_number(to, dtype, i, lc__number_at(to, dtype, i) + lc__number_at(from, dtype, i));
}

static inline int64_t lc__load_integer(const void *p, lc_dtype dtype)
{
    switch (dtype) {
    case LC_I64:
        return *(const int64_t *)p;
    case LC_I32:
        return *(const int32_t *)p;
    case LC_U8:
        return *(const uint8_t *)p;
    case LC_BOOL:
        return *(const uint8_t *)p != 0;
    default:
        return 0;
    }
}

static inline void lc__store_integer(void *p, lc_dtype dtype, int64_t x)
{
    switch (dtype) {
    case LC_I64:
        *(int64_t *)p = x;
        break;
    case LC_I32:
        *(int32_t *)p = (int32_t)x;
        break;
    case LC_U8:
        *(uint8_t *)p = (uint8_t)x;
        break;
    case LC_BOOL:
        *(uint8_t *)p = x != 0;
        break;
    default:
        break;
    }
}

#endif
