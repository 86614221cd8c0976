/* SPDX-License-Identifier: Apache-2.0 */
/* Normalization within a sample: over the last dimensions (layer, RMS) or over groups of channels. */
#include <float.h>

#include "ops/nn_util.h"
#include "ops/take.h"

#define LC_TEMPLATE "ops/norm.inl"
#include "ops/for_floats.h"

/* ---- inference ---- */
/* x (input `x`) with ints[0] normalized dimensions; input `w`, and with `bias` the one after it, have their shape. */
static lc_status check_rows(const lc_infer *call, int x, int w, bool bias)
{
    LC_TRY(lc__check_float(call, x, "x"));
    const lc_type *t = call->in[x];
    int64_t dims = call->ints[0];
    if (dims < 1 || dims > t->ndim)
        return lc_fail(LC_ERR_SHAPE, "cannot normalize %lld dimensions of x, which has %d", (long long)dims, t->ndim);
    const int64_t *inner = t->shape + t->ndim - dims;
    LC_TRY(lc__check_dtype_of(call, w, "weight", x, "x"));
    LC_TRY(lc__check_shape(call, w, "weight", (int)dims, inner));
    if (bias) {
        LC_TRY(lc__check_dtype_of(call, w + 1, "bias", x, "x"));
        LC_TRY(lc__check_shape(call, w + 1, "bias", (int)dims, inner));
    }
    if (lc__extent(t, t->ndim - (int)dims, t->ndim) < 1)
        return lc_fail(LC_ERR_SHAPE, "the normalized dimensions of x are empty");
    return LC_OK;
}

/* The leading dimensions of x; the normalized ones. */
static void set_leading(const lc_infer *call, const lc_type *x, int out)
{
    lc__set_type(&call->out[out], x->dtype, x->ndim - (int)call->ints[0], x->shape);
}

static void set_inner(const lc_infer *call, const lc_type *x, int out)
{
    lc__set_type(&call->out[out], x->dtype, (int)call->ints[0], x->shape + x->ndim - call->ints[0]);
}

static lc_status layer_norm_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 1, 1, 1));
    LC_TRY(check_rows(call, 0, 1, true));
    call->out[0] = *call->in[0];
    set_leading(call, call->in[0], 1);
    set_leading(call, call->in[0], 2);
    return LC_OK;
}

static lc_status rms_norm_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 2, 1, 1, 1));
    LC_TRY(check_rows(call, 0, 1, false));
    call->out[0] = *call->in[0];
    set_leading(call, call->in[0], 1);
    return LC_OK;
}

static lc_status check_statistics(const lc_infer *call, int first, int count)
{
    const lc_type *x = call->in[1];
    for (int i = first; i < first + count; i++) {
        LC_TRY(lc__check_dtype_of(call, i, "statistics", 1, "x"));
        LC_TRY(lc__check_shape(call, i, "statistics", x->ndim - (int)call->ints[0], x->shape));
    }
    LC_TRY(lc__check_dtype_of(call, 0, "dy", 1, "x"));
    return lc__check_shape(call, 0, "dy", x->ndim, x->shape);
}

static lc_status layer_norm_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 5, 1 | 2 | 8 | 16, 1, 0));
    LC_TRY(check_rows(call, 1, 2, false));
    LC_TRY(check_statistics(call, 3, 2));
    call->out[0] = *call->in[1];
    set_inner(call, call->in[1], 1);
    set_inner(call, call->in[1], 2);
    return LC_OK;
}

static lc_status rms_norm_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 4, 1 | 2 | 8, 1, 0));
    LC_TRY(check_rows(call, 1, 2, false));
    LC_TRY(check_statistics(call, 3, 1));
    call->out[0] = *call->in[1];
    set_inner(call, call->in[1], 1);
    return LC_OK;
}

static lc_status check_groups(const lc_infer *call, int x, int w, int vectors)
{
    static const char *const names[] = {"weight", "bias"};
    LC_TRY(lc__check_float(call, x, "x"));
    const lc_type *t = call->in[x];
    if (t->ndim < 2) return lc_fail(LC_ERR_SHAPE, "x must have at least 2 dimensions [N,C,...], has %d", t->ndim);
    if (call->ints[0] < 1 || t->shape[1] % call->ints[0])
        return lc_fail(LC_ERR_SHAPE, "x has %lld channels, which do not divide into %lld groups",
                       (long long)t->shape[1], (long long)call->ints[0]);
    for (int i = 0; i < vectors; i++) {
        LC_TRY(lc__check_dtype_of(call, w + i, names[i], x, "x"));
        LC_TRY(lc__check_vector(call, w + i, names[i], t->shape[1], "channels"));
    }
    if (t->shape[0] * (t->shape[1] / call->ints[0]) * lc__extent(t, 2, t->ndim) == 1)
        return lc_fail(LC_ERR_SHAPE, "statistics need more than one value per group; use fewer groups");
    return LC_OK;
}

static lc_status group_norm_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 1, 1, 1));
    LC_TRY(check_groups(call, 0, 1, 2));
    const lc_type *x = call->in[0];
    call->out[0] = *x;
    for (int i = 1; i < 3; i++) lc__set_type(&call->out[i], x->dtype, 2, (int64_t[]){x->shape[0], call->ints[0]});
    return LC_OK;
}

static lc_status group_norm_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 5, 1 | 2 | 8 | 16, 1, 0));
    LC_TRY(check_groups(call, 1, 2, 1));
    const lc_type *x = call->in[1];
    LC_TRY(lc__check_dtype_of(call, 0, "dy", 1, "x"));
    LC_TRY(lc__check_shape(call, 0, "dy", x->ndim, x->shape));
    for (int i = 3; i < 5; i++) {
        LC_TRY(lc__check_dtype_of(call, i, "statistics", 1, "x"));
        LC_TRY(lc__check_shape(call, i, "statistics", 2, (int64_t[]){x->shape[0], call->ints[0]}));
    }
    call->out[0] = *x;
    for (int i = 1; i < 3; i++) lc__set_type(&call->out[i], x->dtype, 1, &x->shape[1]);
    return LC_OK;
}

/* ---- scratch: dw and db in double ---- */
static lc_status prepare_rows(lc_call *c)
{
    const lc_view *x = &c->in[1];
    c->scratch_bytes = (size_t)lc__view_extent(x, x->ndim - (int)c->ints[0], x->ndim) * 2 * sizeof(double);
    return LC_OK;
}

static lc_status prepare_groups(lc_call *c)
{
    c->scratch_bytes = (size_t)c->in[1].shape[1] * 2 * sizeof(double);
    return LC_OK;
}

/* ---- gradients ---- */
/* Makes out[0..2] of a backward operator the gradients of x, w, b. */
static lc_status record_backward(lc_grad *g, const lc_op *op, int n_in, lc_tensor *const *in)
{
    lc_tensor *out[3] = {NULL};
    lc_op_call_n(op, n_in, in, g->n_int, g->ints, LC_NONE, out, LC_HERE);
    for (int i = 0; i < g->n_in; i++)
        if (g->need[i]) g->din[i] = out[i];
    return LC_OK;
}

static lc_status no_statistics_grad(const lc_grad *g)
{
    for (int i = 1; i < g->n_out; i++)
        if (g->dout[i])
            return lc_fail(LC_ERR_UNSUPPORTED, "no gradient flows through the statistics of %s", g->op->name);
    return LC_OK;
}

static lc_status layer_norm_grad(lc_grad *g)
{
    LC_TRY(no_statistics_grad(g));
    return record_backward(g, &lc__op_layer_norm_backward, LC_IN(g->dout[0], g->in[0], g->in[1], g->out[1], g->out[2]));
}

static lc_status rms_norm_grad(lc_grad *g)
{
    LC_TRY(no_statistics_grad(g));
    return record_backward(g, &lc__op_rms_norm_backward, LC_IN(g->dout[0], g->in[0], g->in[1], g->out[1]));
}

static lc_status group_norm_grad(lc_grad *g)
{
    LC_TRY(no_statistics_grad(g));
    return record_backward(g, &lc__op_group_norm_backward, LC_IN(g->dout[0], g->in[0], g->in[1], g->out[1], g->out[2]));
}

LC_NN_KERNEL(layer_norm)
LC_NN_KERNEL_PREPARED(layer_norm_backward, prepare_rows)
LC_NN_KERNEL(rms_norm)
LC_NN_KERNEL_PREPARED(rms_norm_backward, prepare_rows)
LC_NN_KERNEL(group_norm)
LC_NN_KERNEL_PREPARED(group_norm_backward, prepare_groups)
const lc_op lc__op_layer_norm = {.name = "layer_norm",
                                 .inputs = "x weight bias",
                                 .n_out = 3,
                                 .infer = layer_norm_infer,
                                 .grad = layer_norm_grad,
                                 .kernel = &layer_norm_kernel};
const lc_op lc__op_layer_norm_backward = {.name = "layer_norm_backward",
                                          .flags = LC_OP_NO_GRAD,
                                          .n_out = 3,
                                          .infer = layer_norm_backward_infer,
                                          .kernel = &layer_norm_backward_kernel};
const lc_op lc__op_rms_norm = {.name = "rms_norm",
                               .inputs = "x weight",
                               .n_out = 2,
                               .infer = rms_norm_infer,
                               .grad = rms_norm_grad,
                               .kernel = &rms_norm_kernel};
const lc_op lc__op_rms_norm_backward = {.name = "rms_norm_backward",
                                        .flags = LC_OP_NO_GRAD,
                                        .n_out = 2,
                                        .infer = rms_norm_backward_infer,
                                        .kernel = &rms_norm_backward_kernel};
const lc_op lc__op_group_norm = {.name = "group_norm",
                                 .inputs = "x weight bias",
                                 .n_out = 3,
                                 .infer = group_norm_infer,
                                 .grad = group_norm_grad,
                                 .kernel = &group_norm_kernel};
const lc_op lc__op_group_norm_backward = {.name = "group_norm_backward",
                                          .flags = LC_OP_NO_GRAD,
                                          .n_out = 3,
                                          .infer = group_norm_backward_infer,
                                          .kernel = &group_norm_backward_kernel};

/* ---- public functions ---- */
static int64_t normalized(int dims, const lc_tensor *w)
{
    return dims ? dims : lc__unusable(w) ? 1 : lc_tensor_ndim(w);
}

lc_tensor *lc_layer_norm_at(lc_tensor *x, lc_tensor *w, const lc_norm_args *given, lc_site site)
{
    LC__TAKE_OP(args, "layer_norm", lc_norm, given, site);
    lc_tensor *out[3];
    lc_op_call_n(&lc__op_layer_norm, LC_IN(x, w, args.bias), LC_ATTRS(normalized(args.dims, w)), LC_FLOATS(args.eps),
                 out, site);
    return out[0];
}

lc_tensor *lc_rms_norm_at(lc_tensor *x, const lc_rms_norm_args *given, lc_site site)
{
    LC__TAKE_OP(args, "rms_norm", lc_rms_norm, given, site);
    lc_tensor *out[2];
    double eps = args.eps;
    if (eps == -1) eps = !lc__unusable(x) && lc_tensor_dtype(x) == LC_F64 ? DBL_EPSILON : FLT_EPSILON;
    lc_op_call_n(&lc__op_rms_norm, LC_IN(x, args.weight), LC_ATTRS(normalized(args.dims, args.weight)), LC_FLOATS(eps),
                 out, site);
    return out[0];
}

lc_tensor *lc_group_norm_at(lc_tensor *x, int64_t groups, lc_tensor *w, const lc_norm_args *given, lc_site site)
{
    LC__TAKE_OP(args, "group_norm", lc_norm, given, site);
    lc_tensor *out[3];
    lc_op_call_n(&lc__op_group_norm, LC_IN(x, w, args.bias), LC_ATTRS(groups), LC_FLOATS(args.eps), out, site);
    return out[0];
}
