/* SPDX-License-Identifier: Apache-2.0 */
/* ModelCheckpoint saves after every epoch, unless a trigger is given; a trigger of 0 saves nothing. */
#include "checkpoint_runs.h"

TEST(a_zero_is_no_trigger)
{
    const struct {
        lc_model_checkpoint_args args;
        const char *kept;
    } rows[] = {
        {LC_ARGS(lc_model_checkpoint, .filename = "{epoch}"), "epoch=2.ckpt "},
        {LC_ARGS(lc_model_checkpoint, .filename = "{epoch}", .every_n_epochs = 2), "epoch=1.ckpt "},
        {LC_ARGS(lc_model_checkpoint, .every_n_epochs = 0), ""},
        {LC_ARGS(lc_model_checkpoint, .every_n_train_steps = 0), ""},
        {LC_ARGS(lc_model_checkpoint, .every_n_train_steps = 0, .every_n_epochs = 0), ""},
        {LC_ARGS(lc_model_checkpoint, .filename = "{step}", .every_n_train_steps = 4, .every_n_epochs = 0),
         "step=4.ckpt "},
    };
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        const char *dir = fresh_dir("triggers");
        CHECK_OK(train(dir, (short_run){.keep = rows[i].args, .epochs = 3}));
        CHECK_STR(kept(dir), rows[i].kept);
    }
}

TEST(last_alone_needs_no_metric)
{
    const char *dir = fresh_dir("last_alone");
    lc_model_checkpoint_args args =
        LC_ARGS(lc_model_checkpoint, .monitor = "nobody", .save_top_k = 0, .save_last = true, .every_n_train_steps = 2);
    CHECK_OK(train(dir, (short_run){.keep = args, .epochs = 2}));
    CHECK_STR(kept(dir), "last.ckpt ");
}

TEST(options_are_read_alike)
{
    static const struct {
        int64_t every_n_epochs;
        const char *kept;
    } rows[] = {{LC_UNSET, "epoch=2.ckpt "}, {0, ""}, {2, "epoch=1.ckpt "}};
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        lc_trainer_options o = quiet_options(NULL);
        const char *dir = fresh_dir("options");
        char list[4000];
        world m;
        lc_trainer *t;
        world_init(&m, &world_ops, 2, 1);
        o.default_root_dir = o.dirpath = dir;
        o.filename = "{epoch}";
        o.enable_checkpointing = LC_AUTO;
        o.max_epochs = 3;
        if (rows[i].every_n_epochs != LC_UNSET) o.every_n_epochs = rows[i].every_n_epochs;
        CHECK_OK(lc_trainer_new(&o, &t));
        CHECK_OK(lc_trainer_fit(t, &m.base));
        CHECK_STR(world_list(dir, ".ckpt", list, sizeof list), rows[i].kept);
        lc_trainer_free(t);
        world_release(&m);
    }
}
TEST_MAIN
