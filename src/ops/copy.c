/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that only move elements, of any data type: contiguous, cat (ints dim), pad (ints before and after of every
 * dimension; floats value), tril and triu (ints diagonal), flip (ints dims). */
#include <stdio.h>

#include "ops/infer.h"
#include "base/number.h"
#include "ops/nn_util.h"
#include "ops/ops.h"
#include "record/graph_impl.h"
#include "ops/walk.h"

/* ---- contiguous ---- */

static void contiguous_run(const lc_call *call)
{
    lc__copy_view(&call->out[0], &call->in[0]);
}

static lc_status contiguous_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    return lc__infer_same(call);
}

static lc_status contiguous_grad(lc_grad *g)
{
    g->din[0] = g->dout[0];
    return LC_OK;
}

static const lc_kernel contiguous_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = contiguous_run};
const lc_op lc__op_contiguous = {
    .name = "contiguous", .n_out = 1, .infer = contiguous_infer, .grad = contiguous_grad, .kernel = &contiguous_kernel};

lc_tensor *lc_contiguous_at(lc_tensor *x, lc_site site)
{
    return lc__op1(&lc__op_contiguous, x, site);
}

/* ---- cat ---- */

static void cat_run(const lc_call *call)
{
    int dim = (int)call->ints[0];
    lc_view part = call->out[0];
    for (int i = 0; i < call->n_in; i++) {
        part.shape[dim] = call->in[i].shape[dim];
        lc__copy_view(&part, &call->in[i]);
        part.data = (char *)part.data + part.shape[dim] * part.stride[dim] * (int64_t)lc_dtype_size(part.dtype);
    }
}

static lc_status cat_infer(lc_infer *call)
{
    if (call->n_in < 1) return lc_fail(LC_ERR_ARGUMENT, "needs at least one operand");
    LC_TRY(lc__infer_operands(call, call->n_in));
    LC_TRY(lc__infer_attributes(call, 1, 0));
    int64_t dim = call->ints[0];
    lc_type *y = &call->out[0];
    *y = *call->in[0];
    LC_TRY(lc__infer_dim(y, dim));
    for (int i = 1; i < call->n_in; i++) {
        const lc_type *t = call->in[i];
        LC_TRY(lc__infer_same_dtype(call, i, 0));
        bool fits = t->ndim == y->ndim;
        for (int d = 0; fits && d < y->ndim; d++) fits = d == dim || t->shape[d] == y->shape[d];
        char a[LC__SHAPE_TEXT], b[LC__SHAPE_TEXT];
        if (!fits)
            return lc_fail(LC_ERR_SHAPE, "operand %d is %s, which may differ from %s in dimension %lld only", i,
                           lc__shape_text(t, a, sizeof a), lc__shape_text(call->in[0], b, sizeof b), (long long)dim);
        if (__builtin_add_overflow(y->shape[dim], t->shape[dim], &y->shape[dim]))
            return lc_fail(LC_ERR_SHAPE, "the result is too large");
    }
    return LC_OK;
}

static lc_status cat_grad(lc_grad *g)
{
    int64_t start = 0;
    for (int i = 0; i < g->n_in; i++) {
        int64_t length = lc_tensor_shape(g->in[i])[g->ints[0]];
        if (g->need[i]) g->din[i] = lc_slice(g->dout[0], (int)g->ints[0], start, length);
        start += length;
    }
    return LC_OK;
}

static const lc_kernel cat_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = cat_run};
const lc_op lc__op_cat = {.name = "cat", .n_out = 1, .infer = cat_infer, .grad = cat_grad, .kernel = &cat_kernel};

lc_tensor *lc_cat_at(int dim, int n, lc_tensor *const *x, lc_site site)
{
    int64_t d = n < 1 || !x || lc__is_bad(x[0]) ? 0 : lc__wrap_dim(dim, lc_tensor_ndim(x[0]));
    return lc_op_call(&lc__op_cat, n, x, 1, &d, 0, NULL, site);
}

#define MAX_STACK 64

/* x[i] has the type of x[0]. */
static bool can_stack(lc_tensor *const *x, int i, lc_site site)
{
    char what[32], a[LC__SHAPE_TEXT], b[LC__SHAPE_TEXT];
    snprintf(what, sizeof what, "tensor %d", i);
    if (!lc__is_given(x[i], what, "stack", site)) return false;
    const lc_type *first = lc_tensor_type(x[0]), *t = lc_tensor_type(x[i]);
    bool same = t->ndim == first->ndim && t->dtype == first->dtype;
    for (int d = 0; same && d < t->ndim; d++) same = t->shape[d] == first->shape[d];
    if (same) return true;
    lc__refuse(lc_fail(LC_ERR_SHAPE, "%s is %s%s, but the first is %s%s", what, lc_dtype_name(t->dtype),
                       lc__shape_text(t, a, sizeof a), lc_dtype_name(first->dtype), lc__shape_text(first, b, sizeof b)),
               "stack", x[0], site);
    return false;
}

lc_tensor *lc_stack_at(int dim, int n, lc_tensor *const *x, lc_site site)
{
    lc_tensor *rows[MAX_STACK];
    if (n < 1 || !x) {
        lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, n < 1 ? "there is nothing to stack" : "x is NULL"), "stack", site);
        return lc__error_tensor();
    }
    for (int i = 0; i < n; i++)
        if (!can_stack(x, i, site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x[0]);
    int64_t at = lc__wrap_dim(dim, t->ndim + 1);
    if (at < 0 || at > t->ndim) return lc__refuse(lc__infer_dim(t, dim), "stack", x[0], site);
    if (n > MAX_STACK) { /* in pieces */
        lc_tensor *both[] = {lc_stack_at(dim, MAX_STACK, x, site),
                             lc_stack_at(dim, n - MAX_STACK, x + MAX_STACK, site)};
        return lc_cat_at(dim, 2, both, site);
    }
    for (int i = 0; i < n; i++) rows[i] = lc_unsqueeze_at(x[i], dim, site);
    return lc_cat_at(dim, n, rows, site);
}

/* ---- pad ---- */

static void pad_run(const lc_call *call)
{
    const lc_view *y = &call->out[0];
    size_t size = lc_dtype_size(y->dtype);
    char value[8];
    lc__store_number(value, y->dtype, call->floats[0]);
    lc_view fill = {.data = value, .dtype = y->dtype};
    lc__copy_view(y, &fill);
    lc_view to = *y, from = call->in[0];
    for (int d = 0; d < y->ndim; d++) {
        int64_t before = call->ints[2 * d], after = call->ints[2 * d + 1];
        int64_t skip_to = before > 0 ? before : 0, skip_from = before < 0 ? -before : 0;
        int64_t length = from.shape[d] - skip_from - (after < 0 ? -after : 0);
        to.data = (char *)to.data + skip_to * to.stride[d] * (int64_t)size;
        from.data = (char *)from.data + skip_from * from.stride[d] * (int64_t)size;
        to.shape[d] = from.shape[d] = length > 0 ? length : 0;
    }
    lc__copy_view(&to, &from);
}

static lc_status pad_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    const lc_type *x = call->in[0];
    if (call->n_int != 2 * x->ndim)
        return lc_fail(LC_ERR_SHAPE, "x has %d dimensions: pass at most that many pairs (before, after)", x->ndim);
    LC_TRY(lc__infer_attributes(call, 0, 1));
    call->out[0] = *x;
    for (int d = 0; d < x->ndim; d++) {
        int64_t size = x->shape[d], before = call->ints[2 * d], after = call->ints[2 * d + 1], cut = 0;
        /* The elements to cut off must exist, even if zeros are added on the other side. */
        bool there = !__builtin_sub_overflow(cut, before < 0 ? before : 0, &cut) &&
                     !__builtin_sub_overflow(cut, after < 0 ? after : 0, &cut) && cut <= size;
        if (!there || __builtin_add_overflow(size, before, &size) || __builtin_add_overflow(size, after, &size))
            return lc_fail(LC_ERR_SHAPE, "dimension %d of %lld elements cannot be padded by %lld and %lld", d,
                           (long long)x->shape[d], (long long)call->ints[2 * d], (long long)call->ints[2 * d + 1]);
        call->out[0].shape[d] = size;
    }
    return LC_OK;
}

static lc_status pad_grad(lc_grad *g)
{
    int64_t pads[2 * LC_MAX_DIMS];
    const double zero = 0;
    for (int i = 0; i < g->n_int; i++) pads[i] = -g->ints[i];
    g->din[0] = lc_op_call(&lc__op_pad, 1, g->dout, g->n_int, pads, 1, &zero, LC_HERE);
    return LC_OK;
}

static const lc_kernel pad_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = pad_run};
const lc_op lc__op_pad = {.name = "pad", .n_out = 1, .infer = pad_infer, .grad = pad_grad, .kernel = &pad_kernel};

lc_tensor *lc_pad_at(lc_tensor *x, double value, int n, const int64_t *pad, lc_site site)
{
    if (lc__is_bad(x)) return lc__op1(&lc__op_pad, x, site);
    int ndim = lc_tensor_ndim(x);
    int64_t pads[2 * LC_MAX_DIMS] = {0};
    lc_status status = lc__infer_value(value, lc_tensor_dtype(x));
    if (status < 0) return lc__refuse(status, "pad", x, site);
    if (n < 0 || n % 2 || n > 2 * ndim) return lc_op_call(&lc__op_pad, 1, &x, 1, pads, 1, &value, site);
    for (int i = 0; i < n / 2; i++) {
        pads[2 * (ndim - 1 - i)] = pad[2 * i];
        pads[2 * (ndim - 1 - i) + 1] = pad[2 * i + 1];
    }
    return lc_op_call(&lc__op_pad, 1, &x, 2 * ndim, pads, 1, &value, site);
}

/* ---- tril, triu ---- */

static void triangle(const lc_call *call, bool lower)
{
    const lc_view *v[] = {&call->out[0], &call->in[0]};
    size_t size = lc_dtype_size(v[0]->dtype);
    lc__walk w;
    lc__walk_start(&w, v[0]->ndim, v[0]->shape, 2, v);
    while (lc__walk_next(&w)) {
        int64_t diagonal = w.index[w.ndim - 1] + call->ints[0]; /* the column of this row's diagonal */
        for (int64_t j = 0; j < w.length; j++) {
            char *to = w.data[0] + j * w.step[0];
            if (lower ? j <= diagonal : j >= diagonal)
                memcpy(to, w.data[1] + j * w.step[1], size);
            else
                memset(to, 0, size);
        }
    }
}

static void tril_run(const lc_call *call)
{
    triangle(call, true);
}

static void triu_run(const lc_call *call)
{
    triangle(call, false);
}

static lc_status triangle_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__infer_attributes(call, 1, 0));
    if (call->in[0]->ndim < 2) return lc_fail(LC_ERR_SHAPE, "x needs at least 2 dimensions");
    return lc__infer_same(call);
}

static lc_status triangle_grad(lc_grad *g)
{
    g->din[0] = lc_op_call(g->op, 1, g->dout, 1, g->ints, 0, NULL, LC_HERE);
    return LC_OK;
}

static const lc_kernel tril_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = tril_run};
static const lc_kernel triu_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = triu_run};
const lc_op lc__op_tril = {
    .name = "tril", .n_out = 1, .infer = triangle_infer, .grad = triangle_grad, .kernel = &tril_kernel};
const lc_op lc__op_triu = {
    .name = "triu", .n_out = 1, .infer = triangle_infer, .grad = triangle_grad, .kernel = &triu_kernel};

lc_tensor *lc_tril_at(lc_tensor *x, int diagonal, lc_site site)
{
    int64_t d = diagonal;
    return lc_op_call(&lc__op_tril, 1, &x, 1, &d, 0, NULL, site);
}

lc_tensor *lc_triu_at(lc_tensor *x, int diagonal, lc_site site)
{
    int64_t d = diagonal;
    return lc_op_call(&lc__op_triu, 1, &x, 1, &d, 0, NULL, site);
}

/* ---- flip ---- */

static void flip_run(const lc_call *call)
{
    lc_view from = call->in[0];
    int64_t size = (int64_t)lc_dtype_size(from.dtype);
    for (int i = 0; i < call->n_int; i++) {
        int64_t d = call->ints[i];
        if (from.shape[d] == 0) return;
        from.data = (char *)from.data + (from.shape[d] - 1) * from.stride[d] * size;
        from.stride[d] = -from.stride[d];
    }
    lc__copy_view(&call->out[0], &from);
}

static lc_status flip_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    unsigned seen = 0;
    for (int i = 0; i < call->n_int; i++) {
        LC_TRY(lc__infer_dim(call->in[0], call->ints[i]));
        if (seen >> call->ints[i] & 1)
            return lc_fail(LC_ERR_ARGUMENT, "dimension %lld is named twice", (long long)call->ints[i]);
        seen |= 1u << call->ints[i];
    }
    return lc__infer_same(call);
}

static lc_status flip_grad(lc_grad *g)
{
    g->din[0] = lc_op_call(&lc__op_flip, 1, g->dout, g->n_int, g->ints, 0, NULL, LC_HERE);
    return LC_OK;
}

static const lc_kernel flip_kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = flip_run};
const lc_op lc__op_flip = {.name = "flip", .n_out = 1, .infer = flip_infer, .grad = flip_grad, .kernel = &flip_kernel};

lc_tensor *lc_flip_at(lc_tensor *x, int n, const int64_t *dims, lc_site site)
{
    if (lc__is_bad(x) || n < 0 || n > LC_MAX_DIMS || !dims)
        return lc_op_call(&lc__op_flip, 1, &x, n, dims, 0, NULL, site);
    int64_t wrapped[LC_MAX_DIMS];
    if (n == 1 && lc__is_point(x, dims[0])) return lc__unchanged(x, site);
    for (int i = 0; i < n; i++) wrapped[i] = lc__wrap_dim(dims[i], lc_tensor_ndim(x));
    return lc_op_call(&lc__op_flip, 1, &x, n, wrapped, 0, NULL, site);
}
