/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and extremes of a row of f64, in several lanes; the order depends only on the length. */
#ifndef LC_BACKENDS_CPU_ISA_ROWMATH_F64_H
#define LC_BACKENDS_CPU_ISA_ROWMATH_F64_H

#include "backends/cpu/isa/vec_f64.h"
#include "backends/cpu/isa/vmath_f64.h"

/* The body computes `v` (vector) from offset i and `e` (scalar) from offset i. */
#define ROW_SUM_F64(name, parameters, vector, scalar)                                                                  \
    LC_INLINE double name parameters                                                                                   \
    {                                                                                                                  \
        vd a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0};                                                                     \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 * VD <= n; i += VD) {                                                                             \
            a0 += vector;                                                                                              \
            i += VD;                                                                                                   \
            a1 += vector;                                                                                              \
            i += VD;                                                                                                   \
            a2 += vector;                                                                                              \
            i += VD;                                                                                                   \
            a3 += vector;                                                                                              \
        }                                                                                                              \
        for (; i + VD <= n; i += VD) a0 += vector;                                                                     \
        double rest = 0;                                                                                               \
        for (; i < n; i++) rest += scalar;                                                                             \
        return vdsum((a0 + a1) + (a2 + a3)) + rest;                                                                    \
    }

ROW_SUM_F64(row_sum_f64, (const double *x, int64_t n), vdload(x + i), x[i])
ROW_SUM_F64(row_dot_f64, (const double *x, const double *y, int64_t n), vdload(x + i) * vdload(y + i), x[i] * y[i])
/* sum of (x - m)^2 */
ROW_SUM_F64(row_squares_f64, (const double *x, double m, int64_t n), (vdload(x + i) - m) * (vdload(x + i) - m),
            (x[i] - m) * (x[i] - m))

/* The largest element that is not NaN; -INFINITY if there is none. */
LC_INLINE double row_max_f64(const double *x, int64_t n)
{
    double lanes[VD], best = -(double)INFINITY;
    for (int k = 0; k < VD; k++) lanes[k] = best;
    int64_t i = 0;
    for (; i + VD <= n; i += VD) {
        for (int k = 0; k < VD; k++) lanes[k] = x[i + k] > lanes[k] ? x[i + k] : lanes[k];
    }
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    for (int k = 0; k < VD; k++) best = lanes[k] > best ? lanes[k] : best;
    return best;
}

#endif
