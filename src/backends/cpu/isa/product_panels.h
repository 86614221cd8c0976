/* SPDX-License-Identifier: Apache-2.0 */
/* The factors of a product, copied in the order in which tiles read them: panels of PANEL columns of the second one,
 * strips of ROWS rows of the first. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_PANELS_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_PANELS_H

#include "backends/cpu/isa/product_tile.h"
#include "backends/cpu/product.h"

#include <string.h>

typedef float v8 __attribute__((vector_size(32)));
typedef float v8_any __attribute__((vector_size(32), aligned(4), may_alias));

/* 8 x 8 numbers: rows of `from` become columns of `to`. */
LC_INLINE void turn_8x8(const float *from, int64_t from_step, float *to, int64_t to_step)
{
    v8 r[8], s[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = *(const v8_any *)(from + i * from_step);
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
        *(v8_any *)(to + i * to_step) = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(v8_any *)(to + (i + 4) * to_step) = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

typedef float v4 __attribute__((vector_size(16)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));

LC_INLINE void turn_4x4(const float *from, int64_t from_step, float *to, int64_t to_step)
{
    v4 r[4], s[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) r[i] = *(const v4_any *)(from + i * from_step);
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {
        s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 4, 1, 5);
        s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 6, 3, 7);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        *(v4_any *)(to + 2 * i * to_step) = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 4, 5);
        *(v4_any *)(to + (2 * i + 1) * to_step) = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 6, 7);
    }
}

#define AHEAD 8 /* rows that are prefetched */

/* Several whole panels of a factor whose rows are dense, row by row: rows may be as far apart as pages. */
static void copy_panels(const lc__product *p, const float *y, int64_t k0, int64_t depth, int64_t n0, int64_t panels,
                        float *to)
{
    const float *from = y + k0 * p->yk + n0;
    for (int64_t k = 0; k < depth; k++, from += p->yk) {
        for (int64_t i = 0; i < panels; i++) {
            __builtin_prefetch(from + AHEAD * p->yk + i * PANEL);
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++)
                vstore(to + (i * depth + k) * PANEL + v * VW, vload(from + i * PANEL + v * VW));
        }
    }
}

/* to[k][n] for `depth` rows of `width` columns; zeros up to a whole number of vectors. */
static void make_panel(const lc__product *p, const float *y, int64_t k0, int64_t depth, int64_t n0, int64_t width,
                       float *to)
{
    if (p->yn == 1 && width == PANEL) {
        copy_panels(p, y, k0, depth, n0, 1, to);
        return;
    }
    const float *from = y + k0 * p->yk + n0 * p->yn;
    const int64_t filled = width <= VW ? VW : PANEL;
    if (p->yn == 1) {
        for (int64_t k = 0; k < depth; k++) {
            for (int64_t n = 0; n < filled; n++) to[k * PANEL + n] = n < width ? from[k * p->yk + n] : 0.f;
        }
        return;
    }
    int64_t turned = width / 8 * 8, k = 0;
    for (; k + 8 <= depth; k += 8) {
        for (int64_t n = 0; n < turned; n += 8) turn_8x8(from + n * p->yn + k, p->yn, to + k * PANEL + n, PANEL);
    }
    for (; k < depth; k++) {
        for (int64_t n = 0; n < turned; n++) to[k * PANEL + n] = from[n * p->yn + k];
    }
    for (int64_t n = turned; n < width; n++) {
        for (k = 0; k < depth; k++) to[k * PANEL + n] = from[n * p->yn + k * p->yk];
    }
    for (k = 0; width < filled && k < depth; k++) {
        for (int64_t n = width; n < filled; n++) to[k * PANEL + n] = 0.f;
    }
}

/* The same for whole strips of a factor whose columns are dense: four rows of a strip are whole lines of the cache. */
static void copy_strips(const lc__product *p, const float *from, int64_t depth, int64_t strips, float *to)
{
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4, from += 4 * p->xk) {
        for (int64_t i = 0; i < strips; i++) {
#pragma GCC unroll 4
            for (int q = 0; q < 4; q++) {
                __builtin_prefetch(from + (AHEAD + q) * p->xk + i * ROWS);
                memcpy(to + (i * depth + k + q) * ROWS, from + q * p->xk + i * ROWS, ROWS * sizeof *to);
            }
        }
    }
    for (; k < depth; k++, from += p->xk) {
        for (int64_t i = 0; i < strips; i++) memcpy(to + (i * depth + k) * ROWS, from + i * ROWS, ROWS * sizeof *to);
    }
}

/* to[strip][k][ROWS]; the missing rows of the last strip are not written, as nobody reads them. */
static void make_strips(const lc__product *p, const float *x, int64_t k0, int64_t depth, int64_t m0, int64_t rows,
                        float *to)
{
    const float *from = x + k0 * p->xk + m0 * p->xm;
    int64_t m = 0;
    if (p->xm == 1) {
        m = rows / ROWS * ROWS;
        copy_strips(p, from, depth, rows / ROWS, to);
        from += m;
        to += m * depth;
    }
    for (; m + ROWS <= rows; m += ROWS, from += ROWS * p->xm, to += ROWS * depth) {
        int64_t k = 0;
        for (; k + 4 <= depth; k += 4) {
#pragma GCC unroll 4
            for (int i = 0; i + 4 <= ROWS; i += 4) turn_4x4(from + i * p->xm + k, p->xm, to + k * ROWS + i, ROWS);
            if (ROWS % 4) turn_4x4(from + (ROWS - 4) * p->xm + k, p->xm, to + k * ROWS + ROWS - 4, ROWS);
        }
        for (; k < depth; k++) {
#pragma GCC unroll 16
            for (int i = 0; i < ROWS; i++) to[k * ROWS + i] = from[i * p->xm + k];
        }
    }
    for (int64_t k = 0; m < rows && k < depth; k++) {
        for (int64_t i = 0; i < rows - m; i++) to[k * ROWS + i] = from[i * p->xm + k * p->xk];
    }
}

#endif
