/* SPDX-License-Identifier: Apache-2.0 */
/* One callback of each kind: callbacks added by lc_trainer_add_callback, by configure_callbacks or in the options
 * replace the trainer's own. */
#include "test.h"
#include "trainer_world.h"

#include <lightc/callbacks.h>

static const char *const names[] = {"ProgressBar",   "ModelSummary", "ModelCheckpoint",      "Timer",
                                    "EarlyStopping", "OurBar",       "OnExceptionCheckpoint"};
enum { NAMES = sizeof names / sizeof *names };

/* "ProgressBar=1 ModelSummary=1": the number of each. */
static const char *count(const lc_trainer *t, char text[300])
{
    size_t n = 0;
    *text = 0;
    for (int k = 0; k < NAMES; k++) {
        int found = 0;
        while (lc_trainer_callback_named(t, names[k], found).ops) found++;
        if (k == 0) /* without a terminal the rich bar becomes a plain one */
            while (lc_trainer_callback_named(t, "RichProgressBar", found).ops) found++;
        if (found) n += (size_t)snprintf(text + n, 300 - n, "%s%s=%d", n ? " " : "", names[k], found);
    }
    return text;
}

#define CHECK_CALLBACKS(t, want)                                                                                       \
    do {                                                                                                               \
        char text_[300];                                                                                               \
        CHECK_STR(count(t, text_), want);                                                                              \
    } while (0)

static int bars_freed;
static void bar_free(void *self)
{
    (void)self;
    bars_freed++;
}
static const lc_callback_ops our_bar = {LC_CALLBACK_OPS_INIT("OurBar"), .kind = "ProgressBar", .free = bar_free};
static const lc_callback_ops old_bar = {.size = offsetof(lc_callback_ops, kind), .name = "OurBar", .free = bar_free};

static lc_trainer_options quiet(const char *dir)
{
    lc_trainer_options o = LC_TRAINER_OPTIONS_INIT;
    o.default_root_dir = dir;
    o.logger = "none";
    o.max_epochs = 1;
    o.num_sanity_val_steps = 0;
    return o;
}

static void bar(lc_trainer *t, bool rich)
{
    lc_callback cb;
    if (rich)
        CHECK_OK(lc_rich_progress_bar(&cb, .fd = 2));
    else
        CHECK_OK(lc_progress_bar(&cb, .refresh_rate = 3));
    CHECK_OK(lc_trainer_add_callback(t, cb));
}

TEST(added_callbacks_replace_the_defaults)
{
    char dir[200];
    lc_callback cb;
    lc_trainer *t;
    lc_trainer_options o = quiet(world_dir(dir, sizeof dir));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1");
    bar(t, false);
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1");
    CHECK_OK(lc_model_summary(&cb, .max_depth = 1));
    CHECK_OK(lc_trainer_add_callback(t, cb));
    CHECK_OK(lc_model_checkpoint(&cb, .monitor = "loss"));
    CHECK_OK(lc_trainer_add_callback(t, cb));
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1");
    CHECK(lc_trainer_callback_named(t, "ModelCheckpoint", 0).self == cb.self);
    /* A second one of the program's own is kept besides the first. */
    CHECK_OK(lc_model_checkpoint(&cb, .monitor = "val_loss"));
    CHECK_OK(lc_trainer_add_callback(t, cb));
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=2");
    lc_trainer_free(t);

    CHECK_OK(lc_trainer_new(&o, &t));
    bar(t, true);
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1");
    lc_trainer_free(t);

    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_add_callback(t, (lc_callback){&our_bar, NULL}));
    CHECK_CALLBACKS(t, "ModelSummary=1 ModelCheckpoint=1 OurBar=1");
    lc_trainer_free(t);

    /* As Lightning's list of checkpoint callbacks. */
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_on_exception_checkpoint(&cb, .dirpath = dir));
    CHECK_OK(lc_trainer_add_callback(t, cb));
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 OnExceptionCheckpoint=1");
    lc_trainer_free(t);

    o.max_time = LC_SECONDS(100);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1 Timer=1");
    CHECK_OK(lc_timer_new(7, false, &cb));
    CHECK_OK(lc_trainer_add_callback(t, cb));
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1 Timer=1");
    CHECK(lc_trainer_callback_named(t, "Timer", 0).self == cb.self);
    lc_trainer_free(t);
    world_remove(dir);
}

TEST(callbacks_in_options_replace_the_defaults)
{
    char dir[200];
    lc_callback list[2];
    lc_trainer *t;
    lc_trainer_options o = quiet(world_dir(dir, sizeof dir));
    o.max_time = LC_SECONDS(100);
    o.callbacks = list;
    o.n_callbacks = 2;
    bars_freed = 0;
    list[0] = (lc_callback){&our_bar, NULL};
    CHECK_OK(lc_timer_new(7, false, &list[1]));
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_CALLBACKS(t, "ModelSummary=1 ModelCheckpoint=1 Timer=1 OurBar=1");
    lc_trainer_free(t);
    CHECK_EQ(bars_freed, 1);
    /* Options of a program that was built before there were kinds. */
    o.callbacks = list;
    o.n_callbacks = 1;
    list[0] = (lc_callback){&old_bar, NULL};
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1 Timer=1 OurBar=1");
    lc_trainer_free(t);
    world_remove(dir);
}

TEST(impossible_callbacks_are_refused_and_freed)
{
    char dir[200];
    lc_callback list[2];
    lc_trainer *t;
    lc_trainer_options o = quiet(world_dir(dir, sizeof dir));
    bars_freed = 0;
    o.callbacks = list;
    o.n_callbacks = 2;
    list[0] = list[1] = (lc_callback){&our_bar, NULL};
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "one progress bar");
    CHECK_EQ(bars_freed, 2);

    o.n_callbacks = 0;
    CHECK_OK(lc_trainer_new(&o, &t));
    bar(t, true);
    CHECK_STATUS(lc_trainer_add_callback(t, (lc_callback){&our_bar, NULL}), LC_ERR_CONFIG);
    CHECK_EQ(bars_freed, 3);
    CHECK_CALLBACKS(t, "ProgressBar=1 ModelSummary=1 ModelCheckpoint=1");
    lc_trainer_free(t);

    o.callbacks = list;
    o.n_callbacks = 1;
    o.enable_progress_bar = LC_OFF;
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "enable_progress_bar is false");
    CHECK_EQ(bars_freed, 4);
    o.enable_progress_bar = LC_ON;
    o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_model_checkpoint_new(NULL, &list[0]));
    CHECK_STATUS(lc_trainer_new(&o, &t), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "enable_checkpointing is false");
    world_remove(dir);
}

/* ---- configure_callbacks ---- */

static lc_status configure(lc_module *self)
{
    lc_trainer *t = self->trainer;
    lc_callback cb;
    LC_TRY(lc_early_stopping(&cb, .monitor = "a"));
    LC_TRY(lc_trainer_add_callback(t, cb));
    LC_TRY(lc_early_stopping(&cb, .monitor = "b"));
    LC_TRY(lc_trainer_add_callback(t, cb));
    LC_TRY(lc_model_checkpoint(&cb, .monitor = "a"));
    LC_TRY(lc_trainer_add_callback(t, cb));
    LC_TRY(lc_trainer_add_callback(t, (lc_callback){&our_bar, NULL}));
    return LC_OK;
}

static lc_status too_late(lc_module *self)
{
    lc_callback cb;
    LC_TRY(lc_timer_new(7, false, &cb));
    CHECK_STATUS(lc_trainer_add_callback(self->trainer, cb), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "configure_callbacks");
    return LC_OK;
}

static lc_tensor *step(lc_module *self, const lc_batch *b, int64_t i)
{
    world *m = (world *)self;
    (void)i;
    lc_tensor *loss = lc_mul(m->w, lc_mean(b->x));
    lc_log(self, "a", loss, .on_epoch = LC_ON);
    lc_log(self, "b", loss, .on_epoch = LC_ON);
    return loss;
}
static lc_status sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 1e-7));
}
static lc_status data(lc_module *self, lc_loaders *out)
{
    (void)self;
    return lc_loaders_add(out, numbers_new(3, 1, false));
}
static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"),        .training_step = step,
                                  .configure_optimizers = sgd,      .train_dataloader = data,
                                  .configure_callbacks = configure, .on_train_start = too_late};

TEST(callbacks_of_the_module_replace_all_of_their_kind)
{
    char dir[200];
    world m;
    lc_callback list[2];
    lc_trainer *t;
    world_init(&m, &ops, 3, 0);
    lc_trainer_options o = quiet(world_dir(dir, sizeof dir));
    CHECK_OK(lc_early_stopping(&list[0], .monitor = "a"));
    CHECK_OK(lc_rich_progress_bar_new(NULL, &list[1]));
    o.callbacks = list;
    o.n_callbacks = 2;
    bars_freed = 0;
    CHECK_OK(lc_trainer_new(&o, &t));
    for (int round = 0; round < 3; round++) {
        CHECK_OK(lc_trainer_fit(t, &m.base));
        CHECK_CALLBACKS(t, "ModelSummary=1 ModelCheckpoint=1 EarlyStopping=2 OurBar=1");
        CHECK_EQ(bars_freed, round);
    }
    lc_trainer_free(t);
    CHECK_EQ(bars_freed, 3);
    world_release(&m);
    world_remove(dir);
}

TEST_MAIN
