/* SPDX-License-Identifier: Apache-2.0 */
/* Losses over classes: cross entropy from scores, negative log-likelihood from log-probabilities. */
#include "ops/nn_util.h"
#include "ops/take.h"

#define LC_TEMPLATE "ops/cross_entropy.inl"
#include "ops/for_floats.h"

/* ---- inference ---- */
/* x[N,C,*], t[N,*], w?[C]; ints: ignore_index, reduction. `x` is a type because nll_loss_backward has no x. */
static lc_status check_classes(const lc_infer *call, const lc_type *x, int t, int w)
{
    LC_TRY(lc__check_index(call, t, "target"));
    if (x->ndim < 2) return lc_fail(LC_ERR_SHAPE, "x must have at least 2 dimensions [N,C,...], has %d", x->ndim);
    if (x->shape[1] < 1) return lc_fail(LC_ERR_SHAPE, "x has no classes");
    int64_t want[LC_MAX_DIMS];
    want[0] = x->shape[0];
    for (int d = 2; d < x->ndim; d++) want[d - 1] = x->shape[d];
    LC_TRY(lc__check_shape(call, t, "target", x->ndim - 1, want));
    LC_TRY(lc__check_vector(call, w, "weight", x->shape[1], "classes"));
    if (call->in[w] && call->in[w]->dtype != x->dtype)
        return lc_fail(LC_ERR_DTYPE, "weight is %s but x is %s; cast one of them", lc_dtype_name(call->in[w]->dtype),
                       lc_dtype_name(x->dtype));
    if (call->ints[1] < LC_REDUCE_MEAN || call->ints[1] > LC_REDUCE_NONE)
        return lc_fail(LC_ERR_ARGUMENT, "reduction must be LC_REDUCE_MEAN, LC_REDUCE_SUM or LC_REDUCE_NONE");
    return LC_OK;
}

/* The type of the loss: a scalar, or [N,*]. */
static void set_loss(const lc_infer *call, const lc_type *x, const lc_type *t, lc_type *loss)
{
    bool none = call->ints[1] == LC_REDUCE_NONE;
    lc__set_type(loss, x->dtype, none ? t->ndim : 0, t->shape);
}

static lc_status check_dloss(const lc_infer *call, const lc_type *t)
{
    bool none = call->ints[1] == LC_REDUCE_NONE;
    return lc__check_shape(call, 0, "the loss's gradient", none ? t->ndim : 0, t->shape);
}

static lc_status cross_entropy_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 3, 2, 1));
    LC_TRY(lc__check_float(call, 0, "x"));
    const lc_type *x = call->in[0], *t = call->in[1];
    LC_TRY(check_classes(call, x, 1, 2));
    if (!(call->floats[0] >= 0 && call->floats[0] <= 1))
        return lc_fail(LC_ERR_ARGUMENT, "label_smoothing must be between 0 and 1, is %g", call->floats[0]);
    set_loss(call, x, t, &call->out[0]);
    lc__set_type(&call->out[1], x->dtype, t->ndim, t->shape);
    lc__set_type(&call->out[2], x->dtype, 0, NULL);
    return LC_OK;
}

static lc_status cross_entropy_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 6, 1 | 2 | 4 | 16 | 32, 2, 1));
    LC_TRY(lc__check_float(call, 1, "x"));
    LC_TRY(lc__check_float(call, 1, "x"));
    LC_TRY(lc__check_dtype_of(call, 0, "dloss", 1, "x"));
    LC_TRY(lc__check_dtype_of(call, 4, "lse", 1, "x"));
    LC_TRY(lc__check_dtype_of(call, 5, "total", 1, "x"));
    const lc_type *x = call->in[1], *t = call->in[2];
    LC_TRY(check_classes(call, x, 2, 3));
    LC_TRY(check_dloss(call, t));
    LC_TRY(lc__check_shape(call, 4, "lse", t->ndim, t->shape));
    call->out[0] = *x;
    return LC_OK;
}

static lc_status nll_loss_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 3, 3, 2, 0));
    LC_TRY(lc__check_float(call, 0, "x"));
    LC_TRY(check_classes(call, call->in[0], 1, 2));
    set_loss(call, call->in[0], call->in[1], &call->out[0]);
    lc__set_type(&call->out[1], call->in[0]->dtype, 0, NULL);
    return LC_OK;
}

static lc_status nll_loss_backward_infer(lc_infer *call)
{
    LC_TRY(lc__check_call(call, 4, 1 | 2 | 8, 3, 0));
    LC_TRY(lc__check_float(call, 0, "dloss"));
    LC_TRY(lc__check_dtype_of(call, 3, "total", 0, "dloss"));
    const lc_type *t = call->in[1];
    lc_type *x = &call->out[0];
    if (t->ndim < 1 || t->ndim + 1 > LC_MAX_DIMS)
        return lc_fail(LC_ERR_SHAPE, "target has an invalid number of dimensions, %d", t->ndim);
    lc__set_type(x, call->in[0]->dtype, t->ndim + 1, t->shape);
    x->shape[0] = t->shape[0];
    x->shape[1] = call->ints[2];
    for (int d = 1; d < t->ndim; d++) x->shape[d + 1] = t->shape[d];
    LC_TRY(check_classes(call, x, 1, 2));
    return check_dloss(call, t);
}

/* ---- gradients ---- */
static lc_status cross_entropy_grad(lc_grad *g)
{
    if (g->dout[1] || g->dout[2])
        return lc_fail(LC_ERR_UNSUPPORTED, "gradients flow only through the loss of cross_entropy");
    if (g->n_in > 2 && g->need[2])
        return lc_fail(LC_ERR_UNSUPPORTED, "no gradient flows to the class weights of cross_entropy; detach them");
    if (g->need[0])
        g->din[0] = lc_op_call(&lc__op_cross_entropy_backward,
                               LC_IN(g->dout[0], g->in[0], g->in[1], g->in[2], g->out[1], g->out[2]), g->n_int, g->ints,
                               g->n_float, g->floats, LC_HERE);
    return LC_OK;
}

static lc_status nll_loss_grad(lc_grad *g)
{
    if (g->need[2])
        return lc_fail(LC_ERR_UNSUPPORTED, "no gradient flows to the class weights of nll_loss; detach them");
    if (g->need[0] && g->dout[0])
        g->din[0] = lc_op_call(&lc__op_nll_loss_backward, LC_IN(g->dout[0], g->in[1], g->in[2], g->out[1]),
                               LC_ATTRS(g->ints[0], g->ints[1], lc_tensor_dim(g->in[0], 1)), LC_NONE, LC_HERE);
    return LC_OK;
}

LC_NN_KERNEL(cross_entropy)
LC_NN_KERNEL(cross_entropy_backward)
LC_NN_KERNEL(nll_loss)
LC_NN_KERNEL(nll_loss_backward)
const lc_op lc__op_cross_entropy = {.name = "cross_entropy",
                                    .inputs = "x target weight",
                                    .flags = LC_OP_CHECKS,
                                    .n_out = 3,
                                    .infer = cross_entropy_infer,
                                    .grad = cross_entropy_grad,
                                    .kernel = &cross_entropy_kernel};
const lc_op lc__op_cross_entropy_backward = {.name = "cross_entropy_backward",
                                             .inputs = "dloss x target weight lse total",
                                             .flags = LC_OP_NO_GRAD,
                                             .n_out = 1,
                                             .infer = cross_entropy_backward_infer,
                                             .kernel = &cross_entropy_backward_kernel};
const lc_op lc__op_nll_loss = {.name = "nll_loss",
                               .inputs = "x target weight",
                               .flags = LC_OP_CHECKS,
                               .n_out = 2,
                               .infer = nll_loss_infer,
                               .grad = nll_loss_grad,
                               .kernel = &nll_loss_kernel};
const lc_op lc__op_nll_loss_backward = {.name = "nll_loss_backward",
                                        .inputs = "dloss target weight total",
                                        .flags = LC_OP_NO_GRAD,
                                        .n_out = 1,
                                        .infer = nll_loss_backward_infer,
                                        .kernel = &nll_loss_backward_kernel};

/* ---- public functions ---- */
/* [C] scores with one class become a batch of one. */
static bool single(lc_tensor **x, lc_tensor **t, lc_site site)
{
    if (lc__unusable(*x) || lc__unusable(*t) || lc_tensor_ndim(*x) != 1 || lc_tensor_ndim(*t) != 0) return false;
    *x = lc__reshape(*x, 2, (int64_t[]){1, lc_tensor_dim(*x, 0)}, site);
    *t = lc__reshape(*t, 1, (int64_t[]){1}, site);
    return true;
}

static lc_status check_probabilities(const lc_tensor *x, const lc_cross_entropy_args *a, int dim)
{
    const lc_type *t = lc_tensor_type(a->target), *xt = lc_tensor_type(x);
    char got[128], want[128];
    if (!lc__type_equal(t, xt))
        return lc_fail(LC_ERR_SHAPE, "probabilities must have x's type and shape, %s %s, but are %s %s",
                       lc_dtype_name(xt->dtype), lc__shape_text(xt, want, sizeof want), lc_dtype_name(t->dtype),
                       lc__shape_text(t, got, sizeof got));
    if (a->ignore_index >= 0)
        return lc_fail(LC_ERR_ARGUMENT, "ignore_index needs targets that are classes, not probabilities");
    if (!(a->label_smoothing >= 0 && a->label_smoothing <= 1))
        return lc_fail(LC_ERR_ARGUMENT, "label_smoothing must be between 0 and 1, is %g", a->label_smoothing);
    if (a->reduction < LC_REDUCE_MEAN || a->reduction > LC_REDUCE_NONE)
        return lc_fail(LC_ERR_ARGUMENT, "reduction must be LC_REDUCE_MEAN, LC_REDUCE_SUM or LC_REDUCE_NONE");
    const lc_type *w = a->weight ? lc_tensor_type(a->weight) : NULL;
    if (w && !lc_tensor_is_error(a->weight) && (w->ndim != 1 || w->shape[0] != xt->shape[dim]))
        return lc_fail(LC_ERR_SHAPE, "weight is %s, but there are %lld classes", lc__shape_text(w, got, sizeof got),
                       (long long)xt->shape[dim]);
    return LC_OK;
}

/* Probability targets: -sum over classes of w t' log softmax(x), with t' = (1 - smoothing) t + smoothing / C. */
static lc_tensor *with_probabilities(lc_tensor *x, const lc_cross_entropy_args *a, lc_site site)
{
    lc_tensor *t = a->target;
    int n = lc_tensor_ndim(x), dim = n > 1 ? 1 : 0;
    double classes = (double)lc_tensor_dim(x, dim);
    lc_status status = check_probabilities(x, a, dim);
    if (status < 0) return lc__refuse(status, "cross_entropy", x, site);
    lc_tensor *logs = lc_op_call(&lc__op_log_softmax, LC_IN(x), LC_ATTRS(dim), LC_NONE, site);
    if (a->label_smoothing != 0) {
        t = lc_op_call(&lc__op_mul_scalar, LC_IN(t), LC_NONE, LC_FLOATS(1 - a->label_smoothing), site);
        t = lc_op_call(&lc__op_add_scalar, LC_IN(t), LC_NONE, LC_FLOATS(a->label_smoothing / classes), site);
    }
    if (a->weight) {
        int64_t shape[LC_MAX_DIMS];
        for (int d = 0; d < n; d++) shape[d] = 1;
        shape[0] = lc_tensor_dim(x, dim);
        t = lc__op2(&lc__op_mul, t, lc__reshape(a->weight, n - dim, shape, site), site);
    }
    lc_tensor *each = lc__op2(&lc__op_mul, t, logs, site);
    if (a->reduction == LC_REDUCE_NONE) {
        each = lc_op_call(&lc__op_sum, LC_IN(each), LC_ATTRS(0, 1, dim), LC_NONE, site);
        return lc__op1(&lc__op_neg, each, site);
    }
    int64_t ints[LC_MAX_DIMS + 2] = {0, n};
    for (int d = 0; d < n; d++) ints[2 + d] = d;
    lc_tensor *sum = lc_op_call(&lc__op_sum, LC_IN(each), 2 + n, ints, LC_NONE, site);
    double places = (double)lc_tensor_numel(x) / classes;
    return lc_op_call(&lc__op_mul_scalar, LC_IN(sum), LC_NONE,
                      LC_FLOATS(a->reduction == LC_REDUCE_MEAN ? -1 / places : -1), site);
}

lc_tensor *lc_cross_entropy_at(lc_tensor *x, const lc_cross_entropy_args *given, lc_site site)
{
    LC__TAKE_OP(args, "cross_entropy", lc_cross_entropy, given, site);
    lc_tensor *t = args.target, *out[3];
    if (!lc__unusable(x) && !lc__unusable(t) && lc_dtype_is_float(lc_tensor_dtype(t)) && lc_tensor_ndim(x) > 0 &&
        lc_tensor_ndim(t) == lc_tensor_ndim(x))
        return with_probabilities(x, &args, site);
    bool one = single(&x, &t, site);
    lc_op_call_n(&lc__op_cross_entropy, LC_IN(x, t, args.weight), LC_ATTRS(args.ignore_index, args.reduction),
                 LC_FLOATS(args.label_smoothing), out, site);
    return one && args.reduction == LC_REDUCE_NONE ? lc__reshape(out[0], 0, NULL, site) : out[0];
}

lc_tensor *lc_nll_loss_at(lc_tensor *x, const lc_cross_entropy_args *given, lc_site site)
{
    LC__TAKE_OP(args, "nll_loss", lc_cross_entropy, given, site);
    lc_tensor *t = args.target, *out[2];
    bool one = single(&x, &t, site);
    lc_op_call_n(&lc__op_nll_loss, LC_IN(x, t, args.weight), LC_ATTRS(args.ignore_index, args.reduction), LC_NONE, out,
                 site);
    return one && args.reduction == LC_REDUCE_NONE ? lc__reshape(out[0], 0, NULL, site) : out[0];
}
