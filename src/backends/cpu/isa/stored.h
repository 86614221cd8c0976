/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in the type that they are stored in: f32, or 16 bits (f16, bf16), which are computed as f32 and rounded once,
 * to the nearest, ties to even. The type is a constant where a loop runs: STORED makes one loop for each. */
#ifndef LC_BACKENDS_CPU_ISA_STORED_H
#define LC_BACKENDS_CPU_ISA_STORED_H

#include "backends/cpu/isa/vec.h"
#include "base/half.h"

#include <lightc/op.h>
#include <string.h>

typedef uint32_t vu __attribute__((vector_size(VW * 4)));

static inline bool is_stored(lc_dtype t)
{
    return t == LC_F32 || t == LC_BF16 || t == LC_F16;
}

/* Calls an inlined function with the type, as a constant, before its other arguments. */
#define STORED(t, function, ...)                                                                                       \
    do {                                                                                                               \
        if ((t) == LC_BF16)                                                                                            \
            function(LC_BF16, __VA_ARGS__);                                                                            \
        else if ((t) == LC_F16)                                                                                        \
            function(LC_F16, __VA_ARGS__);                                                                             \
        else                                                                                                           \
            function(LC_F32, __VA_ARGS__);                                                                             \
    } while (0)

/* Types of operands that are only read: f32 in memory that count as rounded to 16 bits. */
#define F32_AS_BF16 ((lc_dtype)(LC_BF16 | 64))
#define F32_AS_F16  ((lc_dtype)(LC_F16 | 64))

/* How numbers of the type `in_memory` are read that count as rounded to the type `as`. */
static inline lc_dtype stored_type(lc_dtype in_memory, lc_dtype as)
{
    return in_memory == as ? as : (lc_dtype)(as | 64);
}

LC_INLINE bool is_f32_in_memory(const lc_dtype t)
{
    return t == LC_F32 || t == F32_AS_BF16 || t == F32_AS_F16;
}

LC_INLINE size_t stored_size(const lc_dtype t)
{
    return is_f32_in_memory(t) ? sizeof(float) : sizeof(uint16_t);
}

/* The address of element i. */
LC_INLINE void *stored_at(const lc_dtype t, const void *p, int64_t i)
{
    return (char *)p + i * (int64_t)stored_size(t);
}

/* ---- 16 bits and f32, vectors ---- */
#define SUBNORMAL 0x20 /* a class of floats */

LC_INLINE vf bf16_widen(vh h)
{
    return (vf)(widen_halves(h) << 16);
}

/* The bits of the nearest number, in the upper half of each lane; the lower half is left over. */
LC_INLINE vu bf16_bits(vf x)
{
    const vu u = (vu)x, nearest = u + 0x7fff + (u >> 16 & 1);
#if VW == 16 /* a mask without a detour through vectors */
    const __m512 quiet = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return (vu)_mm512_mask_mov_ps((__m512)nearest, _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q), quiet);
#else
    const vi nan = (vi)(u & 0x7fffffff) > 0x7f800000;
    return (vu)vselect(nan, vsplat(__builtin_nanf("")), (vf)nearest);
#endif
}

LC_INLINE vh bf16_round(vf x)
{
#ifdef __AVX512BF16__ /* an instruction that takes subnormal numbers for zero */
    if (__builtin_expect(!_mm512_fpclass_ps_mask((__m512)x, SUBNORMAL), 1)) return (vh)_mm512_cvtneps_pbh((__m512)x);
#endif
    return low_halves((vi)(bf16_bits(x) >> 16));
}

#if defined(__F16C__) && VW == 16
LC_INLINE vf f16_widen(vh h)
{
    return (vf)_mm512_cvtph_ps((__m256i)h);
}

LC_INLINE vh f16_round(vf x)
{
    return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#elif defined(__F16C__) && VW == 8
LC_INLINE vf f16_widen(vh h)
{
    return (vf)_mm256_cvtph_ps((__m128i)h);
}

LC_INLINE vh f16_round(vf x)
{
    return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
LC_INLINE vf f16_widen(vh h)
{
    const vu u = (vu)widen_halves(h), magnitude = (u & 0x7fff) << 13;
    const vf f = (vf)magnitude * 0x1p112f; /* exact, subnormal numbers too */
    const vu special = (vu)(f >= 65536.f) & 0x7f800000;
    return (vf)((vu)f | special | (u & 0x8000) << 16);
}

/* See lc__f32_to_f16. */
LC_INLINE vh f16_round(vf x)
{
    const vu u = (vu)x, sign = u >> 16 & 0x8000, m = u & 0x7fffffff;
    const vu small = (vu)((vf)m + 0.5f) - 0x3f000000, normal = (m + 0xfff + (m >> 13 & 1) - 0x38000000) >> 13;
    const vu large = (vu)((vi)m >= 0x477ff000), nan = (vu)((vi)m > 0x7f800000);
    vu h = (vu)vselect((vi)m < 0x38800000, (vf)small, (vf)normal);
    h = (h & ~large) | (large & 0x7c00) | (nan & 0x200);
    return low_halves((vi)(h | sign));
}
#endif

/* ---- 16 bits and f32, single numbers ---- */
#ifdef __F16C__ /* without branches, which would depend on the numbers */
LC_INLINE float f16_to_f32(uint16_t h)
{
    return _cvtsh_ss(h);
}

LC_INLINE uint16_t f32_to_f16(float x)
{
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#else
#define f16_to_f32 lc__f16_to_f32
#define f32_to_f16 lc__f32_to_f16
#endif

/* The nearest numbers of the type. */
LC_INLINE vf vrounded(const lc_dtype t, vf x)
{
#ifdef __AVX512BF16__
    if (t == LC_BF16) return bf16_widen(bf16_round(x));
#endif
    return t == LC_F32 ? x : t == LC_BF16 ? (vf)(bf16_bits(x) & 0xffff0000) : f16_widen(f16_round(x));
}

/* ---- loads and stores ---- */
/* VW numbers from element i on. */
LC_INLINE vf vget(const lc_dtype t, const void *p, int64_t i)
{
    if (t == LC_F32) return vload((const float *)p + i);
    if (is_f32_in_memory(t)) return vrounded((lc_dtype)(t & ~64), vload((const float *)p + i));
    const vh h = *(const vh_any *)((const uint16_t *)p + i);
    return t == LC_BF16 ? bf16_widen(h) : f16_widen(h);
}

LC_INLINE void vput(const lc_dtype t, void *p, int64_t i, vf x)
{
    if (t == LC_F32)
        vstore((float *)p + i, x);
    else
        *(vh_any *)((uint16_t *)p + i) = t == LC_BF16 ? bf16_round(x) : f16_round(x);
}

/* 2 VW numbers: a, then b. */
LC_INLINE void vput_two(const lc_dtype t, void *p, int64_t i, vf a, vf b)
{
#ifdef __AVX512BF16__
    if (t == LC_BF16 &&
        __builtin_expect(!(_mm512_fpclass_ps_mask((__m512)a, SUBNORMAL) | _mm512_fpclass_ps_mask((__m512)b, SUBNORMAL)),
                         1)) {
        _mm512_storeu_si512((uint16_t *)p + i, (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
        return;
    }
#endif
    vput(t, p, i, a);
    vput(t, p, i + VW, b);
}

/* The largest number that is rounded to 0. */
LC_INLINE float vanishing_number(const lc_dtype t)
{
    return t == LC_F32 ? 0.f : t == LC_BF16 ? 0x1p-134f : 0x1p-25f;
}

LC_INLINE vf vanishing(const lc_dtype t)
{
    return vsplat(vanishing_number(t));
}

LC_INLINE float get(const lc_dtype t, const void *p, int64_t i)
{
    uint16_t h;
    if (t == LC_F32) return ((const float *)p)[i];
    if (t == F32_AS_BF16) return lc__bf16_to_f32(lc__f32_to_bf16(((const float *)p)[i]));
    if (t == F32_AS_F16) return f16_to_f32(f32_to_f16(((const float *)p)[i]));
    memcpy(&h, (const char *)p + 2 * i, sizeof h);
    return t == LC_BF16 ? lc__bf16_to_f32(h) : f16_to_f32(h);
}

LC_INLINE void put(const lc_dtype t, void *p, int64_t i, float x)
{
    if (t == LC_F32) {
        ((float *)p)[i] = x;
    } else {
        const uint16_t h = t == LC_BF16 ? lc__f32_to_bf16(x) : f32_to_f16(x);
        memcpy((char *)p + 2 * i, &h, sizeof h);
    }
}

LC_INLINE float rounded(const lc_dtype t, float x)
{
    put(t, &x, 0, x);
    return get(t, &x, 0);
}

LC_INLINE void get_run_of(const lc_dtype t, const void *restrict p, int64_t first, int64_t n, float *restrict to)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vstore(to + i, vget(t, p, first + i));
    for (; i < n; i++) to[i] = get(t, p, first + i);
}

LC_INLINE void put_run_of(const lc_dtype t, void *restrict p, int64_t first, int64_t n, const float *restrict from)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vput(t, p, first + i, vload(from + i));
    for (; i < n; i++) put(t, p, first + i, from[i]);
}

LC_INLINE void round_run_of(const lc_dtype t, int64_t n, float *to, const float *from)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) vstore(to + i, vrounded(t, vload(from + i)));
    for (; i < n; i++) to[i] = rounded(t, from[i]);
}

/* The nearest numbers of the type, as floats. */
static inline void round_run(lc_dtype t, int64_t n, float *to, const float *from)
{
    STORED(t, round_run_of, n, to, from);
}

/* n numbers from element `first` on. */
static inline void get_run(lc_dtype t, const void *p, int64_t first, int64_t n, float *to)
{
    STORED(t, get_run_of, p, first, n, to);
}

static inline void put_run(lc_dtype t, void *p, int64_t first, int64_t n, const float *from)
{
    STORED(t, put_run_of, p, first, n, from);
}

/* The same numbers as floats: where they are, or in `copy`. */
static inline const float *floats_of(lc_dtype t, const void *p, int64_t first, int64_t n, float *copy)
{
    if (t == LC_F32) return (const float *)p + first;
    get_run(t, p, first, n, copy);
    return copy;
}

/* Where floats are computed that put_floats stores from element `first` on. */
static inline float *floats_for(lc_dtype t, void *p, int64_t first, float *copy)
{
    return t == LC_F32 ? (float *)p + first : copy;
}

static inline void put_floats(lc_dtype t, void *p, int64_t first, int64_t n, const float *copy)
{
    if (t != LC_F32) put_run(t, p, first, n, copy);
}

#endif
