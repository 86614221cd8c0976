/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention of bf16, forward and backward, with vectors that multiply pairs: the blocks of
 * attention.c. Two numbers that follow each other in a sum are neighbors in both factors of a product:
 *
 *   result                        first factor                                   second factor
 *   scores, gradients of weights  rows of keys, of values, in place              pairs of features of queries, of dy
 *   y, dq                         pairs of keys of weights, of ds                pairs of rows of values, of keys
 *   dv, dk                        the same as rows, [keys][QUERIES]              pairs of rows of dy, of queries
 *
 * As by PyTorch, weights and gradients of scores (ds) are rounded before they are multiplied. Sums are f32, and so are
 * the softmax and its gradient. */
#include "backends/cpu/isa/attention.h"
#include "backends/cpu/isa/gemm_pairs.h"
#include "backends/cpu/isa/lists.h"
#include "ops/ops.h"

/* The rows of a head. */
typedef struct matrix {
    uint16_t *at;
    int64_t step, size;
} matrix;

static matrix head_of(const job *j, const lc_view *v, int64_t head)
{
    return (matrix){start_of(j, v, head), v->stride[v->ndim - 2], v->shape[v->ndim - 1]};
}

static matrix rows_from(matrix m, int64_t first)
{
    m.at += first * m.step;
    return m;
}

static int64_t whole(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Numbers of a row of sums, or of pairs of rows. */
static int64_t wide(int64_t size)
{
    return whole(size, SIDE);
}

/* Pairs of `rows` rows. */
static int64_t row_pairs(int64_t rows, int64_t size)
{
    return whole(rows, STEP) / 2 * wide(size);
}

/* Pairs of features of a block's rows. */
static int64_t feature_pairs(int64_t size)
{
    return whole(size, STEP) / 2 * QUERIES;
}

/* to[i][n]: numbers n of rows 2 i and 2 i + 1; zeros after the last ones. */
static void pair_rows(matrix m, int64_t rows, pair *to)
{
    const int64_t step = wide(m.size);
    for (int64_t r = 0; r < rows; r += STEP) {
        for (int64_t n = 0; n < m.size; n += SIDE)
            tile_of_columns(BF16, 0, m.at, r * m.step + n, m.step, m.size - n, rows - r, false,
                            (char *)(to + r / 2 * step + n), step * (int64_t)sizeof *to);
    }
}

/* to[i][r]: numbers 2 i and 2 i + 1 of row r; zeros after the last ones. */
static void pair_features(matrix m, int64_t rows, pair *to)
{
    for (int64_t r = 0; r < rows; r += SIDE) {
        for (int64_t k = 0; k < m.size; k += STEP)
            tile_of_rows(BF16, 0, m.at, r * m.step + k, m.step, rows - r, m.size - k, true,
                         (char *)(to + k / 2 * QUERIES + r), QUERIES * (int64_t)sizeof *to);
    }
}

/* ---- products ---- */
/* out[key][r] = scale * x[key] . rows[r]. Left out if no query of a group sees the key. */
static void product_with_keys(const block *b, matrix x, const pair *rows, float scale, float *out)
{
    const int64_t lanes = lanes_of(b);
    pair_factors f = {x.at, x.step, 2, rows, QUERIES, scale, false};
    gemm_pairs(b->common, lanes, x.size / 2, f, out, QUERIES);
    for (int64_t g = 0; b->common + g < b->seen; g += GROUP) {
        const int64_t key = b->common + g, keys = b->seen - key < GROUP ? b->seen - key : GROUP;
        f.a = x.at + key * x.step;
        f.b = rows + g;
        gemm_pairs(keys, lanes - g, x.size / 2, f, out + key * QUERIES + g, QUERIES);
    }
}

/* to[r] = scale * sum over the keys that r sees of w[key][r] * x[key]; w and x are pairs of keys. */
static void sum_over_keys(const block *b, const pair *w, const pair *x, int64_t size, float scale, float *to)
{
    const int64_t step = wide(size), at_once = b->common == b->seen ? QUERIES : GROUP;
    pair_factors f = {(const uint16_t *)w, 2, 2 * QUERIES, x, step, scale, false};
    for (int64_t r = 0; r < b->rows; r += at_once, f.a += 2 * at_once) {
        const int64_t rows = b->rows - r < at_once ? b->rows - r : at_once;
        gemm_pairs(rows, step, (seen_by_group(b, r) + 1) / 2, f, to + r * step, step);
    }
}

/* to[key] (+)= scale * sum over the queries that see it of w[key][r] * rows[r]; `rows` are pairs of them. The first
 * contribution to a key is by the first block, or by the one whose diagonal passes it. */
static void sum_over_queries(const block *b, const uint16_t *w, const pair *rows, int64_t size, float scale, float *to)
{
    const int64_t step = wide(size);
    pair_factors f = {w, QUERIES, 2, rows, step, scale, b->first > 0};
    gemm_pairs(b->common, step, (b->rows + 1) / 2, f, to, step);
    f.add = false;
    for (int64_t g = 0; b->common + g < b->seen; g += GROUP) {
        const int64_t key = b->common + g, keys = b->seen - key < GROUP ? b->seen - key : GROUP;
        f.a = w + key * QUERIES + g;
        f.b = rows + g / 2 * step;
        gemm_pairs(keys, step, (b->rows - g + 1) / 2, f, to + key * step, step);
    }
}

/* ---- weights ---- */
/* Lanes of the nearest numbers of two vectors, as pairs. */
LC_INLINE __m512i paired(__m512i both)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, both);
}

/* The nearest numbers of bf16: of x in the lower half, of y in the upper one. */
LC_INLINE __m512i round_both(vf x, vf y)
{
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x);
}

/* Rows `key` and `key` + 1 of [keys][QUERIES]. */
LC_INLINE void store_rows(uint16_t *to, __m512i both)
{
    _mm256_storeu_si256((__m256i_u *)to, _mm512_castsi512_si256(both));
    _mm256_storeu_si256((__m256i_u *)(to + QUERIES), _mm512_extracti64x4_epi64(both, 1));
}

/* hide() with an even number of keys: the last one may be after those that there are. */
static int64_t hide_in_pairs(const block *b, int lane, float *scores)
{
    int64_t end = hide(b, lane, scores);
    if (end % 2) vstore(scores + end++ * QUERIES + lane, vsplat(-INFINITY));
    return end;
}

/* weights[key / 2][r]: exp(score - max of the query) of two keys; sums[r]: their sum before they are rounded; lse[r]
 * the logarithm of the sum of exp(score). A query that sees nothing has weights and sum 0. */
static void softmax(const block *b, float *scores, pair *weights, float *sums, float *lse)
{
    const int lanes = lanes_of(b);
    for (int lane = 0; lane < lanes; lane += VW) {
        const int64_t end = hide_in_pairs(b, lane, scores);
        const float *p = scores + lane;
        pair *to = weights + lane;
        __m512 even_max = _mm512_set1_ps(-INFINITY), odd_max = even_max; /* of numbers that are not NaN */
        for (int64_t key = 0; key < end; key += 2) {
            even_max = _mm512_max_ps(_mm512_loadu_ps(p + key * QUERIES), even_max);
            odd_max = _mm512_max_ps(_mm512_loadu_ps(p + (key + 1) * QUERIES), odd_max);
        }
        const vf max = (vf)_mm512_max_ps(even_max, odd_max), shift = vselect(max == -INFINITY, vzero(), max);
        vf sum = vzero();
        for (int64_t key = 0; key < end;) {
            const int64_t stop = key + CHUNK < end ? key + CHUNK : end;
            vf part = vzero();
            for (; key < stop; key += 2) {
                const vf even = weight(vload(p + key * QUERIES) - shift);
                const vf odd = weight(vload(p + (key + 1) * QUERIES) - shift);
                _mm512_storeu_si512(to + key / 2 * QUERIES, paired(round_both(even, odd)));
                part += even + odd;
            }
            sum += part;
        }
        vstore(sums + lane, sum);
        vstore(lse + lane, max);
    }
    for (int r = 0; r < lanes; r++) lse[r] += vm_log(sums[r]);
}

/* ---- forward ---- */
static void forward_head(const job *j, int64_t head, float *scratch)
{
    const int64_t keys = whole(j->sk, 2), step = wide(j->dv_size);
    float *scores = scratch, *sums_of_rows = scores + keys * QUERIES;
    pair *weights = (pair *)(sums_of_rows + QUERIES * step), *queries = weights + keys / 2 * QUERIES;
    pair *values = queries + feature_pairs(j->d);
    const matrix q = head_of(j, j->q, head), k = head_of(j, j->k, head), v = head_of(j, j->v, head);
    const matrix y = head_of(j, j->y, head);
    const int64_t ls = j->lse->stride[j->n_outer];
    float *lse = start_of(j, j->lse, head);
    pair_rows(v, j->sk, values);
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        float sums[QUERIES], logs[QUERIES];
        pair_features(rows_from(q, first), b.rows, queries);
        product_with_keys(&b, k, queries, j->scale, scores);
        if (j->mask) apply_mask(j, &b, scores);
        softmax(&b, scores, weights, sums, logs);
        sum_over_keys(&b, weights, values, j->dv_size, 1, sums_of_rows);
        for (int64_t r = 0; r < b.rows; r++) {
            float *row = sums_of_rows + r * step;
            const float share = sums[r] == 0 ? 0.f : 1.f / sums[r];
            for (int64_t i = 0; i < step; i++) row[i] *= share;
            put_run(LC_BF16, y.at, (first + r) * y.step, y.size, row);
            lse[(first + r) * ls] = logs[r];
        }
    }
}

/* Neighbors in a row are multiplied where they are. */
static bool even_rows(const lc_view *q, const lc_view *v)
{
    return q->shape[q->ndim - 1] % 2 == 0 && v->shape[v->ndim - 1] % 2 == 0;
}

static bool all_bf16(const lc_view *v, int n)
{
    for (int i = 0; i < n; i++)
        if (v[i].dtype != LC_BF16) return false;
    return true;
}

static bool forward_supports(const lc_call *call)
{
    return call->n_in > 3 && all_bf16(call->in, 3) && all_bf16(call->out, 1) && call->out[1].dtype == LC_F32 &&
           numel(&call->in[0]) > 0 && numel(&call->in[1]) > 0 && mask_known(&call->in[3]) &&
           even_rows(&call->in[0], &call->in[2]);
}

static job forward_job(const lc_call *call)
{
    job j = job_of(call, false, forward_head);
    j.scratch_step = whole(j.sk, 2) * QUERIES + QUERIES * wide(j.dv_size) + whole(j.sk, 2) / 2 * QUERIES +
                     feature_pairs(j.d) + row_pairs(j.sk, j.dv_size);
    return j;
}

static lc_status forward_prepare(lc_call *call)
{
    const job j = forward_job(call);
    return take_scratch(call, &j);
}

static void forward_run(const lc_call *call)
{
    const job j = forward_job(call);
    run_heads(call, &j);
}

static const lc_kernel forward_kernel = {
    .name = "attention_" LC_ISA_STRING,
    .layout = LC_WANT_LAST_DENSE,
    .supports = forward_supports,
    .prepare = forward_prepare,
    .run = forward_run,
};

/* ---- backward ---- */
/* The weights of a block and the gradients of its scores, as they are multiplied. */
typedef struct rounded_weights {
    uint16_t *weights, *ds; /* [keys][QUERIES] */
    pair *ds_pairs;         /* of keys */
} rounded_weights;

static void softmax_backward(const block *b, const float *shifts, float *scores, float *gradients, rounded_weights to)
{
    const int lanes = lanes_of(b);
    for (int lane = 0; lane < lanes; lane += VW) {
        const int64_t end = hide_in_pairs(b, lane, scores);
        float *p = scores + lane;
        const float *g = gradients + lane;
        const totals t = weigh(end, vload(shifts + lane), p, g);
        for (int64_t key = 0; key < end; key += 2) {
            vf w[2], ds[2];
            for (int i = 0; i < 2; i++) {
                w[i] = vload(p + (key + i) * QUERIES) * t.share;
                ds[i] = vselect(w[i] == 0, vzero(), w[i] * (vload(g + (key + i) * QUERIES) - t.mean));
            }
            const __m512i both = round_both(ds[0], ds[1]);
            store_rows(to.weights + key * QUERIES + lane, round_both(w[0], w[1]));
            store_rows(to.ds + key * QUERIES + lane, both);
            _mm512_storeu_si512(to.ds_pairs + key / 2 * QUERIES + lane, paired(both));
        }
    }
}

/* Writes sums of rows. */
static void put_rows(matrix to, int64_t rows, const float *sums)
{
    for (int64_t r = 0; r < rows; r++) put_run(LC_BF16, to.at, r * to.step, to.size, sums + r * wide(to.size));
}

static void backward_head(const job *j, int64_t head, float *scratch)
{
    const int64_t keys = whole(j->sk, 2), step = wide(j->d), step_v = wide(j->dv_size);
    float *scores = scratch, *gradients = scores + keys * QUERIES, *dq_sums = gradients + keys * QUERIES;
    float *dk_sums = dq_sums + QUERIES * step, *dv_sums = dk_sums + j->sk * step;
    pair *ds_pairs = (pair *)(dv_sums + j->sk * step_v), *key_pairs = ds_pairs + keys / 2 * QUERIES;
    pair *q_features = key_pairs + row_pairs(j->sk, j->d), *dy_features = q_features + feature_pairs(j->d);
    pair *q_pairs = dy_features + feature_pairs(j->dv_size), *dy_pairs = q_pairs + row_pairs(QUERIES, j->d);
    uint16_t *weights = (uint16_t *)(dy_pairs + row_pairs(QUERIES, j->dv_size)), *ds = weights + keys * QUERIES;
    const matrix q = head_of(j, j->q, head), k = head_of(j, j->k, head), v = head_of(j, j->v, head);
    const matrix dy = head_of(j, j->dy, head), dq = head_of(j, j->dq, head);
    const float *lse = start_of(j, j->lse, head);
    const int64_t ls = j->lse->stride[j->n_outer];
    pair_rows(k, j->sk, key_pairs);
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        float shifts[QUERIES];
        pair_features(rows_from(q, first), b.rows, q_features);
        pair_features(rows_from(dy, first), b.rows, dy_features);
        pair_rows(rows_from(q, first), b.rows, q_pairs);
        pair_rows(rows_from(dy, first), b.rows, dy_pairs);
        shifts_of(&b, lse + first * ls, ls, shifts);
        product_with_keys(&b, k, q_features, j->scale, scores);
        if (j->mask) apply_mask(j, &b, scores);
        product_with_keys(&b, v, dy_features, 1, gradients);
        softmax_backward(&b, shifts, scores, gradients, (rounded_weights){weights, ds, ds_pairs});
        sum_over_keys(&b, ds_pairs, key_pairs, j->d, j->scale, dq_sums);
        put_rows(rows_from(dq, first), b.rows, dq_sums);
        sum_over_queries(&b, ds, q_pairs, j->d, j->scale, dk_sums);
        sum_over_queries(&b, weights, dy_pairs, j->dv_size, 1, dv_sums);
    }
    /* Keys after the last diagonal. */
    const int64_t seen = j->causal && j->s < j->sk ? j->s : j->sk;
    memset(dk_sums + seen * step, 0, (size_t)((j->sk - seen) * step) * sizeof *dk_sums);
    memset(dv_sums + seen * step_v, 0, (size_t)((j->sk - seen) * step_v) * sizeof *dv_sums);
    put_rows(head_of(j, j->dk, head), j->sk, dk_sums);
    put_rows(head_of(j, j->dv, head), j->sk, dv_sums);
}

static bool backward_supports(const lc_call *call)
{
    return all_bf16(call->in, 4) && all_bf16(call->out, 3) && call->in[6].dtype == LC_F32 && numel(&call->in[1]) > 0 &&
           numel(&call->in[2]) > 0 && mask_known(&call->in[4]) && even_rows(&call->in[1], &call->in[3]);
}

static job backward_job(const lc_call *call)
{
    job j = job_of(call, true, backward_head);
    const int64_t keys = whole(j.sk, 2), sums = QUERIES * wide(j.d) + j.sk * (wide(j.d) + wide(j.dv_size));
    const int64_t features = feature_pairs(j.d) + feature_pairs(j.dv_size);
    const int64_t rows = row_pairs(j.sk, j.d) + row_pairs(QUERIES, j.d) + row_pairs(QUERIES, j.dv_size);
    j.scratch_step = 2 * keys * QUERIES + sums + 3 * (keys / 2 * QUERIES) + features + rows;
    return j;
}

static lc_status backward_prepare(lc_call *call)
{
    const job j = backward_job(call);
    return take_scratch(call, &j);
}

static void backward_run(const lc_call *call)
{
    const job j = backward_job(call);
    run_heads(call, &j);
}

static const lc_kernel backward_kernel = {
    .name = "attention_backward_" LC_ISA_STRING,
    .layout = LC_WANT_LAST_DENSE,
    .supports = backward_supports,
    .prepare = backward_prepare,
    .run = backward_run,
};

const lc__kernel_entry LC_ISA_NAME(lc__attention_pairs_kernels)[] = {
    {&lc__op_sdpa, &forward_kernel},
    {&lc__op_sdpa_backward, &backward_kernel},
    {NULL, NULL},
};
