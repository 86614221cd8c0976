/* SPDX-License-Identifier: Apache-2.0 */
/* A value that each hook logs: the rows and the final metrics are those recorded from Lightning 2.6.5. */
#include "test.h"
#include "trainer_world.h"

typedef struct counting {
    world w;
    int n;
} counting;

static void log_next(lc_module *self)
{
    lc_log_value(self, "x", ++((counting *)self)->n);
}

#define PLAIN(hook)                                                                                                    \
    static lc_status log_##hook(lc_module *self)                                                                       \
    {                                                                                                                  \
        log_next(self);                                                                                                \
        return LC_OK;                                                                                                  \
    }
PLAIN(on_train_start)
PLAIN(on_train_epoch_start)
PLAIN(on_after_backward)
PLAIN(on_validation_start)
PLAIN(on_validation_epoch_start)
PLAIN(on_validation_epoch_end)
PLAIN(on_train_epoch_end)
static lc_status log_on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b, (void)i;
    log_next(self);
    return LC_OK;
}
static lc_status log_on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    log_next(self);
    return LC_OK;
}
static lc_status log_on_before_zero_grad(lc_module *self, lc_optimizer *optimizer)
{
    (void)optimizer;
    log_next(self);
    return LC_OK;
}
static lc_status log_on_validation_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i, int d)
{
    (void)o, (void)b, (void)i, (void)d;
    log_next(self);
    return LC_OK;
}
static lc_status quiet_validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)self, (void)b, (void)i, (void)d;
    return LC_OK;
}

#define STEPS        "step=0 epoch=0 x=1|step=1 epoch=0 x=2|step=2 epoch=1 x=3|step=3 epoch=1 x=4|", 4
#define AFTER_SANITY "step=1 epoch=0 x=2|step=3 epoch=1 x=3|", 3
#define ROW(hook, ...)                                                                                                 \
    {                                                                                                                  \
#hook, {.hook = log_##hook }, __VA_ARGS__                                                                      \
    }

static const struct {
    const char *name;
    lc_module_ops ops;
    const char *rows;
    double last;
} hooks[] = {
    ROW(on_train_start, "step=1 epoch=0 x=1|", 1),
    ROW(on_train_epoch_start, "step=1 epoch=0 x=1|step=3 epoch=1 x=2|", 2),
    ROW(on_train_batch_start, STEPS),
    ROW(on_train_batch_end, STEPS),
    ROW(on_before_zero_grad, STEPS),
    ROW(on_after_backward, STEPS),
    ROW(on_validation_start, AFTER_SANITY),
    ROW(on_validation_epoch_start, AFTER_SANITY),
    ROW(on_validation_batch_end, AFTER_SANITY),
    ROW(on_validation_epoch_end, AFTER_SANITY),
    ROW(on_train_epoch_end, "step=1 epoch=0 x=1|step=3 epoch=1 x=2|", 2),
};

TEST(rows_of_every_hook)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        counting m = {.n = 0};
        char dir[256];
        lc_trainer *t;
        memory_logger rows = {.n = 0};
        lc_logger logger = {&memory_ops, &rows};
        lc_module_ops ops = hooks[i].ops;
        double v = NAN;
        CHECK(world_dir(dir, sizeof dir));
        ops.size = sizeof ops;
        ops.name = "counting";
        ops.training_step = world_training_step;
        ops.validation_step = quiet_validation_step;
        ops.configure_optimizers = world_configure_optimizers;
        ops.train_dataloader = world_train_dataloader;
        ops.val_dataloader = world_val_dataloader;
        world_init(&m.w, &ops, 2, 1);
        lc_trainer_options o = world_options(dir);
        o.loggers = &logger;
        o.n_loggers = 1;
        o.max_epochs = 2;
        o.log_every_n_steps = 1;
        o.num_sanity_val_steps = 1;
        o.enable_checkpointing = LC_OFF;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_OK(lc_trainer_fit(t, &m.w.base));
        lc_status s = lc_trainer_metric(t, "x", &v);
        if (s < 0 || v != hooks[i].last || strcmp(rows.text, hooks[i].rows) != 0) {
            printf("  %s: %s and %g, Lightning has %s and %g\n", hooks[i].name, rows.text, v, hooks[i].rows,
                   hooks[i].last);
            wrong++;
        }
        lc_trainer_free(t);
        world_release(&m.w);
        world_remove(dir);
    }
    CHECK_EQ(wrong, 0);
}

/* A name without the suffix of a loader belongs to the one that logs it: neither the rows of another loader's steps nor
 * its results have it. Values of hooks around the loaders belong to all. As recorded from Lightning 2.6.5. */
static lc_status log_for_a_loader(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)b, (void)i;
    double n = ++((counting *)self)->n;
    lc_log_value(self, "both", n, .on_step = true, .on_epoch = true);
    lc_log_value(self, d ? "own1" : "own0", n, .add_dataloader_idx = false, .on_step = true, .on_epoch = true);
    return LC_OK;
}

static lc_status log_the_beginning(lc_module *self)
{
    lc_log_value(self, "begin", 7);
    return LC_OK;
}

static lc_status log_the_end(lc_module *self)
{
    lc_log_value(self, "end", 8);
    return LC_OK;
}

static void check_results(const lc_trainer *t, int loader, const char *wanted)
{
    char text[256] = "";
    lc_metrics r = lc_trainer_results(t, loader);
    for (int i = 0; i < r.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s=%.6g ", r.values[i].name, r.values[i].value);
    CHECK_STR(text, wanted);
}

TEST(a_name_of_one_loader)
{
    for (int test = 0; test < 2; test++) {
        counting m = {.n = 0};
        char dir[256];
        lc_trainer *t;
        memory_logger rows = {.n = 0};
        lc_logger logger = {&memory_ops, &rows};
        lc_module_ops ops = {LC_MODULE_OPS_INIT("counting"),         .validation_step = log_for_a_loader,
                             .test_step = log_for_a_loader,          .on_validation_epoch_start = log_the_beginning,
                             .on_validation_epoch_end = log_the_end, .on_test_epoch_start = log_the_beginning,
                             .on_test_epoch_end = log_the_end,       .val_dataloader = world_val_dataloader,
                             .test_dataloader = world_val_dataloader};
        CHECK(world_dir(dir, sizeof dir));
        world_init(&m.w, &ops, 2, 2);
        m.w.n_val2 = 2;
        lc_trainer_options o = world_options(dir);
        o.loggers = &logger;
        o.n_loggers = 1;
        CHECK_OK(lc_trainer_new(&o, &t));
        if (test)
            CHECK_OK(lc_trainer_test(t, &m.w.base));
        else
            CHECK_OK(lc_trainer_validate(t, &m.w.base));
        CHECK_STR(rows.text,
                  "step=0 both_step/dataloader_idx_0=1 own0_step=1|step=1 both_step/dataloader_idx_0=2 own0_step=2|"
                  "step=0 both_step/dataloader_idx_1=3 own1_step=3|step=1 both_step/dataloader_idx_1=4 own1_step=4|"
                  "step=0 epoch=0 begin=7 both_epoch/dataloader_idx_0=1.5 both_epoch/dataloader_idx_1=3.5 end=8 "
                  "own0_epoch=1.5 own1_epoch=3.5|");
        check_results(t, 0, "begin=7 both_epoch/dataloader_idx_0=1.5 end=8 own0_epoch=1.5 ");
        check_results(t, 1, "begin=7 both_epoch/dataloader_idx_1=3.5 end=8 own1_epoch=3.5 ");
        lc_trainer_free(t);
        world_release(&m.w);
        world_remove(dir);
    }
}

/* ---- choices: written by a program as false, true or not at all; in checkpoints 2, 1 and 0 ---- */

static lc_tensor *log_choices(lc_module *self, const lc_batch *batch, int64_t i)
{
    lc_tensor *loss = world_training_step(self, batch, i);
    lc_log(self, "off", loss, .on_step = false, .on_epoch = true, .logger = false);
    lc_log(self, "on", loss, .on_step = true, .on_epoch = true);
    lc_log(self, "auto", loss, .on_epoch = true);
    return loss;
}

static lc_status save_inside_the_epoch(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b;
    lc_trainer *t = self->trainer;
    char path[300];
    snprintf(path, sizeof path, "%s/inside.ckpt", lc_trainer_default_root_dir(t));
    return i == 0 ? lc_trainer_save_checkpoint(t, path, false) : LC_OK;
}

static void check_stored(const lc_state *results, const char *name, int64_t on_step, int64_t on_epoch, int64_t logger)
{
    for (int64_t i = 0; i < lc_state_length(results); i++) {
        const lc_state *one = lc_state_at(results, i);
        const char *is;
        int64_t v[3];
        CHECK_OK(lc_state_get_text(one, "name", &is));
        if (strcmp(is, name) != 0) continue;
        CHECK_OK(lc_state_get_int(one, "arg_on_step", &v[0]));
        CHECK_OK(lc_state_get_int(one, "arg_on_epoch", &v[1]));
        CHECK_OK(lc_state_get_int(one, "logger", &v[2]));
        CHECK_EQ(v[0], on_step);
        CHECK_EQ(v[1], on_epoch);
        CHECK_EQ(v[2], logger);
        return;
    }
    TEST_FAIL("the checkpoint holds no \"%s\"", name);
}

TEST(choices)
{
    static world m;
    static char json[1 << 16];
    char dir[256], path[300];
    lc_trainer *t;
    memory_logger rows = {.n = 0};
    lc_logger logger = {&memory_ops, &rows};
    lc_module_ops ops = world_ops_without_val;
    lc_state *state;
    const lc_state *results;
    CHECK(world_dir(dir, sizeof dir));
    ops.training_step = log_choices;
    ops.on_train_batch_end = save_inside_the_epoch;
    world_init(&m, &ops, 2, 1);
    lc_trainer_options o = world_options(dir);
    o.loggers = &logger;
    o.n_loggers = 1;
    o.max_epochs = 1;
    o.log_every_n_steps = 1;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK(!strstr(rows.text, "off") && strstr(rows.text, "on_step=") && strstr(rows.text, "on_epoch="));
    snprintf(path, sizeof path, "%s/inside.ckpt/state.json", dir);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    size_t n = fread(json, 1, sizeof json, f);
    fclose(f);
    CHECK_OK(lc_state_parse(json, n, &state));
    CHECK_OK(lc_state_get_array(state, "results", &results));
    check_stored(results, "off", 2, 1, 2);
    check_stored(results, "on", 1, 1, 1);
    check_stored(results, "auto", 0, 1, 1);
    lc_state_free(state);
    snprintf(path, sizeof path, "%s/inside.ckpt", dir);
    CHECK_OK(lc_trainer_fit(t, &m.base, .ckpt_path = path)); /* the arguments are the same as the stored ones */
    lc_trainer_free(t);
    world_release(&m);
    world_remove(dir);
}

/* A value named "step" replaces the row's step, also if nothing else is logged, and must be a step. */
static double own_step;
static void log_own_step(lc_module *self, lc_tensor *loss)
{
    (void)loss;
    lc_log_value(self, "step", own_step);
}

TEST(a_row_with_a_step_of_its_own)
{
    static const double steps[] = {7.5, NAN, INFINITY, 1e300};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        static world m;
        char dir[256];
        lc_trainer *t;
        memory_logger rows = {.n = 0};
        lc_logger logger = {&memory_ops, &rows};
        CHECK(world_dir(dir, sizeof dir));
        world_init(&m, &world_ops_without_val, 1, 1);
        own_step = steps[i];
        m.log_train = log_own_step;
        lc_trainer_options o = world_options(dir);
        o.loggers = &logger;
        o.n_loggers = 1;
        o.max_epochs = 2;
        o.log_every_n_steps = 1;
        o.enable_checkpointing = LC_OFF;
        CHECK_OK(lc_trainer_new(&o, &t));
        lc_status s = lc_trainer_fit(t, &m.base);
        if (i) {
            CHECK_EQ(s, LC_ERR_CONFIG);
            CHECK_CONTAINS(lc_error_message(), "\"step\"");
        } else {
            CHECK_OK(s);
        }
        CHECK_STR(rows.text, i ? "" : "step=7|step=7|");
        lc_trainer_free(t);
        world_release(&m);
        world_remove(dir);
    }
}

/* ---- evaluations before and after a fit ---- */

static lc_status log_each_batch(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)b, (void)d;
    lc_log_value(self, "v", (double)i, .on_step = LC_ON, .on_epoch = LC_OFF);
    return LC_OK;
}

/* As recorded from Lightning: the validations of a fit count their batches on, an evaluation counts its own. */
TEST(batches_of_evaluations)
{
    char dir[256];
    memory_logger rows = {.n = 0};
    lc_logger logger = {&memory_ops, &rows};
    lc_module_ops ops = world_ops;
    world m;
    lc_trainer *t;
    ops.validation_step = log_each_batch;
    if (!world_dir(dir, sizeof dir)) return;
    world_init(&m, &ops, 1, 2);
    lc_trainer_options o = world_options(dir);
    o.loggers = &logger;
    o.n_loggers = 1;
    o.max_epochs = 2;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_validate(t, &m.base));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK_OK(lc_trainer_validate(t, &m.base));
    CHECK_STR(rows.text, "step=0 v=0|step=1 v=1|"
                         "step=0 v=0|step=1 v=1|step=2 v=0|step=3 v=1|"
                         "step=0 v=0|step=1 v=1|");
    lc_trainer_free(t);
    world_release(&m);
    world_remove(dir);
}

/* ---- the sanity check ---- */

/* Each hook writes down the metrics that it can read, as "name=value". */
typedef struct seen {
    char text[512];
} seen;

static lc_status see(seen *s, lc_trainer *t, const char *where)
{
    size_t n = strlen(s->text);
    n += (size_t)snprintf(s->text + n, sizeof s->text - n, "%s:", where);
    for (int set = LC_CALLBACK_METRICS; set <= LC_PROGRESS_BAR_METRICS; set += LC_PROGRESS_BAR_METRICS)
        for (int i = 0; i < lc_trainer_metric_count(t, (lc_metric_set)set) && n < sizeof s->text; i++) {
            lc_metric_value v = lc_trainer_metric_at(t, (lc_metric_set)set, i);
            n += (size_t)snprintf(s->text + n, sizeof s->text - n, " %s=%g", v.name, v.value);
        }
    snprintf(s->text + n, sizeof s->text - n, "|");
    return LC_OK;
}
static lc_status see_validation_epoch_end(void *self, lc_trainer *t)
{
    return see(self, t, "epoch_end");
}
static lc_status see_validation_end(void *self, lc_trainer *t)
{
    return see(self, t, "end");
}
static lc_status see_sanity_check_end(void *self, lc_trainer *t)
{
    return see(self, t, "sanity_check_end");
}
static lc_status see_train_start(void *self, lc_trainer *t)
{
    return see(self, t, "train_start");
}
static const lc_callback_ops seeing = {
    LC_CALLBACK_OPS_INIT("Seeing"),          .on_validation_epoch_end = see_validation_epoch_end,
    .on_validation_end = see_validation_end, .on_sanity_check_end = see_sanity_check_end,
    .on_train_start = see_train_start,
};

static lc_status log_twice(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)b, (void)d;
    lc_log_value(self, "v", (double)i, .prog_bar = true);
    return LC_OK;
}
static lc_status log_a_train_start(lc_module *self)
{
    lc_log_value(self, "a", 1);
    return LC_OK;
}

/* As recorded from Lightning: a callback that reads metrics can be tried by the sanity check, of which nothing stays.
 */
TEST(metrics_of_a_sanity_check)
{
    char dir[256];
    seen s = {""};
    lc_callback cb = {&seeing, &s};
    lc_module_ops ops = world_ops;
    world m;
    lc_trainer *t;
    ops.validation_step = log_twice;
    ops.on_train_start = log_a_train_start;
    if (!world_dir(dir, sizeof dir)) return;
    world_init(&m, &ops, 2, 3);
    lc_trainer_options o = world_options(dir);
    o.callbacks = &cb;
    o.n_callbacks = 1;
    o.max_epochs = 1;
    o.num_sanity_val_steps = 2;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK_STR(s.text, "epoch_end: v=0.5 v=0.5|end: v=0.5 v=0.5|sanity_check_end: v=0.5 v=0.5|train_start:|"
                      "epoch_end: v=1 v=1|end: v=1 v=1|");
    lc_trainer_free(t);
    world_release(&m);
    world_remove(dir);
}

TEST_MAIN
