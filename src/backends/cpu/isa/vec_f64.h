/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of doubles, as vec.h has them of floats. */
#ifndef LC_BACKENDS_CPU_ISA_VEC_F64_H
#define LC_BACKENDS_CPU_ISA_VEC_F64_H

#include "backends/cpu/isa/vec.h"

#define VD (VW / 2)

typedef double vd __attribute__((vector_size(VD * 8)));
typedef double vd_any __attribute__((vector_size(VD * 8), aligned(8), may_alias));

LC_INLINE vd vdload(const double *p)
{
    return *(const vd_any *)p;
}

LC_INLINE void vdstore(double *p, vd x)
{
    *(vd_any *)p = x;
}

LC_INLINE vd vdsplat(double x)
{
    return x - (vd){0};
}

/* Sums the lanes in a fixed order, halves first. */
LC_INLINE double vdsum(vd x)
{
    double t[VD];
    vdstore(t, x);
    for (int w = VD / 2; w > 0; w /= 2) {
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    }
    return t[0];
}

#endif
