/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled dot-product attention, forward and backward, without an S x S matrix: a head is computed in blocks of queries.
 * Scores of a block are stored transposed, [keys][QUERIES], in the second-level cache: a vector holds the scores of
 * neighboring queries for one key. So keys and values are used in place, only the block's queries (and, in backward,
 * gradients) are transposed, and a softmax needs no sums across a vector. Operands of 16 bits are computed in copies:
 * of a head's keys and values, and of a block's rows.
 *
 * Under a causal mask nothing is computed for keys that a vector of queries (in the products with keys and values) or a
 * group of rows (in those with scores) cannot see. Threads take whole heads. */
#include "backends/cpu/isa/attention.h"
#include "backends/cpu/isa/gemm.h"
#include "backends/cpu/isa/lists.h"
#include "ops/ops.h"

/* The rows of a head. Those of 16 bits are computed in a copy: `floats` has `rows` of them from row `first` on. */
typedef struct matrix {
    const lc_view *of;
    void *stored;
    int64_t stored_step, size;
    float *floats;
    int64_t step;
} matrix;

static bool copied(const lc_view *v)
{
    return v->dtype != LC_F32;
}

static int64_t last_size(const lc_view *v)
{
    return v->shape[v->ndim - 1];
}

/* Takes memory for a copy of `rows` rows, if there is one, from *scratch. */
static matrix head_of(const job *j, const lc_view *v, int64_t head, int64_t rows, float **scratch)
{
    matrix m = {.of = v, .stored_step = v->stride[v->ndim - 2], .size = last_size(v)};
    m.stored = start_of(j, v, head);
    m.floats = m.stored;
    m.step = m.stored_step;
    if (copied(v)) {
        m.floats = *scratch;
        m.step = m.size;
        *scratch += rows * m.size;
    }
    return m;
}

/* Rows [first, first + rows) as floats, at the start of the copy if they are copied. */
static const float *read_rows(const matrix *m, int64_t first, int64_t rows)
{
    if (!copied(m->of)) return m->floats + first * m->step;
    for (int64_t r = 0; r < rows; r++)
        get_run(m->of->dtype, m->stored, (first + r) * m->stored_step, m->size, m->floats + r * m->step);
    return m->floats;
}

/* Where rows from `first` on are computed. */
static float *rows_to_write(const matrix *m, int64_t first)
{
    return copied(m->of) ? m->floats : m->floats + first * m->step;
}

static void write_rows(const matrix *m, int64_t first, int64_t rows)
{
    for (int64_t r = 0; r < rows && copied(m->of); r++)
        put_run(m->of->dtype, m->stored, (first + r) * m->stored_step, m->size, m->floats + r * m->step);
}

/* Floats of the copy of a view's rows. */
static int64_t copy_size(const lc_view *v, int64_t rows)
{
    return copied(v) ? rows * last_size(v) : 0;
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

/* Scores of all keys that the block sees, masked except for the diagonal. `queries`: transposed and scaled. */
static void score(const job *j, const block *b, const float *k, int64_t step, const float *queries, float *scores)
{
    product_with_keys(b, k, step, j->d, queries, scores);
    if (j->mask) apply_mask(j, b, scores);
}

/* ---- forward ---- */
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
    float *queries = scratch, *scores = queries + j->d * QUERIES, *copies = scores + j->sk * QUERIES;
    const matrix mk = head_of(j, j->k, head, j->sk, &copies), mv = head_of(j, j->v, head, j->sk, &copies);
    const matrix mq = head_of(j, j->q, head, QUERIES, &copies), my = head_of(j, j->y, head, QUERIES, &copies);
    const float *k = read_rows(&mk, 0, j->sk), *v = read_rows(&mv, 0, j->sk);
    const int64_t ls = j->lse->stride[j->n_outer];
    float *lse = start_of(j, j->lse, head);
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        float sums[QUERIES], logs[QUERIES], *y = rows_to_write(&my, first);
        transpose(read_rows(&mq, first, b.rows), mq.step, b.rows, j->d, j->scale, queries);
        score(j, &b, k, mk.step, queries, scores);
        softmax(&b, scores, sums, logs);
        sum_over_keys(&b, scores, v, mv.step, j->dv_size, y, my.step);
        for (int64_t r = 0; r < b.rows; r++) {
            float *row = y + r * my.step;
            const float share = sums[r] == 0 ? 0.f : 1.f / sums[r];
            for (int64_t i = 0; i < j->dv_size; i++) row[i] *= share;
            lse[(first + r) * ls] = logs[r];
        }
        write_rows(&my, first, b.rows);
    }
}

static bool all_stored(const lc_view *v, int n)
{
    for (int i = 0; i < n; i++)
        if (!is_stored(v[i].dtype)) return false;
    return true;
}

static bool forward_supports(const lc_call *call)
{
    return all_stored(call->in, 3) && numel(&call->in[0]) > 0 && numel(&call->in[1]) > 0 && call->n_in > 3 &&
           mask_known(&call->in[3]) && all_stored(call->out, 1) && call->out[1].dtype == LC_F32;
}

static int64_t forward_scratch(const job *j)
{
    return (j->d + j->sk) * QUERIES + copy_size(j->k, j->sk) + copy_size(j->v, j->sk) + copy_size(j->q, QUERIES) +
           copy_size(j->y, QUERIES);
}

static job forward_job(const lc_call *call)
{
    job j = job_of(call, false, forward_head);
    j.scratch_step = forward_scratch(&j);
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
/* Turns scores, and the gradients of weights in `ds`, into weights and the gradients of scores. */
static void softmax_backward(const block *b, const float *shifts, float scale, float *scores, float *ds)
{
    const int lanes = lanes_of(b);
    for (int lane = 0; lane < lanes; lane += VW) {
        const int64_t end = hide(b, lane, scores);
        float *p = scores + lane, *g = ds + lane;
        const totals t = weigh(end, vload(shifts + lane), p, g);
        for (int64_t key = 0; key < end; key++) {
            const vf w = vload(p + key * QUERIES) * t.share, x = vload(g + key * QUERIES);
            vstore(p + key * QUERIES, w);
            vstore(g + key * QUERIES, vselect(w == 0, vzero(), w * (x - t.mean) * scale));
        }
        for (int64_t key = end; key < b->seen; key++) {
            vstore(p + key * QUERIES, vzero());
            vstore(g + key * QUERIES, vzero());
        }
    }
}

static void backward_head(const job *j, int64_t head, float *scratch)
{
    float *queries = scratch, *gradients = queries + j->d * QUERIES, *scores = gradients + j->dv_size * QUERIES;
    float *ds = scores + j->sk * QUERIES, *copies = ds + j->sk * QUERIES;
    const matrix mk = head_of(j, j->k, head, j->sk, &copies), mv = head_of(j, j->v, head, j->sk, &copies);
    const matrix mq = head_of(j, j->q, head, QUERIES, &copies), mdy = head_of(j, j->dy, head, QUERIES, &copies);
    const matrix mdk = head_of(j, j->dk, head, j->sk, &copies), mdv = head_of(j, j->dv, head, j->sk, &copies);
    const matrix mdq = head_of(j, j->dq, head, QUERIES, &copies);
    const float *k = read_rows(&mk, 0, j->sk), *v = read_rows(&mv, 0, j->sk);
    const float *lse = start_of(j, j->lse, head);
    float *dk = rows_to_write(&mdk, 0), *dv = rows_to_write(&mdv, 0);
    const int64_t ls = j->lse->stride[j->n_outer];
    for (int64_t first = 0; first < j->s; first += QUERIES) {
        const block b = block_at(j, head, first);
        const float *q = read_rows(&mq, first, b.rows), *dy = read_rows(&mdy, first, b.rows);
        float shifts[QUERIES];
        transpose(q, mq.step, b.rows, j->d, j->scale, queries);
        transpose(dy, mdy.step, b.rows, j->dv_size, 1, gradients);
        shifts_of(&b, lse + first * ls, ls, shifts);
        score(j, &b, k, mk.step, queries, scores);
        product_with_keys(&b, v, mv.step, j->dv_size, gradients, ds);
        softmax_backward(&b, shifts, j->scale, scores, ds);
        sum_over_keys(&b, ds, k, mk.step, j->d, rows_to_write(&mdq, first), mdq.step);
        write_rows(&mdq, first, b.rows);
        sum_over_queries(&b, ds, q, mq.step, j->d, dk, mdk.step);
        sum_over_queries(&b, scores, dy, mdy.step, j->dv_size, dv, mdv.step);
    }
    /* Keys after the last diagonal. */
    for (int64_t key = j->causal ? j->s : j->sk; key < j->sk; key++) {
        memset(dk + key * mdk.step, 0, (size_t)j->d * sizeof *dk);
        memset(dv + key * mdv.step, 0, (size_t)j->dv_size * sizeof *dv);
    }
    write_rows(&mdk, 0, j->sk);
    write_rows(&mdv, 0, j->sk);
}

static bool backward_supports(const lc_call *call)
{
    return all_stored(call->in, 4) && all_stored(call->out, 3) && numel(&call->in[1]) > 0 && numel(&call->in[2]) > 0 &&
           mask_known(&call->in[4]) && call->in[6].dtype == LC_F32;
}

static int64_t backward_scratch(const job *j)
{
    return (j->d + j->dv_size + 2 * j->sk) * QUERIES + copy_size(j->k, j->sk) + copy_size(j->v, j->sk) +
           copy_size(j->dk, j->sk) + copy_size(j->dv, j->sk) + copy_size(j->q, QUERIES) + copy_size(j->dy, QUERIES) +
           copy_size(j->dq, QUERIES);
}

static job backward_job(const lc_call *call)
{
    job j = job_of(call, true, backward_head);
    j.scratch_step = backward_scratch(&j);
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

const lc__kernel_entry LC_ISA_NAME(lc__attention_kernels)[] = {
    {&lc__op_sdpa, &forward_kernel},
    {&lc__op_sdpa_backward, &backward_kernel},
    {NULL, NULL},
};
