/* SPDX-License-Identifier: Apache-2.0 */
/* Losses: each is an operator, or made of several. */
#include "ops/infer.h"
#include "ops/nn_util.h"
#include "ops/ops.h"
#include "ops/take.h"

/* Checks that the reduction exists and that weights do not make the result larger than x. */
static lc_status check_reduction(lc_reduction how, bool batchmean)
{
    if (how >= LC_REDUCE_MEAN && how <= (batchmean ? LC_REDUCE_BATCHMEAN : LC_REDUCE_NONE)) return LC_OK;
    if (how == LC_REDUCE_BATCHMEAN) return lc_fail(LC_ERR_ARGUMENT, "LC_REDUCE_BATCHMEAN is only for lc_kl_div");
    return lc_fail(LC_ERR_ARGUMENT, "%d is not a reduction", (int)how);
}

/* Whether t has x's shape, or, with `broadcasts`, broadcasts to it. */
static bool is_like(const lc_type *t, const lc_type *x, bool broadcasts)
{
    bool fits = broadcasts ? t->ndim <= x->ndim : t->ndim == x->ndim;
    for (int d = 0; fits && d < t->ndim; d++)
        fits = t->shape[d] == x->shape[x->ndim - t->ndim + d] || (broadcasts && t->shape[d] == 1);
    return fits;
}

/* Whether both have the same sizes, except those of 1. */
static bool differ_in_ones(const lc_type *x, const lc_type *t)
{
    int i = 0, k = 0;
    for (;; i++, k++) {
        while (i < x->ndim && x->shape[i] == 1) i++;
        while (k < t->ndim && t->shape[k] == 1) k++;
        if (i == x->ndim || k == t->ndim) return i == x->ndim && k == t->ndim;
        if (x->shape[i] != t->shape[k]) return false;
    }
}

static lc_status differs(const lc_type *x, const lc_type *t, const char *name, const char *what)
{
    char got[LC__SHAPE_TEXT], wanted[LC__SHAPE_TEXT];
    return lc_fail(LC_ERR_SHAPE, "the %s is %s but x is %s: %s%s", name, lc__shape_text(t, got, sizeof got),
                   lc__shape_text(x, wanted, sizeof wanted), what,
                   differ_in_ones(x, t) ? "; lc_squeeze or lc_unsqueeze one of them" : "");
}

static lc_status check_like_x(const lc_tensor *x, const lc_tensor *t, bool broadcasts, const char *name)
{
    if (lc__is_bad(x) || lc__is_bad(t)) return LC_OK; /* the operators report it */
    const lc_type *of_x = lc_tensor_type(x), *of_t = lc_tensor_type(t);
    if (is_like(of_t, of_x, broadcasts)) return LC_OK;
    return differs(of_x, of_t, name, broadcasts ? "it must broadcast to x" : "they must be equal");
}

/* One of both may broadcast to the other. With [B,1] and [B], every element would be compared with every other, of
 * which PyTorch warns. */
static lc_status check_target(const lc_tensor *x, const lc_tensor *t)
{
    if (lc__is_bad(x) || lc__is_bad(t)) return LC_OK;
    const lc_type *of_x = lc_tensor_type(x), *of_t = lc_tensor_type(t);
    if (is_like(of_t, of_x, true) || is_like(of_x, of_t, true)) return LC_OK;
    return differs(of_x, of_t, "target", "they must be equal, or one must broadcast to the other");
}

static lc_tensor *reduced(lc_tensor *loss, lc_reduction how, lc_site site)
{
    if (lc__is_bad(loss) || how == LC_REDUCE_NONE) return loss;
    if (how == LC_REDUCE_MEAN) return LC__CALL_AT(lc_mean, lc_reduce, (), site, .x = loss);
    lc_tensor *sum = LC__CALL_AT(lc_sum, lc_reduce, (), site, .x = loss);
    if (how == LC_REDUCE_SUM || lc_tensor_ndim(loss) == 0) return sum;
    return lc_mul_scalar_at(sum, 1 / (double)lc_tensor_shape(loss)[0], site);
}

static lc_tensor *call_with_float(const lc_op *op, lc_tensor *x, lc_tensor *y, double f, lc_site site)
{
    lc_tensor *in[] = {x, y};
    return lc_op_call(op, 2, in, 0, NULL, 1, &f, site);
}

lc_tensor *lc_mse_loss_at(lc_tensor *x, const lc_loss_args *given, lc_site site)
{
    LC__TAKE_OP(a, "mse_loss", lc_loss, given, site);
    lc_status status = check_reduction(a.reduction, false);
    if (status >= 0) status = check_target(x, a.target);
    if (status < 0 && !lc__is_bad(x)) return lc__refuse(status, "mse_loss", x, site);
    return reduced(lc__op2(&lc__op_mse, x, a.target, site), a.reduction, site);
}

lc_tensor *lc_l1_loss_at(lc_tensor *x, const lc_loss_args *given, lc_site site)
{
    LC__TAKE_OP(a, "l1_loss", lc_loss, given, site);
    lc_status status = check_reduction(a.reduction, false);
    if (status >= 0) status = check_target(x, a.target);
    if (status < 0 && !lc__is_bad(x)) return lc__refuse(status, "l1_loss", x, site);
    return reduced(lc__op2(&lc__op_l1, x, a.target, site), a.reduction, site);
}

lc_tensor *lc_smooth_l1_loss_at(lc_tensor *x, const lc_loss_args *given, lc_site site)
{
    LC__TAKE_OP(a, "smooth_l1_loss", lc_loss, given, site);
    double beta = a.beta;
    lc_status status = check_reduction(a.reduction, false);
    if (status >= 0) status = check_target(x, a.target);
    if (status >= 0 && beta < 0) status = lc_fail(LC_ERR_ARGUMENT, "beta must not be negative, is %g", beta);
    if (status < 0 && !lc__is_bad(x)) return lc__refuse(status, "smooth_l1_loss", x, site);
    return reduced(call_with_float(&lc__op_smooth_l1, x, a.target, beta, site), a.reduction, site);
}

lc_tensor *lc_huber_loss_at(lc_tensor *x, const lc_loss_args *given, lc_site site)
{
    LC__TAKE_OP(a, "huber_loss", lc_loss, given, site);
    double delta = a.delta;
    lc_status status = check_reduction(a.reduction, false);
    if (status >= 0) status = check_target(x, a.target);
    if (status >= 0 && !(delta > 0)) status = lc_fail(LC_ERR_ARGUMENT, "delta must be positive, is %g", delta);
    if (status < 0 && !lc__is_bad(x)) return lc__refuse(status, "huber_loss", x, site);
    return reduced(call_with_float(&lc__op_huber, x, a.target, delta, site), a.reduction, site);
}

/* With a positive weight p: (1 - t) x - (1 + (p - 1) t) log sigmoid(x). That is the loss without p, and (p - 1) t times
 * the loss for t = 1; so mixed precision rounds no product. */
lc_tensor *lc_bce_with_logits_at(lc_tensor *x, const lc_loss_args *given, lc_site site)
{
    LC__TAKE_OP(a, "bce_with_logits", lc_loss, given, site);
    lc_tensor *t = a.target, *loss;
    lc_status status = check_reduction(a.reduction, false);
    if (status >= 0) status = check_like_x(x, t, false, "target");
    if (status >= 0 && a.weight) status = check_like_x(x, a.weight, true, "weight");
    if (status >= 0 && a.pos_weight) status = check_like_x(x, a.pos_weight, true, "pos_weight");
    if (status < 0) return lc__refuse(status, "bce_with_logits", x, site);
    loss = lc__op2(&lc__op_bce_with_logits, x, t, site);
    if (a.pos_weight) {
        lc_tensor *positive = lc__op2(&lc__op_bce_with_logits, x, lc_scalar_at(1, lc_tensor_dtype(x), site), site);
        positive = lc_mul_at(positive, t, site);
        loss = lc_add_at(loss, lc_sub_at(lc_mul_at(positive, a.pos_weight, site), positive, site), site);
    }
    if (a.weight) loss = lc_mul_at(loss, a.weight, site);
    return reduced(loss, a.reduction, site);
}

/* t (log t - x), x being log-probabilities. */
lc_tensor *lc_kl_div_at(lc_tensor *x, const lc_loss_args *given, lc_site site)
{
    LC__TAKE_OP(a, "kl_div", lc_loss, given, site);
    lc_status status = check_reduction(a.reduction, true);
    if (status < 0 && !lc__is_bad(x)) return lc__refuse(status, "kl_div", x, site);
    const lc_op *op = a.log_target ? &lc__op_kl_div_log : &lc__op_kl_div;
    return reduced(lc__op2(op, x, a.target, site), a.reduction, site);
}

static lc_status check_vectors(const lc_type *x, const lc_type *y, int dim, lc_type *both)
{
    const lc_type *in[] = {x, y};
    const lc_infer call = {.n_in = 2, .in = in};
    if (!lc_dtype_is_float(x->dtype) || !lc_dtype_is_float(y->dtype) || (x->dtype == LC_F64) != (y->dtype == LC_F64))
        return lc_fail(LC_ERR_DTYPE, "x is %s and y is %s; convert them with lc_cast", lc_dtype_name(x->dtype),
                       lc_dtype_name(y->dtype));
    LC_TRY(lc__infer_broadcast(&call, 0, 2, both));
    bool point = both->ndim == 0 && (dim == 0 || dim == -1);
    return point ? LC_OK : lc__infer_dim(both, lc__wrap_dim(dim, both->ndim));
}

/* As in PyTorch, a norm below eps counts as eps, but its gradient is that of the norm. */
lc_tensor *lc_cosine_similarity_at(lc_tensor *x, lc_tensor *y, const lc_cosine_args *given, lc_site site)
{
    LC__TAKE_OP(a, "cosine_similarity", lc_cosine, given, site);
    static const char *const names[] = {"x", "y"};
    const lc_dims along = LC_DIMS(a.dim);
    lc_tensor *unit[] = {x, y}; /* divided first: f16 has no room for products of x and y, or of norms */
    for (int i = 0; i < 2; i++)
        if (!lc__is_given(unit[i], names[i], "cosine_similarity", site)) return lc__error_tensor();
    lc_type both;
    lc_status status = check_vectors(lc_tensor_type(x), lc_tensor_type(y), a.dim, &both);
    if (status < 0) return lc__refuse(status, "cosine_similarity", x, site);
    for (int i = 0; i < 2; i++) {
        unit[i] = lc_expand_at(unit[i], both.ndim, both.shape, site); /* a norm counts what is repeated */
        lc_tensor *norm = LC__CALL_AT(lc_norm, lc_reduce, (), site, .x = unit[i], .dims = along, .keepdim = true);
        lc_tensor *below = lc_relu_at(lc_add_scalar_at(lc_neg_at(norm, site), a.eps, site), site);
        unit[i] = lc_div_at(unit[i], lc_add_at(norm, lc_detach_at(below, site), site), site);
    }
    return LC__CALL_AT(lc_sum, lc_reduce, (), site, .x = lc_mul_at(unit[0], unit[1], site), .dims = along);
}
