/* SPDX-License-Identifier: Apache-2.0 */
/* How the pieces of a product (product_job.c) are computed in AMX's units for matrices, from numbers of bf16.
 * product_vectors.h has the same functions for vectors. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_AMX_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_AMX_H

#include "backends/cpu/isa/product_pairs.h"
#include "backends/cpu/isa/units.h"

#include <string.h>

#define BLOCK_ROWS 128                    /* rows of a piece, at most */
#define PIECE_WORK ((int64_t)4000 * 1000) /* multiplications of a piece, at least */
#define COPY_BYTES ((int64_t)768 << 10)   /* of x, which then stay in the second-level cache */

/* ---- the plan ---- */

/* How long a block of k may be: long blocks load and store sums less often. */
static int64_t depth_of(const product_job *j)
{
    int64_t rows = whole(j->shared ? j->row_block : j->p.m, ROWS);
    return smaller(larger(COPY_BYTES / 2 / j->halves / rows, 512), 2048) / STEP * STEP;
}

/* All threads share a copy of x. */
static bool converts_rows(const product_job *j)
{
    (void)j;
    return false;
}

/* Sets which factors are copied: both. */
static void plan_copies(product_job *j, bool few_rows)
{
    (void)few_rows;
    j->row_step = ROW_STEP; /* of what pack_rows copies */
    j->copied = true;
}

/* ---- tiles of results ---- */

/* Whether tiles can round their results. */
static bool rounds_tiles(const product_job *j)
{
    (void)j;
    return false;
}

static void units_begin(void)
{
    units_take(SIDE, STEP);
}

static void units_end(void)
{
    _tile_release();
}

/* Adds the products of two parts of both factors to the tiles of results. */
LC_INLINE void add_products(int64_t steps, const char *a, const char *a_2, const char *b, const char *b_2,
                            const bool narrow)
{
    for (int64_t s = 0; s < steps; s++) {
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
}

/* c[ROWS][PANEL] (+)= rows * panel; `narrow`: only the first half of the columns. */
static void full_tile(const product_job *j, int64_t depth, const float *rows, const float *panel, float *c, int64_t ldc,
                      bool add, bool narrow)
{
    const int64_t steps = parts(depth, STEP), step = ldc * (int64_t)sizeof *c, part = steps * TILE;
    const char *a = (const char *)rows, *a_2 = a + j->halves * part;
    const char *b = (const char *)panel, *b_2 = b + j->halves * part;
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
    if (narrow) {
        if (j->halves > 1) add_products(steps, a + part, a_2 + part, b, b_2, true);
        if (j->halves > 1) add_products(steps, a, a_2, b + part, b_2 + part, true);
        add_products(steps, a, a_2, b, b_2, true);
    } else {
        if (j->halves > 1) add_products(steps, a + part, a_2 + part, b, b_2, false);
        if (j->halves > 1) add_products(steps, a, a_2, b + part, b_2 + part, false);
        add_products(steps, a, a_2, b, b_2, false);
    }
    _tile_stored(0, c, step);
    _tile_stored(1, c_2, step);
    if (narrow) return;
    _tile_stored(2, c + SIDE, step);
    _tile_stored(3, c_2 + SIDE, step);
}

/* The columns of one panel, which begins at column n of the target. `a`: the copy of x at the piece's first row. Units
 * compute whole tiles: those at the edges are computed elsewhere. */
static void panel_columns(const product_job *j, const float *a, int64_t depth, target to, int64_t rows, int64_t n,
                          int64_t width, const float *panel, int64_t ldb, bool add)
{
    float edge[ROWS * PANEL];
    (void)ldb; /* panels are always copied */
    for (int64_t m = 0; m < rows; m += ROWS) {
        const int64_t count = smaller(rows - m, ROWS);
        const float *from = a + m * row_floats(j, depth);
        float *out = to.c + m * to.step + n;
        if (width == PANEL && count == ROWS) {
            full_tile(j, depth, from, panel, out, to.step, add, false);
            continue;
        }
        for (int64_t i = 0; add && i < count; i++)
            memcpy(edge + i * PANEL, out + i * to.step, (size_t)width * sizeof *edge);
        full_tile(j, depth, from, panel, edge, PANEL, add, width <= SIDE);
        for (int64_t i = 0; i < count; i++) memcpy(out + i * to.step, edge + i * PANEL, (size_t)width * sizeof *edge);
    }
}

#endif
