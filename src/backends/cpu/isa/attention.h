/* SPDX-License-Identifier: Apache-2.0 */
/* How attention is cut into blocks of queries, and what their scores become: for attention.c, which computes in f32,
 * and attention_pairs.c, which multiplies numbers of bf16 in pairs.
 *
 * Scores of a block are stored transposed, [keys][QUERIES], in the second-level cache: a vector holds the scores of
 * neighboring queries for one key, and a softmax needs no sums across a vector. */
#ifndef LC_BACKENDS_CPU_ISA_ATTENTION_H
#define LC_BACKENDS_CPU_ISA_ATTENTION_H

#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"

#define QUERIES 64 /* per block */
#define GROUP   16 /* the granularity at which the diagonal is cut; a multiple of every vector's width */
#define CHUNK   64 /* keys whose exponentials are summed before they are added to the rest */

typedef struct job job;

/* Computes a head, in the thread's own memory. */
typedef void head_fn(const job *j, int64_t head, float *scratch);

struct job {
    head_fn *run;
    const lc_view *q, *k, *v, *mask, *y, *dy, *lse, *dq, *dk, *dv;
    int n_outer; /* dimensions before the last two */
    int64_t heads, s, sk, d, dv_size;
    bool causal;
    float scale;
    float *scratch;
    int64_t scratch_step; /* floats per thread */
};

/* Some queries of a head, and the keys that any of them sees: all of them see the first `common`; of the others, which
 * start at the block's own diagonal, query r sees key `common` + i if r >= i. */
typedef struct block {
    int64_t head, first, rows, seen, common;
} block;

static void *start_of(const job *j, const lc_view *v, int64_t head)
{
    int64_t at = 0;
    for (int d = j->n_outer - 1; d >= 0; d--) {
        at += head % j->q->shape[d] * v->stride[d];
        head /= j->q->shape[d];
    }
    return stored_at(v->dtype, v->data, at);
}

/* Forward: q k v mask? to y lse. Backward: dy q k v mask? y lse to dq dk dv. The caller adds scratch_step. */
static job job_of(const lc_call *call, bool backward, head_fn *run)
{
    const lc_view *in = call->in + backward, *out = call->out;
    job j = {.run = run, .q = &in[0], .k = &in[1], .v = &in[2], .mask = given(&in[3]) ? &in[3] : NULL};
    const int n = j.q->ndim;
    if (backward) {
        j.dy = &call->in[0], j.lse = &in[5];
        j.dq = &out[0], j.dk = &out[1], j.dv = &out[2];
    } else {
        j.y = &out[0], j.lse = &out[1];
    }
    j.n_outer = n - 2;
    j.heads = extent(j.q, 0, n - 2);
    j.s = j.q->shape[n - 2];
    j.sk = j.k->shape[n - 2];
    j.d = j.q->shape[n - 1];
    j.dv_size = j.v->shape[n - 1];
    j.causal = call->ints[0] != 0;
    j.scale = (float)(call->ints[1] && call->floats ? call->floats[0] : 1 / sqrt((double)j.d));
    j.scratch = call->scratch;
    return j;
}

static lc_status take_scratch(lc_call *call, const job *j)
{
    call->scratch_bytes = (size_t)(call->threads > 1 ? call->threads : 1) * (size_t)j->scratch_step * sizeof(float);
    return LC_OK;
}

static void run_some_heads(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t h = begin; h < end; h++) j->run(j, h, j->scratch + thread * j->scratch_step);
}

static void run_heads(const lc_call *call, const job *j)
{
    lc__parallel_for(call->threads, j->heads, 1, run_some_heads, j);
}

static block block_at(const job *j, int64_t head, int64_t first)
{
    block b = {.head = head, .first = first, .rows = j->s - first < QUERIES ? j->s - first : QUERIES};
    b.seen = j->causal && first + b.rows < j->sk ? first + b.rows : j->sk;
    b.common = j->causal && first < j->sk ? first : b.seen;
    return b;
}

/* The block's rows, rounded up to whole groups: the queries that are computed at once. */
static int lanes_of(const block *b)
{
    return (int)((b->rows + GROUP - 1) / GROUP * GROUP);
}

/* ---- masks ---- */
/* Distance from dimension `from_end` (1: last) of the mask to its next element; 0 if it is broadcast. */
static int64_t mask_stride(const lc_view *m, int from_end)
{
    int d = m->ndim - from_end;
    return d >= 0 && m->shape[d] != 1 ? m->stride[d] : 0;
}

LC_INLINE void add_mask(const lc_dtype t, const void *mask, int64_t at, int64_t step, int64_t rows, float *scores)
{
    for (int64_t r = 0; r < rows; r++) scores[r] += get(t, mask, at + r * step);
}

static void apply_mask(const job *j, const block *b, float *scores)
{
    const lc_view *m = j->mask;
    const int64_t next_query = mask_stride(m, 2), next_key = mask_stride(m, 1);
    int64_t at = b->first * next_query, head = b->head;
    for (int d = j->n_outer - 1; d >= 0; d--) {
        at += head % j->q->shape[d] * mask_stride(m, j->n_outer + 2 - d);
        head /= j->q->shape[d];
    }
    for (int64_t key = 0; key < b->seen; key++, at += next_key, scores += QUERIES) {
        if (is_stored(m->dtype)) {
            STORED(m->dtype, add_mask, m->data, at, next_query, b->rows, scores);
        } else {
            const uint8_t *see = (const uint8_t *)m->data + at;
            for (int64_t r = 0; r < b->rows; r++) scores[r] = see[r * next_query] ? scores[r] : -INFINITY;
        }
    }
}

/* ---- weights ---- */
/* The number of keys that some query of a group sees: of the one with this lane. */
static int64_t seen_by_group(const block *b, int64_t lane)
{
    const int64_t end = b->common + (lane / GROUP + 1) * GROUP;
    return b->common == b->seen || end > b->seen ? b->seen : end;
}

/* Returns the number of keys that some query of a vector sees; among the last ones, keys that a query does not see get
 * the score -infinity. */
static int64_t hide(const block *b, int lane, float *scores)
{
    const int64_t end = seen_by_group(b, lane);
    vi queries;
    for (int i = 0; i < VW; i++) queries[i] = i;
    for (int64_t key = b->common + lane + 1; key < end; key++) {
        float *p = scores + key * QUERIES + lane;
        vstore(p, vselect(queries < (int32_t)(key - b->common - lane), vsplat(-INFINITY), vload(p)));
    }
    return end;
}

/* Unsigned, so that the bits of unused numbers may wrap. */
typedef uint32_t bits __attribute__((vector_size(VW * 4)));

/* exp(x) for x up to 88; 0 where it would be less than the smallest normal number. */
LC_INLINE vf weight(vf x)
{
    const vf t = x * 1.44269504f + VM_ROUND, k = t - VM_ROUND, r = (x - k * VM_LN2_HI) - k * VM_LN2_LO;
    vf p = r * 0.001392625083f + 0.008363232884f;
    p = p * r + 0.04166655421f;
    p = p * r + 0.1666657667f;
    p = p * r + 0.5f;
    const vf y = 1.f + (r + r * r * p);
    return vselect(x < -87.f, vzero(), (vf)((bits)y + ((bits)t << 23)));
}

/* ---- weights in backward ---- */
/* shifts[r]: what is subtracted from a query's scores. */
static void shifts_of(const block *b, const float *lse, int64_t step, float *shifts)
{
    for (int64_t r = 0; r < QUERIES; r++) {
        const float l = r < b->rows ? lse[r * step] : -INFINITY;
        shifts[r] = l == -INFINITY ? INFINITY : l; /* it sees nothing: weights of 0 */
    }
}

/* Sums over the weights of a vector of queries. */
typedef struct totals {
    vf share, mean; /* 1 / the sum of weights; the weighted mean of the gradients of weights */
} totals;

/* Scores p[key] become weights, up to a factor; g[key]: the gradients of weights.
 *
 * lse is rounded, and large scores leave it few digits after the point, so weights are divided by their own sum. A
 * weight's gradient counts by its distance from the weighted mean of all. That mean is computed from these very numbers
 * (not as the product of y and its gradient), so that it is exactly the gradient of a weight that is almost 1. */
static totals weigh(int64_t end, vf shift, float *p, const float *g)
{
    vf sum = vzero(), dot = vzero();
    for (int64_t key = 0; key < end;) {
        const int64_t stop = key + CHUNK < end ? key + CHUNK : end;
        vf part = vzero(), part_dot = vzero();
        for (; key < stop; key++) {
            const vf w = weight(vload(p + key * QUERIES) - shift);
            vstore(p + key * QUERIES, w);
            part += w;
            part_dot += vselect(w == 0, vzero(), w * vload(g + key * QUERIES));
        }
        sum += part;
        dot += part_dot;
    }
    const vf share = vselect(sum == 0, vzero(), 1.f / sum);
    return (totals){share, dot * share};
}

static bool mask_known(const lc_view *m)
{
    return !given(m) || is_stored(m->dtype) || m->dtype == LC_BOOL || m->dtype == LC_U8;
}

#endif
