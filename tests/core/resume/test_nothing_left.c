/* SPDX-License-Identifier: Apache-2.0 */
/* Continuing from a checkpoint when this fit's limits leave nothing to train. */
#include "quiet_options.h"
#include "scratch.h"
#include "trainer_world.h"

static const char *dir;
static world m;
static char heard[4000];

static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    size_t n = strlen(heard);
    (void)self, (void)t, (void)level;
    snprintf(heard + n, sizeof heard - n, "%s\n", text);
}

typedef struct limits {
    const char *from; /* a checkpoint in dir, or NULL */
    int64_t max_epochs, max_steps, patience;
    bool no_batches;
} limits;

/* Two batches an epoch. The trace is left in `m`. */
static lc_status fit(limits l)
{
    static const double worse[] = {1, 2, 3, 4, 5, 6, 7, 8};
    static lc_callback_ops hears = {LC_CALLBACK_OPS_INIT("Hears"), .on_message = hear};
    lc_trainer_options o = quiet_options(NULL);
    lc_callback all[3] = {{&hears, NULL}};
    char from[600];
    lc_trainer *t;
    world_init(&m, &world_ops, 2, 1);
    m.val_script = worse;
    m.n_script = 8;
    o.default_root_dir = dir;
    o.enable_checkpointing = LC_AUTO;
    o.num_sanity_val_steps = 0;
    o.max_epochs = l.max_epochs;
    if (l.max_steps) o.max_steps = l.max_steps;
    if (l.no_batches) o.limit_train_batches = LC_BATCHES(0);
    LC_TRY(lc_model_checkpoint(&all[1], .dirpath = dir, .filename = "{epoch}", .save_top_k = -1));
    LC_TRY(lc_early_stopping(&all[2], .monitor = "val_loss", .patience = l.patience ? l.patience : 100));
    o.callbacks = all;
    o.n_callbacks = 3;
    LC_TRY(lc_trainer_new(&o, &t));
    snprintf(from, sizeof from, "%s/%s.ckpt", dir, l.from ? l.from : "");
    *heard = 0;
    lc_status s = lc_trainer_fit(t, &m.base, .ckpt_path = l.from ? from : NULL);
    lc_trainer_free(t);
    return s;
}

static bool trained(void)
{
    return strstr(m.tr.text, "m.on_train_start:") || strstr(m.tr.text, "m.on_train_end:");
}

TEST(limits_that_were_passed)
{
    static const struct {
        limits l;
        bool ends; /* the training that was saved ends here */
    } rows[] = {
        {{.from = "epoch=2", .max_epochs = 3}, true},
        {{.from = "epoch=2", .max_epochs = 9, .max_steps = 6}, true},
        {{.from = "epoch=2", .max_epochs = 2}, false},
        {{.from = "epoch=2", .max_epochs = 9, .max_steps = 5}, false},
        {{.from = "epoch=2", .max_epochs = 9, .no_batches = true}, false},
    };
    dir = fresh_dir("limits");
    CHECK_OK(fit((limits){.max_epochs = 3}));
    world_release(&m);
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        CHECK_OK(fit(rows[i].l));
        CHECK(!strstr(m.tr.text, "training_step"));
        CHECK(trained() == rows[i].ends);
        CHECK_CONTAINS(heard, "nothing left to train: ");
        world_release(&m);
    }
    CHECK_STATUS(fit((limits){.from = "epoch=2", .max_epochs = 1}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "is at epoch 3, but max_epochs is 1");
    world_release(&m);
}

TEST(early_stopping_had_ended_it)
{
    dir = fresh_dir("stopped");
    CHECK_OK(fit((limits){.max_epochs = 6, .patience = 1}));
    world_release(&m);
    CHECK_OK(fit((limits){.from = "epoch=1", .max_epochs = 6, .patience = 1}));
    CHECK(!strstr(m.tr.text, "training_step"));
    CHECK_CONTAINS(heard, "early stopping had ended this training; give it more patience");
    world_release(&m);
    CHECK_OK(fit((limits){.from = "epoch=1", .max_epochs = 6, .patience = 3}));
    CHECK_CONTAINS(m.tr.text, "training_step");
    CHECK(!strstr(heard, "early stopping had ended"));
    world_release(&m);
}
TEST_MAIN
