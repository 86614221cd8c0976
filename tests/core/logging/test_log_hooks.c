/* SPDX-License-Identifier: Apache-2.0 */
/* A value that each hook logs: the rows and the metric at the end are those recorded from Lightning 2.6.5. */
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
        CHECK_OK(lc_trainer_fit(t, &m.w.base, NULL));
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

TEST_MAIN
