/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators, reductions, shapes, indexing, losses. Names and meanings are PyTorch's unless a comment says
 * otherwise.
 *
 * Every function is a macro around lc_NAME_at, which takes the caller's place in the source; optional arguments are
 * designated initialisers behind the mandatory ones, and 0 is PyTorch's default:
 *
 *   y = lc_sum(x);                                    all dimensions
 *   y = lc_sum(x, .dims = LC_DIMS(0, 2, 3), .keepdim = true);
 *   y = lc_reshape(x, 8, -1);
 *   y = lc_clamp(x, .min = LC_SOME(0.0));
 *
 * Dimensions may count from the end (-1 is the last). Operands broadcast as in NumPy. Data types do not mix: where
 * PyTorch would convert in silence, lc_cast says so. Functions return a step tensor; errors are sticky and reported by
 * the step (graph.h).
 *
 * To add an elementwise operator: a line in src/ops/elementwise_table.h. Others: an lc_op in src/tensor/ops/ and
 * its line in src/ops/ops.h. */
#ifndef LIGHTC_OPS_MATH_H
#define LIGHTC_OPS_MATH_H

#include <lightc/ops_types.h>

/* A list of dimensions; empty means all of them. */
typedef struct lc_dims {
    int n;
    int dim[LC_MAX_DIMS];
} lc_dims;

/* A number that may be absent. */
typedef struct lc_optional {
    bool given;
    double value;
} lc_optional;

#define LC_COUNT_INTS(...) ((int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define LC_INTS(...)                                                                                                   \
    LC_COUNT_INTS(__VA_ARGS__), (const int64_t[])                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define LC_DIMS(...)    LC_LITERAL(lc_dims, LC_COUNT_INTS(__VA_ARGS__), {__VA_ARGS__})
#define LC_SOME(number) LC_LITERAL(lc_optional, true, (number))

/* x, then what to reduce over. */
typedef struct lc_reduce_args {
    lc_tensor *x;
    lc_dims dims; /* none: all */
    bool keepdim;
    lc_optional correction; /* lc_var, lc_std: default 1 */
    lc_optional p;          /* lc_norm: default 2; INFINITY and -INFINITY work */
} lc_reduce_args;

/* x, then one dimension. */
typedef struct lc_arg_args {
    lc_tensor *x;
    lc_optional dim; /* none: over all elements, as if flattened */
    bool keepdim;
} lc_arg_args;

typedef struct lc_clamp_args {
    lc_tensor *x;
    lc_optional min, max;
} lc_clamp_args;

typedef struct lc_gelu_args {
    lc_tensor *x;
    bool tanh; /* PyTorch's approximate="tanh" */
} lc_gelu_args;

typedef struct lc_slope_args {
    lc_tensor *x;
    lc_optional slope; /* lc_leaky_relu: 0.01; lc_elu (alpha): 1 */
} lc_slope_args;

typedef struct lc_topk_args {
    int dim;
    bool smallest;
} lc_topk_args;

typedef struct lc_loss_args {
    lc_tensor *target;
    lc_reduction reduction;
    lc_optional beta;      /* lc_smooth_l1_loss: 1; not negative */
    lc_optional delta;     /* lc_huber_loss: 1; positive */
    lc_tensor *weight;     /* lc_bce_with_logits: multiplies each element's loss; broadcast to x's shape */
    lc_tensor *pos_weight; /* lc_bce_with_logits: of the positive class; broadcast to x's shape */
    bool log_target;       /* lc_kl_div */
} lc_loss_args;

typedef struct lc_cosine_args {
    int dim;
    double eps; /* 0: 1e-8 */
} lc_cosine_args;

LC_BEGIN_DECLS

/* ---- one operand ---- */
LC_API lc_tensor *lc_neg_at(lc_tensor *x, lc_site site);
#define lc_neg(x) lc_neg_at(x, LC_HERE)
LC_API lc_tensor *lc_exp_at(lc_tensor *x, lc_site site);
#define lc_exp(x) lc_exp_at(x, LC_HERE)
/* exp(x) - 1, exact near 0. */
LC_API lc_tensor *lc_expm1_at(lc_tensor *x, lc_site site);
#define lc_expm1(x) lc_expm1_at(x, LC_HERE)
/* ln(1 + x), exact near 0. */
LC_API lc_tensor *lc_log1p_at(lc_tensor *x, lc_site site);
#define lc_log1p(x) lc_log1p_at(x, LC_HERE)
LC_API lc_tensor *lc_sqrt_at(lc_tensor *x, lc_site site);
#define lc_sqrt(x) lc_sqrt_at(x, LC_HERE)
/* 1 / sqrt(x) */
LC_API lc_tensor *lc_rsqrt_at(lc_tensor *x, lc_site site);
#define lc_rsqrt(x) lc_rsqrt_at(x, LC_HERE)
/* 1 / x */
LC_API lc_tensor *lc_reciprocal_at(lc_tensor *x, lc_site site);
#define lc_reciprocal(x) lc_reciprocal_at(x, LC_HERE)
LC_API lc_tensor *lc_abs_at(lc_tensor *x, lc_site site);
#define lc_abs(x) lc_abs_at(x, LC_HERE)
/* -1, 0 or 1. */
LC_API lc_tensor *lc_sign_at(lc_tensor *x, lc_site site);
#define lc_sign(x) lc_sign_at(x, LC_HERE)
LC_API lc_tensor *lc_floor_at(lc_tensor *x, lc_site site);
#define lc_floor(x) lc_floor_at(x, LC_HERE)
LC_API lc_tensor *lc_ceil_at(lc_tensor *x, lc_site site);
#define lc_ceil(x) lc_ceil_at(x, LC_HERE)
/* To the nearest integer, halves to the even one. */
LC_API lc_tensor *lc_round_at(lc_tensor *x, lc_site site);
#define lc_round(x) lc_round_at(x, LC_HERE)
LC_API lc_tensor *lc_square_at(lc_tensor *x, lc_site site);
#define lc_square(x) lc_square_at(x, LC_HERE)
LC_API lc_tensor *lc_sin_at(lc_tensor *x, lc_site site);
#define lc_sin(x) lc_sin_at(x, LC_HERE)
LC_API lc_tensor *lc_cos_at(lc_tensor *x, lc_site site);
#define lc_cos(x) lc_cos_at(x, LC_HERE)
LC_API lc_tensor *lc_tanh_at(lc_tensor *x, lc_site site);
#define lc_tanh(x) lc_tanh_at(x, LC_HERE)
/* 1 / (1 + exp(-x)) */
LC_API lc_tensor *lc_sigmoid_at(lc_tensor *x, lc_site site);
#define lc_sigmoid(x) lc_sigmoid_at(x, LC_HERE)
/* The error function. */
LC_API lc_tensor *lc_erf_at(lc_tensor *x, lc_site site);
#define lc_erf(x) lc_erf_at(x, LC_HERE)
/* The natural logarithm: PyTorch's log (lc_log logs a metric). */
LC_API lc_tensor *lc_ln_at(lc_tensor *x, lc_site site);
#define lc_ln(x) lc_ln_at(x, LC_HERE)
/* max(x, 0) */
LC_API lc_tensor *lc_relu_at(lc_tensor *x, lc_site site);
#define lc_relu(x) lc_relu_at(x, LC_HERE)
/* min(max(x, 0), 6) */
LC_API lc_tensor *lc_relu6_at(lc_tensor *x, lc_site site);
#define lc_relu6(x) lc_relu6_at(x, LC_HERE)
/* x sigmoid(x) */
LC_API lc_tensor *lc_silu_at(lc_tensor *x, lc_site site);
#define lc_silu(x) lc_silu_at(x, LC_HERE)
/* ln(1 + exp(x)); x itself above 20. */
LC_API lc_tensor *lc_softplus_at(lc_tensor *x, lc_site site);
#define lc_softplus(x) lc_softplus_at(x, LC_HERE)
/* x / (1 + |x|) */
LC_API lc_tensor *lc_softsign_at(lc_tensor *x, lc_site site);
#define lc_softsign(x) lc_softsign_at(x, LC_HERE)
/* ln(sigmoid(x)) */
LC_API lc_tensor *lc_logsigmoid_at(lc_tensor *x, lc_site site);
#define lc_logsigmoid(x) lc_logsigmoid_at(x, LC_HERE)
/* x min(max(x + 3, 0), 6) / 6 */
LC_API lc_tensor *lc_hardswish_at(lc_tensor *x, lc_site site);
#define lc_hardswish(x) lc_hardswish_at(x, LC_HERE)
/* min(max(x + 3, 0), 6) / 6 */
LC_API lc_tensor *lc_hardsigmoid_at(lc_tensor *x, lc_site site);
#define lc_hardsigmoid(x) lc_hardsigmoid_at(x, LC_HERE)
/* x tanh(softplus(x)) */
LC_API lc_tensor *lc_mish_at(lc_tensor *x, lc_site site);
#define lc_mish(x) lc_mish_at(x, LC_HERE)
/* 1.0507 x for x > 0, else 1.0507 * 1.6733 (exp(x) - 1), with PyTorch's digits. */
LC_API lc_tensor *lc_selu_at(lc_tensor *x, lc_site site);
#define lc_selu(x) lc_selu_at(x, LC_HERE)
/* x for x > 0, else slope x. */
LC_API lc_tensor *lc_leaky_relu_at(lc_slope_args a, lc_site site);
#define lc_leaky_relu(...) lc_leaky_relu_at(LC_LITERAL(lc_slope_args, .x = __VA_ARGS__), LC_HERE)
/* x for x > 0, else alpha (exp(x) - 1). */
LC_API lc_tensor *lc_elu_at(lc_slope_args a, lc_site site);
#define lc_elu(...) lc_elu_at(LC_LITERAL(lc_slope_args, .x = __VA_ARGS__), LC_HERE)
/* x times the normal distribution function of x, or its approximation by tanh. */
LC_API lc_tensor *lc_gelu_at(lc_gelu_args a, lc_site site);
#define lc_gelu(...) lc_gelu_at(LC_LITERAL(lc_gelu_args, .x = __VA_ARGS__), LC_HERE)
/* min(max(x, .min), .max); one of the bounds may be missing. An element at a bound gets no gradient, as in
 * PyTorch 2.15. */
LC_API lc_tensor *lc_clamp_at(lc_clamp_args a, lc_site site);
#define lc_clamp(...) lc_clamp_at(LC_LITERAL(lc_clamp_args, .x = __VA_ARGS__), LC_HERE)
/* min(max(x, min), max) */
LC_API lc_tensor *lc_hardtanh_at(lc_tensor *x, double min, double max, lc_site site);
#define lc_hardtanh(x, min, max) lc_hardtanh_at(x, min, max, LC_HERE)
/* w: one slope, or one per channel (dimension 1). */
LC_API lc_tensor *lc_prelu_at(lc_tensor *x, lc_tensor *w, lc_site site);
#define lc_prelu(x, w) lc_prelu_at(x, w, LC_HERE)
/* The first half along dim times the sigmoid of the second: half the size in that dimension. */
LC_API lc_tensor *lc_glu_at(lc_tensor *x, int dim, lc_site site);
#define lc_glu(x, dim) lc_glu_at(x, dim, LC_HERE)
/* To another data type. Gradients are cast back; none flows through integers. */
LC_API lc_tensor *lc_cast_at(lc_tensor *x, lc_dtype dtype, lc_site site);
#define lc_cast(x, dtype) lc_cast_at(x, dtype, LC_HERE)
LC_API lc_tensor *lc_add_scalar_at(lc_tensor *x, double s, lc_site site);
#define lc_add_scalar(x, s) lc_add_scalar_at(x, s, LC_HERE)
LC_API lc_tensor *lc_sub_scalar_at(lc_tensor *x, double s, lc_site site);
#define lc_sub_scalar(x, s) lc_sub_scalar_at(x, s, LC_HERE)
/* s - x */
LC_API lc_tensor *lc_rsub_scalar_at(lc_tensor *x, double s, lc_site site);
#define lc_rsub_scalar(x, s) lc_rsub_scalar_at(x, s, LC_HERE)
LC_API lc_tensor *lc_mul_scalar_at(lc_tensor *x, double s, lc_site site);
#define lc_mul_scalar(x, s) lc_mul_scalar_at(x, s, LC_HERE)
LC_API lc_tensor *lc_div_scalar_at(lc_tensor *x, double s, lc_site site);
#define lc_div_scalar(x, s) lc_div_scalar_at(x, s, LC_HERE)
LC_API lc_tensor *lc_pow_scalar_at(lc_tensor *x, double s, lc_site site);
#define lc_pow_scalar(x, s) lc_pow_scalar_at(x, s, LC_HERE)
/* To bool. */
LC_API lc_tensor *lc_isfinite_at(lc_tensor *x, lc_site site);
#define lc_isfinite(x) lc_isfinite_at(x, LC_HERE)
LC_API lc_tensor *lc_isnan_at(lc_tensor *x, lc_site site);
#define lc_isnan(x) lc_isnan_at(x, LC_HERE)
LC_API lc_tensor *lc_logical_not_at(lc_tensor *x, lc_site site);
#define lc_logical_not(x) lc_logical_not_at(x, LC_HERE)

/* ---- two operands ---- */
LC_API lc_tensor *lc_add_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_add(x, y) lc_add_at(x, y, LC_HERE)
LC_API lc_tensor *lc_sub_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_sub(x, y) lc_sub_at(x, y, LC_HERE)
LC_API lc_tensor *lc_mul_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_mul(x, y) lc_mul_at(x, y, LC_HERE)
LC_API lc_tensor *lc_div_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_div(x, y) lc_div_at(x, y, LC_HERE)
LC_API lc_tensor *lc_pow_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_pow(x, y) lc_pow_at(x, y, LC_HERE)
LC_API lc_tensor *lc_maximum_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_maximum(x, y) lc_maximum_at(x, y, LC_HERE)
LC_API lc_tensor *lc_minimum_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_minimum(x, y) lc_minimum_at(x, y, LC_HERE)
/* x log y, and 0 where x is 0. */
LC_API lc_tensor *lc_xlogy_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_xlogy(x, y) lc_xlogy_at(x, y, LC_HERE)
/* Comparisons, to bool. */
LC_API lc_tensor *lc_eq_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_eq(x, y) lc_eq_at(x, y, LC_HERE)
LC_API lc_tensor *lc_ne_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_ne(x, y) lc_ne_at(x, y, LC_HERE)
LC_API lc_tensor *lc_lt_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_lt(x, y) lc_lt_at(x, y, LC_HERE)
LC_API lc_tensor *lc_le_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_le(x, y) lc_le_at(x, y, LC_HERE)
LC_API lc_tensor *lc_gt_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_gt(x, y) lc_gt_at(x, y, LC_HERE)
LC_API lc_tensor *lc_ge_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_ge(x, y) lc_ge_at(x, y, LC_HERE)
/* Of any data type (not 0 is true), to bool. */
LC_API lc_tensor *lc_logical_and_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_logical_and(x, y) lc_logical_and_at(x, y, LC_HERE)
LC_API lc_tensor *lc_logical_or_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_logical_or(x, y) lc_logical_or_at(x, y, LC_HERE)
LC_API lc_tensor *lc_logical_xor_at(lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_logical_xor(x, y) lc_logical_xor_at(x, y, LC_HERE)
/* condition: bool or u8. */
LC_API lc_tensor *lc_where_at(lc_tensor *condition, lc_tensor *x, lc_tensor *y, lc_site site);
#define lc_where(condition, x, y) lc_where_at(condition, x, y, LC_HERE)
/* value where mask (bool or u8) is true, else x. */
LC_API lc_tensor *lc_masked_fill_at(lc_tensor *x, lc_tensor *mask, double value, lc_site site);
#define lc_masked_fill(x, mask, value) lc_masked_fill_at(x, mask, value, LC_HERE)

/* ---- reductions: PyTorch's functions of the same name; several dimensions at once ---- */
LC_API lc_tensor *lc_sum_at(lc_reduce_args a, lc_site site);
#define lc_sum(...) lc_sum_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_mean_at(lc_reduce_args a, lc_site site);
#define lc_mean(...) lc_mean_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
/* Gradients of equal extremes are shared among them. */
LC_API lc_tensor *lc_amax_at(lc_reduce_args a, lc_site site);
#define lc_amax(...) lc_amax_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_amin_at(lc_reduce_args a, lc_site site);
#define lc_amin(...) lc_amin_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
/* The variance: squared deviations summed, divided by the count less .correction. */
LC_API lc_tensor *lc_var_at(lc_reduce_args a, lc_site site);
#define lc_var(...) lc_var_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
/* The square root of lc_var. */
LC_API lc_tensor *lc_std_at(lc_reduce_args a, lc_site site);
#define lc_std(...) lc_std_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
/* The vector norm. */
LC_API lc_tensor *lc_norm_at(lc_reduce_args a, lc_site site);
#define lc_norm(...) lc_norm_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
/* ln(sum(exp(x))), without overflow. */
LC_API lc_tensor *lc_logsumexp_at(lc_reduce_args a, lc_site site);
#define lc_logsumexp(...) lc_logsumexp_at(LC_LITERAL(lc_reduce_args, .x = __VA_ARGS__), LC_HERE)
/* Index (i64) of the first largest or smallest element; NaN counts as the extreme. */
LC_API lc_tensor *lc_argmax_at(lc_arg_args a, lc_site site);
#define lc_argmax(...) lc_argmax_at(LC_LITERAL(lc_arg_args, .x = __VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_argmin_at(lc_arg_args a, lc_site site);
#define lc_argmin(...) lc_argmin_at(LC_LITERAL(lc_arg_args, .x = __VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_softmax_at(lc_tensor *x, int dim, lc_site site);
#define lc_softmax(x, dim) lc_softmax_at(x, dim, LC_HERE)
LC_API lc_tensor *lc_log_softmax_at(lc_tensor *x, int dim, lc_site site);
#define lc_log_softmax(x, dim) lc_log_softmax_at(x, dim, LC_HERE)
/* Running sums along a dimension; x's shape. */
LC_API lc_tensor *lc_cumsum_at(lc_tensor *x, int dim, lc_site site);
#define lc_cumsum(x, dim) lc_cumsum_at(x, dim, LC_HERE)
/* The k largest (or smallest) elements along a dimension, sorted; equal ones in order of their index. indices (i64) may
 * be NULL. */
LC_API lc_tensor *lc_topk_at(lc_tensor *x, lc_tensor **indices, int64_t k, lc_topk_args a, lc_site site);
#define lc_topk(x, indices, k, ...) lc_topk_at(x, indices, k, LC_LITERAL(lc_topk_args, .dim = __VA_ARGS__), LC_HERE)
/* All elements along a dimension, sorted (stable). */
LC_API lc_tensor *lc_sort_at(lc_tensor *x, lc_tensor **indices, int dim, bool descending, lc_site site);
#define lc_sort(x, indices, dim, descending) lc_sort_at(x, indices, dim, descending, LC_HERE)

/* ---- shape: no data moves unless it must ---- */
/* One size may be -1. */
LC_API lc_tensor *lc_reshape_at(lc_tensor *x, int n, const int64_t *shape, lc_site site);
#define lc_reshape(x, ...) lc_reshape_at(x, LC_INTS(__VA_ARGS__), LC_HERE)
/* Joins dimensions start_dim to the last. */
LC_API lc_tensor *lc_flatten_at(lc_tensor *x, int start_dim, lc_site site);
#define lc_flatten(x, start_dim) lc_flatten_at(x, start_dim, LC_HERE)
/* Splits dimension dim into [first, rest]. */
LC_API lc_tensor *lc_unflatten_at(lc_tensor *x, int dim, int64_t first, lc_site site);
#define lc_unflatten(x, dim, first) lc_unflatten_at(x, dim, first, LC_HERE)
LC_API lc_tensor *lc_permute_at(lc_tensor *x, int n, const int64_t *dims, lc_site site);
#define lc_permute(x, ...) lc_permute_at(x, LC_INTS(__VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_transpose_at(lc_tensor *x, int dim0, int dim1, lc_site site);
#define lc_transpose(x, dim0, dim1) lc_transpose_at(x, dim0, dim1, LC_HERE)
/* PyTorch's narrow. start may count from the end. */
LC_API lc_tensor *lc_slice_at(lc_tensor *x, int dim, int64_t start, int64_t length, lc_site site);
#define lc_slice(x, dim, start, length) lc_slice_at(x, dim, start, length, LC_HERE)
LC_API lc_tensor *lc_select_at(lc_tensor *x, int dim, int64_t index, lc_site site);
#define lc_select(x, dim, index) lc_select_at(x, dim, index, LC_HERE)
/* Drops dimension dim if its size is 1. */
LC_API lc_tensor *lc_squeeze_at(lc_tensor *x, int dim, lc_site site);
#define lc_squeeze(x, dim) lc_squeeze_at(x, dim, LC_HERE)
LC_API lc_tensor *lc_unsqueeze_at(lc_tensor *x, int dim, lc_site site);
#define lc_unsqueeze(x, dim) lc_unsqueeze_at(x, dim, LC_HERE)
/* The new shape; -1 keeps a size, and new dimensions stand in front. */
LC_API lc_tensor *lc_expand_at(lc_tensor *x, int n, const int64_t *shape, lc_site site);
#define lc_expand(x, ...) lc_expand_at(x, LC_INTS(__VA_ARGS__), LC_HERE)
/* A dense copy. */
LC_API lc_tensor *lc_contiguous_at(lc_tensor *x, lc_site site);
#define lc_contiguous(x) lc_contiguous_at(x, LC_HERE)
/* Parts of `size` along dim (the last may be smaller) into out[0..max); returns how many there are. More than max are
 * an error, which is an error tensor in every part. */
LC_API int lc_split_at(lc_tensor *x, int64_t size, int dim, int max, lc_tensor **out, lc_site site);
#define lc_split(x, size, dim, max, out) lc_split_at(x, size, dim, max, out, LC_HERE)
/* n equal parts (PyTorch's chunk: the last may be smaller, and there may be fewer). */
LC_API int lc_chunk_at(lc_tensor *x, int n, int dim, lc_tensor **out, lc_site site);
#define lc_chunk(x, n, dim, out) lc_chunk_at(x, n, dim, out, LC_HERE)
/* lc_cat(dim, x, y, ...) */
LC_API lc_tensor *lc_cat_at(int dim, int n, lc_tensor *const *x, lc_site site);
#define lc_cat(dim, ...)                                                                                               \
    lc_cat_at(dim, (int)(sizeof((lc_tensor *[]){__VA_ARGS__}) / sizeof(lc_tensor *)), (lc_tensor *[]){__VA_ARGS__},    \
              LC_HERE)
LC_API lc_tensor *lc_stack_at(int dim, int n, lc_tensor *const *x, lc_site site);
#define lc_stack(dim, ...)                                                                                             \
    lc_stack_at(dim, (int)(sizeof((lc_tensor *[]){__VA_ARGS__}) / sizeof(lc_tensor *)), (lc_tensor *[]){__VA_ARGS__},  \
                LC_HERE)
/* Constant padding: pairs (before, after) from the last dimension backwards, as torch.nn.functional.pad; negative ones
 * cut off, at most what there is. lc_pad_value(x, 1.5, 0, 2). */
LC_API lc_tensor *lc_pad_at(lc_tensor *x, double value, int n, const int64_t *pad, lc_site site);
#define lc_pad(x, ...)              lc_pad_at(x, 0.0, LC_INTS(__VA_ARGS__), LC_HERE)
#define lc_pad_value(x, value, ...) lc_pad_at(x, value, LC_INTS(__VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_flip_at(lc_tensor *x, int n, const int64_t *dims, lc_site site);
#define lc_flip(x, ...) lc_flip_at(x, LC_INTS(__VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_tril_at(lc_tensor *x, int diagonal, lc_site site);
#define lc_tril(x, diagonal) lc_tril_at(x, diagonal, LC_HERE)
LC_API lc_tensor *lc_triu_at(lc_tensor *x, int diagonal, lc_site site);
#define lc_triu(x, diagonal) lc_triu_at(x, diagonal, LC_HERE)

/* ---- indexing ---- */
/* ids are i64 or i32. With an index that does not exist (negative ones included) the step fails, LC_ERR_ARGUMENT, and
 * says which, where, and what is allowed, also if nobody reads the result; nothing outside is read or written. */
LC_API lc_tensor *lc_gather_at(lc_tensor *x, int dim, lc_tensor *ids, lc_site site);
#define lc_gather(x, dim, ids) lc_gather_at(x, dim, ids, LC_HERE)
LC_API lc_tensor *lc_index_select_at(lc_tensor *x, int dim, lc_tensor *ids, lc_site site);
#define lc_index_select(x, dim, ids) lc_index_select_at(x, dim, ids, LC_HERE)
/* x with src added at ids along dim; deterministic. src has x's number of dimensions; that of lc_index_add has x's
 * shape too, but along dim. */
LC_API lc_tensor *lc_scatter_add_at(lc_tensor *x, int dim, lc_tensor *ids, lc_tensor *src, lc_site site);
#define lc_scatter_add(x, dim, ids, src) lc_scatter_add_at(x, dim, ids, src, LC_HERE)
LC_API lc_tensor *lc_index_add_at(lc_tensor *x, int dim, lc_tensor *ids, lc_tensor *src, lc_site site);
#define lc_index_add(x, dim, ids, src) lc_index_add_at(x, dim, ids, src, LC_HERE)
/* i64, with a last dimension of `classes`. An id outside of 0..classes-1 fails the step. */
LC_API lc_tensor *lc_one_hot_at(lc_tensor *ids, int64_t classes, lc_site site);
#define lc_one_hot(ids, classes) lc_one_hot_at(ids, classes, LC_HERE)

/* ---- constants ---- */
LC_API lc_tensor *lc_full_at(double value, lc_dtype dtype, int ndim, const int64_t *shape, lc_site site);
#define lc_full(value, dtype, ...) lc_full_at(value, dtype, LC_INTS(__VA_ARGS__), LC_HERE)
#define lc_zeros(dtype, ...)       lc_full_at(0.0, dtype, LC_INTS(__VA_ARGS__), LC_HERE)
#define lc_ones(dtype, ...)        lc_full_at(1.0, dtype, LC_INTS(__VA_ARGS__), LC_HERE)
LC_API lc_tensor *lc_full_like_at(lc_tensor *x, double value, lc_site site);
#define lc_full_like(x, value) lc_full_like_at(x, value, LC_HERE)
#define lc_zeros_like(x)       lc_full_like_at(x, 0.0, LC_HERE)
#define lc_ones_like(x)        lc_full_like_at(x, 1.0, LC_HERE)
/* A tensor of no dimensions. The value may differ from step to step without planning anew. */
LC_API lc_tensor *lc_scalar_at(double value, lc_dtype dtype, lc_site site);
#define lc_scalar(value, dtype) lc_scalar_at(value, dtype, LC_HERE)
/* start, start + step, ...: n numbers. */
LC_API lc_tensor *lc_arange_at(double start, double step, int64_t n, lc_dtype dtype, lc_site site);
#define lc_arange(start, step, n, dtype) lc_arange_at(start, step, n, dtype, LC_HERE)

/* ---- losses ---- */
/* (x - target)^2, reduced: mean, unless .reduction says otherwise. x and target have one shape and type. */
LC_API lc_tensor *lc_mse_loss_at(lc_tensor *x, lc_loss_args a, lc_site site);
#define lc_mse_loss(x, ...) lc_mse_loss_at(x, LC_LITERAL(lc_loss_args, .target = __VA_ARGS__), LC_HERE)
/* |x - target| */
LC_API lc_tensor *lc_l1_loss_at(lc_tensor *x, lc_loss_args a, lc_site site);
#define lc_l1_loss(x, ...) lc_l1_loss_at(x, LC_LITERAL(lc_loss_args, .target = __VA_ARGS__), LC_HERE)
/* 0.5 d^2 / beta where d = |x - target| < beta, else d - 0.5 beta. */
LC_API lc_tensor *lc_smooth_l1_loss_at(lc_tensor *x, lc_loss_args a, lc_site site);
#define lc_smooth_l1_loss(x, ...) lc_smooth_l1_loss_at(x, LC_LITERAL(lc_loss_args, .target = __VA_ARGS__), LC_HERE)
/* 0.5 d^2 where d = |x - target| <= delta, else delta (d - 0.5 delta). */
LC_API lc_tensor *lc_huber_loss_at(lc_tensor *x, lc_loss_args a, lc_site site);
#define lc_huber_loss(x, ...) lc_huber_loss_at(x, LC_LITERAL(lc_loss_args, .target = __VA_ARGS__), LC_HERE)
/* -(p y ln(sigmoid(x)) + (1 - y) ln(1 - sigmoid(x))) with p = .pos_weight, times .weight; stable for large x. The
 * target y has x's shape. */
LC_API lc_tensor *lc_bce_with_logits_at(lc_tensor *x, lc_loss_args a, lc_site site);
#define lc_bce_with_logits(x, ...) lc_bce_with_logits_at(x, LC_LITERAL(lc_loss_args, .target = __VA_ARGS__), LC_HERE)
/* x: log-probabilities. target (ln(target) - x); with .log_target exp(target) (target - x). As in PyTorch the
 * mean is over all elements, not over the batch. */
LC_API lc_tensor *lc_kl_div_at(lc_tensor *x, lc_loss_args a, lc_site site);
#define lc_kl_div(x, ...) lc_kl_div_at(x, LC_LITERAL(lc_loss_args, .target = __VA_ARGS__), LC_HERE)
/* x . y / (max(|x|, eps) max(|y|, eps)) along dim. */
LC_API lc_tensor *lc_cosine_similarity_at(lc_tensor *x, lc_tensor *y, lc_cosine_args a, lc_site site);
#define lc_cosine_similarity(x, y, ...)                                                                                \
    lc_cosine_similarity_at(x, y, LC_LITERAL(lc_cosine_args, .dim = __VA_ARGS__), LC_HERE)

LC_END_DECLS

#endif
