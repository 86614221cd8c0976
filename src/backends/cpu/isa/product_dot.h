/* SPDX-License-Identifier: Apache-2.0 */
/* How the pieces of a product (product_job.c) are computed from numbers of bf16 with vectors, whose instruction adds
 * the products of two pairs to a sum in f32. product_vectors.h has the same functions for vectors of f32. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_DOT_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_DOT_H

#include "backends/cpu/isa/product_pairs.h"

#include <string.h>

#define BLOCK_ROWS 128                    /* rows of a piece, at most */
#define PIECE_WORK ((int64_t)1000 * 1000) /* multiplications of a piece, at least */
#define VECTORS    (PANEL / SIDE)

/* ---- the plan ---- */

/* How long a block of k may be. */
static int64_t depth_of(const product_job *j)
{
    (void)j;
    return 512;
}

/* Sets which factors are copied: the second, and the first unless it can be read where it is. Rows a page apart would
 * all use the same few lines of the first-level cache. */
static void plan_copies(product_job *j, bool few_rows)
{
    const lc__product *p = &j->p;
    (void)few_rows;
    j->row_step = ROW_STEP; /* of what pack_rows copies */
    j->copied = j->pack_rows || j->x_type != LC_BF16 || p->xk != 1 || p->k % STEP || p->xm % 2 || p->xm % 2048 == 0 ||
                j->after.kind == EPILOGUE_ROW_SUMS;
}

/* ---- tiles of results ---- */

typedef int32_t pair_any __attribute__((aligned(2), may_alias));

/* Numbers of the first factor: row m of tile s begins at data + m * row + s * step. */
typedef struct rows_of_x {
    const char *data;
    int64_t row, step;
} rows_of_x;

/* Before and after a thread computes panels. */
static void units_begin(void) {}

static void units_end(void) {}

/* c[rows][vectors] (+)= rows of x * tiles at b, of which those of each vector are b_step apart. */
LC_INLINE void dots(const int rows, const int vectors, int64_t steps, rows_of_x x, const char *b, int64_t b_step,
                    float *c, int64_t ldc, bool add)
{
    __m512 sum[SIDE][VECTORS];
    const char *row[SIDE / 3 + 1]; /* every third address: offsets reach the others, and registers are few */
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) {
        if (m % 3 == 0) row[m / 3] = x.data + m * x.row;
        if (m % 3 == 0) __asm__("" : "+r"(row[m / 3])); /* kept in registers, not recomputed from the first */
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[m][v] = add ? _mm512_loadu_ps(c + m * ldc + v * SIDE) : _mm512_setzero_ps();
    }
    for (int64_t s = 0; s < steps; s++, b += TILE) {
#pragma GCC unroll 2
        for (int64_t k = 0; k < STEP / 2; k++) {
            __m512bh y[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) y[v] = (__m512bh)_mm512_load_si512(b + v * b_step + k * 64);
#pragma GCC unroll 16
            for (int m = 0; m < rows; m++) {
                __m512i pair = _mm512_set1_epi32(*(const pair_any *)(row[m / 3] + s * x.step + m % 3 * x.row + k * 4));
                __asm__("" : "+v"(pair)); /* loaded once, not by each multiplication */
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) sum[m][v] = _mm512_dpbf16_ps(sum[m][v], (__m512bh)pair, y[v]);
            }
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) _mm512_storeu_ps(c + m * ldc + v * SIDE, sum[m][v]);
    }
}

/* A tile of `rows` rows, rounded up to 8, and `vectors` vectors. */
static __attribute__((noinline)) void tile(int64_t rows, int64_t vectors, int64_t steps, rows_of_x x, const char *b,
                                           int64_t b_step, float *c, int64_t ldc, bool add)
{
    enum { HALF = SIDE / 2 };
    if (vectors == 1) {
        if (rows > HALF)
            dots(SIDE, 1, steps, x, b, b_step, c, ldc, add);
        else
            dots(HALF, 1, steps, x, b, b_step, c, ldc, add);
        return;
    }
    for (int64_t m = 0; m < rows; m += HALF, x.data += HALF * x.row, c += HALF * ldc) {
        if (vectors == 2)
            dots(HALF, 2, steps, x, b, b_step, c, ldc, add);
        else
            dots(HALF, VECTORS, steps, x, b, b_step, c, ldc, add);
    }
}

/* The columns of one panel, which begins at column n of the target. `a`: the copy of x at the piece's first row. Tiles
 * at the edges are computed elsewhere. */
static void panel_columns(const product_job *j, const float *a, int64_t depth, target to, int64_t rows, int64_t n,
                          int64_t width, const float *panel, int64_t ldb, bool add)
{
    float edge[ROWS * PANEL];
    const int64_t steps = parts(depth, STEP), b_step = steps * TILE;
    (void)ldb; /* panels are always copied */
    for (int64_t m = 0; m < rows; m += ROWS) {
        const int64_t count = smaller(rows - m, ROWS);
        const char *from = (const char *)(a + m * row_floats(j, depth));
        const rows_of_x x = {from, j->copied ? 64 : 2 * j->p.xm, j->copied ? TILE : 64};
        float *out = to.c + m * to.step + n;
        if (width == PANEL && count == ROWS) {
            tile(ROWS, VECTORS, steps, x, (const char *)panel, b_step, out, to.step, add);
            continue;
        }
        for (int64_t i = 0; add && i < count; i++)
            memcpy(edge + i * PANEL, out + i * to.step, (size_t)width * sizeof *edge);
        tile(count, parts(width, SIDE), steps, x, (const char *)panel, b_step, edge, PANEL, add);
        for (int64_t i = 0; i < count; i++) memcpy(out + i * to.step, edge + i * PANEL, (size_t)width * sizeof *edge);
    }
}

#endif
