/* SPDX-License-Identifier: Apache-2.0 */
/* How the factors of a product (product_job.c) are copied where numbers of bf16 are multiplied in pairs (pairs.h): into
 * tiles, in the order in which they are read; where k ends within a tile, zeros fill it. product_amx.h and
 * product_dot.h compute from them. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_PAIRS_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_PAIRS_H

#include "backends/cpu/isa/pairs.h"
#include "backends/cpu/isa/product_job.h"

#define ROWS  JOB_ROWS
#define PANEL JOB_PANEL

#define SOME     256         /* of k, which functions of the job copy at a time */
#define ROW_STEP (SOME + 32) /* an odd number of lines of the cache */

/* Rows and panels that functions of the job copy at a time: they stay in the first-level cache. */
#define PACKED_ROWS   64
#define PACKED_PANELS 4

/* The floats whose memory a column of a panel takes. */
static inline int64_t column_floats(const product_job *j, int64_t depth)
{
    return whole(depth, STEP) / 2 * j->halves;
}

/* The same of a row of x, or of its copy. */
static inline int64_t row_floats(const product_job *j, int64_t depth)
{
    return j->copied ? column_floats(j, depth) : j->p.xm / 2;
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
        tile_of_rows(type, part, f->data, f->at, f->step, width, depth, true, to, 64);
    else if (f->rows)
        tile_of_rows(type, part, f->data, f->at, f->step, width, depth, false, to, 64);
    else if (f->turned)
        tile_of_columns(type, part, f->data, f->at, f->step, width, depth, true, to, 64);
    else
        tile_of_columns(type, part, f->data, f->at, f->step, width, depth, false, to, 64);
}

static void make_tile(const factor *f, int part, int64_t width, int64_t depth, char *to)
{
    if (f->type == BF16)
        tile_of_type(BF16, 0, f, width, depth, to);
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
    _Alignas(64) packed some[SIDE * ROW_STEP];
    for (int64_t m = m0; m < m1; m += SIDE, to += SIDE * column_floats(j, depth)) {
        const int64_t rows = smaller(SIDE, m1 - m);
        for (int64_t k = 0; k < depth; k += SOME) {
            const int64_t end = smaller(k + SOME, depth);
            factor f = {source_of(j, j->x_type),    j->x,       m * p->xm + (k0 + k) * p->xk,
                        p->xk == 1 ? p->xm : p->xk, p->xk == 1, p->xk != 1};
            if (j->pack_rows) {
                j->pack_rows(j, k0 + k, end - k, m, m + rows, some);
                f = (factor){BF16, some, 0, j->row_step, true, false};
            }
            make_tiles(j, &f, f.rows ? 1 : f.step, rows, k, end, depth, to);
        }
    }
}

/* Numbers [k, end) of a panel of `width` columns, from f on. */
static void part_of_panel(const product_job *j, const factor *f, int64_t k_step, int64_t depth, int64_t k, int64_t end,
                          int64_t width, float *to)
{
    factor some = *f;
    for (int64_t i = 0; i < width; i += SIDE, some.at += SIDE * (f->rows ? f->step : 1))
        make_tiles(j, &some, k_step, smaller(SIDE, width - i), k, end, depth, to + i * column_floats(j, depth));
}

/* The panels of columns [n0, n1) of a matrix. */
static void panels_of_matrix(const product_job *j, int64_t k0, int64_t depth, int64_t n0, int64_t n1, float *to)
{
    const lc__product *p = &j->p;
    for (int64_t n = n0; n < n1; n += PANEL, to += PANEL * column_floats(j, depth)) {
        factor f = {source_of(j, j->y_type),    j->y,       n * p->yn + k0 * p->yk,
                    p->yn == 1 ? p->yk : p->yn, p->yn != 1, p->yn != 1};
        part_of_panel(j, &f, p->yk, depth, 0, depth, smaller(PANEL, n1 - n), to);
    }
}

/* The same of what a function of the job copies: some rows of some panels at a time. */
static void panels_of_packed(const product_job *j, int64_t k0, int64_t depth, int64_t n0, int64_t n1, float *to)
{
    _Alignas(64) packed some[PACKED_ROWS * PACKED_PANELS * PANEL];
    for (int64_t first = n0; first < n1; first += PACKED_PANELS * PANEL) {
        const int64_t last = smaller(first + PACKED_PANELS * PANEL, n1);
        for (int64_t k = 0; k < depth; k += PACKED_ROWS) {
            const int64_t end = smaller(k + PACKED_ROWS, depth);
            j->pack_panels(j, k0 + k, end - k, first, last, some);
            for (int64_t n = first; n < last; n += PANEL) {
                factor f = {BF16, some, (n - first) * (end - k), PANEL, false, false};
                part_of_panel(j, &f, PANEL, depth, k, end, smaller(PANEL, last - n),
                              to + (n - n0) * column_floats(j, depth));
            }
        }
    }
}

static __attribute__((noinline)) void panels_of(const product_job *j, int64_t k0, int64_t depth, int64_t n0, int64_t n1,
                                                float *to)
{
    if (j->pack_panels)
        panels_of_packed(j, k0, depth, n0, n1, to);
    else
        panels_of_matrix(j, k0, depth, n0, n1, to);
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

#endif
