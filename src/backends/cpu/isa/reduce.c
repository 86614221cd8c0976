/* SPDX-License-Identifier: Apache-2.0 */
/* sum, mean, amax and amin over any set of dimensions of a dense tensor (or one whose innermost dimension is dense).
 *
 * Dimensions are put in the order of memory and merged into groups that are reduced or kept. The result is one of: rows
 * (kept, reduced), columns (kept, reduced, kept), or planes (reduced, kept, reduced); the reference kernel does the
 * others. Sums run over short stretches in float and are added in double; the cuts depend only on the shape. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath.h"
#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <stdlib.h>

#define COLUMNS    512   /* columns that are reduced at a time, at most */
#define CHUNKS     4     /* more columns are cut into a multiple of this many chunks, which threads share evenly */
#define STRETCH    16384 /* elements of a part of a long row */
#define MAX_PARTS  256   /* parts that a reduction is cut into */
#define GROUP_ROWS 64    /* rows that are added in float */

typedef enum what { SUM, MAX, MIN } what;

typedef struct group {
    int64_t size, in, out; /* strides */
    bool reduced;
} group;

typedef struct pattern {
    int n;
    group g[LC_MAX_DIMS];
} pattern;

static bool is_reduced(const lc_call *call, int d)
{
    for (int64_t i = 0; i < call->ints[1]; i++) {
        if (call->ints[2 + i] == d) return true;
    }
    return false;
}

static pattern pattern_of(const lc_call *call)
{
    const lc_view *x = &call->in[0], *y = &call->out[0];
    group dims[LC_MAX_DIMS];
    int n = 0, kept = 0;
    for (int d = 0; d < x->ndim; d++) {
        group g = {x->shape[d], x->stride[d], 0, is_reduced(call, d)};
        if (!g.reduced) g.out = y->stride[call->ints[0] ? d : kept];
        if (!g.reduced) kept++;
        if (g.size == 1) continue;
        int at = n++;
        while (at > 0 && dims[at - 1].in < g.in) {
            dims[at] = dims[at - 1];
            at--;
        }
        dims[at] = g;
    }
    pattern p = {0};
    for (int i = 0; i < n; i++) {
        group *last = p.n ? &p.g[p.n - 1] : NULL;
        const group *g = &dims[i];
        if (last && last->reduced == g->reduced && last->in == g->in * g->size && last->out == g->out * g->size) {
            last->size *= g->size;
            last->in = g->in;
            last->out = g->out;
        } else {
            p.g[p.n++] = *g;
        }
    }
    if (!p.n) p.g[p.n++] = (group){1, 1, 1, true};
    return p;
}

/* ---- parts of rows ---- */
static double row_extreme(const float *x, int64_t n, bool largest)
{
    vf best = vsplat(largest ? -INFINITY : INFINITY);
    vi nan = {0};
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf v = vload(x + i);
        nan |= v != v;
        best = vselect(largest ? v > best : v < best, v, best);
    }
    float lanes[VW], value = largest ? -INFINITY : INFINITY;
    int any = 0;
    vstore(lanes, best);
    for (int k = 0; k < VW; k++) {
        any |= nan[k];
        value = (largest ? lanes[k] > value : lanes[k] < value) ? lanes[k] : value;
    }
    for (; i < n; i++) {
        any |= x[i] != x[i];
        value = (largest ? x[i] > value : x[i] < value) ? x[i] : value;
    }
    return any ? NAN : (double)value;
}

static double neutral(what w)
{
    return w == SUM ? 0 : w == MAX ? -INFINITY : INFINITY;
}

static double join(what w, double a, double b)
{
    if (w == SUM) return a + b;
    if (a != a || b != b) return NAN;
    return (w == MAX ? a > b : a < b) ? a : b;
}

/* n numbers from element `at` on, as chunks of floats. */
static double reduce_row(what w, const lc_view *x, int64_t at, int64_t n)
{
    double total = neutral(w);
    if (x->dtype == LC_F32) {
        const float *row = (const float *)x->data + at;
        return w == SUM ? row_sum(row, n) : row_extreme(row, n, w == MAX);
    }
    for (int64_t first = 0; first < n; first += ROW_CHUNK) {
        float copy[ROW_CHUNK];
        const int64_t count = row_chunk(n - first);
        get_run(x->dtype, x->data, at + first, count, copy);
        total = join(w, total, w == SUM ? row_sum(copy, count) : row_extreme(copy, count, w == MAX));
    }
    return total;
}

/* Sums of some columns over rows, the first from element `at` on. */
LC_INLINE void sum_vectors(const lc_dtype t, const void *x, int64_t at, int64_t rows, int64_t step, float *to,
                           const int vectors)
{
    vf sum[4];
    int64_t r = 0;
    for (int u = 0; u < vectors; u++) sum[u] = vzero();
    for (; r + 4 <= rows; r += 4, at += 4 * step) {
        for (int u = 0; u < vectors; u++) {
            const int64_t i = at + u * VW;
            sum[u] += (vget(t, x, i) + vget(t, x, i + step)) + (vget(t, x, i + 2 * step) + vget(t, x, i + 3 * step));
        }
    }
    for (; r < rows; r++, at += step)
        for (int u = 0; u < vectors; u++) sum[u] += vget(t, x, at + u * VW);
    for (int u = 0; u < vectors; u++) vstore(to + u * VW, sum[u]);
}

LC_INLINE float sum_column(const lc_dtype t, const void *x, int64_t at, int64_t rows, int64_t step)
{
    float sum = 0;
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4, at += 4 * step)
        sum += (get(t, x, at) + get(t, x, at + step)) + (get(t, x, at + 2 * step) + get(t, x, at + 3 * step));
    for (; r < rows; r++, at += step) sum += get(t, x, at);
    return sum;
}

LC_INLINE void sum_columns(const lc_dtype t, const void *x, int64_t at, int64_t rows, int64_t step, int64_t count,
                           float *to)
{
    int64_t c = 0;
    for (; c + 4 * VW <= count; c += 4 * VW) sum_vectors(t, x, at + c, rows, step, to + c, 4);
    for (; c + VW <= count; c += VW) sum_vectors(t, x, at + c, rows, step, to + c, 1);
    for (; c < count; c++) to[c] = sum_column(t, x, at + c, rows, step);
}

static void extreme_of_columns(what w, const lc_view *x, int64_t at, int64_t rows, int64_t step, int64_t count,
                               float *restrict best)
{
    float copy[COLUMNS];
    get_run(x->dtype, x->data, at, count, best);
    for (int64_t r = 1; r < rows; r++) {
        const float *row = floats_of(x->dtype, x->data, at + r * step, count, copy);
        if (w == MAX) {
            for (int64_t c = 0; c < count; c++) best[c] = row[c] > best[c] || row[c] != row[c] ? row[c] : best[c];
        } else {
            for (int64_t c = 0; c < count; c++) best[c] = row[c] < best[c] || row[c] != row[c] ? row[c] : best[c];
        }
    }
}

/* total[c] = reduction of `count` <= COLUMNS columns over rows, the first from element `at` on. */
static void reduce_columns(what w, const lc_view *x, int64_t at, int64_t rows, int64_t step, int64_t count,
                           double *restrict total)
{
    float part[COLUMNS];
    for (int64_t c = 0; c < count; c++) total[c] = neutral(w);
    for (int64_t first = 0; first < rows; first += GROUP_ROWS) {
        const int64_t n = rows - first < GROUP_ROWS ? rows - first : GROUP_ROWS, from = at + first * step;
        if (w == SUM)
            STORED(x->dtype, sum_columns, x->data, from, n, step, count, part);
        else
            extreme_of_columns(w, x, from, n, step, count, part);
        for (int64_t c = 0; c < count; c++) total[c] = join(w, total[c], (double)part[c]);
    }
}

/* ---- cutting a pattern ---- */
typedef enum shape { ROWS, LONG_ROW, COLUMN_CHUNKS, COLUMN_PARTS, PLANES } shape;

typedef struct plan {
    shape shape;
    what what;
    double scale;
    const lc_view *x, *y;
    double *partial;
    group k1, r1, k2, r2; /* the groups, size 1 if there is none: ROWS k1 r2, COLUMNS k1 r1 k2, PLANES r1 k1 r2 */
    int64_t parts, rows_per_part, chunks, width; /* columns of a chunk */
} plan;

/* Everything that follows from the shape. */
static bool make_plan(const lc_call *call, plan *p)
{
    const group one = {1, 0, 0, false};
    pattern g = pattern_of(call);
    *p = (plan){.scale = 1, .k1 = one, .r1 = one, .k2 = one, .r2 = one, .parts = 1};
    const group *last = &g.g[g.n - 1];
    if (last->in != 1 && last->size != 1) return false;
    int64_t count = 1;
    for (int i = 0; i < g.n; i++) {
        if (g.g[i].reduced) count *= g.g[i].size;
    }
    for (int i = 1; i < g.n; i++) {
        if (g.g[i].reduced == g.g[i - 1].reduced) return false; /* not mergeable: none of the patterns */
    }
    if (call->op == &lc__op_mean) p->scale = 1.0 / (double)count;
    if (last->reduced) {
        p->r2 = *last;
        if (g.n == 1) {
            p->parts = (last->size + STRETCH - 1) / STRETCH;
            if (p->parts > MAX_PARTS) p->parts = MAX_PARTS;
            p->rows_per_part = (last->size + p->parts - 1) / p->parts;
            p->shape = p->parts > 1 ? LONG_ROW : ROWS;
            return true;
        }
        p->k1 = g.g[g.n - 2];
        p->shape = ROWS;
        if (g.n == 2) return true;
        p->r1 = g.g[0];
        p->shape = PLANES;
        return g.n == 3;
    }
    if (g.n == 1) return false; /* nothing is reduced: a copy */
    p->k2 = *last;
    p->r1 = g.g[g.n - 2];
    if (g.n == 3) p->k1 = g.g[0];
    if (g.n > 3) return false;
    p->chunks = p->k2.size <= COLUMNS ? 1 : (p->k2.size + CHUNKS * COLUMNS - 1) / (CHUNKS * COLUMNS) * CHUNKS;
    p->width = ((p->k2.size + p->chunks - 1) / p->chunks + 15) / 16 * 16;
    p->chunks = (p->k2.size + p->width - 1) / p->width;
    p->shape = COLUMN_CHUNKS;
    /* Few columns, many rows: cut the rows. */
    int64_t bytes = p->r1.size * p->k2.size * 4;
    if (p->k1.size == 1 && p->k2.size < 2 * COLUMNS && bytes > 65536) {
        p->shape = COLUMN_PARTS;
        p->parts = bytes / 65536 < 64 ? bytes / 65536 : 64;
        if (p->parts > p->r1.size) p->parts = p->r1.size;
        p->rows_per_part = (p->r1.size + p->parts - 1) / p->parts;
    }
    return true;
}

static void store(const plan *p, int64_t at, double value)
{
    STORED(p->y->dtype, put, p->y->data, at, (float)(value * p->scale));
}

static void run_rows(const void *context, int64_t begin, int64_t end, int thread)
{
    const plan *p = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        double total = neutral(p->what);
        for (int64_t r = 0; r < p->r1.size; r++)
            total = join(p->what, total, reduce_row(p->what, p->x, k * p->k1.in + r * p->r1.in, p->r2.size));
        store(p, k * p->k1.out, total);
    }
}

static void run_long_row(const void *context, int64_t begin, int64_t end, int thread)
{
    const plan *p = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t first = k * p->rows_per_part, n = p->r2.size - first;
        if (n > p->rows_per_part) n = p->rows_per_part;
        p->partial[k] = n > 0 ? reduce_row(p->what, p->x, first, n) : neutral(p->what);
    }
}

static void run_column_chunks(const void *context, int64_t begin, int64_t end, int thread)
{
    const plan *p = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        double total[COLUMNS];
        int64_t outer = k / p->chunks, first = k % p->chunks * p->width, n = p->k2.size - first;
        if (n > p->width) n = p->width;
        reduce_columns(p->what, p->x, outer * p->k1.in + first, p->r1.size, p->r1.in, n, total);
        for (int64_t c = 0; c < n; c++) store(p, outer * p->k1.out + (first + c) * p->k2.out, total[c]);
    }
}

static void run_column_parts(const void *context, int64_t begin, int64_t end, int thread)
{
    const plan *p = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t first = k * p->rows_per_part, rows = p->r1.size - first;
        if (rows > p->rows_per_part) rows = p->rows_per_part;
        for (int64_t c = 0; c < p->k2.size; c += COLUMNS) {
            int64_t n = p->k2.size - c < COLUMNS ? p->k2.size - c : COLUMNS;
            reduce_columns(p->what, p->x, first * p->r1.in + c, rows > 0 ? rows : 0, p->r1.in, n,
                           p->partial + k * p->k2.size + c);
        }
    }
}

static void run_reduction(const lc_call *call, what w)
{
    plan *p = call->state;
    p->what = w;
    p->x = &call->in[0];
    p->y = &call->out[0];
    p->partial = call->scratch;
    switch (p->shape) {
    case ROWS:
    case PLANES:
        lc__parallel_for(call->threads, p->k1.size, lc__block_size(p->r1.size * p->r2.size * 4, 1), run_rows, p);
        break;
    case LONG_ROW:
        lc__parallel_for(call->threads, p->parts, 1, run_long_row, p);
        for (int64_t k = 1; k < p->parts; k++) p->partial[0] = join(w, p->partial[0], p->partial[k]);
        store(p, 0, p->partial[0]);
        break;
    case COLUMN_CHUNKS:
        lc__parallel_for(call->threads, p->k1.size * p->chunks,
                         lc__block_size(p->r1.size * 4 * (p->k2.size < p->width ? p->k2.size : p->width), 1),
                         run_column_chunks, p);
        break;
    case COLUMN_PARTS:
        lc__parallel_for(call->threads, p->parts, 1, run_column_parts, p);
        for (int64_t c = 0; c < p->k2.size; c++) {
            double total = p->partial[c];
            for (int64_t k = 1; k < p->parts; k++) total = join(w, total, p->partial[k * p->k2.size + c]);
            store(p, c * p->k2.out, total);
        }
        break;
    }
}

static bool supports(const lc_call *call)
{
    plan p;
    return is_stored(call->in[0].dtype) && is_stored(call->out[0].dtype) && numel(&call->in[0]) > 0 &&
           make_plan(call, &p);
}

static lc_status prepare(lc_call *call)
{
    plan *p = malloc(sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory: the plan of a reduction");
    if (!make_plan(call, p)) {
        free(p);
        return lc_fail(LC_ERR_INTERNAL, "%s is not one of these reductions", call->op->name);
    }
    call->state = p;
    call->scratch_bytes = (size_t)p->parts * (size_t)(p->shape == COLUMN_PARTS ? p->k2.size : 1) * sizeof(double);
    return LC_OK;
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

static void sum_run(const lc_call *call)
{
    run_reduction(call, SUM);
}

static void amax_run(const lc_call *call)
{
    run_reduction(call, MAX);
}

static void amin_run(const lc_call *call)
{
    run_reduction(call, MIN);
}

#define REDUCTION_KERNEL(id)                                                                                           \
    static const lc_kernel id##_kernel = {                                                                             \
        .name = #id "_" LC_ISA_STRING,                                                                                 \
        .layout = LC_WANT_STRIDED,                                                                                     \
        .supports = supports,                                                                                          \
        .prepare = prepare,                                                                                            \
        .run = id##_run,                                                                                               \
        .release = release,                                                                                            \
    };
REDUCTION_KERNEL(sum)
REDUCTION_KERNEL(amax)
REDUCTION_KERNEL(amin)

const lc__kernel_entry LC_ISA_NAME(lc__reduce_kernels)[] = {
    {&lc__op_sum, &sum_kernel},
    {&lc__op_mean, &sum_kernel},
    {&lc__op_amax, &amax_kernel},
    {&lc__op_amin, &amin_kernel},
    {NULL, NULL},
};
