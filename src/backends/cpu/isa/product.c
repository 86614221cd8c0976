/* SPDX-License-Identifier: Apache-2.0 */
/* matmul and linear of one pair of matrices, or of a few large pairs: out = activation(x * y + bias). Also the fusions
 * of such a product with its neighbors (epilogue.h).
 *
 * A tile of ROWS x PANEL results is kept in registers while k runs over a block of DEPTH. The second factor is copied
 * into panels of PANEL columns stored in the order in which they are read. So is the first one, in strips of ROWS rows,
 * if its rows are not dense.
 *
 * With many rows all threads first make the panels, for as many blocks of k as SHARED_BYTES hold; then they compute
 * pieces of the result. A piece is a rectangle, and makes its own strips. If x's columns are dense, it would read a few
 * numbers of every row; so then the strips are made first, too, unless x is small and each piece needs other rows of
 * it. With few rows a panel is used too seldom for that: then only the strips are made first, and a piece is a range of
 * columns, which makes its panels right before it uses them, or reads them in place if y's rows are dense. Pieces
 * depend only on the shape, and the order of a result's sum only on k, so results are the same for any number of
 * threads. */
#include "backends/cpu/isa/epilogue.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/product_panels.h"
#include "backends/cpu/isa/product_tile.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#if VW == 16
#define STRIPS_ROWS 512 /* up to so many, the strips of a block of k stay in such a machine's second-level cache */
#else
#define STRIPS_ROWS 128
#endif
#define DEPTH        256
#define BLOCK_ROWS   96                 /* rows of a piece, at most: its strips stay in the second-level cache */
#define FEW_ROWS     128                /* STRIPS_ROWS if x's columns are dense and there are panels for many pieces */
#define OWN_PANELS   4                  /* panels that a piece makes at a time */
#define SHARED_BYTES ((int64_t)4 << 20) /* panels, or panels and strips */
#define STRIPS_BYTES ((int64_t)1 << 20) /* strips alone */
#define IN_PLACE     ((int64_t)4 << 20) /* bytes of y, which a copy would fetch row by row from beyond the caches */
/* Multiplications of a piece: the total divided by PIECES, but at least PIECE_WORK. */
#define PIECES     64
#define PIECE_WORK ((int64_t)400 * 1000)
/* Smaller matrices of a batch are left to onednn/matmul.c, which distributes them whole. */
#define BATCH_WORK ((int64_t)8 << 20)

typedef struct job {
    lc__product p;
    int64_t depth;   /* of a block of k */
    bool shared;     /* panels are made first, not by pieces */
    bool in_place;   /* y's whole panels are read where they are, not copied */
    bool strips;     /* x is copied into strips */
    bool own_strips; /* by pieces, not before them */
    int64_t blocks_at_once;
    int64_t row_block, column_block, row_blocks, column_blocks;
    int64_t panels, panel_floats, shared_floats, per_thread;
    bool accumulate;
    const float *x, *y, *bias;
    float *out, *scratch;
    int64_t k_begin, k_end; /* the range of k whose panels are made */
    epilogue after;
} job;

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t parts(int64_t n, int64_t part)
{
    return (n + part - 1) / part;
}

static inline int64_t whole(int64_t n, int64_t unit)
{
    return parts(n, unit) * unit;
}

/* ---- tiles and what follows them ---- */

/* The columns of one panel, for rows [m0, m0 + rows). `a`: strips, or x at that row and k. */
static void panel_columns(const job *j, const float *a, int64_t depth, int64_t m0, int64_t rows, int64_t n,
                          int64_t width, const float *panel, int64_t ldb, bool add)
{
    float edge[ROWS * PANEL];
    const lc__product *p = &j->p;
    bool inside = width == PANEL;
    int64_t ldc = inside ? p->n : PANEL;
    for (int64_t m = 0; m < rows; m += ROWS) {
        int64_t count = smaller(rows - m, ROWS);
        const float *from = a + m * (j->strips ? depth : p->xm);
        float *out = j->out + (m0 + m) * p->n + n, *c = inside ? out : edge;
        if (count == ROWS)
            any_full_tile(depth, from, p->xm, j->strips, panel, ldb, c, ldc, inside && add, width <= VW);
        else
            rest_of_tiles(count, depth, from, p->xm, j->strips, panel, ldb, c, ldc, inside && add, width <= VW);
        for (int64_t i = 0; !inside && i < count; i++) {
            for (int64_t q = 0; q < width; q++)
                out[i * p->n + q] = add ? out[i * p->n + q] + edge[i * PANEL + q] : edge[i * PANEL + q];
        }
    }
}

static void finish(const job *j, int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
    const lc__product *p = &j->p;
    bool simple = p->bias || p->activation, more = epilogue_runs(&j->after);
    if (!simple && !more) return;
    /* Short rows are neighbors: together they fill vectors. */
    int64_t step = columns == p->n ? larger(1, 1024 / columns) : 1;
    for (int64_t m = m0, next; m < m0 + rows; m = next) {
        next = smaller(m + step, m0 + rows);
        for (int64_t r = m; simple && r < next; r++)
            epilogue_linear(p->bias ? j->bias + n0 : NULL, p->activation, j->out + r * p->n + n0, columns);
        if (more) epilogue_run(&j->after, j->out, m * p->n + n0, (next - m) * columns, 2 * step * p->n);
    }
}

/* ---- pieces ---- */

/* Columns [n0, n1) for a block of k. */
static void make_some_panels(const job *j, int64_t k, int64_t depth, int64_t n0, int64_t n1, float *to)
{
    int64_t n = n0;
    if (j->p.yn == 1) {
        copy_panels(&j->p, j->y, k, depth, n0, (n1 - n0) / PANEL, to);
        n += (n1 - n0) / PANEL * PANEL;
    }
    for (; n < n1; n += PANEL) make_panel(&j->p, j->y, k, depth, n, smaller(PANEL, n1 - n), to + (n - n0) * depth);
}

/* Makes panels [begin, end) of the blocks of k that are made at once, counted block by block. */
static void make_panels(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    (void)thread;
    for (int64_t i = begin, next; i < end; i = next) {
        int64_t block = i / j->panels, panel = i % j->panels, k = j->k_begin + block * j->depth;
        int64_t depth = smaller(j->depth, j->k_end - k);
        next = smaller(end, (block + 1) * j->panels);
        make_some_panels(j, k, depth, panel * PANEL, smaller(j->p.n, (panel + next - i) * PANEL),
                         j->scratch + (block * j->panels * j->depth + panel * depth) * PANEL);
    }
}

/* The same for strips. */
static void make_all_strips(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    int64_t strips = parts(j->p.m, ROWS);
    (void)thread;
    for (int64_t i = begin, next; i < end; i = next) {
        int64_t block = i / strips, m = i % strips * ROWS, k = j->k_begin + block * j->depth;
        int64_t depth = smaller(j->depth, j->k_end - k);
        next = smaller(end, (block + 1) * strips);
        make_strips(&j->p, j->x, k, depth, m, smaller(j->p.m - m, (next - i) * ROWS),
                    j->scratch + j->panel_floats + block * strips * ROWS * j->depth + m * depth);
    }
}

/* Row sums of strips that a piece has. The pieces of the same rows share them. */
static void sum_rows(const job *j, const float *strips, int64_t k, int64_t depth, int64_t m, int64_t rows,
                     int64_t column_block)
{
    int64_t n = parts(rows, ROWS), end = n * (column_block + 1) / j->column_blocks;
    for (int64_t s = n * column_block / j->column_blocks; s < end; s++) {
        double *total = j->after.partial + m + s * ROWS;
        strip_sums(ROWS, strips + s * ROWS * depth, depth, k > 0, total);
        for (int64_t i = 0; k + depth == j->p.k && i < smaller(ROWS, rows - s * ROWS); i++)
            j->after.sums[m + s * ROWS + i] = (float)total[i];
    }
}

static void piece(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc__product *p = &j->p;
    float *own = j->scratch + j->shared_floats + thread * j->per_thread; /* strips, or a panel */
    for (int64_t i = begin; i < end; i++) {
        int64_t m = i / j->column_blocks * j->row_block, rows = smaller(j->row_block, p->m - m);
        int64_t n0 = i % j->column_blocks * j->column_block, n1 = smaller(n0 + j->column_block, p->n);
        for (int64_t k = j->k_begin; k < j->k_end; k += j->depth) {
            int64_t depth = smaller(j->depth, j->k_end - k);
            const float *a = j->x + m * p->xm + k * p->xk;
            const float *panels = j->scratch + (k - j->k_begin) * j->panels * PANEL;
            const float *strips = j->scratch + j->panel_floats;
            if (j->own_strips) make_strips(p, j->x, k, depth, m, rows, own);
            if (j->strips) a = j->own_strips ? own : strips + (k - j->k_begin) * whole(p->m, ROWS) + m * depth;
            if (j->after.kind == EPILOGUE_ROW_SUMS) sum_rows(j, a, k, depth, m, rows, i % j->column_blocks);
            for (int64_t n = n0, next; n < n1; n = next) {
                bool in_place = j->in_place && n + PANEL <= n1;
                next = j->shared ? n1 : smaller(n1, n + (in_place ? 1 : OWN_PANELS) * PANEL);
                const float *panel = j->shared ? panels + n * depth : in_place ? j->y + k * p->yk + n : own;
                if (!j->shared && !in_place) make_some_panels(j, k, depth, n, next, own);
                for (; n < next; n += PANEL, panel += PANEL * depth)
                    panel_columns(j, a, depth, m, rows, n, smaller(PANEL, n1 - n), panel, in_place ? p->yk : PANEL,
                                  k > 0 || j->accumulate);
            }
        }
        if (j->k_end == p->k) finish(j, m, rows, n0, n1 - n0);
    }
}

static epilogue_kind epilogue_of(const lc_op *op)
{
    return op == &lc__op_linear_gelu            ? EPILOGUE_GELU
           : op == &lc__op_matmul_gelu_backward ? EPILOGUE_SLOPE
           : op == &lc__op_linear_weight_grad   ? EPILOGUE_ROW_SUMS
                                                : EPILOGUE_NONE;
}

/* Sets everything that follows from the shape. */
static bool plan(const lc_call *call, job *j)
{
    memset(j, 0, sizeof *j);
    lc__product *p = &j->p;
    if (!lc__product_of(call, p) || p->m < 4 || p->n < 4) return false;
    j->after.kind = epilogue_of(call->op);
    if (j->after.kind && p->nb) return false;
    int64_t blocks = parts(p->k, DEPTH), row_work;
    if (__builtin_mul_overflow(p->k, whole(p->n, PANEL), &row_work) || row_work > INT64_MAX / p->m / 8) return false;
    if (p->nb && p->m * row_work < BATCH_WORK) return false;
    j->depth = whole(parts(p->k, blocks), 8);
    j->shared = p->m > (p->xk != 1 && p->n >= PIECES * 3 / 4 * PANEL ? STRIPS_ROWS : FEW_ROWS);
    j->panels = parts(p->n, PANEL);
    int64_t work = larger(p->m * row_work / PIECES, PIECE_WORK), most = j->shared ? BLOCK_ROWS : p->m;
    j->row_block = smaller(whole(larger(parts(work, row_work), 4 * ROWS), ROWS), most);
    if (!j->shared || j->row_block > p->m) j->row_block = p->m;
    j->row_blocks = parts(p->m, j->row_block);
    j->column_block = whole(parts(work, j->row_block * p->k), PANEL);
    if (j->column_block > p->n / 4 * 3) j->column_block = whole(p->n, PANEL);
    j->column_blocks = parts(p->n, j->column_block);
    /* Rows a page apart would all use the same few lines of the first-level cache; half a page apart they use
     * twice as many, which is enough for wide pieces. */
    int64_t conflict = j->column_blocks > 1 ? 512 : 1024;
    j->strips = p->xk != 1 || (p->m > 1 && p->xm % conflict == 0) || j->after.kind == EPILOGUE_ROW_SUMS;
    j->in_place = p->m <= FEW_ROWS && p->yn == 1 && p->yk % 512 != 0 && p->k * p->yk <= IN_PLACE / 4;
    j->blocks_at_once = blocks;
    j->own_strips = j->strips && j->shared && (p->xk == 1 || (j->column_blocks == 1 && blocks == 1));
    if (j->shared || j->strips) {
        int64_t panels = j->shared ? j->panels * PANEL * j->depth : 0;
        int64_t strips = j->strips && !j->own_strips ? whole(p->m, ROWS) * j->depth : 0;
        int64_t bytes = j->shared ? SHARED_BYTES : STRIPS_BYTES;
        j->blocks_at_once = smaller(larger(bytes / 4 / (panels + strips), 1), blocks);
        j->panel_floats = j->blocks_at_once * panels;
        j->shared_floats = j->panel_floats + j->blocks_at_once * strips;
    }
    int64_t own = !j->shared ? OWN_PANELS * PANEL : j->own_strips ? whole(j->row_block, ROWS) : 0;
    j->per_thread = own * j->depth;
    return true;
}

static bool supports(const lc_call *call)
{
    job j;
    return plan(call, &j);
}

static lc_status prepare(lc_call *call)
{
    int64_t threads = call->threads > 1 ? call->threads : 1;
    job *j = malloc(sizeof *j);
    if (!j) return lc_fail(LC_ERR_MEMORY, "out of memory: the plan of a product");
    if (!plan(call, j)) {
        free(j);
        return lc_fail(LC_ERR_INTERNAL, "%s is not a product", call->op->name);
    }
    call->state = j;
    call->scratch_bytes = (size_t)(j->shared_floats + threads * j->per_thread) * sizeof(float);
    if (j->after.kind == EPILOGUE_ROW_SUMS) call->scratch_bytes += (size_t)whole(j->p.m, ROWS) * sizeof(double);
    return LC_OK;
}

static void run_matrices(const lc_call *call, job *j)
{
    for (int64_t k = 0; k < j->p.k; k = j->k_end) {
        j->k_begin = k;
        j->k_end = smaller(j->p.k, k + j->blocks_at_once * j->depth);
        if (j->shared)
            lc__parallel_for(call->threads, parts(j->k_end - k, j->depth) * j->panels,
                             larger(1, 16384 / (j->depth * PANEL)), make_panels, j);
        if (j->strips && !j->own_strips)
            lc__parallel_for(call->threads, parts(j->k_end - k, j->depth) * parts(j->p.m, ROWS),
                             whole(larger(1, 16384 / (j->depth * ROWS)), 4), make_all_strips, j);
        lc__parallel_for(call->threads, j->row_blocks * j->column_blocks, 1, piece, j);
    }
}

/* Returns where the product goes. */
static float *set_epilogue(const lc_call *call, job *j)
{
    epilogue *e = &j->after;
    e->tanh = call->n_int && call->ints[0];
    e->y = call->out[0].data;
    if (e->kind == EPILOGUE_GELU) return call->out[call->n_out - 1].data;
    if (e->kind == EPILOGUE_SLOPE) e->x = call->in[2].data;
    if (e->kind == EPILOGUE_ROW_SUMS) {
        e->partial = (double *)(j->scratch + j->shared_floats + larger(1, call->threads) * j->per_thread);
        e->sums = call->out[1].data;
    }
    return call->out[0].data;
}

static void run(const lc_call *call)
{
    job *j = call->state;
    const lc__product *p = &j->p;
    int64_t at[LC_MAX_DIMS] = {0};
    int d;
    j->bias = p->bias ? call->in[2].data : NULL;
    j->accumulate = call->accumulate;
    j->scratch = call->scratch;
    float *product = set_epilogue(call, j);
    do {
        j->x = call->in[0].data;
        j->y = call->in[1].data;
        j->out = product;
        for (int i = 0; i < p->nb; i++) {
            j->x += at[i] * p->xb[i];
            j->y += at[i] * p->yb[i];
            j->out += at[i] * p->ob[i];
        }
        run_matrices(call, j);
        for (d = p->nb - 1; d >= 0 && ++at[d] == p->batch[d]; d--) at[d] = 0;
    } while (d >= 0);
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

static const lc_kernel matmul_kernel = {
    .name = "product_" LC_ISA_STRING,
    .layout = LC_WANT_MATRIX,
    .flags = LC_KERNEL_ACCUMULATES,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

static const lc_kernel linear_kernel = {
    .name = "product_" LC_ISA_STRING,
    .layout = LC_WANT_MATRIX,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

static const lc_kernel gelu_kernel = {
    .name = "product_" LC_ISA_STRING,
    .layout = LC_WANT_ROW_MAJOR,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__product_kernels)[] = {
    {&lc__op_matmul, &matmul_kernel},
    {&lc__op_linear, &linear_kernel},
    {&lc__op_linear_gelu, &gelu_kernel},
    {&lc__op_matmul_gelu_backward, &gelu_kernel},
    {&lc__op_linear_weight_grad, &matmul_kernel},
    {NULL, NULL},
};
