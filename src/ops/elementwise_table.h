/* SPDX-License-Identifier: Apache-2.0 */
/* The elementwise operators, one line each. From this table come their kernels, their type inference, the simple
 * gradient rules and lc__elementwise_table; to add an operator, append a line (order and numbers are fixed: fused
 * programs name operators by their index) and, for users, its function in lightc/ops_math.h.
 *
 *   X(name, inputs, floats, kind, gradient, expression)
 *
 * expression: the value from elements a, b, c of the inputs, floats p[] and ints k[]. Kernels evaluate it in double for
 * f32 and f64, in int64_t for integers (kind ARITH, COMPARE), where S(i) is float i in that type.
 * A function of the C library needs a vector version: #define in backends/cpu/isa/tiles.c, isa/vmath.h (in f64 without
 * one the library's is called: tiles_f64.c, vmath_f64.h).
 * kind:
 *   FLOAT    f32, f64
 *   ARITH    also integers
 *   COMPARE  any type in, bool out
 *   SELECT   input 0 is bool or u8; the others and the result are of one type, any
 *   FILL     input 1 is bool or u8; the other and the result are of one type, any
 *   CAST     own kernel (cast.c)
 * gradient:
 *   NONE     not differentiable
 *   ZERO     zero everywhere (floor)
 *   BY_X     NAME_backward(dy, x), same ints and floats
 *   BY_Y     NAME_backward(dy, y), same ints and floats
 *   OWN      grad_NAME in elementwise_grad.c
 * At a kink the backward expression makes PyTorch's choice. */
#ifndef LC_OPS_ELEMENTWISE_TABLE_H
#define LC_OPS_ELEMENTWISE_TABLE_H

/* clang-format off */
#define LC_ELEMENTWISE_LIST(X)                                                                                       \
    X(add, 2, 0, ARITH, OWN, a + b)                                                                                  \
    X(sub, 2, 0, ARITH, OWN, a - b)                                                                                  \
    X(mul, 2, 0, ARITH, OWN, a * b)                                                                                  \
    X(div, 2, 0, FLOAT, OWN, a / b)                                                                                  \
    X(div_backward_other, 3, 0, FLOAT, NONE, -a * ((b / c) / c))                                                     \
    X(neg, 1, 0, ARITH, OWN, -a)                                                                                     \
    X(add_scalar, 1, 1, ARITH, OWN, a + S(0))                                                                        \
    X(mul_scalar, 1, 1, ARITH, OWN, a * S(0))                                                                        \
    X(relu, 1, 0, ARITH, BY_Y, a <= 0 ? 0 : a)                                                                       \
    X(relu_backward, 2, 0, FLOAT, NONE, b <= 0 ? 0 : a)                                                              \
    X(sigmoid, 1, 0, FLOAT, BY_Y, lc__sigmoid(a))                                                                    \
    X(sigmoid_backward, 2, 0, FLOAT, NONE, a * (1 - b) * b)                                                          \
    X(tanh, 1, 0, FLOAT, BY_Y, tanh(a))                                                                              \
    X(tanh_backward, 2, 0, FLOAT, NONE, a * (1 - b * b))                                                             \
    X(gelu, 1, 0, FLOAT, BY_X, k[0] ? lc__gelu_tanh(a) : lc__gelu_erf(a))                                            \
    X(gelu_backward, 2, 0, FLOAT, NONE, a * (k[0] ? lc__gelu_tanh_slope(b) : lc__gelu_erf_slope(b)))                 \
    X(silu, 1, 0, FLOAT, BY_X, a * lc__sigmoid(a))                                                                   \
    X(silu_backward, 2, 0, FLOAT, NONE, a * lc__sigmoid(b) * (1 + b * (1 - lc__sigmoid(b))))                         \
    X(exp, 1, 0, FLOAT, OWN, exp(a))                                                                                 \
    X(log, 1, 0, FLOAT, OWN, log(a))                                                                                 \
    X(sqrt, 1, 0, FLOAT, BY_Y, sqrt(a))                                                                              \
    X(sqrt_backward, 2, 0, FLOAT, NONE, a / (2 * b))                                                                 \
    X(square, 1, 0, ARITH, BY_X, a * a)                                                                              \
    X(square_backward, 2, 0, FLOAT, NONE, 2 * a * b)                                                                 \
    X(abs, 1, 0, ARITH, BY_X, a < 0 ? -a : a + 0)                                                                    \
    X(abs_backward, 2, 0, FLOAT, NONE, a * lc__sign(b))                                                              \
    X(maximum, 2, 0, ARITH, OWN, a > b || a != a ? a : b)                                                            \
    X(minimum, 2, 0, ARITH, OWN, a < b || a != a ? a : b)                                                            \
    X(maximum_backward, 3, 0, FLOAT, NONE, b < c ? 0 : b == c ? a / 2 : a)                                           \
    X(minimum_backward, 3, 0, FLOAT, NONE, b > c ? 0 : b == c ? a / 2 : a)                                           \
    X(where, 3, 0, SELECT, OWN, a ? b : c)                                                                           \
    X(masked_fill, 2, 1, FILL, OWN, b ? S(0) : a)                                                                    \
    X(cast, 1, 0, CAST, OWN, a)                                                                                      \
    X(rsqrt, 1, 0, FLOAT, BY_Y, 1 / sqrt(a))                                                                         \
    X(rsqrt_backward, 2, 0, FLOAT, NONE, -0.5 * a * (b * b * b))                                                     \
    X(reciprocal, 1, 0, FLOAT, BY_Y, 1 / a)                                                                          \
    X(reciprocal_backward, 2, 0, FLOAT, NONE, -a * (b * b))                                                          \
    X(sin, 1, 0, FLOAT, BY_X, sin(a))                                                                                \
    X(sin_backward, 2, 0, FLOAT, NONE, a * cos(b))                                                                   \
    X(cos, 1, 0, FLOAT, BY_X, cos(a))                                                                                \
    X(cos_backward, 2, 0, FLOAT, NONE, -a * sin(b))                                                                  \
    X(erf, 1, 0, FLOAT, BY_X, erf(a))                                                                                \
    X(erf_backward, 2, 0, FLOAT, NONE, a * (1.12837916709551257390 * exp(-(b * b))))                                 \
    X(expm1, 1, 0, FLOAT, BY_Y, expm1(a))                                                                            \
    X(expm1_backward, 2, 0, FLOAT, NONE, a * (b + 1))                                                                \
    X(log1p, 1, 0, FLOAT, BY_X, log1p(a))                                                                            \
    X(log1p_backward, 2, 0, FLOAT, NONE, a / (b + 1))                                                                \
    X(floor, 1, 0, FLOAT, ZERO, floor(a))                                                                            \
    X(ceil, 1, 0, FLOAT, ZERO, ceil(a))                                                                              \
    X(round, 1, 0, FLOAT, ZERO, rint(a))                                                                             \
    X(sign, 1, 0, ARITH, ZERO, a > 0 ? 1 : a < 0 ? -1 : 0)                                                           \
    X(softplus, 1, 0, FLOAT, BY_X, a > 20 ? a : log1p(exp(a)))                                                       \
    X(softplus_backward, 2, 0, FLOAT, NONE, b > 20 ? a : a * lc__sigmoid(b))                                         \
    X(softsign, 1, 0, FLOAT, BY_X, a / (1 + fabs(a)))                                                                \
    X(softsign_backward, 2, 0, FLOAT, NONE, a / ((1 + fabs(b)) * (1 + fabs(b))))                                     \
    X(logsigmoid, 1, 0, FLOAT, BY_X, (a < 0 ? a : 0) - log1p(exp(-fabs(a))))                                         \
    X(logsigmoid_backward, 2, 0, FLOAT, NONE, a * lc__sigmoid(-b))                                                   \
    X(hardswish, 1, 0, FLOAT, BY_X, a * lc__clamp(a + 3, 0, 6) / 6)                                                  \
    X(hardswish_backward, 2, 0, FLOAT, NONE, b <= -3 ? 0 : b < 3 ? a * (b / 3 + 0.5) : a)                            \
    X(hardsigmoid, 1, 0, FLOAT, BY_X, lc__clamp(a + 3, 0, 6) / 6)                                                    \
    X(hardsigmoid_backward, 2, 0, FLOAT, NONE, b > -3 && b < 3 ? a / 6 : 0)                                          \
    X(mish, 1, 0, FLOAT, BY_X, a * tanh(lc__softplus(a)))                                                            \
    X(mish_backward, 2, 0, FLOAT, NONE, a * lc__mish_slope(b))                                                       \
    X(relu6, 1, 0, FLOAT, BY_X, lc__clamp(a, 0, 6))                                                                  \
    X(relu6_backward, 2, 0, FLOAT, NONE, b <= 0 || b >= 6 ? 0 : a)                                                   \
    X(hardtanh, 1, 2, FLOAT, BY_X, lc__clamp(a, p[0], p[1]))                                                         \
    X(hardtanh_backward, 2, 2, FLOAT, NONE, b <= p[0] || b >= p[1] ? 0 : a)                                          \
    X(selu, 1, 0, FLOAT, BY_X, LC__SELU_SCALE * (a > 0 ? a : LC__SELU_ALPHA * expm1(a)))                             \
    X(selu_backward, 2, 0, FLOAT, NONE, a * LC__SELU_SCALE * (b > 0 ? 1 : LC__SELU_ALPHA * exp(b)))                  \
    X(leaky_relu, 1, 1, FLOAT, BY_X, a > 0 ? a : a * p[0])                                                           \
    X(leaky_relu_backward, 2, 1, FLOAT, NONE, b > 0 ? a : a * p[0])                                                  \
    X(elu, 1, 1, FLOAT, BY_X, a > 0 ? a : p[0] * expm1(a))                                                           \
    X(elu_backward, 2, 1, FLOAT, NONE, b > 0 ? a : a * p[0] * exp(b))                                                \
    X(prelu, 2, 0, FLOAT, OWN, a > 0 ? a : a * b)                                                                    \
    X(prelu_backward, 3, 0, FLOAT, NONE, b > 0 ? a : a * c)                                                          \
    X(prelu_backward_weight, 2, 0, FLOAT, NONE, b > 0 ? 0 : a * b)                                                   \
    X(clamp, 1, 2, ARITH, BY_X, k[0] && a < S(0) ? (k[1] && S(1) < S(0) ? S(1) : S(0)) : k[1] && a > S(1) ? S(1) : a) \
    X(clamp_backward, 2, 2, FLOAT, NONE, (k[0] && !(b > p[0])) || (k[1] && !(b < p[1])) ? 0 : a)                     \
    X(pow, 2, 0, FLOAT, OWN, pow(a, b))                                                                              \
    X(pow_backward, 3, 0, FLOAT, NONE, c == 0 ? 0 : a * (c * pow(b, c - 1)))                                         \
    X(pow_backward_exponent, 3, 0, FLOAT, NONE, a * (b == 0 && c >= 0 ? 0 : pow(b, c) * log(b)))                     \
    X(pow_scalar, 1, 1, FLOAT, BY_X, pow(a, p[0]))                                                                   \
    X(pow_scalar_backward, 2, 1, FLOAT, NONE, p[0] == 0 ? 0 : a * (p[0] * pow(b, p[0] - 1)))                         \
    X(xlogy, 2, 0, FLOAT, OWN, b != b ? b : a == 0 ? 0 : a * log(b))                                                 \
    X(xlogy_backward, 3, 0, FLOAT, NONE, (b == 0 && c <= 0) || (a == 0 && c == c) ? 0 : a * log(c))                  \
    X(logsumexp_backward, 3, 0, FLOAT, NONE, isinf(c) && c < 0 ? 0 : a * exp(b - c))                                 \
    X(norm_backward, 3, 1, FLOAT, NONE, a * lc__norm_slope(b, c, p[0]))                                              \
    X(mse, 2, 0, ARITH, OWN, (a - b) * (a - b))                                                                      \
    X(mse_backward, 3, 0, FLOAT, NONE, 2 * a * (b - c))                                                              \
    X(l1, 2, 0, ARITH, OWN, a < b ? b - a : a - b)                                                                   \
    X(l1_backward, 3, 0, FLOAT, NONE, a * lc__sign(b - c))                                                           \
    X(smooth_l1, 2, 1, FLOAT, OWN, lc__smooth_l1(a - b, p[0]))                                                       \
    X(smooth_l1_backward, 3, 1, FLOAT, NONE, a * lc__smooth_l1_slope(b - c, p[0]))                                   \
    X(huber, 2, 1, FLOAT, OWN, lc__huber(a - b, p[0]))                                                               \
    X(huber_backward, 3, 1, FLOAT, NONE, a * lc__clamp(b - c, -p[0], p[0]))                                          \
    X(bce_with_logits, 2, 0, FLOAT, OWN, (1 - b) * a + lc__softplus(-a))                                             \
    X(bce_with_logits_backward, 3, 0, FLOAT, NONE, a * (lc__sigmoid(b) - c))                                         \
    X(kl_div, 2, 0, FLOAT, OWN, b == 0 ? 0 - b * a : b * (log(b) - a))                                               \
    X(kl_div_log, 2, 0, FLOAT, OWN, exp(b) * (b - a))                                                                \
    X(isfinite, 1, 0, COMPARE, NONE, (a - a) == 0)                                                                   \
    X(isnan, 1, 0, COMPARE, NONE, a != a)                                                                            \
    X(eq, 2, 0, COMPARE, NONE, a == b)                                                                               \
    X(ne, 2, 0, COMPARE, NONE, a != b)                                                                               \
    X(lt, 2, 0, COMPARE, NONE, a < b)                                                                                \
    X(le, 2, 0, COMPARE, NONE, a <= b)                                                                               \
    X(gt, 2, 0, COMPARE, NONE, a > b)                                                                                \
    X(ge, 2, 0, COMPARE, NONE, a >= b)                                                                               \
    X(logical_not, 1, 0, COMPARE, NONE, a == 0)                                                                      \
    X(logical_and, 2, 0, COMPARE, NONE, a != 0 && b != 0)                                                            \
    X(logical_or, 2, 0, COMPARE, NONE, a != 0 || b != 0)                                                             \
    X(logical_xor, 2, 0, COMPARE, NONE, (a != 0) != (b != 0))                                                        \
    X(root_of_var_backward, 2, 0, FLOAT, NONE, b == 0 ? 0 : a / (2 * b))                                             \
    X(xlogy_backward_other, 3, 0, FLOAT, NONE, a == 0 ? 0 : a * (b / c))
/* clang-format on */

#endif
