/* SPDX-License-Identifier: Apache-2.0 */
/* Every public macro with no, one and all options, in the common subset of C11 and C++17: test_headers.c compiles it as
 * both with all available compilers, with warnings as errors. It is not run. */
#include <lightc/lightc.h>

#include <lightc/comm.h>
#include <lightc/ops_comm.h>
#include <lightc/plugin.h>
#include <stdio.h>
#include <string.h>

typedef struct every_layer {
    lc_module base;
    lc_linear linear;
    lc_conv conv;
    lc_batch_norm_layer batch_norm;
    lc_norm_layer norm;
    lc_embedding embedding;
    lc_dropout dropout;
    lc_pool pool;
    lc_activation activation;
    lc_flatten flatten;
    lc_multihead_attention attention;
    lc_rnn rnn;
    lc_sequential sequential;
    lc_resnet resnet;
} every_layer;

typedef struct settings {
    int64_t count;
    const char *text;
    bool flag;
    float part;
    int small;
    lc_duration time;
    struct {
        double lr;
    } optimizer;
} settings;

static const lc_option table[] = {
    LC_OPTION(settings, count, LC_OPTION_INT, 1, 9, "how many"),
    LC_FIELD(settings, count, ""),
    LC_FIELD(settings, text, ""),
    LC_FIELD(settings, flag, ""),
    LC_FIELD(settings, part, ""),
    LC_FIELD(settings, small, ""),
    LC_FIELD(settings, time, ""),
    LC_FIELD(settings, optimizer.lr, ""),
};

const lc_option *the_table(void);
const lc_option *the_table(void)
{
    return table;
}

lc_tensor *elementwise(lc_tensor *x, lc_tensor *y, double s);
lc_tensor *elementwise(lc_tensor *x, lc_tensor *y, double s)
{
/* clang-format off */
#define UNARY(op) x = op(x);
#define UNARY_LIST(X)                                                                                                  \
    X(lc_neg)                                                                                                          \
    X(lc_exp)                                                                                                          \
    X(lc_expm1) X(lc_log1p) X(lc_sqrt) X(lc_rsqrt) X(lc_reciprocal) X(lc_abs) X(lc_sign) X(lc_floor) X(lc_ceil)        \
        X(lc_round) X(lc_square) X(lc_sin) X(lc_cos) X(lc_tanh) X(lc_sigmoid) X(lc_erf) X(lc_ln) X(lc_relu)            \
            X(lc_relu6) X(lc_silu) X(lc_softplus) X(lc_softsign) X(lc_logsigmoid) X(lc_hardswish) X(lc_hardsigmoid)    \
                X(lc_mish) X(lc_selu) X(lc_isfinite) X(lc_isnan) X(lc_logical_not) X(lc_contiguous) X(lc_zeros_like)   \
                    X(lc_ones_like) X(lc_keep) X(lc_detach) X(lc_rand_like) X(lc_randn_like) X(lc_bernoulli)           \
                        X(lc_gradient) X(lc_gelu) X(lc_leaky_relu) X(lc_elu) X(lc_clamp)
    UNARY_LIST(UNARY)
#define SCALAR(op) x = op(x, s);
#define SCALAR_LIST(X)                                                                                                 \
    X(lc_add_scalar)                                                                                                   \
    X(lc_sub_scalar) X(lc_rsub_scalar) X(lc_mul_scalar) X(lc_div_scalar) X(lc_pow_scalar) X(lc_full_like) X(lc_dropout)
    SCALAR_LIST(SCALAR)
#define BINARY(op) x = op(x, y);
#define BINARY_LIST(X)                                                                                                 \
    X(lc_add)                                                                                                          \
    X(lc_sub)                                                                                                          \
    X(lc_mul) X(lc_div) X(lc_pow) X(lc_maximum) X(lc_minimum) X(lc_xlogy) X(lc_eq) X(lc_ne) X(lc_lt) X(lc_le) X(lc_gt) \
        X(lc_ge) X(lc_logical_and) X(lc_logical_or) X(lc_logical_xor) X(lc_prelu) X(lc_matmul)
    BINARY_LIST(BINARY)
    /* clang-format on */
    x = lc_gelu(x, .tanh = true);
    x = lc_leaky_relu(x, .slope = 0);
    x = lc_elu(x, .slope = s);
    x = lc_clamp(x, .min = 0);
    x = lc_clamp(x, .max = s, .min = 0);
    x = lc_hardtanh(x, -1, s);
    x = lc_glu(x, 1);
    x = lc_cast(x, LC_F64);
    x = lc_where(x, y, x);
    return lc_masked_fill(x, y, s);
}

lc_tensor *reductions(lc_tensor *x, int n, size_t m);
lc_tensor *reductions(lc_tensor *x, int n, size_t m)
{
    lc_tensor *out[4];
#define REDUCTION(op)                                                                                                  \
    x = op(x);                                                                                                         \
    x = op(x, .keepdim = true);                                                                                        \
    x = op(x, .correction = 0, .p = 0, .keepdim = true, .dims = LC_DIMS(n, 1, -1));
#define REDUCTION_LIST(X) X(lc_sum) X(lc_mean) X(lc_amax) X(lc_amin) X(lc_var) X(lc_std) X(lc_norm) X(lc_logsumexp)
    REDUCTION_LIST(REDUCTION)
    x = lc_argmax(x);
    x = lc_argmax(x, .keepdim = true, .dim = n);
    x = lc_argmin(x);
    x = lc_argmin(x, .dim = 0);
    x = lc_softmax(x, 1);
    x = lc_log_softmax(x, 1);
    x = lc_cumsum(x, 1);
    x = lc_topk(x, out, 2, 1);
    x = lc_topk(x, NULL, 2, -1, .smallest = true);
    x = lc_sort(x, NULL, 0, true);
    /* Each call is an argument of the next. */
    x = lc_sum(lc_relu(lc_sum(lc_relu(lc_sum(lc_relu(lc_sum(x, .dims = LC_DIMS(n))), .keepdim = true)))),
               .dims = LC_DIMS(0, n));
    x = lc_reshape(x, n, 3, m, -1);
    x = lc_permute(x, 0, n);
    x = lc_expand(x, n, -1);
    x = lc_pad(x, 1, n);
    x = lc_pad_value(x, 0.5, n, -1);
    x = lc_flip(x, n);
    x = lc_full(0.5, LC_F32, n, 3);
    x = lc_zeros(LC_F32, n);
    x = lc_ones(LC_F32, m, 2);
    x = lc_cat(0, x);
    x = lc_cat(0, x, lc_relu(x), lc_cat(1, x, x));
    x = lc_stack(n, x, x);
    x = lc_flatten(x, 1);
    x = lc_unflatten(x, 0, n);
    x = lc_transpose(x, 0, 1);
    x = lc_slice(x, 0, n, 2);
    x = lc_select(x, 0, n);
    x = lc_squeeze(x, 0);
    x = lc_unsqueeze(x, 0);
    x = lc_tril(x, 0);
    x = lc_triu(x, 0);
    x = lc_gather(x, 0, x);
    x = lc_index_select(x, 0, x);
    x = lc_scatter_add(x, 0, x, x);
    x = lc_index_add(x, 0, x, x);
    x = lc_one_hot(x, n);
    x = lc_length_mask(x, n);
    x = lc_scalar(0, LC_F32);
    x = lc_arange(0, 1, n, LC_F32);
    return lc_split(x, n, 0, 4, out) + lc_chunk(x, 2, 0, out) > 0 ? out[0] : x;
}

lc_tensor *losses(lc_tensor *x, lc_tensor *y);
lc_tensor *losses(lc_tensor *x, lc_tensor *y)
{
#define LOSS(op)                                                                                                       \
    x = op(x, y);                                                                                                      \
    x = op(x, y, .reduction = LC_REDUCE_SUM);                                                                          \
    x = op(x, y, .log_target = true, .pos_weight = y, .weight = x, .delta = 0.5, .beta = 0,                            \
           .reduction = LC_REDUCE_NONE);
#define LOSS_LIST(X)                                                                                                   \
    X(lc_mse_loss) X(lc_l1_loss) X(lc_smooth_l1_loss) X(lc_huber_loss) X(lc_bce_with_logits) X(lc_kl_div)
    LOSS_LIST(LOSS)
    x = lc_cosine_similarity(x, y, 1);
    x = lc_cosine_similarity(x, y, 1, .eps = 0);
    x = lc_cross_entropy(x, y);
    x = lc_cross_entropy(x, y, .label_smoothing = 0.1);
    x = lc_cross_entropy(x, y, .label_smoothing = 0.1, .reduction = LC_REDUCE_SUM, .ignore_index = 0, .weight = x);
    x = lc_nll_loss(x, y);
    return lc_nll_loss(x, y, .weight = x);
}

lc_tensor *networks(lc_tensor *x, lc_tensor *w, int n, lc_comm *comm);
lc_tensor *networks(lc_tensor *x, lc_tensor *w, int n, lc_comm *comm)
{
    const int64_t shape[] = {2, 3};
    x = lc_linear(x, w, NULL);
#define CONV(op)                                                                                                       \
    x = op(x, w, NULL);                                                                                                \
    x = op(x, w, w, .stride = LC_DIMS(n));                                                                             \
    x = op(x, w, w, .groups = n, .output_padding = LC_DIMS(0), .dilation = LC_DIMS(1), .padding = LC_DIMS(0),          \
           .stride = LC_DIMS(1));
#define CONV_LIST(X)                                                                                                   \
    X(lc_conv1d) X(lc_conv2d) X(lc_conv3d) X(lc_conv_transpose1d) X(lc_conv_transpose2d) X(lc_conv_transpose3d)
    CONV_LIST(CONV)
#define POOL(op)                                                                                                       \
    x = op(x, n);                                                                                                      \
    x = op(x, n, .ceil_mode = true);                                                                                   \
    x = op(x, n, .divisor = 2, .exclude_pad = true, .ceil_mode = true, .dilation = LC_DIMS(1), .padding = LC_DIMS(0),  \
           .stride = LC_DIMS(1, 2), .kernel_w = 2);
#define POOL_LIST(X) X(lc_max_pool1d) X(lc_avg_pool1d) X(lc_max_pool2d) X(lc_avg_pool2d)
    POOL_LIST(POOL)
    x = lc_adaptive_avg_pool2d(x, 1, n);
    x = lc_interpolate(x, LC_NEAREST);
    x = lc_interpolate(x, LC_NEAREST, .scale = 2);
    x = lc_interpolate(x, LC_BILINEAR, .align_corners = true, .scale_w = 0, .scale = 0, .output_size = LC_DIMS(7, n));
    x = lc_pixel_shuffle(x, 2);
    x = lc_pixel_unshuffle(x, 2);
    x = lc_batch_norm(x, w, NULL);
    x = lc_batch_norm(x, w, w, .training = true);
    x = lc_batch_norm(x, w, w, .comm = comm, .eps = 0, .momentum = 0, .training = true, .running_var = w,
                      .running_mean = w);
    x = lc_layer_norm(x, w, NULL);
    x = lc_layer_norm(x, w, w, .eps = 0, .dims = 2);
    x = lc_rms_norm(x, w);
    x = lc_rms_norm(x, w, .eps = 0, .dims = 2);
    x = lc_group_norm(x, 2, w, NULL);
    x = lc_group_norm(x, 2, w, w, .eps = 0);
    x = lc_embedding(x, w);
    x = lc_embedding(x, w, .padding_idx = 0);
    x = lc_sdpa(x, x, x);
    x = lc_sdpa(x, x, x, .scale = 0, .causal = true, .mask = w);
    x = lc_lstm(x, w, w);
    x = lc_lstm(x, w, w, .c_n = &w, .h_n = &w, .c0 = x, .h0 = x, .b_hh = w, .b_ih = w);
    x = lc_gru(x, w, w);
    x = lc_gru(x, w, w, .h0 = x);
    x = lc_uniform(2, shape);
    x = lc_uniform(2, shape, .high = 0, .low = -1, .dtype = LC_F64);
    x = lc_normal(2, shape);
    x = lc_normal(2, shape, .std = 0, .mean = 1);
    x = lc_transform_batch(NULL, x, x);
    lc_mix_batch(&x, &w, x, LC_MIXUP, 0.2);
    x = lc_all_reduce(x, comm, LC_COMM_SUM);
    x = lc_reduce(x, comm, 0);
    x = lc_broadcast(x, comm, 0);
    x = lc_all_gather(x, comm);
    x = lc_reduce_scatter(x, comm);
    x = lc_gather_to(x, comm, 0);
    x = lc_scatter_from(x, comm, 0);
    return lc_all_to_all(x, comm);
}

void plots(lc_tensor *x);
void plots(lc_tensor *x)
{
    const double values[] = {1, 2};
    lc_plot_series s = {"s", 2, values, values, values, {NULL, NULL}};
    const char *const labels[] = {"a"};
    lc_plot *p = NULL;
    char *text = NULL;
    (void)!lc_plot_lines(1, &s, &p);
    (void)!lc_plot_lines(1, &s, &p, .height = 300, .width = 400, .from_zero = true, .y_label = "y", .x_label = "x",
                         .title = "t");
    (void)!lc_plot_histogram(2, values, &p);
    (void)!lc_plot_histogram(2, values, &p, .height = 300, .width = 400, .bins = 5, .y_label = "y", .x_label = "x",
                             .title = "t");
    (void)!lc_plot_pictures(x, &p);
    (void)!lc_plot_pictures(x, &p, .high = 1, .low = 0, .columns = 2, .labels = labels, .title = "t");
    (void)!lc_plot_text(p, &text);
    (void)!lc_plot_text(p, &text, .color = true, .rows = 20, .columns = 70, .graphics = LC_PLOT_SIXEL);
}

lc_tensor *layers(every_layer *m, lc_tensor *x, int n);
lc_tensor *layers(every_layer *m, lc_tensor *x, int n)
{
    lc_linear_init(&m->linear, m, "a", 2, n);
    lc_linear_init(&m->linear, m, "a", 2, n, .dtype = LC_F64, .no_bias = true);
    x = lc_linear_forward(&m->linear, x);
    x = lc_forward(&m->linear, x);
#define CONV_LAYER(nd)                                                                                                 \
    lc_##nd##_init(&m->conv, m, "b", 1, 2, 3);                                                                         \
    lc_##nd##_init(&m->conv, m, "b", 1, 2, 3, .stride = n);                                                            \
    lc_##nd##_init(&m->conv, m, "b", 1, 2, 0, .dtype = LC_F64, .no_bias = true, .output_paddings = LC_DIMS(0),         \
                   .dilations = LC_DIMS(1), .paddings = LC_DIMS(0), .strides = LC_DIMS(n), .kernel_sizes = LC_DIMS(3), \
                   .output_padding = 0, .groups = 1, .dilation = 1, .padding = 0, .stride = 1);                        \
    x = lc_##nd##_forward(&m->conv, x);
    CONV_LAYER(conv1d)           /* lc_conv1d_init lc_conv1d_forward */
    CONV_LAYER(conv2d)           /* lc_conv2d_init lc_conv2d_forward */
    CONV_LAYER(conv3d)           /* lc_conv3d_init lc_conv3d_forward */
    CONV_LAYER(conv_transpose1d) /* lc_conv_transpose1d_init lc_conv_transpose1d_forward */
    CONV_LAYER(conv_transpose2d) /* lc_conv_transpose2d_init lc_conv_transpose2d_forward */
    CONV_LAYER(conv_transpose3d) /* lc_conv_transpose3d_init lc_conv_transpose3d_forward */
    LC_CONV_INIT(&m->conv, n, false, m, "b", 1, 2, 3);
#define BATCH_NORM_LAYER(nd)                                                                                           \
    lc_##nd##_init(&m->batch_norm, m, "c", n);                                                                         \
    lc_##nd##_init(&m->batch_norm, m, "c", n, .dtype = LC_F64, .no_track_running_stats = true, .no_affine = true,      \
                   .momentum = 0, .eps = 0);                                                                           \
    x = lc_##nd##_forward(&m->batch_norm, x);
    BATCH_NORM_LAYER(batch_norm1d) /* lc_batch_norm1d_init lc_batch_norm1d_forward */
    BATCH_NORM_LAYER(batch_norm2d) /* lc_batch_norm2d_init lc_batch_norm2d_forward */
    BATCH_NORM_LAYER(batch_norm3d) /* lc_batch_norm3d_init lc_batch_norm3d_forward */
    LC_BATCH_NORM_INIT(&m->batch_norm, n, m, "c", 2);
    lc_layer_norm_init(&m->norm, m, "d", n);
    lc_layer_norm_init(&m->norm, m, "d", 0, .dtype = LC_F64, .no_bias = true, .no_affine = true, .eps = 0,
                       .shape = LC_DIMS(n, 2));
    x = lc_layer_norm_forward(&m->norm, x);
    lc_rms_norm_init(&m->norm, m, "d", n);
    lc_rms_norm_init(&m->norm, m, "d", n, .eps = 0);
    x = lc_rms_norm_forward(&m->norm, x);
    lc_group_norm_init(&m->norm, m, "d", 2, n);
    lc_group_norm_init(&m->norm, m, "d", 2, n, .eps = 0);
    x = lc_group_norm_forward(&m->norm, x);
    lc_embedding_init(&m->embedding, m, "e", 9, n);
    lc_embedding_init(&m->embedding, m, "e", 9, n, .dtype = LC_F64, .padding_idx = 0);
    x = lc_embedding_forward(&m->embedding, x);
    lc_dropout_init(&m->dropout, m, "f", 0.5);
    x = lc_dropout_forward(&m->dropout, x);
#define POOL_LAYER(name)                                                                                               \
    lc_##name##_init(&m->pool, m, "g", n);                                                                             \
    lc_##name##_init(&m->pool, m, "g", 0, .divisor_override = 2, .exclude_pad = true, .ceil_mode = true,               \
                     .dilations = LC_DIMS(1), .paddings = LC_DIMS(0), .strides = LC_DIMS(1),                           \
                     .kernel_sizes = LC_DIMS(2, n), .dilation = 1, .padding = 0, .stride = 1);                         \
    x = lc_##name##_forward(&m->pool, x);
    POOL_LAYER(max_pool2d)          /* lc_max_pool2d_init lc_max_pool2d_forward */
    POOL_LAYER(avg_pool2d)          /* lc_avg_pool2d_init lc_avg_pool2d_forward */
    POOL_LAYER(adaptive_avg_pool2d) /* lc_adaptive_avg_pool2d_init lc_adaptive_avg_pool2d_forward */
    lc_activation_init(&m->activation, m, "h", LC_ACT_RELU);
    lc_activation_init(&m->activation, m, "h", LC_ACT_ELU, .dim = 0, .a = 0);
    x = lc_activation_forward(&m->activation, x);
    lc_flatten_init(&m->flatten, m, "i", 1);
    x = lc_flatten_forward(&m->flatten, x);
    lc_multihead_attention_init(&m->attention, m, "j", 8, n);
    lc_multihead_attention_init(&m->attention, m, "j", 8, n, .dtype = LC_F64, .dropout = 0, .seq_first = true,
                                .no_bias = true);
    x = lc_multihead_attention_forward(&m->attention, x);
    x = lc_multihead_attention_forward(&m->attention, x, .causal = true, .attn_mask = x, .value = x, .key = x);
    lc_lstm_init(&m->rnn, m, "k", 4, n);
    lc_lstm_init(&m->rnn, m, "k", 4, n, .dtype = LC_F64, .dropout = 0, .seq_first = true, .bidirectional = true,
                 .no_bias = true, .num_layers = 2);
    x = lc_lstm_forward(&m->rnn, x);
    x = lc_lstm_forward(&m->rnn, x, .cn = &x, .hn = &x, .c0 = x, .h0 = x);
    lc_gru_init(&m->rnn, m, "k", 4, n);
    lc_gru_init(&m->rnn, m, "k", 4, n, .num_layers = 2);
    x = lc_gru_forward(&m->rnn, x);
    x = lc_gru_forward(&m->rnn, x, .hn = &x);
#define RESNET(depth)                                                                                                  \
    lc_resnet##depth##_init(&m->resnet, m, "m", n);                                                                    \
    lc_resnet##depth##_init(&m->resnet, m, "m", 0, .dtype = LC_F64, .small_stem = true);
    RESNET(18)  /* lc_resnet18_init */
    RESNET(20)  /* lc_resnet20_init */
    RESNET(34)  /* lc_resnet34_init */
    RESNET(50)  /* lc_resnet50_init */
    RESNET(101) /* lc_resnet101_init */
    LC_RESNET_INIT(&m->resnet, 18, m, "m", n);
    x = lc_resnet_forward(&m->resnet, x);
    lc_sequential_init(&m->sequential, m, "l");
    lc_sequential_add(&m->sequential, lc_linear, 2, n);
    lc_sequential_add(&m->sequential, lc_linear, 2, n, .no_bias = true);
    lc_sequential_add(&m->sequential, lc_flatten, 1);
    return lc_sequential_forward(&m->sequential, x);
}

lc_status optimizers(lc_module *m, lc_tensor **list, int n, lc_optimizer **out);
lc_status optimizers(lc_module *m, lc_tensor **list, int n, lc_optimizer **out)
{
#define ALL                                                                                                            \
    .weight_decay = 0, .lr = 0, .master_weights = true, .stochastic_rounding = false, .maximize = true,                \
    .no_parameters = false, .n_parameters = n, .parameters = list
#define OPTIMIZER(make, ...)                                                                                           \
    *out = make(m);                                                                                                    \
    *out = make(m, .lr = 0.1);                                                                                         \
    *out = make(m, ALL, __VA_ARGS__);
    OPTIMIZER(lc_sgd, .nesterov = true, .dampening = 0, .momentum = 0)
    OPTIMIZER(lc_adam, .decoupled_weight_decay = true, .amsgrad = true, .eps = 0, .beta2 = 0, .beta1 = 0)
    OPTIMIZER(lc_adamw, .amsgrad = true, .eps = 0, .beta2 = 0, .beta1 = 0)
    OPTIMIZER(lc_rmsprop, .centered = true, .momentum = 0, .eps = 0, .alpha = 0)
    OPTIMIZER(lc_adagrad, .eps = 0, .initial_accumulator_value = 0, .lr_decay = 0)
    OPTIMIZER(lc_adadelta, .eps = 0, .rho = 0)
    OPTIMIZER(lc_adamax, .eps = 0, .beta2 = 0, .beta1 = 0)
    OPTIMIZER(lc_nadam, .decoupled_weight_decay = true, .momentum_decay = 0, .eps = 0, .beta2 = 0, .beta1 = 0)
    OPTIMIZER(lc_radam, .decoupled_weight_decay = true, .eps = 0, .beta2 = 0, .beta1 = 0)
    OPTIMIZER(lc_rprop, .step_size_max = 1, .step_size_min = 0, .eta_plus = 2, .eta_minus = 0)
    OPTIMIZER(lc_lbfgs, .strong_wolfe = true, .history_size = 9, .tolerance_change = 0, .tolerance_grad = 0,
              .max_eval = 9, .max_iter = 9)
    OPTIMIZER(lc_muon, .match_rms_adamw = true, .ns_steps = 5, .no_nesterov = true, .eps = 0, .momentum = 0)
    (void)lc_clip_grad_norm(*out, 1);
    lc_clip_grad_value(*out, 1);
    lc_optimizer_step(*out);
    lc_optimizer_zero_grad(*out);
    return LC_OK;
}

static double halves(void *ctx, int64_t epoch)
{
    (void)ctx;
    return 1 / (double)(1 + epoch);
}

lc_scheduler *schedules(lc_optimizer *opt, double rate);
lc_scheduler *schedules(lc_optimizer *opt, double rate)
{
    const int64_t milestones[] = {3, 5};
    lc_scheduler *s = lc_step_lr(opt);
    s = lc_step_lr(opt, .gamma = 0, .step_size = 3);
    s = lc_multi_step_lr(opt);
    s = lc_multi_step_lr(opt, .gamma = 0, .n_milestones = 2, .milestones = milestones);
    s = lc_exponential_lr(opt);
    s = lc_exponential_lr(opt, .gamma = rate);
    s = lc_constant_lr(opt);
    s = lc_constant_lr(opt, .total_iters = 0, .factor = 1);
    s = lc_linear_lr(opt);
    s = lc_linear_lr(opt, .total_iters = 1, .end_factor = 0, .start_factor = 1);
    s = lc_cosine_annealing_lr(opt);
    s = lc_cosine_annealing_lr(opt, .eta_min = 0, .T_max = 5);
    s = lc_cosine_annealing_warm_restarts(opt);
    s = lc_cosine_annealing_warm_restarts(opt, .eta_min = 0, .T_mult = 2, .T_0 = 5);
    s = lc_polynomial_lr(opt);
    s = lc_polynomial_lr(opt, .power = 0, .total_iters = 5);
    s = lc_one_cycle_lr(opt, .max_lr = rate);
    s = lc_one_cycle_lr(opt, .three_phase = true, .final_div_factor = 2, .div_factor = 2, .max_momentum = 1,
                        .base_momentum = 0, .no_cycle_momentum = true, .linear = true, .pct_start = 0,
                        .steps_per_epoch = 2, .epochs = 2, .total_steps = 4, .max_lr = rate);
    s = lc_cyclic_lr(opt);
    s = lc_cyclic_lr(opt, .max_momentum = 1, .base_momentum = 0, .no_cycle_momentum = true, .gamma = 0,
                     .mode = LC_EXP_RANGE, .step_size_down = 0, .step_size_up = 2, .max_lr = rate, .base_lr = 0);
    s = lc_reduce_lr_on_plateau(opt);
    s = lc_reduce_lr_on_plateau(opt, .eps = 0, .min_lr = 0, .cooldown = 0, .absolute = true, .threshold = 0,
                                .patience = 0, .factor = 0, .max = true);
    s = lc_swa_lr(opt);
    s = lc_swa_lr(opt, .linear = true, .anneal_epochs = 0, .swa_lr = 0);
    s = lc_lambda_lr(opt, .ctx = NULL, .fn = halves);
    s = lc_sequential_lr(opt, .milestones = milestones, .n_schedulers = 1, .schedulers = &s);
    return lc_chained_scheduler(opt, .n_schedulers = 1, .schedulers = &s);
}

static lc_tensor *closure(void *ctx, lc_status *status)
{
    (void)ctx;
    *status = LC_OK;
    return NULL;
}

lc_status training(lc_module *self, lc_trainer *t, lc_fabric *f, lc_optimizer *opt, lc_metric *metric, lc_tensor *loss);
lc_status training(lc_module *self, lc_trainer *t, lc_fabric *f, lc_optimizer *opt, lc_metric *metric, lc_tensor *loss)
{
    lc_log(self, "a", loss);
    lc_log(self, "a", lc_sum(loss), .prog_bar = true);
    lc_log(self, "a", loss, .batch_size = 3, .rank_zero_only = true, .sync_dist = true, .add_dataloader_idx = false,
           .reduce_fx = LC_LOG_MAX, .on_epoch = true, .on_step = false, .logger = false, .prog_bar = true);
    lc_log_value(self, "b", 1);
    lc_log_value(self, "b", 1, .prog_bar = true);
    lc_log_metric(self, "c", metric);
    lc_log_metric(self, "c", metric, .prog_bar = true);
    lc_trainer_log(t, "d", 1);
    lc_trainer_log(t, "d", 1, .prog_bar = true);
    LC_TRY(lc_manual_zero_grad(self, opt));
    LC_TRY(lc_manual_backward(self, loss));
    LC_TRY(lc_manual_step(self, opt));
    LC_TRY(lc_manual_step_closure(self, opt, closure, NULL, NULL));
    lc_backward(loss);
    lc_assign(loss, loss);
    lc_no_grad_begin();
    lc_no_grad_end();
    lc_autocast_begin(true);
    lc_autocast_end();
    lc_checkpoint_begin();
    lc_checkpoint_end();
    lc_fabric_backward(f, loss);
    lc_fabric_zero_grad(f);
    (void)lc_fabric_clip_gradients(f, opt, .clip_val = 1);
    (void)lc_fabric_clip_gradients(f, opt, .max_norm = 1);
    lc_fabric_step(f, opt);
    lc_status status;
    LC_TRY_GOTO(status, done, LC_OK);
done:
    return status;
}

static bool sometimes(void *context, int64_t step, int64_t epoch)
{
    (void)context;
    return step > 0 || epoch > 0;
}

lc_status callbacks(lc_callback *cb, const double *rates, const lc_type *types, const lc_accumulation *steps);
lc_status callbacks(lc_callback *cb, const double *rates, const lc_type *types, const lc_accumulation *steps)
{
#define CALLBACK(make, ...)                                                                                            \
    LC_TRY(make(cb));                                                                                                  \
    LC_TRY(make(cb, __VA_ARGS__));
    CALLBACK(lc_model_checkpoint, .wait = true, .enable_version_counter = LC_OFF, .save_on_train_epoch_end = LC_ON,
             .train_time_interval = 0, .every_n_epochs = 0, .every_n_train_steps = 9, .auto_insert_metric_name = LC_OFF,
             .save_weights_only = true, .save_on_exception = true, .save_top_k = 0, .save_last = LC_ON, .verbose = true,
             .mode = "min", .monitor = "loss", .filename = "a", .dirpath = "b")
    CALLBACK(lc_early_stopping, .check_on_train_epoch_end = LC_ON, .divergence_threshold = 0, .stopping_threshold = 0,
             .check_finite = LC_OFF, .strict = LC_OFF, .verbose = true, .patience = 0, .min_delta = 0, .mode = "max",
             .monitor = "loss")
    CALLBACK(lc_progress_bar, .style = LC_PROGRESS_LINES, .refresh_rate = 1, .fd = 2)
    CALLBACK(lc_rich_progress_bar, .leave = true, .style = LC_PROGRESS_BAR, .refresh_rate = 1, .fd = 2)
    CALLBACK(lc_model_summary, .fd = 2, .n_example_inputs = 1, .example_inputs = types, .max_depth = 0)
    CALLBACK(lc_learning_rate_monitor, .log_weight_decay = true, .log_momentum = true, .logging_interval = "step")
    CALLBACK(lc_gradient_accumulation_scheduler, .n_scheduling = 1, .scheduling = steps)
    CALLBACK(lc_weight_averaging, .context = NULL, .should_update = sometimes, .use_buffers = LC_OFF)
    CALLBACK(lc_ema_weight_averaging, .update_starting_at_epoch = 0, .update_starting_at_step = 0,
             .update_every_n_steps = 0, .decay = 0, .use_buffers = LC_OFF)
    CALLBACK(lc_stochastic_weight_averaging, .annealing_strategy = "cos", .annealing_epochs = 0,
             .swa_epoch_start = LC_EPOCHS(2), .n_swa_lrs = 1, .swa_lrs = rates)
    CALLBACK(lc_finetuning, .context = NULL)
    CALLBACK(lc_backbone_finetuning, .verbose = true, .train_bn = LC_OFF, .should_align = LC_OFF,
             .backbone_initial_lr = 0, .backbone_initial_ratio_lr = 0, .lambda_func = NULL,
             .unfreeze_backbone_at_epoch = 0, .backbone = "b")
    CALLBACK(lc_model_pruning, .prune_on_train_epoch_end = LC_OFF, .verbose = 1, .pruning_norm = 1, .pruning_dim = 0,
             .resample_parameters = true, .use_lottery_ticket_hypothesis = LC_OFF, .amount_count = 3, .amount = 0,
             .use_global_unstructured = LC_OFF, .pruning_fn = "l1_unstructured")
    CALLBACK(lc_on_exception_checkpoint, .filename = "a", .dirpath = "b")
    CALLBACK(lc_spike_detection, .skip = true, .finite_only = LC_OFF, .exclude_batches_path = "a", .rtol = 0, .atol = 0,
             .warmup = 0, .window = 2, .mode = "max")
    CALLBACK(lc_gradient_norm_monitor, .every_step = true, .prog_bar = true, .total_only = true, .norm_type = 1)
    CALLBACK(lc_weight_histogram, .gradients = true, .every_n_train_steps = 2, .every_n_epochs = 0)
    CALLBACK(lc_throughput_monitor, .available_flops = 0, .window_size = 2, .context = NULL)
    CALLBACK(lc_device_stats_monitor, .n_filter_keys = 0, .filter_keys = NULL)
    CALLBACK(lc_prediction_writer, .context = NULL, .write_interval = "batch", .path = "a.npy")
    CALLBACK(lc_notifier, .timeout_s = 1, .events = 0, .url = NULL, .command = "true")
    CALLBACK(lc_lambda_callback, .on_message = NULL, .on_fit_end = NULL, .context = NULL)
    CALLBACK(lc_learning_rate_finder, .spacing = "lr", .attr_name = "lr", .update_attr = false, .mode = "linear",
             .early_stop_threshold = 2, .num_training = 9, .max_lr = 1, .min_lr = 0.1)
    CALLBACK(lc_batch_size_finder, .method = "fit", .max_bytes = 0, .max_val = 9, .margin = 0, .batch_arg_name = "b",
             .max_trials = 2, .init_val = 1, .steps_per_trial = 1, .mode = "power")
    LC_TRY(lc_finetuning_unfreeze(NULL, NULL));
    LC_TRY(lc_finetuning_unfreeze(NULL, NULL, .train_bn = false, .initial_denom_lr = 5, .lr = 0));
    lc_early_stopping_args a = LC_ARGS(lc_early_stopping, .monitor = "loss");
    return lc_early_stopping_new(&a, cb);
}

lc_status transforms(lc_transform *transform);
lc_status transforms(lc_transform *transform)
{
    LC_TRY(lc_transform_to_dtype(LC_BF16, transform));
    LC_TRY(lc_transform_to_dtype(LC_BF16, transform, .scale = true));
    LC_TRY(lc_transform_resize(transform));
    LC_TRY(lc_transform_resize(transform, .antialias = false, .interpolation = LC_RESAMPLE_BICUBIC, .max_size = 3,
                               .shorter = 2, .width = 1, .height = 1));
    LC_TRY(lc_transform_pad(1, 2, 3, 4, transform));
    LC_TRY(lc_transform_pad(1, 2, 3, 4, transform, .padding_mode = LC_PAD_EDGE, .fill = 1,
                            .fill_color = LC_COLOR(1, 2, 3)));
    LC_TRY(lc_transform_random_crop(1, 2, transform));
    LC_TRY(lc_transform_random_crop(1, 2, transform, .fill_color = LC_COLOR(1), .padding_mode = LC_PAD_REFLECT,
                                    .fill = 1, .pad_if_needed = true, .padding = LC_DIMS(1, 2)));
    LC_TRY(lc_transform_random_resized_crop(1, 2, transform));
    LC_TRY(lc_transform_random_resized_crop(1, 2, transform, .antialias = false, .interpolation = LC_RESAMPLE_NEAREST,
                                            .ratio = LC_RANGE(1, 2), .scale = LC_RANGE(0.5, 1)));
    LC_TRY(lc_transform_random_rotation(LC_RANGE(-1, 1), transform));
    LC_TRY(lc_transform_random_rotation(LC_RANGE(-1, 1), transform, .fill_color = LC_COLOR(1), .center_y = 1,
                                        .center_x = 1, .fill = 1, .interpolation = LC_RESAMPLE_BILINEAR));
    LC_TRY(lc_transform_random_affine(LC_RANGE(-1, 1), transform));
    LC_TRY(lc_transform_random_affine(LC_RANGE(-1, 1), transform, .fill_color = LC_COLOR(1), .center_y = 1,
                                      .center_x = 1, .fill = 1, .interpolation = LC_RESAMPLE_BILINEAR,
                                      .shear_y = LC_RANGE(0, 1), .shear_x = LC_RANGE(0, 1), .scale = LC_RANGE(1, 2),
                                      .translate_y = 1, .translate_x = 1));
    LC_TRY(lc_transform_random_perspective(transform));
    LC_TRY(lc_transform_random_perspective(transform, .fill_color = LC_COLOR(1, 2), .fill = 1,
                                           .interpolation = LC_RESAMPLE_NEAREST, .p = 1, .distortion_scale = 1));
    LC_TRY(lc_transform_color_jitter(transform));
    LC_TRY(lc_transform_color_jitter(transform, .hue = LC_RANGE(0, 0.5), .saturation = LC_RANGE(0, 1),
                                     .contrast = LC_RANGE(0, 1), .brightness = LC_RANGE(0, 1)));
    LC_TRY(lc_transform_gaussian_blur(3, 5, transform));
    LC_TRY(lc_transform_gaussian_blur(3, 5, transform, .sigma = LC_RANGE(1, 2)));
    LC_TRY(lc_transform_random_erasing(transform));
    LC_TRY(lc_transform_random_erasing(transform, .value_color = LC_COLOR(1, 2), .random = true, .value = 1,
                                       .ratio = LC_RANGE(1, 2), .scale = LC_RANGE(0, 1), .p = 1));
    LC_TRY(lc_transform_auto_augment(transform));
    LC_TRY(lc_transform_auto_augment(transform, .fill_color = LC_COLOR(1, 2), .fill = 1,
                                     .interpolation = LC_RESAMPLE_BILINEAR, .policy = LC_AUTO_AUGMENT_SVHN));
    LC_TRY(lc_transform_rand_augment(transform));
    LC_TRY(lc_transform_rand_augment(transform, .num_magnitude_bins = 3, .magnitude = 2, .num_ops = 1));
    LC_TRY(lc_transform_trivial_augment_wide(transform));
    LC_TRY(lc_transform_trivial_augment_wide(transform, .num_magnitude_bins = 3));
    return LC_OK;
}

lc_status makers(lc_module *m, lc_trainer *t, lc_dataset *data, lc_logger *logger, char *const *argv);
lc_status makers(lc_module *m, lc_trainer *t, lc_dataset *data, lc_logger *logger, char *const *argv)
{
    lc_metric *metric;
    lc_graph *graph;
    lc_fabric *fabric;
    lc_precision precision;
    lc_dataloader *loader;
    lc_lr_find_result curve;
    lc_scale_batch_size_result size;
    LC_TRY(lc_metric_new("Accuracy", &metric));
    LC_TRY(lc_metric_new("Accuracy", &metric, .kappa_weights = 1, .raw_values = true, .num_outputs = 2,
                         .not_squared = true, .normalize = LC_NORMALIZE_ALL, .zero_division = 1, .beta = 0,
                         .ignore_index = 1, .threshold = 0, .top_k = 2, .average = LC_AVERAGE_MACRO, .num_labels = 3,
                         .num_classes = 4, .task = LC_TASK_BINARY));
    LC_TRY(lc_graph_new(&graph));
    LC_TRY(lc_graph_new(&graph, .nan_check = true, .tune = true, .max_bytes = 9, .max_plans = 1, .seed = 2,
                        .autocast = LC_BF16, .deterministic = true, .threads = 1));
    LC_TRY(lc_mixed_precision(&precision));
    LC_TRY(lc_mixed_precision(&precision, .growth_interval = 9, .backoff_factor = 0.25, .growth_factor = 4,
                              .init_scale = 2, .dtype = LC_F16));
    LC_TRY(lc_fabric_new(&fabric));
    LC_TRY(lc_fabric_new(&fabric, .comm_security = "auth", .shard_size = 2, .bucket_cap_mb = 1,
                         .gradient_compression = "bf16", .default_root_dir = "a", .n_loggers = 1, .loggers = logger,
                         .seed = 1, .memory_limit = "1GiB", .deterministic = true, .threads = 2, .comm = NULL,
                         .grace_period = 1, .progress_timeout = -1, .silence_timeout = 1, .start_timeout = 1,
                         .max_restarts = 1, .nodes_file = "n", .num_nodes = 2, .state_dict_type = "full",
                         .precision = "32-true", .devices = "2", .strategy = "ddp", .accelerator = "cpu"));
    LC_TRY(lc_dataloader_new(&loader));
    LC_TRY(lc_dataloader_new(&loader, .mix_alpha = 0.2, .mix = LC_CUTMIX, .seed = 1, .prefetch = 1, .num_workers = 2,
                             .drop_last = true, .sampler = NULL, .shuffle = true, .batch_size = 4, .dataset = data));
    LC_TRY(lc_dataloader_new(&loader, .group_by_length = true, .max_tokens = 9, .collate_ctx = NULL, .collate = NULL,
                             .collate_sizes = NULL, .pad_multiple = 8, .pad_side = LC_PAD_LEFT,
                             .target_pad_value = -100, .pad_value = 1));
    lc_array_file *file;
    LC_TRY(lc_array_file_open("a", &file));
    LC_TRY(lc_array_file_open("a", &file, .text = "b", .missing = 1, .delimiter = ';', .header = false));
    LC_TRY(lc_file_windows_new(file, &data));
    LC_TRY(lc_file_windows_new(file, &data, .random = 1, .end = 9, .begin = 1, .stride = 2, .window = 3, .array = "a"));
    LC_TRY(lc_idx_dataset_new("a", "b", &data));
    LC_TRY(lc_idx_dataset_new("a", "b", &data, .raw = true, .std = 2, .mean = 1));
    LC_TRY(lc_mnist_load("a", &data, NULL));
    LC_TRY(lc_mnist_load("a", &data, NULL, .std = 2, .mean = 1));
    LC_TRY(lc_image_folder_new("a", &data));
    LC_TRY(lc_image_folder_new("a", &data, .cache_bytes = 1, .fast_scale = true, .transform = NULL, .allow_empty = true,
                               .extensions = "png", .max_pixels = 1, .exif_transpose = true, .on_error = LC_IMAGE_SKIP,
                               .width = 2, .height = 3));
    int64_t shards;
    LC_TRY(lc_image_shards_new("a", &data));
    LC_TRY(lc_image_shards_new("a", &data, .target_extension = "b", .extensions = "png"));
    LC_TRY(lc_image_shards_pack("a", "b", &shards));
    LC_TRY(lc_image_shards_pack("a", "b", &shards, .seed = 1, .shuffle = false, .bytes = 2, .samples = 3));
    LC_TRY(lc_image_list_new("a", &data));
    LC_TRY(lc_image_list_new("a", &data, .target_column = "b", .file_column = "c", .root = "d"));
    LC_TRY(lc_image_list_from(2, NULL, NULL, &data));
    LC_TRY(lc_image_list_from(2, NULL, NULL, &data, .width = 2, .height = 3));
    LC_TRY(lc_mlflow_logger_new(logger));
    LC_TRY(
        lc_mlflow_logger_new(logger, .log_model = true, .run_name = "a", .experiment_name = "b", .tracking_uri = "c"));
    LC_TRY(lc_module_load_weights(m, "a", NULL));
    LC_TRY(lc_module_load_weights(m, "a", NULL, .add_prefix = "a.", .strip_prefix = "b.", .not_strict = true));
    LC_TRY(lc_launch(NULL));
    LC_TRY(lc_launch(NULL, .grace_period = 1, .root_dir = "a", .ranks = 2, .argv = argv));
    LC_TRY(lc_trainer_fit(t, m));
    LC_TRY(lc_trainer_fit(t, m, .datamodule = NULL, .ckpt_path = "last", .n_dataloaders = 1, .dataloaders = &loader,
                          .val_dataloader = loader, .train_dataloader = loader));
    LC_TRY(lc_trainer_validate(t, m));
    LC_TRY(lc_trainer_test(t, m, .ckpt_path = "best"));
    LC_TRY(lc_trainer_predict(t, m, .discard_predictions = true));
    LC_TRY(lc_tuner_lr_find(t, m, NULL, &curve));
    LC_TRY(lc_tuner_lr_find(t, m, NULL, &curve, .update_attr = false, .num_training = 9));
    LC_TRY(lc_tuner_scale_batch_size(t, m, NULL, &size));
    return lc_tuner_scale_batch_size(t, m, NULL, &size, .margin = 0, .mode = "binsearch");
}

lc_duration durations(int n);
lc_duration durations(int n)
{
    lc_duration d = LC_BATCHES(n);
    d = LC_FRACTION(0.5);
    d = LC_EPOCHS(n);
    d = LC_STEPS(n);
    return d.value > 0 ? d : LC_SECONDS(n);
}

int sizes(int n);
int sizes(int n)
{
    lc_dims d = LC_DIMS(n, 2);
    return d.n + LC_COUNT(n, n, n);
}

static lc_tensor *step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)self, (void)batch_idx;
    return lc_sum(batch->x);
}

static lc_status gather(void *ctx, const void *mine, void *all, size_t bytes)
{
    (void)ctx;
    memcpy(all, mine, bytes);
    return LC_OK;
}

static lc_status init(lc_module *self, const void *values, uint64_t seed)
{
    (void)values;
    lc_module_init(self, NULL, seed);
    return LC_OK;
}

/* Vtables: the form for C, and the one for C++17, which has no designated initializers. */
#ifdef __cplusplus
static lc_module_class the_class()
{
    return LC_OPS(lc_module_class, .name = "net", .module_size = sizeof(lc_module), .init = init);
}
static const lc_module_class net_class = the_class();
#else
static const lc_module_class net_class = {LC_MODULE_CLASS_INIT("net"), .module_size = sizeof(lc_module), .init = init};
#endif
LC_PLUGIN(net_class)

size_t vtables(void);
size_t vtables(void)
{
#ifdef __cplusplus
    lc_meeting meeting = LC_OPS(lc_meeting, .all_gather = gather);
    lc_module_ops module = LC_OPS(lc_module_ops, .training_step = step, .name = "net");
#define VTABLE(type, ...) lc_##type##_ops type = LC_OPS(lc_##type##_ops, .name = "mine")
#else
    lc_meeting meeting = {LC_MEETING_INIT, .all_gather = gather};
    lc_module_ops module = {LC_MODULE_OPS_INIT("net"), .training_step = step};
#define VTABLE(type, ...) lc_##type##_ops type = {__VA_ARGS__}
#endif
    VTABLE(backend, LC_BACKEND_OPS_INIT("mine"));
    VTABLE(callback, LC_CALLBACK_OPS_INIT("mine"));
    VTABLE(comm, LC_COMM_OPS_INIT("mine"));
    VTABLE(dataloader, LC_DATALOADER_OPS_INIT, .name = "mine");
    VTABLE(datamodule, LC_DATAMODULE_OPS_INIT("mine"));
    VTABLE(dataset, LC_DATASET_OPS_INIT, .name = "mine");
    VTABLE(logger, LC_LOGGER_OPS_INIT, .name = "mine");
    VTABLE(metric, LC_METRIC_OPS_INIT, .name = "mine");
    VTABLE(optimizer, LC_OPTIMIZER_OPS_INIT, .name = "mine");
    VTABLE(precision, LC_PRECISION_OPS_INIT("mine"));
    VTABLE(profiler, LC_PROFILER_OPS_INIT("mine"));
    VTABLE(sampler, LC_SAMPLER_OPS_INIT, .name = "mine");
    VTABLE(scheduler, LC_SCHEDULER_OPS_INIT, .name = "mine");
    VTABLE(strategy, LC_STRATEGY_OPS_INIT("mine"));
    VTABLE(transform, LC_TRANSFORM_OPS_INIT, .name = "mine");
    return meeting.size + module.size + backend.size + callback.size + comm.size + dataloader.size + datamodule.size +
           dataset.size + logger.size + metric.size + optimizer.size + precision.size + profiler.size + sampler.size +
           scheduler.size + strategy.size + transform.size;
}

double constants(void);
double constants(void)
{
    static const char *const texts[] = {LC_BACKEND_SYMBOL, LC_PLUGIN_SYMBOL, LC_VERSION_STRING};
    const double numbers[] = {LC_NOT_GIVEN,         (double)LC_UNSET,     LC_WORKERS_AUTO,     LC_BACKEND_ABI,
                              LC_PLUGIN_ABI,        LC_PLUGIN_MAGIC,      LC_VERSION_MAJOR,    LC_VERSION_MINOR,
                              LC_VERSION_PATCH,     LC_MAX_BATCH_TENSORS, LC_MAX_OPTIMIZERS,   LC_MAX_LOADERS,
                              LC_MAX_OUTPUTS_NAMED, LC_MAX_LOCAL_RANKS,   LC_RNN_MAX_LAYERS,   LC_MAX_OUTPUTS,
                              LC_MAX_HYPER,         LC_MAX_OPTIM_STATE,   LC_MAX_PARAM_GROUPS, LC_HYPER_CLIP_VALUE,
                              LC_PRECISION_TENSORS, LC_MAX_SCHED_ARGS,    LC_MAX_SCHED_STATE,  LC_SYNC_FLAGS,
                              LC_MAX_DIMS,          LC_COMM_CALL_TEXT};
    return numbers[texts[0][0] % 3];
}

int main(void)
{
    lc_site here = LC_HERE;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    lc_load_result result = LC_LOAD_RESULT_INIT;
    LC_MAIN_TRY(lc_graph_new(NULL));
    return result.size > 0 && vtables() > 0 ? (int)opt.max_steps : here.line;
}
