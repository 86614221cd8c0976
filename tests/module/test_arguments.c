/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller gives arrives: arguments whose default is 0 are given as another number here, and those with another
 * default as 0 in test_zeros.c, test_zeros_data.c or test_zeros_runs.c. The headers say which arguments there are and
 * what their defaults are, and each must have its row there: X(constructor, argument, ...). */
#include "argument_checks.h"
#include "sources.h"

#include "core/fabric/fabric_internal.h"
#include "record/graph_impl.h"

/* ---- optimizers ---- */

/* Numbers, which can be asked for by name. */
#define HYPERPARAMETERS(X)                                                                                             \
    X(lc_sgd, weight_decay, 0.5, )                                                                                     \
    X(lc_sgd, momentum, 0.5, )                                                                                         \
    X(lc_sgd, dampening, 0.5, .momentum = 0.5)                                                                         \
    X(lc_adam, weight_decay, 0.5, )                                                                                    \
    X(lc_rmsprop, weight_decay, 0.5, )                                                                                 \
    X(lc_rmsprop, momentum, 0.5, )                                                                                     \
    X(lc_adagrad, weight_decay, 0.5, )                                                                                 \
    X(lc_adagrad, lr_decay, 0.5, )                                                                                     \
    X(lc_adagrad, initial_accumulator_value, 0.5, )                                                                    \
    X(lc_adadelta, weight_decay, 0.5, )                                                                                \
    X(lc_adamax, weight_decay, 0.5, )                                                                                  \
    X(lc_nadam, weight_decay, 0.5, )                                                                                   \
    X(lc_radam, weight_decay, 0.5, )                                                                                   \
    X(lc_lbfgs, max_eval, 7, )                                                                                         \
    X(lc_lbfgs, strong_wolfe, true, )

/* Flags, and which they change. */
#define FLAGS(X)                                                                                                       \
    X(lc_sgd, maximize, LC_OPT_MAXIMIZE, )                                                                             \
    X(lc_sgd, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                                 \
    X(lc_sgd, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                       \
    X(lc_sgd, nesterov, LC_OPT_NESTEROV, .momentum = 0.5)                                                              \
    X(lc_adam, maximize, LC_OPT_MAXIMIZE, )                                                                            \
    X(lc_adam, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                                \
    X(lc_adam, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                      \
    X(lc_adam, amsgrad, LC_OPT_AMSGRAD, )                                                                              \
    X(lc_adam, decoupled_weight_decay, LC_OPT_DECOUPLED_WEIGHT_DECAY, )                                                \
    X(lc_adamw, maximize, LC_OPT_MAXIMIZE, )                                                                           \
    X(lc_adamw, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                               \
    X(lc_adamw, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                     \
    X(lc_adamw, amsgrad, LC_OPT_AMSGRAD, )                                                                             \
    X(lc_adamw, decoupled_weight_decay, 0, ) /* it always does */                                                      \
    X(lc_rmsprop, maximize, LC_OPT_MAXIMIZE, )                                                                         \
    X(lc_rmsprop, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                             \
    X(lc_rmsprop, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                   \
    X(lc_rmsprop, centered, LC_OPT_CENTERED, )                                                                         \
    X(lc_adagrad, maximize, LC_OPT_MAXIMIZE, )                                                                         \
    X(lc_adagrad, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                             \
    X(lc_adagrad, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                   \
    X(lc_adadelta, maximize, LC_OPT_MAXIMIZE, )                                                                        \
    X(lc_adadelta, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                            \
    X(lc_adadelta, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                  \
    X(lc_adamax, maximize, LC_OPT_MAXIMIZE, )                                                                          \
    X(lc_adamax, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                              \
    X(lc_adamax, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                    \
    X(lc_nadam, maximize, LC_OPT_MAXIMIZE, )                                                                           \
    X(lc_nadam, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                               \
    X(lc_nadam, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                     \
    X(lc_nadam, decoupled_weight_decay, LC_OPT_DECOUPLED_WEIGHT_DECAY, )                                               \
    X(lc_radam, maximize, LC_OPT_MAXIMIZE, )                                                                           \
    X(lc_radam, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                               \
    X(lc_radam, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                     \
    X(lc_radam, decoupled_weight_decay, LC_OPT_DECOUPLED_WEIGHT_DECAY, )                                               \
    X(lc_rprop, maximize, LC_OPT_MAXIMIZE, )                                                                           \
    X(lc_rprop, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                               \
    X(lc_rprop, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                     \
    X(lc_muon, maximize, LC_OPT_MAXIMIZE, )                                                                            \
    X(lc_muon, master_weights, LC_OPT_MASTER_WEIGHTS, )                                                                \
    X(lc_muon, stochastic_rounding, LC_OPT_STOCHASTIC_ROUNDING, )                                                      \
    X(lc_muon, no_nesterov, LC_OPT_NESTEROV, )                                                                         \
    X(lc_muon, match_rms_adamw, LC_OPT_MATCH_RMS_ADAMW, )                                                              \
    X(lc_lbfgs, master_weights, LC_OPT_MASTER_WEIGHTS, )

/* What an optimizer does not have, and says so. */
#define REFUSED_FLAGS(X)                                                                                               \
    X(lc_lbfgs, stochastic_rounding, true)                                                                             \
    X(lc_lbfgs, maximize, true)                                                                                        \
    X(lc_lbfgs, weight_decay, 0.5)                                                                                     \
    X(lc_rprop, weight_decay, 0.5)

#define WITHOUT_PARAMETERS(X)                                                                                          \
    X(lc_sgd, no_parameters)                                                                                           \
    X(lc_adam, no_parameters)                                                                                          \
    X(lc_adamw, no_parameters)                                                                                         \
    X(lc_rmsprop, no_parameters)                                                                                       \
    X(lc_adagrad, no_parameters)                                                                                       \
    X(lc_adadelta, no_parameters)                                                                                      \
    X(lc_adamax, no_parameters)                                                                                        \
    X(lc_nadam, no_parameters)                                                                                         \
    X(lc_radam, no_parameters)                                                                                         \
    X(lc_rprop, no_parameters)                                                                                         \
    X(lc_lbfgs, no_parameters)                                                                                         \
    X(lc_muon, no_parameters)

static double hyperparameter(lc_optimizer *opt, const char *name)
{
    double value;
    CHECK(opt != NULL);
    CHECK_OK(lc_optimizer_get(opt, 0, name, &value));
    lc_optimizer_free(opt);
    return value;
}

static unsigned flags_of(lc_optimizer *opt)
{
    CHECK(opt != NULL);
    unsigned flags = opt->flags;
    lc_optimizer_free(opt);
    return flags;
}

static int groups_of(lc_optimizer *opt)
{
    CHECK(opt != NULL);
    int n = opt->n_groups;
    lc_optimizer_free(opt);
    return n;
}

TEST(optimizers)
{
    lc_module m;
    module_new(&m);
#define CHECK_HYPERPARAMETER(make, argument, number, ...)                                                              \
    CHECK_NEAR(hyperparameter(make(&m, __VA_ARGS__, .argument = number), #argument), number, 0);
    HYPERPARAMETERS(CHECK_HYPERPARAMETER)
#define CHECK_FLAG(make, argument, changed, ...)                                                                       \
    if ((flags_of(make(&m, __VA_ARGS__, .argument = true)) ^ flags_of(make(&m, __VA_ARGS__))) != (changed))            \
        TEST_FAIL("%s: %s", #make, #argument);
    FLAGS(CHECK_FLAG)
#define CHECK_WITHOUT(make, argument)                                                                                  \
    CHECK_EQ(groups_of(make(&m)), 1);                                                                                  \
    CHECK_EQ(groups_of(make(&m, .argument = true)), 0);
    WITHOUT_PARAMETERS(CHECK_WITHOUT)
    CHECK_OK(lc_module_status(&m));
#define CHECK_REFUSED_FLAG(make, argument, value)                                                                      \
    lc_module_release(&m);                                                                                             \
    module_new(&m); /* which keeps its first error */                                                                  \
    CHECK(!make(&m, .argument = value));                                                                               \
    CHECK_CONTAINS(lc_error_message(), #argument);
    REFUSED_FLAGS(CHECK_REFUSED_FLAG)
    lc_module_release(&m);
}

/* ---- schedules: the name and value among the schedule's own arguments ---- */

#define SCHEDULE_ARGS(X)                                                                                               \
    X(lc_step_lr, step_size, 3, "step_size", 3, )                                                                      \
    X(lc_cosine_annealing_lr, T_max, 5, "T_max", 5, )                                                                  \
    X(lc_cosine_annealing_lr, eta_min, 0.5, "eta_min", 0.5, .T_max = 5)                                                \
    X(lc_cosine_annealing_warm_restarts, T_0, 5, "T_0", 5, )                                                           \
    X(lc_cosine_annealing_warm_restarts, eta_min, 0.5, "eta_min", 0.5, .T_0 = 5)                                       \
    X(lc_one_cycle_lr, total_steps, 9, "total_steps", 9, .max_lr = 1)                                                  \
    X(lc_one_cycle_lr, epochs, 3, "total_steps", 12, .max_lr = 1, .steps_per_epoch = 4)                                \
    X(lc_one_cycle_lr, steps_per_epoch, 5, "total_steps", 15, .max_lr = 1, .epochs = 3)                                \
    X(lc_one_cycle_lr, linear, true, "linear", 1, .max_lr = 1, .total_steps = 9)                                       \
    X(lc_one_cycle_lr, no_cycle_momentum, true, "cycle_momentum", 0, .max_lr = 1, .total_steps = 9)                    \
    X(lc_one_cycle_lr, three_phase, true, "three_phase", 1, .max_lr = 1, .total_steps = 9)                             \
    X(lc_cyclic_lr, mode, LC_EXP_RANGE, "mode", LC_EXP_RANGE, .base_lr = 1, .max_lr = 2)                               \
    X(lc_cyclic_lr, no_cycle_momentum, true, "cycle_momentum", 0, .base_lr = 1, .max_lr = 2)                           \
    X(lc_reduce_lr_on_plateau, max, true, "max", 1, )                                                                  \
    X(lc_reduce_lr_on_plateau, absolute, true, "absolute", 1, )                                                        \
    X(lc_reduce_lr_on_plateau, cooldown, 4, "cooldown", 4, )                                                           \
    X(lc_reduce_lr_on_plateau, min_lr, 0.5, "min_lr", 0.5, )                                                           \
    X(lc_swa_lr, linear, true, "linear", 1, )

static void check_schedule(lc_scheduler *s, const char *name, double want)
{
    CHECK(s != NULL);
    CHECK_NEAR(argument_of(s, name), want, 0);
    lc_scheduler_free(s);
}

TEST(schedules)
{
    lc_module m;
    module_new(&m);
    lc_optimizer *opt = lc_sgd(&m, .momentum = 0.5);
#define CHECK_SCHEDULE(make, argument, number, name, want, ...)                                                        \
    check_schedule(make(opt, __VA_ARGS__, .argument = number), name, want);
    SCHEDULE_ARGS(CHECK_SCHEDULE)
    lc_optimizer_free(opt);
    lc_module_release(&m);
}

/* ---- operators: x [1,2] is 1, 3; the first number of the result ---- */

static lc_tensor *pair(lc_tensor *x) /* [1,1,2] */
{
    return lc_reshape(x, 1, 1, 2);
}
static lc_tensor *row(lc_tensor *x) /* [1,1,4]: 1, 3, 3, 9 */
{
    return lc_reshape(lc_matmul(lc_reshape(x, 2, 1), x), 1, 1, 4);
}
static lc_tensor *square(lc_tensor *x) /* [1,1,2,2] of the same */
{
    return lc_reshape(row(x), 1, 1, 2, 2);
}
static lc_tensor *zeros_i64(int64_t n)
{
    return lc_cast(lc_full(0, LC_F32, n), LC_I64);
}
static lc_tensor *of_squares(lc_tensor *y)
{
    return lc_sum(lc_mul(y, y));
}

#define OPERATORS(X)                                                                                                   \
    X(lc_reduce, dims, lc_sum(x, .dims = LC_DIMS(0)), 1)                                                               \
    X(lc_reduce, keepdim, lc_permute(lc_sum(x, .dims = LC_DIMS(1), .keepdim = true), 1, 0), 4)                         \
    X(lc_arg, keepdim, lc_cast(lc_permute(lc_argmax(x, .dim = 1, .keepdim = true), 1, 0), LC_F32), 1)                  \
    X(lc_gelu, tanh, lc_gelu(x, .tanh = true), 0.84119199)                                                             \
    X(lc_topk, smallest, lc_topk(x, NULL, 1, 1, .smallest = true), 1)                                                  \
    X(lc_loss, reduction, lc_mse_loss(x, lc_zeros_like(x), .reduction = LC_REDUCE_SUM), 10)                            \
    X(lc_loss, log_target, lc_kl_div(x, lc_zeros_like(x), .log_target = true), -2)                                     \
    X(lc_conv, stride, lc_sum(lc_conv1d(row(x), pair(x), NULL, .stride = LC_DIMS(2))), 40)                             \
    X(lc_conv, padding, lc_sum(lc_conv1d(row(x), pair(x), NULL, .padding = LC_DIMS(1))), 64)                           \
    X(lc_conv, dilation, lc_sum(lc_conv1d(row(x), pair(x), NULL, .dilation = LC_DIMS(2))), 40)                         \
    X(lc_conv, output_padding,                                                                                         \
      lc_mean(lc_conv_transpose1d(pair(x), pair(x), NULL, .stride = LC_DIMS(2), .output_padding = LC_DIMS(1))), 3.2)   \
    X(lc_pool, kernel_w, lc_avg_pool2d(square(x), 1, .kernel_w = 2), 2)                                                \
    X(lc_pool, stride, lc_sum(lc_avg_pool2d(square(x), 1, .stride = LC_DIMS(2))), 1)                                   \
    X(lc_pool, padding, lc_avg_pool2d(square(x), 2, .padding = LC_DIMS(1)), 0.25)                                      \
    X(lc_pool, exclude_pad, lc_avg_pool2d(square(x), 2, .padding = LC_DIMS(1), .exclude_pad = true), 1)                \
    X(lc_pool, divisor, lc_avg_pool2d(square(x), 2, .divisor = 8), 2)                                                  \
    X(lc_pool, ceil_mode, lc_sum(lc_max_pool1d(row(x), 3, .stride = LC_DIMS(2), .ceil_mode = true)), 12)               \
    X(lc_pool, dilation, lc_sum(lc_max_pool1d(row(x), 2, .stride = LC_DIMS(1), .dilation = LC_DIMS(2))), 12)           \
    X(lc_interpolate, output_size,                                                                                     \
      lc_sum(lc_interpolate(lc_reshape(x, 1, 1, 1, 2), LC_NEAREST, .output_size = LC_DIMS(1, 4))), 8)                  \
    X(lc_interpolate, scale, lc_sum(lc_interpolate(square(x), LC_NEAREST, .scale = 2)), 64)                            \
    X(lc_interpolate, scale_w, lc_sum(lc_interpolate(square(x), LC_NEAREST, .scale = 1, .scale_w = 2)), 32)            \
    X(lc_interpolate, align_corners,                                                                                   \
      of_squares(lc_interpolate(lc_reshape(x, 1, 1, 1, 2), LC_BILINEAR, .output_size = LC_DIMS(1, 4),                  \
                                .align_corners = true)),                                                               \
      164.0 / 9)                                                                                                       \
    X(lc_norm, dims, lc_layer_norm(lc_mul(square(x), square(x)), NULL, NULL, .dims = 2, .eps = 0), -24 / sqrt(1056))   \
    X(lc_rms_norm, dims, lc_rms_norm(square(x), NULL, .dims = 2, .eps = 0), 0.2)                                       \
    X(lc_cross_entropy, reduction,                                                                                     \
      lc_cross_entropy(lc_reshape(row(x), 2, 2), zeros_i64(2), .reduction = LC_REDUCE_SUM), 8.12940369)                \
    X(lc_cross_entropy, label_smoothing, lc_cross_entropy(x, zeros_i64(1), .label_smoothing = 0.5), 1.62692801)        \
    X(lc_sdpa, causal,                                                                                                 \
      lc_sdpa(lc_reshape(x, 1, 2, 1), lc_reshape(x, 1, 2, 1), lc_reshape(x, 1, 2, 1), .causal = true), 1)              \
    X(lc_random, low, lc_clamp(lc_uniform(1, one, .low = 2, .high = 3), .max = 2), 2)                                  \
    X(lc_random, mean, lc_normal(1, one, .mean = 1.5, .std = 0), 1.5)

#define BUILD_OPERATOR(kind, argument, expression, want) BUILD_NUMBER(kind##_##argument, expression)
OPERATORS(BUILD_OPERATOR)

TEST(operators)
{
#define CHECK_OPERATOR(kind, argument, expression, want) check_number(#kind ": " #argument, kind##_##argument, want);
    OPERATORS(CHECK_OPERATOR)
}

/* ---- batch norm, whose running mean of 0 and variance of 1 are used, or moved: the first number, and the mean ---- */

#define RUNNING(X)                                                                                                     \
    X(lc_batch_norm, eps, LC_ARGS(lc_batch_norm, .eps = 3), 0.5, 0)                                                    \
    X(lc_batch_norm, training, LC_ARGS(lc_batch_norm, .training = true, .eps = 0), -1, 0.2)

static void check_running(const char *argument, lc_batch_norm_args a, double first, double mean)
{
    float data[] = {1, 3}, ones[] = {1}, zeros[] = {0};
    lc_tensor *x, *running[2];
    lc_graph *g;
    CHECK_OK(lc_graph_new(&g));
    CHECK_OK(lc_input_new(LC_F32, 2, (const int64_t[]){2, 1}, LC_ROW_MAJOR, data, &x));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(lc_tensor_new(LC_F32, 1, one, &running[i]));
        CHECK_OK(lc_tensor_write(running[i], i ? ones : zeros, sizeof(float)));
    }
    a.running_mean = running[0], a.running_var = running[1];
    CHECK_OK(lc_step_begin(g, 0, 0));
    lc_tensor *y = lc_keep(lc_batch_norm_at(x, NULL, &a, LC_HERE));
    CHECK_OK(lc_step_run(g));
    CHECK_OK(lc_tensor_read(y, data, sizeof data));
    CHECK_OK(lc_tensor_read(running[0], zeros, sizeof zeros));
    CHECK_OK(lc_step_end(g));
    if (fabs((double)data[0] - first) > 1e-6 || fabs((double)zeros[0] - mean) > 1e-6)
        TEST_FAIL("lc_batch_norm: %s: %g, mean %g", argument, (double)data[0], (double)zeros[0]);
    for (int i = 0; i < 2; i++) lc_tensor_unref(running[i]);
    lc_tensor_unref(x);
    lc_graph_free(g);
}

TEST(batch_norms)
{
#define CHECK_RUNNING(kind, argument, args, first, mean) check_running(#argument, args, first, mean);
    RUNNING(CHECK_RUNNING)
}

/* ---- layers: how one is made, and what is then so ---- */

#define LAYERS(X)                                                                                                      \
    X(lc_linear_init, no_bias, lc_linear_init(&l.linear, &m, "l", 2, 3, .no_bias = true), !l.linear.bias)              \
    X(lc_linear_init, dtype, lc_linear_init(&l.linear, &m, "l", 2, 3, .dtype = LC_F64), is_f64(l.linear.weight))       \
    X(lc_conv_init, padding, lc_conv2d_init(&l.conv, &m, "l", 1, 1, 3, .padding = 1), two(l.conv.padding, 1, 1))       \
    X(lc_conv_init, output_padding,                                                                                    \
      lc_conv_transpose2d_init(&l.conv, &m, "l", 1, 1, 3, .stride = 2, .output_padding = 1),                           \
      two(l.conv.output_padding, 1, 1))                                                                                \
    X(lc_conv_init, kernel_sizes, lc_conv2d_init(&l.conv, &m, "l", 1, 1, 0, .kernel_sizes = LC_DIMS(2, 3)),            \
      two(l.conv.kernel, 2, 3))                                                                                        \
    X(lc_conv_init, strides, lc_conv2d_init(&l.conv, &m, "l", 1, 1, 3, .strides = LC_DIMS(2, 3)),                      \
      two(l.conv.stride, 2, 3))                                                                                        \
    X(lc_conv_init, paddings, lc_conv2d_init(&l.conv, &m, "l", 1, 1, 3, .paddings = LC_DIMS(2, 3)),                    \
      two(l.conv.padding, 2, 3))                                                                                       \
    X(lc_conv_init, dilations, lc_conv2d_init(&l.conv, &m, "l", 1, 1, 3, .dilations = LC_DIMS(2, 3)),                  \
      two(l.conv.dilation, 2, 3))                                                                                      \
    X(lc_conv_init, output_paddings,                                                                                   \
      lc_conv_transpose2d_init(&l.conv, &m, "l", 1, 1, 3, .stride = 4, .output_paddings = LC_DIMS(2, 3)),              \
      two(l.conv.output_padding, 2, 3))                                                                                \
    X(lc_conv_init, no_bias, lc_conv2d_init(&l.conv, &m, "l", 1, 1, 3, .no_bias = true), !l.conv.bias)                 \
    X(lc_conv_init, dtype, lc_conv2d_init(&l.conv, &m, "l", 1, 1, 3, .dtype = LC_F64), is_f64(l.conv.weight))          \
    X(lc_batch_norm_init, no_affine, lc_batch_norm2d_init(&l.batch_norm, &m, "l", 3, .no_affine = true),               \
      !l.batch_norm.weight && !l.batch_norm.bias)                                                                      \
    X(lc_batch_norm_init, no_track_running_stats,                                                                      \
      lc_batch_norm2d_init(&l.batch_norm, &m, "l", 3, .no_track_running_stats = true), !l.batch_norm.running_mean)     \
    X(lc_batch_norm_init, dtype, lc_batch_norm2d_init(&l.batch_norm, &m, "l", 3, .dtype = LC_F64),                     \
      is_f64(l.batch_norm.weight))                                                                                     \
    X(lc_layer_norm_init, shape, lc_layer_norm_init(&l.norm, &m, "l", 0, .shape = LC_DIMS(2, 3)),                      \
      l.norm.ndim == 2 && two(l.norm.shape, 2, 3))                                                                     \
    X(lc_layer_norm_init, no_affine, lc_layer_norm_init(&l.norm, &m, "l", 3, .no_affine = true), !l.norm.weight)       \
    X(lc_layer_norm_init, no_bias, lc_layer_norm_init(&l.norm, &m, "l", 3, .no_bias = true),                           \
      l.norm.weight && !l.norm.bias)                                                                                   \
    X(lc_layer_norm_init, dtype, lc_layer_norm_init(&l.norm, &m, "l", 3, .dtype = LC_F64), is_f64(l.norm.weight))      \
    X(lc_rms_norm_init, shape, lc_rms_norm_init(&l.norm, &m, "l", 0, .shape = LC_DIMS(2, 3)),                          \
      l.norm.ndim == 2 && two(l.norm.shape, 2, 3))                                                                     \
    X(lc_rms_norm_init, no_affine, lc_rms_norm_init(&l.norm, &m, "l", 3, .no_affine = true), !l.norm.weight)           \
    X(lc_rms_norm_init, no_bias, lc_rms_norm_init(&l.norm, &m, "l", 3, .no_bias = true), /* it has none */             \
      l.norm.weight && !l.norm.bias)                                                                                   \
    X(lc_rms_norm_init, dtype, lc_rms_norm_init(&l.norm, &m, "l", 3, .dtype = LC_F64), is_f64(l.norm.weight))          \
    X(lc_group_norm_init, no_affine, lc_group_norm_init(&l.norm, &m, "l", 1, 3, .no_affine = true), !l.norm.weight)    \
    X(lc_group_norm_init, no_bias, lc_group_norm_init(&l.norm, &m, "l", 1, 3, .no_bias = true),                        \
      l.norm.weight && !l.norm.bias)                                                                                   \
    X(lc_group_norm_init, dtype, lc_group_norm_init(&l.norm, &m, "l", 1, 3, .dtype = LC_F64), is_f64(l.norm.weight))   \
    X(lc_embedding_init, dtype, lc_embedding_init(&l.embedding, &m, "l", 4, 2, .dtype = LC_F64),                       \
      is_f64(l.embedding.weight))                                                                                      \
    X(lc_pool_init, padding, lc_max_pool2d_init(&l.pool, &m, "l", 2, .padding = 1), two(l.pool.padding, 1, 1))         \
    X(lc_pool_init, kernel_sizes, lc_max_pool2d_init(&l.pool, &m, "l", 0, .kernel_sizes = LC_DIMS(2, 3)),              \
      two(l.pool.kernel, 2, 3))                                                                                        \
    X(lc_pool_init, strides, lc_max_pool2d_init(&l.pool, &m, "l", 2, .strides = LC_DIMS(2, 3)),                        \
      two(l.pool.stride, 2, 3))                                                                                        \
    X(lc_pool_init, paddings, lc_max_pool2d_init(&l.pool, &m, "l", 4, .paddings = LC_DIMS(1, 2)),                      \
      two(l.pool.padding, 1, 2))                                                                                       \
    X(lc_pool_init, dilations, lc_max_pool2d_init(&l.pool, &m, "l", 2, .dilations = LC_DIMS(2, 3)),                    \
      two(l.pool.dilation, 2, 3))                                                                                      \
    X(lc_pool_init, ceil_mode, lc_max_pool2d_init(&l.pool, &m, "l", 2, .ceil_mode = true), l.pool.ceil_mode)           \
    X(lc_pool_init, exclude_pad, lc_avg_pool2d_init(&l.pool, &m, "l", 2, .exclude_pad = true), l.pool.exclude_pad)     \
    X(lc_pool_init, divisor_override, lc_avg_pool2d_init(&l.pool, &m, "l", 2, .divisor_override = 5),                  \
      l.pool.divisor == 5)                                                                                             \
    X(lc_multihead_attention_init, no_bias, lc_multihead_attention_init(&l.attention, &m, "l", 4, 2, .no_bias = true), \
      !l.attention.in_proj_bias)                                                                                       \
    X(lc_multihead_attention_init, seq_first,                                                                          \
      lc_multihead_attention_init(&l.attention, &m, "l", 4, 2, .seq_first = true), l.attention.seq_first)              \
    X(lc_multihead_attention_init, dropout, lc_multihead_attention_init(&l.attention, &m, "l", 4, 2, .dropout = 0.5),  \
      l.attention.dropout == 0.5)                                                                                      \
    X(lc_multihead_attention_init, dtype, lc_multihead_attention_init(&l.attention, &m, "l", 4, 2, .dtype = LC_F64),   \
      is_f64(l.attention.in_proj_weight))                                                                              \
    X(lc_rnn_init, no_bias, lc_lstm_init(&l.rnn, &m, "l", 2, 3, .no_bias = true), !l.rnn.bias_ih[0])                   \
    X(lc_rnn_init, bidirectional, lc_lstm_init(&l.rnn, &m, "l", 2, 3, .bidirectional = true), l.rnn.weight_ih[1])      \
    X(lc_rnn_init, seq_first, lc_lstm_init(&l.rnn, &m, "l", 2, 3, .seq_first = true), l.rnn.seq_first)                 \
    X(lc_rnn_init, dropout, lc_lstm_init(&l.rnn, &m, "l", 2, 3, .num_layers = 2, .dropout = 0.5),                      \
      l.rnn.dropout == 0.5)                                                                                            \
    X(lc_rnn_init, dtype, lc_lstm_init(&l.rnn, &m, "l", 2, 3, .dtype = LC_F64), is_f64(l.rnn.weight_ih[0]))            \
    X(lc_resnet_init, small_stem, lc_resnet18_init(&l.resnet, &m, "l", 2, .small_stem = true),                         \
      l.resnet.conv1.kernel[0] == 3)                                                                                   \
    X(lc_resnet_init, dtype, lc_resnet20_init(&l.resnet, &m, "l", 2, .dtype = LC_F64), is_f64(l.resnet.fc.weight))

/* What one does not have, and says so. */
#define REFUSED_LAYERS(X) X(lc_group_norm_init, shape, lc_group_norm_init(&norm, &m, "l", 1, 6, .shape = LC_DIMS(2, 3)))

static bool is_f64(const lc_tensor *t)
{
    return lc_tensor_dtype(t) == LC_F64;
}
static bool two(const int64_t *n, int64_t first, int64_t second)
{
    return n[0] == first && n[1] == second;
}

TEST(layers)
{
    static union {
        lc_linear linear;
        lc_conv conv;
        lc_batch_norm_layer batch_norm;
        lc_norm_layer norm;
        lc_embedding embedding;
        lc_pool pool;
        lc_multihead_attention attention;
        lc_rnn rnn;
        lc_resnet resnet;
    } l;
#define CHECK_LAYER(kind, argument, init, condition)                                                                   \
    {                                                                                                                  \
        lc_module m;                                                                                                   \
        memset(&l, 0, sizeof l);                                                                                       \
        module_new(&m);                                                                                                \
        init;                                                                                                          \
        CHECK_OK(lc_module_status(&m));                                                                                \
        if (!(condition)) TEST_FAIL("%s: %s", #kind, #argument);                                                       \
        lc_module_release(&m);                                                                                         \
    }
    LAYERS(CHECK_LAYER)
}

TEST(layers_that_refuse)
{
    static lc_norm_layer norm;
    REFUSED_LAYERS(CHECK_REFUSED_LAYER)
}

/* ---- graphs and fabrics ---- */

#define GRAPH_ARGS(X)                                                                                                  \
    X(lc_graph, threads, 3, g->threads == 3)                                                                           \
    X(lc_graph, deterministic, true, g->options.deterministic)                                                         \
    X(lc_graph, seed, 7, g->rng.seed == 7)                                                                             \
    X(lc_graph, max_bytes, 12345, g->options.max_bytes == 12345)                                                       \
    X(lc_graph, tune, true, g->options.tune)                                                                           \
    X(lc_graph, nan_check, true, g->nan_check)                                                                         \
    X(lc_graph, autocast, LC_F16, g->options.autocast == LC_F16)                                                       \
    X(lc_graph, storage, LC_F64, g->options.storage == LC_F64)                                                         \
    X(lc_graph, matmul_precision, LC_MATMUL_HIGH, g->options.matmul_precision == LC_MATMUL_HIGH)

#define FABRIC_ARGS(X)                                                                                                 \
    X(lc_fabric, threads, 3, g->threads == 3)                                                                          \
    X(lc_fabric, deterministic, true, g->options.deterministic)                                                        \
    X(lc_fabric, tune, true, g->options.tune)                                                                          \
    X(lc_fabric, float32_matmul_precision, "medium", g->options.matmul_precision == LC_MATMUL_MEDIUM)                  \
    X(lc_fabric, detect_anomaly, true, g->nan_check)                                                                   \
    X(lc_fabric, seed, 7, g->rng.seed == 7)

/* The condition holds with the argument, and not without. */
TEST(graphs)
{
#define CHECK_GRAPH(kind, argument, value, condition)                                                                  \
    for (int given = 0; given < 2; given++) {                                                                          \
        lc_graph *g;                                                                                                   \
        if (given)                                                                                                     \
            CHECK_OK(lc_graph_new(&g, .argument = value));                                                             \
        else                                                                                                           \
            CHECK_OK(lc_graph_new(&g));                                                                                \
        if ((condition) != given) TEST_FAIL("%s: %s", #kind, #argument);                                               \
        lc_graph_free(g);                                                                                              \
    }
    GRAPH_ARGS(CHECK_GRAPH)
}

TEST(fabrics)
{
#define CHECK_FABRIC(kind, argument, value, condition)                                                                 \
    for (int given = 0; given < 2; given++) {                                                                          \
        lc_fabric *f;                                                                                                  \
        if (given)                                                                                                     \
            CHECK_OK(lc_fabric_new(&f, .argument = value));                                                            \
        else                                                                                                           \
            CHECK_OK(lc_fabric_new(&f));                                                                               \
        const lc_graph *g = f->graph;                                                                                  \
        if ((condition) != given) TEST_FAIL("%s: %s", #kind, #argument);                                               \
        lc_fabric_free(f);                                                                                             \
    }
    FABRIC_ARGS(CHECK_FABRIC)
}

/* ---- what only a run shows: the test that shows it, and what it gives ---- */

#define ELSEWHERE(X)                                                                                                   \
    X(lc_model_checkpoint, verbose, "tests/callbacks/test_callback_arguments.c",                                       \
      "lc_model_checkpoint, 2, \": saved \", .verbose = true")                                                         \
    X(lc_model_checkpoint, save_last, "tests/callbacks/test_last_link.c", "save_last = LC_ON")                         \
    X(lc_model_checkpoint, save_on_exception, "tests/core/ranks/test_ddp_exception.c", ".save_on_exception = true")    \
    X(lc_model_checkpoint, save_weights_only, "tests/core/hooks/test_trainer_order.c", ".save_weights_only = true")    \
    X(lc_model_checkpoint, train_time_interval, "tests/callbacks/test_callback_arguments.c",                           \
      ".train_time_interval = 1e-9")                                                                                   \
    X(lc_model_checkpoint, wait, "tests/core/resume/test_resume_everything.c", ".wait = true")                         \
    X(lc_early_stopping, min_delta, "tests/parallel/device_run.h", ".min_delta = ")                                    \
    X(lc_early_stopping, verbose, "tests/callbacks/test_callback_arguments.c",                                         \
      ".monitor = \"val_loss\", .verbose = true")                                                                      \
    X(lc_progress_bar, style, "tests/callbacks/test_rich_progress_bar.c", ".style = LC_PROGRESS_BAR")                  \
    X(lc_rich_progress_bar, style, "tests/callbacks/test_rich_progress_bar.c", ".style = LC_PROGRESS_BAR")             \
    X(lc_rich_progress_bar, leave, "tests/callbacks/test_rich_progress_bar.c", ".leave = true")                        \
    X(lc_learning_rate_monitor, log_momentum, "tests/core/resume/test_resume_everything.c", ".log_momentum = true")    \
    X(lc_learning_rate_monitor, log_weight_decay, "tests/core/resume/test_resume_everything.c",                        \
      ".log_weight_decay = true")                                                                                      \
    X(lc_ema_weight_averaging, update_starting_at_step, "tests/callbacks/test_callbacks_resume.c",                     \
      ".update_starting_at_step = 4")                                                                                  \
    X(lc_backbone_finetuning, verbose, "tests/callbacks/test_callback_arguments.c",                                    \
      ".unfreeze_backbone_at_epoch = 1, .verbose = true")                                                              \
    X(lc_model_pruning, amount_count, "tests/callbacks/test_callbacks_resume.c", ".amount_count = 1")                  \
    X(lc_model_pruning, resample_parameters, "tests/callbacks/test_callbacks_resume.c", ".resample_parameters = true") \
    X(lc_model_pruning, pruning_dim, "tests/callbacks/test_callback_arguments.c", ".pruning_dim = dim")                \
    X(lc_model_pruning, pruning_norm, "tests/callbacks/test_callback_arguments.c", ".pruning_norm = 1")                \
    X(lc_model_pruning, verbose, "tests/callbacks/test_callback_arguments.c", ".verbose = v")                          \
    X(lc_spike_detection, atol, "tests/callbacks/test_callbacks.c", ".atol = 5")                                       \
    X(lc_spike_detection, skip, "tests/callbacks/test_callbacks.c", ".skip = true")                                    \
    X(lc_gradient_norm_monitor, total_only, "tests/callbacks/test_monitors.c", ".total_only = true")                   \
    X(lc_gradient_norm_monitor, prog_bar, "tests/callbacks/test_callback_arguments.c", ".prog_bar = shown")            \
    X(lc_gradient_norm_monitor, every_step, "tests/callbacks/test_monitors.c", ".every_step = true")                   \
    X(lc_weight_histogram, every_n_train_steps, "tests/callbacks/test_callbacks_resume.c", ".every_n_train_steps = 2") \
    X(lc_weight_histogram, gradients, "tests/callbacks/test_monitors.c", ".gradients = true")                          \
    X(lc_throughput_monitor, available_flops, "tests/callbacks/test_monitors.c", ".available_flops = 1e9")             \
    X(lc_array_file, delimiter, "tests/data/files/test_csv_file.c", ".delimiter = ';'")                                \
    X(lc_array_file, text, "tests/data/files/test_csv_file.c", ".text = \"zip\"")                                      \
    X(lc_image, height, "tests/data/test_images.c", ".height = 2")                                                     \
    X(lc_image, width, "tests/data/test_images.c", ".width = 3")                                                       \
    X(lc_image, on_error, "tests/data/test_images.c", ".on_error = LC_IMAGE_SKIP")                                     \
    X(lc_image, exif_transpose, "tests/data/test_images.c", ".exif_transpose = true")                                  \
    X(lc_plot_lines, title, "tests/plot/test_plot.c", ".title = \"Speed & size\"")                                     \
    X(lc_plot_lines, x_label, "tests/plot/test_plot.c", ".x_label = \"workers\"")                                      \
    X(lc_plot_lines, y_label, "tests/plot/test_plot.c", ".y_label = \"samples a second\"")                             \
    X(lc_plot_lines, from_zero, "tests/plot/test_plot.c", ".from_zero = true")                                         \
    X(lc_plot_histogram, title, "tests/plot/test_plot.c", ".title = \"Bins\"")                                         \
    X(lc_plot_histogram, x_label, "tests/plot/test_plot.c", ".x_label = \"value\"")                                    \
    X(lc_plot_histogram, y_label, "tests/plot/test_plot.c", ".y_label = \"how many\"")                                 \
    X(lc_plot_pictures, title, "tests/plot/test_plot.c", ".title = \"Two\"")                                           \
    X(lc_plot_pictures, labels, "tests/plot/test_plot.c", ".labels = labels")                                          \
    X(lc_plot_text, graphics, "tests/plot/test_plot.c", ".graphics = LC_PLOT_SIXEL")                                   \
    X(lc_plot_text, color, "tests/plot/test_plot.c", ".color = color")                                                 \
    X(lc_image_shards_pack, seed, "tests/data/shards/test_shards.c", ".seed = 4")                                      \
    X(lc_image_shards_pack, allow_empty, "tests/data/shards/test_shards.c", ".allow_empty = true")                     \
    X(lc_transform_to_dtype, scale, "tests/data/transforms/test_recorded.c", ".scale = true")                          \
    X(lc_transform_resize, height, "tests/data/transforms/test_recorded.c", ".height = sizes[i][0]")                   \
    X(lc_transform_resize, width, "tests/data/transforms/test_recorded.c", ".width = sizes[i][1]")                     \
    X(lc_transform_resize, shorter, "tests/data/transforms/test_recorded.c", ".shorter = 20")                          \
    X(lc_transform_resize, max_size, "tests/data/transforms/test_recorded.c", ".max_size = 24")                        \
    X(lc_transform_pad, fill, "tests/data/transforms/test_recorded.c", ".fill = 9")                                    \
    X(lc_transform_pad, padding_mode, "tests/data/transforms/test_recorded.c", ".padding_mode = (lc_padding_mode")     \
    X(lc_transform_pad, fill_color, "tests/data/transforms/test_recorded.c", ".fill_color = LC_COLOR(250")             \
    X(lc_transform_random_crop, padding, "tests/data/transforms/test_random_transforms.c", ".padding = LC_DIMS(3")     \
    X(lc_transform_random_crop, pad_if_needed, "tests/data/transforms/test_random_transforms.c",                       \
      ".pad_if_needed = true")                                                                                         \
    X(lc_transform_random_crop, fill, "tests/data/transforms/test_random_transforms.c", ".fill = 4")                   \
    X(lc_transform_random_crop, padding_mode, "tests/data/transforms/test_random_transforms.c",                        \
      ".padding_mode = LC_PAD_REFLECT")                                                                                \
    X(lc_transform_random_crop, fill_color, "tests/data/transforms/test_random_transforms.c",                          \
      "9, t, .pad_if_needed = true, .fill = fill, .fill_color = color")                                                \
    X(lc_transform_random_rotation, interpolation, "tests/data/transforms/test_recorded.c", ".interpolation = mode")   \
    X(lc_transform_random_rotation, fill, "tests/data/transforms/test_recorded.c", ".fill = 77")                       \
    X(lc_transform_random_rotation, fill_color, "tests/data/transforms/test_recorded.c", ".fill_color = LC_COLOR(250") \
    X(lc_transform_random_affine, translate_x, "tests/data/transforms/test_random_transforms.c", ".translate_x = 0.2") \
    X(lc_transform_random_affine, translate_y, "tests/data/transforms/test_random_transforms.c", ".translate_y = 0.3") \
    X(lc_transform_random_affine, shear_x, "tests/data/transforms/test_recorded.c", ".shear_x = LC_RANGE(5")           \
    X(lc_transform_random_affine, shear_y, "tests/data/transforms/test_random_transforms.c",                           \
      ".shear_y = LC_RANGE(-20")                                                                                       \
    X(lc_transform_random_affine, interpolation, "tests/data/transforms/test_random_transforms.c",                     \
      "LC_RANGE(20, 20), &t, .interpolation = LC_RESAMPLE_BILINEAR")                                                   \
    X(lc_transform_random_affine, fill, "tests/data/transforms/test_recorded.c", ".fill = 30")                         \
    X(lc_transform_random_affine, fill_color, "tests/data/transforms/test_recorded.c", ".fill_color = LC_COLOR(250")   \
    X(lc_transform_random_perspective, fill_color, "tests/data/transforms/test_random_transforms.c",                   \
      "lc_transform_random_perspective(t, .fill = fill, .fill_color = color")                                          \
    X(lc_transform_random_perspective, fill, "tests/data/transforms/test_random_transforms.c", ".fill = 12")           \
    X(lc_transform_color_jitter, hue, "tests/data/transforms/test_recorded.c", ".hue = LC_RANGE(hues[i]")              \
    X(lc_transform_random_erasing, value, "tests/data/transforms/test_random_transforms.c", ".value = 200")            \
    X(lc_transform_random_erasing, random, "tests/data/transforms/test_random_transforms.c", ".random = true")         \
    X(lc_transform_random_erasing, value_color, "tests/data/transforms/test_random_transforms.c",                      \
      ".value_color = color")                                                                                          \
    X(lc_transform_policy, fill_color, "tests/data/transforms/test_random_transforms.c",                               \
      "lc_transform_trivial_augment_wide(t, .fill = fill, .fill_color = color")                                        \
    X(lc_transform_policy, policy, "tests/data/transforms/test_random_transforms.c",                                   \
      ".policy = LC_AUTO_AUGMENT_CIFAR10")                                                                             \
    X(lc_transform_policy, interpolation, "tests/data/transforms/test_random_transforms.c",                            \
      ".interpolation = LC_RESAMPLE_BILINEAR")                                                                         \
    X(lc_dataloader, mix, "tests/data/test_mix.c", ".mix = mix")                                                       \
    X(lc_image, fast_scale, "tests/data/test_image_transforms.c", ".fast_scale = true")                                \
    X(lc_image, cache_bytes, "tests/data/test_image_cache.c", ".cache_bytes = bytes")                                  \
    X(lc_image, allow_empty, "tests/data/test_images.c", ".allow_empty = true")                                        \
    X(lc_file_windows, array, "tests/data/files/test_tokens.c", ".array = \"a,b\"")                                    \
    X(lc_file_windows, window, "tests/data/files/test_tokens.c", ".window = WINDOW")                                   \
    X(lc_file_windows, begin, "tests/data/files/test_tokens.c", ".begin = 100")                                        \
    X(lc_file_windows, random, "tests/data/files/test_tokens.c", ".random = SAMPLES")                                  \
    X(lc_idx, mean, "tests/data/test_data_files.c", ".mean = 0.5")                                                     \
    X(lc_idx, raw, "tests/data/test_data_files.c", ".raw = true")                                                      \
    X(lc_dataloader, shuffle, "tests/data/test_loader.c", ".shuffle = true")                                           \
    X(lc_dataloader, drop_last, "tests/data/test_loader.c", ".drop_last = drop")                                       \
    X(lc_dataloader, num_workers, "tests/data/test_loader.c", ".num_workers = workers")                                \
    X(lc_dataloader, timeout, "tests/data/test_loader_timeout.c", ".timeout = 2")                                      \
    X(lc_dataloader, pin_memory, "tests/data/test_loader.c", ".pin_memory = true")                                     \
    X(lc_dataloader, max_tokens, "tests/data/test_lengths.c", ".max_tokens = 40")                                      \
    X(lc_dataloader, group_by_length, "tests/data/test_lengths.c", ".group_by_length = group")                         \
    X(lc_dataloader, pad_value, "tests/data/test_lengths.c", ".pad_value = 255")                                       \
    X(lc_dataloader, pad_side, "tests/data/test_lengths.c", ".pad_side = left")                                        \
    X(lc_dataloader, collate_sizes, "tests/data/test_lengths.c", ".collate_sizes = at_most")                           \
    X(lc_dataloader, collate, "tests/data/test_lengths.c", ".collate = repeat")                                        \
    X(lc_dataloader, collate_ctx, "tests/data/test_lengths.c", ".collate_ctx = &limit")                                \
    X(lc_dataloader, seed, "tests/data/test_loader.c", ".seed = seed")                                                 \
    X(lc_graph, device, "tests/backends/test_sim_trainer.c", ".device = device")                                       \
    X(lc_fabric, max_restarts, "tests/programs/fabric_program.c", ".max_restarts = ")                                  \
    X(lc_fabric, progress_timeout, "tests/programs/fabric_program.c", ".progress_timeout = ")                          \
    X(lc_fabric, shard_size, "tests/core/ranks/test_ddp_sharded.c", ".shard_size = shard_size")                        \
    X(lc_log, prog_bar, "tests/callbacks/test_rich_progress_bar.c", ".prog_bar = true")                                \
    X(lc_log, reduce_fx, "tests/laws/deterministic_run.h", ".reduce_fx = LC_LOG_MIN")                                  \
    X(lc_log, sync_dist, "tests/core/logging/test_log_ranks.c", ".sync_dist = true")                                   \
    X(lc_log, rank_zero_only, "tests/core/logging/test_log_ranks.c", ".rank_zero_only = true")                         \
    X(lc_log, batch_size, "tests/core/logging/test_log_ranks.c", ".batch_size = (int64_t)m->seen[kind]")               \
    X(lc_launch, ranks, "tests/launch/test_launch.c", "launch -np 2")                                                  \
    X(lc_launch, max_restarts, "tests/launch/test_launch.c", "--max_restarts 1")                                       \
    X(lc_launch, progress_timeout, "tests/comm/control/test_last_calls.c", "--progress_timeout")                       \
    X(lc_mlflow, log_model, "tests/loggers/test_mlflow.c", ".log_model = true")                                        \
    X(lc_metric, task, "tests/metrics/test_metrics.c", ".task = LC_TASK_BINARY")                                       \
    X(lc_metric, num_classes, "tests/metrics/test_metrics.c", ".num_classes = C")                                      \
    X(lc_metric, num_labels, "tests/metrics/test_metrics.c", ".num_labels = L")                                        \
    X(lc_metric, average, "tests/metrics/test_metrics.c", ".average = LC_AVERAGE_MACRO")                               \
    X(lc_metric, zero_division, "tests/metrics/test_metrics.c", ".zero_division = 1")                                  \
    X(lc_metric, normalize, "tests/metrics/test_metrics.c", ".normalize = n")                                          \
    X(lc_metric, not_squared, "tests/metrics/test_metrics.c", ".not_squared = true")                                   \
    X(lc_metric, raw_values, "tests/metrics/test_metrics.c", ".raw_values = ")                                         \
    X(lc_metric, kappa_weights, "tests/metrics/test_metrics.c", ".kappa_weights = w")                                  \
    X(lc_multihead_attention_forward, causal, "tests/nn/test_nn.c", ".causal = true")                                  \
    X(lc_run, discard_predictions, "tests/callbacks/test_prediction_writer.c", ".discard_predictions = true")          \
    X(lc_scale_batch_size, max_bytes, "tests/core/tuner/test_tuner.c", ".max_bytes = small.planned_bytes")             \
    X(lc_load, not_strict, "tests/core/resume/test_load_weights.c", "not_strict = true")                               \
    X(lc_load, skip_mismatched, "tests/core/resume/test_load_weights.c", "skip_mismatched = true")

static void check_elsewhere(const char *kind, const char *argument, const char *path, const char *given)
{
    char *text = read_source(path);
    if (!strstr(text, given)) TEST_FAIL("%s: %s: \"%s\" is not in %s", kind, argument, given, path);
    free(text);
}

TEST(arguments_that_runs_show)
{
#define CHECK_ELSEWHERE(kind, argument, path, given) check_elsewhere(#kind, #argument, path, given);
    ELSEWHERE(CHECK_ELSEWHERE)
}

/* ---- each number among the arguments of each constructor has a row ---- */

static char *headers, *rows, *zeros; /* rows: of this file; zeros: of the others */
static char defaults[2000];          /* of the constructor that is checked: .lr = 1e-3, ... */

static void add_header(const char *name, char *text)
{
    (void)name;
    blank_out(text);
    for (char *p = text; (p = strstr(p, "\\\n"));) *p++ = ' ', *p++ = ' ';
    size_t n = strlen(headers), more = strlen(text);
    headers = realloc(headers, n + more + 1);
    CHECK(headers != NULL);
    memcpy(headers + n, text, more + 1);
}

/* Whether a line of the headers that defines a macro of `kind` takes the argument by its place. */
static bool by_place(const char *kind, const char *argument)
{
    char text[300];
    snprintf(text, sizeof text, ".%.200s = __VA_ARGS__", argument);
    for (const char *at = headers; (at = strstr(at, text)); at++) {
        const char *line = at, *name;
        while (line > headers && line[-1] != '\n') line--;
        size_t n = strlen(kind);
        for (name = line; (name = strstr(name, kind)) && name < at; name += n)
            if (!in_name(name[-1]) && !in_name(name[n])) return true;
    }
    return false;
}

/* Sets `defaults` to what is in the parentheses. */
static void set_defaults(const char *open)
{
    size_t n = 0;
    for (int depth = 0; n == 0 || depth > 0; n++) depth += (open[n] == '(') - (open[n] == ')');
    CHECK(n < sizeof defaults);
    snprintf(defaults, sizeof defaults, "%.*s", (int)n, open);
}

/* Whether the default of the argument is something other than 0. */
static bool is_set(const char *argument)
{
    char text[300];
    int n = snprintf(text, sizeof text, " .%.200s = ", argument);
    const char *value = strstr(defaults, text);
    if (!value) return false;
    value += n;
    return strncmp(value, "false", 5) != 0 && !(*value == '0' && strchr(",)", value[1]));
}

static int n_checked, n_set;

static void check_row(const char *kind, const char *argument)
{
    char row[400];
    if (!strcmp(argument, "size") || !strcmp(argument, "site") || !strcmp(argument, "list") || by_place(kind, argument))
        return;
    bool set = is_set(argument);
    n_checked++;
    n_set += set;
    int n = snprintf(row, sizeof row, "X(%.80s, %.200s", kind, argument);
    for (const char *at = set ? zeros : rows; (at = strstr(at, row)); at++)
        if (!in_name(at[n])) return;
    TEST_FAIL("%s has the argument %s, whose default is %s; it has no row in %s", kind, argument, set ? "not 0" : "0",
              set ? "test_zeros.c, test_zeros_data.c or test_zeros_runs.c" : "test_arguments.c");
}

/* Members that are not pointers, nor the length of an array that is another member. */
static void check_members(const char *kind, const char *body, const char *end)
{
    char text[2000], array[80];
    for (const char *p = body; p < end; p += strcspn(p, ";}") + 1) {
        size_t n = strcspn(p, ";}"), words = 0;
        if (n > (size_t)(end - p)) n = (size_t)(end - p);
        snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), p);
        if (strpbrk(text, "*(")) continue;
        for (char *name = text; *name; name++) {
            if (!in_name(*name) || (name > text && in_name(name[-1]))) continue;
            size_t length = 0;
            while (in_name(name[length])) length++;
            char after = name[length];
            name[length] = 0;
            snprintf(array, sizeof array, "*%.70s;", !strncmp(name, "n_", 2) ? name + 2 : "-");
            const char *of = strstr(body, array);
            bool is_name = words++ && strcmp(name, "char") != 0 && strcmp(name, "int") != 0;
            if (is_name && !(of && of < end)) check_row(kind, name);
            name[length] = after;
            name += length - 1;
        }
    }
}

static void check_constructor(const char *kind, const char *type)
{
    char text[100];
    const char *end = NULL, *body;
    snprintf(text, sizeof text, " %.90s", type);
    for (const char *at = headers; !end && (at = strstr(at, text)); at++) {
        const char *p = at;
        while (p > headers && (in_name(p[-1]) || strchr(" ,", p[-1]))) p--;
        if (p > headers && p[-1] == '}' && strchr(";,", at[strlen(text)])) end = p - 1;
    }
    if (!end) TEST_FAIL("%s has no struct %s", kind, type);
    for (body = end; body[-1] != '{'; body--) {
    }
    check_members(kind, body, end);
    const char *common = strstr(body, "LC_OPTIMIZER_ARGS");
    if (!common || common > end) return;
    CHECK((common = strstr(headers, "#define LC_OPTIMIZER_ARGS ")));
    common += strlen("#define LC_OPTIMIZER_ARGS ");
    check_members(kind, common, common + strcspn(common, "\n"));
}

TEST(every_argument_has_a_row)
{
    static const char *const endings[] = {".h", NULL};
    char kind[80], type[80];
    headers = calloc(1, 1);
    n_checked = n_set = 0;
    each_source("include/lightc", endings, add_header);
    rows = read_source("tests/module/test_arguments.c");
    zeros = calloc(1, 1);
    for (int i = 0; i < 3; i++) {
        static const char *const files[] = {"", "_data", "_runs"};
        char path[80];
        snprintf(path, sizeof path, "tests/module/test_zeros%s.c", files[i]);
        char *more = read_source(path);
        zeros = realloc(zeros, strlen(zeros) + strlen(more) + 1);
        CHECK(zeros != NULL);
        strcat(zeros, more);
        free(more);
    }
    for (const char *at = headers; (at = strstr(at, "\nLC_DEFAULTS("));) {
        set_defaults(strchr(at, '('));
        CHECK(sscanf(at++, "\nLC_DEFAULTS(%79[a-z0-9_], %79[a-z0-9_],", kind, type) == 2);
        check_constructor(kind, type);
    }
    CHECK(n_checked > 300 && n_set > 200);
    free(headers), free(rows), free(zeros);
}

TEST_MAIN
