/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of programs that were compiled with other headers: every struct of arguments and every vtable begins with its
 * size. A shorter one has defaults for the members beyond its end, which are not read; a longer one, and one without a
 * size, is an error with a message that explains it. */
#include "device/device.h"
#include "idle_ops.h"
#include "quiet_options.h"
#include "scratch.h"
#include "sources.h"
#include "test.h"

/* ---- structs of arguments ---- */

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
    char path[4200];
    snprintf(path, sizeof path, "%s/tests/data/files/fixtures/vector.npy",
             getenv("LIGHTC_TEST_SOURCE") ? getenv("LIGHTC_TEST_SOURCE") : ".");
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

/* Memory that contains the first `size` bytes of a struct, followed by bytes that must not be read. */
static void *begun(const void *full, size_t size)
{
    char *p = malloc(size + 4096);
    CHECK(p != NULL);
    memset(p, 0xff, size + 4096);
    memcpy(p, full, size);
    *(size_t *)(void *)p = size;
    return p;
}

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

static bool is_among(const char *const *names, const char *name)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names;
}

static int n_kinds;

static void check_has_row(const char *header, char *text)
{
    static const char *const rows[] = {
#define KIND(kind, ...) #kind,
        ARGUMENTS(KIND) NULL};
    char kind[80];
    for (const char *at = text; (at = strstr(at, "\nLC_DEFAULTS("));) {
        CHECK(sscanf(at++, "\nLC_DEFAULTS(%79[a-z0-9_],", kind) == 1);
        if (!is_among(rows, kind)) TEST_FAIL("%s_args of %s has no row", kind, header);
        n_kinds++;
    }
}

TEST(each_struct_with_defaults_has_a_row)
{
    n_kinds = 0;
    each_source("include/lightc", c_files, check_has_row);
    CHECK(n_kinds > 100);
}

/* ---- vtables: the slots beyond the end of a shorter one are not called, whatever they contain ---- */

static lc_status ok(void)
{
    return LC_OK;
}

/* Slots of any type; none of them is called. */
#define ANY(type) ((type)(void (*)(void))ok)

static int64_t two_samples(void *self)
{
    (void)self;
    return 2;
}
static lc_status one_number(void *self, lc_sample_spec *spec)
{
    (void)self;
    *spec = (lc_sample_spec){.n = 1, .fields = {{.name = "x", .dtype = LC_F32}}};
    return LC_OK;
}
static lc_status zero(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    (void)self, (void)index, (void)key, (void)scratch;
    memset(out[0], 0, sizeof(float));
    return LC_OK;
}
static int64_t epoch_of_two(void *self, int64_t epoch)
{
    (void)self, (void)epoch;
    return 2;
}
static lc_status in_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    (void)self, (void)epoch;
    for (int64_t i = 0; i < n; i++) indices[i] = i;
    return LC_OK;
}
static lc_status same_field(void *self, const lc_field *in, lc_field *out)
{
    (void)self;
    *out = *in;
    return LC_OK;
}
static lc_status copied(void *self, const lc_field *in, const void *src, const lc_field *out, void *dst, uint64_t key,
                        void *scratch)
{
    (void)self, (void)in, (void)out, (void)key, (void)scratch;
    memcpy(dst, src, sizeof(float));
    return LC_OK;
}
static lc_status no_begin(void *self, int64_t epoch, int64_t start)
{
    (void)self, (void)epoch, (void)start;
    return LC_OK;
}
static lc_status no_batch(void *self, lc_batch **out)
{
    (void)self;
    *out = NULL;
    return LC_OK;
}
static void nothing_freed(void *self)
{
    (void)self;
}
static lc_status validated(lc_module *self, const lc_batch *batch, int64_t i, int loader)
{
    (void)self, (void)batch, (void)i, (void)loader;
    return LC_OK;
}

static lc_dataset *two_numbers(void)
{
    static const lc_dataset_ops ops = {LC_DATASET_OPS_INIT, .name = "two", .length = two_samples,
                                       .describe = one_number, .get = zero};
    lc_dataset *d;
    CHECK_OK(lc_dataset_new(&ops, NULL, &d));
    return d;
}

/* An epoch of the loader. */
static lc_status drain(lc_dataloader *l)
{
    lc_batch *batch;
    LC_TRY(lc_dataloader_begin(l, 0, 0));
    do LC_TRY(lc_dataloader_next(l, &batch));
    while (batch);
    lc_dataloader_end(l);
    return LC_OK;
}

/* Uses each kind of object, from its creation to its end. */
static lc_status use_dataset(const lc_dataset_ops *ops)
{
    lc_dataset *d;
    float value;
    LC_TRY(lc_dataset_new(ops, NULL, &d));
    lc_status s = lc_dataset_get_many(d, 1, (const int64_t[]){1}, (const uint64_t[]){0}, (void *[]){&value}, NULL);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_sampler(const lc_sampler_ops *ops)
{
    lc_sampler sampler = {ops, NULL};
    lc_dataset *d = two_numbers();
    lc_dataloader *l = NULL;
    lc_status s = lc_dataloader_new(&l, .dataset = d, .sampler = &sampler);
    if (s >= 0) s = drain(l);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_transform(const lc_transform_ops *ops)
{
    lc_dataset *d = two_numbers(), *changed = NULL;
    float value;
    lc_status s = lc_dataset_transform(d, 0, (lc_transform){ops, NULL}, &changed);
    if (s >= 0) s = lc_dataset_read(changed, 0, 0, (void *[]){&value});
    lc_dataset_unref(changed);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_dataloader(const lc_dataloader_ops *ops)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_from_ops(ops, NULL, &l));
    lc_status s = drain(l);
    if (lc_dataloader_length(l, 0) != -1) s = lc_fail(LC_ERR_INTERNAL, "a length that was not given");
    lc_dataloader_free(l);
    return s;
}

static lc_status use_metric(const lc_metric_ops *ops)
{
    lc_metric *m;
    LC_TRY(lc_metric_from_ops(ops, NULL, &m));
    lc_status s = lc_metric_is_additive(m) ? lc_fail(LC_ERR_INTERNAL, "additive by itself") : LC_OK;
    lc_metric_free(m);
    return s;
}

/* A trainer that is given such an object, and a run of one batch. */
static lc_status run_with(lc_trainer_options *o, const lc_callback *cb)
{
    lc_trainer *t = NULL;
    lc_status s = lc_trainer_new(o, &t);
    if (s >= 0 && cb) s = lc_trainer_add_callback(t, *cb);
    lc_trainer_free(t);
    return s;
}

static lc_status use_logger(const lc_logger_ops *ops)
{
    lc_fabric *f = NULL;
    lc_logger logger = {ops, NULL};
    LC_TRY(lc_fabric_new(&f, .loggers = &logger, .n_loggers = 1, .default_root_dir = fresh_dir("run")));
    lc_status s = lc_fabric_log(f, "a", 1, 0);
    lc_fabric_free(f);
    return s;
}

static lc_status use_profiler(const lc_profiler_ops *ops)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_profiler profiler = {ops, NULL};
    o.profilers = &profiler;
    o.n_profilers = 1;
    return run_with(&o, NULL);
}

static lc_status use_callback(const lc_callback_ops *ops)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_callback cb = {ops, NULL};
    return run_with(&o, &cb);
}

static lc_status use_module(const lc_module_ops *ops)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_trainer *t;
    lc_module m;
    lc_module_init(&m, ops, 1);
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m);
    lc_trainer_free(t);
    lc_module_release(&m);
    /* There is no step to train with, which is an error. */
    return s < 0 && strstr(lc_error_message(), "training_step") ? LC_OK : s;
}

static lc_status use_datamodule(const lc_datamodule_ops *ops)
{
    static const lc_module_ops net = {LC_MODULE_OPS_INIT("net"), .validation_step = validated};
    lc_trainer_options o = quiet_options(NULL);
    lc_datamodule data = {ops, NULL};
    lc_trainer *t;
    lc_module m;
    lc_module_init(&m, &net, 1);
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_validate(t, &m, .datamodule = &data);
    lc_trainer_free(t);
    lc_module_release(&m);
    lc_datamodule_release(&data);
    return s < 0 && strstr(lc_error_message(), "val_dataloader") ? LC_OK : s;
}

static lc_status use_comm(const lc_comm_ops *ops)
{
    lc_comm *c;
    lc_status s = lc_comm_new(ops, NULL, 0, 1, &c);
    /* Its required slots are missing, which is an error. */
    return s < 0 && strstr(lc_error_message(), "lacks at least one") ? LC_OK : s;
}

static lc_status use_optimizer(const lc_optimizer_ops *ops)
{
    lc_optimizer *made;
    LC_TRY(lc_optimizer_new(ops, NULL, 0, &made));
    lc_optimizer_free(made);
    return LC_OK;
}

/* The sum of the weights of `module` below. */
static lc_tensor *sum_of_weights(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)batch, (void)i;
    return lc_sum(self->tensors[0].tensor);
}

static lc_status sgd_of_weights(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static const lc_module_ops weights_ops = {LC_MODULE_OPS_INIT("weights"), .training_step = sum_of_weights,
                                          .configure_optimizers = sgd_of_weights};

static void weights_init(lc_module *m)
{
    lc_module_init(m, &weights_ops, 1);
    lc_module_add_parameter(m, "weight", LC_F32, LC_ROW_MAJOR, 1, (const int64_t[]){3}, (lc_init){0});
}

/* An epoch of a trainer, a checkpoint, and a second trainer that continues from it. */
static lc_status train_twice(const lc_precision *precision)
{
    char path[4200];
    lc_status s = LC_OK;
    snprintf(path, sizeof path, "%s/weights.ckpt", fresh_dir("run"));
    for (int i = 0; i < 2 && s >= 0; i++) {
        lc_dataset *d = two_numbers();
        lc_dataloader *l;
        lc_trainer *t = NULL;
        lc_module m;
        lc_trainer_options o = quiet_options(NULL);
        o.precision_plugin = precision;
        o.max_epochs = i + 1;
        CHECK_OK(lc_dataloader_new(&l, .dataset = d));
        weights_init(&m);
        s = lc_trainer_new(&o, &t);
        if (s >= 0) s = lc_trainer_fit(t, &m, .train_dataloader = l, .ckpt_path = i ? path : NULL);
        if (s >= 0 && !i) s = lc_trainer_save_checkpoint(t, path, false);
        lc_trainer_free(t);
        lc_module_release(&m);
        lc_dataloader_free(l);
        lc_dataset_unref(d);
    }
    return s;
}

/* The same in a loop of the program's own. */
static lc_status loop_twice(const lc_precision *precision)
{
    char path[4200];
    lc_status s = LC_OK;
    snprintf(path, sizeof path, "%s/weights.ckpt", fresh_dir("run"));
    for (int i = 0; i < 2 && s >= 0; i++) {
        lc_fabric *f = NULL;
        lc_module m;
        weights_init(&m);
        lc_optimizer *sgd = lc_sgd(&m, .lr = 0.1);
        s = lc_fabric_new(&f, .precision_plugin = precision);
        if (s >= 0) s = lc_fabric_setup(f, &m, &sgd, 1);
        if (s >= 0 && i) s = lc_fabric_load(f, path, NULL);
        if (s >= 0) s = lc_fabric_begin(f);
        if (s >= 0) {
            lc_fabric_zero_grad(f);
            lc_fabric_backward(f, lc_sum(m.tensors[0].tensor));
            lc_fabric_step(f, sgd);
            s = lc_fabric_end(f);
        }
        if (s >= 0 && !i) s = lc_fabric_save(f, path, NULL);
        lc_fabric_free(f);
        lc_optimizer_free(sgd);
        lc_module_release(&m);
    }
    return s;
}

static lc_status use_precision(const lc_precision_ops *ops)
{
    const lc_precision precision = {ops, NULL};
    LC_TRY(train_twice(&precision));
    return loop_twice(&precision);
}

typedef lc_module_class lc_module_class_ops;

static lc_status make_weights(lc_module *self, const void *values, uint64_t seed)
{
    (void)values, (void)seed;
    weights_init(self);
    return LC_OK;
}

static lc_status use_module_class(const lc_module_class *c)
{
    lc_module *m;
    LC_TRY(lc_module_new(c, NULL, 1, &m));
    lc_module_free(m);
    return LC_OK;
}

/* As for one that a shared object has brought. */
static lc_status use_backend(const lc_backend_ops *ops)
{
    const lc_backend_ops *taken;
    LC_TRY(lc__backend_take("b", ops, &taken));
    lc_status s = ops->size < sizeof *ops && (taken->program_begin || taken->program_free)
                      ? lc_fail(LC_ERR_INTERNAL, "programs that it does not have")
                      : LC_OK;
    free((void *)(uintptr_t)taken);
    return s;
}

static const char *const hyper_names[] = {"lr", NULL}, *const no_names[] = {NULL};
static const double hyper_defaults[] = {0.1};

/* X(kind, the first slot that may be missing, the required ones) */
#define VTABLES(X)                                                                                                     \
    X(dataset, get_many, .name = "d", .length = two_samples, .describe = one_number, .get = zero)                      \
    X(sampler, free, .name = "s", .length = epoch_of_two, .order = in_order)                                           \
    X(transform, scratch_size, .name = "t", .describe = same_field, .apply = copied)                                   \
    X(dataloader, length, .name = "l", .begin = no_begin, .next = no_batch)                                            \
    X(metric, additive, .name = "m", .update = ANY(__typeof__(o.update)), .outputs = ANY(__typeof__(o.outputs)),       \
      .compute = ANY(__typeof__(o.compute)), .reset = nothing_freed, .save = ANY(__typeof__(o.save)),                  \
      .merge = ANY(__typeof__(o.merge)), .free = nothing_freed)                                                        \
    X(logger, log_hyperparameters, .name = "l", .start = no_run, .log_row = no_row)                                    \
    X(profiler, free, .name = "p", .span = no_span, .report = no_report)                                               \
    X(precision, scale_changes, .name = "p")                                                                           \
    X(backend, program_begin, .name = "b")                                                                             \
    X(callback, ranks, .name = "c")                                                                                    \
    X(module, training_step, .name = "m")                                                                              \
    X(module_class, release, .name = "m", .module_size = sizeof(lc_module), .init = make_weights)                      \
    X(datamodule, prepare_data, .name = "d")                                                                           \
    X(comm, state_bytes, .name = "c")                                                                                  \
    X(optimizer, initial_state, .name = "o", .hyper_names = hyper_names, .hyper_defaults = hyper_defaults,             \
      .state_names = no_names, .update = ANY(__typeof__(o.update)))

#define USE_ONE(kind, first, ...)                                                                                      \
    static lc_status use_one_##kind(const void *ops)                                                                   \
    {                                                                                                                  \
        return use_##kind(ops);                                                                                        \
    }
VTABLES(USE_ONE)

static void check_vtable(const char *name, void *ops, size_t size, size_t least, lc_status (*use)(const void *ops))
{
    void *shorter = begun(ops, least);
    if (use(shorter) < 0) TEST_FAIL("%s: %s", name, lc_error_message());
    free(shorter);
    *(size_t *)ops = size + 8;
    if (use(ops) >= 0 || !strstr(lc_error_message(), "newer")) TEST_FAIL("%s, larger: %s", name, lc_error_message());
    *(size_t *)ops = size;
}

#define CHECK_VTABLE(kind, first, ...)                                                                                 \
    {                                                                                                                  \
        lc_##kind##_ops o = {.size = sizeof o, __VA_ARGS__}, none = {0};                                               \
        check_vtable(#kind, &o, sizeof o, offsetof(lc_##kind##_ops, first), use_one_##kind);                           \
        CHECK(use_##kind(&none) < 0);                                                                                  \
        CHECK_CONTAINS(lc_error_message(), "_INIT");                                                                   \
    }

TEST(vtables)
{
    VTABLES(CHECK_VTABLE)
}

/* ---- each vtable in the headers is in the table above, or a function only returns it ---- */

/* Those that no program fills: schedules are added in this tree. */
static const char *const filled_here[] = {"scheduler", NULL};

static int n_vtables;

static void check_taken(const char *name, char *text)
{
    static const char *const taken[] = {
#define NAME_OF(kind, first, ...) #kind,
        VTABLES(NAME_OF) NULL};
    (void)name;
    blank_out(text);
    for (char *at = text; (at = strstr(at, "const lc_")); at++) {
        char kind[80];
        int n = 0;
        if (sscanf(at, "const lc_%79[a-z0-9_] *%n", kind, &n) != 1 || !n) continue;
        size_t length = strlen(kind);
        if (length < 7 || (strcmp(kind + length - 4, "_ops") != 0 && strcmp(kind + length - 6, "_class") != 0))
            continue;
        if (kind[length - 1] == 's' && kind[length - 2] == 'p') kind[length - 4] = 0;
        /* The type of a function that a plug-in exports is not a function that returns one to the program. */
        bool out = at[n] == '*',
             returned = !strncmp(at + n, "lc_", 3) && (at - text < 8 || strncmp(at - 8, "typedef ", 8));
        n_vtables++;
        if (!out && !returned && !is_among(taken, kind) && !is_among(filled_here, kind))
            TEST_FAIL("lc_%s%s is taken, and no row tries it", kind, strstr(kind, "_class") ? "" : "_ops");
    }
}

TEST(each_vtable_that_is_taken_has_a_row)
{
    n_vtables = 0;
    each_source("include/lightc", c_files, check_taken);
    CHECK(n_vtables > 15);
}

/* ---- literals, which have no size: what is in the reserved members is not ignored ---- */

static lc_status use_array(void *reserved)
{
    float values[2] = {1, 2};
    const lc_array a = {.field = {.name = "x", .dtype = LC_F32}, .data = values, .reserved = {NULL, reserved}};
    lc_dataset *d;
    LC_TRY(lc_array_dataset_new(2, 1, &a, &d));
    lc_dataset_unref(d);
    return LC_OK;
}

static lc_status use_share(void *reserved)
{
    lc_dataset *d = two_numbers();
    lc_dataloader *l;
    CHECK_OK(lc_dataloader_new(&l, .dataset = d));
    lc_status s = lc_dataloader_share(l, &(lc_share){.rank = 1, .size = 2, .reserved = {reserved, NULL}});
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_option(void *reserved)
{
    struct {
        int64_t width;
    } v = {1};
    lc_option row = LC_OPTION(__typeof__(v), width, LC_OPTION_INT, 0, 9, "of a layer");
    const lc_option_set set = {"own", &row, 1, &v};
    char *argv[] = {(char *)(uintptr_t) "program", NULL};
    void *storage = NULL;
    row.reserved[0] = reserved;
    lc_status s = lc_options_parse(&set, 1, NULL, 1, argv, &storage);
    lc_options_free(storage);
    return s;
}

static lc_status use_option_set(void *reserved)
{
    const lc_option_set set = {.title = "own", .reserved = {NULL, reserved}};
    char *argv[] = {(char *)(uintptr_t) "program", NULL};
    void *storage = NULL;
    lc_status s = lc_options_parse(&set, 1, NULL, 1, argv, &storage);
    lc_options_free(storage);
    return s;
}

static lc_status use_datasets(void *reserved)
{
    lc_datamodule made = {0};
    lc_dataset *d = two_numbers();
    lc_status s =
        lc_datamodule_from_datasets(&(lc_datasets){.train = d, .batch_size = 1, .reserved = {reserved, NULL}}, &made);
    lc_datamodule_release(&made);
    lc_dataset_unref(d);
    return s;
}

static lc_status use_metric_batch(void *reserved)
{
    const float score = 1;
    lc_metric *m = NULL;
    CHECK_OK(lc_metric_new("MeanMetric", &m));
    lc_status s =
        lc_metric_update(m, &(lc_metric_batch){.n = 1, .columns = 1, .scores = &score, .reserved = {reserved, NULL}});
    lc_metric_free(m);
    return s;
}

static lc_status use_comm_call(void *reserved)
{
    lc_comm *c;
    CHECK_OK(lc_comm_self(&c));
    lc_status s = lc_comm_start(c, &(lc_comm_call){.op = LC_COMM_BARRIER, .reserved = {NULL, reserved}}, NULL);
    lc_comm_free(c);
    return s;
}

static lc_status use_series(void *reserved)
{
    lc_plot *p = NULL;
    lc_plot_series s = {.n = 2, .y = numbers, .reserved = {NULL, reserved}};
    lc_status status = lc_plot_lines(1, &s, &p);
    lc_plot_free(p);
    return status;
}

static lc_status use_hyperparameters(void *reserved)
{
    struct {
        int64_t width;
    } v = {1};
    lc_option row = LC_OPTION(__typeof__(v), width, LC_OPTION_INT, 0, 9, "of a layer");
    lc_module m;
    row.reserved[0] = reserved;
    lc_module_init(&m, NULL, 1);
    lc_module_save_hyperparameters(&m, &row, 1, &v);
    lc_status s = lc_module_status(&m);
    lc_module_release(&m);
    return s;
}

static lc_status use_scheduler_config(void *reserved)
{
    static lc_optimizers list;
    memset(&list, 0, sizeof list);
    open_all();
    lc_scheduler *made = lc_exponential_lr(opt, .gamma = 0.5);
    lc_status s =
        lc_optimizers_add_scheduler(&list, (lc_scheduler_config){.scheduler = made, .reserved = {reserved, NULL}});
    if (s >= 0) lc_scheduler_free(list.schedulers[0].scheduler); /* taken over in both cases */
    close_all();
    return s;
}

static lc_status use_file_field(void *reserved)
{
    lc_dataset *d = NULL;
    open_all();
    lc_status s = lc_file_dataset_new(1, &(lc_file_field){.name = "x", .file = tokens, .reserved = {reserved}}, &d);
    lc_dataset_unref(d);
    close_all();
    return s;
}

/* An operator of the program with its own kernel: y = x, and a call of it. */
static lc_status infer_like_x(lc_infer *call)
{
    call->out[0] = *call->in[0];
    return LC_OK;
}

static void run_copy(const lc_call *call)
{
    memcpy(call->out[0].data, call->in[0].data, sizeof(float));
}

static lc_status call_operator(void *reserved, void *of_kernel)
{
    static lc_kernel kernel = {.name = "own", .layout = LC_WANT_ROW_MAJOR, .run = run_copy};
    static lc_op op = {.name = "own", .flags = LC_OP_NO_GRAD, .n_out = 1, .infer = infer_like_x, .kernel = &kernel};
    float value = 2;
    double read = 0;
    op.reserved[0] = reserved, kernel.reserved[1] = of_kernel;
    open_all();
    lc_tensor *in;
    CHECK_OK(lc_input_new(LC_F32, 0, NULL, LC_ROW_MAJOR, &value, &in));
    CHECK_OK(lc_step_begin(graph, 0, 0));
    lc_status s = lc_item(lc_op_call(&op, 1, &in, 0, NULL, 0, NULL, LC_HERE), &read);
    if (s >= 0) CHECK_EQ(read, 2);
    (void)!lc_step_end(graph);
    lc_tensor_unref(in);
    close_all();
    return s;
}

static lc_status use_operator(void *reserved)
{
    return call_operator(reserved, NULL);
}

static lc_status use_kernel(void *reserved)
{
    return call_operator(NULL, reserved);
}

static lc_status use_added_kernel(void *reserved)
{
    static lc_op op = {.name = "own", .n_out = 1, .infer = infer_like_x};
    static lc_kernel kernel = {.name = "own", .run = run_copy};
    kernel.reserved[0] = reserved;
    return lc_op_add_kernel(&op, "none", &kernel);
}

/* Public structs with neither a size nor reserved members. */
static const char *const fixed[] = {
    /* a vtable and its object, which grow through the vtable */
    "callback", "datamodule", "logger", "precision", "profiler", "sampler", "transform",
    /* values, which are whole: a place, a type, a range, a name and what it names, ... */
    "accumulation", "bad_index", "dims", "duration", "field", "hparam", "init", "metric_value", "named_number",
    "named_tensor", "named_text", "range", "rng_key", "sample_spec", "site", "text_pair", "type",
    /* filled by functions: lc_optimizers_add, lc_loaders_add */
    "loaders", "optimizer_config", "optimizers",
    /* made by the library, or by LC_PLUGIN */
    "backend_host", "batch", "call", "grad", "infer", "log_histogram", "log_image", "log_row", "log_text",
    "module_tensor", "outputs", "param_group", "plugin_info", "run_info", "segment", "span", "strategy_request",
    "update",
    /* what functions return, or write where the program says */
    "array_info", "checkpoint_file", "comm_stats", "device_info", "device_memory", "early_stopping_info", "graph_stats",
    "idx", "loader_times", "lr_find_result", "metrics", "model_checkpoint_info", "precision_times", "safetensor_info",
    "safetensor_piece", "scale_batch_size_result", "sparsity", NULL};

static int n_structs;

static void check_grows(const char *header, char *text)
{
    blank_out(text);
    for (char *at = text; (at = strstr(at, "struct lc_")); at++) {
        char kind[80];
        int n = 0;
        if (sscanf(at, "struct lc_%79[a-z0-9_] {%n", kind, &n) != 1 || !n) continue;
        char *end = strstr(at, "\n}");
        CHECK(end != NULL);
        *end = 0;
        const char *first = at + n + strspn(at + n, " \n");
        bool sized = !strncmp(first, "size_t size;", 12) || !strncmp(first, "LC_OPTIMIZER_ARGS", 17);
        bool grows = sized || strstr(first, "void *reserved[");
        if (grows == is_among(fixed, kind))
            TEST_FAIL("lc_%s of %s %s", kind, header,
                      grows ? "is among those that cannot grow" : "has neither a size nor reserved members");
        *end = '\n';
        n_structs++;
    }
}

TEST(each_struct_that_a_program_fills_can_grow)
{
    n_structs = 0;
    each_source("include/lightc", c_files, check_grows);
    CHECK(n_structs > 150);
}

TEST(reserved_members)
{
    static const struct {
        const char *name;
        lc_status (*use)(void *reserved);
    } rows[] = {{"lc_array", use_array},
                {"lc_share", use_share},
                {"lc_file_field", use_file_field},
                {"lc_op", use_operator},
                {"lc_kernel", use_kernel},
                {"lc_kernel", use_added_kernel},
                {"lc_option", use_option},
                {"lc_option", use_hyperparameters},
                {"lc_option_set", use_option_set},
                {"lc_datasets", use_datasets},
                {"lc_metric_batch", use_metric_batch},
                {"lc_comm_call", use_comm_call},
                {"lc_plot_series", use_series},
                {"lc_scheduler_config", use_scheduler_config}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].use(NULL) < 0) TEST_FAIL("%s: %s", rows[i].name, lc_error_message());
        CHECK_STATUS(rows[i].use(&n_vtables), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), rows[i].name);
        CHECK_CONTAINS(lc_error_message(), "newer");
    }
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
