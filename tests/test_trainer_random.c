/* SPDX-License-Identifier: Apache-2.0 */
/* Random configurations never crash and never hang: they run, or say what is wrong with them. */
#include "test.h"
#include "trainer_world.h"

static void log_all(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "train_loss", loss, .on_step = true, .on_epoch = true, .prog_bar = true);
}

static uint64_t counter;
static uint64_t below(uint64_t n)
{
    return lc_random_below(5, counter++, n);
}
static const char *one_of(const char *const *list)
{
    uint64_t n = 0;
    while (list[n]) n++;
    return list[below(n)];
}

static const struct {
    const char *option;
    const char *values[10];
} space[] = {
    {"max_epochs", {"1", "2", "3", "0"}},
    {"min_epochs", {"none", "1", "2"}},
    {"max_steps", {"-1", "0", "1", "3", "7"}},
    {"min_steps", {"none", "1", "4"}},
    {"max_time", {"none", "10s", "2ep", "3st", "0s", "5"}},
    {"limit_train_batches", {"none", "0", "1", "2", "0.5", "1.0", "0.01"}},
    {"limit_val_batches", {"none", "0", "1", "0.5", "0.0"}},
    {"overfit_batches", {"none", "0.0", "2"}},
    {"fast_dev_run", {"false", "0", "0", "0", "0", "2"}},
    {"val_check_interval", {"none", "1", "2", "0.25", "0.5", "100", "0s", "1ep", "2st"}},
    {"check_val_every_n_epoch", {"1", "1", "2", "none"}},
    {"num_sanity_val_steps", {"0", "2", "-1"}},
    {"accumulate_grad_batches", {"1", "1", "2", "3"}},
    {"gradient_clip_val", {"none", "0", "0.5"}},
    {"gradient_clip_algorithm", {"none", "norm", "value"}},
    {"log_every_n_steps", {"1", "2", "50", "0"}},
    {"barebones", {"false", "false", "false", "true"}},
    {"enable_checkpointing", {"auto", "true", "false"}},
    {"save_top_k", {"1", "0", "-1", "2"}},
    {"save_last", {"auto", "true", "false"}},
    {"monitor", {"none", "val_loss", "train_loss", "nope"}},
    {"every_n_train_steps", {"0", "0", "1", "3"}},
    {"every_n_epochs", {"0", "0", "1", "2"}},
    {"early_stopping", {"none", "none", "val_loss", "train_loss_epoch", "nope"}},
    {"patience", {"0", "1", "3"}},
    {"reload_dataloaders_every_n_epochs", {"0", "1", "2"}},
    {"inference_mode", {"true", "false"}},
    {"detect_anomaly", {"false", "true"}},
    {"save_on_train_epoch_end", {"auto", "true", "false"}},
    {"filename", {"none", "x", "{epoch}-{train_loss:.3f}", "{step", "a/{val_loss}"}},
};

TEST(configurations)
{
    int n, ran = 0, refused = 0;
    const lc_option *table = lc_trainer_option_table(&n);
    char dir[256];
    CHECK(world_dir(dir, sizeof dir));
    for (int k = 0; k < 150; k++) {
        static memory_logger rows;
        world m;
        lc_trainer *t = NULL;
        lc_trainer_options o = world_options(dir);
        lc_logger logger = {&memory_ops, &rows};
        memset(&rows, 0, sizeof rows);
        if (below(2)) {
            o.loggers = &logger;
            o.n_loggers = 1;
        }
        o.handle_signals = false;
        for (size_t i = 0; i < sizeof space / sizeof *space; i++) {
            if (below(3) != 0) continue;
            for (int j = 0; j < n; j++)
                if (!strcmp(table[j].name, space[i].option))
                    CHECK_OK(lc_option_set_text(&table[j], &o, one_of(space[i].values)));
        }
        if (o.max_epochs == LC_UNSET) o.max_epochs = 2;
        world_init(&m, &world_ops, (int64_t)below(6), 1 + (int64_t)below(3));
        m.log_train = log_all;
        m.unsized = below(4) == 0;
        m.n_val2 = (int64_t)below(3);
        m.lr = 0.1;
        lc_status s = lc_trainer_new(&o, &t);
        if (s >= 0) s = lc_trainer_fit(t, &m.base, NULL);
        if (s >= 0 && below(2)) s = lc_trainer_validate(t, &m.base, NULL);
        if (s >= 0 && below(2)) s = lc_trainer_fit(t, &m.base, NULL);
        if (s < 0) {
            refused++;
            CHECK(lc_error_message()[0]);
            if (s != LC_ERR_CONFIG && s != LC_ERR_STATE)
                TEST_FAIL("configuration %d: %s: %s", k, lc_status_text(s), lc_error_message());
        } else {
            ran++;
        }
        lc_trainer_free(t);
        world_release(&m);
    }
    world_remove(dir);
    CHECK(ran > 20 && refused > 20);
}

TEST_MAIN
