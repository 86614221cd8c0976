/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of ops.json: what their names and attributes mean. */
#include "op_case.h"

#include <string.h>

static lc_tensor *in(const op_case *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->names[i], name)) return c->tensors[i];
    return NULL;
}

static double num(const op_case *c, const char *key, double otherwise)
{
    return json_number(c->attrs, key, otherwise);
}

static int integer(const op_case *c, const char *key, int otherwise)
{
    return (int)num(c, key, otherwise);
}

static double maybe(const op_case *c, const char *key)
{
    return num(c, key, LC_NOT_GIVEN);
}

static lc_reduction reduction(const op_case *c)
{
    const char *how = json_text(c->attrs, "reduction", "mean");
    return !strcmp(how, "sum")    ? LC_REDUCE_SUM
           : !strcmp(how, "none") ? LC_REDUCE_NONE
           : !strcmp(how, "mean") ? LC_REDUCE_MEAN
                                  : LC_REDUCE_BATCHMEAN;
}

static lc_reduce_args reduce(const op_case *c)
{
    int64_t dims[LC_MAX_DIMS];
    lc_reduce_args a = lc_reduce_defaults();
    a.x = in(c, "x");
    a.keepdim = num(c, "keepdim", 0) != 0;
    a.dims.n = json_ints(c->attrs, "dim", LC_MAX_DIMS, dims);
    for (int i = 0; i < a.dims.n; i++) a.dims.dim[i] = dims[i];
    a.correction = num(c, "correction", a.correction);
    a.p = num(c, "p", a.p);
    return a;
}

/* A size given as one number for all n dimensions, or as a list. */
static void spread(const op_case *c, const char *key, int n, int64_t otherwise, int64_t *out)
{
    int have = json_ints(c->attrs, key, n, out);
    for (int i = have; i < n; i++) out[i] = have ? out[have - 1] : otherwise;
}

static lc_dims spread_dims(const op_case *c, const char *key, int n, int64_t otherwise)
{
    lc_dims dims = {.n = n};
    spread(c, key, n, otherwise, dims.dim);
    return dims;
}

static lc_conv_args conv_args(const op_case *c, int n)
{
    lc_conv_args a = lc_conv_defaults();
    a.bias = in(c, "b");
    a.groups = integer(c, "groups", 1);
    a.stride = spread_dims(c, "stride", n, 1);
    a.padding = spread_dims(c, "padding", n, 0);
    a.dilation = spread_dims(c, "dilation", n, 1);
    a.output_padding = spread_dims(c, "output_padding", n, 0);
    return a;
}

static lc_pool_args pool_args(const op_case *c)
{
    int64_t kernel[2];
    spread(c, "kernel_size", 2, 1, kernel);
    lc_pool_args a = lc_pool_defaults();
    a.kernel = kernel[0];
    a.kernel_w = kernel[1];
    if (json_has(c->attrs, "stride")) a.stride = spread_dims(c, "stride", 2, 0);
    a.padding = spread_dims(c, "padding", 2, 0);
    a.dilation = spread_dims(c, "dilation", 2, 1);
    a.ceil_mode = num(c, "ceil_mode", 0) != 0;
    a.exclude_pad = num(c, "count_include_pad", 1) == 0;
    a.divisor = integer(c, "divisor_override", 0);
    return a;
}

static lc_norm_args norm_args(const op_case *c)
{
    int64_t shape[LC_MAX_DIMS];
    lc_norm_args a = lc_norm_defaults();
    a.bias = in(c, "b");
    a.dims = json_ints(c->attrs, "normalized_shape", LC_MAX_DIMS, shape);
    a.eps = num(c, "eps", 1e-5);
    return a;
}

static lc_cross_entropy_args cross_entropy_args(const op_case *c)
{
    lc_cross_entropy_args a = lc_cross_entropy_defaults();
    a.target = in(c, "t");
    a.weight = in(c, "w");
    a.ignore_index = integer(c, "ignore_index", -100);
    a.reduction = reduction(c);
    a.label_smoothing = num(c, "label_smoothing", 0);
    return a;
}

static lc_loss_args loss_args(const op_case *c)
{
    lc_loss_args a = lc_loss_defaults();
    a.target = in(c, "t");
    a.reduction = reduction(c);
    a.beta = num(c, "beta", a.beta);
    a.delta = num(c, "delta", a.delta);
    a.pos_weight = in(c, "w");
    return a;
}

static lc_rnn_args rnn_args(const op_case *c)
{
    lc_rnn_args a = lc_rnn_defaults();
    a.w_hh = in(c, "w_hh");
    a.b_ih = in(c, "b_ih");
    a.b_hh = in(c, "b_hh");
    return a;
}

typedef lc_tensor *rnn_fn(lc_tensor *x, lc_tensor *w_ih, const lc_rnn_args *args, lc_site site);

/* x[B,T,I], or [T,I] as PyTorch's layers take it. */
static lc_tensor *rnn(const op_case *c, rnn_fn *f)
{
    lc_rnn_args a = rnn_args(c);
    lc_tensor *x = in(c, "x"), *w = in(c, "w_ih");
    if (!x || lc_tensor_ndim(x) != 2) return f(x, w, &a, LC_HERE);
    return lc_squeeze(f(lc_unsqueeze(x, 0), w, &a, LC_HERE), 0);
}

static lc_tensor *batch_norm(op_case *c)
{
    lc_batch_norm_args a = lc_batch_norm_defaults();
    a.bias = in(c, "b");
    a.running_mean = in(c, "running_mean");
    a.running_var = in(c, "running_var");
    a.training = num(c, "training", 0) != 0;
    a.momentum = num(c, "momentum", 0.1);
    a.eps = num(c, "eps", 1e-5);
    c->more[0] = a.running_mean;
    c->more[1] = a.running_var;
    return lc_batch_norm_at(in(c, "x"), in(c, "w"), &a, LC_HERE);
}

static lc_tensor *interpolate(op_case *c)
{
    lc_interpolate_args a = lc_interpolate_defaults();
    a.align_corners = num(c, "align_corners", 0) != 0;
    const char *mode = json_text(c->attrs, "mode", "nearest");
    a.mode = strcmp(mode, "nearest") ? LC_BILINEAR : LC_NEAREST;
    const cJSON *scale = cJSON_GetObjectItemCaseSensitive(c->attrs, "scale_factor");
    if (json_has(c->attrs, "size")) a.output_size = spread_dims(c, "size", 2, 0);
    for (int i = 0; i < 2 && json_has(c->attrs, "scale_factor"); i++)
        *(i ? &a.scale_w : &a.scale) = json_value(cJSON_IsArray(scale) ? cJSON_GetArrayItem(scale, i) : scale);
    return lc_interpolate_at(in(c, "x"), &a, LC_HERE);
}

static lc_tensor *adaptive_avg_pool2d(op_case *c)
{
    const cJSON *size = cJSON_GetObjectItemCaseSensitive(c->attrs, "output_size");
    int64_t out[2];
    for (int i = 0; i < 2; i++) {
        const cJSON *e = cJSON_IsArray(size) ? cJSON_GetArrayItem(size, i) : size;
        out[i] = cJSON_IsNumber(e) ? (int64_t)e->valuedouble : 0;
    }
    return lc_adaptive_avg_pool2d(in(c, "x"), out[0], out[1]);
}

typedef lc_tensor *list_fn(lc_tensor *x, int n, const int64_t *list, lc_site site);

static lc_tensor *with_list(op_case *c, list_fn *f, const char *key)
{
    int64_t list[2 * LC_MAX_DIMS];
    int n = json_ints(c->attrs, key, 2 * LC_MAX_DIMS, list);
    return f(in(c, "x"), n, list, LC_HERE);
}

static lc_tensor *pad(op_case *c)
{
    int64_t list[2 * LC_MAX_DIMS];
    int n = json_ints(c->attrs, "pad", 2 * LC_MAX_DIMS, list);
    return lc_pad_at(in(c, "x"), num(c, "value", 0), n, list, LC_HERE);
}

static lc_tensor *transpose(op_case *c)
{
    int64_t dims[2] = {0};
    json_ints(c->attrs, "dims", 2, dims);
    return lc_transpose(in(c, "x"), (int)dims[0], (int)dims[1]);
}

static lc_tensor *where(op_case *c)
{
    return lc_where(lc_gt(in(c, "c"), lc_scalar(0.5, lc_tensor_dtype(in(c, "c")))), in(c, "x"), in(c, "y"));
}

static lc_tensor *kl_div(op_case *c)
{
    return lc_kl_div(lc_log_softmax(in(c, "x"), -1), lc_softmax(in(c, "t"), -1), .reduction = LC_REDUCE_BATCHMEAN);
}

#define X in(c, "x")
#define Y in(c, "y")
#define OP(name, expression)                                                                                           \
    static lc_tensor *run_##name(op_case *c)                                                                           \
    {                                                                                                                  \
        return expression;                                                                                             \
    }
/* clang-format off */
#define UNARY_LIST(F)                                                                                                \
    F(neg) F(exp) F(sqrt) F(rsqrt) F(abs) F(sigmoid) F(tanh) F(sin) F(cos) F(square) F(reciprocal) F(erf) F(floor)   \
    F(ceil) F(round) F(sign) F(log1p) F(expm1) F(relu) F(silu) F(softplus) F(hardswish) F(hardsigmoid) F(mish)       \
    F(relu6) F(softsign) F(logsigmoid) F(selu)
/* clang-format on */
#define BINARY_LIST(F)  F(add) F(sub) F(mul) F(div) F(maximum) F(minimum) F(matmul) F(pow)
#define OP_UNARY(name)  OP(name, lc_##name(X))
#define OP_BINARY(name) OP(name, lc_##name(X, Y))
#define OTHER_LIST(F)                                                                                                  \
    F(log, lc_ln(X))                                                                                                   \
    F(add_scalar, lc_add_scalar(X, num(c, "s", 0)))                                                                    \
    F(mul_scalar, lc_mul_scalar(X, num(c, "s", 0)))                                                                    \
    F(pow_scalar, lc_pow_scalar(X, num(c, "s", 0)))                                                                    \
    F(leaky_relu, lc_leaky_relu(X, .slope = num(c, "slope", 0.01)))                                                    \
    F(elu, lc_elu(X, .slope = num(c, "alpha", 1)))                                                                     \
    F(prelu, lc_prelu(X, in(c, "w")))                                                                                  \
    F(gelu, lc_gelu(X, .tanh = !strcmp(json_text(c->attrs, "approximate", "none"), "tanh")))                           \
    F(clamp, lc_clamp(X, .min = maybe(c, "min"), .max = maybe(c, "max")))                                              \
    F(where, where(c))                                                                                                 \
    F(glu, lc_glu(X, integer(c, "dim", -1)))                                                                           \
    F(softmax, lc_softmax(X, integer(c, "dim", -1)))                                                                   \
    F(log_softmax, lc_log_softmax(X, integer(c, "dim", -1)))                                                           \
    F(sum, lc_sum_at((lc_reduce_args[]){reduce(c)}, LC_HERE))                                                          \
    F(mean, lc_mean_at((lc_reduce_args[]){reduce(c)}, LC_HERE))                                                        \
    F(amax, lc_amax_at((lc_reduce_args[]){reduce(c)}, LC_HERE))                                                        \
    F(amin, lc_amin_at((lc_reduce_args[]){reduce(c)}, LC_HERE))                                                        \
    F(var, lc_var_at((lc_reduce_args[]){reduce(c)}, LC_HERE))                                                          \
    F(logsumexp, lc_logsumexp_at((lc_reduce_args[]){reduce(c)}, LC_HERE))                                              \
    F(norm, lc_norm_at((lc_reduce_args[]){reduce(c)}, LC_HERE))                                                        \
    F(argmax, lc_argmax(X, .dim = json_has(c->attrs, "dim") ? integer(c, "dim", 0) : LC_UNSET))                        \
    F(cumsum, lc_cumsum(X, integer(c, "dim", 0)))                                                                      \
    F(topk_values, lc_topk(X, NULL, integer(c, "k", 1), integer(c, "dim", -1)))                                        \
    F(linear, lc_linear(X, in(c, "w"), in(c, "b")))                                                                    \
    F(bmm_nt, lc_matmul(X, lc_transpose(Y, -1, -2)))                                                                   \
    F(conv1d, lc_conv1d_at(X, in(c, "w"), (lc_conv_args[]){conv_args(c, 1)}, LC_HERE))                                 \
    F(conv2d, lc_conv2d_at(X, in(c, "w"), (lc_conv_args[]){conv_args(c, 2)}, LC_HERE))                                 \
    F(conv3d, lc_conv3d_at(X, in(c, "w"), (lc_conv_args[]){conv_args(c, 3)}, LC_HERE))                                 \
    F(conv_transpose2d, lc_conv_transpose2d_at(X, in(c, "w"), (lc_conv_args[]){conv_args(c, 2)}, LC_HERE))             \
    F(max_pool2d, lc_max_pool2d_at(X, (lc_pool_args[]){pool_args(c)}, LC_HERE))                                        \
    F(avg_pool2d, lc_avg_pool2d_at(X, (lc_pool_args[]){pool_args(c)}, LC_HERE))                                        \
    F(adaptive_avg_pool2d, adaptive_avg_pool2d(c))                                                                     \
    F(interpolate, interpolate(c))                                                                                     \
    F(pixel_shuffle, lc_pixel_shuffle(X, integer(c, "factor", 1)))                                                     \
    F(batch_norm, batch_norm(c))                                                                                       \
    F(layer_norm, lc_layer_norm_at(X, in(c, "w"), (lc_norm_args[]){norm_args(c)}, LC_HERE))                            \
    F(rms_norm, lc_rms_norm(X, in(c, "w"), .dims = norm_args(c).dims, .eps = num(c, "eps", 1e-6)))                     \
    F(group_norm, lc_group_norm_at(X, integer(c, "groups", 1), in(c, "w"), (lc_norm_args[]){norm_args(c)}, LC_HERE))   \
    F(embedding,                                                                                                       \
      lc_embedding(in(c, "ids"), in(c, "w"),                                                                           \
                   .padding_idx = json_has(c->attrs, "padding_idx") ? integer(c, "padding_idx", 0) : LC_UNSET))        \
    F(cross_entropy, lc_cross_entropy_at(X, (lc_cross_entropy_args[]){cross_entropy_args(c)}, LC_HERE))                \
    F(nll_loss, lc_nll_loss_at(X, (lc_cross_entropy_args[]){cross_entropy_args(c)}, LC_HERE))                          \
    F(mse_loss, lc_mse_loss_at(X, (lc_loss_args[]){loss_args(c)}, LC_HERE))                                            \
    F(l1_loss, lc_l1_loss_at(X, (lc_loss_args[]){loss_args(c)}, LC_HERE))                                              \
    F(smooth_l1_loss, lc_smooth_l1_loss_at(X, (lc_loss_args[]){loss_args(c)}, LC_HERE))                                \
    F(huber_loss, lc_huber_loss_at(X, (lc_loss_args[]){loss_args(c)}, LC_HERE))                                        \
    F(bce_with_logits, lc_bce_with_logits_at(X, (lc_loss_args[]){loss_args(c)}, LC_HERE))                              \
    F(kl_div, kl_div(c))                                                                                               \
    F(cosine_similarity, lc_cosine_similarity(X, Y, integer(c, "dim", 1)))                                             \
    F(sdpa, lc_sdpa(in(c, "q"), in(c, "k"), in(c, "v"), .causal = num(c, "causal", 0) != 0,                            \
                    .scale = num(c, "scale", LC_NOT_GIVEN)))                                                           \
    F(reshape, with_list(c, lc_reshape_at, "shape"))                                                                   \
    F(permute, with_list(c, lc_permute_at, "dims"))                                                                    \
    F(transpose, transpose(c))                                                                                         \
    F(slice, lc_slice(X, integer(c, "dim", 0), integer(c, "start", 0), integer(c, "length", 0)))                       \
    F(cat, lc_cat(integer(c, "dim", 0), X, Y))                                                                         \
    F(stack, lc_stack(integer(c, "dim", 0), X, Y))                                                                     \
    F(gather, lc_gather(X, integer(c, "dim", 0), in(c, "ids")))                                                        \
    F(index_select, lc_index_select(X, integer(c, "dim", 0), in(c, "ids")))                                            \
    F(expand, with_list(c, lc_expand_at, "shape"))                                                                     \
    F(pad, pad(c))                                                                                                     \
    F(tril, lc_tril(X, integer(c, "diagonal", 0)))                                                                     \
    F(triu, lc_triu(X, integer(c, "diagonal", 0)))                                                                     \
    F(flip, with_list(c, lc_flip_at, "dims"))                                                                          \
    F(lstm, rnn(c, lc_lstm_at))                                                                                        \
    F(gru, rnn(c, lc_gru_at))

UNARY_LIST(OP_UNARY)
BINARY_LIST(OP_BINARY)
OTHER_LIST(OP)

static const struct {
    const char *name;
    op_fn *run;
} known[] = {
#define LINE(name, ...) {#name, run_##name},
    UNARY_LIST(LINE) BINARY_LIST(LINE) OTHER_LIST(LINE)};

op_fn *op_named(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) return known[i].run;
    return NULL;
}
