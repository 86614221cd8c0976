/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that record reductions. */
#include "ops/infer.h"
#include "ops/nn_util.h"
#include "ops/ops.h"
#include "ops/take.h"

#include <math.h>
#include <string.h>

/* Dimensions that exist; 0 or -1 of an x without dimensions are all it has, as in PyTorch. */
static bool takes_dims(lc_reduce_args *a, const char *name, lc_site site)
{
    if (!a->dims.n || lc__is_bad(a->x)) return true;
    const lc_type *t = lc_tensor_type(a->x);
    if (a->dims.n == 1 && lc__is_point(a->x, a->dims.dim[0])) a->dims.n = 0;
    for (int i = 0; i < a->dims.n && i < LC_MAX_DIMS; i++) {
        int64_t d = lc__wrap_dim(a->dims.dim[i], t->ndim);
        if (d >= 0 && d < t->ndim) continue;
        lc__refuse(lc__infer_dim(t, a->dims.dim[i]), name, a->x, site);
        return false;
    }
    return true;
}

static lc_tensor *call_reduce(const lc_op *op, lc_reduce_args *a, int n_extra, int64_t extra, int n_float,
                              const double *floats, lc_site site)
{
    lc_tensor *x = a->x;
    if (lc__is_bad(x)) return lc__op1(op, x, site);
    if (!takes_dims(a, op->name, site)) return lc__error_tensor();
    int ndim = lc_tensor_ndim(x), n = a->dims.n;
    int64_t ints[2 + LC_MAX_DIMS + 1] = {a->keepdim};
    int64_t *dims = ints + 2;
    if (n == 0) {
        n = ndim;
        for (int d = 0; d < n; d++) dims[d] = d;
    }
    for (int i = 0; i < a->dims.n; i++) {
        int64_t d = lc__wrap_dim(a->dims.dim[i], ndim);
        int j = i;
        for (; j > 0 && dims[j - 1] > d; j--) dims[j] = dims[j - 1];
        dims[j] = d;
    }
    ints[1] = n;
    ints[2 + n] = extra;
    return lc_op_call(op, 1, &x, 2 + n + n_extra, ints, n_float, floats, site);
}

lc_tensor *lc_sum_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "sum", lc_reduce, given, site);
    return call_reduce(&lc__op_sum, &a, 0, 0, 0, NULL, site);
}

lc_tensor *lc_mean_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "mean", lc_reduce, given, site);
    return call_reduce(&lc__op_mean, &a, 0, 0, 0, NULL, site);
}

lc_tensor *lc_amax_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "amax", lc_reduce, given, site);
    return call_reduce(&lc__op_amax, &a, 0, 0, 0, NULL, site);
}

lc_tensor *lc_amin_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "amin", lc_reduce, given, site);
    return call_reduce(&lc__op_amin, &a, 0, 0, 0, NULL, site);
}

lc_tensor *lc_logsumexp_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "logsumexp", lc_reduce, given, site);
    return call_reduce(&lc__op_logsumexp, &a, 0, 0, 0, NULL, site);
}

static lc_tensor *call_moment(const lc_op *op, lc_reduce_args *a, lc_site site)
{
    int64_t correction;
    memcpy(&correction, &a->correction, sizeof correction);
    return call_reduce(op, a, 1, correction, 0, NULL, site);
}

lc_tensor *lc_var_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "var", lc_reduce, given, site);
    return call_moment(&lc__op_var, &a, site);
}

/* Not a root of lc_var, for which f16 has no room if it is above 65504. */
lc_tensor *lc_std_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "std", lc_reduce, given, site);
    return call_moment(&lc__op_std, &a, site);
}

/* The limits p = 1, infinity and 0 are other operators, so that their gradients (ties, zeros) equal PyTorch's. */
lc_tensor *lc_norm_at(const lc_reduce_args *given, lc_site site)
{
    LC__TAKE_OP(a, "norm", lc_reduce, given, site);
    double p = a.p;
    if (lc__is_bad(a.x)) return lc__op1(&lc__op_norm, a.x, site);
    if (!takes_dims(&a, "norm", site)) return lc__error_tensor();
    if (p == 1 || isinf(p)) {
        a.x = lc_abs_at(a.x, site);
        return p == 1 ? lc_sum_at(&a, site) : p > 0 ? lc_amax_at(&a, site) : lc_amin_at(&a, site);
    }
    if (p == 0) {
        lc_dtype dtype = lc_tensor_dtype(a.x);
        a.x = lc_cast_at(lc_ne_at(a.x, lc_scalar_at(0, dtype, site), site), dtype, site);
        return lc_sum_at(&a, site);
    }
    return call_reduce(&lc__op_norm, &a, 0, 0, 1, &p, site);
}

static lc_tensor *call_arg(const lc_op *op, const lc_arg_args *a, lc_site site)
{
    lc_tensor *x = a->x;
    if (lc__is_bad(x)) return lc__op1(op, x, site);
    int64_t dim = -1;
    if (a->dim != LC_UNSET) {
        const lc_type *t = lc_tensor_type(x);
        bool only = t->ndim == 0 && (a->dim == 0 || a->dim == -1); /* as in PyTorch */
        dim = only ? -1 : lc__wrap_dim(a->dim, t->ndim);
        if (dim < 0 && !only) return lc__refuse(lc__infer_dim(t, a->dim), op->name, x, site);
    }
    int64_t ints[] = {dim, a->keepdim};
    return lc_op_call(op, 1, &x, 2, ints, 0, NULL, site);
}

lc_tensor *lc_argmax_at(const lc_arg_args *given, lc_site site)
{
    LC__TAKE_OP(a, "argmax", lc_arg, given, site);
    return call_arg(&lc__op_argmax, &a, site);
}

lc_tensor *lc_argmin_at(const lc_arg_args *given, lc_site site)
{
    LC__TAKE_OP(a, "argmin", lc_arg, given, site);
    return call_arg(&lc__op_argmin, &a, site);
}
