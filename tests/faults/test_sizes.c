/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments and options of programs that were compiled with other headers: each struct of them begins with its size. A
 * shorter one has defaults for the members beyond its end, which are not read; a longer one, and one without a size, is
 * an error with a message that explains it. test_vtable_sizes.c has the vtables, test_reserved.c the structs without a
 * size. */
#include "begun.h"
#include "quiet_options.h"
#include "sources.h"

/* The status and message of a call. */
typedef struct outcome {
    lc_status status;
    char message[1024];
} outcome;

static outcome outcome_of(lc_status status)
{
    outcome o = {.status = status};
    if (status < 0) snprintf(o.message, sizeof o.message, "%s", lc_error_message());
    return o;
}

/* Objects for the calls of the tables. */
static lc_module module;
static lc_optimizer *opt;
static lc_trainer *trainer;
static lc_graph *graph;
static lc_array_file *tokens;
static lc_tensor *x;
static lc_fabric *fabric;
static const double numbers[] = {1, 2};
static lc_plot *plot;
static lc_tensor *picture;
static lc_multihead_attention attention;
static lc_rnn rnn;

static void open_all(void)
{
    static float values[] = {1, 3};
    const int64_t shape[] = {2, 3}, two[] = {1, 2};
    lc_trainer_options o = quiet_options(NULL);
    lc_module_init(&module, NULL, 1);
    lc_module_add_parameter(&module, "weight", LC_F32, LC_ROW_MAJOR, 2, shape, (lc_init){0});
    opt = lc_sgd(&module, .momentum = 0.5);
    CHECK_OK(lc_trainer_new(&o, &trainer));
    CHECK_OK(lc_graph_new(&graph));
    CHECK_OK(lc_plot_histogram(2, numbers, &plot));
    CHECK_OK(lc_tensor_new(LC_U8, 3, (const int64_t[]){1, 2, 2}, &picture));
    char path[PATH_MAX + 100];
    snprintf(path, sizeof path, "%s/tests/data/files/fixtures/vector.npy", source_root());
    CHECK_OK(lc_array_file_open(path, &tokens));
    CHECK_OK(lc_input_new(LC_F32, 2, two, LC_ROW_MAJOR, values, &x));
    CHECK_OK(lc_fabric_new(&fabric));
    memset(&attention, 0, sizeof attention);
    memset(&rnn, 0, sizeof rnn);
    lc_multihead_attention_init(&attention, &module, "attention", 4, 2);
    lc_lstm_init(&rnn, &module, "rnn", 2, 2);
}

static void close_all(void)
{
    lc_fabric_free(fabric);
    lc_tensor_unref(x);
    lc_graph_free(graph);
    lc_tensor_unref(picture);
    lc_plot_free(plot);
    lc_array_file_close(tokens);
    lc_trainer_free(trainer);
    lc_optimizer_free(opt);
    lc_module_release(&module);
}

static outcome of_callback(lc_status status, const lc_callback *cb)
{
    outcome o = outcome_of(status);
    if (status >= 0 && cb->ops->free) cb->ops->free(cb->self);
    return o;
}

static outcome of_optimizer(lc_optimizer *made)
{
    outcome o = outcome_of(made ? LC_OK : LC_ERR_ARGUMENT);
    lc_optimizer_free(made);
    return o;
}

static outcome of_scheduler(lc_scheduler *made)
{
    outcome o = outcome_of(made ? LC_OK : LC_ERR_ARGUMENT);
    lc_scheduler_free(made);
    return o;
}

static outcome of_transform(lc_status status, const lc_transform *t)
{
    outcome o = outcome_of(status);
    if (t->ops && t->ops->free) t->ops->free(t->self);
    return o;
}

static outcome of_module(void)
{
    return outcome_of(lc_module_status(&module));
}

static outcome of_step(void)
{
    outcome o = outcome_of(lc_step_run(graph));
    (void)!lc_step_end(graph);
    return o;
}

/* The outcome of a call that returns no status. */
static outcome of_message(void)
{
    return outcome_of(strcmp(lc_error_message(), "none") != 0 ? LC_ERR_ARGUMENT : LC_OK);
}

/* Structs that several kinds share, and structs with another name. */
typedef lc_norm_init_args lc_layer_norm_init_args, lc_rms_norm_init_args, lc_group_norm_init_args;
typedef lc_adam_args lc_adamw_args;

/* X(KIND of KIND_args, the call with `a`, which sets `o`) */
#define CALLBACK(X, name)                                                                                              \
    X(name, {                                                                                                          \
        lc_callback cb;                                                                                                \
        lc_status s = name##_new(a, &cb);                                                                              \
        o = of_callback(s, &cb);                                                                                       \
    })
#define OPTIMIZER(X, name) X(name, o = of_optimizer(name##_with(a)))
#define SCHEDULE(X, name)  X(name, o = of_scheduler(name##_with(a)))
#define OPERATOR(X, kind, call)                                                                                        \
    X(kind, {                                                                                                          \
        CHECK_OK(lc_step_begin(graph, 0, 0));                                                                          \
        (void)call;                                                                                                    \
        o = of_step();                                                                                                 \
    })
#define LAYER(X, kind, type, ...)                                                                                      \
    X(kind, {                                                                                                          \
        static type layer;                                                                                             \
        memset(&layer, 0, sizeof layer);                                                                               \
        kind##_with(&layer, __VA_ARGS__, a);                                                                           \
        o = of_module();                                                                                               \
    })

/* `before`: the arguments before `out`, in parentheses. */
#define TRANSFORM(X, name, before)                                                                                     \
    X(name, {                                                                                                          \
        lc_transform t = {0};                                                                                          \
        o = of_transform(LC_APPLY_(name##_with, LC_OPEN_ before & t, a), &t);                                          \
    })

#define ARGUMENTS(X)                                                                                                   \
    CALLBACK(X, lc_model_checkpoint)                                                                                   \
    CALLBACK(X, lc_early_stopping)                                                                                     \
    CALLBACK(X, lc_progress_bar)                                                                                       \
    CALLBACK(X, lc_rich_progress_bar)                                                                                  \
    CALLBACK(X, lc_model_summary)                                                                                      \
    CALLBACK(X, lc_learning_rate_monitor)                                                                              \
    CALLBACK(X, lc_gradient_accumulation_scheduler)                                                                    \
    CALLBACK(X, lc_weight_averaging)                                                                                   \
    CALLBACK(X, lc_ema_weight_averaging)                                                                               \
    CALLBACK(X, lc_stochastic_weight_averaging)                                                                        \
    CALLBACK(X, lc_finetuning)                                                                                         \
    CALLBACK(X, lc_backbone_finetuning)                                                                                \
    CALLBACK(X, lc_model_pruning)                                                                                      \
    CALLBACK(X, lc_on_exception_checkpoint)                                                                            \
    CALLBACK(X, lc_spike_detection)                                                                                    \
    CALLBACK(X, lc_gradient_norm_monitor)                                                                              \
    CALLBACK(X, lc_weight_histogram)                                                                                   \
    CALLBACK(X, lc_throughput_monitor)                                                                                 \
    CALLBACK(X, lc_device_stats_monitor)                                                                               \
    CALLBACK(X, lc_prediction_writer)                                                                                  \
    CALLBACK(X, lc_notifier)                                                                                           \
    X(lc_lambda, {                                                                                                     \
        lc_callback cb;                                                                                                \
        lc_status s = lc_lambda_callback_new(a, &cb);                                                                  \
        o = of_callback(s, &cb);                                                                                       \
    })                                                                                                                 \
    X(lc_lr_find, {                                                                                                    \
        lc_callback cb;                                                                                                \
        lc_status s = lc_learning_rate_finder_new(a, &cb);                                                             \
        o = of_callback(s, &cb);                                                                                       \
    })                                                                                                                 \
    X(lc_scale_batch_size, {                                                                                           \
        lc_callback cb;                                                                                                \
        lc_status s = lc_batch_size_finder_new(a, &cb);                                                                \
        o = of_callback(s, &cb);                                                                                       \
    })                                                                                                                 \
    X(lc_unfreeze, o = outcome_of(lc_finetuning_unfreeze_with(&module, opt, a)))                                       \
    X(lc_metric, {                                                                                                     \
        lc_metric *m = NULL;                                                                                           \
        o = outcome_of(lc_metric_new_with("Accuracy", &m, a));                                                         \
        lc_metric_free(m);                                                                                             \
    })                                                                                                                 \
    X(lc_plot_lines, {                                                                                                 \
        lc_plot *p = NULL;                                                                                             \
        o = outcome_of(lc_plot_lines_with(1, &(lc_plot_series){.n = 2, .y = numbers}, &p, a));                         \
        lc_plot_free(p);                                                                                               \
    })                                                                                                                 \
    X(lc_plot_histogram, {                                                                                             \
        lc_plot *p = NULL;                                                                                             \
        o = outcome_of(lc_plot_histogram_with(2, numbers, &p, a));                                                     \
        lc_plot_free(p);                                                                                               \
    })                                                                                                                 \
    X(lc_plot_pictures, {                                                                                              \
        lc_plot *p = NULL;                                                                                             \
        o = outcome_of(lc_plot_pictures_with(picture, &p, a));                                                         \
        lc_plot_free(p);                                                                                               \
    })                                                                                                                 \
    X(lc_plot_text, {                                                                                                  \
        char *text = NULL;                                                                                             \
        o = outcome_of(lc_plot_text_with(plot, &text, a));                                                             \
        free(text);                                                                                                    \
    })                                                                                                                 \
    X(lc_graph, {                                                                                                      \
        lc_graph *g = NULL;                                                                                            \
        o = outcome_of(lc_graph_new_with(&g, a));                                                                      \
        lc_graph_free(g);                                                                                              \
    })                                                                                                                 \
    X(lc_fabric, {                                                                                                     \
        lc_fabric *f = NULL;                                                                                           \
        o = outcome_of(lc_fabric_new_with(&f, a));                                                                     \
        lc_fabric_free(f);                                                                                             \
    })                                                                                                                 \
    X(lc_dataloader, {                                                                                                 \
        lc_dataloader *l = NULL;                                                                                       \
        o = outcome_of(lc_dataloader_new_with(&l, a));                                                                 \
    })                                                                                                                 \
    X(lc_idx, {                                                                                                        \
        lc_dataset *d = NULL;                                                                                          \
        o = outcome_of(lc_idx_dataset_new_with("/nowhere", "/nowhere", &d, a));                                        \
    })                                                                                                                 \
    X(lc_image, {                                                                                                      \
        lc_dataset *d = NULL;                                                                                          \
        o = outcome_of(lc_image_folder_new_with("/nowhere", &d, a));                                                   \
    })                                                                                                                 \
    X(lc_array_file, {                                                                                                 \
        lc_array_file *f = NULL;                                                                                       \
        o = outcome_of(lc_array_file_open_with("/nowhere", &f, a));                                                    \
    })                                                                                                                 \
    X(lc_file_windows, {                                                                                               \
        lc_dataset *d = NULL;                                                                                          \
        o = outcome_of(lc_file_windows_new_with(tokens, &d, a));                                                       \
    })                                                                                                                 \
    TRANSFORM(X, lc_transform_to_dtype, (LC_F32, ))                                                                    \
    TRANSFORM(X, lc_transform_resize, ())                                                                              \
    TRANSFORM(X, lc_transform_pad, (1, 1, 1, 1, ))                                                                     \
    TRANSFORM(X, lc_transform_random_crop, (2, 2, ))                                                                   \
    TRANSFORM(X, lc_transform_random_resized_crop, (2, 2, ))                                                           \
    TRANSFORM(X, lc_transform_random_rotation, (LC_RANGE(-5, 5), ))                                                    \
    TRANSFORM(X, lc_transform_random_affine, (LC_RANGE(-5, 5), ))                                                      \
    TRANSFORM(X, lc_transform_random_perspective, ())                                                                  \
    TRANSFORM(X, lc_transform_color_jitter, ())                                                                        \
    TRANSFORM(X, lc_transform_gaussian_blur, (3, 3, ))                                                                 \
    TRANSFORM(X, lc_transform_random_erasing, ())                                                                      \
    X(lc_transform_policy, {                                                                                           \
        lc_transform t = {0};                                                                                          \
        o = of_transform(lc_transform_rand_augment_with(&t, a), &t);                                                   \
    })                                                                                                                 \
    X(lc_mixed_precision, {                                                                                            \
        lc_precision p = {0};                                                                                          \
        o = outcome_of(lc_mixed_precision_with(&p, a));                                                                \
        if (p.ops && p.ops->teardown) p.ops->teardown(p.self);                                                         \
    })                                                                                                                 \
    X(lc_image_shards_pack, {                                                                                          \
        int64_t shards;                                                                                                \
        o = outcome_of(lc_image_shards_pack_with("/nowhere", "/nowhere/s", &shards, a));                               \
    })                                                                                                                 \
    X(lc_mlflow, {                                                                                                     \
        lc_logger l;                                                                                                   \
        o = outcome_of(lc_mlflow_logger_new_with(&l, a));                                                              \
    })                                                                                                                 \
    X(lc_clip, {                                                                                                       \
        (void)lc_fabric_clip_gradients_at(fabric, opt, a);                                                             \
        o = of_message();                                                                                              \
    })                                                                                                                 \
    X(lc_log, {                                                                                                        \
        lc_log_at(&module, "a", x, a);                                                                                 \
        o = of_message();                                                                                              \
    })                                                                                                                 \
    X(lc_load, o = outcome_of(lc_module_load_weights_with(&module, "/nowhere.safetensors", NULL, a)))                  \
    X(lc_run, o = outcome_of(lc_trainer_fit_with(trainer, &module, a)))                                                \
    X(lc_launch, o = outcome_of(lc_launch_with(NULL, a)))                                                              \
    OPTIMIZER(X, lc_sgd)                                                                                               \
    OPTIMIZER(X, lc_adam)                                                                                              \
    OPTIMIZER(X, lc_adamw)                                                                                             \
    OPTIMIZER(X, lc_rmsprop)                                                                                           \
    OPTIMIZER(X, lc_adagrad)                                                                                           \
    OPTIMIZER(X, lc_adadelta)                                                                                          \
    OPTIMIZER(X, lc_adamax)                                                                                            \
    OPTIMIZER(X, lc_nadam)                                                                                             \
    OPTIMIZER(X, lc_radam)                                                                                             \
    OPTIMIZER(X, lc_rprop)                                                                                             \
    OPTIMIZER(X, lc_lbfgs)                                                                                             \
    OPTIMIZER(X, lc_muon)                                                                                              \
    SCHEDULE(X, lc_step_lr)                                                                                            \
    SCHEDULE(X, lc_multi_step_lr)                                                                                      \
    SCHEDULE(X, lc_exponential_lr)                                                                                     \
    SCHEDULE(X, lc_constant_lr)                                                                                        \
    SCHEDULE(X, lc_linear_lr)                                                                                          \
    SCHEDULE(X, lc_cosine_annealing_lr)                                                                                \
    SCHEDULE(X, lc_cosine_annealing_warm_restarts)                                                                     \
    SCHEDULE(X, lc_polynomial_lr)                                                                                      \
    SCHEDULE(X, lc_one_cycle_lr)                                                                                       \
    SCHEDULE(X, lc_cyclic_lr)                                                                                          \
    SCHEDULE(X, lc_reduce_lr_on_plateau)                                                                               \
    SCHEDULE(X, lc_sequential_lr)                                                                                      \
    SCHEDULE(X, lc_chained_scheduler)                                                                                  \
    SCHEDULE(X, lc_swa_lr)                                                                                             \
    SCHEDULE(X, lc_lambda_lr)                                                                                          \
    OPERATOR(X, lc_reduce, lc_sum_at(a, LC_HERE))                                                                      \
    OPERATOR(X, lc_arg, lc_argmax_at(a, LC_HERE))                                                                      \
    OPERATOR(X, lc_clamp, lc_clamp_at(a, LC_HERE))                                                                     \
    OPERATOR(X, lc_gelu, lc_gelu_at(a, LC_HERE))                                                                       \
    OPERATOR(X, lc_elu, lc_elu_at(a, LC_HERE))                                                                         \
    OPERATOR(X, lc_random, lc_uniform_at(0, a, LC_HERE))                                                               \
    OPERATOR(X, lc_leaky_relu, lc_leaky_relu_at(a, LC_HERE))                                                           \
    OPERATOR(X, lc_topk, lc_topk_at(x, NULL, 1, a, LC_HERE))                                                           \
    OPERATOR(X, lc_loss, lc_mse_loss_at(x, a, LC_HERE))                                                                \
    OPERATOR(X, lc_cosine, lc_cosine_similarity_at(x, x, a, LC_HERE))                                                  \
    OPERATOR(X, lc_conv, lc_conv2d_at(x, x, a, LC_HERE))                                                               \
    OPERATOR(X, lc_pool, lc_max_pool2d_at(x, a, LC_HERE))                                                              \
    OPERATOR(X, lc_interpolate, lc_interpolate_at(x, a, LC_HERE))                                                      \
    OPERATOR(X, lc_batch_norm, lc_batch_norm_at(x, NULL, a, LC_HERE))                                                  \
    OPERATOR(X, lc_norm, lc_layer_norm_at(x, NULL, a, LC_HERE))                                                        \
    OPERATOR(X, lc_rms_norm, lc_rms_norm_at(x, a, LC_HERE))                                                            \
    OPERATOR(X, lc_embedding, lc_embedding_at(x, a, LC_HERE))                                                          \
    OPERATOR(X, lc_cross_entropy, lc_cross_entropy_at(x, a, LC_HERE))                                                  \
    OPERATOR(X, lc_sdpa, lc_sdpa_at(x, x, a, LC_HERE))                                                                 \
    OPERATOR(X, lc_rnn, lc_lstm_at(x, x, a, LC_HERE))                                                                  \
    OPERATOR(X, lc_multihead_attention_forward, lc_multihead_attention_forward_at(&attention, a, LC_HERE))             \
    OPERATOR(X, lc_rnn_forward, lc_rnn_forward_at(&rnn, a, LC_HERE))                                                   \
    LAYER(X, lc_linear_init, lc_linear, &module, "l", 2)                                                               \
    LAYER(X, lc_conv_init, lc_conv, 2, false, &module, "l", 1, 1)                                                      \
    LAYER(X, lc_batch_norm_init, lc_batch_norm_layer, 2, &module, "l")                                                 \
    LAYER(X, lc_layer_norm_init, lc_layer_norm, &module, "l")                                                          \
    LAYER(X, lc_rms_norm_init, lc_rms_norm, &module, "l")                                                              \
    LAYER(X, lc_group_norm_init, lc_group_norm, &module, "l", 1)                                                       \
    LAYER(X, lc_embedding_init, lc_embedding, &module, "l", 2)                                                         \
    LAYER(X, lc_pool_init, lc_pool, LC_POOL_MAX, &module, "l")                                                         \
    LAYER(X, lc_activation_init, lc_activation, &module, "l")                                                          \
    LAYER(X, lc_multihead_attention_init, lc_multihead_attention, &module, "l", 4)                                     \
    LAYER(X, lc_rnn_init, lc_rnn, false, &module, "l", 2)                                                              \
    LAYER(X, lc_resnet_init, lc_resnet, 20, &module, "l")

#define CALL_WITH(kind, ...)                                                                                           \
    static outcome call_##kind(const kind##_args *a)                                                                   \
    {                                                                                                                  \
        outcome o;                                                                                                     \
        lc_fail(LC_OK, "none");                                                                                        \
        open_all();                                                                                                    \
        __VA_ARGS__;                                                                                                   \
        close_all();                                                                                                   \
        return o;                                                                                                      \
    }
ARGUMENTS(CALL_WITH)

#define CHECK_ARGUMENTS(kind, ...)                                                                                     \
    {                                                                                                                  \
        kind##_args full = kind##_defaults(), none;                                                                    \
        kind##_args *least = begun(&full, sizeof(size_t));                                                             \
        outcome want = call_##kind(&full), got = call_##kind(least);                                                   \
        if (got.status != want.status || strcmp(got.message, want.message) != 0)                                       \
            TEST_FAIL("%s: \"%s\", and with the defaults \"%s\"", #kind, got.message, want.message);                   \
        free(least);                                                                                                   \
        full.size = sizeof full + 8;                                                                                   \
        got = call_##kind(&full);                                                                                      \
        if (got.status >= 0 || !strstr(got.message, "newer")) TEST_FAIL("%s, larger: \"%s\"", #kind, got.message);     \
        memset(&none, 0, sizeof none);                                                                                 \
        got = call_##kind(&none);                                                                                      \
        if (got.status >= 0 || !strstr(got.message, "_defaults()"))                                                    \
            TEST_FAIL("%s, without a size: \"%s\"", #kind, got.message);                                               \
    }

TEST(arguments)
{
    ARGUMENTS(CHECK_ARGUMENTS)
}

/* ---- each struct with defaults in the headers is in the table above ---- */

static int n_kinds;

static void check_has_row(const char *header, char *text)
{
    static const char *const rows[] = {
#define KIND(kind, ...) #kind,
        ARGUMENTS(KIND) NULL};
    char kind[80];
    for (const char *at = text; (at = strstr(at, "\nLC_DEFAULTS("));) {
        CHECK(sscanf(at++, "\nLC_DEFAULTS(%79[a-z0-9_],", kind) == 1);
        if (!is_one_of(kind, rows)) TEST_FAIL("%s_args of %s has no row", kind, header);
        n_kinds++;
    }
}

TEST(each_struct_with_defaults_has_a_row)
{
    n_kinds = 0;
    each_source("include/lightc", c_files, check_has_row);
    CHECK(n_kinds > 100);
}

/* The trainer's options, whose defaults are not zeros. */
TEST(options)
{
    lc_trainer_options full = quiet_options(NULL), none;
    lc_trainer *t;
    full.max_epochs = 7;
    lc_trainer_options *shorter = begun(&full, offsetof(lc_trainer_options, min_epochs));
    CHECK_OK(lc_trainer_new(shorter, &t));
    CHECK_EQ(lc_trainer_get_options(t)->max_epochs, 7);
    CHECK_EQ(lc_trainer_get_options(t)->log_every_n_steps, 50);
    CHECK(lc_trainer_get_options(t)->use_distributed_sampler);
    lc_trainer_free(t);
    free(shorter);
    full.size = sizeof full + 8;
    CHECK_STATUS(lc_trainer_new(&full, &t), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "newer");
    memset(&none, 0, sizeof none);
    CHECK_STATUS(lc_trainer_new(&none, &t), LC_ERR_ARGUMENT);
    CHECK_CONTAINS(lc_error_message(), "LC_TRAINER_OPTIONS_INIT");
}

TEST_MAIN
