/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks that monitor a run (norms and histograms of gradients, throughput, process resources, the summary),
 * compared with known numbers. */
#include "callback_run.h"

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
    CHECK_OK(lc_gradient_norm_monitor(&cb[1], .norm_type = INFINITY, .total_only = true));
    CHECK_OK(lc_lambda_callback(&cb[2], .context = &w, .on_before_optimizer_step = read_norms));
    CHECK_OK(run_fit(&r, cb, 3));
    CHECK_EQ(w.n, 6);
    for (int i = 0; i < w.n; i++) {
        CHECK_NEAR(logged(&r, "grad_2.0_norm_total", i), w.want[i], 1e-5 * w.want[i]);
        CHECK_NEAR(logged(&r, "grad_inf_norm_total", i), w.largest[i], 1e-5 * w.largest[i]);
    }
    CHECK(logged(&r, "grad_2.0_norm/head.weight", 0) > 0);
    run_release(&r);
}

/* ---- learning rates ---- */

/* fast_dev_run has no loggers, but callback_metrics, and does not change log_every_n_steps. */
TEST(learning_rates_of_a_fast_dev_run)
{
    for (int every = 1; every <= 50; every += 49) {
        run r;
        lc_callback cb;
        bool found = false;
        run_init(&r);
        r.o.fast_dev_run = 1;
        r.o.log_every_n_steps = every;
        CHECK_OK(lc_learning_rate_monitor(&cb, .logging_interval = "step"));
        CHECK_OK(run_fit(&r, &cb, 1));
        for (int i = 0; i < lc_trainer_metric_count(r.t, LC_CALLBACK_METRICS); i++)
            found |= !strncmp(lc_trainer_metric_at(r.t, LC_CALLBACK_METRICS, i).name, "lr-", 3);
        CHECK(found == (every == 1));
        run_release(&r);
    }
}

/* A schedule that takes the place of another, or of none, is followed at its own interval: once an epoch. */
TEST(learning_rates_of_a_schedule_that_comes_later)
{
    run r;
    lc_callback cb[2];
    double rate = 0.5;
    int rows = 0;
    run_init(&r);
    r.o.max_epochs = 3;
    CHECK_OK(lc_stochastic_weight_averaging(&cb[0], .swa_lrs = &rate, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(1)));
    CHECK_OK(lc_learning_rate_monitor(&cb[1]));
    CHECK_OK(run_fit(&r, cb, 2));
    for (const char *at = r.rows.text; (at = strstr(at, " lr-")); at++) rows++;
    CHECK_EQ(rows, 3);
    run_release(&r);
}

static lc_tensor *no_step(lc_module *self, const lc_batch *batch, int64_t i)
{
    (void)self, (void)batch, (void)i;
    return NULL;
}
static lc_status two_groups(lc_optimizer *opt, const char *first, lc_tensor *a, const char *second, lc_tensor *b)
{
    LC_TRY(lc_optimizer_add_group(opt, first, &a, 1));
    return lc_optimizer_add_group(opt, second, &b, 1) < 0 ? LC_ERR_ARGUMENT : LC_OK;
}
static lc_status many_optimizers(lc_module *m, lc_optimizers *out)
{
    lc_tensor *a = lc_module_find(m, "head.weight"), *b = lc_module_find(m, "head.bias");
    lc_optimizer *opt[] = {lc_sgd(m, .parameters = &a, .n_parameters = 1, .lr = 0.1),
                           lc_sgd(m, .parameters = &b, .n_parameters = 1, .lr = 0.2, .momentum = 0.9),
                           lc_adagrad(m, .parameters = &a, .n_parameters = 1, .lr = 0.3),
                           lc_sgd(m, .no_parameters = true, .lr = 0.4), lc_adam(m, .no_parameters = true, .lr = 0.6)};
    for (int i = 0; i < 5; i++) LC_TRY(lc_optimizers_add(out, opt[i]));
    LC_TRY(two_groups(opt[3], "first", a, NULL, b));
    LC_TRY(lc_optimizer_set(opt[3], 1, "lr", 0.5));
    if (lc_optimizer_add_group(opt[4], "only", &a, 1) < 0) return LC_ERR_ARGUMENT;
    LC_TRY(lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_exponential_lr(opt[1], .gamma = 0.5), .optimizer = 1}));
    LC_TRY(lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_step_lr(opt[1], .step_size = 1), .optimizer = 1}));
    return lc_optimizers_add_scheduler(
        out,
        (lc_scheduler_config){.scheduler = lc_exponential_lr(opt[3], .gamma = 0.5), .optimizer = 3, .name = "rate"});
}
static lc_status groups_of_one_name(lc_module *m, lc_optimizers *out)
{
    lc_optimizer *opt = lc_sgd(m, .no_parameters = true);
    LC_TRY(lc_optimizers_add(out, opt));
    return two_groups(opt, "same", lc_module_find(m, "head.weight"), "same", lc_module_find(m, "head.bias"));
}

/* Lightning's names: schedules first, each with its own; an optimizer that no schedule has comes later. */
TEST(names_of_learning_rates)
{
    static const struct {
        const char *name;
        double value;
    } want[] = {{"lr-SGD", 0.2},       {"lr-SGD-momentum", 0.9},      {"lr-SGD-1", 0.2},   {"lr-SGD-1-momentum", 0.9},
                {"rate-1/first", 0.4}, {"rate-1/first-momentum", 0},  {"rate-1/pg2", 0.5}, {"rate-1/pg2-momentum", 0},
                {"lr-SGD-2", 0.1},     {"lr-SGD-2-momentum", 0},      {"lr-Adagrad", 0.3}, {"lr-Adagrad-momentum", 0},
                {"lr-Adam/only", 0.6}, {"lr-Adam/only-momentum", 0.9}};
    lc_module_ops ops = net_ops;
    lc_callback cb;
    run r;
    run_init(&r);
    r.o.max_epochs = 1;
    ops.training_step = no_step;
    ops.manual_optimization = true;
    ops.configure_optimizers = many_optimizers;
    r.m.base.ops = &ops;
    CHECK_OK(lc_learning_rate_monitor(&cb, .logging_interval = "epoch", .log_momentum = true));
    CHECK_OK(run_fit(&r, &cb, 1));
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) CHECK_NEAR(logged(&r, want[i].name, 0), want[i].value, 0);
    run_release(&r);

    run_init(&r);
    ops.configure_optimizers = groups_of_one_name;
    r.m.base.ops = &ops;
    CHECK_OK(lc_learning_rate_monitor_new(NULL, &cb));
    CHECK_STATUS(run_fit(&r, &cb, 1), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "same");
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
    CHECK_OK(lc_weight_histogram(&cb, .gradients = true, .every_n_epochs = 2));
    CHECK_OK(run_fit(&r, &cb, 1));
    CHECK_EQ(l.n, 2 * 6); /* six parameters, once per two epochs */
    CHECK_NEAR(l.count, 2 * (40 + 8 + 8 + 8 + 8 + 1), 0);
    CHECK_CONTAINS(l.names, "backbone.l1.weight@11 backbone.l1.weight.grad@11 ");
    run_release(&r);
}

/* Two optimizers, each with a loss of its own: a * mean(x) and -2 * b * mean(x), where x is 0 to 7. */
typedef struct duel {
    lc_module base;
    lc_tensor *a, *b;
} duel;

static lc_tensor *step_a(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mul(lc_sum(((duel *)self)->a), lc_mean(b->x));
}
static lc_tensor *step_b(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mul_scalar(lc_mul(lc_sum(((duel *)self)->b), lc_mean(b->x)), -2);
}
static lc_status duel_optimizers(lc_module *self, lc_optimizers *out)
{
    duel *m = (duel *)self;
    LC_TRY(lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.1, .parameters = &m->a, .n_parameters = 1), step_a));
    return lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.1, .parameters = &m->b, .n_parameters = 1), step_b);
}
static lc_status duel_loader(lc_module *self, lc_loaders *out)
{
    (void)self;
    return lc_loaders_add(out, numbers_new(1, 8, false));
}
static const lc_module_ops duel_ops = {LC_MODULE_OPS_INIT("duel"), .training_step = step_a,
                                       .configure_optimizers = duel_optimizers, .train_dataloader = duel_loader};

static lc_status keep_sum(void *self, const lc_log_histogram *h)
{
    double *sums = self;
    if (!strcmp(h->name, "a.grad")) sums[0] = h->sum;
    if (!strcmp(h->name, "b.grad")) sums[1] = h->sum;
    return LC_OK;
}
static const lc_logger_ops sum_ops = {LC_LOGGER_OPS_INIT, .name = "sums", .start = memory_start, .log_row = nothing_row,
                                      .log_histogram = keep_sum};

TEST(gradients_are_those_of_their_own_optimizer)
{
    char dir[256];
    double sums[2] = {0};
    duel m = {.a = NULL};
    lc_trainer *t;
    lc_callback cb[2];
    lc_logger logger = {&sum_ops, sums};
    CHECK(world_dir(dir, sizeof dir));
    lc_module_init(&m.base, &duel_ops, 1);
    lc_init one = {LC_INIT_CONSTANT, .a = 1};
    m.a = lc_module_add_parameter(&m.base, "a", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, one);
    m.b = lc_module_add_parameter(&m.base, "b", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){1}, one);
    lc_trainer_options o = world_options(dir);
    o.enable_checkpointing = LC_OFF;
    o.max_epochs = 1;
    o.loggers = &logger;
    o.n_loggers = 1;
    o.callbacks = cb;
    o.n_callbacks = 2;
    CHECK_OK(lc_weight_histogram(&cb[0], .gradients = true));
    CHECK_OK(lc_gradient_norm_monitor(&cb[1], .every_step = true));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK_NEAR(sums[0], 3.5, 1e-6);
    CHECK_NEAR(sums[1], -7, 1e-6);
    double a, b, total;
    CHECK_OK(lc_trainer_metric(t, "grad_2.0_norm/a", &a));
    CHECK_OK(lc_trainer_metric(t, "grad_2.0_norm/b", &b));
    CHECK_OK(lc_trainer_metric(t, "grad_2.0_norm_total", &total));
    CHECK(a == 3.5 && b == 7);
    CHECK(total == 7); /* each optimizer's own gradient: that of the last one that stepped */
    lc_trainer_free(t);
    lc_module_release(&m.base);
    world_remove(dir);
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
    CHECK_OK(lc_throughput_monitor(&cb, .window_size = 4, .available_flops = 1e9, .length_fn = five));
    CHECK_OK(run_fit(&r, &cb, 1));
    /* Forward 2*4*5*8 + 2*4*8, the same for the weights' gradients, and the gradient of the head's input 2*4*8. */
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

TEST(resources_of_the_process_are_reported)
{
    static const char *const hidden[] = {"user_seconds"};
    run r;
    lc_callback cb;
    run_init(&r);
    r.o.max_epochs = 1;
    CHECK_OK(lc_device_stats_monitor(&cb, .filter_keys = hidden, .n_filter_keys = 1));
    CHECK_OK(run_fit(&r, &cb, 1));
    CHECK(logged(&r, "DeviceStatsMonitor.on_train_batch_start/rss_bytes", 3) > 1e6);
    CHECK(logged(&r, "DeviceStatsMonitor.on_train_batch_end/planned_bytes", 3) > 0);
    CHECK(logged(&r, "DeviceStatsMonitor.on_train_batch_end/cpu_vm_percent", 3) > 0);
    CHECK(isnan(logged(&r, "DeviceStatsMonitor.on_train_batch_end/user_seconds", 0)));
    run_release(&r);
}

/* As in Lightning: a program may validate without loggers, with the callbacks of its fits. */
TEST(only_a_fit_needs_a_logger_for_them)
{
    run r;
    lc_callback cb;
    run_init(&r);
    r.o.n_loggers = 0;
    r.o.logger = "none";
    r.o.callbacks = &cb;
    r.o.n_callbacks = 1;
    CHECK_OK(lc_device_stats_monitor_new(NULL, &cb));
    CHECK_OK(lc_trainer_new(&r.o, &r.t));
    CHECK_OK(lc_trainer_validate(r.t, &r.m.base));
    CHECK_STATUS(lc_trainer_fit(r.t, &r.m.base), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "DeviceStatsMonitor needs a logger");
    run_release(&r);
}

/* As in Lightning log_every_n_steps counts the batches of an evaluation, whatever was trained before. */
TEST(rows_of_an_evaluation)
{
    static const char *const hidden[] = {
        "cpu_percent",   "cpu_vm_percent", "cpu_swap_percent",  "rss_peak_bytes",
        "user_seconds",  "system_seconds", "major_page_faults", "involuntary_context_switches",
        "planned_bytes", "scratch_bytes"};
    for (int every = 1; every <= 4; every++) {
        run r;
        lc_callback cb[2];
        char key[64];
        int n = 0, stats = 0;
        run_init(&r);
        r.o.max_epochs = 2;
        r.o.limit_train_batches = LC_BATCHES(5);
        r.o.log_every_n_steps = every;
        CHECK_OK(lc_throughput_monitor(&cb[0], .window_size = 4, .available_flops = 1e9));
        CHECK_OK(lc_device_stats_monitor(&cb[1], .filter_keys = hidden, .n_filter_keys = 10));
        CHECK_OK(run_fit(&r, cb, 2));
        for (int batch = 1; batch <= NET_BATCHES; batch++) {
            bool due = batch % every == 0;
            const char *row = r.rows.text;
            snprintf(key, sizeof key, "|step=%d validate/batches=%d ", batch, batch);
            for (; (row = strstr(row, key)); row++) n++;
            CHECK_EQ(n, due ? 2 : 0);
            n = 0;
        }
        for (const char *at = r.rows.text; (at = strstr(at, "on_validation_batch_end/rss_bytes")); at++) stats++;
        CHECK_EQ(stats, 2 * (NET_BATCHES / every));
        run_release(&r);
    }
}

/* As in Lightning they count on through the validations of an epoch, and begin again with the next one. */
TEST(rows_of_several_validations_in_an_epoch)
{
    run r;
    lc_callback cb;
    char key[64];
    run_init(&r);
    r.o.max_epochs = 2;
    r.o.limit_train_batches = LC_BATCHES(4);
    r.o.val_check_interval = LC_BATCHES(2);
    CHECK_OK(lc_throughput_monitor(&cb, .window_size = 4, .available_flops = 1e9));
    CHECK_OK(run_fit(&r, &cb, 1));
    const char *at = r.rows.text;
    for (int validation = 0; validation < 4; validation++)
        for (int batch = 1; batch <= NET_BATCHES; batch++) {
            snprintf(key, sizeof key, "|step=%d validate/batches=%d ", validation % 2 * NET_BATCHES + batch, batch);
            at = at ? strstr(at, key) : NULL;
            if (!at) TEST_FAIL("%s is not there in validation %d", key, validation);
            at += at ? 1 : 0;
        }
    run_release(&r);
}

TEST(the_peak_is_measured_unless_given)
{
    run r;
    lc_callback cb;
    run_init(&r);
    CHECK_OK(lc_throughput_monitor(&cb, .window_size = 2));
    CHECK_OK(run_fit(&r, &cb, 1));
    double mfu = logged(&r, "train/device/mfu", 2), validate = logged(&r, "validate/device/mfu", 2);
    CHECK(mfu > 0 && mfu < 1 && validate > 0 && validate < 1);
    run_release(&r);
}

/* ---- the summary ---- */

TEST(the_summary_shows_the_cost_of_a_forward_pass)
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
    CHECK_OK(
        lc_model_summary(&cb, .max_depth = -1, .example_inputs = &example, .n_example_inputs = 1, .fd = fileno(f)));
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

/* One level, as in Lightning, unless another depth is given. */
TEST(levels_of_the_summary)
{
    static const struct {
        int depth; /* -2: the default */
        bool backbone, inside;
    } cases[] = {{-2, true, false}, {1, true, false}, {0, false, false}, {2, true, true}, {-1, true, true}};
    lc_callback cb;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        char path[300];
        size_t n;
        run_init(&r);
        snprintf(path, sizeof path, "%s/summary", r.dir);
        FILE *f = fopen(path, "w");
        CHECK(f);
        if (cases[i].depth == -2)
            CHECK_OK(lc_model_summary(&cb, .fd = fileno(f)));
        else
            CHECK_OK(lc_model_summary(&cb, .max_depth = cases[i].depth, .fd = fileno(f)));
        CHECK_OK(run_fit(&r, &cb, 1));
        fclose(f);
        char *text = slurp(path, &n);
        CHECK(cases[i].backbone == (strstr(text, "| backbone ") != NULL));
        CHECK(cases[i].backbone == (strstr(text, "Name") != NULL));
        CHECK(cases[i].inside == (strstr(text, "| backbone.l1 ") != NULL));
        CHECK_CONTAINS(text, "73 parameters, all trainable");
        free(text);
        run_release(&r);
    }
    CHECK_STATUS(lc_model_summary(&cb, .max_depth = -2), LC_ERR_CONFIG);
}

/* As in Lightning, a tied parameter counts once in the total, and parameters outside of layers have a row. */
TEST(the_summary_of_parameters_that_are_tied_or_outside_of_layers)
{
    run r;
    lc_callback cb;
    char path[300];
    size_t n;
    const int64_t shape[] = {5};
    run_init(&r);
    CHECK(lc_module_share_parameter(&r.m.base, "tied", lc_module_find(&r.m.base, "head.weight")));
    CHECK(lc_module_add_parameter(&r.m.base, "position", LC_F32, LC_ROW_MAJOR, 1, shape, (lc_init){0}));
    CHECK_OK(lc_module_status(&r.m.base));
    snprintf(path, sizeof path, "%s/summary", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_OK(lc_model_summary(&cb, .fd = fileno(f)));
    CHECK_OK(run_fit(&r, &cb, 1));
    fclose(f);
    char *text = slurp(path, &n);
    CHECK_CONTAINS(text, "| other params | n/a      |       5 | n/a   | [5]\n");
    CHECK_CONTAINS(text, "78 parameters, all trainable\n");
    free(text);
    run_release(&r);
}

/* Names may also come from plug-ins. */
TEST(the_summary_writes_no_control_characters)
{
    run r;
    lc_callback cb;
    char path[300];
    size_t n;
    run_init(&r);
    snprintf(path, sizeof path, "%s/summary", r.dir);
    FILE *f = fopen(path, "w");
    CHECK(f);
    r.m.backbone.type = "a\033[2J";
    CHECK_OK(lc_model_summary(&cb, .max_depth = -1, .fd = fileno(f)));
    CHECK_OK(run_fit(&r, &cb, 1));
    fclose(f);
    char *text = slurp(path, &n);
    CHECK_CONTAINS(text, "| backbone      | a\\x1b[2J    |");
    CHECK(!strchr(text, '\033'));
    free(text);
    run_release(&r);
}

TEST_MAIN
