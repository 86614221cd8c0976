/* SPDX-License-Identifier: Apache-2.0 */
/* Runs with many loggers: all get the same rows; a failure is reported once and changes nothing else; a run that is
 * stopped and resumed with all of them equals one that was not stopped. */
#include "idle_ops.h"
#include "test.h"
#include "trainer_world.h"
#include "base/http.h"

#include <time.h>

enum { SAMPLES = 80, BATCH = 4, BATCHES = SAMPLES / BATCH, EPOCHS = 3 };

typedef struct net {
    lc_module base;
    lc_linear l1, l2;
    lc_dataset *data;
    int64_t stop_after; /* batches in all; 0: no limit */
    int64_t batches, pause_us;
    double slowest, last; /* seconds per batch */
} net;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *x = lc_dropout(lc_relu(lc_linear_forward(&m->l1, b->x)), 0.3);
    lc_tensor *loss = lc_mse_loss(lc_flatten(lc_linear_forward(&m->l2, x), 0), b->y);
    lc_log(self, "train_loss", loss, .on_step = true, .on_epoch = true);
    return loss;
}
static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-2));
}
static lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(lc_dataloader_new(&l, .dataset = ((net *)self)->data, .batch_size = BATCH, .shuffle = true, .seed = 7));
    return lc_loaders_add(out, l);
}
static lc_status setup(lc_module *self, lc_stage stage)
{
    const lc_hparam params[] = {{"lr", LC_HPARAM_FLOAT, .number = 1e-2}, {"hidden", LC_HPARAM_INT, .integer = 8}};
    (void)stage;
    return lc_trainer_log_hyperparameters(self->trainer, params, 2);
}
static lc_status on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    ((net *)self)->last = seconds();
    return LC_OK;
}
static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b;
    if (i % 10 == 5) {
        LC_TRY(lc_trainer_log_histogram(self->trainer, "weights", m->l1.weight, -1));
        LC_TRY(lc_trainer_log_image(self->trainer, "weights as an image", m->l1.weight, -1));
        LC_TRY(lc_trainer_log_text(self->trainer, "note", "a text", -1));
    }
    double took = seconds() - m->last;
    if (m->batches++ > 2 && took > m->slowest) m->slowest = took; /* the first batches are planned */
    if (m->pause_us) nanosleep(&(struct timespec){0, m->pause_us * 1000}, NULL);
    if (m->stop_after && m->batches == m->stop_after) lc_trainer_stop(self->trainer);
    return LC_OK;
}
static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"),
                                  .training_step = training_step,
                                  .configure_optimizers = configure_optimizers,
                                  .train_dataloader = train_dataloader,
                                  .setup = setup,
                                  .on_train_batch_start = on_train_batch_start,
                                  .on_train_batch_end = on_train_batch_end};

/* The user's messages, in order. */
typedef struct messages {
    int warnings;
    char text[8192];
} messages;
static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    messages *e = self;
    (void)t;
    if (level != LC_WARNING) return;
    size_t n = strlen(e->text);
    e->warnings++;
    snprintf(e->text + n, sizeof e->text - n, "%s\n", text);
}
static const lc_callback_ops ears_ops = {LC_CALLBACK_OPS_INIT("Ears"), .on_message = hear};

typedef struct weights {
    float l1[8 * 3], l2[8];
} weights;

/* A run in `dir`; weights gets its final ones. */
static lc_status run(const char *dir, const char *logger, const char *ckpt_path, int64_t stop_after, int64_t pause_us,
                     messages *e, weights *out, double *slowest)
{
    static float x[SAMPLES * 3], y[SAMPLES];
    for (int i = 0; i < SAMPLES * 3; i++) x[i] = (float)(i * 37 % 101) / 101;
    for (int i = 0; i < SAMPLES; i++) y[i] = (float)(i % 7);
    net m = {.stop_after = stop_after, .pause_us = pause_us};
    lc_trainer *t;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {3}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32}, .data = y}};
    CHECK_OK(lc_array_dataset_new(SAMPLES, 2, arrays, &m.data));
    lc_module_init(&m.base, &ops, 1);
    lc_linear_init(&m.l1, &m, "l1", 3, 8);
    lc_linear_init(&m.l2, &m, "l2", 8, 1);
    lc_trainer_options o = world_options(dir);
    lc_callback callback = {&ears_ops, e};
    o.callbacks = &callback;
    o.n_callbacks = 1;
    o.logger = logger;
    o.max_epochs = EPOCHS;
    o.log_every_n_steps = 4;
    o.ckpt_path = ckpt_path;
    o.seed = 3;
    lc_status status = lc_trainer_new(&o, &t);
    if (status >= 0) {
        status = lc_trainer_fit(t, &m.base);
        char path[4200];
        snprintf(path, sizeof path, "%s/stop.ckpt", dir);
        if (status >= 0 && stop_after) status = lc_trainer_save_checkpoint(t, path, false);
        lc_trainer_free(t);
    }
    if (status >= 0 && out) {
        CHECK_OK(lc_tensor_read(m.l1.weight, out->l1, sizeof out->l1));
        CHECK_OK(lc_tensor_read(m.l2.weight, out->l2, sizeof out->l2));
    }
    if (slowest) *slowest = m.slowest;
    lc_module_release(&m.base);
    lc_dataset_unref(m.data);
    return status;
}

static int lines_with(const char *dir, const char *name, const char *what)
{
    static char line[1 << 20];
    char path[4200];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    while (fgets(line, sizeof line, f)) n += strstr(line, what) != NULL;
    fclose(f);
    return n;
}

/* "csv,sqlite,tensorboard,stream:DIR/stream.jsonl,stream:|cat >DIR/command" */
static const char *all_loggers(const char *dir)
{
    static char names[4200];
    snprintf(names, sizeof names, "csv,sqlite,tensorboard,stream:%s/stream.jsonl,stream:|cat >%s/command; : a, b", dir,
             dir);
    return names;
}

TEST(several_loggers_at_once)
{
    char dir[256], files[4096], version[300];
    messages e = {0};
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(run(dir, all_loggers(dir), NULL, 0, 0, &e, NULL, NULL));
    CHECK_STR(e.text, "");
    /* A row every fourth of 20 steps, and one at the end of each epoch. */
    int rows = EPOCHS * (BATCHES / 4 + 1);
    snprintf(version, sizeof version, "%s/lightning_logs/version_0", dir);
    CHECK_EQ(lines_with(version, "metrics.csv", ","), 1 + rows);
    CHECK_EQ(lines_with(dir, "stream.jsonl", "{\"type\":\"row\""), rows);
    CHECK_EQ(lines_with(dir, "command", "{\"type\":\"row\""), rows);
    CHECK_EQ(lines_with(dir, "command", "{\"type\":\"histogram\""), EPOCHS * 2);
    CHECK_EQ(lines_with(dir, "stream.jsonl", "{\"type\":\"image\""), EPOCHS * 2);
    CHECK_EQ(lines_with(dir, "stream.jsonl", "\"values\":{\"hidden\":8,\"lr\":0.01}"), 1);
    CHECK(lines_with(dir, "stream.jsonl", "{\"type\":\"checkpoint\"") > 0);
    CHECK_EQ(lines_with(dir, "stream.jsonl", "{\"type\":\"finish\""), 1);
    CHECK_EQ(lines_with(version, "hparams.yaml", "lr: 0.01"), 1);
    world_list(version, ".0", files, sizeof files);
    CHECK_CONTAINS(files, "events.out.tfevents.");
    CHECK_STATUS(run(dir, "csv,tensorbord", NULL, 0, 0, &e, NULL, NULL), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "available: csv, sqlite, tensorboard, mlflow:URL, stream:FILE");
    CHECK_STATUS(run(dir, "csv:x", NULL, 0, 0, &e, NULL, NULL), LC_ERR_CONFIG);
    world_remove(dir);
}

/* A full disk, an unreachable server, commands that die or do not read: each is reported once during the run, and at
 * the end it says what was lost. The training ends as it does without them, and no step waits. */
TEST(a_failing_logger_changes_nothing)
{
    char dir[256], names[1024];
    weights without, with;
    double slowest;
    messages e = {0};
    lc__http *http;
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(run(dir, "none", NULL, 0, 0, &e, &without, NULL));
    CHECK_STR(e.text, "");
    bool has_http = lc__http_new(&http) >= 0;
    if (has_http) lc__http_free(http);
    snprintf(names, sizeof names, "csv,stream:/dev/full,%sstream:|exit 1",
             has_http ? "mlflow:http://127.0.0.1:1," : "");
    CHECK_OK(run(dir, names, NULL, 0, 20000, &e, &with, &slowest));
    printf("  slowest step: %.0f us\n", slowest * 1e6);
    CHECK(slowest < patience(0.5)); /* every attempt of a logger takes longer; a busy machine is slow */
    CHECK(!memcmp(&without, &with, sizeof with));
    CHECK_CONTAINS(e.text, "/dev/full");
    CHECK_CONTAINS(e.text, "exit 1");
    if (has_http) CHECK_CONTAINS(e.text, "logger mlflow");
    if (e.warnings != 2 * (2 + has_http)) TEST_FAIL("%d warnings:\n%s", e.warnings, e.text);
    CHECK_CONTAINS(e.text, "logger stream could not finish: ");
    CHECK_CONTAINS(e.text, " records were lost)");
    char version[300];
    snprintf(version, sizeof version, "%s/lightning_logs/version_0", dir);
    CHECK_EQ(lines_with(version, "metrics.csv", ","), 1 + EPOCHS * (BATCHES / 4 + 1));
    world_remove(dir);
}

static int freed;
static void count_free(void *self)
{
    (void)self;
    freed++;
}
static lc_status keep_nothing(void *self, lc_trainer *t, lc_state *state)
{
    (void)self, (void)t, (void)state;
    return LC_OK;
}

/* The trainer takes over what the options hold even if it cannot be made, and the first error is the one reported. */
TEST(options_are_freed_if_the_trainer_cannot_be_made)
{
    static const lc_callback_ops callback = {LC_CALLBACK_OPS_INIT("twin"), .save_state = keep_nothing,
                                             .free = count_free};
    static const lc_logger_ops logger = {LC_LOGGER_OPS_INIT, .name = "counted", .start = no_run, .log_row = no_row,
                                         .free = count_free};
    static const lc_profiler_ops profiler = {LC_PROFILER_OPS_INIT("counted"), .span = no_span, .report = no_report,
                                             .free = count_free};
    lc_callback both[] = {{&callback, NULL}, {&callback, NULL}};
    lc_logger loggers[] = {{&logger, NULL}};
    lc_profiler profilers[10];
    lc_trainer *t;
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    for (int i = 0; i < 10; i++) profilers[i] = (lc_profiler){&profiler, NULL};
    o.callbacks = both, o.n_callbacks = 2;
    o.loggers = loggers, o.n_loggers = 1;
    o.profilers = profilers, o.n_profilers = 10; /* more than the maximum */
    o.logger = "nonsense";
    freed = 0;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "two callbacks have the same state key twin");
    CHECK_EQ(freed, 2 + 1 + 10);
}

TEST(loggers_and_profilers_without_callbacks_are_refused)
{
    lc_logger_ops old = {LC_LOGGER_OPS_INIT, .name = "old", .start = no_run, .log_row = no_row};
    lc_profiler_ops deaf = {LC_PROFILER_OPS_INIT("deaf"), .report = no_report};
    lc_logger loggers[] = {{&old, NULL}};
    lc_profiler profilers[] = {{&deaf, NULL}};
    lc_trainer *t;
    lc_fabric *f;
    for (int how = 0; how < 4; how++) {
        lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
        old.size = how == 0 ? offsetof(lc_logger_ops, log_row) : sizeof old;
        old.log_row = how == 1 ? NULL : no_row;
        loggers[0].ops = how == 2 ? NULL : &old;
        if (how < 3) o.loggers = loggers, o.n_loggers = 1;
        if (how == 3) o.profilers = profilers, o.n_profilers = 1;
        CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_ARGUMENT);
        CHECK_CONTAINS(lc_error_message(), how < 3 ? "a logger needs" : "a profiler needs");
        if (how < 3) CHECK_STATUS(lc_fabric_new(&f, .loggers = loggers, .n_loggers = 1), LC_ERR_ARGUMENT);
    }
}

TEST(a_resumed_run_logs_as_one_that_never_stopped)
{
    char dir[256], ckpt[300];
    weights whole, resumed;
    messages e = {0};
    static const int64_t stops[] = {1, 7, 20, 33, 59};
    CHECK(world_dir(dir, sizeof dir));
    CHECK_OK(run(dir, "none", NULL, 0, 0, &e, &whole, NULL));
    snprintf(ckpt, sizeof ckpt, "%s/stop.ckpt", dir);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        CHECK_OK(run(dir, all_loggers(dir), NULL, stops[i], 0, &e, NULL, NULL));
        CHECK_OK(run(dir, all_loggers(dir), ckpt, 0, 0, &e, &resumed, NULL));
        if (memcmp(&whole, &resumed, sizeof whole)) TEST_FAIL("stopped after batch %d: other weights", (int)stops[i]);
        world_remove(ckpt);
    }
    world_remove(dir);
}

TEST_MAIN
