/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention in f64, forward and backward, without an S x S matrix: a head is computed in blocks of
 * queries, whose scores of all keys are rows in the second-level cache. Keys (and, in backward, values) are transposed
 * once for each head. Under a causal mask a block leaves out the keys that none of its queries sees. Threads take whole
 * heads. */
#define GEMM_OF_F64
#include "backends/cpu/isa/gemm.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath_f64.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#include <string.h>

#define QUERIES 48 /* per block */

typedef struct job {
    const lc_view *q, *k, *v, *mask, *y, *dy, *lse, *dq, *dk, *dv;
    int n_outer;                             /* dimensions before the last two */
    int64_t heads, s, sk, d, dv_size, lanes; /* lanes: of a row of scores */
    bool causal;
    double scale;
    double *scratch;
    int64_t scratch_step; /* per thread */
} job;

/* The rows of a head. */
typedef struct matrix {
    double *at;
    int64_t step;
} matrix;

/* Some queries of a head; keys from `seen` on are seen by none of them, and those from `before` on by none before. */
typedef struct block {
    int64_t head, first, rows, seen, before;
} block;

static matrix head_of(const job *j, const lc_view *v, int64_t head)
{
    int64_t at = 0;
    for (int d = j->n_outer - 1; d >= 0; d--) {
        at += head % j->q->shape[d] * v->stride[d];
        head /= j->q->shape[d];
    }
    return (matrix){(double *)v->data + at, v->stride[j->n_outer]};
}

static block block_at(const job *j, int64_t head, int64_t first)
{
    block b = {.head = head, .first = first, .rows = j->s - first < QUERIES ? j->s - first : QUERIES, .seen = j->sk};
    if (j->causal && first + b.rows < j->sk) b.seen = first + b.rows;
    b.before = first == 0 ? 0 : j->causal && first < j->sk ? first : j->sk;
    return b;
}

/* to[i][key] = x[key][i] */
static void transpose(const job *j, matrix x, int64_t size, double *to)
{
    for (int64_t key = 0; key < j->sk; key += 8) {
        int64_t end = key + 8 < j->sk ? key + 8 : j->sk;
        for (int64_t i = 0; i < size; i++) {
            for (int64_t k = key; k < end; k++) to[i * j->lanes + k] = x.at[k * x.step + i];
        }
    }
}

/* ---- scores ---- */
/* Distance from dimension `from_end` (1: last) of the mask to its next element; 0 if it is broadcast. */
static int64_t mask_stride(const lc_view *m, int from_end)
{
    int d = m->ndim - from_end;
    return d >= 0 && m->shape[d] != 1 ? m->stride[d] : 0;
}

static void mask_row(const job *j, const block *b, int64_t r, double *score)
{
    const lc_view *m = j->mask;
    const int64_t step = mask_stride(m, 1);
    int64_t at = (b->first + r) * mask_stride(m, 2), head = b->head;
    for (int d = j->n_outer - 1; d >= 0; d--) {
        at += head % j->q->shape[d] * mask_stride(m, j->n_outer + 2 - d);
        head /= j->q->shape[d];
    }
    if (m->dtype == LC_F64) {
        const double *add = (const double *)m->data + at;
        for (int64_t k = 0; k < b->seen; k++) score[k] += add[k * step];
    } else {
        const uint8_t *see = (const uint8_t *)m->data + at;
        for (int64_t k = 0; k < b->seen; k++) score[k] = see[k * step] ? score[k] : -(double)INFINITY;
    }
}

/* Scores become exp(score - max), 0 for keys that a query does not see; sum[r]: their sum, max[r]: of the scores. */
static void weigh(const job *j, const block *b, matrix q, const double *keys, double *scores, double *max, double *sum)
{
    gemm_f64(b->rows, b->seen, j->d, q.at + b->first * q.step, q.step, 1, keys, j->lanes, scores, j->lanes, false);
    for (int64_t r = 0; r < b->rows; r++) {
        double *x = scores + r * j->lanes;
        int64_t n = j->causal && b->first + r + 1 < b->seen ? b->first + r + 1 : b->seen;
        for (int64_t k = 0; k < n; k++) x[k] *= j->scale;
        if (j->mask) mask_row(j, b, r, x);
        max[r] = row_max_f64(x, n);
        const double shift = max[r] == -(double)INFINITY ? 0 : max[r];
        LC_IVDEP
        for (int64_t k = 0; k < n; k++) x[k] = vd_exp(x[k] - shift);
        for (int64_t k = n; k < b->seen; k++) x[k] = 0;
        sum[r] = row_sum_f64(x, n);
    }
}

/* ---- forward ---- */
static void forward_head(const job *j, int64_t head, double *scratch)
{
    double *keys = scratch, *scores = keys + j->d * j->lanes;
    const matrix q = head_of(j, j->q, head), k = head_of(j, j->k, head), v = head_of(j, j->v, head);
    const matrix y = head_of(j, j->y, head), lse = head_of(j, j->lse, head);
    transpose(j, k, j->d, keys);
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        double max[QUERIES], sum[QUERIES];
        weigh(j, &b, q, keys, scores, max, sum);
        gemm_f64(b.rows, j->dv_size, b.seen, scores, j->lanes, 1, v.at, v.step, y.at + first * y.step, y.step, false);
        for (int64_t r = 0; r < b.rows; r++) {
            double *row = y.at + (first + r) * y.step;
            const double share = sum[r] == 0 ? 0 : 1 / sum[r];
            for (int64_t i = 0; i < j->dv_size; i++) row[i] *= share;
            lse.at[(first + r) * lse.step] = max[r] + (sum[r] == 0 ? 0 : log(sum[r]));
        }
    }
}

static void forward_heads(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t h = begin; h < end; h++) forward_head(j, h, j->scratch + thread * j->scratch_step);
}

/* ---- backward ---- */
/* Scores become weights, and their gradients `ds` those of scores. The mean is of these very weights, so that it is
 * exactly the gradient of a weight that is almost 1. */
static void backward_rows(const job *j, const block *b, const double *sum, double *scores, double *ds)
{
    for (int64_t r = 0; r < b->rows; r++) {
        double *restrict p = scores + r * j->lanes, *restrict g = ds + r * j->lanes;
        const double share = sum[r] == 0 ? 0 : 1 / sum[r];
        for (int64_t k = 0; k < b->seen; k++) p[k] *= share;
        const double mean = row_dot_f64(p, g, b->seen);
        for (int64_t k = 0; k < b->seen; k++) g[k] = p[k] * (g[k] - mean) * j->scale;
    }
}

/* to[key] (+)= sum over the block's queries of w[r][key] * rows[r] */
static void sum_over_queries(const job *j, const block *b, const double *w, const double *rows, int64_t step,
                             int64_t size, matrix to)
{
    gemm_f64(b->before, size, b->rows, w, 1, j->lanes, rows, step, to.at, to.step, true);
    gemm_f64(b->seen - b->before, size, b->rows, w + b->before, 1, j->lanes, rows, step, to.at + b->before * to.step,
             to.step, false);
}

static void backward_head(const job *j, int64_t head, double *scratch)
{
    double *keys = scratch, *values = keys + j->d * j->lanes, *scores = values + j->dv_size * j->lanes;
    double *ds = scores + QUERIES * j->lanes;
    const matrix q = head_of(j, j->q, head), k = head_of(j, j->k, head), v = head_of(j, j->v, head);
    const matrix dy = head_of(j, j->dy, head), dq = head_of(j, j->dq, head);
    const matrix dk = head_of(j, j->dk, head), dv = head_of(j, j->dv, head);
    transpose(j, k, j->d, keys);
    transpose(j, v, j->dv_size, values);
    int64_t seen = 0;
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        const double *rows = dy.at + first * dy.step;
        double max[QUERIES], sum[QUERIES];
        weigh(j, &b, q, keys, scores, max, sum);
        gemm_f64(b.rows, b.seen, j->dv_size, rows, dy.step, 1, values, j->lanes, ds, j->lanes, false);
        backward_rows(j, &b, sum, scores, ds);
        gemm_f64(b.rows, j->d, b.seen, ds, j->lanes, 1, k.at, k.step, dq.at + first * dq.step, dq.step, false);
        sum_over_queries(j, &b, ds, q.at + first * q.step, q.step, j->d, dk);
        sum_over_queries(j, &b, scores, rows, dy.step, j->dv_size, dv);
        seen = b.seen;
    }
    for (; seen < j->sk; seen++) { /* keys that nobody sees */
        memset(dk.at + seen * dk.step, 0, (size_t)j->d * sizeof(double));
        memset(dv.at + seen * dv.step, 0, (size_t)j->dv_size * sizeof(double));
    }
}

static void backward_heads(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t h = begin; h < end; h++) backward_head(j, h, j->scratch + thread * j->scratch_step);
}

/* ---- kernels ---- */
/* q: the first of q, k, v and mask among the inputs */
static job job_of(const lc_call *call, int q)
{
    job j = {.q = &call->in[q], .k = &call->in[q + 1], .v = &call->in[q + 2]};
    int n = j.q->ndim;
    if (given(&call->in[q + 3])) j.mask = &call->in[q + 3];
    j.n_outer = n - 2;
    j.heads = extent(j.q, 0, n - 2);
    j.s = j.q->shape[n - 2];
    j.sk = j.k->shape[n - 2];
    j.d = j.q->shape[n - 1];
    j.dv_size = j.v->shape[n - 1];
    j.lanes = (j.sk + VD - 1) / VD * VD;
    j.causal = call->ints[0] != 0;
    j.scale = call->ints[1] && call->floats ? call->floats[0] : 1 / sqrt((double)j.d);
    j.scratch = call->scratch;
    j.scratch_step = q ? (j.d + j.dv_size + 2 * QUERIES) * j.lanes : (j.d + QUERIES) * j.lanes;
    return j;
}

static lc_status prepare(lc_call *call)
{
    job j = job_of(call, call->op == &lc__op_sdpa_backward ? 1 : 0);
    call->scratch_bytes = (size_t)(call->threads > 1 ? call->threads : 1) * (size_t)j.scratch_step * sizeof(double);
    return LC_OK;
}

static void forward_run(const lc_call *call)
{
    job j = job_of(call, 0);
    j.y = &call->out[0];
    j.lse = &call->out[1];
    lc__parallel_for(call->threads, j.heads, 1, forward_heads, &j);
}

/* dy q k v mask? y lse */
static void backward_run(const lc_call *call)
{
    job j = job_of(call, 1);
    j.dy = &call->in[0];
    j.dq = &call->out[0];
    j.dk = &call->out[1];
    j.dv = &call->out[2];
    lc__parallel_for(call->threads, j.heads, 1, backward_heads, &j);
}

static bool all_f64(const lc_view *v, int n)
{
    for (int i = 0; i < n; i++)
        if (v[i].dtype != LC_F64) return false;
    return true;
}

static bool supports(const lc_call *call)
{
    bool backward = call->op == &lc__op_sdpa_backward;
    const lc_view *mask = &call->in[backward ? 4 : 3];
    if (given(mask) && mask->dtype != LC_F64 && mask->dtype != LC_BOOL && mask->dtype != LC_U8) return false;
    return numel(mask - 3) > 0 && numel(mask - 2) > 0 && all_f64(call->in, backward ? 4 : 3) &&
           all_f64(call->out, backward ? 3 : 1);
}

static const lc_kernel forward_kernel = {
    .name = "attention_f64_" LC_ISA_STRING,
    .layout = LC_WANT_LAST_DENSE,
    .supports = supports,
    .prepare = prepare,
    .run = forward_run,
};

static const lc_kernel backward_kernel = {
    .name = "attention_backward_f64_" LC_ISA_STRING,
    .layout = LC_WANT_LAST_DENSE,
    .supports = supports,
    .prepare = prepare,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__attention_f64_kernels)[] = {
    {&lc__op_sdpa, &forward_kernel},
    {&lc__op_sdpa_backward, &backward_kernel},
    {NULL, NULL},
};
