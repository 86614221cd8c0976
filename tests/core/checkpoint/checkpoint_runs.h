/* SPDX-License-Identifier: Apache-2.0 */
/* Short trainings with a ModelCheckpoint, and what is in their directory afterwards. */
#ifndef LC_TESTS_CHECKPOINT_RUNS_H
#define LC_TESTS_CHECKPOINT_RUNS_H

#include "quiet_options.h"
#include "scratch.h"
#include "trainer_world.h"

#include "core/checkpoint/checkpoint.h"

typedef struct short_run {
    lc_model_checkpoint_args keep; /* the runner sets dirpath; without a size: the defaults */
    const char *ckpt_path;
    int64_t epochs;       /* of two batches each */
    const double *script; /* values of val_loss, one per epoch */
    int n_script;
    double lr; /* 0: the weights do not change */
    void (*log_val)(lc_module *self, double value);
    void (*on_message)(void *self, lc_trainer *t, lc_level level, const char *text);
    void *message_to;
    bool handle_signals;
    lc_status (*on_validation_end)(lc_module *self); /* called after ModelCheckpoint's own hook */
    const lc_logger *logger;
} short_run;

/* The results of the last run: paths of its best and its last checkpoint, and whether there is a best score. */
static char run_best[600], run_last[600];
static bool run_has_score;

/* Trains in `dir`; checkpoints go to dir/ckpt. */
static inline lc_status train(const char *dir, short_run r)
{
    lc_trainer_options o = quiet_options(NULL);
    lc_trainer *t;
    lc_callback cb, all[2];
    static lc_callback_ops hears = {LC_CALLBACK_OPS_INIT("Hears")};
    lc_module_ops ops = world_ops;
    world m;
    char dirpath[600];
    snprintf(dirpath, sizeof dirpath, "%s/ckpt", dir);
    if (r.on_validation_end) ops.on_validation_end = r.on_validation_end;
    world_init(&m, &ops, 2, 1);
    m.val_script = r.script;
    m.n_script = r.n_script;
    m.lr = r.lr;
    m.log_val = r.log_val;
    o.default_root_dir = dir;
    o.enable_checkpointing = LC_AUTO;
    o.max_epochs = r.epochs;
    o.handle_signals = r.handle_signals;
    o.num_sanity_val_steps = 0;
    o.loggers = r.logger;
    o.n_loggers = r.logger != NULL;
    if (!r.keep.size) r.keep = lc_model_checkpoint_defaults();
    r.keep.dirpath = dirpath;
    LC_TRY(lc_model_checkpoint_new(&r.keep, &cb));
    all[0] = cb;
    hears.on_message = r.on_message;
    all[1] = (lc_callback){&hears, r.message_to};
    o.callbacks = all;
    o.n_callbacks = r.on_message ? 2 : 1;
    LC_TRY(lc_trainer_new(&o, &t));
    lc_run_args args = LC_ARGS(lc_run, .ckpt_path = r.ckpt_path);
    lc_status s = lc_trainer_fit_with(t, &m.base, &args);
    lc_model_checkpoint_info info;
    cb = lc_trainer_callback_named(t, "ModelCheckpoint", 0);
    if (lc_model_checkpoint_get(&cb, &info) == LC_OK) {
        snprintf(run_best, sizeof run_best, "%s", info.best_model_path);
        snprintf(run_last, sizeof run_last, "%s", info.last_model_path);
        run_has_score = info.has_best_score;
    }
    lc_trainer_free(t);
    world_release(&m);
    return s;
}

/* Names in dir/ckpt that end in .ckpt, sorted, each followed by a space. */
static inline const char *kept(const char *dir)
{
    static char list[4000];
    char path[600];
    snprintf(path, sizeof path, "%s/ckpt", dir);
    return world_list(path, ".ckpt", list, sizeof list);
}

/* Nothing in dir/ckpt is hidden. */
static inline bool is_tidy(const char *dir)
{
    char path[600];
    bool tidy = true;
    snprintf(path, sizeof path, "%s/ckpt", dir);
    DIR *d = opendir(path);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] == '.' && strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) {
            printf("  %s is left\n", e->d_name);
            tidy = false;
        }
    closedir(d);
    return tidy;
}

#endif
