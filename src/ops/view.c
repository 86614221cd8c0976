/* SPDX-License-Identifier: Apache-2.0 */
/* Views: reshape (ints shape), permute (ints dims), slice (ints dim, start, length), expand (ints shape), and the
 * functions that are made of them. No data moves; `view` computes the strides. */
#include "ops/infer.h"
#include "ops/nn_util.h"
#include "record/graph_impl.h"
#include "ops/ops.h"

#include <string.h>

/* ---- reshape ---- */

static lc_status reshape_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    lc_type *y = &call->out[0];
    if (call->n_int > LC_MAX_DIMS)
        return lc_fail(LC_ERR_SHAPE, "%d dimensions; at most %d are allowed", call->n_int, LC_MAX_DIMS);
    y->dtype = call->in[0]->dtype;
    y->ndim = call->n_int;
    char text[LC__SHAPE_TEXT], to[LC__SHAPE_TEXT];
    for (int d = 0; d < y->ndim; d++) y->shape[d] = call->ints[d];
    for (int d = 0; d < y->ndim; d++)
        if (y->shape[d] < 0)
            return lc_fail(LC_ERR_SHAPE,
                           "cannot make shape %s from %s (one dimension may be -1 if the others divide the size)",
                           lc__shape_text(y, to, sizeof to), lc__shape_text(call->in[0], text, sizeof text));
    int64_t have = lc__type_numel(call->in[0]), want = lc__type_numel(y);
    if (have != want)
        return lc_fail(LC_ERR_SHAPE, "shape %s has %lld elements, but %s has %lld", lc__shape_text(y, to, sizeof to),
                       (long long)want, lc__shape_text(call->in[0], text, sizeof text), (long long)have);
    return LC_OK;
}

/* Splits both shapes into the shortest groups of dimensions with equal products; a group is a view if its old
 * dimensions follow each other without gaps. */
static bool reshape_view(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset)
{
    (void)call;
    *offset = 0;
    int64_t shape[LC_MAX_DIMS], stride[LC_MAX_DIMS];
    int n = 0; /* old dimensions of more than one element */
    for (int d = 0; d < in->ndim; d++) {
        if (in->shape[d] == 0) { /* no elements: any strides will do */
            for (int o = 0; o < out->ndim; o++) out->stride[o] = 1;
            return true;
        }
        if (in->shape[d] == 1) continue;
        shape[n] = in->shape[d];
        stride[n++] = in->stride[d];
    }
    int o = 0;
    for (int i = 0; i < n;) {
        int first = o, last = i;
        int64_t old_size = shape[last], new_size = 1;
        while (new_size != old_size) {
            if (new_size < old_size)
                new_size *= out->shape[o++];
            else
                old_size *= shape[++last];
        }
        for (int d = i; d < last; d++)
            if (stride[d] != stride[d + 1] * shape[d + 1]) return false;
        int64_t step = stride[last];
        for (int d = o - 1; d >= first; d--) {
            out->stride[d] = step;
            step *= out->shape[d];
        }
        i = last + 1;
    }
    for (; o < out->ndim; o++) out->stride[o] = 1; /* ones at the end */
    return true;
}

static lc_status reshape_grad(lc_grad *g)
{
    const lc_type *x = lc_tensor_type(g->in[0]);
    g->din[0] = lc_reshape_at(g->dout[0], x->ndim, x->shape, LC_HERE);
    return LC_OK;
}

const lc_op lc__op_reshape = {.name = "reshape",
                              .flags = LC_OP_VIEW,
                              .n_out = 1,
                              .infer = reshape_infer,
                              .grad = reshape_grad,
                              .view = reshape_view};

/* ---- permute ---- */

static lc_status permute_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    const lc_type *x = call->in[0];
    if (call->n_int != x->ndim)
        return lc_fail(LC_ERR_SHAPE, "%d dimensions are given, but x has %d", call->n_int, x->ndim);
    unsigned seen = 0;
    call->out[0] = *x;
    for (int d = 0; d < x->ndim; d++) {
        LC_TRY(lc__infer_dim(x, call->ints[d]));
        if (seen >> call->ints[d] & 1)
            return lc_fail(LC_ERR_SHAPE, "dimension %lld is named twice", (long long)call->ints[d]);
        seen |= 1u << call->ints[d];
        call->out[0].shape[d] = x->shape[call->ints[d]];
    }
    return LC_OK;
}

static bool permute_view(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset)
{
    *offset = 0;
    for (int d = 0; d < in->ndim; d++) out->stride[d] = in->stride[call->ints[d]];
    return true;
}

static lc_status permute_grad(lc_grad *g)
{
    int64_t inverse[LC_MAX_DIMS];
    for (int d = 0; d < g->n_int; d++) inverse[g->ints[d]] = d;
    g->din[0] = lc_permute_at(g->dout[0], g->n_int, inverse, LC_HERE);
    return LC_OK;
}

const lc_op lc__op_permute = {.name = "permute",
                              .flags = LC_OP_VIEW,
                              .n_out = 1,
                              .infer = permute_infer,
                              .grad = permute_grad,
                              .view = permute_view};

/* ---- slice ---- */

static lc_status slice_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    LC_TRY(lc__infer_attributes(call, 3, 0));
    const lc_type *x = call->in[0];
    int64_t dim = call->ints[0], start = call->ints[1], length = call->ints[2];
    LC_TRY(lc__infer_dim(x, dim));
    if (start < 0 || length < 0 || start > x->shape[dim] || length > x->shape[dim] - start)
        return lc_fail(LC_ERR_SHAPE, "elements %lld to %lld are out of range: there are %lld in dimension %lld",
                       (long long)start, (long long)start + (long long)length - 1, (long long)x->shape[dim],
                       (long long)dim);
    call->out[0] = *x;
    call->out[0].shape[dim] = length;
    return LC_OK;
}

static bool slice_view(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset)
{
    for (int d = 0; d < in->ndim; d++) out->stride[d] = in->stride[d];
    *offset = call->ints[1] * in->stride[call->ints[0]];
    return true;
}

static lc_status slice_grad(lc_grad *g)
{
    const lc_type *x = lc_tensor_type(g->in[0]);
    int64_t pads[2 * LC_MAX_DIMS] = {0}, dim = g->ints[0];
    pads[2 * dim] = g->ints[1];
    pads[2 * dim + 1] = x->shape[dim] - g->ints[1] - g->ints[2];
    const double zero = 0;
    g->din[0] = lc_op_call(&lc__op_pad, 1, g->dout, 2 * x->ndim, pads, 1, &zero, LC_HERE);
    return LC_OK;
}

const lc_op lc__op_slice = {
    .name = "slice", .flags = LC_OP_VIEW, .n_out = 1, .infer = slice_infer, .grad = slice_grad, .view = slice_view};

/* ---- expand ---- */

static lc_status expand_infer(lc_infer *call)
{
    LC_TRY(lc__infer_operands(call, 1));
    const lc_type *x = call->in[0];
    lc_type *y = &call->out[0];
    if (call->n_int < x->ndim || call->n_int > LC_MAX_DIMS)
        return lc_fail(LC_ERR_SHAPE, "%d dimensions, but x has %d and at most %d are allowed", call->n_int, x->ndim,
                       LC_MAX_DIMS);
    y->dtype = x->dtype;
    y->ndim = call->n_int;
    for (int d = 0; d < y->ndim; d++) {
        int own = d - (y->ndim - x->ndim);
        y->shape[d] = call->ints[d];
        if (y->shape[d] < 0 || (own >= 0 && x->shape[own] != 1 && x->shape[own] != y->shape[d]))
            return lc_fail(LC_ERR_SHAPE, "dimension %d cannot become %lld: only dimensions of size 1 expand", d,
                           (long long)call->ints[d]);
    }
    return LC_OK;
}

static bool expand_view(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset)
{
    (void)call;
    *offset = 0;
    for (int d = 0; d < out->ndim; d++) {
        int own = d - (out->ndim - in->ndim);
        out->stride[d] = own < 0 || (in->shape[own] == 1 && out->shape[d] != 1) ? 0 : in->stride[own];
    }
    return true;
}

static lc_status expand_grad(lc_grad *g)
{
    g->din[0] = lc__sum_to(g->dout[0], lc_tensor_type(g->in[0]));
    return LC_OK;
}

const lc_op lc__op_expand = {
    .name = "expand", .flags = LC_OP_VIEW, .n_out = 1, .infer = expand_infer, .grad = expand_grad, .view = expand_view};

/* ---- functions ---- */

static lc_tensor *call_view(const lc_op *op, lc_tensor *x, int n, const int64_t *ints, lc_site site)
{
    return lc_op_call(op, 1, &x, n, ints, 0, NULL, site);
}

/* Resolves -1; if that is impossible it stays, and infer reports it. */
lc_tensor *lc_reshape_at(lc_tensor *x, int n, const int64_t *shape, lc_site site)
{
    if (lc__is_bad(x) || n < 0 || n > LC_MAX_DIMS || !shape) return call_view(&lc__op_reshape, x, n, shape, site);
    int64_t resolved[LC_MAX_DIMS], known = 1;
    int missing = -1, count = 0;
    for (int d = 0; d < n; d++) {
        resolved[d] = shape[d];
        if (shape[d] == -1) {
            missing = d;
            count++;
        } else if (__builtin_mul_overflow(known, shape[d], &known)) {
            known = 0;
        }
    }
    int64_t have = lc_tensor_numel(x);
    if (count == 1 && known > 0 && have % known == 0) resolved[missing] = have / known;
    return call_view(&lc__op_reshape, x, n, resolved, site);
}

lc_tensor *lc_flatten_at(lc_tensor *x, int start_dim, lc_site site)
{
    if (!lc__is_given(x, "x", "flatten", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    int64_t start = lc__wrap_dim(start_dim, t->ndim), shape[LC_MAX_DIMS];
    if (lc__is_point(x, start_dim)) return lc__as_line(x, site);
    if (start < 0 || start >= t->ndim) return lc__refuse(lc__infer_dim(t, start_dim), "flatten", x, site);
    int64_t last = 1;
    for (int d = 0; d < t->ndim; d++)
        if (d < start)
            shape[d] = t->shape[d];
        else
            last *= t->shape[d];
    shape[start] = last;
    return call_view(&lc__op_reshape, x, (int)start + 1, shape, site);
}

lc_tensor *lc_unflatten_at(lc_tensor *x, int dim, int64_t first, lc_site site)
{
    if (!lc__is_given(x, "x", "unflatten", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    int64_t at = lc__wrap_dim(dim, t->ndim), shape[LC_MAX_DIMS + 1];
    lc_status status = at < 0 || at >= t->ndim ? lc__infer_dim(t, dim) : LC_OK;
    if (status >= 0 && t->ndim == LC_MAX_DIMS)
        status = lc_fail(LC_ERR_SHAPE, "x has %d dimensions, and no more are allowed", LC_MAX_DIMS);
    if (status >= 0 && (first < 1 || t->shape[at] % first))
        status = lc_fail(LC_ERR_SHAPE, "dimension %d has %lld elements, which %lld does not divide", dim,
                         (long long)t->shape[at], (long long)first);
    if (status < 0) return lc__refuse(status, "unflatten", x, site);
    for (int d = 0; d < t->ndim; d++) shape[d + (d > at)] = t->shape[d];
    shape[at] = first;
    shape[at + 1] = t->shape[at] / first;
    return call_view(&lc__op_reshape, x, t->ndim + 1, shape, site);
}

lc_tensor *lc_permute_at(lc_tensor *x, int n, const int64_t *dims, lc_site site)
{
    if (lc__is_bad(x) || n < 0 || n > LC_MAX_DIMS || !dims) return call_view(&lc__op_permute, x, n, dims, site);
    int64_t wrapped[LC_MAX_DIMS];
    for (int d = 0; d < n; d++) wrapped[d] = lc__wrap_dim(dims[d], lc_tensor_ndim(x));
    return call_view(&lc__op_permute, x, n, wrapped, site);
}

lc_tensor *lc_transpose_at(lc_tensor *x, int dim0, int dim1, lc_site site)
{
    if (!lc__is_given(x, "x", "transpose", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    if (lc__is_point(x, dim0) && lc__is_point(x, dim1)) return lc__unchanged(x, site);
    int64_t a = lc__wrap_dim(dim0, t->ndim), b = lc__wrap_dim(dim1, t->ndim), dims[LC_MAX_DIMS];
    if (a < 0 || a >= t->ndim) return lc__refuse(lc__infer_dim(t, dim0), "transpose", x, site);
    if (b < 0 || b >= t->ndim) return lc__refuse(lc__infer_dim(t, dim1), "transpose", x, site);
    for (int d = 0; d < t->ndim; d++) dims[d] = d == a ? b : d == b ? a : d;
    return call_view(&lc__op_permute, x, t->ndim, dims, site);
}

lc_tensor *lc_slice_at(lc_tensor *x, int dim, int64_t start, int64_t length, lc_site site)
{
    if (lc__is_bad(x)) return lc__op1(&lc__op_slice, x, site);
    const lc_type *t = lc_tensor_type(x);
    int64_t ints[] = {lc__wrap_dim(dim, t->ndim), start, length};
    if (start < 0 && ints[0] >= 0 && ints[0] < t->ndim) ints[1] += t->shape[ints[0]];
    return call_view(&lc__op_slice, x, 3, ints, site);
}

/* x without dimension `dim`, whose size is 1. */
static lc_tensor *drop_dim(lc_tensor *x, int64_t dim, lc_site site)
{
    const lc_type *t = lc_tensor_type(x);
    int64_t shape[LC_MAX_DIMS];
    for (int d = 0, n = 0; d < t->ndim; d++)
        if (d != dim) shape[n++] = t->shape[d];
    return call_view(&lc__op_reshape, x, t->ndim - 1, shape, site);
}

lc_tensor *lc_select_at(lc_tensor *x, int dim, int64_t index, lc_site site)
{
    if (!lc__is_given(x, "x", "select", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    int64_t d = lc__wrap_dim(dim, t->ndim);
    if (d < 0 || d >= t->ndim) return lc__refuse(lc__infer_dim(t, dim), "select", x, site);
    if (index < -t->shape[d] || index >= t->shape[d])
        return lc__refuse(lc_fail(LC_ERR_SHAPE, "index %lld is out of range for dimension %d of %lld elements",
                                  (long long)index, dim, (long long)t->shape[d]),
                          "select", x, site);
    lc_tensor *y = lc_slice_at(x, (int)d, index, 1, site);
    return lc__is_bad(y) ? y : drop_dim(y, d, site);
}

lc_tensor *lc_squeeze_at(lc_tensor *x, int dim, lc_site site)
{
    if (!lc__is_given(x, "x", "squeeze", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    int64_t d = lc__wrap_dim(dim, t->ndim);
    if (lc__is_point(x, dim)) return lc__unchanged(x, site);
    if (d < 0 || d >= t->ndim) return lc__refuse(lc__infer_dim(t, dim), "squeeze", x, site);
    return t->shape[d] == 1 ? drop_dim(x, d, site) : lc__unchanged(x, site);
}

lc_tensor *lc_unsqueeze_at(lc_tensor *x, int dim, lc_site site)
{
    if (!lc__is_given(x, "x", "unsqueeze", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    int64_t at = lc__wrap_dim(dim, t->ndim + 1), shape[LC_MAX_DIMS + 1];
    if (at < 0 || at > t->ndim) return lc__refuse(lc__infer_dim(t, dim), "unsqueeze", x, site);
    for (int d = 0; d < t->ndim; d++) shape[d + (d >= at)] = t->shape[d];
    shape[at] = 1;
    return call_view(&lc__op_reshape, x, t->ndim + 1, shape, site);
}

lc_tensor *lc_expand_at(lc_tensor *x, int n, const int64_t *shape, lc_site site)
{
    if (lc__is_bad(x) || n < 0 || n > LC_MAX_DIMS || !shape) return call_view(&lc__op_expand, x, n, shape, site);
    const lc_type *t = lc_tensor_type(x);
    int64_t resolved[LC_MAX_DIMS];
    bool same = n == t->ndim;
    for (int d = 0; d < n; d++) {
        int own = d - (n - t->ndim);
        resolved[d] = shape[d] == -1 && own >= 0 ? t->shape[own] : shape[d];
        same = same && resolved[d] == t->shape[d];
    }
    return same ? lc__unchanged(x, site) : call_view(&lc__op_expand, x, n, resolved, site);
}

/* Fills `out` with error tensors. */
static int refuse_parts(lc_status status, const char *title, int room, lc_tensor **out, lc_site site)
{
    lc__refuse_call(status, title, site);
    for (int k = 0; k < room; k++) out[k] = lc__error_tensor();
    return room > 0 ? room : 0;
}

/* lc_split, and the parts of lc_chunk. */
static int parts_of(lc_tensor *x, int64_t size, int dim, int max, lc_tensor **out, const char *title, lc_site site)
{
    int ndim = lc_tensor_ndim(x), n = 0;
    int64_t d = lc__wrap_dim(dim, ndim);
    if (d < 0 || d >= ndim)
        return refuse_parts(
            lc_fail(LC_ERR_SHAPE, "dimension %d is out of range for a tensor of %d dimensions", dim, ndim), title, max,
            out, site);
    if (size < 1)
        return refuse_parts(lc_fail(LC_ERR_ARGUMENT, "parts cannot have %lld elements", (long long)size), title, max,
                            out, site);
    int64_t have = lc_tensor_shape(x)[d], parts = have ? (have - 1) / size + 1 : 1;
    if (parts > max)
        return refuse_parts(lc_fail(LC_ERR_ARGUMENT,
                                    "dimension %lld of %lld elements has %lld parts of %lld, and there is room for %d",
                                    (long long)d, (long long)have, (long long)parts, (long long)size, max),
                            title, max, out, site);
    for (; n < parts; n++)
        out[n] = lc_slice_at(x, dim, n * size, have - n * size < size ? have - n * size : size, site);
    return n;
}

/* Whether x and out are given; if not, *n is what the function returns. */
static bool can_cut(lc_tensor *x, int room, lc_tensor **out, const char *title, lc_site site, int *n)
{
    *n = 0;
    if (!out) {
        refuse_parts(lc_fail(LC_ERR_ARGUMENT, "out is NULL"), title, 0, out, site);
        return false;
    }
    if (lc__is_given(x, "x", title, site)) return true;
    for (; *n < room; ++*n) out[*n] = lc__error_tensor();
    return false;
}

int lc_split_at(lc_tensor *x, int64_t size, int dim, int max, lc_tensor **out, lc_site site)
{
    int n;
    return can_cut(x, max, out, "split", site, &n) ? parts_of(x, size, dim, max, out, "split", site) : n;
}

int lc_chunk_at(lc_tensor *x, int n, int dim, lc_tensor **out, lc_site site)
{
    int refused;
    if (out && n < 1)
        return refuse_parts(lc_fail(LC_ERR_ARGUMENT, "%d parts were requested; there must be at least 1", n), "chunk",
                            0, out, site);
    if (!can_cut(x, n, out, "chunk", site, &refused)) return refused;
    int64_t d = lc__wrap_dim(dim, lc_tensor_ndim(x));
    bool exists = d >= 0 && d < lc_tensor_ndim(x);
    int64_t have = exists ? lc_tensor_shape(x)[d] : 1;
    if (have > 0) return parts_of(x, (have + n - 1) / n, dim, n, out, "chunk", site);
    for (int k = 0; k < n; k++) out[k] = lc_slice_at(x, dim, 0, 0, site); /* as many as asked for, as in PyTorch */
    return n;
}

/* ---- range of a 1-D tensor (ints: offset, layout, shape...), as a tensor of that shape ---- */

enum { R_OFFSET, R_LAYOUT, R_SHAPE };

static lc_status infer_range(lc_infer *call)
{
    lc_type *out = &call->out[0];
    out->dtype = call->in[0]->dtype;
    out->ndim = call->n_int - R_SHAPE;
    for (int d = 0; d < out->ndim; d++) out->shape[d] = call->ints[R_SHAPE + d];
    return LC_OK;
}

static bool view_range(const lc_infer *call, const lc_view *in, lc_view *out, int64_t *offset)
{
    lc_type type = lc__view_type(out);
    if (in->stride[0] != 1) return false;
    lc__dense_strides(&type, (lc_layout)call->ints[R_LAYOUT], out->stride);
    *offset = call->ints[R_OFFSET];
    return true;
}

const lc_op lc__op_range = {
    .name = "range", .flags = LC_OP_VIEW | LC_OP_NO_GRAD, .n_out = 1, .infer = infer_range, .view = view_range};
