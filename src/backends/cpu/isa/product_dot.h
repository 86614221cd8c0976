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
#define HALF       (SIDE / 2) /* rows that are computed together */

/* ---- the plan ---- */

/* Whether the first factor is read where it is. Rows a page apart would all use the same few lines of the first-level
 * cache. */
static bool x_in_place(const product_job *j)
{
    const lc__product *p = &j->p;
    return !j->pack_rows && j->x_type == LC_BF16 && p->m >= ROWS && p->xk == 1 && p->k % 2 == 0 && p->xm % 2 == 0 &&
           p->xm % 2048 != 0 && j->after.kind != EPILOGUE_ROW_SUMS;
}

/* How long a block of k may be: its panel, and a copy of x's rows, stay in the second-level cache. */
static int64_t depth_of(const product_job *j)
{
    (void)j;
    return 2048;
}

/* All threads share a copy of x. */
static bool converts_rows(const product_job *j)
{
    (void)j;
    return false;
}

/* Sets which factors are copied. */
static void plan_copies(product_job *j, bool few_rows)
{
    (void)few_rows;
    j->row_step = ROW_STEP; /* of what pack_rows copies */
    j->copied = !x_in_place(j);
}

/* Whether tiles can round their results. */
static bool rounds_tiles(const product_job *j)
{
    return j->out_type == LC_BF16 && !j->row_at && !j->p.activation && j->after.kind == EPILOGUE_NONE;
}

/* ---- tiles of results ---- */

/* Before and after a thread computes panels. */
static void units_begin(void) {}

static void units_end(void) {}

/* Numbers of the first factor: row m of tile s begins at data + m * row + s * step. */
typedef struct rows_of_x {
    const char *data;
    int64_t row, step;
} rows_of_x;

/* Those of the second: tiles of a vector of columns follow each other; other vectors are `step` bytes apart. */
typedef struct panel_of_y {
    const char *data;
    int64_t step;
} panel_of_y;

/* A tile of results: in f32, or rounded with the bias. `add`: to what is there. */
typedef struct results {
    float *c;
    uint16_t *rounded;
    const float *bias; /* OPTIONAL */
    int64_t step;
    bool add;
} results;

LC_INLINE void put_sum(const bool direct, const results *to, int64_t m, int64_t n, __m512 sum)
{
    if (!direct) {
        _mm512_storeu_ps(to->c + m * to->step + n, sum);
        return;
    }
    uint16_t *out = to->rounded + m * to->step + n;
    if (to->bias) sum = _mm512_add_ps(sum, _mm512_loadu_ps(to->bias + n));
    if (to->add) sum = _mm512_add_ps(sum, (__m512)vget(LC_BF16, out, 0));
    _mm256_storeu_si256((__m256i_u *)out, (__m256i)_mm512_cvtneps_pbh(sum));
}

/* `rows` rows and some vectors of results, from so many pairs of each. */
LC_INLINE void dots(const int rows, const int vectors, const bool direct, int64_t pairs, rows_of_x x, panel_of_y y,
                    const results *to)
{
    __m512 sum[HALF][VECTORS];
    const char *row[HALF / 3 + 1]; /* every third address: offsets reach the others, and registers are few */
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) {
        if (m % 3 == 0) row[m / 3] = x.data + m * x.row;
        if (m % 3 == 0) __asm__("" : "+r"(row[m / 3])); /* kept in registers, not recomputed from the first */
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[m][v] = !direct && to->add ? _mm512_loadu_ps(to->c + m * to->step + v * SIDE) : _mm512_setzero_ps();
    }
    for (int64_t at = 0; pairs > 0; pairs -= STEP / 2, at += x.step, y.data += TILE) {
        const int64_t end = smaller(pairs, STEP / 2);
#pragma GCC unroll 2
        for (int64_t k = 0; k < end; k++) {
            __m512bh b[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) b[v] = (__m512bh)_mm512_load_si512(y.data + v * y.step + k * 64);
#pragma GCC unroll 16
            for (int m = 0; m < rows; m++) {
                __m512i pair = _mm512_set1_epi32(*(const pair_any *)(row[m / 3] + at + m % 3 * x.row + k * 4));
                __asm__("" : "+v"(pair)); /* loaded once, not by each multiplication */
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) sum[m][v] = _mm512_dpbf16_ps(sum[m][v], (__m512bh)pair, b[v]);
            }
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) put_sum(direct, to, m, v * SIDE, sum[m][v]);
    }
}

/* The first rows and vectors of a tile; rows are rounded up to HALF. */
#define TILES(name, vectors, direct)                                                                                   \
    static __attribute__((noinline)) void name(int64_t rows, int64_t pairs, rows_of_x x, panel_of_y y, results to)     \
    {                                                                                                                  \
        for (int64_t m = 0; m < rows; m += HALF, x.data += HALF * x.row) {                                             \
            dots(HALF, vectors, direct, pairs, x, y, &to);                                                             \
            if (direct)                                                                                                \
                to.rounded += HALF * to.step;                                                                          \
            else                                                                                                       \
                to.c += HALF * to.step;                                                                                \
        }                                                                                                              \
    }
TILES(tile, VECTORS, false)
TILES(rounded_tile, VECTORS, true)
TILES(tile_of_2, 2, false)
TILES(tile_of_1, 1, false)
#undef TILES

/* A tile at the edge of the result: `rows` rows after `skip` others, and `width` columns. It is computed elsewhere. */
static void edge_tile(int64_t skip, int64_t rows, int64_t width, int64_t pairs, rows_of_x x, panel_of_y y, results to)
{
    float edge[ROWS * PANEL] = {0}, old[PANEL];
    const results all = {.c = edge, .step = PANEL, .add = !to.rounded && to.add};
    for (int64_t i = 0; all.add && i < rows; i++)
        memcpy(edge + (skip + i) * PANEL, to.c + i * to.step, (size_t)width * sizeof *edge);
    (width <= SIDE ? tile_of_1 : width <= 2 * SIDE ? tile_of_2 : tile)(skip + rows, pairs, x, y, all);
    for (int64_t i = 0; i < rows; i++) {
        float *c = edge + (skip + i) * PANEL;
        if (!to.rounded) {
            memcpy(to.c + i * to.step, c, (size_t)width * sizeof *c);
            continue;
        }
        for (int64_t n = 0; to.bias && n < width; n++) c[n] += to.bias[n];
        if (to.add) get_run(LC_BF16, to.rounded, i * to.step, width, old);
        for (int64_t n = 0; to.add && n < width; n++) c[n] += old[n];
        put_run(LC_BF16, to.rounded, i * to.step, width, c);
    }
}

/* The columns of one panel, which begins at column n of the target. `a`: the piece's first row of x, or of its copy. x
 * ends with its last row, so its last tile begins with earlier ones; a copy has whole tiles. */
static void panel_columns(const product_job *j, const float *a, int64_t depth, target to, int64_t rows, int64_t n,
                          int64_t width, const float *panel, int64_t ldb, bool add)
{
    const int64_t pairs = parts(depth, 2);
    const panel_of_y y = {(const char *)panel, parts(depth, STEP) * TILE};
    results r = {.bias = to.bias ? to.bias + n : NULL, .step = to.step, .add = j->direct ? j->accumulate : add};
    (void)ldb; /* panels are always copied */
    for (int64_t m = 0; m < rows; m += ROWS) {
        const int64_t count = smaller(rows - m, ROWS);
        const int64_t skip = j->copied ? 0 : whole(count, HALF) - count;
        rows_of_x x = {(const char *)(a + (m - skip) * row_floats(j, depth)), 64, TILE};
        if (!j->copied) x.row = 2 * j->p.xm, x.step = 2 * STEP;
        if (j->direct)
            r.rounded = to.rounded + m * to.step + n;
        else
            r.c = to.c + m * to.step + n;
        if (width < PANEL || count % HALF)
            edge_tile(skip, count, width, pairs, x, y, r);
        else if (j->direct)
            rounded_tile(count, pairs, x, y, r);
        else
            tile(count, pairs, x, y, r);
    }
}

#endif
