/* SPDX-License-Identifier: Apache-2.0 */
/* Operators along one dimension: cumsum (ints dim, reverse), topk (ints k, dim, largest; results: values, indices). */
#include "ops/infer.h"
#include "base/number.h"
#include "ops/nn_util.h"
#include "ops/ops.h"
#include "ops/walk.h"
#include "ops/take.h"

/* Walks the lines along `dim`: the operands' size there is cut to one element. */
static void start_lines(lc__walk *w, int dim, int n, lc_view *views)
{
    const lc_view *v[LC__WALK_OPERANDS];
    for (int i = 0; i < n; i++) {
        if (dim < views[i].ndim) views[i].shape[dim] = views[i].shape[dim] > 0;
        v[i] = &views[i];
    }
    lc__walk_start(w, views[0].ndim, views[0].shape, n, v);
}

static int64_t stride_bytes(const lc_view *v, int dim)
{
    return v->stride[dim] * (int64_t)lc_dtype_size(v->dtype);
}

/* ---- cumsum ---- */

static void cumsum_run(const lc_call *call)
{
    int dim = (int)call->ints[0];
    lc_view v[2] = {call->out[0], call->in[0]};
    int64_t n = v[0].shape[dim], to_step = stride_bytes(&v[0], dim), from_step = stride_bytes(&v[1], dim);
    lc_dtype from = v[1].dtype, to = v[0].dtype;
    lc__walk w;
    start_lines(&w, dim, 2, v);
    while (lc__walk_next(&w))
        for (int64_t i = 0; i < w.length; i++) {
            double sum = 0;
            int64_t whole = 0;
            for (int64_t j = 0; j < n; j++) {
                int64_t at = call->ints[1] ? n - 1 - j : j;
                const char *x = w.data[1] + i * w.step[1] + at * from_step;
                char *y = w.data[0] + i * w.step[0] + at * to_step;
                if (lc_dtype_is_float(from))
                    lc__store_number(y, to, sum += lc__load_number(x, from));
                else
                    lc__store_integer(y, to, whole += lc__load_integer(x, from));
            }
        }
}

static lc_status cumsum_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__infer_attributes(call, 2, 0));
    LC_TRY(lc__infer_dim(call->in[0], call->ints[0]));
    lc_dtype d = call->in[0]->dtype;
    if (lc_dtype_is_float(d)) LC_TRY(lc__infer_float(call, 0));
    call->out[0] = *call->in[0];
    if (!lc_dtype_is_float(d)) call->out[0].dtype = LC_I64;
    return LC_OK;
}

static lc_status cumsum_grad(lc_grad *g)
{
    if (!lc_dtype_is_float(lc_tensor_dtype(g->in[0]))) return LC_OK;
    int64_t ints[] = {g->ints[0], !g->ints[1]};
    g->din[0] = lc_op_call(&lc__op_cumsum, 1, g->dout, 2, ints, 0, NULL, LC_HERE);
    return LC_OK;
}

static const lc_kernel cumsum_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = cumsum_run};
const lc_op lc__op_cumsum = {
    .name = "cumsum", .n_out = 1, .infer = cumsum_infer, .grad = cumsum_grad, .kernel = &cumsum_kernel};

lc_tensor *lc_cumsum_at(lc_tensor *x, int dim, lc_site site)
{
    if (lc__is_bad(x)) return lc__op1(&lc__op_cumsum, x, site);
    if (lc__is_point(x, dim)) return lc__as_point(lc_cumsum_at(lc__as_line(x, site), 0, site), site);
    int64_t ints[] = {lc__wrap_dim(dim, lc_tensor_ndim(x)), 0};
    return lc_op_call(&lc__op_cumsum, 1, &x, 2, ints, 0, NULL, site);
}

/* ---- topk ---- */

typedef struct keys {
    const char *data;
    int64_t step;
    lc_dtype dtype;
    bool largest;
} keys;

/* Whether element i comes strictly before j; NaN counts as the largest number. */
static bool before(const keys *k, int64_t i, int64_t j)
{
    const char *p = k->data + i * k->step, *q = k->data + j * k->step;
    if (!lc_dtype_is_float(k->dtype)) {
        int64_t a = lc__load_integer(p, k->dtype), b = lc__load_integer(q, k->dtype);
        return k->largest ? a > b : a < b;
    }
    double a = lc__load_number(p, k->dtype), b = lc__load_number(q, k->dtype);
    if (a != a || b != b) return k->largest ? a != a && b == b : a == a && b != b;
    return k->largest ? a > b : a < b;
}

/* Stable merge sort of the numbers 0..n-1 by key, in `index`, with memory `spare`; returns the one that holds the
 * result. (qsort may allocate, which kernels must not.) */
static int64_t *sort(const keys *k, int64_t n, int64_t *index, int64_t *spare)
{
    for (int64_t i = 0; i < n; i++) index[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            int64_t middle = start + width < n ? start + width : n, end = middle + width < n ? middle + width : n;
            int64_t a = start, b = middle;
            for (int64_t to = start; to < end; to++)
                spare[to] = a < middle && (b >= end || !before(k, index[b], index[a])) ? index[a++] : index[b++];
        }
        int64_t *swap = index;
        index = spare;
        spare = swap;
    }
    return index;
}

static void topk_run(const lc_call *call)
{
    int dim = (int)call->ints[1];
    int64_t k = call->ints[0], n = call->in[0].shape[dim];
    lc_view v[3] = {call->in[0], call->out[0], call->out[1]};
    int64_t from = stride_bytes(&v[0], dim), to = stride_bytes(&v[1], dim), index_to = stride_bytes(&v[2], dim);
    size_t size = lc_dtype_size(v[0].dtype);
    int64_t *scratch = (int64_t *)call->scratch;
    lc__walk w;
    if (k == 0) return;
    start_lines(&w, dim, 3, v);
    while (lc__walk_next(&w))
        for (int64_t i = 0; i < w.length; i++) {
            keys line = {w.data[0] + i * w.step[0], from, v[0].dtype, call->ints[2] != 0};
            const int64_t *order = sort(&line, n, scratch, scratch + n);
            for (int64_t j = 0; j < k; j++) {
                memcpy(w.data[1] + i * w.step[1] + j * to, line.data + order[j] * from, size);
                *(int64_t *)(w.data[2] + i * w.step[2] + j * index_to) = order[j];
            }
        }
}

static lc_status topk_prepare(lc_call *call)
{
    call->scratch_bytes = 2 * sizeof(int64_t) * (size_t)call->in[0].shape[call->ints[1]];
    return LC_OK;
}

static lc_status topk_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__infer_attributes(call, 3, 0));
    const lc_type *x = call->in[0];
    LC_TRY(lc__infer_dim(x, call->ints[1]));
    if (lc_dtype_is_float(x->dtype)) LC_TRY(lc__infer_float(call, 0));
    int64_t k = call->ints[0], n = x->shape[call->ints[1]];
    if (k < 0 || k > n)
        return lc_fail(LC_ERR_SHAPE, "k is %lld, but dimension %lld has %lld elements", (long long)k,
                       (long long)call->ints[1], (long long)n);
    for (int i = 0; i < 2; i++) {
        call->out[i] = *x;
        call->out[i].shape[call->ints[1]] = k;
    }
    call->out[1].dtype = LC_I64;
    return LC_OK;
}

static lc_status topk_grad(lc_grad *g)
{
    if (!g->dout[0] || !lc_dtype_is_float(lc_tensor_dtype(g->in[0]))) return LC_OK;
    g->din[0] = lc_scatter_add(lc__zeros_of(g->in[0]), (int)g->ints[1], g->out[1], g->dout[0]);
    return LC_OK;
}

static const lc_kernel topk_kernel = {
    .name = "reference", .layout = LC_WANT_STRIDED, .prepare = topk_prepare, .run = topk_run};
const lc_op lc__op_topk = {.name = "topk", .n_out = 2, .infer = topk_infer, .grad = topk_grad, .kernel = &topk_kernel};

static lc_tensor *call_topk(lc_tensor *x, lc_tensor **indices, int64_t k, int64_t dim, bool largest, lc_site site)
{
    bool point = lc__is_point(x, dim) && (k == 0 || k == 1); /* one element, as in PyTorch */
    int64_t ints[] = {point ? 1 : k, point ? 0 : dim, largest};
    lc_tensor *out[LC_MAX_OUTPUTS] = {NULL}, *in = point ? lc__as_line(x, site) : x;
    lc_op_call_n(&lc__op_topk, 1, &in, 3, ints, 0, NULL, out, site);
    if (indices) *indices = point ? lc__as_point(out[1], site) : out[1];
    return point ? lc__as_point(out[0], site) : out[0];
}

lc_tensor *lc_topk_at(lc_tensor *x, lc_tensor **indices, int64_t k, const lc_topk_args *given, lc_site site)
{
    LC__TAKE_OP(a, "topk", lc_topk, given, site);
    int64_t dim = lc__is_bad(x) ? 0 : lc__wrap_dim(a.dim, lc_tensor_ndim(x));
    return call_topk(x, indices, k, dim, !a.smallest, site);
}

lc_tensor *lc_sort_at(lc_tensor *x, lc_tensor **indices, int dim, bool descending, lc_site site)
{
    if (indices) *indices = lc__error_tensor();
    if (!lc__is_given(x, "x", "sort", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    if (lc__is_point(x, dim)) return call_topk(x, indices, 1, 0, descending, site);
    int64_t d = lc__wrap_dim(dim, t->ndim);
    lc_status status = lc__infer_dim(t, d);
    return status < 0 ? lc__refuse(status, "sort", x, site) : call_topk(x, indices, t->shape[d], d, descending, site);
}
