/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings on the simulated device (backends/sim/sim.h): what they log, and in which order, is what the CPU logs,
 * whatever the schedule; and a steady step of lc_trainer_fit waits for nothing. */
#define _GNU_SOURCE
#include "test.h"

#include "quiet_options.h"
#include "scratch.h"
#include "sim_device.h"
#include "small_net.h"
#include "state_bytes.h"

#include "core/hooks/trainer_internal.h"

#include <lightc/callbacks.h>
#include <stdarg.h>

/* What a training said: rows, and metrics that callbacks read, with all their digits. */
typedef struct said {
    char text[1 << 18];
    size_t n;
} said;

static void say(said *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(said *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(s->text + s->n, sizeof s->text - s->n, format, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < sizeof s->text - s->n);
    s->n += (size_t)n;
}

/* What a training does, besides training. */
typedef struct wish {
    int64_t batch, epochs, log_every;
    bool plain; /* logs two values, has only the callback that counts, and does not validate */
    bool zeros; /* the same with one value, which is always 0 */
    int workers;
    int64_t spike;       /* this batch has a large loss, which SpikeDetection looks for; 0: none */
    int64_t reads_every; /* metrics are read after every so many batches; 0: never */
    const char *precision;
} wish;

typedef struct watcher {
    said *said;
    const wish *wish;
    lc_sim_counters at[4]; /* after batches FROM to FROM + 3 */
    int64_t state;         /* bytes of it that each of these copies */
    lc_trainer *trainer;
    int64_t batches;
} watcher;

enum { FROM = 60 };

static lc_status log_row(void *self, const lc_log_row *row)
{
    say(self, "row %lld %lld:", (long long)row->step, (long long)row->epoch);
    for (int i = 0; i < row->n; i++) say(self, " %s=%a", row->values[i].name, row->values[i].value);
    say(self, "\n");
    return LC_OK;
}
static lc_status start(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}
static const lc_logger_ops said_ops = {LC_LOGGER_OPS_INIT, .name = "said", .start = start, .log_row = log_row};

static void say_metrics(said *s, lc_trainer *t, const char *when)
{
    for (int set = 0; set < 3; set++) {
        say(s, "%s %d:", when, set);
        int n = lc_trainer_metric_count(t, (lc_metric_set)set);
        for (int i = 0; i < n; i++) {
            lc_metric_value v = lc_trainer_metric_at(t, (lc_metric_set)set, i);
            say(s, " %s=%a", v.name, v.value);
        }
        say(s, "\n");
    }
}

static lc_status after_batch(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    watcher *w = context;
    (void)o, (void)b;
    w->batches++;
    if (w->wish->reads_every && i % w->wish->reads_every == 0) say_metrics(w->said, t, "batch");
    double loss;
    if (w->wish->plain && i == FROM) CHECK_OK(lc_trainer_metric(t, "loss", &loss));
    if (w->wish->plain && i >= FROM && i < FROM + 4) {
        w->at[i - FROM] = counters(0);
        w->state = state_bytes(t->graph);
    }
    return LC_OK;
}
static lc_status after_eval(void *context, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i, int loader)
{
    watcher *w = context;
    (void)o, (void)b, (void)loader;
    if (w->wish->reads_every && i % w->wish->reads_every == 0) say_metrics(w->said, t, "validation batch");
    return LC_OK;
}
static lc_status after_epoch(void *context, lc_trainer *t)
{
    watcher *w = context;
    say_metrics(w->said, t, "epoch");
    return LC_OK;
}

/* Logs in every way: for the step, for the epoch, both; tensors and numbers under one name; in a later hook. */
static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    small_net *m = (small_net *)self;
    lc_tensor *loss = lc_cross_entropy(logits_of(m, b->x), b->y);
    lc_log(self, "loss", loss, .prog_bar = true);
    lc_log(self, "mean", loss, .on_step = true, .on_epoch = true);
    lc_log(self, "least", lc_mul_scalar(loss, 3), .on_step = false, .on_epoch = true, .reduce_fx = LC_LOG_MIN);
    lc_log(self, "x", lc_mean(b->x), .on_epoch = true);
    if (i % 3)
        lc_log(self, "mixed", loss, .on_epoch = true, .reduce_fx = LC_LOG_SUM);
    else
        lc_log_value(self, "mixed", 0.1 * (double)i, .on_epoch = true, .reduce_fx = LC_LOG_SUM);
    return loss;
}
static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    lc_log(self, "late", o->loss, .on_epoch = true);
    return LC_OK;
}
static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    small_net *m = (small_net *)self;
    (void)i, (void)loader;
    lc_tensor *loss = lc_cross_entropy(logits_of(m, b->x), b->y);
    lc_log(self, "val_loss", loss);
    lc_log(self, "val_step", loss, .on_step = true);
    return LC_OK;
}
static lc_status adamw(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adamw(self, .lr = 0.01));
}

static const lc_module_ops logging_ops = {
    LC_MODULE_OPS_INIT("net"),          .training_step = training_step, .on_train_batch_end = on_train_batch_end,
    .validation_step = validation_step, .configure_optimizers = adamw,
};

/* ---- what most trainings log ---- */
static int64_t spike; /* of the running training */

static lc_tensor *plain_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    small_net *m = (small_net *)self;
    lc_tensor *loss = lc_cross_entropy(logits_of(m, b->x), b->y);
    if (spike && i == spike) loss = lc_add_scalar(loss, 1000);
    lc_log(self, "loss", loss, .prog_bar = true);
    lc_log(self, "loss_of_epoch", lc_mul_scalar(loss, 1), .on_step = false, .on_epoch = true);
    return loss;
}
static lc_tensor *zeros_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = lc_mul_scalar(lc_cross_entropy(logits_of((small_net *)self, b->x), b->y), 0);
    (void)i;
    lc_log(self, "loss", loss);
    return loss;
}
static const lc_module_ops plain_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = plain_training_step,
    .configure_optimizers = adamw,
};
static const lc_module_ops zeros_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = zeros_training_step,
    .configure_optimizers = adamw,
};

static lc_status load(const wish *w, lc_dataloader **out)
{
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    lc_dataset *d;
    LC_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &d));
    lc_status s = lc_dataloader_new(out, .dataset = d, .batch_size = w->batch, .shuffle = true, .seed = 4,
                                    .num_workers = w->workers);
    lc_dataset_unref(d);
    return s;
}

static void say_weights(said *s, small_net *m)
{
    float w[CLASSES * WIDTH];
    CHECK_OK(lc_tensor_read(m->l2.weight, w, sizeof w));
    for (int i = 0; i < CLASSES * WIDTH; i++) say(s, "%a ", (double)w[i]);
}

static lc_status train(const wish *w, watcher *watch, said *s)
{
    small_net m = {.dropout = 0.2};
    lc_dataloader *data, *val;
    lc_logger logger = {&said_ops, s};
    lc_trainer_options o = quiet_options(NULL);
    lc_callback callbacks[4];
    *s = (said){.n = 0};
    spike = w->spike;
    *watch = (watcher){.said = s, .wish = w};
    CHECK_OK(small_net_init(&m, w->zeros ? &zeros_ops : w->plain ? &plain_ops : &logging_ops, 3));
    CHECK_OK(lc_lambda_callback(&callbacks[0], .context = watch, .on_train_batch_end = after_batch,
                                .on_validation_batch_end = after_eval, .on_train_epoch_end = after_epoch));
    o.callbacks = callbacks;
    o.n_callbacks = 1;
    if (!w->plain) {
        CHECK_OK(lc_learning_rate_monitor(&callbacks[1], .logging_interval = "step"));
        CHECK_OK(lc_gradient_norm_monitor(&callbacks[2], .total_only = true));
        o.n_callbacks = 3;
    }
    if (w->spike)
        CHECK_OK(lc_spike_detection(&callbacks[o.n_callbacks++], .atol = 10, .exclude_batches_path = scratch_root));
    o.max_epochs = w->epochs;
    o.log_every_n_steps = w->log_every;
    o.precision = w->precision;
    o.loggers = &logger;
    o.n_loggers = 1;
    CHECK_OK(load(w, &data));
    CHECK_OK(loader_of(0, VAL, 5, false, &val));
    CHECK_OK(lc_trainer_new(&o, &watch->trainer));
    lc_status status =
        lc_trainer_fit(watch->trainer, &m.base, .train_dataloader = data, .val_dataloader = w->plain ? NULL : val);
    say_metrics(s, watch->trainer, "end");
    say_weights(s, &m);
    lc_trainer_free(watch->trainer);
    lc_dataloader_free(data);
    lc_dataloader_free(val);
    small_net_release(&m);
    return status;
}

static const char *const schedules[][2] = {{"sim", "lazy"}, {"sim:1", "eager"}, {"sim:2", "random:7"}};

static void compare(const wish *w, lc_status expected)
{
    static said cpu, sim;
    watcher watch;
    find_plugin();
    use(NULL, NULL);
    CHECK_STATUS(train(w, &watch, &cpu), expected);
    CHECK(cpu.n > 100);
    for (int i = 0; i < 3; i++) {
        use(schedules[i][0], schedules[i][1]);
        CHECK_STATUS(train(w, &watch, &sim), expected);
        size_t k = 0;
        while (k < cpu.n && cpu.text[k] == sim.text[k]) k++;
        if (cpu.n != sim.n || k < cpu.n)
            TEST_FAIL("%s differs from the CPU at byte %zu:\n%.300s\nand not\n%.300s", schedules[i][1], k,
                      sim.text + (k > 100 ? k - 100 : 0), cpu.text + (k > 100 ? k - 100 : 0));
    }
}

TEST(what_is_logged_is_what_the_cpu_logs)
{
    compare(&(wish){.batch = 4, .epochs = 3, .log_every = 10}, LC_OK);
}

TEST(so_is_what_callbacks_read)
{
    compare(&(wish){.batch = 4, .epochs = 2, .log_every = 7, .reads_every = 5}, LC_OK);
}

TEST(so_are_more_values_than_are_kept_in_flight)
{
    compare(&(wish){.batch = 1, .epochs = 4, .log_every = 1000}, LC_OK);
}

/* A value that is read too early is not the one that was in its place before, which would be right here. */
TEST(so_are_values_that_never_change)
{
    compare(&(wish){.batch = 1, .epochs = 20, .log_every = 1, .plain = true, .zeros = true}, LC_OK);
}

static const int64_t batch_bytes = sizeof *inputs + sizeof *labels; /* of one sample */

static void check_steady(const char *precision)
{
    static said s;
    watcher watch;
    find_plugin();
    use("sim", "lazy");
    CHECK_OK(
        train(&(wish){.batch = 1, .epochs = 1, .log_every = 50, .plain = true, .workers = 2, .precision = precision},
              &watch, &s));
    lc_sim_counters before = watch.at[0], after = watch.at[2];
    CHECK_EQ(after.waits - before.waits, 0);
    CHECK_EQ(after.allocations - before.allocations, 0);
    CHECK_EQ(after.launches - before.launches, 0);
    CHECK_EQ(after.programs - before.programs, 2);
    CHECK_EQ(after.bytes_in - before.bytes_in, 2 * (batch_bytes + watch.state));
    CHECK_EQ(after.bytes_out - before.bytes_out, 2 * 2 * (int64_t)sizeof(float)); /* the logged values */
}

TEST(a_steady_step_of_fit_waits_for_nothing)
{
    check_steady("32-true");
}

/* The scale of the loss is changed, and updates are skipped, on the device. */
TEST(a_steady_step_in_another_precision_waits_for_nothing)
{
    static const char *const precisions[] = {"bf16-mixed", "16-mixed", "bf16-true", "16-true"};
    for (int i = 0; i < 4; i++) check_steady(precisions[i]);
}

TEST(a_batch_is_copied_from_where_the_loader_has_put_it)
{
    static said s;
    watcher watch;
    find_plugin();
    use("sim", "lazy");
    for (int workers = 0; workers < 3; workers += 2) {
        CHECK_OK(
            train(&(wish){.batch = 1, .epochs = 1, .log_every = 50, .plain = true, .workers = workers}, &watch, &s));
        lc_sim_counters before = watch.at[0], after = watch.at[2];
        CHECK_EQ(after.bytes_registered - before.bytes_registered, 2 * batch_bytes);
        CHECK_EQ(after.bytes_ahead - before.bytes_ahead, after.bytes_in - before.bytes_in);
        CHECK_EQ(after.waits - before.waits, 0);
    }
}

/* Batches that the loader gathers over one that the device has not copied yet would train as another. */
TEST(a_slot_is_held_until_the_device_has_copied_it)
{
    for (int workers = 0; workers < 4; workers++)
        compare(&(wish){.batch = 3, .epochs = 4, .log_every = 1000, .plain = true, .workers = workers}, LC_OK);
}

/* A label that does not exist is found when the device gets there. What has been enqueued by then updates nothing. */
TEST(a_bad_label_ends_the_run_before_its_row)
{
    static said cpu, sim;
    watcher watch;
    const wish often = {.batch = 1, .epochs = 1, .log_every = 1, .plain = true};
    const wish seldom = {.batch = 1, .epochs = 1, .log_every = 1000, .plain = true};
    int64_t right = labels[40];
    find_plugin();
    labels[40] = CLASSES;
    compare(&often, LC_ERR_ARGUMENT);
    use(NULL, NULL);
    CHECK_STATUS(train(&seldom, &watch, &cpu), LC_ERR_ARGUMENT);
    for (int i = 0; i < 3; i++) {
        use(schedules[i][0], schedules[i][1]);
        CHECK_STATUS(train(&seldom, &watch, &sim), LC_ERR_ARGUMENT);
        CHECK(strstr(lc_error_message(), "cross_entropy") && strstr(lc_error_message(), "noticed in epoch 0, batch "));
        CHECK(!strcmp(strrchr(cpu.text, '\n'), strrchr(sim.text, '\n'))); /* the weights */
    }
    labels[40] = right;
}

/* The last batch of an epoch has no batch that follows. */
TEST(a_spike_ends_the_run_one_batch_late_at_most)
{
    static said s;
    watcher watch;
    find_plugin();
    for (int i = 0; i < 3; i++)
        for (int64_t at = 24; at < SAMPLES / 2; at += 25) {
            wish w = {.batch = 2, .epochs = 1, .log_every = 50, .plain = true, .spike = at};
            char text[64];
            snprintf(text, sizeof text, "training spike detected in batch %d of epoch 0", (int)at);
            use(schedules[i][0], schedules[i][1]);
            CHECK_STATUS(train(&w, &watch, &s), LC_ERR_STATE);
            CHECK(strstr(lc_error_message(), text) != NULL);
            CHECK(watch.batches >= at + 1 && watch.batches <= at + 2);
        }
}

TEST_MAIN
