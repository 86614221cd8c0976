/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of numbers of bf16, as instructions that add products of pairs take them: AMX's units for matrices (units.h),
 * and vectors (product_dot.h).
 *
 * A tile of the first factor is 16 rows of 32 numbers; one of the second is 32 rows of 16, as pairs of rows. Those
 * instructions take subnormal numbers for zero, and so are sums that would be. The ones that round to bf16, which every
 * machine with them has, do the same. */
#ifndef LC_BACKENDS_CPU_ISA_PAIRS_H
#define LC_BACKENDS_CPU_ISA_PAIRS_H

#include "backends/cpu/isa/stored.h"

#define SIDE 16   /* rows of a tile of the first factor, columns of one of the second */
#define STEP 32   /* of k, in a tile */
#define TILE 1024 /* bytes */

/* Two neighbors in memory. */
typedef int32_t pair_any __attribute__((aligned(2), may_alias));

#define INFINITIES 0x18 /* classes of floats */
#define NANS       0x81

/* ---- 16 x 16 pairs ---- */

/* Rows become columns. */
LC_INLINE void turn_pairs(__m512i r[16])
{
    __m512i s[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const int at = i / 4 * 8 + i % 4;
        s[at] = _mm512_shuffle_i32x4(r[at], r[at + 4], 0x88);
        s[at + 4] = _mm512_shuffle_i32x4(r[at], r[at + 4], 0xdd);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0xdd);
    }
}

LC_INLINE __mmask32 first_32(int64_t n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
}

/* The numbers of a factor: bf16, floats that are rounded, or floats that become two numbers of bf16, whose sum is
 * nearly the float. */
typedef enum source { BF16, ROUNDED, SPLIT } source;

/* The upper part of floats (0), or the lower one (1). If the nearest number of bf16 is not finite, they are: of a
 * finite float, the largest number and a rest that is rounded toward zero, since the nearest could make the sum
 * infinite; of an infinity, 1 with its sign and the infinity. It thus meets only the upper part of the other factor,
 * and neither a zero nor another sign in the lower one. */
LC_INLINE vf part_of(const int part, vf x)
{
    vf high = vrounded(LC_BF16, x);
    const __mmask16 special = _mm512_fpclass_ps_mask((__m512)high, INFINITIES | NANS);
    if (__builtin_expect(!special, 1)) return part ? vrounded(LC_BF16, x - high) : high;
    const __m512 sign = _mm512_and_ps((__m512)x, _mm512_set1_ps(-0.f)), largest = _mm512_set1_ps(0x1.fep127f);
    high = (vf)_mm512_mask_or_ps((__m512)high, special, sign, largest);
    high = (vf)_mm512_mask_or_ps((__m512)high, _mm512_fpclass_ps_mask((__m512)x, INFINITIES), sign, _mm512_set1_ps(1));
    const __m512 rest = (__m512)(x - high), nearest = (__m512)bf16_bits(x - high);
    return part ? (vf)((vu)_mm512_mask_mov_ps(nearest, special, rest) & 0xffff0000) : high;
}

/* 16 numbers of bf16 that stand for 16 neighbors, each in the upper half of its lane: for `part` 0 or 1 of floats that
 * are split, else for 0. */
LC_INLINE __m512i numbers(const source type, const int part, const void *from, int64_t at, __mmask16 which)
{
    if (type == BF16)
        return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(which, (const uint16_t *)from + at)),
                                 16);
    const vf x = (vf)_mm512_maskz_loadu_ps(which, (const float *)from + at);
    return (__m512i)(type == SPLIT ? part_of(part, x) : vrounded(LC_BF16, x));
}

LC_INLINE __m512i pairs(__m512i even, __m512i odd)
{
    return _mm512_or_si512(_mm512_srli_epi32(even, 16), odd);
}

/* Row i of a tile: numbers k to k + 31 of row i of a matrix whose rows are dense. `turned`: as columns of the second
 * factor. to_step: the distance of rows of the tile, in bytes. */
LC_INLINE void tile_of_rows(const source type, const int part, const void *from, int64_t at, int64_t step, int64_t rows,
                            int64_t depth, const bool turned, char *to, int64_t to_step)
{
    const __mmask32 k = first_32(depth);
    const __m512i low_words = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29,
                                               27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) {
        const __mmask32 which = i < rows ? k : 0;
        const int64_t row = at + (i < rows ? i * step : 0);
        if (type == BF16)
            r[i] = _mm512_maskz_loadu_epi16(which, (const uint16_t *)from + row);
        else
            r[i] = _mm512_permutex2var_epi16(numbers(type, part, from, row, (__mmask16)which), low_words,
                                             numbers(type, part, from, row + 16, (__mmask16)(which >> 16)));
    }
    if (turned) turn_pairs(r);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) _mm512_store_si512(to + i * to_step, r[i]);
}

/* Row i of a tile: numbers 2 i and 2 i + 1 of k of 16 columns of a matrix whose columns are neighbors. `turned`: as
 * rows of the first factor. to_step: the distance of rows of the tile, in bytes. */
LC_INLINE void tile_of_columns(const source type, const int part, const void *from, int64_t at, int64_t step,
                               int64_t columns, int64_t depth, const bool turned, char *to, int64_t to_step)
{
    const __mmask16 n = (__mmask16)first_32(columns < SIDE ? columns : SIDE);
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) {
        const __mmask16 even = 2 * i < depth ? n : 0, odd = 2 * i + 1 < depth ? n : 0;
        r[i] = pairs(numbers(type, part, from, at + (even ? 2 * i * step : 0), even),
                     numbers(type, part, from, at + (odd ? (2 * i + 1) * step : 0), odd));
    }
    if (turned) turn_pairs(r);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) _mm512_storeu_si512(to + i * to_step, r[i]);
}

#endif
