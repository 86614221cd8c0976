/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention, forward and backward, without an S x S matrix: a head is computed in blocks of queries.
 * Scores of a block are stored transposed, [keys][QUERIES], in the second-level cache: a vector holds the scores of
 * neighboring queries for one key. So keys and values are used in place, only the block's queries (and, in backward,
 * gradients) are transposed, and a softmax needs no sums across a vector.
 *
 * Under a causal mask nothing is computed for keys that a vector of queries (in the products with keys and values) or a
 * group of rows (in those with scores) cannot see. Threads take whole heads. */
#include "backends/cpu/isa/gemm.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/isa/vmath.h"
#include "backends/cpu/parallel.h"
#include "ops/ops.h"

#define QUERIES 64 /* per block */
#define GROUP   16 /* the granularity at which the diagonal is cut; a multiple of every vector's width */
#define CHUNK   64 /* keys whose exponentials are summed before they are added to the rest */

typedef struct job {
    const lc_view *q, *k, *v, *mask, *y, *dy, *lse, *dq, *dk, *dv;
    int n_outer; /* dimensions before the last two */
    int64_t heads, s, sk, d, dv_size;
    bool causal;
    float scale;
    float *scratch;
    int64_t scratch_step; /* floats per thread */
} job;

/* Some queries of a head, and the keys that any of them sees: all of them see the first `common`; of the others, which
 * start at the block's own diagonal, query r sees key `common` + i if r >= i. */
typedef struct block {
    int64_t head, first, rows, seen, common;
} block;

static float *head_of(const job *j, const lc_view *v, int64_t head)
{
    int64_t at = 0;
    for (int d = j->n_outer - 1; d >= 0; d--) {
        at += head % j->q->shape[d] * v->stride[d];
        head /= j->q->shape[d];
    }
    return (float *)v->data + at;
}

static int64_t row_stride(const lc_view *v)
{
    return v->stride[v->ndim - 2];
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

typedef float quad __attribute__((vector_size(16)));
typedef float quad_any __attribute__((vector_size(16), aligned(4), may_alias));

/* to[d][r] = x[r][d] * scale, with zeros after the last row. */
static void transpose(const float *x, int64_t step, int64_t rows, int64_t size, float scale, float *restrict to)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const float *row = x + r * step;
        int64_t d = 0;
        for (; d + 4 <= size; d += 4) {
            quad a = *(const quad_any *)(row + d) * scale, b = *(const quad_any *)(row + step + d) * scale;
            quad c = *(const quad_any *)(row + 2 * step + d) * scale,
                 e = *(const quad_any *)(row + 3 * step + d) * scale;
            quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
            quad ce0 = __builtin_shufflevector(c, e, 0, 4, 1, 5), ce1 = __builtin_shufflevector(c, e, 2, 6, 3, 7);
            *(quad_any *)(to + d * QUERIES + r) = __builtin_shufflevector(ab0, ce0, 0, 1, 4, 5);
            *(quad_any *)(to + (d + 1) * QUERIES + r) = __builtin_shufflevector(ab0, ce0, 2, 3, 6, 7);
            *(quad_any *)(to + (d + 2) * QUERIES + r) = __builtin_shufflevector(ab1, ce1, 0, 1, 4, 5);
            *(quad_any *)(to + (d + 3) * QUERIES + r) = __builtin_shufflevector(ab1, ce1, 2, 3, 6, 7);
        }
        for (; d < size; d++) {
            for (int64_t i = 0; i < 4; i++) to[d * QUERIES + r + i] = row[i * step + d] * scale;
        }
    }
    for (; r < QUERIES; r++) {
        for (int64_t d = 0; d < size; d++) to[d * QUERIES + r] = r < rows ? x[r * step + d] * scale : 0.f;
    }
}

/* ---- products ---- */
/* out[key][r] = x[key] . rows[r]: queries times keys, or gradients times values. `transposed` is [size][QUERIES]. Left
 * out if no query of a group sees the key. */
static void product_with_keys(const block *b, const float *x, int64_t step, int64_t size, const float *transposed,
                              float *out)
{
    const int64_t lanes = lanes_of(b);
    gemm(b->common, lanes, size, x, step, 1, transposed, QUERIES, out, QUERIES, false);
    for (int64_t g = 0; b->common + g < b->seen; g += GROUP) {
        int64_t key = b->common + g, keys = b->seen - key < GROUP ? b->seen - key : GROUP;
        float *to = out + key * QUERIES;
        gemm(keys, lanes - g, size, x + key * step, step, 1, transposed + g, QUERIES, to + g, QUERIES, false);
    }
}

/* Prefetches rows of a result, so that they arrive while the first sums are computed. Inlined, because compilers drop
 * calls of a function that only prefetches. */
LC_INLINE void expect_rows(const float *to, int64_t step, int64_t rows, int64_t size)
{
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < size; i += 64 / (int64_t)sizeof *to) __builtin_prefetch(to + r * step + i, 1);
    }
}

/* to[r] = sum over the keys that r sees of w[key][r] * x[key]. */
static void sum_over_keys(const block *b, const float *w, const float *x, int64_t step, int64_t size, float *to,
                          int64_t to_step)
{
    if (b->common == b->seen) {
        gemm(b->rows, size, b->seen, w, 1, QUERIES, x, step, to, to_step, false);
        return;
    }
    for (int64_t r = 0; r < b->rows; r += GEMM_ROWS) {
        int64_t rows = b->rows - r < GEMM_ROWS ? b->rows - r : GEMM_ROWS;
        int64_t seen = b->common + r + rows < b->seen ? b->common + r + rows : b->seen;
        expect_rows(to + r * to_step, to_step, rows, size);
        gemm(rows, size, seen, w + r, 1, QUERIES, x, step, to + r * to_step, to_step, false);
    }
}

/* to[key] (+)= sum over the queries that see it of w[key][r] * rows[r]. Blocks come in order: the first contribution to
 * a key is by the first block, or by the one whose diagonal passes it. */
static void sum_over_queries(const block *b, const float *w, const float *rows, int64_t step, int64_t size, float *to,
                             int64_t to_step)
{
    gemm(b->common, size, b->rows, w, QUERIES, 1, rows, step, to, to_step, b->first > 0);
    for (int64_t g = 0; b->common + g < b->seen; g += GROUP) {
        int64_t key = b->common + g, keys = b->seen - key < GROUP ? b->seen - key : GROUP;
        expect_rows(to + key * to_step, to_step, keys, size);
        gemm(keys, size, b->rows - g, w + key * QUERIES + g, QUERIES, 1, rows + g * step, step, to + key * to_step,
             to_step, false);
    }
}

/* ---- masks ---- */
/* Distance from dimension `from_end` (1: last) of the mask to its next element; 0 if it is broadcast. */
static int64_t mask_stride(const lc_view *m, int from_end)
{
    int d = m->ndim - from_end;
    return d >= 0 && m->shape[d] != 1 ? m->stride[d] : 0;
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
        if (m->dtype == LC_F32) {
            const float *add = (const float *)m->data + at;
            for (int64_t r = 0; r < b->rows; r++) scores[r] += add[r * next_query];
        } else {
            const uint8_t *see = (const uint8_t *)m->data + at;
            for (int64_t r = 0; r < b->rows; r++) scores[r] = see[r * next_query] ? scores[r] : -INFINITY;
        }
    }
}

/* Scores of all keys that the block sees, masked except for the diagonal. `queries`: transposed and scaled. */
static void score(const job *j, const block *b, const float *k, const float *queries, float *scores)
{
    product_with_keys(b, k, row_stride(j->k), j->d, queries, scores);
    if (j->mask) apply_mask(j, b, scores);
}

/* ---- forward ---- */
/* Returns the number of keys that some query of a vector sees; among the last ones, keys that a query does not see get
 * the score -infinity. */
static int64_t hide(const block *b, int lane, float *scores)
{
    int64_t end = b->common + (lane / GROUP + 1) * GROUP;
    if (b->common == b->seen || end > b->seen) end = b->seen;
    for (int64_t key = b->common + lane + 1; key < end; key++) {
        for (int r = lane; r < lane + VW && r < key - b->common; r++) scores[key * QUERIES + r] = -INFINITY;
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

/* Scores become exp(score - max of the query), 0 where a query does not see the key; sums[r] their sum, lse[r] the
 * logarithm of the sum of exp(score). A query that sees nothing has weights and sum 0. */
static void softmax(const block *b, float *scores, float *sums, float *lse)
{
    const int lanes = lanes_of(b);
    for (int lane = 0; lane < lanes; lane += VW) {
        const int64_t end = hide(b, lane, scores);
        vf max = vsplat(-INFINITY), shift, sum = vzero();
        float *p = scores + lane;
        for (int64_t key = 0; key < end; key++) {
            const vf x = vload(p + key * QUERIES);
            max = vselect(x > max, x, max);
        }
        shift = vselect(max == -INFINITY, vzero(), max);
        for (int64_t key = 0; key < end;) {
            const int64_t stop = key + CHUNK < end ? key + CHUNK : end;
            vf part = vzero();
            for (; key < stop; key++) {
                const vf w = weight(vload(p + key * QUERIES) - shift);
                vstore(p + key * QUERIES, w);
                part += w;
            }
            sum += part;
        }
        for (int64_t key = end; key < b->seen; key++) vstore(p + key * QUERIES, vzero());
        vstore(sums + lane, sum);
        vstore(lse + lane, max);
    }
    for (int r = 0; r < lanes; r++) lse[r] += vm_log(sums[r]);
}

static void forward_head(const job *j, int64_t head, float *scratch)
{
    const float *q = head_of(j, j->q, head), *k = head_of(j, j->k, head), *v = head_of(j, j->v, head);
    float *y = head_of(j, j->y, head), *lse = head_of(j, j->lse, head);
    const int64_t qs = row_stride(j->q), ys = row_stride(j->y), ls = j->lse->stride[j->n_outer];
    float *queries = scratch, *scores = queries + j->d * QUERIES;
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        float sums[QUERIES], logs[QUERIES];
        transpose(q + first * qs, qs, b.rows, j->d, j->scale, queries);
        score(j, &b, k, queries, scores);
        softmax(&b, scores, sums, logs);
        sum_over_keys(&b, scores, v, row_stride(j->v), j->dv_size, y + first * ys, ys);
        for (int64_t r = 0; r < b.rows; r++) {
            float *row = y + (first + r) * ys;
            const float share = sums[r] == 0 ? 0.f : 1.f / sums[r];
            for (int64_t i = 0; i < j->dv_size; i++) row[i] *= share;
            lse[(first + r) * ls] = logs[r];
        }
    }
}

static void forward_heads(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t h = begin; h < end; h++) forward_head(j, h, j->scratch + thread * j->scratch_step);
}

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
    j.causal = call->ints[0] != 0;
    j.scale = (float)(call->ints[1] && call->floats ? call->floats[0] : 1 / sqrt((double)j.d));
    j.scratch = call->scratch;
    return j;
}

static bool last_dense(const lc_view *v)
{
    return v->dtype == LC_F32 && (v->shape[v->ndim - 1] == 1 || v->stride[v->ndim - 1] == 1);
}

static bool mask_known(const lc_view *m)
{
    return !given(m) || m->dtype == LC_F32 || m->dtype == LC_BOOL || m->dtype == LC_U8;
}

static bool forward_supports(const lc_call *call)
{
    for (int i = 0; i < 3; i++) {
        if (!last_dense(&call->in[i])) return false;
    }
    return numel(&call->in[0]) > 0 && numel(&call->in[1]) > 0 && call->n_in > 3 && mask_known(&call->in[3]) &&
           last_dense(&call->out[0]);
}

static int64_t forward_scratch(const job *j)
{
    return (j->d + j->sk) * QUERIES;
}

static lc_status forward_prepare(lc_call *call)
{
    job j = job_of(call, 0);
    call->scratch_bytes = (size_t)(call->threads > 1 ? call->threads : 1) * (size_t)forward_scratch(&j) * sizeof(float);
    return LC_OK;
}

static void forward_run(const lc_call *call)
{
    job j = job_of(call, 0);
    j.y = &call->out[0];
    j.lse = &call->out[1];
    j.scratch_step = forward_scratch(&j);
    lc__parallel_for(call->threads, j.heads, 1, forward_heads, &j);
}

static const lc_kernel forward_kernel = {
    .name = "attention_" LC_ISA_STRING,
    .layout = LC_WANT_LAST_DENSE,
    .supports = forward_supports,
    .prepare = forward_prepare,
    .run = forward_run,
};

/* ---- backward ---- */
/* Turns scores, and the gradients of weights in `ds`, into weights and the gradients of scores.
 *
 * lse is rounded, and large scores leave it few digits after the point, so weights are divided by their own sum. A
 * weight's gradient counts by its distance from the weighted mean of all. That mean is computed from these very numbers
 * (not as the product of y and its gradient), so that it is exactly the gradient of a weight that is almost 1. */
static void softmax_backward(const block *b, const float *lse, float scale, float *scores, float *ds)
{
    const int lanes = lanes_of(b);
    for (int lane = 0; lane < lanes; lane += VW) {
        const int64_t end = hide(b, lane, scores);
        const vf shift = vload(lse + lane);
        vf sum = vzero(), dot = vzero();
        float *p = scores + lane, *g = ds + lane;
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
        const vf share = vselect(sum == 0, vzero(), 1.f / sum), mean = dot * share;
        for (int64_t key = 0; key < end; key++) {
            const vf w = vload(p + key * QUERIES) * share, x = vload(g + key * QUERIES);
            vstore(p + key * QUERIES, w);
            vstore(g + key * QUERIES, vselect(w == 0, vzero(), w * (x - mean) * scale));
        }
        for (int64_t key = end; key < b->seen; key++) {
            vstore(p + key * QUERIES, vzero());
            vstore(g + key * QUERIES, vzero());
        }
    }
}

static void backward_head(const job *j, int64_t head, float *scratch)
{
    const float *q = head_of(j, j->q, head), *k = head_of(j, j->k, head), *v = head_of(j, j->v, head);
    const float *dy = head_of(j, j->dy, head), *lse = head_of(j, j->lse, head);
    float *dq = head_of(j, j->dq, head), *dk = head_of(j, j->dk, head), *dv = head_of(j, j->dv, head);
    const int64_t qs = row_stride(j->q), gs = row_stride(j->dy), ks = row_stride(j->k);
    const int64_t dqs = row_stride(j->dq), dks = row_stride(j->dk), dvs = row_stride(j->dv);
    const int64_t ls = j->lse->stride[j->n_outer];
    float *queries = scratch, *gradients = queries + j->d * QUERIES, *scores = gradients + j->dv_size * QUERIES;
    float *ds = scores + j->sk * QUERIES;
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        float logs[QUERIES];
        transpose(q + first * qs, qs, b.rows, j->d, j->scale, queries);
        transpose(dy + first * gs, gs, b.rows, j->dv_size, 1, gradients);
        for (int64_t r = 0; r < QUERIES; r++) {
            const float l = r < b.rows ? lse[(first + r) * ls] : -INFINITY;
            logs[r] = l == -INFINITY ? INFINITY : l; /* it sees nothing: weights of 0 */
        }
        score(j, &b, k, queries, scores);
        product_with_keys(&b, v, row_stride(j->v), j->dv_size, gradients, ds);
        softmax_backward(&b, logs, j->scale, scores, ds);
        sum_over_keys(&b, ds, k, ks, j->d, dq + first * dqs, dqs);
        sum_over_queries(&b, ds, q + first * qs, qs, j->d, dk, dks);
        sum_over_queries(&b, scores, dy + first * gs, gs, j->dv_size, dv, dvs);
    }
    /* Keys after the last diagonal. */
    for (int64_t key = j->causal ? j->s : j->sk; key < j->sk; key++) {
        memset(dk + key * dks, 0, (size_t)j->d * sizeof *dk);
        memset(dv + key * dvs, 0, (size_t)j->dv_size * sizeof *dv);
    }
}

static void backward_heads(const void *context, int64_t begin, int64_t end, int thread)
{
    const job *j = context;
    for (int64_t h = begin; h < end; h++) backward_head(j, h, j->scratch + thread * j->scratch_step);
}

/* dy q k v mask? y lse */
static bool backward_supports(const lc_call *call)
{
    for (int i = 0; i < 4; i++) {
        if (!last_dense(&call->in[i])) return false;
    }
    for (int i = 0; i < 3; i++) {
        if (!last_dense(&call->out[i])) return false;
    }
    return numel(&call->in[1]) > 0 && numel(&call->in[2]) > 0 && mask_known(&call->in[4]);
}

static int64_t backward_scratch(const job *j)
{
    return (j->d + j->dv_size + 2 * j->sk) * QUERIES;
}

static lc_status backward_prepare(lc_call *call)
{
    job j = job_of(call, 1);
    call->scratch_bytes =
        (size_t)(call->threads > 1 ? call->threads : 1) * (size_t)backward_scratch(&j) * sizeof(float);
    return LC_OK;
}

static void backward_run(const lc_call *call)
{
    job j = job_of(call, 1);
    j.dy = &call->in[0];
    j.lse = &call->in[6];
    j.dq = &call->out[0];
    j.dk = &call->out[1];
    j.dv = &call->out[2];
    j.scratch_step = backward_scratch(&j);
    lc__parallel_for(call->threads, j.heads, 1, backward_heads, &j);
}

static const lc_kernel backward_kernel = {
    .name = "attention_backward_" LC_ISA_STRING,
    .layout = LC_WANT_LAST_DENSE,
    .supports = backward_supports,
    .prepare = backward_prepare,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__attention_kernels)[] = {
    {&lc__op_sdpa, &forward_kernel},
    {&lc__op_sdpa_backward, &backward_kernel},
    {NULL, NULL},
};
