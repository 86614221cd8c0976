/* SPDX-License-Identifier: Apache-2.0 */
/* What callbacks do, against numbers that are known; how they fail. That runs with them go on bit for bit is shown by
 * test_callbacks_resume.c, that weights end as with Lightning by test_torch_callbacks.c. */
#define _GNU_SOURCE /* strcasestr */
#include "callback_net.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a run of the network ---- */

typedef struct run {
    char dir[256];
    net m;
    memory_logger rows;
    lc_logger logger;
    lc_trainer_options o;
    lc_trainer *t;
} run;

static void run_init(run *r)
{
    CHECK(world_dir(r->dir, sizeof r->dir));
    net_init(&r->m);
    memset(&r->rows, 0, sizeof r->rows);
    r->logger = (lc_logger){&memory_ops, &r->rows};
    r->o = world_options(r->dir);
    r->o.enable_checkpointing = LC_OFF;
    r->o.max_epochs = 2;
    r->o.log_every_n_steps = 1;
    r->o.loggers = &r->logger;
    r->o.n_loggers = 1;
    r->t = NULL;
}

static lc_status run_fit(run *r, lc_callback *callbacks, int n)
{
    r->o.callbacks = callbacks;
    r->o.n_callbacks = n;
    CHECK_OK(lc_trainer_new(&r->o, &r->t));
    return lc_trainer_fit(r->t, &r->m.base, NULL);
}

static void run_release(run *r)
{
    lc_trainer_free(r->t);
    net_release(&r->m);
    world_remove(r->dir);
}

/* Number behind " NAME=" the nth time; NaN if it is not there. */
static double logged(const run *r, const char *name, int nth)
{
    char key[128];
    snprintf(key, sizeof key, " %s=", name);
    const char *at = r->rows.text;
    while ((at = strstr(at, key)) && nth-- > 0) at++;
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

static char *slurp(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *data = calloc(1, 1 << 20);
    *n = f ? fread(data, 1, (1 << 20) - 1, f) : 0;
    if (f) fclose(f);
    return data;
}

/* ---- gradients ---- */

typedef struct norms {
    double want[64], largest[64];
    int n;
} norms;

static lc_status read_norms(void *context, lc_trainer *t, lc_optimizer *opt)
{
    norms *w = context;
    float g[64];
    double sum = 0, largest = 0;
    (void)t;
    for (int i = 0; i < opt->groups[0].n_parameters; i++) {
        lc_tensor *p = opt->groups[0].parameters[i];
        int64_t n = lc_tensor_numel(p);
        LC_TRY(lc_tensor_read(lc_gradient(p), g, (size_t)n * sizeof *g));
        for (int64_t k = 0; k < n; k++) {
            sum += (double)g[k] * g[k];
            largest = fabs((double)g[k]) > largest ? fabs((double)g[k]) : largest;
        }
    }
    w->want[w->n] = sqrt(sum);
    w->largest[w->n++] = largest;
    return LC_OK;
}

TEST(gradient_norms_are_those_of_the_gradients_before_clipping)
{
    run r;
    norms w = {0};
    lc_callback cb[3];
    run_init(&r);
    r.o.accumulate_grad_batches = 2;
    r.o.gradient_clip_val = 0.1;
    CHECK_OK(lc_gradient_norm_monitor_new(NULL, &cb[0]));
    CHECK_OK(lc_gradient_norm_monitor_new(&(lc_gradient_norm_monitor_args){.norm_type = INFINITY, .total_only = true},
                                          &cb[1]));
    CHECK_OK(lc_lambda_callback_new(&(lc_lambda_args){.context = &w, .on_before_optimizer_step = read_norms}, &cb[2]));
    CHECK_OK(run_fit(&r, cb, 3));
    CHECK_EQ(w.n, 6);
    for (int i = 0; i < w.n; i++) {
        CHECK_NEAR(logged(&r, "grad_2.0_norm_total", i), w.want[i], 1e-5 * w.want[i]);
        CHECK_NEAR(logged(&r, "grad_inf_norm_total", i), w.largest[i], 1e-5 * w.largest[i]);
    }
    CHECK(logged(&r, "grad_2.0_norm/head.weight", 0) > 0);
    run_release(&r);
}

/* ---- histograms ---- */

typedef struct histogram_log {
    char names[2048];
    int n;
    double count, sum;
} histogram_log;

static lc_status count_histogram(void *self, const lc_log_histogram *h)
{
    histogram_log *l = self;
    size_t at = strlen(l->names);
    double sum = 0;
    snprintf(l->names + at, sizeof l->names - at, "%s@%lld ", h->name, (long long)h->step);
    for (int i = 0; i < h->n_bins; i++) sum += h->counts[i];
    CHECK_NEAR(sum, h->count, 0);
    l->n++;
    l->count += h->count;
    return LC_OK;
}
static lc_status nothing_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}
static const lc_logger_ops histogram_ops = {LC_LOGGER_OPS_INIT, .name = "histograms", .start = memory_start,
                                            .log_row = nothing_row, .log_histogram = count_histogram};

TEST(histograms_of_weights_and_gradients)
{
    run r;
    histogram_log l = {0};
    lc_callback cb;
    run_init(&r);
    r.logger = (lc_logger){&histogram_ops, &l};
    CHECK_OK(lc_weight_histogram_new(&(lc_weight_histogram_args){.gradients = true, .every_n_epochs = 2}, &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    CHECK_EQ(l.n, 2 * 6); /* six parameters, once in two epochs */
    CHECK_NEAR(l.count, 2 * (40 + 8 + 8 + 8 + 8 + 1), 0);
    CHECK_CONTAINS(l.names, "backbone.l1.weight@11 backbone.l1.weight.grad@11 ");
    run_release(&r);
}

/* ---- spikes: batches that Lightning's SpikeDetection calls spikes, recorded from it ---- */

static const double losses[24] = {1.843, 1.977, 1.822, 1.912, 1.875, 1.489, 1.408, 9.0,   8.0, 1.391, 1.797, 1.432,
                                  1.602, 1.336, 1.383, NAN,   1.281, 1.371, 1.114, 1.195, 6.5, 0.688, 1.055, 0.905};

static lc_tensor *scripted_step(lc_module *self, const lc_batch *b, int64_t i)
{
    world *m = (world *)self;
    (void)b;
    return lc_mul_scalar(lc_sum(m->w), losses[i]);
}
static lc_status sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 1e-7));
}
static lc_status scripted_train(lc_module *self, lc_loaders *out)
{
    return lc_loaders_add(out, numbers_new(((world *)self)->n_train, 1, false));
}
static const lc_module_ops scripted_ops = {LC_MODULE_OPS_INIT("scripted"), .training_step = scripted_step,
                                           .configure_optimizers = sgd, .train_dataloader = scripted_train};

static lc_status fit_scripted(const lc_spike_detection_args *args, const char *dir, double *w, int64_t *steps)
{
    world m;
    lc_trainer *t;
    lc_callback cb;
    float value;
    world_init(&m, &scripted_ops, 24, 0);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 1;
    o.enable_checkpointing = LC_OFF;
    o.callbacks = &cb;
    o.n_callbacks = 1;
    CHECK_OK(lc_spike_detection_new(args, &cb));
    CHECK_OK(lc_trainer_new(&o, &t));
    lc_status s = lc_trainer_fit(t, &m.base, NULL);
    CHECK_OK(lc_tensor_read(m.w, &value, sizeof value));
    *w = value;
    *steps = lc_trainer_global_step(t);
    char *message = strdup(lc_error_message());
    lc_trainer_free(t);
    world_release(&m);
    if (s < 0) lc_fail(s, "%s", message);
    free(message);
    return s;
}

TEST(spikes_are_those_of_lightning_and_are_skipped)
{
    static const struct {
        lc_spike_detection_args args;
        const char *want;
    } cases[] = {
        {{.skip = true}, "[6, 7, 7, 8, 14, 15, 19, 20]\n"},
        {{.skip = true, .window = 4, .rtol = 0.5, .warmup = 3}, "[6, 7, 7, 8, 14, 15, 19, 20]\n"},
        {{.skip = true, .atol = 5, .rtol = LC_ZERO}, "[6, 7, 7, 8, 14, 15, 19, 20]\n"},
        {{.skip = true, .mode = "max", .rtol = 0.3},
         "[7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 18, 19, 19, 20, 20, 21, "
         "21, 22, 22, 23]\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char dir[256], path[300];
        size_t n;
        double w;
        int64_t steps;
        CHECK(world_dir(dir, sizeof dir));
        CHECK_OK(fit_scripted(&cases[i].args, dir, &w, &steps));
        snprintf(path, sizeof path, "%s/skip_batches.json", dir);
        char *list = slurp(path, &n);
        CHECK_STR(list, cases[i].want);
        CHECK_EQ(steps, 24);
        CHECK(isfinite(w)); /* the update of the batch that was not a number was left out */
        free(list);
        world_remove(dir);
    }
}

TEST(a_spike_ends_the_run)
{
    char dir[256], path[300];
    double w;
    int64_t steps;
    CHECK(world_dir(dir, sizeof dir));
    snprintf(path, sizeof path, "%s/bad.json", dir);
    CHECK_STATUS(fit_scripted(&(lc_spike_detection_args){.exclude_batches_path = path}, dir, &w, &steps), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "spike detected in batch 7");
    CHECK(access(path, R_OK) == 0);
    world_remove(dir);
}

/* ---- averages: the world's weight moves by -lr * mean(batch), so that its average is known ---- */

typedef struct seen {
    double w[64];
    int n;
} seen;

static lc_status see(void *context, lc_trainer *t, const lc_batch *b, int64_t i, int d)
{
    seen *s = context;
    float w;
    (void)b, (void)i, (void)d;
    LC_TRY(lc_tensor_read(lc_module_find(lc_trainer_module(t), "w"), &w, sizeof w));
    s->w[s->n++] = w;
    return LC_OK;
}
static lc_tensor *mean_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mul(lc_sum(((world *)self)->w), lc_mean(b->x));
}
static lc_status no_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return LC_OK;
}
static lc_status plain_sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}
static lc_status one_batch(lc_module *self, lc_loaders *out)
{
    (void)self;
    return lc_loaders_add(out, numbers_new(1, 1, false));
}
static const lc_module_ops averaged_ops = {LC_MODULE_OPS_INIT("averaged"),     .training_step = mean_step,
                                           .validation_step = no_step,         .configure_optimizers = plain_sgd,
                                           .train_dataloader = scripted_train, .val_dataloader = one_batch};

TEST(validation_and_the_end_see_the_moving_average)
{
    char dir[256], path[300];
    world m;
    seen s = {0};
    lc_trainer *t;
    lc_callback cb[2];
    float w;
    CHECK(world_dir(dir, sizeof dir));
    world_init(&m, &averaged_ops, 4, 1);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 3;
    o.enable_checkpointing = LC_OFF;
    o.callbacks = cb;
    o.n_callbacks = 2;
    CHECK_OK(lc_ema_weight_averaging_new(&(lc_ema_weight_averaging_args){.decay = 0.75}, &cb[0]));
    CHECK_OK(lc_lambda_callback_new(&(lc_lambda_args){.context = &s, .on_validation_batch_start = see}, &cb[1]));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base, NULL));
    double weight = 1, average = 1;
    CHECK_EQ(s.n, 3);
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int i = 0; i < 4; i++) {
            weight -= 0.1 * i;
            average = epoch == 0 && i == 0 ? weight : 0.75 * average + 0.25 * weight;
        }
        CHECK_NEAR(s.w[epoch], average, 1e-6);
    }
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK_NEAR(w, average, 1e-6);
    /* Whoever loads the checkpoint gets the average; what training goes on with stands beside it. */
    lc_checkpoint *c;
    snprintf(path, sizeof path, "%s/end.ckpt", dir);
    CHECK_OK(lc_trainer_save_checkpoint(t, path, false));
    lc_trainer_free(t);
    CHECK_OK(lc_checkpoint_open(path, &c));
    CHECK_OK(lc_safetensors_load(lc_checkpoint_part(c, LC_CKPT_MODEL), "w", m.w));
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK_NEAR(w, average, 1e-6);
    CHECK_OK(
        lc_safetensors_load(lc_checkpoint_part(c, LC_CKPT_TENSORS), "callbacks.EMAWeightAveraging.current.w", m.w));
    CHECK_OK(lc_tensor_read(m.w, &w, sizeof w));
    CHECK_NEAR(w, weight, 1e-6);
    lc_checkpoint_close(c);
    world_release(&m);
    world_remove(dir);
}

/* ---- pruning ---- */

TEST(pruned_weights_are_zero_and_counted)
{
    run r;
    lc_callback cb, handle;
    lc_sparsity all, one;
    float w[NET_WEIGHTS];
    int zeros = 0;
    run_init(&r);
    r.o.max_epochs = 3;
    CHECK_OK(lc_model_pruning_new(&(lc_model_pruning_args){.pruning_fn = "l1_unstructured",
                                                           .amount = 0.25,
                                                           .use_lottery_ticket_hypothesis = LC_OFF},
                                  &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    handle = cb;
    CHECK_OK(lc_model_pruning_sparsity(&handle, -1, &all));
    /* 73 weights; each time a quarter of those that are left, rounded: 18, 14 (of 55), 10 (of 41). */
    CHECK_EQ(all.total, 73);
    CHECK_EQ(all.pruned, 42);
    CHECK_OK(lc_model_pruning_sparsity(&handle, 0, &one));
    CHECK_STR(one.path, "backbone.l1.weight");
    CHECK_STATUS(lc_model_pruning_sparsity(&handle, 6, &one), LC_ERR_NOT_FOUND);
    net_weights(&r.m, w);
    for (int i = 0; i < NET_WEIGHTS; i++) zeros += w[i] == 0;
    CHECK_EQ(zeros, 42);
    run_release(&r);
}

/* ---- throughput: 4 samples through Linear(5, 8) and Linear(8, 1) ---- */

static int64_t five(void *context, const lc_batch *b)
{
    (void)context;
    return 5 * b->size;
}

TEST(operations_are_counted_and_reported)
{
    run r;
    lc_callback cb;
    lc_graph_stats stats;
    run_init(&r);
    r.o.max_epochs = 4;
    r.o.limit_val_batches = LC_BATCHES(0);
    r.o.limit_train_batches = LC_BATCHES(5); /* the last batch of the epoch is shorter */
    CHECK_OK(lc_throughput_monitor_new(
        &(lc_throughput_monitor_args){.window_size = 4, .available_flops = 1e9, .length_fn = five}, &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    /* Forward 2*4*5*8 + 2*4*8, the weights' gradients as much, and the gradient of the head's input 2*4*8. */
    lc_graph_get_stats(lc_trainer_graph(r.t), &stats);
    CHECK_NEAR(stats.flops, 20 * (2 * (320 + 64) + 64), 0);
    CHECK_NEAR(logged(&r, "train/batches", 19), 20, 0);
    CHECK_NEAR(logged(&r, "train/samples", 19), 80, 0);
    CHECK_NEAR(logged(&r, "train/lengths", 19), 400, 0);
    double rate = logged(&r, "train/device/flops_per_sec", 3), batches = logged(&r, "train/device/batches_per_sec", 3);
    CHECK_NEAR(rate, 832 * batches, 1e-4 * rate);
    CHECK_NEAR(logged(&r, "train/device/mfu", 3), rate / 1e9, 1e-4 * rate / 1e9);
    CHECK_NEAR(logged(&r, "train/device/items_per_sec", 3), 20 * batches, 1e-3 * batches);
    run_release(&r);
}

TEST(what_a_process_uses_is_reported)
{
    static const char *const hidden[] = {"user_seconds"};
    run r;
    lc_callback cb;
    run_init(&r);
    r.o.max_epochs = 1;
    CHECK_OK(
        lc_device_stats_monitor_new(&(lc_device_stats_monitor_args){.filter_keys = hidden, .n_filter_keys = 1}, &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    CHECK(logged(&r, "DeviceStatsMonitor.on_train_batch_start/rss_bytes", 3) > 1e6);
    CHECK(logged(&r, "DeviceStatsMonitor.on_train_batch_end/planned_bytes", 3) > 0);
    CHECK(logged(&r, "DeviceStatsMonitor.on_train_batch_end/cpu_vm_percent", 3) > 0);
    CHECK(isnan(logged(&r, "DeviceStatsMonitor.on_train_batch_end/user_seconds", 0)));
    run_release(&r);
}

TEST(the_peak_is_measured_where_it_is_not_given)
{
    run r;
    lc_callback cb;
    run_init(&r);
    CHECK_OK(lc_throughput_monitor_new(&(lc_throughput_monitor_args){.window_size = 2}, &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    double mfu = logged(&r, "train/device/mfu", 2), validate = logged(&r, "validate/device/mfu", 2);
    CHECK(mfu > 0 && mfu < 1 && validate > 0 && validate < 1);
    run_release(&r);
}

/* ---- predictions ---- */

TEST(predictions_are_written)
{
    run r;
    lc_callback cb[2];
    char npy[300], st[300];
    float kept[NET_SAMPLES], *rows;
    size_t n;
    run_init(&r);
    snprintf(npy, sizeof npy, "%s/out.npy", r.dir);
    snprintf(st, sizeof st, "%s/out.safetensors", r.dir);
    CHECK_OK(lc_prediction_writer_new(&(lc_prediction_writer_args){.path = npy}, &cb[0]));
    CHECK_OK(lc_prediction_writer_new(&(lc_prediction_writer_args){.path = st}, &cb[1]));
    r.o.callbacks = cb;
    r.o.n_callbacks = 2;
    CHECK_OK(lc_trainer_new(&r.o, &r.t));
    CHECK_OK(lc_trainer_predict(r.t, &r.m.base, NULL));
    int64_t at = 0;
    for (int64_t i = 0; i < lc_trainer_prediction_count(r.t, 0); i++) {
        lc_tensor *x = lc_trainer_prediction(r.t, 0, i);
        CHECK_OK(lc_tensor_read(x, kept + at, (size_t)lc_tensor_numel(x) * sizeof(float)));
        at += lc_tensor_numel(x);
    }
    CHECK_EQ(at, NET_SAMPLES);
    char *file = slurp(npy, &n);
    CHECK(memcmp(file, "\x93NUMPY\x01\x00", 8) == 0);
    size_t header = 10 + (unsigned char)file[8] + 256u * (unsigned char)file[9];
    CHECK_EQ(header % 64, 0);
    CHECK_CONTAINS(file + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (22,), }");
    CHECK_EQ(n, header + sizeof kept);
    rows = (float *)(void *)(file + header);
    CHECK(memcmp(rows, kept, sizeof kept) == 0);
    free(file);
    lc_safetensors *f;
    lc_tensor *x;
    CHECK_OK(lc_safetensors_open(st, &f));
    CHECK_OK(lc_tensor_new(LC_F32, 1, (int64_t[]){NET_SAMPLES}, &x));
    CHECK_OK(lc_safetensors_load(f, "predictions", x));
    float loaded[NET_SAMPLES];
    CHECK_OK(lc_tensor_read(x, loaded, sizeof loaded));
    CHECK(memcmp(loaded, kept, sizeof kept) == 0);
    lc_tensor_unref(x);
    lc_safetensors_close(f);
    char list[512];
    CHECK_STR(world_list(r.dir, ".part", list, sizeof list), "");
    run_release(&r);
}

static lc_status fail_third(void *context, lc_trainer *t, lc_tensor *prediction, const lc_batch *b, int64_t i, int d)
{
    (void)context, (void)t, (void)prediction, (void)b, (void)d;
    return i == 2 ? lc_fail(LC_ERR_USER, "no more") : LC_OK;
}

TEST(a_prediction_that_fails_leaves_no_file)
{
    run r;
    lc_callback cb;
    char npy[300], list[512];
    run_init(&r);
    snprintf(npy, sizeof npy, "%s/out.npy", r.dir);
    CHECK_OK(
        lc_prediction_writer_new(&(lc_prediction_writer_args){.path = npy, .write_on_batch_end = fail_third}, &cb));
    r.o.callbacks = &cb;
    r.o.n_callbacks = 1;
    CHECK_OK(lc_trainer_new(&r.o, &r.t));
    CHECK_STATUS(lc_trainer_predict(r.t, &r.m.base, &(lc_run_args){.discard_predictions = true}), LC_ERR_USER);
    CHECK_STR(world_list(r.dir, ".npy", list, sizeof list), "");
    CHECK_STR(world_list(r.dir, ".part", list, sizeof list), "");
    run_release(&r);
    CHECK_STATUS(lc_prediction_writer_new(&(lc_prediction_writer_args){.path = "x.csv"}, &cb), LC_ERR_CONFIG);
    CHECK_STATUS(lc_prediction_writer_new(NULL, &cb), LC_ERR_CONFIG);
}

/* ---- all hooks of a LambdaCallback ---- */

static lc_status count_setup(void *c, lc_trainer *t, lc_stage stage)
{
    (void)t, (void)stage;
    ((int *)c)[0]++;
    return LC_OK;
}
static lc_status count_start(void *c, lc_trainer *t, const lc_batch *b, int64_t i)
{
    (void)t, (void)b, (void)i;
    ((int *)c)[1]++;
    return LC_OK;
}
static lc_status count_save(void *c, lc_trainer *t, lc_state *state)
{
    (void)t, (void)state;
    ((int *)c)[2]++;
    return LC_OK;
}
static lc_status count_zero_grad(void *c, lc_trainer *t, lc_optimizer *opt)
{
    (void)t, (void)opt;
    ((int *)c)[3]++;
    return LC_OK;
}
static void count_message(void *c, lc_trainer *t, const char *level, const char *text)
{
    (void)t, (void)level, (void)text;
    ((int *)c)[4]++;
}

TEST(a_lambda_has_every_hook)
{
    run r;
    lc_callback cb;
    int counts[5] = {0};
    char path[300];
    run_init(&r);
    CHECK_OK(lc_lambda_callback_new(&(lc_lambda_args){.context = counts,
                                                      .setup = count_setup,
                                                      .teardown = count_setup,
                                                      .on_train_batch_start = count_start,
                                                      .on_save_checkpoint = count_save,
                                                      .on_before_zero_grad = count_zero_grad,
                                                      .on_message = count_message},
                                    &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    snprintf(path, sizeof path, "%s/x.ckpt", r.dir);
    CHECK_OK(lc_trainer_save_checkpoint(r.t, path, false));
    CHECK_EQ(counts[0], 2);
    CHECK_EQ(counts[1], 2 * NET_BATCHES);
    CHECK_EQ(counts[2], 1);
    CHECK_EQ(counts[3], 2 * NET_BATCHES);
    CHECK(counts[4] > 0);
    run_release(&r);
}

/* ---- the summary ---- */

TEST(the_summary_says_what_a_forward_pass_costs)
{
    run r;
    lc_callback cb;
    char path[300];
    size_t n;
    static const lc_type example = {.dtype = LC_F32, .ndim = 2, .shape = {16, NET_FEATURES}};
    run_init(&r);
    snprintf(path, sizeof path, "%s/summary", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_OK(lc_model_summary_new(
        &(lc_model_summary_args){.max_depth = -1, .example_inputs = &example, .n_example_inputs = 1, .fd = fileno(f)},
        &cb));
    CHECK_OK(run_fit(&r, &cb, 1));
    fclose(f);
    char *text = slurp(path, &n);
    /* 16 samples: 2*16*5*8 and 2*16*8 */
    CHECK_CONTAINS(text, "| backbone      | Backbone    |      64 | train |   1.3 K |   [16,5] |    [16,8] |");
    CHECK_CONTAINS(text,
                   "| backbone.l1   | Linear      |      48 | train |   1.3 K |   [16,5] |    [16,8] | [8,5] [8]");
    CHECK_CONTAINS(text, "| backbone.norm | BatchNorm1d |      16 | train |       0 |   [16,8] |    [16,8] | [8] [8]");
    CHECK_CONTAINS(text,
                   "| head          | Linear      |       9 | train |     256 |   [16,8] |    [16,1] | [1,8] [1]");
    CHECK_CONTAINS(text, "73 parameters, all trainable");
    CHECK_CONTAINS(text, "1.5 K floating-point operations");
    free(text);
    run_release(&r);
}

/* ---- the rich progress bar, on a small terminal of our own ---- */

enum { ROWS = 200, COLUMNS = 100 };
typedef struct screen {
    char cell[ROWS][COLUMNS + 1];
    int row, column;
    bool wrapped;
} screen;

static void screen_put(screen *s, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '\r') {
            s->column = 0;
        } else if (*c == '\n') {
            s->row++;
            s->column = 0;
        } else if (*c == '\033') {
            int n = (int)strtol(c + 2, (char **)(uintptr_t)&c, 10);
            while (*c == ';') (void)strtol(c + 1, (char **)(uintptr_t)&c, 10);
            if (*c == 'A') s->row -= n ? n : 1;
            if (*c == 'K') memset(&s->cell[s->row][s->column], 0, (size_t)(COLUMNS - s->column));
            if (*c == 'J') {
                memset(&s->cell[s->row][s->column], 0, (size_t)(COLUMNS - s->column));
                memset(s->cell[s->row + 1], 0, sizeof s->cell[0] * (size_t)(ROWS - s->row - 1));
            }
        } else if (s->column < COLUMNS) {
            s->cell[s->row][s->column++] = *c;
        } else {
            s->wrapped = true;
        }
        CHECK(s->row >= 0 && s->row < ROWS - 1);
    }
}

static lc_status say_something(void *context, lc_trainer *t)
{
    (void)context;
    if (lc_trainer_current_epoch(t) == 1) lc_trainer_message(t, "warning", "something odd");
    return LC_OK;
}

TEST(bars_are_drawn_over_one_another)
{
    run r;
    lc_callback cb[2];
    char path[300];
    size_t n;
    screen *s = calloc(1, sizeof *s);
    setenv("COLUMNS", "100", 1);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("LIGHTC_PROGRESS");
    run_init(&r);
    snprintf(path, sizeof path, "%s/bars", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f && s);
    CHECK_OK(lc_rich_progress_bar_new(
        &(lc_rich_progress_bar_args){.fd = fileno(f), .refresh_rate = 1e9, .style = LC_PROGRESS_BAR}, &cb[0]));
    CHECK_OK(lc_lambda_callback_new(&(lc_lambda_args){.on_train_epoch_end = say_something}, &cb[1]));
    r.o.enable_progress_bar = LC_AUTO;
    CHECK_OK(run_fit(&r, cb, 2));
    fclose(f);
    char *text = slurp(path, &n);
    CHECK_CONTAINS(text, "\033[35m"); /* colours */
    CHECK_CONTAINS(text, "Validation");
    screen_put(s, text);
    CHECK(!s->wrapped);
    /* What people were told stands above, once; the bars of the end below it, and nothing of those before. */
    int told = 0, epochs = 0, runs = 0, validations = 0;
    for (int i = 0; i < ROWS; i++) {
        told += strstr(s->cell[i], "warning: something odd") != NULL;
        runs += !strncmp(s->cell[i], "Training ", 9);
        epochs += !strncmp(s->cell[i], "Epoch ", 6);
        validations += !strncmp(s->cell[i], "Validation", 10);
        if (!strncmp(s->cell[i], "Training ", 9)) {
            CHECK_CONTAINS(s->cell[i], "======================================== 2/2 ");
            CHECK_CONTAINS(s->cell[i + 1], "Epoch 1/1      ======================================== 6/6 ");
        }
    }
    CHECK_EQ(told, 1);
    CHECK_EQ(runs, 1);
    CHECK_EQ(epochs, 1);
    CHECK_EQ(validations, 0);
    free(text);
    free(s);
    run_release(&r);
}

TEST(a_log_file_gets_plain_lines)
{
    run r;
    lc_callback cb;
    char path[300];
    size_t n;
    run_init(&r);
    snprintf(path, sizeof path, "%s/bars", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_OK(lc_rich_progress_bar_new(&(lc_rich_progress_bar_args){.fd = fileno(f)}, &cb));
    r.o.enable_progress_bar = LC_AUTO;
    CHECK_OK(run_fit(&r, &cb, 1));
    fclose(f);
    char *text = slurp(path, &n);
    CHECK_CONTAINS(text, "Epoch 1: 100% 6/6 [");
    CHECK(!strchr(text, '\033') && !strchr(text, '\r'));
    free(text);
    run_release(&r);
}

/* ---- notices ---- */

static void count_text(void *context, lc_trainer *t, const char *level, const char *text)
{
    (void)t, (void)level;
    if (strstr(text, "Notifier")) ++*(int *)context;
}

/* Tells a command about a fit of two epochs; returns what the command wrote, and how many warnings there were. */
static char *notify(run *r, const char *format, int timeout_s, int *warnings)
{
    lc_callback cb[2];
    char path[300], command[900];
    size_t n;
    run_init(r);
    snprintf(path, sizeof path, "%s/told", r->dir);
    snprintf(command, sizeof command, format, path, path);
    CHECK_OK(lc_notifier_new(&(lc_notifier_args){.command = command,
                                                 .events = LC_NOTIFY_RUN_START | LC_NOTIFY_RUN_END |
                                                           LC_NOTIFY_EPOCH_END | LC_NOTIFY_RUN_FAILED,
                                                 .timeout_s = timeout_s},
                             &cb[0]));
    CHECK_OK(lc_lambda_callback_new(&(lc_lambda_args){.context = warnings, .on_message = count_text}, &cb[1]));
    *warnings = 0;
    r->m.die_after = strstr(format, "fails") ? 3 : -1;
    lc_status s = run_fit(r, cb, 2);
    CHECK_EQ(s, r->m.die_after < 0 ? LC_OK : LC_ERR_USER);
    return slurp(path, &n);
}

TEST(a_command_is_told)
{
    run r;
    int warnings;
    char *told = notify(&r, "(echo $LIGHTC_EVENT; cat; echo) >>%s", 10, &warnings);
    char *start = strstr(told, "run_start\n{"), *first = start ? strstr(start, "epoch_end\n{") : NULL;
    char *second = first ? strstr(first + 1, "epoch_end\n{") : NULL,
         *end = second ? strstr(second, "run_end\n{") : NULL;
    CHECK(start && first && second && end);
    lc_state *state;
    const lc_state *metrics;
    int64_t epoch, step;
    double loss;
    CHECK_OK(lc_state_parse(strchr(second, '{'), (size_t)(end - strchr(second, '{')), &state));
    CHECK_OK(lc_state_get_int(state, "epoch", &epoch));
    CHECK_OK(lc_state_get_int(state, "global_step", &step));
    CHECK_OK(lc_state_get_object(state, "metrics", &metrics));
    CHECK_OK(lc_state_get_double(metrics, "val_loss", &loss));
    CHECK_EQ(epoch, 1);
    CHECK_EQ(step, 12);
    CHECK_EQ(warnings, 0);
    lc_state_free(state);
    free(told);
    run_release(&r);
}

TEST(a_failure_is_told)
{
    run r;
    int warnings;
    char *told = notify(&r, "(echo $LIGHTC_EVENT; cat; echo) >>%s # fails", 10, &warnings);
    CHECK_CONTAINS(told, "run_failed");
    CHECK_CONTAINS(told, "as if the machine had died");
    CHECK(!strstr(told, "run_end"));
    free(told);
    run_release(&r);
}

/* A command that ends badly, or not at all, is one warning; the run does not wait for it. */
TEST(a_command_that_fails_is_one_warning)
{
    run r;
    int warnings;
    free(notify(&r, "exit 3; cat >%s", 10, &warnings));
    CHECK_EQ(warnings, 1);
    run_release(&r);
    free(notify(&r, "sleep 1000 >%s", 1, &warnings));
    CHECK_EQ(warnings, 1);
    run_release(&r);
    lc_callback cb;
    CHECK_STATUS(lc_notifier_new(NULL, &cb), LC_ERR_CONFIG);
}

/* A server for `n` requests that answers `code`; what was posted stands in `text`. */
typedef struct server {
    int fd, port, n;
    const char *code;
    char text[65536];
    pthread_t thread;
} server;

static void *serve(void *self)
{
    server *s = self;
    size_t at = 0;
    for (int i = 0; i < s->n; i++) {
        int c = accept(s->fd, NULL, NULL);
        char request[16384] = "", answer[128];
        size_t n = 0, body = 0;
        const char *head = NULL;
        while (n < sizeof request - 1 && (!head || n < (size_t)(head - request) + body)) {
            ssize_t got = read(c, request + n, sizeof request - 1 - n);
            if (got <= 0) break;
            n += (size_t)got;
            const char *length = strcasestr(request, "content-length:");
            if (!head && (head = strstr(request, "\r\n\r\n")))
                head += 4, body = length ? strtoul(length + 15, NULL, 10) : 0;
        }
        at += (size_t)snprintf(s->text + at, sizeof s->text - at, "%s\n", request);
        int length =
            snprintf(answer, sizeof answer, "HTTP/1.1 %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", s->code);
        if (write(c, answer, (size_t)length) != length) s->n = 0;
        close(c);
    }
    return NULL;
}

static void server_start(server *s, const char *code, int n)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    memset(s, 0, sizeof *s);
    s->code = code;
    s->n = n;
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s->fd >= 0 && bind(s->fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(s->fd, 8) == 0);
    CHECK(getsockname(s->fd, (struct sockaddr *)&a, &size) == 0);
    s->port = ntohs(a.sin_port);
    CHECK(pthread_create(&s->thread, NULL, serve, s) == 0);
}

TEST(a_web_address_is_told)
{
    static server s;
    for (int bad = 0; bad < 2; bad++) {
        run r;
        lc_callback cb[2];
        char url[100];
        int warnings = 0;
        server_start(&s, bad ? "500 No" : "200 OK", 2);
        snprintf(url, sizeof url, "http://127.0.0.1:%d/hook", s.port);
        lc_status made = lc_notifier_new(&(lc_notifier_args){.url = url}, &cb[0]);
        if (made == LC_ERR_UNSUPPORTED) SKIP("there is no libcurl");
        CHECK_OK(made);
        CHECK_OK(lc_lambda_callback_new(&(lc_lambda_args){.context = &warnings, .on_message = count_text}, &cb[1]));
        run_init(&r);
        CHECK_OK(run_fit(&r, cb, 2));
        run_release(&r);
        CHECK(pthread_join(s.thread, NULL) == 0);
        close(s.fd);
        CHECK_CONTAINS(s.text, "POST /hook HTTP/1.1");
        CHECK_CONTAINS(s.text, "\"event\": \"run_start\"");
        CHECK_CONTAINS(s.text, "\"event\": \"run_end\"");
        CHECK_EQ(warnings, bad);
    }
}

/* ---- failures ---- */

TEST(two_with_one_key_are_refused)
{
    lc_callback cb[2];
    lc_trainer *t;
    lc_trainer_options o = world_options("/tmp");
    CHECK_OK(lc_weight_averaging_new(NULL, &cb[0]));
    CHECK_OK(lc_weight_averaging_new(NULL, &cb[1]));
    o.callbacks = cb;
    o.n_callbacks = 2;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "WeightAveraging");
}

TEST(a_model_has_one_average)
{
    run r;
    lc_callback cb[2];
    run_init(&r);
    CHECK_OK(lc_weight_averaging_new(NULL, &cb[0]));
    CHECK_OK(lc_ema_weight_averaging_new(NULL, &cb[1]));
    CHECK_STATUS(run_fit(&r, cb, 2), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "validates with one average");
    run_release(&r);
}

/* Fails where it is told to, the second time. */
typedef struct failing {
    int where, calls;
} failing;
enum { IN_SAVE_STATE, IN_VISIT, IN_SAVE_CHECKPOINT, IN_BATCH_END, IN_BEFORE_STEP, PLACES };

static lc_status fail_at(failing *f, int where)
{
    if (f->where != where) return LC_OK;
    return ++f->calls == 2 ? lc_fail(LC_ERR_USER, "this callback fails") : LC_OK;
}
static lc_status fail_save(void *self, lc_trainer *t, lc_state *out)
{
    (void)t, (void)out;
    return fail_at(self, IN_SAVE_STATE);
}
static lc_status fail_load(void *self, lc_trainer *t, const lc_state *in)
{
    (void)self, (void)t, (void)in;
    return LC_OK;
}
static lc_status fail_visit(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx)
{
    (void)t, (void)fn, (void)ctx;
    return fail_at(self, IN_VISIT);
}
static lc_status fail_on_save(void *self, lc_trainer *t, lc_state *state)
{
    (void)t, (void)state;
    return fail_at(self, IN_SAVE_CHECKPOINT);
}
static lc_status fail_batch_end(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)t, (void)o, (void)b, (void)i;
    return fail_at(self, IN_BATCH_END);
}
static lc_status fail_before_step(void *self, lc_trainer *t, lc_optimizer *opt)
{
    (void)t, (void)opt;
    return fail_at(self, IN_BEFORE_STEP);
}
static const lc_callback_ops failing_ops = {LC_CALLBACK_OPS_INIT("Failing"),
                                            .save_state = fail_save,
                                            .load_state = fail_load,
                                            .visit_tensors = fail_visit,
                                            .on_save_checkpoint = fail_on_save,
                                            .on_train_batch_end = fail_batch_end,
                                            .on_before_optimizer_step = fail_before_step};

/* Every checkpoint that has its name is whole, and nothing half-written stays. */
TEST(a_callback_that_fails_corrupts_no_checkpoint)
{
    for (int where = 0; where < PLACES; where++) {
        run r;
        failing f = {where, 0};
        lc_callback cb[3];
        char list[1024], path[2000];
        run_init(&r);
        r.o.enable_checkpointing = LC_AUTO;
        CHECK_OK(lc_model_checkpoint_new(
            &(lc_model_checkpoint_args){.dirpath = r.dir, .every_n_train_steps = 1, .save_top_k = -1}, &cb[0]));
        CHECK_OK(lc_on_exception_checkpoint_new(&(lc_on_exception_checkpoint_args){.dirpath = r.dir}, &cb[1]));
        cb[2] = (lc_callback){&failing_ops, &f};
        CHECK_STATUS(run_fit(&r, cb, 3), LC_ERR_USER);
        CHECK_CONTAINS(lc_error_message(), "this callback fails");
        CHECK_EQ(f.calls, where <= IN_SAVE_CHECKPOINT ? 3 : 2); /* the one on the exception goes well again */
        lc_trainer_free(r.t);
        r.t = NULL;
        CHECK_CONTAINS(world_list(r.dir, ".ckpt", list, sizeof list), "epoch=0-step=1.ckpt ");
        CHECK_CONTAINS(list, "on_exception.ckpt ");
        DIR *d = opendir(r.dir);
        for (struct dirent *e; (e = readdir(d));) {
            size_t n = strlen(e->d_name);
            if (!strstr(e->d_name, "ckpt")) continue;
            CHECK(e->d_name[0] != '.' && n > 5 && !strcmp(e->d_name + n - 5, ".ckpt"));
            snprintf(path, sizeof path, "%s/%s", r.dir, e->d_name);
            CHECK_OK(lc_checkpoint_verify(path));
        }
        closedir(d);
        run_release(&r);
    }
}

/* ---- a checkpoint on exceptions ---- */

static void fit_on_exception(const char *dir, int64_t accumulate, int64_t fail_before, bool host_read, lc_status want,
                             float w[NET_WEIGHTS]);

static lc_status read_then_fail(void *context, lc_trainer *t, lc_optimizer *opt)
{
    double v;
    int64_t *left = context;
    (void)t;
    if (--*left) return LC_OK;
    LC_TRY(lc_item(lc_sum(lc_gradient(opt->groups[0].parameters[0])), &v));
    return lc_fail(LC_ERR_USER, "between two steps");
}
static lc_status fail_after_backward(void *context, lc_trainer *t)
{
    int64_t *left = context;
    (void)t;
    return --*left ? LC_OK : lc_fail(LC_ERR_USER, "between two steps");
}

static void fit_on_exception(const char *dir, int64_t accumulate, int64_t fail_before, bool host_read, lc_status want,
                             float w[NET_WEIGHTS])
{
    net m;
    lc_trainer *t;
    lc_callback cb[2];
    lc_lambda_args l = {.context = &fail_before};
    if (host_read)
        l.on_before_optimizer_step = read_then_fail;
    else if (fail_before > 0)
        l.on_after_backward = fail_after_backward;
    net_init(&m);
    lc_trainer_options o = world_options(dir);
    o.max_epochs = 2;
    o.accumulate_grad_batches = accumulate;
    o.threads = 1;
    o.enable_checkpointing = LC_OFF;
    o.callbacks = cb;
    o.n_callbacks = 2;
    CHECK_OK(lc_on_exception_checkpoint_new(&(lc_on_exception_checkpoint_args){.dirpath = dir}, &cb[0]));
    CHECK_OK(lc_lambda_callback_new(&l, &cb[1]));
    o.enable_checkpointing = LC_AUTO;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_STATUS(lc_trainer_fit(t, &m.base, NULL), want);
    net_weights(&m, w);
    lc_trainer_free(t);
    net_release(&m);
}

/* Where a batch failed, in the middle of a window too, the next fit ends as the one that did not fail. */
TEST(the_next_fit_goes_on_where_one_failed)
{
    static float whole[NET_WEIGHTS], w[NET_WEIGHTS];
    for (int64_t accumulate = 1; accumulate <= 4; accumulate += 3) {
        char dir[256], list[256];
        CHECK(world_dir(dir, sizeof dir));
        fit_on_exception(dir, accumulate, 0, false, LC_OK, whole);
        for (int64_t k = 1; k <= 2 * NET_BATCHES; k += 2) {
            fit_on_exception(dir, accumulate, k, false, LC_ERR_USER, w);
            CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "on_exception.ckpt ");
            fit_on_exception(dir, accumulate, 0, false, LC_OK, w);
            CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "");
            if (memcmp(w, whole, sizeof w) != 0)
                TEST_FAIL("weights differ after a failure in batch %lld (accumulate %lld)", (long long)k,
                          (long long)accumulate);
        }
        world_remove(dir);
    }
}

TEST(a_state_between_two_steps_is_not_saved)
{
    static float w[NET_WEIGHTS];
    char dir[256], list[256];
    CHECK(world_dir(dir, sizeof dir));
    fit_on_exception(dir, 1, 3, true, LC_ERR_USER, w);
    CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), "");
    world_remove(dir);
}

TEST_MAIN
