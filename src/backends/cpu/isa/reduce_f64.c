/* SPDX-License-Identifier: Apache-2.0 */
/* sum and mean in f64 over any set of dimensions of a tensor whose innermost dimension is dense.
 *
 * Dimensions are put in the order of memory, and merged into groups that are reduced or kept. If the innermost group is
 * reduced, its rows are summed; if it is kept, rows are added to a vector of sums. The groups before it are walked, so
 * any pattern is possible. Long sums are cut into parts, which depend only on the shape and are added in order. */
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath_f64.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS   256   /* sums of an item, at most */
#define PART      16384 /* elements of a part, at least */
#define MAX_PARTS 32
#define FEW_ITEMS 16 /* whose sums are cut into parts */

typedef struct group {
    int64_t size, in, out; /* strides */
} group;

/* An item is a run of up to COLUMNS neighbors of the result, or one element. */
typedef struct plan {
    int n_kept, n_reduced; /* groups, outermost first; without `columns` and `row` */
    group kept[LC_MAX_DIMS], reduced[LC_MAX_DIMS];
    group columns, row;                                  /* the innermost group: one of them has size 1 */
    int64_t items, chunks, terms, parts, terms_per_part; /* terms: rows that are added to an item */
    int64_t whole_row;
    double scale;
    const double *x;
    double *y, *partial;
} plan;

static bool is_reduced(const lc_call *call, int d)
{
    for (int64_t i = 0; i < call->ints[1]; i++) {
        if (call->ints[2 + i] == d) return true;
    }
    return false;
}

static void add_group(group *list, int *n, group g)
{
    group *last = *n ? &list[*n - 1] : NULL;
    if (last && last->in == g.in * g.size && last->out == g.out * g.size)
        *last = (group){last->size * g.size, g.in, g.out};
    else
        list[(*n)++] = g;
}

/* A long row is cut into rows of PART elements, so that its parts can be summed apart. */
static void cut_row(plan *p)
{
    p->whole_row = p->row.size;
    if (p->n_reduced || p->row.size < 2 * PART) return;
    p->reduced[p->n_reduced++] = (group){(p->row.size + PART - 1) / PART, PART, 0};
    p->row.size = PART;
}

static bool make_plan(const lc_call *call, plan *p)
{
    const lc_view *x = &call->in[0], *y = &call->out[0];
    int order[LC_MAX_DIMS], n = 0, kept = 0;
    int64_t out[LC_MAX_DIMS] = {0}, count = 1;
    *p = (plan){.columns = {1, 0, 0}, .row = {1, 0, 0}, .terms = 1, .parts = 1, .scale = 1};
    if (x->dtype != LC_F64 || y->dtype != LC_F64 || numel(x) < 1) return false;
    for (int d = 0; d < x->ndim; d++) {
        if (is_reduced(call, d))
            count *= x->shape[d];
        else
            out[d] = y->stride[call->ints[0] ? d : kept++];
        if (x->shape[d] == 1) continue;
        int at = n++;
        for (; at > 0 && x->stride[order[at - 1]] < x->stride[d]; at--) order[at] = order[at - 1];
        order[at] = d;
    }
    for (int i = 0; i < n; i++) {
        int d = order[i];
        group g = {x->shape[d], x->stride[d], out[d]};
        if (is_reduced(call, d))
            add_group(p->reduced, &p->n_reduced, g);
        else
            add_group(p->kept, &p->n_kept, g);
    }
    if (n && x->stride[order[n - 1]] != 1) return false;
    if (n && is_reduced(call, order[n - 1]))
        p->row = p->reduced[--p->n_reduced];
    else if (n)
        p->columns = p->kept[--p->n_kept];
    if (p->columns.size > 1 && p->columns.out != 1) return false;
    cut_row(p);
    p->chunks = (p->columns.size + COLUMNS - 1) / COLUMNS;
    p->items = p->chunks;
    for (int i = 0; i < p->n_kept; i++) p->items *= p->kept[i].size;
    for (int i = 0; i < p->n_reduced; i++) p->terms *= p->reduced[i].size;
    int64_t work = p->terms * p->row.size * (p->columns.size < COLUMNS ? p->columns.size : COLUMNS);
    if (p->items < FEW_ITEMS) p->parts = work / PART < MAX_PARTS ? work / PART : MAX_PARTS;
    if (p->parts > p->terms) p->parts = p->terms;
    if (p->parts < 1) p->parts = 1;
    p->terms_per_part = (p->terms + p->parts - 1) / p->parts;
    p->parts = (p->terms + p->terms_per_part - 1) / p->terms_per_part;
    if (call->op == &lc__op_mean) p->scale = 1 / (double)count;
    return true;
}

static int64_t offset_of(const group *list, int n, int64_t i, bool out)
{
    int64_t at = 0;
    for (int k = n - 1; k >= 0; k--) {
        at += i % list[k].size * (out ? list[k].out : list[k].in);
        i /= list[k].size;
    }
    return at;
}

/* Sums terms [first, last) of an item. */
static void sum_terms(const plan *p, const double *x, int64_t first, int64_t last, int64_t n, double *restrict sum)
{
    for (int64_t c = 0; c < n; c++) sum[c] = 0;
    for (int64_t t = first; t < last; t++) {
        const double *from = x + offset_of(p->reduced, p->n_reduced, t, false);
        if (p->row.size > 1) {
            int64_t left = p->whole_row > p->row.size ? p->whole_row - t * p->row.size : p->row.size;
            sum[0] += row_sum_f64(from, left < p->row.size ? left : p->row.size);
        } else {
            for (int64_t c = 0; c < n; c++) sum[c] += from[c];
        }
    }
}

static void run_items(const void *context, int64_t begin, int64_t end, int thread)
{
    const plan *p = context;
    (void)thread;
    for (int64_t k = begin; k < end; k++) {
        int64_t part = k % p->parts, item = k / p->parts, chunk = item % p->chunks, outer = item / p->chunks;
        int64_t c = chunk * COLUMNS, n = p->columns.size - c < COLUMNS ? p->columns.size - c : COLUMNS;
        int64_t first = part * p->terms_per_part, last = first + p->terms_per_part;
        double sum[COLUMNS], *to = p->y + offset_of(p->kept, p->n_kept, outer, true) + c;
        double *own = p->parts > 1 ? p->partial + k * COLUMNS : sum;
        sum_terms(p, p->x + offset_of(p->kept, p->n_kept, outer, false) + c, first, last < p->terms ? last : p->terms,
                  n, own);
        for (int64_t i = 0; p->parts == 1 && i < n; i++) to[i] = own[i] * p->scale;
    }
}

static void add_parts(const plan *p)
{
    for (int64_t item = 0; item < p->items; item++) {
        int64_t c = item % p->chunks * COLUMNS, n = p->columns.size - c < COLUMNS ? p->columns.size - c : COLUMNS;
        double *to = p->y + offset_of(p->kept, p->n_kept, item / p->chunks, true) + c;
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int64_t part = 0; part < p->parts; part++) sum += p->partial[(item * p->parts + part) * COLUMNS + i];
            to[i] = sum * p->scale;
        }
    }
}

static bool supports(const lc_call *call)
{
    plan p;
    return make_plan(call, &p);
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
    if (p->parts > 1) call->scratch_bytes = (size_t)(p->items * p->parts * COLUMNS) * sizeof(double);
    return LC_OK;
}

static void release(lc_call *call)
{
    free(call->state);
    call->state = NULL;
}

static void run(const lc_call *call)
{
    plan *p = call->state;
    p->x = call->in[0].data;
    p->y = call->out[0].data;
    p->partial = call->scratch;
    int64_t bytes = p->terms_per_part * p->row.size * (p->columns.size < COLUMNS ? p->columns.size : COLUMNS) * 8;
    lc__parallel_for(call->threads, p->items * p->parts, lc__block_size(bytes, 1), run_items, p);
    if (p->parts > 1) add_parts(p);
}

static const lc_kernel kernel = {
    .name = "sum_f64_" LC_ISA_STRING,
    .layout = LC_WANT_STRIDED,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};

const lc__kernel_entry LC_ISA_NAME(lc__reduce_f64_kernels)[] = {
    {&lc__op_sum, &kernel},
    {&lc__op_mean, &kernel},
    {NULL, NULL},
};
