/* SPDX-License-Identifier: Apache-2.0 */
/* Whether numbers are finite. */
#ifndef LC_BACKENDS_CPU_ISA_FINITE_H
#define LC_BACKENDS_CPU_ISA_FINITE_H

#include "backends/cpu/isa/vec.h"

/* 0 if all numbers of a matrix are finite, otherwise NaN. step: from row to row. */
static inline float zero_if_finite(const float *x, int64_t rows, int64_t step, int64_t columns)
{
    enum { SUMS = 8 }; /* that do not wait for each other */
    vf s[SUMS];
    float zero = 0;
    for (int k = 0; k < SUMS; k++) s[k] = vzero();
    for (int64_t r = 0; r < rows; r++, x += step) {
        int64_t i = 0;
        for (; i + SUMS * VW <= columns; i += SUMS * VW)
            for (int k = 0; k < SUMS; k++) s[k] += vzero() * vload(x + i + k * VW);
        for (; i < columns; i++) zero += 0 * x[i];
    }
    for (int k = 1; k < SUMS; k++) s[0] += s[k];
    return zero + vsum(s[0]);
}

#endif
