/* SPDX-License-Identifier: Apache-2.0 */
/* How the pieces of a product (product_job.c) are computed with vectors of f32: how factors are copied, and how tiles
 * cover a panel. product_amx.h has the same functions for units for matrices. */
#ifndef LC_BACKENDS_CPU_ISA_PRODUCT_VECTORS_H
#define LC_BACKENDS_CPU_ISA_PRODUCT_VECTORS_H

#include "backends/cpu/isa/product_job.h"
#include "backends/cpu/isa/product_panels.h"
#include "backends/cpu/isa/product_tile.h"

#define STEP       8                     /* blocks of k are a multiple of it */
#define BLOCK_ROWS 96                    /* rows of a piece, at most: its strips stay in the second-level cache */
#define PIECE_WORK ((int64_t)400 * 1000) /* multiplications of a piece, at least */
#define IN_PLACE   ((int64_t)4 << 20)    /* bytes of y, which a copy would fetch row by row from beyond the caches */

/* ---- the plan ---- */

/* How long a block of k may be. */
static int64_t depth_of(const product_job *j)
{
    (void)j;
    return 256;
}

/* Whether x is copied because its numbers are not f32, or count as rounded. */
static bool converts_rows(const product_job *j)
{
    return j->x_type != LC_F32 && j->p.xk == 1 && !j->pack_rows && j->after.kind != EPILOGUE_ROW_SUMS;
}

/* Sets which factors are copied, and how. */
static void plan_copies(product_job *j, bool few_rows)
{
    const lc__product *p = &j->p;
    /* Rows a page apart would all use the same few lines of the first-level cache; half a page apart they use
     * twice as many, which is enough for wide pieces. */
    int64_t conflict = j->column_blocks > 1 ? 512 : 1024;
    j->strips = p->xk != 1 || (p->m > 1 && p->xm % conflict == 0) || j->after.kind == EPILOGUE_ROW_SUMS;
    if (j->pack_rows || converts_rows(j)) {
        j->strips = false;
        j->row_step = whole(j->depth, 16) | 16; /* an odd number of lines of the cache */
    }
    j->copied = j->strips || j->row_step;
    j->in_place = !j->pack_panels && j->y_type == LC_F32 && few_rows && p->yn == 1 && p->yk % 512 != 0 &&
                  p->k * p->yk <= IN_PLACE / 4;
}

/* Floats of a column of a panel. */
static inline int64_t column_floats(const product_job *j, int64_t depth)
{
    (void)j;
    return depth;
}

/* Floats of a row of x, or of its copy. */
static inline int64_t row_floats(const product_job *j, int64_t depth)
{
    return j->row_step ? j->row_step : j->strips ? depth : j->p.xm;
}

/* ---- copies of the factors ---- */

/* The panels of columns [n0, n1). */
static void panels_of(const product_job *j, int64_t k, int64_t depth, int64_t n0, int64_t n1, float *to)
{
    if (j->pack_panels)
        j->pack_panels(j, k, depth, n0, n1, to);
    else
        make_some_panels(j->y_type, &j->p, j->y, k, depth, n0, n1, to);
}

/* Copies rows [m0, m1), into strips or rows. */
static void copy_x(const product_job *j, int64_t k, int64_t depth, int64_t m0, int64_t m1, float *to)
{
    if (j->pack_rows)
        j->pack_rows(j, k, depth, m0, m1, to);
    else if (j->row_step)
        make_rows(j->x_type, &j->p, j->x, k, depth, m0, m1 - m0, to, j->row_step);
    else
        make_strips(j->x_type, &j->p, j->x, k, depth, m0, m1 - m0, to);
}

/* Sums of the ROWS rows of a strip over this block of k; `add`: to those of the blocks before. */
static void sums_of_rows(const product_job *j, const float *strip, int64_t depth, bool add, double *total)
{
    (void)j;
    strip_sums(ROWS, strip, depth, add, total);
}

/* ---- tiles of results ---- */

/* Whether tiles can round their results. */
static bool rounds_tiles(const product_job *j)
{
    (void)j;
    return false;
}

/* Before and after a thread computes panels. */
static void units_begin(void) {}

static void units_end(void) {}

/* The columns of one panel, which begins at column n of the target. `a`: strips, or x at the piece's first row and k.
 */
static void panel_columns(const product_job *j, const float *a, int64_t depth, target to, int64_t rows, int64_t n,
                          int64_t width, const float *panel, int64_t ldb, bool add)
{
    float edge[ROWS * PANEL];
    bool inside = width == PANEL;
    int64_t ldc = inside ? to.step : PANEL, xm = row_floats(j, depth);
    for (int64_t m = 0; m < rows; m += ROWS) {
        int64_t count = smaller(rows - m, ROWS);
        const float *from = a + m * xm;
        float *out = to.c + m * to.step + n, *c = inside ? out : edge;
        if (count == ROWS)
            any_full_tile(depth, from, xm, j->strips, panel, ldb, c, ldc, inside && add, width <= VW);
        else
            rest_of_tiles(count, depth, from, xm, j->strips, panel, ldb, c, ldc, inside && add, width <= VW);
        for (int64_t i = 0; !inside && i < count; i++) {
            for (int64_t q = 0; q < width; q++)
                out[i * to.step + q] = add ? out[i * to.step + q] + edge[i * PANEL + q] : edge[i * PANEL + q];
        }
    }
}

#endif
