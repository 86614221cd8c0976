/* SPDX-License-Identifier: Apache-2.0 */
/* How the pieces of a product (product_job.c) are computed in AMX's units for matrices, from numbers of bf16.
 * product_vectors.h has the same functions for vectors.
 *
 * Both factors are copied into tiles (units.h), in the order in which they are read; where k ends within a tile, zeros
 * fill it. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_AMX_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_AMX_H

#include "backends/cpu/isa/product_job.h"
#include "backends/cpu/isa/units.h"

#include <string.h>

#define ROWS  JOB_ROWS
#define PANEL JOB_PANEL

#define SOME 256 /* of k, which functions of the job copy at a time, as floats */

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

/* Sets which factors are copied: both. */
static void plan_copies(product_job *j, bool few_rows)
{
    (void)few_rows;
    j->row_step = SOME + 16; /* of what pack_rows copies; an odd number of lines of the cache */
    j->copied = true;
}

/* The floats whose memory a column of a panel takes, or a row of the copy of x. */
static inline int64_t column_floats(const product_job *j, int64_t depth)
{
    return whole(depth, STEP) / 2 * j->halves;
}

static inline int64_t row_floats(const product_job *j, int64_t depth)
{
    return column_floats(j, depth);
}

/* The address of a tile among those of SIDE columns or rows. */
static inline char *tile_at(void *tiles, int64_t depth, int part, int64_t k)
{
    return (char *)tiles + (part * parts(depth, STEP) + k / STEP) * TILE;
}

/* ---- copies of the factors ---- */

/* A factor, or what a function of the job has copied of it. */
typedef struct factor {
    source type;
    const void *data;
    int64_t at, step;
    bool rows;   /* rows of the matrix become rows of tiles, or its columns do */
    bool turned; /* what the factor needs is the other */
} factor;

LC_INLINE void tile_of_type(const source type, const int part, const factor *f, int64_t width, int64_t depth, char *to)
{
    if (f->rows && f->turned)
        tile_of_rows(type, part, f->data, f->at, f->step, width, depth, true, to);
    else if (f->rows)
        tile_of_rows(type, part, f->data, f->at, f->step, width, depth, false, to);
    else if (f->turned)
        tile_of_columns(type, part, f->data, f->at, f->step, width, depth, true, to, 64);
    else
        tile_of_columns(type, part, f->data, f->at, f->step, width, depth, false, to, 64);
}

static void make_tile(const factor *f, int part, int64_t width, int64_t depth, char *to)
{
    if (f->type == BF16)
        tile_of_type(BF16, 0, f, width, depth, to);
    else if (f->type == EXACT)
        tile_of_type(EXACT, 0, f, width, depth, to);
    else if (f->type == ROUNDED)
        tile_of_type(ROUNDED, 0, f, width, depth, to);
    else if (part)
        tile_of_type(SPLIT, 1, f, width, depth, to);
    else
        tile_of_type(SPLIT, 0, f, width, depth, to);
}

static source source_of(const product_job *j, lc_dtype type)
{
    return type == LC_BF16 ? BF16 : j->halves > 1 ? SPLIT : ROUNDED;
}

/* Tiles of SIDE rows or columns for numbers [k, end) of a block. k_step: the distance of neighbors in k. */
static void make_tiles(const product_job *j, const factor *f, int64_t k_step, int64_t width, int64_t k, int64_t end,
                       int64_t depth, float *to)
{
    factor part_of = *f;
    for (int64_t q = k; q < end; q += STEP, part_of.at += STEP * k_step)
        for (int part = 0; part < j->halves; part++)
            make_tile(&part_of, part, width, end - q, tile_at(to, depth, part, q));
}

/* Rows [m0, m1) of the first factor. */
static __attribute__((noinline)) void copy_x(const product_job *j, int64_t k0, int64_t depth, int64_t m0, int64_t m1,
                                             float *to)
{
    const lc__product *p = &j->p;
    float some[SIDE * (SOME + 16)];
    for (int64_t m = m0; m < m1; m += SIDE, to += SIDE * column_floats(j, depth)) {
        const int64_t rows = smaller(SIDE, m1 - m);
        for (int64_t k = 0; k < depth; k += SOME) {
            const int64_t end = smaller(k + SOME, depth);
            factor f = {source_of(j, j->x_type),    j->x,       m * p->xm + (k0 + k) * p->xk,
                        p->xk == 1 ? p->xm : p->xk, p->xk == 1, p->xk != 1};
            if (j->pack_rows) {
                j->pack_rows(j, k0 + k, end - k, m, m + rows, some);
                f = (factor){EXACT, some, 0, j->row_step, true, false};
            }
            make_tiles(j, &f, f.rows ? 1 : f.step, rows, k, end, depth, to);
        }
    }
}

/* The panels of columns [n0, n1). */
static __attribute__((noinline)) void panels_of(const product_job *j, int64_t k0, int64_t depth, int64_t n0, int64_t n1,
                                                float *to)
{
    const lc__product *p = &j->p;
    float some[SOME * PANEL];
    for (int64_t n = n0; n < n1; n += PANEL, to += PANEL * column_floats(j, depth)) {
        const int64_t width = smaller(PANEL, n1 - n);
        for (int64_t k = 0; k < depth; k += SOME) {
            const int64_t end = smaller(k + SOME, depth);
            if (j->pack_panels) j->pack_panels(j, k0 + k, end - k, n, n + width, some);
            for (int64_t i = 0; i < width; i += SIDE) {
                factor f = {source_of(j, j->y_type),    j->y,       (n + i) * p->yn + (k0 + k) * p->yk,
                            p->yn == 1 ? p->yk : p->yn, p->yn != 1, p->yn != 1};
                if (j->pack_panels) f = (factor){EXACT, some, i, PANEL, false, false};
                make_tiles(j, &f, f.rows ? 1 : f.step, smaller(SIDE, width - i), k, end, depth,
                           to + i * column_floats(j, depth));
            }
        }
    }
}

/* Sums of ROWS rows over this block of k, in the order of k: of a copy, whose numbers are all of bf16. `add`: to those
 * of the blocks before. */
static void sums_of_rows(const product_job *j, const float *rows, int64_t depth, bool add, double *total)
{
    for (int64_t m = 0; m < ROWS; m++) {
        vf even = vzero(), odd = vzero();
        for (int64_t k = 0; k < depth; k += STEP) {
            const vu both =
                *(const vu *)(tile_at((float *)rows + m / SIDE * SIDE * column_floats(j, depth), depth, 0, k) +
                              m % SIDE * 64);
            even += (vf)(both << 16);
            odd += (vf)(both & 0xffff0000);
        }
        double sum = vsum(even + odd);
        total[m] = add ? total[m] + sum : sum;
    }
}

/* ---- tiles of results ---- */

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
