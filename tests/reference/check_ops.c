/* SPDX-License-Identifier: Apache-2.0 */
/* The operators: results and gradients of every case of ops.json. Pass: |got - ref| <= tol max(1, max|ref|). */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 12

/* A case while it runs: named input tensors, attributes, and (for batch norm) tensors to read as further results. */
typedef struct op_case {
    const char *name;
    const cJSON *attrs;
    int n;
    const char *names[MAX_TENSORS];
    lc_tensor *tensors[MAX_TENSORS];
    lc_tensor *more[2]; /* out1, out2 */
} op_case;

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
    F(lstm, lc_lstm_at(X, in(c, "w_ih"), (lc_rnn_args[]){rnn_args(c)}, LC_HERE))                                       \
    F(gru, lc_gru_at(X, in(c, "w_ih"), (lc_rnn_args[]){rnn_args(c)}, LC_HERE))

UNARY_LIST(OP_UNARY)
BINARY_LIST(OP_BINARY)
OTHER_LIST(OP)

static const struct {
    const char *name;
    lc_tensor *(*run)(op_case *c);
} known[] = {
#define LINE(name, ...) {#name, run_##name},
    UNARY_LIST(LINE) BINARY_LIST(LINE) OTHER_LIST(LINE)};

/* ---- running a case ---- */

/* A tensor of the file, in double; NULL if it is missing. */
static double *read_reference(lc_safetensors *f, const char *name, const char *part, const lc_safetensor_info **info)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", name, part);
    int64_t i = lc_safetensors_find(f, full), n = 1;
    if (i < 0) return NULL;
    *info = lc_safetensors_info(f, i);
    for (int d = 0; d < (*info)->type.ndim; d++) n *= (*info)->type.shape[d];
    size_t bytes = (size_t)(*info)->bytes;
    char *raw = malloc(bytes + 1);
    double *values = malloc(((size_t)n + 1) * sizeof *values);
    bool ok = raw && values && lc_safetensors_read(f, i, raw, bytes) == LC_OK;
    for (int64_t k = 0; ok && k < n; k++) switch ((*info)->type.dtype) {
        case LC_F32:
            values[k] = (double)((float *)(void *)raw)[k];
            break;
        case LC_F64:
            values[k] = ((double *)(void *)raw)[k];
            break;
        case LC_I64:
            values[k] = (double)((int64_t *)(void *)raw)[k];
            break;
        case LC_I32:
            values[k] = (double)((int32_t *)(void *)raw)[k];
            break;
        default:
            values[k] = (double)((uint8_t *)raw)[k];
        }
    free(raw);
    if (!ok) {
        free(values);
        return NULL;
    }
    return values;
}

/* Compares a tensor with `part` of the recording; false with a message in `why`. A NULL tensor is zeros. */
static bool matches(lc_safetensors *f, const char *name, const char *part, lc_tensor *t, double tol, char *why,
                    size_t room)
{
    const lc_safetensor_info *info = NULL;
    double *want = read_reference(f, name, part, &info);
    if (!want) {
        snprintf(why, room, "%s is not in the recording", part);
        return false;
    }
    int64_t n = 1;
    bool same = !t || lc_tensor_ndim(t) == info->type.ndim;
    for (int d = 0; d < info->type.ndim; d++) {
        n *= info->type.shape[d];
        same = same && (!t || lc_tensor_shape(t)[d] == info->type.shape[d]);
    }
    size_t size = t ? lc_dtype_size(lc_tensor_dtype(t)) : 0;
    char *raw = calloc((size_t)n + 1, 8);
    bool ok = same && raw && (!t || lc_tensor_read(t, raw, (size_t)n * size) == LC_OK);
    if (!same)
        snprintf(why, room, "%s has another shape", part);
    else if (!ok)
        snprintf(why, room, "%s cannot be read: %s", part, lc_error_message());
    double max = 1;
    for (int64_t i = 0; i < n; i++)
        if (fabs(want[i]) > max) max = fabs(want[i]);
    for (int64_t i = 0; ok && i < n; i++) {
        double got = !t                             ? 0
                     : lc_tensor_dtype(t) == LC_F32 ? (double)((float *)(void *)raw)[i]
                     : lc_tensor_dtype(t) == LC_I64 ? (double)((int64_t *)(void *)raw)[i]
                     : lc_tensor_dtype(t) == LC_F64 ? ((double *)(void *)raw)[i]
                                                    : (double)((uint8_t *)raw)[i];
        if (fabs(got - want[i]) <= tol * max || got == want[i] || (got != got && want[i] != want[i])) continue;
        snprintf(why, room, "%s, element %lld: got %.9g, wanted %.9g, off by %.2g of %.2g", part, (long long)i, got,
                 want[i], fabs(got - want[i]), tol * max);
        ok = false;
    }
    free(raw);
    free(want);
    return ok;
}

static lc_status load_input(lc_safetensors *f, const char *name, const char *part, lc_tensor **out)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", name, part);
    int64_t i = lc_safetensors_find(f, full);
    if (i < 0) return lc_fail(LC_ERR_NOT_FOUND, "%s is not in the recording", part);
    const lc_type *type = &lc_safetensors_info(f, i)->type;
    /* Images are channels-last in lightc, as from a loader. */
    lc_layout layout = type->ndim == 4 ? LC_CHANNELS_LAST : LC_ROW_MAJOR;
    LC_TRY(lc_tensor_new_layout(type->dtype, type->ndim, type->shape, layout, out));
    return lc_safetensors_load(f, full, *out);
}

static bool wanted(const cJSON *list, const char *name)
{
    const cJSON *e;
    cJSON_ArrayForEach(e, list) if (cJSON_IsString(e) && !strcmp(e->valuestring, name)) return true;
    return false;
}

static void check_case(lc_safetensors *f, const cJSON *json, check_result *r)
{
    op_case c = {.name = json_text(json, "name", "?"), .attrs = cJSON_GetObjectItemCaseSensitive(json, "attrs")};
    const char *op = json_text(json, "op", "?");
    lc_tensor *(*run)(op_case *) = NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, op)) run = known[i].run;
    if (!run) {
        check_fail(r, "ops", c.name, "unknown operator \"%s\"", op);
        return;
    }
    double tol = json_number(json, "tol", 2e-6);
    const cJSON *wrt = cJSON_GetObjectItemCaseSensitive(json, "wrt"), *e;
    bool backward = cJSON_GetArraySize(wrt) > 0;
    lc_graph *g = NULL;
    lc_tensor *cotangent = NULL;
    char why[1024] = "", part[128];
    lc_status status = lc_graph_new(&g);
    cJSON_ArrayForEach(e, cJSON_GetObjectItemCaseSensitive(json, "in"))
    {
        if (status < 0 || c.n == MAX_TENSORS) break;
        c.names[c.n] = e->valuestring;
        snprintf(part, sizeof part, "in.%s", e->valuestring);
        status = load_input(f, c.name, part, &c.tensors[c.n]);
        if (status < 0) break;
        if (wanted(wrt, e->valuestring)) lc_tensor_set_requires_grad(c.tensors[c.n], true);
        c.n++;
    }
    if (status == LC_OK && backward) status = load_input(f, c.name, "cotangent", &cotangent);
    if (status == LC_OK) status = lc_step_begin(g, 0, 0);
    if (status < 0) {
        check_fail(r, "ops", c.name, "%s", lc_error_message());
        goto done;
    }
    lc_tensor *out = run(&c), *grads[MAX_TENSORS] = {NULL};
    lc_keep(out);
    if (backward) {
        lc_zero_grad(g);
        lc_backward(lc_sum(lc_mul(out, cotangent)));
        for (int i = 0; i < c.n; i++)
            if (lc_tensor_requires_grad(c.tensors[i])) {
                grads[i] = lc_gradient(c.tensors[i]);
                if (grads[i]) lc_keep(grads[i]);
            }
    }
    status = lc_step_run(g);
    if (status == LC_OK) status = lc_step_status(g);
    if (status < 0) {
        check_fail(r, "ops", c.name, "%s", lc_error_message());
        (void)!lc_step_end(g);
        goto done;
    }
    bool ok = matches(f, c.name, "out0", out, tol, why, sizeof why);
    for (int i = 1; ok && i < cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(json, "out")); i++) {
        snprintf(part, sizeof part, "out%d", i);
        ok = i <= 2 && c.more[i - 1] && matches(f, c.name, part, c.more[i - 1], tol, why, sizeof why);
    }
    for (int i = 0; ok && i < c.n; i++) {
        if (!lc_tensor_requires_grad(c.tensors[i])) continue;
        snprintf(part, sizeof part, "grad.%s", c.names[i]);
        ok = matches(f, c.name, part, grads[i], tol, why, sizeof why);
    }
    if (lc_step_end(g) < 0 && ok) {
        ok = false;
        snprintf(why, sizeof why, "%s", lc_error_message());
    }
    if (ok)
        check_pass(r);
    else
        check_fail(r, "ops", c.name, "%s", why);
done:
    lc_graph_free(g);
    for (int i = 0; i < c.n; i++) lc_tensor_unref(c.tensors[i]);
    lc_tensor_unref(cotangent);
}

void check_ops(const char *dir, const cJSON *cases, check_result *r)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/ops.safetensors", dir);
    lc_safetensors *f = NULL;
    if (lc_safetensors_open(path, &f) < 0) {
        check_fail(r, "ops", "ops.safetensors", "%s", lc_error_message());
        return;
    }
    const cJSON *c;
    cJSON_ArrayForEach(c, cases) check_case(f, c, r);
    lc_safetensors_close(f);
}
