/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of a product; see product_job.h.
 *
 * A tile of ROWS x PANEL results is kept in registers while k runs over a block. The second factor is copied
 * into panels of PANEL columns stored in the order in which they are read. So is the first one, in strips of ROWS rows,
 * if its rows are not dense.
 *
 * With many rows all threads first make the panels, for as many blocks of k as SHARED_BYTES hold; then they compute
 * pieces of the result. A piece is a rectangle, and makes its own strips. If x's columns are dense, it would read a few
 * numbers of every row; so then the strips are made first, too, unless x is small and each piece needs other rows of
 * it. With few rows a panel is used too seldom for that: then only the strips are made first, and a piece is a range of
 * columns, which makes its panels right before it uses them, or reads them in place if y's rows are dense; if x is only
 * copied to be converted, each piece does that, too. Pieces depend only on the shape, and the order of a result's sum
 * only on k, so results are the same for any number of threads.
 *
 * product_vectors.h copies factors and computes panels with vectors, product_amx.h in units for matrices, and
 * product_dot.h with vectors that multiply pairs of bf16. The first are of f32: a factor that is stored in 16 bits
 * (stored.h) is always copied, which converts it, and the first one stays in rows if these are dense. A result in 16
 * bits is rounded once: with its tile, if that can do all of it; or a piece computes its part of it in f32, in memory
 * of its own; or, if k is too long for one go, all of it is computed in scratch. */
#include "backends/cpu/isa/product_job.h"

#if defined(LC_ISA_AMX)
#include "backends/cpu/isa/product_amx.h"
#elif defined(LC_ISA_PAIRS)
#include "backends/cpu/isa/product_dot.h"
#else
#include "backends/cpu/isa/product_vectors.h"
#endif
#include "backends/cpu/isa/finite.h"
#include "backends/cpu/parallel.h"

#include <math.h>

#if VW == 16
#define STRIPS_ROWS 512 /* up to so many, the strips of a block of k stay in such a machine's second-level cache */
#else
#define STRIPS_ROWS 128
#endif
#define FEW_ROWS     128                /* STRIPS_ROWS if x's columns are dense and there are panels for many pieces */
#define OWN_PANELS   4                  /* panels that a piece makes at a time */
#define SHARED_BYTES ((int64_t)4 << 20) /* panels, or panels and strips */
#define STRIPS_BYTES ((int64_t)1 << 20) /* only the strips */
#define CONVERTED    64                 /* columns of a piece, at least, if it converts the rows of x for them */
#define PACKED       16                 /* panels for many pieces, if functions of the job copy them */
/* Multiplications of a piece: the total divided by PIECES, but at least PIECE_WORK. */
#define PIECES 64
/* Columns that a piece computes elsewhere before it rounds them: they stay in the first caches. */
#define ROUNDED_AT_ONCE (4 * PANEL)

/* ---- what follows tiles ---- */

/* Applies bias, activation and epilogue to the product, in place. */
static void finish(const product_job *j, int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
    const lc__product *p = &j->p;
    bool simple = p->bias || p->activation, more = epilogue_runs(&j->after);
    if (!simple && !more) return;
    float *out = j->out;
    /* Short rows are neighbors: together they fill vectors. */
    int64_t step = columns == p->n ? larger(1, 1024 / columns) : 1;
    for (int64_t m = m0, next; m < m0 + rows; m = next) {
        next = smaller(m + step, m0 + rows);
        for (int64_t r = m; simple && r < next; r++)
            epilogue_linear(p->bias ? j->bias + n0 : NULL, p->activation, out + r * p->n + n0, columns);
        if (more) epilogue_run(&j->after, out, m * p->n + n0, (next - m) * columns, 2 * step * p->n);
    }
}

/* The same row by row, and rounds the result. */
static void finish_rounded(const product_job *j, target from, int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
    enum { RUN = 256 };
    const lc__product *p = &j->p;
    const epilogue *e = &j->after;
    float other[RUN];
    for (int64_t m = 0; m < rows; m++) {
        int64_t begin = j->row_at ? j->row_at(j, m0 + m) : (m0 + m) * p->n;
        for (int64_t n = 0; n < columns; n += RUN) {
            int64_t count = smaller(RUN, columns - n), at = begin + n0 + n;
            float *c = from.c + m * from.step + n;
            epilogue_linear(p->bias ? j->bias + n0 + n : NULL, p->activation, c, count);
            if (e->kind == EPILOGUE_SLOPE) {
                get_run(e->x_type, e->x, at, count, other);
                epilogue_slope(e->tanh, c, other, e->y ? other : NULL, count, 0);
                if (e->y) put_run(e->y_type, e->y, at, count, other);
            }
            if (j->accumulate) {
                get_run(j->out_type, j->out, at, count, other);
                for (int64_t i = 0; i < count; i++) c[i] += other[i];
            }
            if (e->kind == EPILOGUE_GELU) {
                if (e->y != j->out) put_run(j->out_type, j->out, at, count, c);
                epilogue_gelu(e->tanh, c, c, count);
                put_run(e->y_type, e->y, at, count, c);
            } else {
                put_run(j->out_type, j->out, at, count, c);
            }
        }
    }
}

/* ---- pieces ---- */

/* Makes panels [begin, end) of the blocks of k that are made at once, counted block by block. */
static void make_panels(const void *context, int64_t begin, int64_t end, int thread)
{
    const product_job *j = context;
    (void)thread;
    for (int64_t i = begin, next; i < end; i = next) {
        int64_t block = i / j->panels, panel = i % j->panels, k = j->k_begin + block * j->depth;
        int64_t depth = smaller(j->depth, j->k_end - k);
        next = smaller(end, (block + 1) * j->panels);
        panels_of(j, k, depth, panel * PANEL, smaller(j->p.n, (panel + next - i) * PANEL),
                  j->scratch +
                      (block * j->panels * column_floats(j, j->depth) + panel * column_floats(j, depth)) * PANEL);
    }
}

/* Where row m of the copy of x begins, in a block of k; rows from a multiple of ROWS on. */
static int64_t copied_row(const product_job *j, int64_t block, int64_t depth, int64_t m)
{
    return block * whole(j->p.m, ROWS) * row_floats(j, j->depth) + m * row_floats(j, depth);
}

/* Copies strips [begin, end) of x, or as many rows, counted as panels are. */
static void copy_all_x(const void *context, int64_t begin, int64_t end, int thread)
{
    const product_job *j = context;
    int64_t strips = parts(j->p.m, ROWS);
    (void)thread;
    for (int64_t i = begin, next; i < end; i = next) {
        int64_t block = i / strips, m = i % strips * ROWS, k = j->k_begin + block * j->depth;
        int64_t depth = smaller(j->depth, j->k_end - k);
        next = smaller(end, (block + 1) * strips);
        copy_x(j, k, depth, m, smaller(j->p.m, m + (next - i) * ROWS),
               j->scratch + j->panel_floats + copied_row(j, block, depth, m));
    }
}

/* Row sums of strips that a piece has. The pieces of the same rows share them. */
static void sum_rows(const product_job *j, const float *strips, int64_t k, int64_t depth, int64_t m, int64_t rows,
                     int64_t column_block)
{
    int64_t n = parts(rows, ROWS), end = n * (column_block + 1) / j->column_blocks;
    for (int64_t s = n * column_block / j->column_blocks; s < end; s++) {
        double *total = j->after.partial + m + s * ROWS;
        sums_of_rows(j, strips + s * ROWS * row_floats(j, depth), depth, k > 0, total);
        for (int64_t i = 0; k + depth == j->p.k && i < smaller(ROWS, rows - s * ROWS); i++)
            put(j->after.sums_type, j->after.sums, m + s * ROWS + i, (float)total[i]);
    }
}

static target target_of(const product_job *j, int64_t m, int64_t n, float *own)
{
    const int64_t at = m * j->p.n + n;
    if (j->direct)
        return (target){.rounded = (uint16_t *)j->out + at, .bias = j->p.bias ? j->bias + n : NULL, .step = j->p.n};
    if (!j->rounds) return (target){.c = (float *)j->out + at, .step = j->p.n};
    if (j->whole) return (target){.c = j->scratch + j->shared_floats - j->sum_floats + at, .step = j->p.n};
    return (target){.c = own + j->own_floats, .step = j->at_once};
}

/* Looks at a panel after it was used: what was just written would have to be waited for. Threads that find anything
 * write the same. */
static void check_panel(const product_job *j, const float *panel, int64_t depth, int64_t width)
{
    float zero =
        width == PANEL ? zero_if_finite(panel, 1, 0, depth * PANEL) : zero_if_finite(panel, depth, PANEL, width);
    if (isnan(zero)) __atomic_store(j->after.finite, &zero, __ATOMIC_RELAXED);
}

/* A part of a piece: columns [n0, n1) of its rows. `a`: its rows of x, or their copy, at k. */
static void some_columns(const product_job *j, const float *a, int64_t k, int64_t depth, target to, int64_t rows,
                         int64_t n0, int64_t n1, float *own, bool checks)
{
    const lc__product *p = &j->p;
    const float *panels = j->scratch + (k - j->k_begin) / j->depth * column_floats(j, j->depth) * j->panels * PANEL;
    for (int64_t n = n0, next; n < n1; n = next) {
        bool in_place = j->in_place && n + PANEL <= n1;
        next = j->shared ? n1 : smaller(n1, n + (in_place ? 1 : OWN_PANELS) * PANEL);
        const float *panel = j->shared  ? panels + n * column_floats(j, depth)
                             : in_place ? (const float *)j->y + k * p->yk + n
                                        : own;
        if (!j->shared && !in_place) panels_of(j, k, depth, n, next, own);
        for (; n < next; n += PANEL, panel += PANEL * column_floats(j, depth)) {
            const int64_t width = smaller(PANEL, n1 - n);
            panel_columns(j, a, depth, to, rows, n - n0, width, panel, in_place ? p->yk : PANEL,
                          k > 0 || (j->accumulate && !j->rounds));
            if (checks) check_panel(j, panel, depth, width);
        }
    }
}

static void piece(const void *context, int64_t begin, int64_t end, int thread)
{
    const product_job *j = context;
    const lc__product *p = &j->p;
    float *own = j->scratch + j->shared_floats + thread * j->per_thread; /* panels, then a part of x */
    units_begin();
    for (int64_t i = begin; i < end; i++) {
        int64_t m = i / j->column_blocks * j->row_block, rows = smaller(j->row_block, p->m - m);
        int64_t first = i % j->column_blocks * j->column_block, last = smaller(first + j->column_block, p->n);
        for (int64_t n0 = first, n1; n0 < last; n0 = n1) {
            n1 = smaller(n0 + j->at_once, last);
            target to = target_of(j, m, n0, own);
            for (int64_t k = j->k_begin; k < j->k_end; k += j->depth) {
                int64_t depth = smaller(j->depth, j->k_end - k);
                const float *a = own + j->own_panels;
                if (!j->copied)
                    a = stored_at(j->x_type, j->x, m * p->xm + k * p->xk);
                else if (!j->own_copy)
                    a = j->scratch + j->panel_floats + copied_row(j, (k - j->k_begin) / j->depth, depth, m);
                else if (n0 == first)
                    copy_x(j, k, depth, m, m + rows, own + j->own_panels);
                if (n0 == first && j->after.kind == EPILOGUE_ROW_SUMS)
                    sum_rows(j, a, k, depth, m, rows, i % j->column_blocks);
                some_columns(j, a, k, depth, to, rows, n0, n1, own, m == 0 && j->after.finite);
            }
            if (j->k_end < p->k || j->direct) continue;
            if (j->rounds)
                finish_rounded(j, to, m, rows, n0, n1 - n0);
            else
                finish(j, m, rows, n0, n1 - n0);
        }
    }
    units_end();
}

/* ---- the plan ---- */

/* Sets how the result is cut into pieces. */
static void plan_pieces(product_job *j, int64_t row_work)
{
    const lc__product *p = &j->p;
    const int64_t many = j->pack_panels ? PACKED : PIECES * 3 / 4;
    j->shared = p->m > (p->xk != 1 && p->n >= many * PANEL ? STRIPS_ROWS : FEW_ROWS);
    j->panels = parts(p->n, PANEL);
    int64_t work = larger(p->m * row_work / PIECES, PIECE_WORK), most = j->shared ? BLOCK_ROWS : p->m;
    j->row_block = smaller(whole(larger(parts(work, row_work), 4 * ROWS), ROWS), most);
    if (!j->shared || j->row_block > p->m) j->row_block = p->m;
    j->row_blocks = parts(p->m, j->row_block);
    j->column_block = whole(parts(work, j->row_block * p->k), PANEL);
    if (j->pack_panels && !j->shared) j->column_block = larger(j->column_block, 2 * PANEL);
    if (converts_rows(j) && !j->shared) j->column_block = larger(j->column_block, CONVERTED);
    if (j->column_block > p->n / 4 * 3) j->column_block = whole(p->n, PANEL);
    j->column_blocks = parts(p->n, j->column_block);
}

/* Sets which memory the call needs. */
static void plan_scratch(product_job *j, int64_t blocks)
{
    const lc__product *p = &j->p;
    j->blocks_at_once = blocks;
    int64_t row = row_floats(j, j->depth);
    bool once = j->column_blocks == 1 && blocks == 1;
    j->own_copy = j->copied && (j->shared ? p->xk == 1 || once : converts_rows(j));
    if (j->shared || j->copied) {
        int64_t panels = j->shared ? j->panels * PANEL * column_floats(j, j->depth) : 0;
        int64_t copy = j->copied && !j->own_copy ? whole(p->m, ROWS) * row : 0;
        int64_t bytes = j->shared ? SHARED_BYTES : STRIPS_BYTES;
        j->blocks_at_once = smaller(larger(bytes / 4 / larger(panels + copy, 1), 1), blocks);
        j->panel_floats = j->blocks_at_once * panels;
        j->shared_floats = j->panel_floats + j->blocks_at_once * copy;
    }
    j->direct = blocks == 1 && rounds_tiles(j);
    j->whole = j->rounds && j->blocks_at_once < blocks;
    if (j->whole) j->sum_floats = whole(p->m * p->n, 16);
    j->shared_floats += j->sum_floats;
    j->own_panels = j->shared ? 0 : OWN_PANELS * PANEL * column_floats(j, j->depth);
    j->own_floats = j->own_panels + (j->own_copy ? whole(j->row_block, ROWS) * row : 0);
    j->per_thread = j->own_floats;
    /* Results that a piece computes elsewhere stay in the first caches until they are rounded. */
    bool elsewhere = j->rounds && !j->direct && !j->whole;
    j->at_once = elsewhere && blocks == 1 ? smaller(ROUNDED_AT_ONCE, j->column_block) : j->column_block;
    if (elsewhere) j->per_thread += j->row_block * j->at_once;
}

bool lc__job_plan(product_job *j)
{
    const lc__product *p = &j->p;
    int64_t row_work;
    if (__builtin_mul_overflow(p->k, whole(p->n, PANEL), &row_work) || row_work > INT64_MAX / p->m / 8) return false;
    j->work = p->m * row_work;
    plan_pieces(j, row_work);
    int64_t blocks = parts(p->k, depth_of(j));
    j->depth = whole(parts(p->k, blocks), STEP);
    plan_copies(j, p->m <= FEW_ROWS);
    plan_scratch(j, blocks);
    return true;
}

/* A multiple of 16. */
int64_t lc__job_floats(const product_job *j, int threads)
{
    return whole(j->shared_floats + larger(1, threads) * j->per_thread, 16);
}

void lc__job_run(product_job *j, int threads)
{
    for (int64_t k = 0; k < j->p.k; k = j->k_end) {
        j->k_begin = k;
        j->k_end = smaller(j->p.k, k + j->blocks_at_once * j->depth);
        if (j->shared)
            lc__parallel_for(threads, parts(j->k_end - k, j->depth) * j->panels, larger(1, 16384 / (j->depth * PANEL)),
                             make_panels, j);
        if (j->copied && !j->own_copy)
            lc__parallel_for(threads, parts(j->k_end - k, j->depth) * parts(j->p.m, ROWS),
                             whole(larger(1, 16384 / (j->depth * ROWS)), 4), copy_all_x, j);
        lc__parallel_for(threads, j->row_blocks * j->column_blocks, 1, piece, j);
    }
}
