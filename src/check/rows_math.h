/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of lightc/ops_math.h, one row for each case: how to call it, operands, and for elementwise ones the
 * formula. They are shared by tests/ops/test_ops_math.c and the check of backends. To add an operator, add a row. */
#ifndef LC_CHECK_ROWS_MATH_H
#define LC_CHECK_ROWS_MATH_H

#include "check/shape.h"

#include <math.h>

#define MAX_IN  3
#define NO_GRAD 1 /* not differentiable */
#define FLAT    2 /* gradient is 0 everywhere, but is defined */

typedef struct row {
    const char *name;
    lc_tensor *(*build)(lc_tensor *x, lc_tensor *y, lc_tensor *z);
    double (*formula)(double a, double b, double c); /* NULL: not elementwise */
    shape in[MAX_IN];
    const char *domain; /* per operand: n normal, p positive, u in (0,1), m a mask from x > 0, i index below 3 */
    int flags;
} row;

#define UNUSED (void)x, (void)y, (void)z
#define CASE(id, expression)                                                                                           \
    static lc_tensor *build_##id(lc_tensor *x, lc_tensor *y, lc_tensor *z)                                             \
    {                                                                                                                  \
        UNUSED;                                                                                                        \
        return expression;                                                                                             \
    }
#define ELEMENTWISE(id, expression, formula)                                                                           \
    CASE(id, expression)                                                                                               \
    static double formula_##id(double a, double b, double c)                                                           \
    {                                                                                                                  \
        (void)a, (void)b, (void)c;                                                                                     \
        return formula;                                                                                                \
    }

static double sig(double a)
{
    return 1 / (1 + exp(-a));
}

static double soft(double a)
{
    return log(1 + exp(a));
}

ELEMENTWISE(neg, lc_neg(x), -a)
ELEMENTWISE(exp, lc_exp(x), exp(a))
ELEMENTWISE(expm1, lc_expm1(x), exp(a) - 1)
ELEMENTWISE(log, lc_ln(x), log(a))
ELEMENTWISE(log1p, lc_log1p(x), log(1 + a))
ELEMENTWISE(sqrt, lc_sqrt(x), sqrt(a))
ELEMENTWISE(rsqrt, lc_rsqrt(x), 1 / sqrt(a))
ELEMENTWISE(reciprocal, lc_reciprocal(x), 1 / a)
ELEMENTWISE(abs, lc_abs(x), fabs(a))
ELEMENTWISE(sign, lc_sign(x), a > 0 ? 1 : -1)
ELEMENTWISE(floor, lc_floor(x), floor(a))
ELEMENTWISE(ceil, lc_ceil(x), ceil(a))
ELEMENTWISE(round, lc_round(x), floor(a + 0.5))
ELEMENTWISE(square, lc_square(x), a *a)
ELEMENTWISE(sin, lc_sin(x), sin(a))
ELEMENTWISE(cos, lc_cos(x), cos(a))
ELEMENTWISE(tanh, lc_tanh(x), 2 * sig(2 * a) - 1)
ELEMENTWISE(sigmoid, lc_sigmoid(x), sig(a))
ELEMENTWISE(erf, lc_erf(x), erf(a))
ELEMENTWISE(relu, lc_relu(x), fmax(a, 0))
ELEMENTWISE(relu6, lc_relu6(x), fmin(fmax(a, 0), 6))
ELEMENTWISE(relu6_high, lc_relu6(lc_mul_scalar(x, 3)), fmin(fmax(3 * a, 0), 6))
ELEMENTWISE(silu, lc_silu(x), a *sig(a))
ELEMENTWISE(softplus, lc_softplus(x), soft(a))
ELEMENTWISE(softsign, lc_softsign(x), a / (1 + fabs(a)))
ELEMENTWISE(logsigmoid, lc_logsigmoid(x), -soft(-a))
ELEMENTWISE(hardswish, lc_hardswish(x), a *fmin(fmax(a + 3, 0), 6) / 6)
ELEMENTWISE(hardsigmoid, lc_hardsigmoid(x), fmin(fmax(a + 3, 0), 6) / 6)
ELEMENTWISE(mish, lc_mish(x), a *tanh(soft(a)))
ELEMENTWISE(selu, lc_selu(x), a > 0 ? 1.0507009873554805 * a : 1.0507009873554805 * 1.6732632423543772 * (exp(a) - 1))
ELEMENTWISE(leaky_relu, lc_leaky_relu(x), a > 0 ? a : 0.01 * a)
ELEMENTWISE(leaky_relu_slope, lc_leaky_relu(x, .slope = 0.3), a > 0 ? a : 0.3 * a)
ELEMENTWISE(elu, lc_elu(x), a > 0 ? a : exp(a) - 1)
ELEMENTWISE(elu_alpha, lc_elu(x, .slope = 0.5), a > 0 ? a : 0.5 * (exp(a) - 1))
ELEMENTWISE(gelu, lc_gelu(x), a * 0.5 * erfc(-a / sqrt(2)))
ELEMENTWISE(gelu_tanh, lc_gelu(x, .tanh = true),
            a *sig(2 * sqrt(2 / 3.14159265358979323846) * (a + 0.044715 * a * a * a)))
ELEMENTWISE(clamp, lc_clamp(x, .min = -0.51, .max = 0.7), fmin(fmax(a, -0.51), 0.7))
ELEMENTWISE(clamp_min, lc_clamp(x, .min = 0.1), fmax(a, 0.1))
ELEMENTWISE(clamp_max, lc_clamp(x, .max = 0.1), fmin(a, 0.1))
ELEMENTWISE(hardtanh, lc_hardtanh(x, -0.7, 1.2), fmin(fmax(a, -0.7), 1.2))
ELEMENTWISE(prelu, lc_prelu(x, y), a > 0 ? a : a * b)
ELEMENTWISE(add_scalar, lc_add_scalar(x, 2.5), a + 2.5)
ELEMENTWISE(sub_scalar, lc_sub_scalar(x, 2.5), a - 2.5)
ELEMENTWISE(rsub_scalar, lc_rsub_scalar(x, 2.5), 2.5 - a)
ELEMENTWISE(mul_scalar, lc_mul_scalar(x, -3), a * -3)
ELEMENTWISE(div_scalar, lc_div_scalar(x, -4), a / -4)
ELEMENTWISE(pow_scalar, lc_pow_scalar(x, 2.5), exp(2.5 * log(a)))
ELEMENTWISE(pow_scalar_3, lc_pow_scalar(x, 3), a *a *a)
ELEMENTWISE(add, lc_add(x, y), a + b)
ELEMENTWISE(sub, lc_sub(x, y), a - b)
ELEMENTWISE(mul, lc_mul(x, y), a *b)
ELEMENTWISE(div, lc_div(x, y), a / b)
ELEMENTWISE(maximum, lc_maximum(x, y), fmax(a, b))
ELEMENTWISE(minimum, lc_minimum(x, y), fmin(a, b))
ELEMENTWISE(pow, lc_pow(x, y), exp(b *log(a)))
ELEMENTWISE(xlogy, lc_xlogy(x, y), a *log(b))
ELEMENTWISE(mul_self, lc_mul(x, x), a *a)
ELEMENTWISE(where, lc_where(z, x, y), c != 0 ? a : b)
ELEMENTWISE(masked_fill, lc_masked_fill(x, y, 0.25), b != 0 ? 0.25 : a)
ELEMENTWISE(eq, lc_eq(lc_floor(x), lc_floor(y)), floor(a) == floor(b))
ELEMENTWISE(ne, lc_ne(lc_floor(x), lc_floor(y)), floor(a) != floor(b))
ELEMENTWISE(lt, lc_lt(x, y), a < b)
ELEMENTWISE(le, lc_le(lc_floor(x), lc_floor(y)), floor(a) <= floor(b))
ELEMENTWISE(gt, lc_gt(x, y), a > b)
ELEMENTWISE(ge, lc_ge(lc_floor(x), lc_floor(y)), floor(a) >= floor(b))
ELEMENTWISE(logical_not, lc_logical_not(x), !(a != 0))
ELEMENTWISE(logical_and, lc_logical_and(x, y), a != 0 && b != 0)
ELEMENTWISE(logical_or, lc_logical_or(x, y), a != 0 || b != 0)
ELEMENTWISE(logical_xor, lc_logical_xor(x, y), (a != 0) != (b != 0))
ELEMENTWISE(isfinite, lc_isfinite(x), 1)
ELEMENTWISE(isnan, lc_isnan(x), 0)
ELEMENTWISE(smooth_l1, lc_smooth_l1_loss(x, y, .reduction = LC_REDUCE_NONE, .beta = 0.8),
            fabs(a - b) < 0.8 ? 0.5 * (a - b) * (a - b) / 0.8 : fabs(a - b) - 0.4)
ELEMENTWISE(huber, lc_huber_loss(x, y, .reduction = LC_REDUCE_NONE, .delta = 0.8),
            fabs(a - b) < 0.8 ? 0.5 * (a - b) * (a - b) : 0.8 * (fabs(a - b) - 0.4))
ELEMENTWISE(bce, lc_bce_with_logits(x, y, .reduction = LC_REDUCE_NONE), -b *log(sig(a)) - (1 - b) * log(1 - sig(a)))
ELEMENTWISE(bce_pos_weight, lc_bce_with_logits(x, y, .reduction = LC_REDUCE_NONE, .pos_weight = z),
            -c *b *log(sig(a)) - (1 - b) * log(1 - sig(a)))
ELEMENTWISE(bce_weight, lc_bce_with_logits(x, y, .reduction = LC_REDUCE_NONE, .weight = z),
            c *(-b *log(sig(a)) - (1 - b) * log(1 - sig(a))))
ELEMENTWISE(kl_div, lc_kl_div(x, y, .reduction = LC_REDUCE_NONE), b *(log(b) - a))
ELEMENTWISE(kl_div_log, lc_kl_div(x, y, .reduction = LC_REDUCE_NONE, .log_target = true), exp(b) * (b - a))
ELEMENTWISE(chain, lc_mul(lc_sigmoid(lc_add(x, y)), lc_exp(lc_neg(x))), sig(a + b) * exp(-a))

CASE(glu, lc_glu(x, 1))
CASE(sum, lc_sum(x))
CASE(sum_dims, lc_sum(x, .dims = LC_DIMS(2, 0)))
CASE(sum_keep, lc_sum(x, .dims = LC_DIMS(-1), .keepdim = true))
CASE(mean, lc_mean(x))
CASE(mean_dims, lc_mean(x, .dims = LC_DIMS(0, 2)))
CASE(mean_keep, lc_mean(x, .dims = LC_DIMS(1), .keepdim = true))
CASE(amax, lc_amax(x, .dims = LC_DIMS(1)))
CASE(amax_all, lc_amax(x))
CASE(amin, lc_amin(x, .dims = LC_DIMS(0, 2), .keepdim = true))
CASE(var, lc_var(x, .dims = LC_DIMS(0, 2)))
CASE(var_population, lc_var(x, .dims = LC_DIMS(1), .keepdim = true, .correction = 0))
CASE(std, lc_std(x))
CASE(norm, lc_norm(x, .dims = LC_DIMS(1)))
CASE(norm_1, lc_norm(x, .dims = LC_DIMS(1), .p = 1))
CASE(norm_3, lc_norm(x, .dims = LC_DIMS(1, 2), .p = 3))
CASE(norm_inf, lc_norm(x, .dims = LC_DIMS(1), .p = INFINITY))
CASE(logsumexp, lc_logsumexp(x, .dims = LC_DIMS(1, 2)))
CASE(logsumexp_keep, lc_logsumexp(x, .dims = LC_DIMS(-1), .keepdim = true))
CASE(softmax, lc_softmax(x, 1))
CASE(softmax_last, lc_softmax(x, -1))
CASE(log_softmax, lc_log_softmax(x, 1))
CASE(log_softmax_last, lc_log_softmax(x, -1))
CASE(cumsum, lc_cumsum(x, 1))
CASE(topk, lc_topk(x, NULL, 2, 1))
CASE(topk_smallest, lc_topk(x, NULL, 2, -1, .smallest = true))
CASE(sort, lc_sort(x, NULL, 2, true))
CASE(argmax, lc_argmax(x, .dim = 1))
CASE(argmin, lc_argmin(x, .dim = -1, .keepdim = true))
CASE(reshape, lc_mul(lc_reshape(x, 6, -1), lc_reshape(x, -1, 4)))
CASE(reshape_permuted, lc_reshape(lc_permute(x, 2, 0, 1), 4, 6))
CASE(flatten, lc_flatten(x, 1))
CASE(unflatten, lc_unflatten(x, 2, 2))
CASE(permute, lc_permute(x, 2, 0, -2))
CASE(transpose, lc_transpose(x, 1, -1))
CASE(slice, lc_slice(x, 1, 1, 2))
CASE(slice_end, lc_slice(x, 2, -3, 2))
CASE(slice_twice, lc_add(lc_slice(x, 2, 0, 2), lc_slice(x, 2, 2, 2)))
CASE(select, lc_select(x, 1, -1))
CASE(squeeze, lc_squeeze(lc_unsqueeze(x, 1), 1))
CASE(unsqueeze, lc_unsqueeze(x, -1))
CASE(expand, lc_expand(x, 2, 3, -1))
CASE(expand_mul, lc_mul(lc_expand(x, 2, 3, 4), lc_expand(x, 2, 3, 4)))
CASE(contiguous, lc_contiguous(lc_transpose(x, 0, 2)))
CASE(cat, lc_cat(1, x, y, x))
CASE(stack, lc_stack(1, x, y))
CASE(pad, lc_pad(x, 1, 2, 0, 1))
CASE(pad_value, lc_pad_value(x, 1.5, -1, 2))
CASE(flip, lc_flip(x, 0, 2))
CASE(tril, lc_tril(x, 0))
CASE(triu, lc_triu(x, 1))
CASE(gather, lc_gather(x, 1, y))
CASE(index_select, lc_index_select(x, 1, y))
CASE(scatter_add, lc_scatter_add(x, 1, z, y))
CASE(index_add, lc_index_add(x, 1, z, y))
CASE(mse_loss, lc_mse_loss(x, y))
CASE(mse_sum, lc_mse_loss(x, y, .reduction = LC_REDUCE_SUM))
CASE(l1_loss, lc_l1_loss(x, y))
CASE(kl_div_batch, lc_kl_div(x, y, .reduction = LC_REDUCE_BATCHMEAN))
CASE(cosine_similarity, lc_cosine_similarity(x, y, 1))

/* clang-format off */
#define S(...)         {LC_COUNT(__VA_ARGS__), {__VA_ARGS__}}
#define E(id, ...)     {#id, build_##id, formula_##id, __VA_ARGS__}
#define C(id, ...)     {#id, build_##id, NULL, __VA_ARGS__}
#define UNARY(id)      E(id, {S(2, 3, 2, 3)}, "n")
#define UNARY_P(id)    E(id, {S(2, 3, 2, 3)}, "p")
#define UNARY_FLAT(id) E(id, {S(2, 3, 2, 3)}, "n", FLAT)
#define BINARY(id, d)                                                                                                 \
    E(id, {S(2, 3, 2, 3), S(2, 3, 2, 3)}, d), E(id, {S(2, 1, 4), S(3, 1)}, d), E(id, {S(5), S(1)}, d),                \
    E(id, {S(2, 3, 2, 2), S(3, 1, 1)}, d), E(id, {S(4), S(3, 4)}, d)
#define REGRESSION(id)                                                                                                 \
    E(id, {S(2, 3, 2, 3), S(2, 3, 2, 3)}, "nn"), E(id, {S(5), S(1)}, "nn"), E(id, {S(2, 3, 2, 2), S(3, 1, 1)}, "nn"),  \
    E(id, {S(4), S(3, 4)}, "nn")
#define COMPARISON(id) E(id, {S(2, 3, 2, 3), S(3, 1, 1)}, "nn", NO_GRAD)
#define THREE(id)      C(id, {S(2, 3, 4)}, "n")
#define FOUR(id)       C(id, {S(2, 3, 4, 2)}, "n")

static const row rows[] = {
    UNARY(neg), UNARY(exp), UNARY(expm1), UNARY_P(log), UNARY_P(log1p), UNARY_P(sqrt), UNARY_P(rsqrt), UNARY(reciprocal),
    UNARY(abs), UNARY_FLAT(sign), UNARY_FLAT(floor), UNARY_FLAT(ceil), UNARY_FLAT(round), UNARY(square), UNARY(sin),
    UNARY(cos), UNARY(tanh), UNARY(sigmoid), UNARY(erf), UNARY(relu), UNARY(relu6), UNARY(relu6_high), UNARY(silu),
    UNARY(softplus), UNARY(softsign), UNARY(logsigmoid), UNARY(hardswish), UNARY(hardsigmoid), UNARY(mish), UNARY(selu),
    UNARY(leaky_relu), UNARY(leaky_relu_slope), UNARY(elu), UNARY(elu_alpha), UNARY(gelu), UNARY(gelu_tanh),
    UNARY(clamp), UNARY(clamp_min), UNARY(clamp_max), UNARY(hardtanh), UNARY(add_scalar), UNARY(sub_scalar),
    UNARY(rsub_scalar), UNARY(mul_scalar), UNARY(div_scalar), UNARY_P(pow_scalar), UNARY(pow_scalar_3), UNARY(mul_self),
    E(prelu, {S(2, 3, 2, 2), S(1)}, "np"), C(prelu, {S(2, 3, 2, 2), S(3)}, "np"), E(prelu, {S(4, 3), S(3)}, "np"),
    BINARY(add, "nn"), BINARY(sub, "nn"), BINARY(mul, "nn"), BINARY(div, "np"), BINARY(maximum, "nn"),
    BINARY(minimum, "nn"), BINARY(pow, "pn"), BINARY(xlogy, "np"), BINARY(chain, "nn"),
    E(where, {S(2, 3, 2, 3), S(2, 3, 2, 3), S(2, 3, 2, 3)}, "nnm"), E(where, {S(3, 1), S(4), S(2, 1, 1)}, "nnm"),
    E(masked_fill, {S(2, 3, 2, 3), S(2, 3, 2, 3)}, "nm"), E(masked_fill, {S(3, 1), S(4)}, "nm"),
    COMPARISON(eq), COMPARISON(ne), COMPARISON(lt), COMPARISON(le), COMPARISON(gt), COMPARISON(ge),
    E(logical_not, {S(7)}, "m", NO_GRAD), E(logical_and, {S(3, 4), S(4)}, "mm", NO_GRAD),
    E(logical_or, {S(3, 4), S(4)}, "mm", NO_GRAD), E(logical_xor, {S(3, 4), S(4)}, "mm", NO_GRAD),
    E(isfinite, {S(5)}, "n", NO_GRAD), E(isnan, {S(5)}, "n", NO_GRAD),
    REGRESSION(smooth_l1), REGRESSION(huber), E(bce, {S(2, 3, 2, 3), S(2, 3, 2, 3)}, "nu"), BINARY(kl_div, "np"), BINARY(kl_div_log, "nn"),
    E(bce_pos_weight, {S(5, 3), S(5, 3), S(3)}, "nup"), E(bce_weight, {S(5, 3), S(5, 3), S(5, 1)}, "nup"),
    C(glu, {S(3, 4)}, "n"), C(glu, {S(2, 4, 2, 2)}, "n"),
    THREE(sum), FOUR(sum), THREE(sum_dims), FOUR(sum_dims), THREE(sum_keep), THREE(mean), THREE(mean_dims),
    FOUR(mean_dims), THREE(mean_keep), C(sum, {S(1)}, "n"), THREE(amax), FOUR(amax), THREE(amax_all), THREE(amin),
    FOUR(amin), THREE(var), FOUR(var), THREE(var_population), THREE(std), THREE(norm), FOUR(norm), THREE(norm_1),
    THREE(norm_3), THREE(norm_inf), THREE(logsumexp), FOUR(logsumexp), THREE(logsumexp_keep),
    THREE(softmax), FOUR(softmax), THREE(softmax_last), THREE(log_softmax), FOUR(log_softmax), THREE(log_softmax_last),
    THREE(cumsum), FOUR(cumsum), THREE(topk), FOUR(topk), THREE(topk_smallest), THREE(sort),
    C(argmax, {S(2, 3, 4)}, "n", NO_GRAD), C(argmin, {S(2, 3, 4)}, "n", NO_GRAD),
    THREE(reshape), THREE(reshape_permuted), THREE(flatten), FOUR(flatten), THREE(unflatten), THREE(permute),
    THREE(transpose), FOUR(transpose), THREE(slice), FOUR(slice), THREE(slice_end), THREE(slice_twice), THREE(select),
    FOUR(select), THREE(squeeze), THREE(unsqueeze), C(expand, {S(3, 1)}, "n"), C(expand, {S(4)}, "n"),
    C(expand_mul, {S(3, 1)}, "n"), THREE(contiguous), FOUR(contiguous), C(cat, {S(2, 3, 2), S(2, 1, 2)}, "nn"),
    C(cat, {S(2, 3, 2, 2), S(2, 4, 2, 2)}, "nn"), C(stack, {S(2, 3), S(2, 3)}, "nn"), THREE(pad), FOUR(pad),
    THREE(pad_value), THREE(flip), FOUR(flip), C(tril, {S(4, 4)}, "n"), C(tril, {S(2, 3, 5)}, "n"),
    C(triu, {S(2, 5, 3)}, "n"), C(gather, {S(4, 3), S(4, 5)}, "ni"), C(gather, {S(4, 3, 2), S(3, 5, 2)}, "ni"),
    C(index_select, {S(4, 3), S(5)}, "ni"), C(index_select, {S(2, 3, 2, 2), S(4)}, "ni"),
    C(scatter_add, {S(4, 3), S(4, 5), S(4, 5)}, "nni"), C(scatter_add, {S(4, 3), S(4, 5), S(3, 4)}, "nni"),
    C(index_add, {S(4, 3), S(4, 5), S(5)}, "nni"),
    C(mse_loss, {S(4, 3), S(4, 3)}, "nn"), C(mse_sum, {S(4, 3), S(3)}, "nn"), C(l1_loss, {S(4, 3), S(4, 3)}, "nn"),
    C(kl_div_batch, {S(4, 3), S(4, 3)}, "np"), C(cosine_similarity, {S(2, 3, 4), S(2, 3, 4)}, "nn"),
};
/* clang-format on */

#endif
