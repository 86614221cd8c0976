/* SPDX-License-Identifier: Apache-2.0 */
/* A zero in an argument means zero: every argument whose default is another number is given as 0, and must arrive as 0
 * or be refused with a message that names it. This file has optimizers, operators, layers and constructors;
 * test_zeros_data.c has data, transforms and plots, and test_zeros_runs.c what a run shows. They compile as C and as
 * C++ (test_headers.c does both). */
#include "argument_checks.h"
#include "quiet_options.h"

/* ---- optimizers and schedules, whose numbers can be read by name ---- */

#define OPTIMIZER_ARGS(X)                                                                                              \
    X(lc_sgd, lr)                                                                                                      \
    X(lc_adam, lr)                                                                                                     \
    X(lc_adam, beta1)                                                                                                  \
    X(lc_adam, beta2)                                                                                                  \
    X(lc_adam, eps)                                                                                                    \
    X(lc_adamw, lr)                                                                                                    \
    X(lc_adamw, weight_decay)                                                                                          \
    X(lc_adamw, beta1)                                                                                                 \
    X(lc_adamw, beta2)                                                                                                 \
    X(lc_adamw, eps)                                                                                                   \
    X(lc_rmsprop, lr)                                                                                                  \
    X(lc_rmsprop, alpha)                                                                                               \
    X(lc_rmsprop, eps)                                                                                                 \
    X(lc_adagrad, lr)                                                                                                  \
    X(lc_adagrad, eps)                                                                                                 \
    X(lc_adadelta, lr)                                                                                                 \
    X(lc_adadelta, rho)                                                                                                \
    X(lc_adadelta, eps)                                                                                                \
    X(lc_adamax, lr)                                                                                                   \
    X(lc_adamax, beta1)                                                                                                \
    X(lc_adamax, beta2)                                                                                                \
    X(lc_adamax, eps)                                                                                                  \
    X(lc_nadam, lr)                                                                                                    \
    X(lc_nadam, beta1)                                                                                                 \
    X(lc_nadam, beta2)                                                                                                 \
    X(lc_nadam, eps)                                                                                                   \
    X(lc_nadam, momentum_decay)                                                                                        \
    X(lc_radam, lr)                                                                                                    \
    X(lc_radam, beta1)                                                                                                 \
    X(lc_radam, beta2)                                                                                                 \
    X(lc_radam, eps)                                                                                                   \
    X(lc_rprop, lr)                                                                                                    \
    X(lc_rprop, eta_minus)                                                                                             \
    X(lc_rprop, eta_plus)                                                                                              \
    X(lc_rprop, step_size_min)                                                                                         \
    X(lc_rprop, step_size_max)                                                                                         \
    X(lc_lbfgs, lr)                                                                                                    \
    X(lc_lbfgs, max_iter)                                                                                              \
    X(lc_lbfgs, tolerance_grad)                                                                                        \
    X(lc_lbfgs, tolerance_change)                                                                                      \
    X(lc_lbfgs, history_size)                                                                                          \
    X(lc_muon, lr)                                                                                                     \
    X(lc_muon, weight_decay)                                                                                           \
    X(lc_muon, momentum)                                                                                               \
    X(lc_muon, eps)                                                                                                    \
    X(lc_muon, ns_steps)

#define SCHEDULE_ARGS(X)                                                                                               \
    X(lc_step_lr, gamma, .step_size = 2)                                                                               \
    X(lc_multi_step_lr, gamma, )                                                                                       \
    X(lc_exponential_lr, gamma, )                                                                                      \
    X(lc_constant_lr, factor, )                                                                                        \
    X(lc_constant_lr, total_iters, )                                                                                   \
    X(lc_linear_lr, start_factor, )                                                                                    \
    X(lc_linear_lr, end_factor, )                                                                                      \
    X(lc_linear_lr, total_iters, )                                                                                     \
    X(lc_cosine_annealing_warm_restarts, T_mult, .T_0 = 2)                                                             \
    X(lc_polynomial_lr, total_iters, )                                                                                 \
    X(lc_polynomial_lr, power, )                                                                                       \
    X(lc_one_cycle_lr, max_lr, .total_steps = 9)                                                                       \
    X(lc_one_cycle_lr, pct_start, .max_lr = 1, .total_steps = 9)                                                       \
    X(lc_one_cycle_lr, base_momentum, .max_lr = 1, .total_steps = 9)                                                   \
    X(lc_one_cycle_lr, max_momentum, .max_lr = 1, .total_steps = 9)                                                    \
    X(lc_one_cycle_lr, div_factor, .max_lr = 1, .total_steps = 9)                                                      \
    X(lc_one_cycle_lr, final_div_factor, .max_lr = 1, .total_steps = 9)                                                \
    X(lc_cyclic_lr, base_lr, .max_lr = 1)                                                                              \
    X(lc_cyclic_lr, max_lr, .base_lr = 1)                                                                              \
    X(lc_cyclic_lr, step_size_up, .base_lr = 1, .max_lr = 2)                                                           \
    X(lc_cyclic_lr, step_size_down, .base_lr = 1, .max_lr = 2)                                                         \
    X(lc_cyclic_lr, gamma, .base_lr = 1, .max_lr = 2)                                                                  \
    X(lc_cyclic_lr, base_momentum, .base_lr = 1, .max_lr = 2)                                                          \
    X(lc_cyclic_lr, max_momentum, .base_lr = 1, .max_lr = 2)                                                           \
    X(lc_reduce_lr_on_plateau, factor, )                                                                               \
    X(lc_reduce_lr_on_plateau, patience, )                                                                             \
    X(lc_reduce_lr_on_plateau, threshold, )                                                                            \
    X(lc_reduce_lr_on_plateau, eps, )                                                                                  \
    X(lc_swa_lr, swa_lr, )                                                                                             \
    X(lc_swa_lr, anneal_epochs, )

#define OPTIMIZER_WITH_ZERO(make, argument)                                                                            \
    static lc_optimizer *make##_##argument(lc_module *m)                                                               \
    {                                                                                                                  \
        return make(m, .argument = 0);                                                                                 \
    }
OPTIMIZER_ARGS(OPTIMIZER_WITH_ZERO)

#define SCHEDULE_WITH_ZERO(make, argument, ...)                                                                        \
    static lc_scheduler *make##_##argument(lc_optimizer *opt)                                                          \
    {                                                                                                                  \
        return make(opt, __VA_ARGS__, .argument = 0);                                                                  \
    }
SCHEDULE_ARGS(SCHEDULE_WITH_ZERO)

static void check_optimizer(const char *name, lc_optimizer *(*make)(lc_module *m), const char *argument)
{
    lc_module m;
    double value = -1;
    module_new(&m);
    lc_optimizer *opt = make(&m);
    if (!opt && !strstr(lc_error_message(), argument)) TEST_FAIL("%s: %s: %s", name, argument, lc_error_message());
    if (opt) CHECK_OK(lc_optimizer_get(opt, 0, argument, &value));
    if (opt && value != 0) TEST_FAIL("%s: %s is %g, not 0", name, argument, value);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

TEST(optimizers)
{
#define CHECK_OPTIMIZER(make, argument) check_optimizer(#make, make##_##argument, #argument);
    OPTIMIZER_ARGS(CHECK_OPTIMIZER)
}

static void check_schedule(const char *name, lc_scheduler *(*make)(lc_optimizer *opt), const char *argument)
{
    lc_module m;
    module_new(&m);
    lc_optimizer *opt = lc_sgd(&m, .momentum = 0.5);
    CHECK(opt != NULL);
    lc_scheduler *s = make(opt);
    if (!s && !strstr(lc_error_message(), argument)) TEST_FAIL("%s: %s: %s", name, argument, lc_error_message());
    if (s && argument_of(s, argument) != 0) TEST_FAIL("%s: %s is %g, not 0", name, argument, argument_of(s, argument));
    lc_scheduler_free(s);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

TEST(schedules)
{
#define CHECK_SCHEDULE(make, argument, ...) check_schedule(#make, make##_##argument, #argument);
    SCHEDULE_ARGS(CHECK_SCHEDULE)
}

/* ---- operators: x [1,2] is 1, 3 ---- */

#define NUMBERS(X)                                                                                                     \
    X(lc_reduce, correction, var, lc_var(x, .correction = 0), 1)                                                       \
    X(lc_reduce, correction, std, lc_std(x, .correction = 0), 1)                                                       \
    X(lc_reduce, p, norm, lc_norm(x, .p = 0), 2)                                                                       \
    X(lc_arg, dim, argmax, lc_cast(lc_argmax(x, .dim = 0), LC_F32), 0)                                                 \
    X(lc_clamp, min, clamp_min, lc_clamp(lc_neg(x), .min = 0), 0)                                                      \
    X(lc_clamp, max, clamp_max, lc_clamp(x, .max = 0), 0)                                                              \
    X(lc_leaky_relu, slope, leaky_relu, lc_leaky_relu(lc_neg(x), .slope = 0), 0)                                       \
    X(lc_elu, slope, elu, lc_elu(lc_neg(x), .slope = 0), 0)                                                            \
    X(lc_loss, beta, smooth_l1, lc_smooth_l1_loss(x, lc_zeros_like(x), .beta = 0), 2)                                  \
    X(lc_cosine, eps, cosine, lc_cosine_similarity(lc_mul_scalar(x, 1e-9), lc_mul_scalar(x, 1e-9), 1, .eps = 0), 1)    \
    X(lc_norm, eps, layer_norm, lc_layer_norm(x, NULL, NULL, .eps = 0), -1)                                            \
    X(lc_norm, eps, group_norm, lc_group_norm(x, 1, NULL, NULL, .eps = 0), -1)                                         \
    X(lc_batch_norm, eps, batch_norm, lc_batch_norm(lc_reshape(x, 2, 1), NULL, NULL, .training = true, .eps = 0), -1)  \
    X(lc_rms_norm, eps, rms_norm, lc_rms_norm(lc_mul_scalar(x, 1e-4), NULL, .eps = 0), 0.44721359549995794)            \
    X(lc_cross_entropy, ignore_index, cross_entropy,                                                                   \
      lc_cross_entropy(x, lc_argmin(x, .dim = 1), .ignore_index = 0, .reduction = LC_REDUCE_SUM), 0)                   \
    X(lc_sdpa, scale, sdpa,                                                                                            \
      lc_sdpa(lc_reshape(x, 1, 2, 1), lc_reshape(x, 1, 2, 1), lc_reshape(x, 1, 2, 1), .scale = 0), 2)                  \
    X(lc_random, high, uniform, lc_sign(lc_uniform(1, one, .low = -1, .high = 0)), -1)                                 \
    X(lc_random, std, normal, lc_normal(1, one, .mean = 1.5, .std = 0), 1.5)                                           \
    X(lc_random, dtype, normal_f32, lc_normal(1, one, .mean = 1.5, .std = 0, .dtype = LC_DTYPE_DEFAULT), 1.5)

/* Arguments that cannot be 0. */
#define REFUSALS(X)                                                                                                    \
    X(lc_loss, delta, delta, lc_huber_loss(x, x, .delta = 0))                                                          \
    X(lc_conv, groups, groups, lc_conv1d(lc_reshape(x, 1, 1, 2), lc_reshape(x, 1, 1, 2), NULL, .groups = 0))           \
    X(lc_conv, stride, stride, lc_conv1d(lc_reshape(x, 1, 1, 2), lc_reshape(x, 1, 1, 2), NULL, .stride = LC_DIMS(0)))  \
    X(lc_conv, dilation, dilation,                                                                                     \
      lc_conv1d(lc_reshape(x, 1, 1, 2), lc_reshape(x, 1, 1, 2), NULL, .dilation = LC_DIMS(0)))

#define BUILD_ZERO(kind, argument, id, expression, want) BUILD_NUMBER(number_##id, expression)
NUMBERS(BUILD_ZERO)
#define BUILD_REFUSAL(kind, argument, id, expression) BUILD_NUMBER(number_##id, expression)
REFUSALS(BUILD_REFUSAL)

TEST(operators)
{
#define CHECK_NUMBER(kind, argument, id, expression, want) check_number(#id, number_##id, want);
    NUMBERS(CHECK_NUMBER)
}

static void check_refusal(const char *name, lc_tensor *(*build)(lc_tensor *x))
{
    double got;
    CHECK(first_number(build, &got) < 0);
    CHECK_CONTAINS(lc_error_message(), name);
}

TEST(operators_that_refuse_zero)
{
#define CHECK_REFUSAL(kind, argument, id, expression) check_refusal(#id, number_##id);
    REFUSALS(CHECK_REFUSAL)
}

/* X(lc_batch_norm, momentum, ...): the running mean stays at 0. */
TEST(a_running_mean_that_stays)
{
    const int64_t shape[] = {2, 1};
    float data[] = {1, 3}, zero[] = {0}, mean[] = {-1};
    lc_graph *g = NULL;
    lc_tensor *x = NULL, *running[2] = {NULL, NULL};
    CHECK_OK(lc_graph_new(&g));
    CHECK_OK(lc_input_new(LC_F32, 2, shape, LC_ROW_MAJOR, data, &x));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(lc_tensor_new(LC_F32, 1, one, &running[i]));
        CHECK_OK(lc_tensor_write(running[i], zero, sizeof zero));
    }
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_keep(lc_batch_norm(x, NULL, NULL, .running_mean = running[0], .running_var = running[1], .training = true,
                          .momentum = 0));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_step_end(g));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(lc_tensor_read(running[i], mean, sizeof mean));
        CHECK_NEAR((double)mean[0], 0, 0);
        lc_tensor_unref(running[i]);
    }
    lc_tensor_unref(x);
    lc_graph_free(g);
}

/* X(lc_embedding, padding_idx, ...): row 0 of the table gets no gradient, row 1 does. */
TEST(a_row_without_a_gradient)
{
    const int64_t shape[] = {2};
    int64_t ids[] = {0, 1};
    float got[6] = {0};
    lc_module m;
    lc_graph *g = NULL;
    lc_tensor *x = NULL;
    module_new(&m);
    lc_tensor *table = lc_module_find(&m, "weight"); /* [2,3] */
    CHECK_OK(lc_graph_new(&g));
    CHECK_OK(lc_input_new(LC_I64, 1, shape, LC_ROW_MAJOR, ids, &x));
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_backward(lc_sum(lc_embedding(x, table, .padding_idx = 0)));
    lc_tensor *gradient = lc_keep(lc_gradient(table));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(gradient, got, sizeof got));
    CHECK_OK(lc_step_end(g));
    for (int i = 0; i < 6; i++) CHECK_NEAR((double)got[i], i < 3 ? 0 : 1, 0);
    lc_tensor_unref(x);
    lc_graph_free(g);
    lc_module_release(&m);
}

/* ---- layers ---- */

/* How one is made, and the number that is then 0. */
#define LAYER_ZEROS(X)                                                                                                 \
    X(lc_batch_norm_init, momentum, lc_batch_norm2d_init(&batch, &m, "l", 3, .momentum = 0), batch.momentum)           \
    X(lc_batch_norm_init, eps, lc_batch_norm2d_init(&batch, &m, "l", 3, .eps = 0), batch.eps)                          \
    X(lc_layer_norm_init, eps, lc_layer_norm_init(&norm, &m, "l", 3, .eps = 0), norm.eps)                              \
    X(lc_rms_norm_init, eps, lc_rms_norm_init(&norm, &m, "l", 3, .eps = 0), norm.eps)                                  \
    X(lc_group_norm_init, eps, lc_group_norm_init(&norm, &m, "l", 1, 3, .eps = 0), norm.eps)                           \
    X(lc_embedding_init, padding_idx, lc_embedding_init(&table, &m, "l", 4, 2, .padding_idx = 0), table.padding_idx)   \
    X(lc_activation_init, a, lc_activation_init(&act, &m, "l", LC_ACT_LEAKY_RELU, .a = 0), act.a)                      \
    X(lc_activation_init, dim, lc_activation_init(&act, &m, "l", LC_ACT_SOFTMAX, .dim = 0), act.dim)

TEST(layers)
{
    static lc_batch_norm_layer batch;
    static lc_norm_layer norm;
    static lc_embedding table;
    static lc_activation act;
#define CHECK_LAYER_ZERO(kind, argument, init, number)                                                                 \
    {                                                                                                                  \
        lc_module m;                                                                                                   \
        module_new(&m);                                                                                                \
        init;                                                                                                          \
        CHECK_OK(lc_module_status(&m));                                                                                \
        CHECK_NEAR((double)(number), 0, 0);                                                                            \
        lc_module_release(&m);                                                                                         \
    }
    LAYER_ZEROS(CHECK_LAYER_ZERO)
}

#define LAYER_REFUSALS(X)                                                                                              \
    X(lc_conv_init, stride, lc_conv2d_init(&conv, &m, "c", 1, 1, 3, .stride = 0))                                      \
    X(lc_conv_init, dilation, lc_conv2d_init(&conv, &m, "c", 1, 1, 3, .dilation = 0))                                  \
    X(lc_conv_init, groups, lc_conv2d_init(&conv, &m, "c", 1, 1, 3, .groups = 0))                                      \
    X(lc_pool_init, stride, lc_max_pool2d_init(&pool, &m, "p", 2, .stride = 0))                                        \
    X(lc_pool_init, dilation, lc_max_pool2d_init(&pool, &m, "p", 2, .dilation = 0))                                    \
    X(lc_pool_init, stride, lc_avg_pool2d_init(&pool, &m, "p", 2, .stride = 0))                                        \
    X(lc_rnn_init, num_layers, lc_lstm_init(&rnn, &m, "r", 2, 2, .num_layers = 0))

TEST(layers_that_refuse_zero)
{
    static lc_conv conv;
    static lc_rnn rnn;
    static lc_pool pool;
    LAYER_REFUSALS(CHECK_REFUSED_LAYER)
}

/* ---- callbacks: a number that cannot be 0 is refused by its name ---- */

#define CALLBACK_ARGS(X)                                                                                               \
    X(lc_model_checkpoint, save_top_k, .save_last = LC_ON)                                                             \
    X(lc_model_checkpoint, every_n_train_steps, .save_last = LC_ON)                                                    \
    X(lc_model_checkpoint, every_n_epochs, .save_last = LC_ON)                                                         \
    X(lc_early_stopping, patience, .monitor = "loss")                                                                  \
    X(lc_progress_bar, refresh_rate, .fd = 2)                                                                          \
    X(lc_rich_progress_bar, refresh_rate, .style = LC_PROGRESS_BAR)                                                    \
    X(lc_model_summary, max_depth, .fd = 2)                                                                            \
    X(lc_ema_weight_averaging, decay, .use_buffers = LC_ON)                                                            \
    X(lc_ema_weight_averaging, update_every_n_steps, .use_buffers = LC_ON)                                             \
    X(lc_stochastic_weight_averaging, annealing_epochs, .swa_lrs = rates, .n_swa_lrs = 1)                              \
    X(lc_backbone_finetuning, unfreeze_backbone_at_epoch, .verbose = true)                                             \
    X(lc_backbone_finetuning, backbone_initial_ratio_lr, .verbose = true)                                              \
    X(lc_backbone_finetuning, backbone_initial_lr, .verbose = true)                                                    \
    X(lc_model_pruning, amount, .pruning_fn = "l1_unstructured")                                                       \
    X(lc_model_checkpoint, auto_insert_metric_name, .verbose = true)                                                   \
    X(lc_model_checkpoint, enable_version_counter, .verbose = true)                                                    \
    X(lc_model_checkpoint, save_on_train_epoch_end, .verbose = true)                                                   \
    X(lc_early_stopping, strict, .monitor = "loss")                                                                    \
    X(lc_early_stopping, check_finite, .monitor = "loss")                                                              \
    X(lc_early_stopping, check_on_train_epoch_end, .monitor = "loss")                                                  \
    X(lc_weight_averaging, use_buffers, .context = NULL)                                                               \
    X(lc_ema_weight_averaging, use_buffers, .decay = 0.5)                                                              \
    X(lc_backbone_finetuning, should_align, .verbose = true)                                                           \
    X(lc_backbone_finetuning, train_bn, .verbose = true)                                                               \
    X(lc_model_pruning, use_global_unstructured, .pruning_fn = "l1_unstructured")                                      \
    X(lc_model_pruning, use_lottery_ticket_hypothesis, .pruning_fn = "l1_unstructured")                                \
    X(lc_model_pruning, prune_on_train_epoch_end, .pruning_fn = "l1_unstructured")                                     \
    X(lc_spike_detection, finite_only, .skip = true)                                                                   \
    X(lc_spike_detection, window, .skip = true)                                                                        \
    X(lc_spike_detection, warmup, .skip = true)                                                                        \
    X(lc_spike_detection, rtol, .skip = true)                                                                          \
    X(lc_gradient_norm_monitor, norm_type, .total_only = true)                                                         \
    X(lc_weight_histogram, every_n_epochs, .gradients = true)                                                          \
    X(lc_throughput_monitor, window_size, .available_flops = 1)                                                        \
    X(lc_notifier, timeout_s, .command = "true")

static const double rates[] = {0.1};

/* With a 0, which is not the default, the callback is made, or refused by the argument's name. */
#define CHECK_CALLBACK(make, argument, ...)                                                                            \
    {                                                                                                                  \
        lc_callback cb;                                                                                                \
        make##_args zero = LC_ARGS(make, __VA_ARGS__, .argument = 0);                                                  \
        CHECK(zero.argument == 0 && !(make##_defaults().argument == 0));                                               \
        lc_status status = make##_new(&zero, &cb);                                                                     \
        if (status < 0 && !strstr(lc_error_message(), #argument))                                                      \
            TEST_FAIL("%s: %s: %s", #make, #argument, lc_error_message());                                             \
        if (status >= 0) cb.ops->free(cb.self);                                                                        \
    }

TEST(callbacks)
{
    CALLBACK_ARGS(CHECK_CALLBACK)
    lc_callback cb;
    lc_early_stopping_args nothing;
    memset(&nothing, 0, sizeof nothing);
    CHECK_STATUS(lc_early_stopping_new(&nothing, &cb), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "lc_early_stopping_defaults()");
}

/* ---- other constructors: a 0 that is valid is used, one that is not is refused by its name ---- */

/* Valid zeros: X(expression for the value, the value). */
static double binary_accuracy(lc_metric *m)
{
    const float scores[] = {0.25f, 0.75f};
    const int64_t targets[] = {1, 1};
    double value = -1;
    CHECK_OK(lc_metric_update_scores(m, 2, 1, scores, targets));
    CHECK_OK(lc_metric_compute(m, &value));
    lc_metric_free(m);
    return value;
}

static double f_score(lc_metric *m)
{
    const int64_t labels[] = {1, 1, 1, 0}, targets[] = {1, 0, 0, 1};
    double value = -1;
    CHECK_OK(lc_metric_update_labels(m, 4, labels, targets));
    CHECK_OK(lc_metric_compute(m, &value));
    lc_metric_free(m);
    return value;
}

#define METRIC_ZEROS(X)                                                                                                \
    X(lc_metric, threshold, binary_accuracy, "Accuracy", 0.5, 1)                                                       \
    X(lc_metric, beta, f_score, "FBetaScore", 0.4, 1.0 / 3) /* the precision */                                        \
    X(lc_metric, ignore_index, f_score, "Accuracy", 0.25, 0.5)

TEST(metrics)
{
    lc_metric *m = NULL;
#define CHECK_METRIC_ZERO(kind, argument, value_of, name, without, with)                                               \
    CHECK_OK(lc_metric_new(name, &m));                                                                                 \
    CHECK_NEAR(value_of(m), without, 1e-12);                                                                           \
    CHECK_OK(lc_metric_new(name, &m, .argument = 0));                                                                  \
    CHECK_NEAR(value_of(m), with, 1e-12);
    METRIC_ZEROS(CHECK_METRIC_ZERO)
}

#define MAKER_REFUSALS(X)                                                                                              \
    X(lc_metric, top_k, lc_metric_new("Accuracy", &metric, .num_classes = 3, .top_k = 0))                              \
    X(lc_metric, num_outputs, lc_metric_new("R2Score", &metric, .num_outputs = 0))                                     \
    X(lc_graph, max_plans, lc_graph_new(&graph, .max_plans = 0))                                                       \
    X(lc_mixed_precision, dtype, lc_mixed_precision(&precision, .dtype = LC_DTYPE_DEFAULT))                            \
    X(lc_mixed_precision, init_scale, lc_mixed_precision(&precision, .init_scale = 0))                                 \
    X(lc_mixed_precision, growth_factor, lc_mixed_precision(&precision, .growth_factor = 0))                           \
    X(lc_mixed_precision, backoff_factor, lc_mixed_precision(&precision, .backoff_factor = 0))                         \
    X(lc_mixed_precision, growth_interval, lc_mixed_precision(&precision, .growth_interval = 0))                       \
    X(lc_fabric, num_nodes, lc_fabric_new(&fabric, .num_nodes = 0))                                                    \
    X(lc_fabric, start_timeout, lc_fabric_new(&fabric, .start_timeout = 0))                                            \
    X(lc_fabric, silence_timeout, lc_fabric_new(&fabric, .silence_timeout = 0))                                        \
    X(lc_fabric, grace_period, lc_fabric_new(&fabric, .grace_period = 0))                                              \
    X(lc_fabric, bucket_cap_mb, lc_fabric_new(&fabric, .bucket_cap_mb = 0))                                            \
    X(lc_launch, start_timeout, lc_launch(NULL, .argv = program, .start_timeout = 0))                                  \
    X(lc_launch, silence_timeout, lc_launch(NULL, .argv = program, .silence_timeout = 0))                              \
    X(lc_launch, grace_period, lc_launch(NULL, .argv = program, .grace_period = 0))                                    \
    X(lc_unfreeze, initial_denom_lr, lc_finetuning_unfreeze(&module, opt, .initial_denom_lr = 0))                      \
    X(lc_lr_find, min_lr, lc_tuner_lr_find(trainer, &module, NULL, &curve, .min_lr = 0))                               \
    X(lc_lr_find, max_lr, lc_tuner_lr_find(trainer, &module, NULL, &curve, .max_lr = 0))                               \
    X(lc_lr_find, num_training, lc_tuner_lr_find(trainer, &module, NULL, &curve, .num_training = 0))                   \
    X(lc_lr_find, early_stop_threshold, lc_tuner_lr_find(trainer, &module, NULL, &curve, .early_stop_threshold = 0))   \
    X(lc_scale_batch_size, steps_per_trial,                                                                            \
      lc_tuner_scale_batch_size(trainer, &module, NULL, &found, .steps_per_trial = 0))                                 \
    X(lc_scale_batch_size, init_val, lc_tuner_scale_batch_size(trainer, &module, NULL, &found, .init_val = 0))         \
    X(lc_scale_batch_size, max_trials, lc_tuner_scale_batch_size(trainer, &module, NULL, &found, .max_trials = 0))     \
    X(lc_scale_batch_size, max_val, lc_tuner_scale_batch_size(trainer, &module, NULL, &found, .max_val = 0))

TEST(constructors_that_refuse_zero)
{
    char word[] = "true";
    char *const program[] = {word, NULL};
    lc_metric *metric = NULL;
    lc_graph *graph = NULL;
    lc_fabric *fabric = NULL;
    lc_trainer *trainer = NULL;
    lc_lr_find_result curve;
    lc_scale_batch_size_result found;
    lc_precision precision;
    lc_module module;
    lc_trainer_options options = quiet_options(NULL);
    CHECK_OK(lc_trainer_new(&options, &trainer));
    module_new(&module);
    lc_optimizer *opt = lc_sgd(&module);
#define CHECK_MAKER(kind, word, call)                                                                                  \
    CHECK((call) < 0);                                                                                                 \
    CHECK_CONTAINS(lc_error_message(), #word);
    MAKER_REFUSALS(CHECK_MAKER)
    lc_optimizer_free(opt);
    lc_trainer_free(trainer);
    lc_module_release(&module);
}

/* Whether the option, given as 0 on the command line, is 0 then; false: refused by its name. */
static bool arrives_as_zero(const lc_option *option, lc_trainer_options *o)
{
    char program[] = "program", zero[] = "0", name[100];
    char *argv[] = {program, name, zero, NULL};
    const void *field = (const char *)o + option->offset;
    snprintf(name, sizeof name, "--%s", option->name);
    if (lc_trainer_options_parse(o, 3, argv) < 0) {
        CHECK_CONTAINS(lc_error_message(), option->name);
        return false;
    }
    bool is_zero = option->kind == LC_OPTION_DURATION
                       ? ((const lc_duration *)field)->unit != LC_UNIT_NONE && ((const lc_duration *)field)->value == 0
                   : option->kind == LC_OPTION_FLOAT ? *(const double *)field == 0
                                                     : *(const int64_t *)field == 0;
    if (!is_zero) TEST_FAIL("%s is not 0", option->name);
    return true;
}

/* A 0 that the command line refuses is refused as well if a program writes it into the options. */
TEST(every_option_of_a_trainer)
{
    int n, refused = 0, arrived = 0;
    const lc_option *table = lc_trainer_option_table(&n);
    for (const lc_option *option = table; option < table + n; option++) {
        bool is_duration = option->kind == LC_OPTION_DURATION;
        if (!is_duration && option->kind != LC_OPTION_INT && option->kind != LC_OPTION_COUNT &&
            option->kind != LC_OPTION_FLOAT)
            continue;
        lc_trainer_options o = quiet_options(NULL);
        lc_trainer *t = NULL;
        bool arrives = arrives_as_zero(option, &o);
        if (!arrives) memset((char *)&o + option->offset, 0, sizeof(int64_t));
        lc_status status = lc_trainer_new(&o, &t);
        if (status < 0) CHECK_CONTAINS(lc_error_message(), option->name);
        if (status >= 0 && !arrives) TEST_FAIL("%s: a trainer was made with 0", option->name);
        lc_trainer_free(t);
        refused += status < 0, arrived += status >= 0;
    }
    CHECK(refused > 5 && arrived > 20);
    lc_trainer_options o = quiet_options(NULL);
    lc_trainer *t = NULL;
    o.enable_checkpointing = LC_ON;
    o.train_time_interval = LC_SECONDS(0);
    CHECK(lc_trainer_new(&o, &t) < 0);
    CHECK_CONTAINS(lc_error_message(), "train_time_interval");
}

/* --lr 0 on the command line, as a program passes it on. */
TEST(a_zero_on_the_command_line)
{
    struct {
        double lr, weight_decay;
    } h = {0.5, 0.25};
    lc_option fields[2];
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    char text[][20] = {"program", "--lr", "0", "--weight_decay=0", "--patience", "0", "--min_delta=0"};
    char *argv[8];
    lc_module m;
    double value = -1;
    memset(fields, 0, sizeof fields);
    fields[0].name = "lr";
    fields[1].name = "weight_decay";
    fields[1].offset = sizeof(double);
    for (int i = 0; i < 2; i++) fields[i].kind = LC_OPTION_FLOAT, fields[i].help = "a number";
    for (int i = 0; i < 7; i++) argv[i] = text[i];
    argv[7] = NULL;
    CHECK_OK(lc_trainer_options_parse_with(&o, fields, 2, &h, 7, argv));
    CHECK(h.lr == 0 && h.weight_decay == 0 && o.patience == 0 && o.min_delta == 0);
    module_new(&m);
    lc_optimizer *opt = lc_adamw(&m, .lr = h.lr, .weight_decay = h.weight_decay);
    CHECK(opt != NULL);
    CHECK_OK(lc_optimizer_get(opt, 0, "lr", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_OK(lc_optimizer_get(opt, 0, "weight_decay", &value));
    CHECK_NEAR(value, 0, 0);
    lc_optimizer_free(opt);
    lc_module_release(&m);
    lc_options_free(o.storage);
}

/* A fabric has the defaults of the trainer's options. */
TEST(defaults_of_a_fabric)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    lc_fabric_args f = lc_fabric_defaults();
    lc_launch_args l = lc_launch_defaults();
    CHECK(f.num_nodes == o.num_nodes && f.max_restarts == o.max_restarts && f.shard_size == o.shard_size);
    CHECK(f.start_timeout == o.start_timeout && f.silence_timeout == o.silence_timeout);
    CHECK(f.progress_timeout == o.progress_timeout && f.grace_period == o.grace_period);
    CHECK(f.bucket_cap_mb == o.bucket_cap_mb && f.threads == o.threads);
    CHECK(l.start_timeout == o.start_timeout && l.silence_timeout == o.silence_timeout);
    CHECK(l.progress_timeout == o.progress_timeout && l.grace_period == o.grace_period);
}

/* ---- the defaults of constructors equal those of the same class by name ---- */

#define OPTIMIZERS(X)                                                                                                  \
    X(lc_sgd, "SGD")                                                                                                   \
    X(lc_adam, "Adam")                                                                                                 \
    X(lc_adamw, "AdamW")                                                                                               \
    X(lc_rmsprop, "RMSprop")                                                                                           \
    X(lc_adagrad, "Adagrad")                                                                                           \
    X(lc_adadelta, "Adadelta")                                                                                         \
    X(lc_adamax, "Adamax")                                                                                             \
    X(lc_nadam, "NAdam")                                                                                               \
    X(lc_radam, "RAdam")                                                                                               \
    X(lc_rprop, "Rprop")                                                                                               \
    X(lc_lbfgs, "LBFGS")                                                                                               \
    X(lc_muon, "Muon")

static void same_hyperparameters(lc_module *m, lc_optimizer *a, const char *name)
{
    lc_optimizer *b = NULL;
    CHECK_OK(lc_optimizer_by_name(name, m, NULL, 0, &b));
    for (int i = 0; a->ops->hyper_names[i]; i++)
        if (a->groups[0].hyper[i] != b->groups[0].hyper[i])
            TEST_FAIL("%s: %s is %g, and %g by name", name, a->ops->hyper_names[i], a->groups[0].hyper[i],
                      b->groups[0].hyper[i]);
    CHECK_EQ(a->flags, b->flags);
    lc_optimizer_free(a);
    lc_optimizer_free(b);
}

TEST(defaults_of_optimizers)
{
    lc_module m;
    module_new(&m);
#define SAME_OPTIMIZER(make, name) same_hyperparameters(&m, make(&m), name);
    OPTIMIZERS(SAME_OPTIMIZER)
    lc_module_release(&m);
}

static void same_arguments(lc_scheduler *s)
{
    CHECK(s != NULL);
    for (int i = 0; s->ops->args[i]; i++)
        if (!isnan(s->ops->defaults[i]) && s->args[i] != s->ops->defaults[i])
            TEST_FAIL("%s: %s is %g, and %g by name", s->ops->name, s->ops->args[i], s->args[i], s->ops->defaults[i]);
    lc_scheduler_free(s);
}

TEST(defaults_of_schedules)
{
    lc_module m;
    module_new(&m);
    lc_optimizer *opt = lc_sgd(&m, .momentum = 0.5);
    same_arguments(lc_step_lr(opt, .step_size = 2));
    same_arguments(lc_multi_step_lr(opt));
    same_arguments(lc_exponential_lr(opt, .gamma = 1));
    same_arguments(lc_constant_lr(opt));
    same_arguments(lc_linear_lr(opt));
    same_arguments(lc_cosine_annealing_lr(opt, .T_max = 2));
    same_arguments(lc_cosine_annealing_warm_restarts(opt, .T_0 = 2));
    same_arguments(lc_polynomial_lr(opt));
    same_arguments(lc_one_cycle_lr(opt, .max_lr = 1, .total_steps = 9));
    same_arguments(lc_cyclic_lr(opt, .base_lr = 1, .max_lr = 2));
    same_arguments(lc_reduce_lr_on_plateau(opt));
    same_arguments(lc_swa_lr(opt));
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* ---- a number that must be given ---- */

TEST(numbers_that_must_be_given)
{
    lc_module m;
    module_new(&m);
    lc_optimizer *opt = lc_sgd(&m, .momentum = 0.5);
    CHECK(!lc_exponential_lr(opt));
    CHECK_CONTAINS(lc_error_message(), "gamma");
    CHECK(!lc_one_cycle_lr(opt, .total_steps = 9));
    CHECK_CONTAINS(lc_error_message(), "max_lr");
    CHECK(!lc_cyclic_lr(opt, .max_lr = 1));
    CHECK_CONTAINS(lc_error_message(), "base_lr");
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* ---- structs that a program fills in ---- */

TEST(a_struct_begins_with_the_defaults)
{
    lc_module m;
    lc_adam_args a = lc_adam_defaults();
    double value;
    module_new(&m);
    a.module = &m;
    a.beta1 = 0;
    lc_optimizer *opt = lc_adam_with(&a);
    CHECK(opt != NULL);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta1", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta2", &value));
    CHECK_NEAR(value, 0.999, 0);
    lc_optimizer_free(opt);
    memset(&a, 0, sizeof a);
    a.module = &m;
    CHECK(!lc_adam_with(&a));
    CHECK_CONTAINS(lc_error_message(), "lc_adam_defaults()");
    CHECK(!lc_adam_with(NULL));
    lc_module_release(&m);
}

/* A program that was compiled when the struct ended with beta1. */
TEST(members_beyond_the_size_have_their_defaults)
{
    lc_module m;
    lc_adam_args a;
    double value;
    module_new(&m);
    memset(&a, 0, sizeof a);
    a.size = offsetof(lc_adam_args, beta2);
    a.module = &m;
    a.lr = 0.5;
    lc_optimizer *opt = lc_adam_with(&a);
    CHECK(opt != NULL);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta1", &value));
    CHECK_NEAR(value, 0, 0);
    CHECK_OK(lc_optimizer_get(opt, 0, "beta2", &value));
    CHECK_NEAR(value, 0.999, 0);
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

TEST_MAIN
