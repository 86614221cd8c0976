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
 * threads.
 *
 * Factors that are stored in 16 bits (stored.h) are always copied, which converts them. A result in 16 bits is rounded
 * once: a piece computes its part of it in f32, in memory of its own; or, if k is too long for one go, all of it is
 * computed in scratch. Small matrices of a batch, if stored in 16 bits, are computed whole by one thread each. */
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
    lc_dtype x_type, y_type, out_type;
    bool low;        /* some operand or result is in 16 bits */
    bool rounds;     /* something that pieces write or read is in 16 bits: they compute in f32 elsewhere */
    bool whole;      /* ... in scratch that holds the whole result, not a piece of it */
    bool by_matrix;  /* a thread computes whole matrices */
    int64_t depth;   /* of a block of k */
    bool shared;     /* panels are made first, not by pieces */
    bool in_place;   /* y's whole panels are read where they are, not copied */
    bool strips;     /* x is copied into strips */
    bool own_strips; /* by pieces, not before them */
    int64_t blocks_at_once;
    int64_t row_block, column_block, row_blocks, column_blocks;
    int64_t panels, panel_floats, shared_floats, own_floats, per_thread, sum_floats;
    int64_t matrices;
    bool accumulate;
    const void *x, *y;
    const float *bias;
    void *out;
    float *scratch;
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

/* Where a piece computes its part of the result: its first number, and the distance of rows. */
typedef struct target {
    float *c;
    int64_t step;
} target;

/* The columns of one panel, which begins at column n of the target. `a`: strips, or x at the piece's first row and k.
 */
static void panel_columns(const job *j, const float *a, int64_t depth, target to, int64_t rows, int64_t n,
                          int64_t width, const float *panel, int64_t ldb, bool add)
{
    float edge[ROWS * PANEL];
    const lc__product *p = &j->p;
    bool inside = width == PANEL;
    int64_t ldc = inside ? to.step : PANEL;
    for (int64_t m = 0; m < rows; m += ROWS) {
        int64_t count = smaller(rows - m, ROWS);
        const float *from = a + m * (j->strips ? depth : p->xm);
        float *out = to.c + m * to.step + n, *c = inside ? out : edge;
        if (count == ROWS)
            any_full_tile(depth, from, p->xm, j->strips, panel, ldb, c, ldc, inside && add, width <= VW);
        else
            rest_of_tiles(count, depth, from, p->xm, j->strips, panel, ldb, c, ldc, inside && add, width <= VW);
        for (int64_t i = 0; !inside && i < count; i++) {
            for (int64_t q = 0; q < width; q++)
                out[i * to.step + q] = add ? out[i * to.step + q] + edge[i * PANEL + q] : edge[i * PANEL + q];
        }
    }
}

/* What follows the product, in place. */
static void finish(const job *j, int64_t m0, int64_t rows, int64_t n0, int64_t columns)
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
static void finish_rounded(const job *j, target from, int64_t m0, int64_t rows, int64_t n0, int64_t columns)
{
    enum { RUN = 256 };
    const lc__product *p = &j->p;
    const epilogue *e = &j->after;
    float other[RUN];
    for (int64_t m = 0; m < rows; m++) {
        for (int64_t n = 0; n < columns; n += RUN) {
            int64_t count = smaller(RUN, columns - n), at = (m0 + m) * p->n + n0 + n;
            float *c = from.c + m * from.step + n;
            epilogue_linear(p->bias ? j->bias + n0 + n : NULL, p->activation, c, count);
            if (e->kind == EPILOGUE_SLOPE) {
                get_run(e->x_type, e->x, at, count, other);
                epilogue_slope(e->tanh, c, other, count, 0);
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
    const job *j = context;
    (void)thread;
    for (int64_t i = begin, next; i < end; i = next) {
        int64_t block = i / j->panels, panel = i % j->panels, k = j->k_begin + block * j->depth;
        int64_t depth = smaller(j->depth, j->k_end - k);
        next = smaller(end, (block + 1) * j->panels);
        make_some_panels(j->y_type, &j->p, j->y, k, depth, panel * PANEL, smaller(j->p.n, (panel + next - i) * PANEL),
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
        make_strips(j->x_type, &j->p, j->x, k, depth, m, smaller(j->p.m - m, (next - i) * ROWS),
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
            put(j->after.sums_type, j->after.sums, m + s * ROWS + i, (float)total[i]);
    }
}

static target target_of(const job *j, int64_t m, int64_t n, float *own)
{
    if (!j->rounds) return (target){(float *)j->out + m * j->p.n + n, j->p.n};
    if (j->whole) return (target){j->scratch + j->shared_floats - j->sum_floats + m * j->p.n + n, j->p.n};
    return (target){own + j->own_floats, j->column_block};
}

static void piece(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    const lc__product *p = &j->p;
    float *own = j->scratch + j->shared_floats + thread * j->per_thread; /* strips, or a panel */
    for (int64_t i = begin; i < end; i++) {
        int64_t m = i / j->column_blocks * j->row_block, rows = smaller(j->row_block, p->m - m);
        int64_t n0 = i % j->column_blocks * j->column_block, n1 = smaller(n0 + j->column_block, p->n);
        target to = target_of(j, m, n0, own);
        for (int64_t k = j->k_begin; k < j->k_end; k += j->depth) {
            int64_t depth = smaller(j->depth, j->k_end - k);
            const float *a = j->strips ? NULL : (const float *)j->x + m * p->xm + k * p->xk;
            const float *panels = j->scratch + (k - j->k_begin) * j->panels * PANEL;
            const float *strips = j->scratch + j->panel_floats;
            if (j->own_strips) make_strips(j->x_type, p, j->x, k, depth, m, rows, own);
            if (j->strips) a = j->own_strips ? own : strips + (k - j->k_begin) * whole(p->m, ROWS) + m * depth;
            if (j->after.kind == EPILOGUE_ROW_SUMS) sum_rows(j, a, k, depth, m, rows, i % j->column_blocks);
            for (int64_t n = n0, next; n < n1; n = next) {
                bool in_place = j->in_place && n + PANEL <= n1;
                next = j->shared ? n1 : smaller(n1, n + (in_place ? 1 : OWN_PANELS) * PANEL);
                const float *panel = j->shared  ? panels + n * depth
                                     : in_place ? (const float *)j->y + k * p->yk + n
                                                : own;
                if (!j->shared && !in_place) make_some_panels(j->y_type, p, j->y, k, depth, n, next, own);
                for (; n < next; n += PANEL, panel += PANEL * depth)
                    panel_columns(j, a, depth, to, rows, n - n0, smaller(PANEL, n1 - n), panel,
                                  in_place ? p->yk : PANEL, k > 0 || (j->accumulate && !j->rounds));
            }
        }
        if (j->k_end == p->k && j->rounds) finish_rounded(j, to, m, rows, n0, n1 - n0);
        if (j->k_end == p->k && !j->rounds) finish(j, m, rows, n0, n1 - n0);
    }
}

static epilogue_kind epilogue_of(const lc_op *op)
{
    return op == &lc__op_linear_gelu            ? EPILOGUE_GELU
           : op == &lc__op_matmul_gelu_backward ? EPILOGUE_SLOPE
           : op == &lc__op_linear_weight_grad   ? EPILOGUE_ROW_SUMS
                                                : EPILOGUE_NONE;
}

static bool is_low(const lc_view *v)
{
    return v->ndim >= 0 && v->dtype != LC_F32;
}

/* Sets what follows from the types. Returns whether they are supported. */
static bool plan_types(const lc_call *call, job *j)
{
    epilogue *e = &j->after;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const lc_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        if (v->ndim >= 0 && !is_stored(v->dtype)) return false;
        j->low |= is_low(v);
    }
    e->kind = epilogue_of(call->op);
    j->x_type = call->in[0].dtype;
    j->y_type = call->in[1].dtype;
    j->out_type = call->out[e->kind == EPILOGUE_GELU ? call->n_out - 1 : 0].dtype;
    j->rounds = is_low(&call->out[0]) || j->out_type != LC_F32;
    e->y_type = call->out[0].dtype;
    if (e->kind == EPILOGUE_SLOPE) {
        e->x_type = call->in[2].dtype;
        j->rounds |= is_low(&call->in[2]);
    }
    if (e->kind == EPILOGUE_ROW_SUMS) e->sums_type = call->out[1].dtype;
    return true;
}

/* Sets how the result is cut into pieces. */
static void plan_pieces(job *j, int64_t row_work)
{
    const lc__product *p = &j->p;
    j->shared = p->m > (p->xk != 1 && p->n >= PIECES * 3 / 4 * PANEL ? STRIPS_ROWS : FEW_ROWS);
    j->panels = parts(p->n, PANEL);
    int64_t work = larger(p->m * row_work / PIECES, PIECE_WORK), most = j->shared ? BLOCK_ROWS : p->m;
    j->row_block = smaller(whole(larger(parts(work, row_work), 4 * ROWS), ROWS), most);
    if (!j->shared || j->row_block > p->m) j->row_block = p->m;
    j->row_blocks = parts(p->m, j->row_block);
    j->column_block = whole(parts(work, j->row_block * p->k), PANEL);
    if (j->column_block > p->n / 4 * 3) j->column_block = whole(p->n, PANEL);
    j->column_blocks = parts(p->n, j->column_block);
}

/* Sets which memory the call needs. */
static void plan_scratch(job *j, int64_t blocks)
{
    const lc__product *p = &j->p;
    j->blocks_at_once = blocks;
    j->own_strips = j->strips && j->shared && (p->xk == 1 || (j->column_blocks == 1 && blocks == 1));
    if (j->shared || j->strips) {
        int64_t panels = j->shared ? j->panels * PANEL * j->depth : 0;
        int64_t strips = j->strips && !j->own_strips ? whole(p->m, ROWS) * j->depth : 0;
        int64_t bytes = j->shared ? SHARED_BYTES : STRIPS_BYTES;
        j->blocks_at_once = smaller(larger(bytes / 4 / larger(panels + strips, 1), 1), blocks);
        j->panel_floats = j->blocks_at_once * panels;
        j->shared_floats = j->panel_floats + j->blocks_at_once * strips;
    }
    j->whole = j->rounds && j->blocks_at_once < blocks;
    if (j->whole) j->sum_floats = whole(p->m * p->n, 16);
    j->shared_floats += j->sum_floats;
    int64_t own = !j->shared ? OWN_PANELS * PANEL : j->own_strips ? whole(j->row_block, ROWS) : 0;
    j->own_floats = j->per_thread = own * j->depth;
    if (j->rounds && !j->whole) j->per_thread += j->row_block * j->column_block;
}

/* Sets everything that follows from the shape and the types. */
static bool plan(const lc_call *call, job *j)
{
    memset(j, 0, sizeof *j);
    lc__product *p = &j->p;
    if (!plan_types(call, j) || !lc__product_shape(call, p)) return false;
    if (!j->low && (p->m < 4 || p->n < 4)) return false;
    if (j->after.kind && p->nb) return false;
    int64_t blocks = parts(p->k, DEPTH), row_work;
    if (__builtin_mul_overflow(p->k, whole(p->n, PANEL), &row_work) || row_work > INT64_MAX / p->m / 8) return false;
    j->by_matrix = p->nb && p->m * row_work < BATCH_WORK;
    if (j->by_matrix && !j->low) return false;
    j->matrices = 1;
    for (int i = 0; i < p->nb; i++) j->matrices *= p->batch[i];
    j->depth = whole(parts(p->k, blocks), 8);
    plan_pieces(j, row_work);
    /* Rows a page apart would all use the same few lines of the first-level cache; half a page apart they use
     * twice as many, which is enough for wide pieces. */
    int64_t conflict = j->column_blocks > 1 ? 512 : 1024;
    j->strips =
        j->x_type != LC_F32 || p->xk != 1 || (p->m > 1 && p->xm % conflict == 0) || j->after.kind == EPILOGUE_ROW_SUMS;
    j->in_place =
        j->y_type == LC_F32 && p->m <= FEW_ROWS && p->yn == 1 && p->yk % 512 != 0 && p->k * p->yk <= IN_PLACE / 4;
    plan_scratch(j, blocks);
    return true;
}

/* The scratch of one matrix, if threads compute whole ones. */
static int64_t matrix_floats(const job *j)
{
    return whole(j->shared_floats + j->per_thread, 16);
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
    int64_t bytes = (j->shared_floats + threads * j->per_thread) * (int64_t)sizeof(float);
    if (j->by_matrix) bytes = threads * matrix_floats(j) * (int64_t)sizeof(float);
    if (j->after.kind == EPILOGUE_ROW_SUMS) bytes += whole(j->p.m, ROWS) * (int64_t)sizeof(double);
    if (j->p.bias && call->in[2].dtype != LC_F32) bytes += j->p.n * (int64_t)sizeof(float);
    call->scratch_bytes = (size_t)bytes;
    return LC_OK;
}

static void run_matrix(int threads, job *j)
{
    for (int64_t k = 0; k < j->p.k; k = j->k_end) {
        j->k_begin = k;
        j->k_end = smaller(j->p.k, k + j->blocks_at_once * j->depth);
        if (j->shared)
            lc__parallel_for(threads, parts(j->k_end - k, j->depth) * j->panels, larger(1, 16384 / (j->depth * PANEL)),
                             make_panels, j);
        if (j->strips && !j->own_strips)
            lc__parallel_for(threads, parts(j->k_end - k, j->depth) * parts(j->p.m, ROWS),
                             whole(larger(1, 16384 / (j->depth * ROWS)), 4), make_all_strips, j);
        lc__parallel_for(threads, j->row_blocks * j->column_blocks, 1, piece, j);
    }
}

/* The job of one matrix of the batch. */
static job matrix_of(const job *all, int64_t index)
{
    job j = *all;
    const lc__product *p = &j.p;
    for (int i = p->nb - 1; i >= 0; i--) {
        int64_t at = index % p->batch[i];
        index /= p->batch[i];
        j.x = stored_at(j.x_type, j.x, at * p->xb[i]);
        j.y = stored_at(j.y_type, j.y, at * p->yb[i]);
        j.out = stored_at(j.out_type, j.out, at * p->ob[i]);
    }
    return j;
}

/* Whole matrices [begin, end), each in this thread's part of scratch. */
static void some_matrices(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *all = context;
    for (int64_t i = begin; i < end; i++) {
        job j = matrix_of(all, i);
        j.scratch += thread * matrix_floats(all);
        run_matrix(1, &j);
    }
}

static void set_epilogue(const lc_call *call, job *j)
{
    epilogue *e = &j->after;
    float *after = j->scratch + j->shared_floats + larger(1, call->threads) * j->per_thread;
    if (j->by_matrix) after = j->scratch + larger(1, call->threads) * matrix_floats(j);
    e->tanh = call->n_int && call->ints[0];
    e->y = call->out[0].data;
    if (e->kind == EPILOGUE_SLOPE) e->x = call->in[2].data;
    if (e->kind == EPILOGUE_ROW_SUMS) {
        e->partial = (double *)after;
        e->sums = call->out[1].data;
    }
    j->bias = j->p.bias ? call->in[2].data : NULL;
    if (j->bias && call->in[2].dtype != LC_F32) {
        get_run(call->in[2].dtype, call->in[2].data, 0, j->p.n, after);
        j->bias = after;
    }
}

static void run(const lc_call *call)
{
    job *j = call->state;
    j->accumulate = call->accumulate;
    j->scratch = call->scratch;
    j->x = call->in[0].data;
    j->y = call->in[1].data;
    j->out = call->out[j->after.kind == EPILOGUE_GELU ? call->n_out - 1 : 0].data;
    set_epilogue(call, j);
    if (j->by_matrix) {
        lc__parallel_for(call->threads, j->matrices, 1, some_matrices, j);
        return;
    }
    for (int64_t i = 0; i < j->matrices; i++) {
        job one = matrix_of(j, i);
        run_matrix(call->threads, &one);
    }
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
