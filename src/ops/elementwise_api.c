/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of lightc/ops_math.h that record elementwise operators. */
#include "ops/infer.h"
#include "ops/nn_util.h"
#include "ops/ops.h"
#include "ops/take.h"

#define UNARY(name, op)                                                                                                \
    lc_tensor *lc_##name##_at(lc_tensor *x, lc_site site)                                                              \
    {                                                                                                                  \
        return lc__op1(&lc__op_##op, x, site);                                                                         \
    }
#define BINARY(name)                                                                                                   \
    lc_tensor *lc_##name##_at(lc_tensor *x, lc_tensor *y, lc_site site)                                                \
    {                                                                                                                  \
        return lc__op2(&lc__op_##name, x, y, site);                                                                    \
    }

UNARY(neg, neg)
UNARY(exp, exp)
UNARY(expm1, expm1)
UNARY(log1p, log1p)
UNARY(sqrt, sqrt)
UNARY(rsqrt, rsqrt)
UNARY(reciprocal, reciprocal)
UNARY(abs, abs)
UNARY(sign, sign)
UNARY(floor, floor)
UNARY(ceil, ceil)
UNARY(round, round)
UNARY(square, square)
UNARY(sin, sin)
UNARY(cos, cos)
UNARY(tanh, tanh)
UNARY(sigmoid, sigmoid)
UNARY(erf, erf)
UNARY(relu, relu)
UNARY(relu6, relu6)
UNARY(silu, silu)
UNARY(softplus, softplus)
UNARY(softsign, softsign)
UNARY(logsigmoid, logsigmoid)
UNARY(hardswish, hardswish)
UNARY(hardsigmoid, hardsigmoid)
UNARY(mish, mish)
UNARY(selu, selu)
UNARY(isfinite, isfinite)
UNARY(isnan, isnan)
UNARY(logical_not, logical_not)
UNARY(ln, log)
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(pow)
BINARY(maximum)
BINARY(minimum)
BINARY(xlogy)
BINARY(eq)
BINARY(ne)
BINARY(lt)
BINARY(le)
BINARY(gt)
BINARY(ge)
BINARY(logical_and)
BINARY(logical_or)
BINARY(logical_xor)

static lc_tensor *with_floats(const lc_op *op, lc_tensor *x, int n, const double *floats, lc_site site)
{
    return lc_op_call(op, 1, &x, 0, NULL, n, floats, site);
}

/* Asked in every step: a step that repeats its plan may bring another number. */
static bool takes_scalar(lc_tensor *x, double s, const char *name, lc_site site)
{
    if (lc__is_bad(x) || lc_dtype_is_float(lc_tensor_dtype(x))) return true;
    lc_status status = lc__infer_scalar(s, lc_tensor_dtype(x));
    if (status < 0) lc__refuse(status, name, x, site);
    return status >= 0;
}

lc_tensor *lc_add_scalar_at(lc_tensor *x, double s, lc_site site)
{
    if (!takes_scalar(x, s, "add_scalar", site)) return lc__error_tensor();
    return with_floats(&lc__op_add_scalar, x, 1, &s, site);
}

lc_tensor *lc_sub_scalar_at(lc_tensor *x, double s, lc_site site)
{
    if (!takes_scalar(x, s, "sub_scalar", site)) return lc__error_tensor();
    return lc_add_scalar_at(x, -s, site);
}

lc_tensor *lc_rsub_scalar_at(lc_tensor *x, double s, lc_site site)
{
    if (!takes_scalar(x, s, "rsub_scalar", site)) return lc__error_tensor();
    return lc_add_scalar_at(lc_neg_at(x, site), s, site);
}

lc_tensor *lc_mul_scalar_at(lc_tensor *x, double s, lc_site site)
{
    if (!takes_scalar(x, s, "mul_scalar", site)) return lc__error_tensor();
    return with_floats(&lc__op_mul_scalar, x, 1, &s, site);
}

lc_tensor *lc_div_scalar_at(lc_tensor *x, double s, lc_site site)
{
    if (!lc__is_bad(x) && !lc_dtype_is_float(lc_tensor_dtype(x))) {
        lc_status status =
            lc_fail(LC_ERR_DTYPE, "x is %s, but floating-point numbers are needed; convert it with lc_cast",
                    lc_dtype_name(lc_tensor_dtype(x)));
        return lc__refuse(status, "div_scalar", x, site);
    }
    return lc_mul_scalar_at(x, 1 / s, site);
}

lc_tensor *lc_pow_scalar_at(lc_tensor *x, double s, lc_site site)
{
    return with_floats(&lc__op_pow_scalar, x, 1, &s, site);
}

lc_tensor *lc_leaky_relu_at(const lc_leaky_relu_args *given, lc_site site)
{
    LC__TAKE_OP(a, "leaky_relu", lc_leaky_relu, given, site);
    return with_floats(&lc__op_leaky_relu, a.x, 1, &a.slope, site);
}

lc_tensor *lc_elu_at(const lc_elu_args *given, lc_site site)
{
    LC__TAKE_OP(a, "elu", lc_elu, given, site);
    return with_floats(&lc__op_elu, a.x, 1, &a.slope, site);
}

lc_tensor *lc_hardtanh_at(lc_tensor *x, double min, double max, lc_site site)
{
    double floats[] = {min, max};
    if (min > max && !lc__is_bad(x))
        return lc__refuse(lc_fail(LC_ERR_ARGUMENT, "min is %g, which is above max, %g", min, max), "hardtanh", x, site);
    return with_floats(&lc__op_hardtanh, x, 2, floats, site);
}

lc_tensor *lc_gelu_at(const lc_gelu_args *given, lc_site site)
{
    LC__TAKE_OP(a, "gelu", lc_gelu, given, site);
    int64_t tanh = a.tanh;
    return lc_op_call(&lc__op_gelu, 1, &a.x, 1, &tanh, 0, NULL, site);
}

lc_tensor *lc_clamp_at(const lc_clamp_args *given, lc_site site)
{
    LC__TAKE_OP(a, "clamp", lc_clamp, given, site);
    bool has_min = !isnan(a.min), has_max = !isnan(a.max);
    if (!has_min && !has_max && !lc__is_bad(a.x))
        return lc__refuse(lc_fail(LC_ERR_ARGUMENT, "neither .min nor .max is given"), "clamp", a.x, site);
    int64_t ints[] = {has_min, has_max};
    double floats[] = {has_min ? a.min : 0, has_max ? a.max : 0};
    for (int i = 0; i < 2; i++)
        if (!takes_scalar(a.x, floats[i], "clamp", site)) return lc__error_tensor();
    return lc_op_call(&lc__op_clamp, 1, &a.x, 2, ints, 2, floats, site);
}

/* One weight, or one for each channel (dimension 1). */
static lc_status check_prelu(const lc_type *x, const lc_type *w)
{
    int64_t channels = x->ndim > 1 ? x->shape[1] : 1, n = lc__type_numel(w);
    if (w->ndim > 1) return lc_fail(LC_ERR_SHAPE, "the weight must have one dimension, not %d", w->ndim);
    if (n == 1 || n == channels) return LC_OK;
    return lc_fail(LC_ERR_SHAPE, "there are %lld weights for %lld channels", (long long)n, (long long)channels);
}

lc_tensor *lc_prelu_at(lc_tensor *x, lc_tensor *w, lc_site site)
{
    if (!lc__is_bad(x) && !lc__is_bad(w)) {
        lc_status status = check_prelu(lc_tensor_type(x), lc_tensor_type(w));
        if (status < 0) return lc__refuse(status, "prelu", x, site);
    }
    if (!lc__is_bad(x) && lc_tensor_ndim(x) == 0 && !lc__is_bad(w)) w = lc_reshape_at(w, 0, NULL, site);
    if (!lc__is_bad(x) && !lc__is_bad(w) && lc_tensor_ndim(w) == 1 && lc_tensor_ndim(x) > 2) {
        int64_t shape[LC_MAX_DIMS] = {lc_tensor_numel(w)}; /* [C] to [C,1,...] */
        int n = lc_tensor_ndim(x) - 1;
        for (int d = 1; d < n; d++) shape[d] = 1;
        w = lc_reshape_at(w, n, shape, site);
    }
    return lc__op2(&lc__op_prelu, x, w, site);
}

lc_tensor *lc_glu_at(lc_tensor *x, int dim, lc_site site)
{
    if (!lc__is_given(x, "x", "glu", site)) return lc__error_tensor();
    const lc_type *t = lc_tensor_type(x);
    int64_t d = lc__wrap_dim(dim, t->ndim);
    lc_status status = lc__infer_dim(t, d);
    if (status >= 0 && t->shape[d] % 2)
        status = lc_fail(LC_ERR_SHAPE, "dimension %lld has %lld elements, which is not an even number", (long long)d,
                         (long long)t->shape[d]);
    if (status >= 0 && !lc_dtype_is_float(t->dtype))
        status = lc_fail(LC_ERR_DTYPE, "x is %s, but floating-point numbers are needed; convert it with lc_cast",
                         lc_dtype_name(t->dtype));
    if (status < 0) return lc__refuse(status, "glu", x, site);
    int64_t half = t->shape[d] / 2;
    lc_tensor *a = lc_slice_at(x, (int)d, 0, half, site);
    return lc_mul_at(a, lc_sigmoid_at(lc_slice_at(x, (int)d, half, half, site), site), site);
}

lc_tensor *lc_cast_at(lc_tensor *x, lc_dtype dtype, lc_site site)
{
    int64_t to = dtype == LC_DTYPE_DEFAULT ? LC_F32 : dtype;
    if (!lc__is_bad(x) && lc_tensor_dtype(x) == (lc_dtype)to) return lc__unchanged(x, site);
    return lc_op_call(&lc__op_cast, 1, &x, 1, &to, 0, NULL, site);
}

lc_tensor *lc__as(lc_tensor *x, lc_dtype dtype)
{
    return lc_tensor_dtype(x) == dtype ? x : lc_cast(x, dtype);
}

lc_tensor *lc_where_at(lc_tensor *condition, lc_tensor *x, lc_tensor *y, lc_site site)
{
    return lc__op3(&lc__op_where, condition, x, y, site);
}

lc_tensor *lc_masked_fill_at(lc_tensor *x, lc_tensor *mask, double value, lc_site site)
{
    lc_tensor *in[] = {x, mask};
    if (!lc__is_bad(x)) {
        lc_dtype dtype = lc_tensor_dtype(x);
        lc_status status = lc__infer_value(value, dtype);
        if (status < 0) return lc__refuse(status, "masked_fill", x, site);
        if (dtype == LC_BOOL) value = value != 0;
    }
    return lc_op_call(&lc__op_masked_fill, 2, in, 0, NULL, 1, &value, site);
}
