/* SPDX-License-Identifier: Apache-2.0 */
/* last.ckpt names the newest checkpoint, wherever below dirpath it is and whatever made ModelCheckpoint save it. */
#include "checkpoint_runs.h"

/* The target of dir/ckpt/last.ckpt. */
static const char *led_to(const char *dir)
{
    static char target[256];
    char link[600];
    snprintf(link, sizeof link, "%s/ckpt/last.ckpt", dir);
    ssize_t n = readlink(link, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    return target;
}

static const char *kept_in(const char *dir, const char *folder)
{
    static char list[4000];
    char path[600];
    snprintf(path, sizeof path, "%s/ckpt/%s", dir, folder);
    return world_list(path, ".ckpt", list, sizeof list);
}

static int warnings;
static void count_warnings(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)self, (void)t;
    if (level < LC_WARNING) return;
    printf("  %s\n", text);
    warnings++;
}

TEST(last_leads_into_a_folder)
{
    char last[600];
    const char *dir = fresh_dir("last_folder");
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .filename = "sub/{epoch}", .save_last = true),
                   .epochs = 3,
                   .on_message = count_warnings};
    warnings = 0;
    CHECK_OK(train(dir, r));
    CHECK_STR(kept(dir), "last.ckpt ");
    CHECK_STR(led_to(dir), "sub/epoch=2.ckpt");
    CHECK_STR(kept_in(dir, "sub"), "epoch=2.ckpt ");
    CHECK_EQ(warnings, 0);
    /* Continued through the link, by its path and by looking for the newest. */
    snprintf(last, sizeof last, "%s/ckpt/last.ckpt", dir);
    r.ckpt_path = last, r.epochs = 4;
    CHECK_OK(train(dir, r));
    CHECK_STR(led_to(dir), "sub/epoch=3.ckpt");
    r.ckpt_path = "last", r.epochs = 5;
    CHECK_OK(train(dir, r));
    CHECK_STR(kept(dir), "last.ckpt ");
    CHECK_STR(led_to(dir), "sub/epoch=4.ckpt");
    CHECK(is_tidy(dir));
}

/* The slash of a metric's name makes a folder of each checkpoint. */
static void log_slash(lc_module *self, double value)
{
    lc_log_value(self, "val/loss", value);
}

TEST(last_follows_from_folder_to_folder)
{
    static const double script[] = {3, 2, 1};
    const char *dir = fresh_dir("last_folders");
    short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .monitor = "val/loss", .filename = "{epoch}-{val/loss:.2f}",
                                   .save_last = true),
                   .epochs = 3,
                   .script = script,
                   .n_script = 3,
                   .log_val = log_slash};
    CHECK_OK(train(dir, r));
    CHECK_STR(led_to(dir), "epoch=2-val/loss=1.00.ckpt");
    CHECK_STR(kept_in(dir, "epoch=1-val"), "");
    CHECK_STR(kept_in(dir, "epoch=2-val"), "loss=1.00.ckpt ");
    CHECK_CONTAINS(run_last, "/ckpt/last.ckpt");
}

static lc_status fail_in_epoch_1(lc_module *self)
{
    return lc_trainer_current_epoch(self->trainer) == 1 ? lc_fail(LC_ERR_USER, "as if something broke") : LC_OK;
}

TEST(last_is_what_an_exception_saved)
{
    static const struct {
        int64_t k;
        bool weights_only;
    } kinds[] = {{1, false}, {0, false}, {-1, true}};
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++) {
        const char *dir = fresh_dir("last_exception");
        short_run r = {.keep = LC_ARGS(lc_model_checkpoint, .save_on_exception = true, .save_last = true,
                                       .save_top_k = kinds[i].k, .save_weights_only = kinds[i].weights_only),
                       .epochs = 3,
                       .on_validation_end = fail_in_epoch_1};
        CHECK_STATUS(train(dir, r), LC_ERR_USER);
        CHECK_STR(led_to(dir), "epoch=1-step=4.ckpt");
        CHECK_CONTAINS(run_last, "/ckpt/last.ckpt");
        CHECK(is_tidy(dir));
    }
}

static void fit_here(lc_trainer_options o)
{
    lc_trainer *t;
    world m;
    world_init(&m, &world_ops, 2, 1);
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &m.base));
    lc_trainer_free(t);
    world_release(&m);
}

/* --dirpath "$DIR" with nothing in DIR: the current directory, as in Lightning, and not the root of the file system. */
TEST(an_empty_directory_is_the_current_one)
{
    lc_trainer_options o = quiet_options(NULL);
    o.default_root_dir = "";
    o.enable_checkpointing = LC_ON;
    o.max_epochs = 1;
    CHECK(!chdir(fresh_dir("empty")));
    fit_here(o);
    CHECK_OK(lc_checkpoint_verify("checkpoints/epoch=0-step=2.ckpt"));
    o.dirpath = "";
    fit_here(o);
    CHECK_OK(lc_checkpoint_verify("epoch=0-step=2.ckpt"));
    o.ckpt_path = "last";
    o.max_epochs = 2;
    fit_here(o);
    CHECK_OK(lc_checkpoint_verify("epoch=1-step=4.ckpt"));
    CHECK(!chdir("/"));
}

TEST_MAIN
