/* SPDX-License-Identifier: Apache-2.0 */
/* Options that exclude each other are refused when the trainer is made, before any hook runs. Those that need another
 * one which is not given are warned of. */
#include "quiet_options.h"
#include "test.h"
#include "trainer_world.h"

static char heard[2000];

static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    size_t n = strlen(heard);
    (void)self, (void)t;
    if (level == LC_WARNING) snprintf(heard + n, sizeof heard - n, "%s|", text);
}

/* Two fits of one trainer: each warning comes once. */
static const char *warnings_of(lc_trainer_options o)
{
    static const lc_callback_ops listener = {LC_CALLBACK_OPS_INIT("Listener"), .on_message = hear};
    lc_callback cb = {&listener, NULL};
    lc_trainer *t;
    world m;
    world_init(&m, &world_ops, 2, 1);
    o.callbacks = &cb;
    o.n_callbacks = 1;
    o.max_epochs = 1;
    heard[0] = 0;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    lc_trainer_free(t);
    world_release(&m);
    return heard;
}

TEST(an_option_that_needs_another)
{
    lc_trainer_options o = quiet_options(NULL);
    o.early_stopping = "val_loss";
    o.patience = 5;
    o.mode = "min";
    o.gradient_clip_val = 1;
    o.gradient_clip_algorithm = "value";
    o.monitor = "val_loss";
    CHECK_STR(warnings_of(o), "");
    o.early_stopping = o.monitor = NULL;
    o.min_delta = 0.5;
    o.gradient_clip_val = LC_NOT_GIVEN;
    CHECK_STR(warnings_of(o), "patience has no effect without early_stopping|"
                              "min_delta has no effect without early_stopping|"
                              "mode has no effect without monitor or early_stopping|"
                              "gradient_clip_algorithm has no effect without gradient_clip_val|");
    o.fast_dev_run = 1;
    CHECK_STR(warnings_of(o), "");
    o = quiet_options(NULL);
    o.weights = ""; /* as --weights "$UNSET" */
    o.weights_skip = "head.*";
    o.weights_strict = false;
    o.save_last = LC_ON;
    CHECK_STR(warnings_of(o), "weights_strict has no effect without weights|"
                              "weights_skip has no effect without weights|"
                              "save_last has no effect with enable_checkpointing=false|");
}

TEST(a_share_of_an_epoch_without_epochs)
{
    static const struct {
        lc_duration interval;
        int64_t every;
        bool fits;
    } rows[] = {{LC_FRACTION(1), LC_UNSET, false},
                {LC_FRACTION(0.5), LC_UNSET, false},
                {LC_FRACTION(0.5), 1, true},
                {LC_BATCHES(10), LC_UNSET, true},
                {{0}, LC_UNSET, true},
                {LC_SECONDS(5), LC_UNSET, true}};
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        lc_trainer_options o = quiet_options(NULL);
        lc_trainer *t = NULL;
        o.val_check_interval = rows[i].interval;
        o.check_val_every_n_epoch = rows[i].every;
        lc_status s = lc_trainer_new(&o, &t);
        if (rows[i].fits) CHECK_OK(s);
        if (!rows[i].fits) CHECK_STATUS(s, LC_ERR_CONFIG);
        if (!rows[i].fits) CHECK_CONTAINS(lc_error_message(), "val_check_interval must be a number of batches");
        lc_trainer_free(t);
    }
}

/* As in Lightning: what barebones turns off may not be asked for. */
TEST(barebones_turns_off_nothing_that_was_asked_for)
{
    static const struct {
        int64_t log, sanity;
        const char *clash; /* NULL: none */
    } rows[] = {{50, 2, NULL}, {0, 0, NULL}, {1, 2, "log_every_n_steps"}, {50, -1, "num_sanity_val_steps"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lc_trainer_options o = quiet_options(NULL);
        lc_trainer *t = NULL;
        o.barebones = true;
        o.log_every_n_steps = rows[i].log;
        o.num_sanity_val_steps = rows[i].sanity;
        lc_status s = lc_trainer_new(&o, &t);
        CHECK_EQ(s, rows[i].clash ? LC_ERR_CONFIG : LC_OK);
        if (rows[i].clash) CHECK_CONTAINS(lc_error_message(), rows[i].clash);
        lc_trainer_free(t);
    }
}

TEST_MAIN
