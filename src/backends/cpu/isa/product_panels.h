/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of a product, copied in the order in which tiles read them: panels of PANEL columns of the second one,
 * strips of ROWS rows of the first. Factors that are stored in 16 bits are converted on the way. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_PANELS_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_PANELS_H

#include "backends/cpu/isa/product_tile.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/product.h"

#include <string.h>

/* load_4, load_8: so many neighbors from element `at` on. */
#if defined(__F16C__)
#define FROM_F16_4(p)      _mm_cvtph_ps(_mm_loadl_epi64((const __m128i *)(p)))
#define FROM_F16_8(p)      _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define AS_F16_4(p)        _mm_cvtph_ps(_mm_cvtps_ph(_mm_loadu_ps(p), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define AS_F16_8(p)        _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(p), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))
#define FROM_F16(n, p, to) *(to) = (vf##n)FROM_F16_##n(p)
#define AS_F16(n, p, to)   *(to) = (vf##n)AS_F16_##n(p)
#else
#define FROM_F16(n, p, to) get_run_of(LC_F16, p, 0, n, (float *)(to))
#define AS_F16(n, p, to)   get_run_of(F32_AS_F16, p, 0, n, (float *)(to))
#endif
#define LOADS(n)                                                                                                       \
    typedef float vf##n __attribute__((vector_size(4 * n)));                                                           \
    typedef float vf##n##_any __attribute__((vector_size(4 * n), aligned(4), may_alias));                              \
    typedef uint16_t vh##n##_any __attribute__((vector_size(2 * n), aligned(2), may_alias));                           \
    typedef uint32_t vu##n __attribute__((vector_size(4 * n)));                                                        \
    typedef int32_t vi##n __attribute__((vector_size(4 * n)));                                                         \
    LC_INLINE void as_bf16_##n(const float *from, vf##n *to)                                                           \
    {                                                                                                                  \
        const vu##n u = (vu##n) * (const vf##n##_any *)from;                                                           \
        const vu##n nan = (vu##n)((vi##n)(u & 0x7fffffff) > 0x7f800000);                                               \
        *to = (vf##n)(((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000 & ~nan) | (nan & 0x7fc00000));                        \
    }                                                                                                                  \
    LC_INLINE void load_##n(const lc_dtype type, const void *from, int64_t at, vf##n *to)                              \
    {                                                                                                                  \
        const float *floats = (const float *)from + at;                                                                \
        const uint16_t *bits = (const uint16_t *)from + at;                                                            \
        if (type == LC_F32)                                                                                            \
            *to = *(const vf##n##_any *)floats;                                                                        \
        else if (type == F32_AS_BF16)                                                                                  \
            as_bf16_##n(floats, to);                                                                                   \
        else if (type == F32_AS_F16)                                                                                   \
            AS_F16(n, floats, to);                                                                                     \
        else if (type == LC_BF16)                                                                                      \
            *to = (vf##n)(__builtin_convertvector(*(const vh##n##_any *)bits, vu##n) << 16);                           \
        else                                                                                                           \
            FROM_F16(n, bits, to);                                                                                     \
    }
LOADS(4)
LOADS(8)
#undef LOADS

/* 8 x 8 numbers: rows of `from` become columns of `to`. */
LC_INLINE void turn_8x8(const lc_dtype type, const void *from, int64_t at, int64_t from_step, float *to,
                        int64_t to_step)
{
    vf8 r[8], s[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) load_8(type, from, at + i * from_step, &r[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = __builtin_shufflevector(s[i + 1], s[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = __builtin_shufflevector(s[i + 1], s[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        *(vf8_any *)(to + i * to_step) = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(vf8_any *)(to + (i + 4) * to_step) = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

LC_INLINE void turn_4x4(const lc_dtype type, const void *from, int64_t at, int64_t from_step, float *to,
                        int64_t to_step)
{
    vf4 r[4], s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) load_4(type, from, at + i * from_step, &r[i]);
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
        s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 4, 1, 5);
        s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 6, 3, 7);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        *(vf4_any *)(to + 2 * i * to_step) = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 4, 5);
        *(vf4_any *)(to + (2 * i + 1) * to_step) = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 6, 7);
    }
}

#define AHEAD 8 /* rows that are prefetched */
/* Neighbors in a column that are copied before those of others. A processor that goes from column to column fetches the
 * ones that follow, too, which another thread may have changed, or be about to. */
#define TURNED 64

/* Several whole panels of a factor whose rows are dense, row by row: rows may be as far apart as pages. */
LC_INLINE void copy_panels(const lc_dtype type, const lc__product *p, const void *y, int64_t k0, int64_t depth,
                           int64_t n0, int64_t panels, float *to)
{
    int64_t from = k0 * p->yk + n0;
    for (int64_t k = 0; k < depth; k++, from += p->yk) {
        for (int64_t i = 0; i < panels; i++) {
            __builtin_prefetch(stored_at(type, y, from + AHEAD * p->yk + i * PANEL));
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                vstore(to + (i * depth + k) * PANEL + v * VW, vget(type, y, from + i * PANEL + v * VW));
        }
    }
}

/* to[k][n] for `depth` rows of `width` columns; zeros up to a whole number of vectors. */
LC_INLINE void make_panel(const lc_dtype type, const lc__product *p, const void *y, int64_t k0, int64_t depth,
                          int64_t n0, int64_t width, float *to)
{
    if (p->yn == 1 && width == PANEL) {
        copy_panels(type, p, y, k0, depth, n0, 1, to);
        return;
    }
    const int64_t from = k0 * p->yk + n0 * p->yn;
    const int64_t filled = width <= VW ? VW : PANEL;
    if (p->yn == 1) {
        for (int64_t k = 0; k < depth; k++) {
            for (int64_t n = 0; n < filled; n++)
                to[k * PANEL + n] = n < width ? get(type, y, from + k * p->yk + n) : 0.f;
        }
        return;
    }
    int64_t turned = width / 8 * 8, k = 0;
    for (int64_t end; (end = smaller(k + TURNED, depth / 8 * 8)) > k; k = end) {
        for (int64_t n = 0; n < turned; n += 8)
            for (int64_t i = k; i < end; i += 8)
                turn_8x8(type, y, from + n * p->yn + i, p->yn, to + i * PANEL + n, PANEL);
    }
    for (; k < depth; k++) {
        for (int64_t n = 0; n < turned; n++) to[k * PANEL + n] = get(type, y, from + n * p->yn + k);
    }
    for (int64_t n = turned; n < width; n++) {
        for (k = 0; k < depth; k++) to[k * PANEL + n] = get(type, y, from + n * p->yn + k * p->yk);
    }
    for (k = 0; width < filled && k < depth; k++) {
        for (int64_t n = width; n < filled; n++) to[k * PANEL + n] = 0.f;
    }
}

/* Columns [n0, n1) for a block of k. */
LC_INLINE void make_panels_of(const lc_dtype type, const lc__product *p, const void *y, int64_t k, int64_t depth,
                              int64_t n0, int64_t n1, float *to)
{
    int64_t n = n0;
    if (p->yn == 1) {
        copy_panels(type, p, y, k, depth, n0, (n1 - n0) / PANEL, to);
        n += (n1 - n0) / PANEL * PANEL;
    }
    for (; n < n1; n += PANEL)
        make_panel(type, p, y, k, depth, n, n1 - n < PANEL ? n1 - n : PANEL, to + (n - n0) * depth);
}

LC_INLINE void copy_row(const lc_dtype type, const void *from, int64_t at, float *to)
{
    if (type == LC_F32) {
        memcpy(to, (const float *)from + at, ROWS * sizeof *to);
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; i += 4) {
        const int first = i + 4 > ROWS ? ROWS - 4 : i;
        vf4 x;
        load_4(type, from, at + first, &x);
        *(vf4_any *)(to + first) = x;
    }
}

/* The same for whole strips of a factor whose columns are dense: four rows of a strip are whole lines of the cache. */
LC_INLINE void copy_strips(const lc_dtype type, const lc__product *p, const void *x, int64_t from, int64_t depth,
                           int64_t strips, float *to)
{
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, from += 4 * p->xk) {
        for (int64_t i = 0; i < strips; i++) {
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) {
                __builtin_prefetch(stored_at(type, x, from + (AHEAD + q) * p->xk + i * ROWS));
                copy_row(type, x, from + q * p->xk + i * ROWS, to + (i * depth + k + q) * ROWS);
            }
        }
    }
    for (; k < depth; k++, from += p->xk) {
        for (int64_t i = 0; i < strips; i++) copy_row(type, x, from + i * ROWS, to + (i * depth + k) * ROWS);
    }
}

/* to[strip][k][ROWS]; the missing rows of the last strip are not written, as nobody reads them. */
LC_INLINE void make_strips_of(const lc_dtype type, const lc__product *p, const void *x, int64_t k0, int64_t depth,
                              int64_t m0, int64_t rows, float *to)
{
    int64_t from = k0 * p->xk + m0 * p->xm, m = 0;
    if (p->xm == 1) {
        m = rows / ROWS * ROWS;
        copy_strips(type, p, x, from, depth, rows / ROWS, to);
        from += m;
        to += m * depth;
    }
    for (; m + ROWS <= rows; m += ROWS, from += ROWS * p->xm, to += ROWS * depth) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4) {
#pragma GCC unroll 4
            for (int i = 0; i + 4 <= ROWS; i += 4)
                turn_4x4(type, x, from + i * p->xm + k, p->xm, to + k * ROWS + i, ROWS);
            if (ROWS % 4) turn_4x4(type, x, from + (ROWS - 4) * p->xm + k, p->xm, to + k * ROWS + ROWS - 4, ROWS);
        }
        for (; k < depth; k++) {
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; i++) to[k * ROWS + i] = get(type, x, from + i * p->xm + k);
        }
    }
    for (int64_t k = 0; m < rows && k < depth; k++) {
        for (int64_t i = 0; i < rows - m; i++) to[k * ROWS + i] = get(type, x, from + i * p->xm + k * p->xk);
    }
}

/* The same for rows that are dense, which stay rows, `step` apart. */
LC_INLINE void make_rows_of(const lc_dtype type, const lc__product *p, const void *x, int64_t k0, int64_t depth,
                            int64_t m0, int64_t rows, float *to, int64_t step)
{
    for (int64_t m = 0; m < rows; m++) get_run_of(type, x, (m0 + m) * p->xm + k0, depth, to + m * step);
}

#define READ(t, function, ...)                                                                                         \
    do {                                                                                                               \
        if ((t) == F32_AS_BF16)                                                                                        \
            function(F32_AS_BF16, __VA_ARGS__);                                                                        \
        else if ((t) == F32_AS_F16)                                                                                    \
            function(F32_AS_F16, __VA_ARGS__);                                                                         \
        else                                                                                                           \
            STORED(t, function, __VA_ARGS__);                                                                          \
    } while (0)

static __attribute__((noinline)) void make_some_panels(lc_dtype type, const lc__product *p, const void *y, int64_t k,
                                                       int64_t depth, int64_t n0, int64_t n1, float *to)
{
    READ(type, make_panels_of, p, y, k, depth, n0, n1, to);
}

static __attribute__((noinline)) void make_strips(lc_dtype type, const lc__product *p, const void *x, int64_t k,
                                                  int64_t depth, int64_t m, int64_t rows, float *to)
{
    READ(type, make_strips_of, p, x, k, depth, m, rows, to);
}

static __attribute__((noinline)) void make_rows(lc_dtype type, const lc__product *p, const void *x, int64_t k,
                                                int64_t depth, int64_t m, int64_t rows, float *to, int64_t step)
{
    READ(type, make_rows_of, p, x, k, depth, m, rows, to, step);
}

#endif
