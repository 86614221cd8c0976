/* SPDX-License-Identifier: Apache-2.0 */
/* Products of bf16 in AMX's units for matrices: the copies of the factors, and the innermost loop, in place of
 * product_panels.h and product_tile.h.
 *
 * A unit multiplies 16 rows of 32 numbers of bf16 by 32 rows of 16, which it takes as pairs of rows: 16 x 16 sums in
 * f32, each of 32 products. Both factors are copied into such tiles of 1 KiB, in the order in which they are read;
 * where k ends within a tile, zeros fill it. Units take subnormal numbers for zero, and so are sums that would be. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_AMX_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_AMX_H

#include "backends/cpu/isa/product_job.h"
#include "backends/cpu/isa/stored.h"

#include <string.h>

#define ROWS  JOB_ROWS
#define PANEL JOB_PANEL
#define SIDE  16   /* rows and columns of a tile of results */
#define STEP  32   /* of k, in a tile of a factor */
#define TILE  1024 /* bytes */

/* The floats whose memory a column of a panel takes, or a row of the copy of the first factor. */
#define COLUMN(depth) (whole(depth, STEP) / 2)

/* Where a tile begins: column or row `i`, a multiple of SIDE, at step k / STEP. */
static inline char *tile_at(void *tiles, int64_t i, int64_t depth, int64_t k)
{
    return (char *)tiles + (i / SIDE * parts(depth, STEP) + k / STEP) * TILE;
}

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

/* Tile row i: numbers k to k + 31 of row i of a matrix whose rows are dense. `turned`: as columns of the second factor.
 */
LC_INLINE void tile_of_rows(const uint16_t *from, int64_t step, int64_t rows, int64_t depth, const bool turned,
                            char *to)
{
    __m512i r[16];
    const __mmask32 k = first_32(depth);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) r[i] = _mm512_maskz_loadu_epi16(i < rows ? k : 0, from + (i < rows ? i * step : 0));
    if (turned) turn_pairs(r);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) _mm512_store_si512(to + i * 64, r[i]);
}

/* Tile row i: numbers 2 i and 2 i + 1 of k of 16 columns of a matrix whose columns are neighbors. `turned`: as rows of
 * the first factor. */
LC_INLINE void tile_of_columns(const uint16_t *from, int64_t step, int64_t columns, int64_t depth, const bool turned,
                               char *to)
{
    const __mmask16 n = (__mmask16)first_32(smaller(columns, SIDE));
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) {
        const __mmask16 even = 2 * i < depth ? n : 0, odd = 2 * i + 1 < depth ? n : 0;
        const __m256i a = _mm256_maskz_loadu_epi16(even, from + (even ? 2 * i * step : 0));
        const __m256i b = _mm256_maskz_loadu_epi16(odd, from + (odd ? (2 * i + 1) * step : 0));
        r[i] = _mm512_or_si512(_mm512_cvtepu16_epi32(a), _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
    }
    if (turned) turn_pairs(r);
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) _mm512_store_si512(to + i * 64, r[i]);
}

/* ---- copies of the factors ---- */

#define SOME 256 /* of k, which functions of the job copy at a time: as floats, which are numbers of bf16 */

/* Rows [m0, m1) of the first factor. */
static __attribute__((noinline)) void copy_x(const product_job *j, int64_t k0, int64_t depth, int64_t m0, int64_t m1,
                                             float *to)
{
    const lc__product *p = &j->p;
    float some[SIDE * (SOME + 16)];
    for (int64_t m = m0; m < m1; m += SIDE) {
        int64_t rows = smaller(SIDE, m1 - m);
        for (int64_t k = 0; k < depth; k += SOME) {
            int64_t end = smaller(k + SOME, depth);
            if (j->pack_rows) j->pack_rows(j, k0 + k, end - k, m, m + rows, some);
            for (int64_t q = k; q < end; q += STEP) {
                char *tile = tile_at(to, m - m0, depth, q);
                const uint16_t *x = (const uint16_t *)j->x + m * p->xm + (k0 + q) * p->xk;
                if (!j->pack_rows && p->xk == 1)
                    tile_of_rows(x, p->xm, rows, end - q, false, tile);
                else if (!j->pack_rows)
                    tile_of_columns(x, p->xk, rows, end - q, true, tile);
                for (int64_t i = 0; j->pack_rows && i < SIDE; i++) {
                    const float *row = some + i * j->row_step + q - k;
                    const __mmask16 low = i < rows ? (__mmask16)first_32(smaller(16, end - q)) : 0;
                    const __mmask16 high = i < rows ? (__mmask16)first_32(end - q - 16) : 0;
                    const __m512i a = (__m512i)_mm512_maskz_loadu_ps(low, row);
                    const __m512i b = (__m512i)_mm512_maskz_loadu_ps(high, row + 16);
                    _mm256_store_si256((__m256i *)(tile + i * 64), _mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16)));
                    _mm256_store_si256((__m256i *)(tile + i * 64 + 32),
                                       _mm512_cvtepi32_epi16(_mm512_srli_epi32(b, 16)));
                }
            }
        }
    }
}

/* The panel of columns [n0, n0 + width). */
LC_INLINE void one_panel(const product_job *j, int64_t k0, int64_t depth, int64_t n0, int64_t width, float *to)
{
    const lc__product *p = &j->p;
    float some[SOME * PANEL];
    for (int64_t k = 0; k < depth; k += SOME) {
        int64_t end = smaller(k + SOME, depth);
        if (j->pack_panels) j->pack_panels(j, k0 + k, end - k, n0, n0 + width, some);
        for (int64_t q = k; q < end; q += STEP) {
            for (int64_t n = 0; n < width; n += SIDE) {
                char *tile = tile_at(to, n, depth, q);
                const uint16_t *y = (const uint16_t *)j->y + (n0 + n) * p->yn + (k0 + q) * p->yk;
                if (!j->pack_panels && p->yn == 1)
                    tile_of_columns(y, p->yk, width - n, end - q, false, tile);
                else if (!j->pack_panels)
                    tile_of_rows(y, p->yn, smaller(width - n, SIDE), end - q, true, tile);
                for (int64_t i = 0; j->pack_panels && i < SIDE; i++) {
                    const int64_t even = q - k + 2 * i;
                    const float *row = some + even * PANEL + n;
                    const __mmask16 a = k + even < end ? 0xffff : 0, b = k + even + 1 < end ? 0xffff : 0;
                    const __m512i low = (__m512i)_mm512_maskz_loadu_ps(a, row);
                    const __m512i high = (__m512i)_mm512_maskz_loadu_ps(b, row + PANEL);
                    _mm512_store_si512(tile + i * 64, _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
                }
            }
        }
    }
}

/* The panels of columns [n0, n1). */
static __attribute__((noinline)) void panels_of(const product_job *j, int64_t k, int64_t depth, int64_t n0, int64_t n1,
                                                float *to)
{
    for (int64_t n = n0; n < n1; n += PANEL)
        one_panel(j, k, depth, n, smaller(PANEL, n1 - n), to + (n - n0) * COLUMN(depth));
}

/* Sums of ROWS rows of a copy over this block of k, in the order of k; `add`: to those of the blocks before. */
static void strip_sums_of(const float *rows, int64_t depth, bool add, double *total)
{
    for (int64_t m = 0; m < ROWS; m++) {
        vf even = vzero(), odd = vzero();
        for (int64_t k = 0; k < depth; k += STEP) {
            const vu pairs = *(const vu *)(tile_at((float *)rows, m / SIDE * SIDE, depth, k) + m % SIDE * 64);
            even += (vf)(pairs << 16);
            odd += (vf)(pairs & 0xffff0000);
        }
        double sum = vsum(even + odd);
        total[m] = add ? total[m] + sum : sum;
    }
}

/* ---- tiles of results ---- */

/* The shapes of the eight registers for tiles. */
static void units_begin(void)
{
    static const struct {
        uint8_t palette, start, zeros[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } __attribute__((aligned(64)))
    shapes = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE}};
    _tile_loadconfig(&shapes);
}

static void units_end(void)
{
    _tile_release();
}

/* c[ROWS][PANEL] (+)= rows * panel; `narrow`: only the first half of the columns. `ahead`: `lines` lines of the cache
 * for each step, which are needed next. */
static void full_tile(int64_t depth, const float *rows, const float *panel, float *c, int64_t ldc, bool add,
                      bool narrow, const char *ahead, int64_t lines)
{
    const int64_t steps = parts(depth, STEP), step = ldc * (int64_t)sizeof *c;
    const char *a = (const char *)rows, *a_2 = a + steps * TILE;
    const char *b = (const char *)panel, *b_2 = b + steps * TILE;
    float *c_2 = c + SIDE * ldc;
    if (add) {
        _tile_loadd(0, c, step);
        _tile_loadd(1, c_2, step);
        if (!narrow) _tile_loadd(2, c + SIDE, step);
        if (!narrow) _tile_loadd(3, c_2 + SIDE, step);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t s = 0; s < steps; s++) {
        for (int64_t i = 0; i < lines; i++, ahead += 64) _mm_prefetch(ahead, _MM_HINT_T1);
        _tile_loadd(6, b + s * TILE, 64);
        _tile_loadd(4, a + s * TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a_2 + s * TILE, 64);
        _tile_dpbf16ps(1, 5, 6);
        if (narrow) continue;
        _tile_loadd(7, b_2 + s * TILE, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, step);
    _tile_stored(1, c_2, step);
    if (narrow) return;
    _tile_stored(2, c + SIDE, step);
    _tile_stored(3, c_2 + SIDE, step);
}

#endif
