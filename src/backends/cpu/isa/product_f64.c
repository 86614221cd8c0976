/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of products in f64; see product_f64.h.
 *
 * A result is cut into rectangles. For one block of k after the other a piece packs the part of b that it needs into
 * panels of PANEL_F64 columns, and that of a into strips of ROWS_F64 rows; then it computes tiles, which stay in
 * registers while k runs. If there are too few rectangles for threads to share, k is split, too, and the partial
 * results are added in order. */
#include "backends/cpu/isa/product_f64.h"

#include "backends/cpu/parallel.h"

#include <math.h>
#include <string.h>

#if VW == 16
#define MOST_ROWS 384 /* strips of a block of k stay in such a machine's second-level cache */
#else
#define MOST_ROWS 192
#endif
#define MOST_COLUMNS 256
#define ENOUGH       8                  /* pieces */
#define PIECE_WORK   ((int64_t)1 << 18) /* multiplications that are worth a piece */
#define DEEP         8                  /* blocks of k that are worth a partial result */

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t parts(int64_t n, int64_t part)
{
    return (n + part - 1) / part;
}

static inline int64_t whole(int64_t n, int64_t unit)
{
    return parts(n, unit) * unit;
}

/* ---- tiles ---- */

/* c[m][n] (+)= sum over k of strip[k][m] * panel[k][n] */
LC_INLINE void tile(const int rows, int64_t depth, const double *strip, const double *panel, double *c, int64_t ldc,
                    bool add)
{
    vd sum[ROWS_F64][2];
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) sum[m][0] = sum[m][1] = (vd){0};
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        vd x0 = vdload(panel + k * PANEL_F64), x1 = vdload(panel + k * PANEL_F64 + VD);
#pragma GCC unroll 16
        for (int m = 0; m < rows; m++) {
            vd e = vdsplat(strip[k * ROWS_F64 + m]);
#if VW == 16
            __asm__("" : "+v"(e)); /* loaded once, not by each multiplication */
#elif defined(__x86_64__)
            __asm__("" : "+x"(e));
#endif
            sum[m][0] += e * x0;
            sum[m][1] += e * x1;
        }
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; m++) {
        double *to = c + m * ldc;
        vdstore(to, add ? vdload(to) + sum[m][0] : sum[m][0]);
        vdstore(to + VD, add ? vdload(to + VD) + sum[m][1] : sum[m][1]);
    }
}

#define TILE(rows)                                                                                                     \
    static __attribute__((noinline)) void tile_##rows(int64_t depth, const double *strip, const double *panel,         \
                                                      double *c, int64_t ldc, bool add)                                \
    {                                                                                                                  \
        tile(rows, depth, strip, panel, c, ldc, add);                                                                  \
    }
#if VW == 16
TILE(12)
#define full_tile tile_12
TILE(8)
#else
TILE(6)
#define full_tile tile_6
#endif
TILE(4)
TILE(1)

static void some_rows(int64_t rows, int64_t depth, const double *strip, const double *panel, double *c, int64_t ldc,
                      bool add)
{
    if (rows == 1) {
        tile_1(depth, strip, panel, c, ldc, add);
    } else if (rows <= 4) {
        tile_4(depth, strip, panel, c, ldc, add);
#if VW == 16
    } else if (rows <= 8) {
        tile_8(depth, strip, panel, c, ldc, add);
#endif
    } else {
        full_tile(depth, strip, panel, c, ldc, add);
    }
}

/* ---- what follows a sum ---- */

static void finish(const double *bias, int activation, double *out, int64_t n)
{
    for (int64_t i = 0; bias && i < n; i++) out[i] += bias[i];
    switch (activation) {
    case 1:
        for (int64_t i = 0; i < n; i++) out[i] = out[i] > 0 ? out[i] : out[i] != out[i] ? out[i] : 0;
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) out[i] = tanh(out[i]);
        break;
    case 3:
        for (int64_t i = 0; i < n; i++) out[i] = 1 / (1 + exp(-out[i]));
        break;
    default:
        break;
    }
}

/* ---- pieces ---- */

typedef struct range {
    int64_t item, m0, rows, n0, columns, split;
} range;

static double *result_row(const lc__product_f64 *p, int64_t item, int64_t m)
{
    return p->row ? p->row(p, item, m) : p->out + item * p->item_step + m * p->row_step;
}

static double *row_of(const lc__product_f64 *p, const range *r, int64_t m)
{
    if (p->splits > 1) return p->partial + ((r->split * p->items + r->item) * p->m + m) * p->n + r->n0;
    return result_row(p, r->item, m) + r->n0;
}

/* A panel of results, of which `width` columns exist. */
static void panel_columns(const lc__product_f64 *p, const range *r, int64_t n, int64_t width, int64_t depth,
                          const double *strips, const double *panel, bool add)
{
    double edge[ROWS_F64 * PANEL_F64];
    for (int64_t m = 0; m < r->rows; m += ROWS_F64) {
        int64_t count = smaller(ROWS_F64, r->rows - m);
        double *out = row_of(p, r, r->m0 + m) + n;
        int64_t ldc = count > 1 ? row_of(p, r, r->m0 + m + 1) + n - out : 0;
        bool even = count == ROWS_F64 && width == PANEL_F64;
        for (int64_t i = 2; p->row && even && i < count; i++) even = row_of(p, r, r->m0 + m + i) + n == out + i * ldc;
        if (even) {
            full_tile(depth, strips + m * depth, panel, out, ldc, add);
            continue;
        }
        some_rows(count, depth, strips + m * depth, panel, edge, PANEL_F64, false);
        for (int64_t i = 0; i < count; i++) {
            out = row_of(p, r, r->m0 + m + i) + n;
            for (int64_t q = 0; q < width; q++)
                out[q] = add ? out[q] + edge[i * PANEL_F64 + q] : edge[i * PANEL_F64 + q];
        }
    }
}

static range range_of(const lc__product_f64 *p, int64_t i)
{
    range r = {.split = i % p->splits};
    i /= p->splits;
    r.m0 = i % p->row_blocks * p->row_block;
    i /= p->row_blocks;
    r.n0 = i % p->column_blocks * p->column_block;
    r.item = i / p->column_blocks;
    r.rows = smaller(p->row_block, p->m - r.m0);
    r.columns = smaller(p->column_block, p->n - r.n0);
    return r;
}

static void piece(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc__product_f64 *p = context;
    double *strips = p->scratch + thread * p->per_thread, *panels = strips + whole(p->row_block, ROWS_F64) * p->depth;
    for (int64_t i = begin; i < end; i++) {
        range r = range_of(p, i);
        int64_t k0 = r.split * p->blocks_per_split * p->depth, k1 = smaller(p->k, k0 + p->blocks_per_split * p->depth);
        for (int64_t k = k0; k < k1; k += p->depth) {
            int64_t depth = smaller(p->depth, k1 - k);
            p->pack_b(p, r.item, r.n0, r.columns, k, depth, panels);
            p->pack_a(p, r.item, r.m0, r.rows, k, depth, strips);
            for (int64_t n = 0; n < r.columns; n += PANEL_F64)
                panel_columns(p, &r, n, smaller(PANEL_F64, r.columns - n), depth, strips, panels + n * depth,
                              k > k0 || (p->accumulate && p->splits == 1));
        }
        const double *bias = p->bias ? p->bias + r.item * p->bias_step + r.n0 : NULL;
        for (int64_t m = 0; p->splits == 1 && (bias || p->activation) && m < r.rows; m++)
            finish(bias, p->activation, row_of(p, &r, r.m0 + m), r.columns);
    }
}

static void add_partials(const void *context, int64_t begin, int64_t end, int thread)
{
    const lc__product_f64 *p = context;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        double *out = result_row(p, i / p->m, i % p->m);
        for (int64_t s = 0; s < p->splits; s++) {
            const double *from = p->partial + (s * p->items * p->m + i) * p->n;
            if (s || p->accumulate) {
                for (int64_t n = 0; n < p->n; n++) out[n] += from[n];
            } else {
                memcpy(out, from, (size_t)p->n * sizeof *out);
            }
        }
        finish(p->bias ? p->bias + i / p->m * p->bias_step : NULL, p->activation, out, p->n);
    }
}

static void cut(lc__product_f64 *p)
{
    p->row_blocks = parts(p->m, p->row_block);
    p->column_blocks = parts(p->n, p->column_block);
}

static int64_t pieces(const lc__product_f64 *p)
{
    return p->items * p->row_blocks * p->column_blocks * p->splits;
}

size_t lc__product_f64_plan(lc__product_f64 *p, int threads)
{
    int64_t blocks = parts(p->k, DEPTH_F64);
    p->depth = parts(p->k, blocks);
    p->row_block = smaller(whole(p->m, ROWS_F64), MOST_ROWS);
    p->column_block = smaller(whole(p->n, PANEL_F64), MOST_COLUMNS);
    p->splits = 1;
    cut(p);
    if (pieces(p) < ENOUGH && blocks > DEEP) p->splits = smaller(parts(ENOUGH, pieces(p)), blocks / DEEP);
    while (pieces(p) < ENOUGH && p->row_block * p->column_block / 2 >= parts(PIECE_WORK, p->k)) {
        if (p->row_block > p->column_block && p->row_block > 2 * ROWS_F64)
            p->row_block = whole(p->row_block / 2, ROWS_F64);
        else if (p->column_block > 2 * PANEL_F64)
            p->column_block = whole(p->column_block / 2, PANEL_F64);
        else
            break;
        cut(p);
    }
    p->blocks_per_split = parts(blocks, p->splits);
    p->splits = parts(blocks, p->blocks_per_split);
    p->per_thread = (whole(p->row_block, ROWS_F64) + whole(p->column_block, PANEL_F64)) * p->depth;
    int64_t numbers =
        (threads > 1 ? threads : 1) * p->per_thread + (p->splits > 1 ? p->splits * p->items * p->m * p->n : 0);
    return (size_t)numbers * sizeof(double);
}

void lc__product_f64_run(lc__product_f64 *p, void *scratch, int threads)
{
    p->scratch = scratch;
    p->partial = p->scratch + (threads > 1 ? threads : 1) * p->per_thread;
    lc__parallel_for(threads, pieces(p), 1, piece, p);
    if (p->splits > 1) lc__parallel_for(threads, p->items * p->m, parts(8192, p->n), add_partials, p);
}
