/* SPDX-License-Identifier: Apache-2.0 */
/* Copies numbers of any data type into and out of tensors, for tests of operators. */
#ifndef LC_TESTS_OP_VALUES_H
#define LC_TESTS_OP_VALUES_H

#include "test.h"
#include "check/shape.h"

#define MAX_N 2048 /* elements of a tensor */

static inline void store(double x, lc_dtype dtype, void *to)
{
    if (dtype == LC_F32)
        *(float *)to = (float)x;
    else if (dtype == LC_F64)
        *(double *)to = x;
    else if (dtype == LC_I64)
        *(int64_t *)to = (int64_t)x;
    else
        *(uint8_t *)to = x != 0;
}

static inline double load(lc_dtype dtype, const void *from)
{
    switch (dtype) {
    case LC_F32:
        return (double)*(const float *)from;
    case LC_F64:
        return *(const double *)from;
    case LC_I64:
        return (double)*(const int64_t *)from;
    case LC_I32:
        return (double)*(const int32_t *)from;
    default:
        return (double)*(const uint8_t *)from;
    }
}

static inline void fill(lc_tensor *t, const double *values)
{
    char bytes[MAX_N * 8];
    int64_t n = lc_tensor_numel(t);
    size_t size = lc_dtype_size(lc_tensor_dtype(t));
    CHECK(n <= MAX_N);
    for (int64_t i = 0; i < n; i++) store(values[i], lc_tensor_dtype(t), bytes + (size_t)i * size);
    CHECK_OK(lc_tensor_write(t, bytes, (size_t)n * size));
}

static inline void fetch(lc_tensor *t, double *values)
{
    static char bytes[MAX_N * 8];
    int64_t n = lc_tensor_numel(t);
    size_t size = lc_dtype_size(lc_tensor_dtype(t));
    CHECK(n <= MAX_N);
    CHECK_OK(lc_tensor_read(t, bytes, (size_t)n * size));
    for (int64_t i = 0; i < n; i++) values[i] = load(lc_tensor_dtype(t), bytes + (size_t)i * size);
}

#endif
