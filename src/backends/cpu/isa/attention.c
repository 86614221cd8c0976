/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention, forward and backward, without a matrix of S x S: a head is done some queries at a time,
 * whose scores stay in the second-level cache. Keys (and, going back, values) of a head are transposed once, so that
 * scores come in vectors. Under a causal mask, keys that no query of the block may see are never touched. Threads take
 * whole heads. */
#include "backends/cpu/isa/gemm.h"
#include "backends/cpu/isa/lists.h"
#include "backends/cpu/isa/rowmath.h"
#include "backends/cpu/isa/util.h"
#include "backends/cpu/parallel.h"
#include "tensor/ops/ops.h"

#define QUERIES 36 /* of a block; a multiple of the rows of gemm's blocks */
#define ALIGN   64 /* keys are padded to a multiple */

typedef struct job {
    const lc_view *q, *k, *v, *mask, *y, *dy, *lse, *dq, *dk, *dv;
    int n_outer; /* dimensions before the last two */
    int64_t heads, s, sk, d, dv_size, padded;
    bool causal;
    float scale;
    float *scratch;
    int64_t scratch_step; /* floats of each thread */
} job;

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

/* to[d][key] = x[key][d], with zeros behind the last key. */
static void transpose(const float *x, int64_t step, int64_t keys, int64_t padded, int64_t size, float *to)
{
    for (int64_t first = 0; first < padded; first += 16) {
        int64_t n = keys - first < 16 ? keys - first : 16;
        for (int64_t d = 0; d < size; d++) {
            float *restrict row = to + d * padded + first;
            for (int64_t i = 0; i < n; i++) row[i] = x[(first + i) * step + d];
            for (int64_t i = n < 0 ? 0 : n; i < 16; i++) row[i] = 0.f;
        }
    }
}

/* ---- masks ---- */
/* Distance from dimension `from_end` (1: last) of the mask to its next element; 0 where it is broadcast. */
static int64_t mask_stride(const lc_view *m, int from_end)
{
    int d = m->ndim - from_end;
    return d >= 0 && m->shape[d] != 1 ? m->stride[d] : 0;
}

static void apply_mask(const job *j, int64_t head, int64_t query, float *score, int64_t n)
{
    const lc_view *m = j->mask;
    int64_t at = query * mask_stride(m, 2), step = mask_stride(m, 1);
    for (int d = j->n_outer - 1; d >= 0; d--) {
        at += head % j->q->shape[d] * mask_stride(m, j->n_outer + 2 - d);
        head /= j->q->shape[d];
    }
    if (m->dtype == LC_F32) {
        const float *add = (const float *)m->data + at;
        for (int64_t i = 0; i < n; i++) score[i] += add[i * step];
    } else {
        const uint8_t *see = (const uint8_t *)m->data + at;
        for (int64_t i = 0; i < n; i++) score[i] = see[i * step] ? score[i] : -INFINITY;
    }
}

/* Scales and masks the scores of a query; returns how many keys it sees. */
static int64_t finish_scores(const job *j, int64_t head, int64_t query, float *score)
{
    int64_t n = j->causal && query + 1 < j->sk ? query + 1 : j->sk;
    for (int64_t i = 0; i < n; i++) score[i] *= j->scale;
    if (j->mask) apply_mask(j, head, query, score, n);
    return n;
}

/* How many keys queries up to `last` (exclusive) see, and that padded. */
static int64_t keys_seen(const job *j, int64_t last, int64_t *padded)
{
    int64_t n = j->causal && last < j->sk ? last : j->sk;
    *padded = (n + 15) / 16 * 16;
    return n;
}

/* ---- forward ---- */
static void forward_head(const job *j, int64_t head, float *scratch)
{
    const float *q = head_of(j, j->q, head), *k = head_of(j, j->k, head), *v = head_of(j, j->v, head);
    float *y = head_of(j, j->y, head), *lse = head_of(j, j->lse, head);
    const int64_t qs = row_stride(j->q), ys = row_stride(j->y), ls = j->lse->stride[j->n_outer];
    float *keys = scratch, *scores = keys + j->d * j->padded;
    transpose(k, row_stride(j->k), j->sk, j->padded, j->d, keys);
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        int64_t rows = j->s - first < QUERIES ? j->s - first : QUERIES, padded;
        int64_t seen = keys_seen(j, first + rows, &padded);
        float sums[QUERIES];
        gemm(rows, padded, j->d, q + first * qs, qs, 1, keys, j->padded, scores, j->padded, false);
        for (int64_t r = 0; r < rows; r++) {
            float *p = scores + r * j->padded;
            int64_t n = finish_scores(j, head, first + r, p);
            const float max = row_max(p, n);
            if (max == -INFINITY && n > 0 && p[0] == p[0]) { /* sees nothing: a row of zeros */
                memset(p, 0, (size_t)padded * sizeof *p);
                sums[r] = 1;
                lse[(first + r) * ls] = -INFINITY;
                continue;
            }
            LC_IVDEP
            for (int64_t i = 0; i < n; i++) p[i] = vm_exp(p[i] - max);
            const double sum = row_sum(p, n);
            memset(p + n, 0, (size_t)(padded - n) * sizeof *p);
            sums[r] = (float)sum;
            lse[(first + r) * ls] = (float)((double)max + log(sum));
        }
        gemm(rows, j->dv_size, seen, scores, j->padded, 1, v, row_stride(j->v), y + first * ys, ys, false);
        for (int64_t r = 0; r < rows; r++) {
            float *row = y + (first + r) * ys;
            const float share = 1.f / sums[r];
            for (int64_t i = 0; i < j->dv_size; i++) row[i] *= share;
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
    j.padded = (j.sk + ALIGN - 1) / ALIGN * ALIGN;
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
    return (j->d + QUERIES) * j->padded;
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
static void clear_rows(float *x, int64_t rows, int64_t step, int64_t n)
{
    for (int64_t r = 0; r < rows; r++) memset(x + r * step, 0, (size_t)n * sizeof *x);
}

static void backward_head(const job *j, int64_t head, float *scratch)
{
    const float *q = head_of(j, j->q, head), *k = head_of(j, j->k, head), *v = head_of(j, j->v, head);
    const float *y = head_of(j, j->y, head), *dy = head_of(j, j->dy, head), *lse = head_of(j, j->lse, head);
    float *dq = head_of(j, j->dq, head), *dk = head_of(j, j->dk, head), *dv = head_of(j, j->dv, head);
    const int64_t qs = row_stride(j->q), ys = row_stride(j->y), gs = row_stride(j->dy), ks = row_stride(j->k);
    const int64_t dqs = row_stride(j->dq), dks = row_stride(j->dk), dvs = row_stride(j->dv);
    const int64_t ls = j->lse->stride[j->n_outer], padded_keys = j->padded;
    float *keys = scratch, *values = keys + j->d * padded_keys, *scores = values + j->dv_size * padded_keys;
    float *ds = scores + QUERIES * padded_keys;
    transpose(k, ks, j->sk, padded_keys, j->d, keys);
    transpose(v, row_stride(j->v), j->sk, padded_keys, j->dv_size, values);
    clear_rows(dk, j->sk, dks, j->d);
    clear_rows(dv, j->sk, dvs, j->dv_size);
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        int64_t rows = j->s - first < QUERIES ? j->s - first : QUERIES, padded;
        int64_t seen = keys_seen(j, first + rows, &padded);
        gemm(rows, padded, j->d, q + first * qs, qs, 1, keys, padded_keys, scores, padded_keys, false);
        gemm(rows, padded, j->dv_size, dy + first * gs, gs, 1, values, padded_keys, ds, padded_keys, false);
        for (int64_t r = 0; r < rows; r++) {
            float *restrict p = scores + r * padded_keys, *restrict g = ds + r * padded_keys;
            int64_t n = finish_scores(j, head, first + r, p);
            const float norm = lse[(first + r) * ls], scale = j->scale;
            if (norm == -INFINITY) n = 0; /* sees nothing */
            const float delta = (float)row_dot(dy + (first + r) * gs, y + (first + r) * ys, j->dv_size);
            for (int64_t i = 0; i < n; i++) {
                float e = vm_exp(p[i] - norm);
                p[i] = e;
                g[i] = e * (g[i] - delta) * scale;
            }
            memset(p + n, 0, (size_t)(padded - n) * sizeof *p);
            memset(g + n, 0, (size_t)(padded - n) * sizeof *g);
        }
        gemm(rows, j->d, seen, ds, padded_keys, 1, k, ks, dq + first * dqs, dqs, false);
        gemm(seen, j->d, rows, ds, 1, padded_keys, q + first * qs, qs, dk, dks, true);
        gemm(seen, j->dv_size, rows, scores, 1, padded_keys, dy + first * gs, gs, dv, dvs, true);
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
    const int f32[] = {0, 1, 2, 3, 5};
    for (int i = 0; i < 5; i++) {
        if (!last_dense(&call->in[f32[i]])) return false;
    }
    for (int i = 0; i < 3; i++) {
        if (!last_dense(&call->out[i])) return false;
    }
    return numel(&call->in[1]) > 0 && numel(&call->in[2]) > 0 && mask_known(&call->in[4]);
}

static int64_t backward_scratch(const job *j)
{
    return (j->d + j->dv_size + 2 * QUERIES) * j->padded;
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
    j.y = &call->in[5];
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
