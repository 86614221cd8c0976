/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of vectors of doubles. */
#ifndef LC_OPTIM_VECTOR_H
#define LC_OPTIM_VECTOR_H

#include <math.h>
#include <stdint.h>

static inline double lc__dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* NaN if any of them is. */
static inline double lc__largest(const double *a, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n && !isnan(most); i++)
        if (!(fabs(a[i]) <= most)) most = fabs(a[i]);
    return most;
}

/* NaN stays NaN. */
static inline double lc__within(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

#endif
