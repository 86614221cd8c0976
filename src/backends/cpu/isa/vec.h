/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of the instruction set's width, for loops in which the compiler does not keep sums in registers on its own.
 * vf is used like a float. */
#ifndef LC_BACKENDS_CPU_ISA_VEC_H
#define LC_BACKENDS_CPU_ISA_VEC_H

#include <stdint.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

/* a where it is larger, else b, as if one is a NaN. */
LC_INLINE vf vlarger(vf a, vf b)
{
#if VW == 16
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif VW == 8
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return vselect(a > b, a, b);
#endif
}

/* ---- narrower lanes ---- */
typedef uint8_t vb8 __attribute__((vector_size(VW)));
typedef uint8_t vb8_any __attribute__((vector_size(VW), aligned(1), may_alias));
typedef uint16_t vh __attribute__((vector_size(VW * 2)));
typedef uint16_t vh_any __attribute__((vector_size(VW * 2), aligned(2), may_alias));

/* gcc 12 moves lanes one by one for a __builtin_convertvector. */
#if VW == 16
LC_INLINE vi widen_bytes(vb8 x)
{
    return (vi)_mm512_cvtepu8_epi32((__m128i)x);
}

LC_INLINE vb8 low_bytes(vi x)
{
    return (vb8)_mm512_cvtepi32_epi8((__m512i)x);
}

LC_INLINE vi widen_halves(vh x)
{
    return (vi)_mm512_cvtepu16_epi32((__m256i)x);
}

LC_INLINE vh low_halves(vi x)
{
    return (vh)_mm512_cvtepi32_epi16((__m512i)x);
}
#elif VW == 8
LC_INLINE vi widen_bytes(vb8 x)
{
    return (vi)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)x));
}

/* Each half of the vector packs its own lanes. */
LC_INLINE vb8 low_bytes(vi x)
{
    const __m256i order = _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1,
                                           -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m256i y = _mm256_shuffle_epi8((__m256i)x, order);
    return (vb8)_mm_cvtsi128_si64(_mm_unpacklo_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1)));
}

LC_INLINE vi widen_halves(vh x)
{
    return (vi)_mm256_cvtepu16_epi32((__m128i)x);
}

LC_INLINE vh low_halves(vi x)
{
    const __m256i low = _mm256_and_si256((__m256i)x, _mm256_set1_epi32(0xffff));
    const __m256i y = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    return (vh)_mm256_castsi256_si128(y);
}
#else
LC_INLINE vi widen_bytes(vb8 x)
{
    return __builtin_convertvector(x, vi);
}

LC_INLINE vb8 low_bytes(vi x)
{
    return __builtin_convertvector(x, vb8);
}

LC_INLINE vi widen_halves(vh x)
{
    return __builtin_convertvector(x, vi);
}

LC_INLINE vh low_halves(vi x)
{
    return __builtin_convertvector(x, vh);
}
#endif

/* The low byte of every lane. */
LC_INLINE void vstore_bytes(uint8_t *p, vi x)
{
    *(vb8_any *)p = low_bytes(x);
}

LC_INLINE vi vload_bytes(const uint8_t *p)
{
    return widen_bytes(*(const vb8_any *)p);
}

/* Fetches a cache line that will be written to, of which another core may have the only copy. Any address will do. */
LC_INLINE void vfetch_to_write(const void *p)
{
#if defined(__AVX2__) /* such processors have the instruction, or ignore it */
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)p));
#else
    (void)p;
#endif
}

/* ---- which lanes ---- */
#if VW == 16
typedef __mmask16 vmask;

/* Where the bytes from p on are x. */
LC_INLINE vmask vwhere_bytes(const uint8_t *p, int x)
{
    return _mm_cmpeq_epi8_mask(_mm_loadu_si128((const __m128i *)p), _mm_set1_epi8((char)x));
}

/* Those of `m` where a <= b does not hold. */
LC_INLINE vmask vwhere_not_le(vmask m, vf a, vf b)
{
    return _mm512_mask_cmp_ps_mask(m, (__m512)a, (__m512)b, _CMP_NLE_UQ);
}

/* x there, 0 elsewhere. */
LC_INLINE vf vkeep(vmask m, vf x)
{
    return (vf)_mm512_maskz_mov_ps(m, (__m512)x);
}

/* x there, y elsewhere. */
LC_INLINE vf vpick(vmask m, vf x, vf y)
{
    return (vf)_mm512_mask_mov_ps((__m512)y, m, (__m512)x);
}
#define VALL ((vmask)0xffff)
#else
typedef vi vmask;

LC_INLINE vmask vwhere_bytes(const uint8_t *p, int x)
{
    return vload_bytes(p) == x;
}

LC_INLINE vmask vwhere_not_le(vmask m, vf a, vf b)
{
    return m & ~(a <= b);
}

LC_INLINE vf vkeep(vmask m, vf x)
{
    return (vf)((vi)x & m);
}

LC_INLINE vf vpick(vmask m, vf x, vf y)
{
    return vselect(m, x, y);
}
#define VALL (~(vi){0})
#endif

/* Sums the lanes in a fixed order, halves first. */
LC_INLINE float vsum(vf x)
{
#if VW == 16
    typedef float half __attribute__((vector_size(32)));
    const half h = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                   __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    const vf h = x;
#endif
#if VW >= 8
    typedef float quarter __attribute__((vector_size(16)));
    const quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#else
    const vf q = h;
#endif
    return (q[0] + q[2]) + (q[1] + q[3]);
}

#endif
