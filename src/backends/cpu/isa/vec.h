/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of the instruction set's width, for loops in which the compiler does not keep sums in registers on its own.
 * vf is used like a float. */
#ifndef LC_BACKENDS_CPU_ISA_VEC_H
#define LC_BACKENDS_CPU_ISA_VEC_H

#include <stdint.h>

#if defined(__AVX512F__)
#define VW 16
#elif defined(__AVX2__)
#define VW 8
#else
#define VW 4
#endif

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef float vf_any __attribute__((vector_size(VW * 4), aligned(4), may_alias));

#define LC_INLINE static inline __attribute__((always_inline))

LC_INLINE vf vload(const float *p)
{
    return *(const vf_any *)p;
}

LC_INLINE void vstore(float *p, vf x)
{
    *(vf_any *)p = x;
}

LC_INLINE vf vzero(void)
{
    return (vf){0};
}

LC_INLINE vf vsplat(float x)
{
    return x - (vf){0};
}

/* a where mask is all ones, b where it is 0. */
LC_INLINE vf vselect(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

typedef uint8_t vb8 __attribute__((vector_size(VW)));
typedef uint8_t vb8_any __attribute__((vector_size(VW), aligned(1), may_alias));

/* The low byte of every lane. */
LC_INLINE void vstore_bytes(uint8_t *p, vi x)
{
    *(vb8_any *)p = __builtin_convertvector(x, vb8);
}

LC_INLINE vi vload_bytes(const uint8_t *p)
{
    return __builtin_convertvector(*(const vb8_any *)p, vi);
}

/* Sums the lanes in a fixed order, halves first. */
LC_INLINE float vsum(vf x)
{
    float t[VW];
    vstore(t, x);
    for (int w = VW / 2; w > 0; w /= 2) {
        for (int i = 0; i < w; i++) t[i] += t[i + w];
    }
    return t[0];
}

#endif
