/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators, reductions, shapes, indexing, losses. Names and meanings are PyTorch's unless a comment says
 * otherwise.
 *
 * Every function is a macro around lc_NAME_at, which takes the caller's place in the source; optional arguments have
 * names and follow the mandatory ones, with PyTorch's defaults (args.h):
 *
 *   y = lc_sum(x);                                    all dimensions
 *   y = lc_sum(x, .dims = LC_DIMS(0, 2, 3), .keepdim = true);
 *   y = lc_reshape(x, 8, -1);
 *   y = lc_clamp(x, .min = 0);
 *
 * Dimensions may count from the end (-1 is the last). Operands broadcast as in NumPy. Data types do not mix: where
 * PyTorch would convert silently, write lc_cast. Functions return a step tensor; errors are sticky and reported by the
 * step (graph.h).
 *
 * To add an elementwise operator: a line in src/ops/elementwise_table.h. Others: an lc_op in src/ops/ and its line in
 * src/ops/ops.h. */
#ifndef LIGHTC_OPS_MATH_H
#define LIGHTC_OPS_MATH_H

#include <lightc/ops_types.h>

/* x, and what to reduce over: lc_sum(x, .dims = LC_DIMS(1)). */
typedef struct lc_reduce_args {
    size_t size;
    lc_tensor *x;
    lc_dims dims; /* none: all */
    bool keepdim;
    double correction; /* lc_var, lc_std */
    double p;          /* lc_norm: INFINITY and -INFINITY work; 0 counts what is not 0, and has no gradient */
} lc_reduce_args;
LC_DEFAULTS(lc_reduce, lc_reduce_args, .correction = 1, .p = 2)

/* x, and one dimension: lc_argmax(x, .dim = 1). */
typedef struct lc_arg_args {
    size_t size;
    lc_tensor *x;
    int64_t dim; /* not given: over all elements, as if flattened */
    bool keepdim;
} lc_arg_args;
LC_DEFAULTS(lc_arg, lc_arg_args, .dim = LC_UNSET)

typedef struct lc_clamp_args {
    size_t size;
    lc_tensor *x;
    double min, max; /* one of the two is given */
} lc_clamp_args;
LC_DEFAULTS(lc_clamp, lc_clamp_args, .min = LC_NOT_GIVEN, .max = LC_NOT_GIVEN)

typedef struct lc_gelu_args {
    size_t size;
    lc_tensor *x;
    bool tanh; /* PyTorch's approximate="tanh" */
} lc_gelu_args;
LC_DEFAULTS(lc_gelu, lc_gelu_args, )

typedef struct lc_leaky_relu_args {
    size_t size;
    lc_tensor *x;
    double slope; /* lc_elu: alpha */
} lc_leaky_relu_args, lc_elu_args;
LC_DEFAULTS(lc_leaky_relu, lc_leaky_relu_args, .slope = 0.01)
LC_DEFAULTS(lc_elu, lc_elu_args, .slope = 1)

typedef struct lc_topk_args {
    size_t size;
    int dim;
    bool smallest;
} lc_topk_args;
LC_DEFAULTS(lc_topk, lc_topk_args, )

typedef struct lc_loss_args {
    size_t size;
    lc_tensor *target;
    lc_reduction reduction; /* LC_REDUCE_MEAN, _SUM or _NONE; lc_kl_div: or _BATCHMEAN */
    double beta;            /* lc_smooth_l1_loss: not negative */
    double delta;           /* lc_huber_loss: positive */
    lc_tensor *weight;      /* lc_bce_with_logits: multiplies each element's loss; broadcast to x's shape */
    lc_tensor *pos_weight;  /* lc_bce_with_logits: of the positive class; broadcast to x's shape */
    bool log_target;        /* lc_kl_div */
} lc_loss_args;
LC_DEFAULTS(lc_loss, lc_loss_args, .beta = 1, .delta = 1)

typedef struct lc_cosine_args {
    size_t size;
    int dim;
    double eps;
} lc_cosine_args;
LC_DEFAULTS(lc_cosine, lc_cosine_args, .eps = 1e-8)

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
LC_API lc_tensor *lc_leaky_relu_at(const lc_leaky_relu_args *args, lc_site site);
#define lc_leaky_relu(...) LC_CALL_AT(lc_leaky_relu, lc_leaky_relu, (), .x = __VA_ARGS__)
/* x for x > 0, else alpha (exp(x) - 1). */
LC_API lc_tensor *lc_elu_at(const lc_elu_args *args, lc_site site);
#define lc_elu(...) LC_CALL_AT(lc_elu, lc_elu, (), .x = __VA_ARGS__)
/* x times the normal distribution function of x, or its approximation by tanh. */
LC_API lc_tensor *lc_gelu_at(const lc_gelu_args *args, lc_site site);
#define lc_gelu(...) LC_CALL_AT(lc_gelu, lc_gelu, (), .x = __VA_ARGS__)
/* min(max(x, .min), .max); one of the bounds may be missing. An element at a bound gets no gradient, as in
 * PyTorch 2.15. */
LC_API lc_tensor *lc_clamp_at(const lc_clamp_args *args, lc_site site);
#define lc_clamp(...) LC_CALL_AT(lc_clamp, lc_clamp, (), .x = __VA_ARGS__)
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
/* Converts any data type to bool (nonzero is true). */
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
LC_API lc_tensor *lc_sum_at(const lc_reduce_args *args, lc_site site);
#define lc_sum(...) LC_CALL_AT(lc_sum, lc_reduce, (), .x = __VA_ARGS__)
LC_API lc_tensor *lc_mean_at(const lc_reduce_args *args, lc_site site);
#define lc_mean(...) LC_CALL_AT(lc_mean, lc_reduce, (), .x = __VA_ARGS__)
/* Equal extremes share the gradient. */
LC_API lc_tensor *lc_amax_at(const lc_reduce_args *args, lc_site site);
#define lc_amax(...) LC_CALL_AT(lc_amax, lc_reduce, (), .x = __VA_ARGS__)
LC_API lc_tensor *lc_amin_at(const lc_reduce_args *args, lc_site site);
#define lc_amin(...) LC_CALL_AT(lc_amin, lc_reduce, (), .x = __VA_ARGS__)
/* The variance: squared deviations summed, divided by the count less .correction. */
LC_API lc_tensor *lc_var_at(const lc_reduce_args *args, lc_site site);
#define lc_var(...) LC_CALL_AT(lc_var, lc_reduce, (), .x = __VA_ARGS__)
/* The square root of lc_var. */
LC_API lc_tensor *lc_std_at(const lc_reduce_args *args, lc_site site);
#define lc_std(...) LC_CALL_AT(lc_std, lc_reduce, (), .x = __VA_ARGS__)
/* The vector norm. */
LC_API lc_tensor *lc_norm_at(const lc_reduce_args *args, lc_site site);
#define lc_norm(...) LC_CALL_AT(lc_norm, lc_reduce, (), .x = __VA_ARGS__)
/* ln(sum(exp(x))), without overflow. */
LC_API lc_tensor *lc_logsumexp_at(const lc_reduce_args *args, lc_site site);
#define lc_logsumexp(...) LC_CALL_AT(lc_logsumexp, lc_reduce, (), .x = __VA_ARGS__)
/* Index (i64) of the first largest or smallest element; NaN counts as the extreme. */
LC_API lc_tensor *lc_argmax_at(const lc_arg_args *args, lc_site site);
#define lc_argmax(...) LC_CALL_AT(lc_argmax, lc_arg, (), .x = __VA_ARGS__)
LC_API lc_tensor *lc_argmin_at(const lc_arg_args *args, lc_site site);
#define lc_argmin(...) LC_CALL_AT(lc_argmin, lc_arg, (), .x = __VA_ARGS__)
LC_API lc_tensor *lc_softmax_at(lc_tensor *x, int dim, lc_site site);
#define lc_softmax(x, dim) lc_softmax_at(x, dim, LC_HERE)
LC_API lc_tensor *lc_log_softmax_at(lc_tensor *x, int dim, lc_site site);
#define lc_log_softmax(x, dim) lc_log_softmax_at(x, dim, LC_HERE)
/* Running sums along a dimension; x's shape. */
LC_API lc_tensor *lc_cumsum_at(lc_tensor *x, int dim, lc_site site);
#define lc_cumsum(x, dim) lc_cumsum_at(x, dim, LC_HERE)
/* The k largest (or smallest) elements along a dimension, sorted; equal ones in order of their index. indices (i64) may
 * be NULL. */
LC_API lc_tensor *lc_topk_at(lc_tensor *x, lc_tensor **indices, int64_t k, const lc_topk_args *args, lc_site site);
#define lc_topk(x, indices, k, ...) LC_CALL_AT(lc_topk, lc_topk, (x, indices, k, ), .dim = __VA_ARGS__)
/* All elements along a dimension, sorted (stable). */
LC_API lc_tensor *lc_sort_at(lc_tensor *x, lc_tensor **indices, int dim, bool descending, lc_site site);
#define lc_sort(x, indices, dim, descending) lc_sort_at(x, indices, dim, descending, LC_HERE)

/* ---- shape: no data moves unless it must ---- */
/* One size may be -1. */
LC_API lc_tensor *lc_reshape_at(lc_tensor *x, int n, const int64_t *shape, lc_site site);
#define lc_reshape(x, ...) LC_CALL_INTS(lc_reshape_at, (x, ), __VA_ARGS__)
/* Joins dimensions start_dim to the last. */
LC_API lc_tensor *lc_flatten_at(lc_tensor *x, int start_dim, lc_site site);
#define lc_flatten(x, start_dim) lc_flatten_at(x, start_dim, LC_HERE)
/* Splits dimension dim into [first, rest]. */
LC_API lc_tensor *lc_unflatten_at(lc_tensor *x, int dim, int64_t first, lc_site site);
#define lc_unflatten(x, dim, first) lc_unflatten_at(x, dim, first, LC_HERE)
LC_API lc_tensor *lc_permute_at(lc_tensor *x, int n, const int64_t *dims, lc_site site);
#define lc_permute(x, ...) LC_CALL_INTS(lc_permute_at, (x, ), __VA_ARGS__)
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
/* The new shape; -1 keeps a size, and new dimensions come first. */
LC_API lc_tensor *lc_expand_at(lc_tensor *x, int n, const int64_t *shape, lc_site site);
#define lc_expand(x, ...) LC_CALL_INTS(lc_expand_at, (x, ), __VA_ARGS__)
/* A dense copy. */
LC_API lc_tensor *lc_contiguous_at(lc_tensor *x, lc_site site);
#define lc_contiguous(x) lc_contiguous_at(x, LC_HERE)
/* Parts of `size` along dim (the last may be smaller) into out[0..max); returns how many there are. If there are more
 * than max, every part is an error tensor. */
LC_API int lc_split_at(lc_tensor *x, int64_t size, int dim, int max, lc_tensor **out, lc_site site);
#define lc_split(x, size, dim, max, out) lc_split_at(x, size, dim, max, out, LC_HERE)
/* n equal parts (PyTorch's chunk: the last may be smaller, and there may be fewer). */
LC_API int lc_chunk_at(lc_tensor *x, int n, int dim, lc_tensor **out, lc_site site);
#define lc_chunk(x, n, dim, out) lc_chunk_at(x, n, dim, out, LC_HERE)
/* lc_cat(dim, x, y, ...) */
LC_API lc_tensor *lc_cat_at(int dim, int n, lc_tensor *const *x, lc_site site);
#define lc_cat(dim, ...) LC_CALL_TENSORS(lc_cat_at, (dim, ), __VA_ARGS__)
LC_API lc_tensor *lc_stack_at(int dim, int n, lc_tensor *const *x, lc_site site);
#define lc_stack(dim, ...) LC_CALL_TENSORS(lc_stack_at, (dim, ), __VA_ARGS__)
/* Constant padding: pairs (before, after) from the last dimension backwards, as torch.nn.functional.pad; negative ones
 * crop, at most the whole dimension. lc_pad_value(x, 1.5, 0, 2). */
LC_API lc_tensor *lc_pad_at(lc_tensor *x, double value, int n, const int64_t *pad, lc_site site);
#define lc_pad(x, ...)              LC_CALL_INTS(lc_pad_at, (x, 0.0, ), __VA_ARGS__)
#define lc_pad_value(x, value, ...) LC_CALL_INTS(lc_pad_at, (x, value, ), __VA_ARGS__)
LC_API lc_tensor *lc_flip_at(lc_tensor *x, int n, const int64_t *dims, lc_site site);
#define lc_flip(x, ...) LC_CALL_INTS(lc_flip_at, (x, ), __VA_ARGS__)
LC_API lc_tensor *lc_tril_at(lc_tensor *x, int diagonal, lc_site site);
#define lc_tril(x, diagonal) lc_tril_at(x, diagonal, LC_HERE)
LC_API lc_tensor *lc_triu_at(lc_tensor *x, int diagonal, lc_site site);
#define lc_triu(x, diagonal) lc_triu_at(x, diagonal, LC_HERE)

/* ---- indexing ---- */
/* ids are i64 or i32. An out-of-range index (negative ones included) fails the step with LC_ERR_ARGUMENT, even if
 * nothing reads the result; the message says which index, where, and what is allowed. Nothing out of range is read or
 * written. */
LC_API lc_tensor *lc_gather_at(lc_tensor *x, int dim, lc_tensor *ids, lc_site site);
#define lc_gather(x, dim, ids) lc_gather_at(x, dim, ids, LC_HERE)
LC_API lc_tensor *lc_index_select_at(lc_tensor *x, int dim, lc_tensor *ids, lc_site site);
#define lc_index_select(x, dim, ids) lc_index_select_at(x, dim, ids, LC_HERE)
/* x with src added at ids along dim; deterministic. src has x's number of dimensions; for lc_index_add also x's shape,
 * except along dim. */
LC_API lc_tensor *lc_scatter_add_at(lc_tensor *x, int dim, lc_tensor *ids, lc_tensor *src, lc_site site);
#define lc_scatter_add(x, dim, ids, src) lc_scatter_add_at(x, dim, ids, src, LC_HERE)
LC_API lc_tensor *lc_index_add_at(lc_tensor *x, int dim, lc_tensor *ids, lc_tensor *src, lc_site site);
#define lc_index_add(x, dim, ids, src) lc_index_add_at(x, dim, ids, src, LC_HERE)
/* i64, with a last dimension of `classes`. An id outside of 0..classes-1 fails the step. */
LC_API lc_tensor *lc_one_hot_at(lc_tensor *ids, int64_t classes, lc_site site);
#define lc_one_hot(ids, classes) lc_one_hot_at(ids, classes, LC_HERE)
/* lengths[B] (i64 or i32) -> bool [B,size]: true at positions before the length. */
LC_API lc_tensor *lc_length_mask_at(lc_tensor *lengths, int64_t size, lc_site site);
#define lc_length_mask(lengths, size) lc_length_mask_at(lengths, size, LC_HERE)

/* ---- constants ---- */
LC_API lc_tensor *lc_full_at(double value, lc_dtype dtype, int ndim, const int64_t *shape, lc_site site);
#define lc_full(value, dtype, ...) LC_CALL_INTS(lc_full_at, (value, dtype, ), __VA_ARGS__)
#define lc_zeros(dtype, ...)       LC_CALL_INTS(lc_full_at, (0.0, dtype, ), __VA_ARGS__)
#define lc_ones(dtype, ...)        LC_CALL_INTS(lc_full_at, (1.0, dtype, ), __VA_ARGS__)
LC_API lc_tensor *lc_full_like_at(lc_tensor *x, double value, lc_site site);
#define lc_full_like(x, value) lc_full_like_at(x, value, LC_HERE)
#define lc_zeros_like(x)       lc_full_like_at(x, 0.0, LC_HERE)
#define lc_ones_like(x)        lc_full_like_at(x, 1.0, LC_HERE)
/* A tensor of no dimensions. The value may differ from step to step without planning again. */
LC_API lc_tensor *lc_scalar_at(double value, lc_dtype dtype, lc_site site);
#define lc_scalar(value, dtype) lc_scalar_at(value, dtype, LC_HERE)
/* start, start + step, ...: n numbers. */
LC_API lc_tensor *lc_arange_at(double start, double step, int64_t n, lc_dtype dtype, lc_site site);
#define lc_arange(start, step, n, dtype) lc_arange_at(start, step, n, dtype, LC_HERE)

/* ---- losses ---- */
/* (x - target)^2, reduced: mean, unless .reduction says otherwise. x and target have one type and, for this loss and
 * the next three, one shape, or one of both broadcasts to the other. */
LC_API lc_tensor *lc_mse_loss_at(lc_tensor *x, const lc_loss_args *args, lc_site site);
#define lc_mse_loss(x, ...) LC_CALL_AT(lc_mse_loss, lc_loss, (x, ), .target = __VA_ARGS__)
/* |x - target| */
LC_API lc_tensor *lc_l1_loss_at(lc_tensor *x, const lc_loss_args *args, lc_site site);
#define lc_l1_loss(x, ...) LC_CALL_AT(lc_l1_loss, lc_loss, (x, ), .target = __VA_ARGS__)
/* 0.5 d^2 / beta where d = |x - target| < beta, else d - 0.5 beta. */
LC_API lc_tensor *lc_smooth_l1_loss_at(lc_tensor *x, const lc_loss_args *args, lc_site site);
#define lc_smooth_l1_loss(x, ...) LC_CALL_AT(lc_smooth_l1_loss, lc_loss, (x, ), .target = __VA_ARGS__)
/* 0.5 d^2 where d = |x - target| <= delta, else delta (d - 0.5 delta). */
LC_API lc_tensor *lc_huber_loss_at(lc_tensor *x, const lc_loss_args *args, lc_site site);
#define lc_huber_loss(x, ...) LC_CALL_AT(lc_huber_loss, lc_loss, (x, ), .target = __VA_ARGS__)
/* -(p y ln(sigmoid(x)) + (1 - y) ln(1 - sigmoid(x))) with p = .pos_weight, times .weight; stable for large x. The
 * target y has x's shape. */
LC_API lc_tensor *lc_bce_with_logits_at(lc_tensor *x, const lc_loss_args *args, lc_site site);
#define lc_bce_with_logits(x, ...) LC_CALL_AT(lc_bce_with_logits, lc_loss, (x, ), .target = __VA_ARGS__)
/* x: log-probabilities. target (ln(target) - x); with .log_target exp(target) (target - x). As in PyTorch the
 * mean is over all elements, not over the batch. */
LC_API lc_tensor *lc_kl_div_at(lc_tensor *x, const lc_loss_args *args, lc_site site);
#define lc_kl_div(x, ...) LC_CALL_AT(lc_kl_div, lc_loss, (x, ), .target = __VA_ARGS__)
/* x . y / (max(|x|, eps) max(|y|, eps)) along dim. */
LC_API lc_tensor *lc_cosine_similarity_at(lc_tensor *x, lc_tensor *y, const lc_cosine_args *args, lc_site site);
#define lc_cosine_similarity(x, y, ...) LC_CALL_AT(lc_cosine_similarity, lc_cosine, (x, y, ), .dim = __VA_ARGS__)

LC_END_DECLS

#endif
