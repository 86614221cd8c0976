/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and extremes of a row of f32. Up to 1024 elements are summed in float, in several lanes; these sums are added in
 * double. */
#ifndef LC_BACKENDS_CPU_ISA_ROWMATH_H
#define LC_BACKENDS_CPU_ISA_ROWMATH_H

#include "backends/cpu/isa/vec.h"
#include "backends/cpu/isa/vmath.h"

#define ROW_CHUNK 1024

static inline int64_t row_chunk(int64_t left)
{
    return left < ROW_CHUNK ? left : ROW_CHUNK;
}

/* The body computes `v` (vector) from offset i and `e` (scalar) from offset i. */
#define ROW_SUM(name, parameters, vector, scalar)                                                                      \
    LC_INLINE double name parameters                                                                                   \
    {                                                                                                                  \
        double total = 0;                                                                                              \
        for (int64_t first = 0; first < n; first += ROW_CHUNK) {                                                       \
            int64_t i = first, end = first + row_chunk(n - first);                                                     \
            vf a0 = vzero(), a1 = vzero(), a2 = vzero(), a3 = vzero();                                                 \
            for (; i + 4 * VW <= end; i += VW) {                                                                       \
                a0 += vector;                                                                                          \
                i += VW;                                                                                               \
                a1 += vector;                                                                                          \
                i += VW;                                                                                               \
                a2 += vector;                                                                                          \
                i += VW;                                                                                               \
                a3 += vector;                                                                                          \
            }                                                                                                          \
            for (; i + VW <= end; i += VW) a0 += vector;                                                               \
            float rest = 0;                                                                                            \
            for (; i < end; i++) rest += scalar;                                                                       \
            total += (double)(vsum((a0 + a1) + (a2 + a3)) + rest);                                                     \
        }                                                                                                              \
        return total;                                                                                                  \
    }

ROW_SUM(row_sum, (const float *x, int64_t n), vload(x + i), x[i])
ROW_SUM(row_dot, (const float *x, const float *y, int64_t n), vload(x + i) * vload(y + i), x[i] * y[i])
/* sum of (x - m)^2 */
ROW_SUM(row_squares, (const float *x, float m, int64_t n), (vload(x + i) - m) * (vload(x + i) - m),
        (x[i] - m) * (x[i] - m))

/* The largest element that is not NaN; -INFINITY if there is none. */
LC_INLINE float row_max(const float *x, int64_t n)
{
    vf m = vsplat(-INFINITY);
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf v = vload(x + i);
        m = vselect(v > m, v, m);
    }
    float best = -INFINITY, lanes[VW];
    vstore(lanes, m);
    for (int k = 0; k < VW; k++) best = lanes[k] > best ? lanes[k] : best;
    for (; i < n; i++) best = x[i] > best ? x[i] : best;
    return best;
}

/* sum of exp(x - shift). */
static inline double row_sum_exp(const float *x, float shift, int64_t n)
{
    double total = 0;
    for (int64_t first = 0; first < n; first += ROW_CHUNK) {
        float e[ROW_CHUNK];
        int64_t count = row_chunk(n - first);
        for (int64_t i = 0; i < count; i++) e[i] = vm_exp(x[first + i] - shift);
        total += row_sum(e, count);
    }
    return total;
}

#endif
