/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks that options ask for: Timer, progress bar, summary, early stopping and checkpoints, unless the program
 * brought its own. To add one: its file here, its constructor in callbacks.h, and a function in the list below. */
#include "callbacks/callbacks.h"

#include <string.h>

static bool has(const lc_trainer *t, const char *kind)
{
    return lc__callback_of_kind(t, kind) != NULL;
}

/* Each sets *wanted, and makes the callback if it is. */
typedef lc_status default_callback(lc_trainer *t, bool *wanted, lc_callback *out);

static lc_status timer(lc_trainer *t, bool *wanted, lc_callback *out)
{
    *wanted = t->opt.max_time.unit == LC_UNIT_SECONDS;
    if (*wanted && has(t, lc__timer_ops.name)) {
        lc_trainer_message(t, "info", "max_time is left alone: the callbacks hold a Timer");
        *wanted = false;
    }
    return *wanted ? lc_timer_new(t->opt.max_time.value, false, out) : LC_OK;
}

static lc_status slurm_timer(lc_trainer *t, bool *wanted, lc_callback *out)
{
    lc_duration margin = t->opt.slurm_margin;
    *wanted = margin.unit != LC_UNIT_NONE;
    if (*wanted && margin.unit != LC_UNIT_SECONDS) return lc_fail(LC_ERR_CONFIG, "slurm_margin is a time: 90s, 10m");
    return *wanted ? lc__slurm_timer_new(margin.value, out) : LC_OK;
}

static lc_status progress_bar(lc_trainer *t, bool *wanted, lc_callback *out)
{
    *wanted = !has(t, LC__KIND_PROGRESS_BAR) && t->opt.enable_progress_bar != LC_OFF;
    return *wanted ? lc_progress_bar_new(NULL, out) : LC_OK;
}

static lc_status model_summary(lc_trainer *t, bool *wanted, lc_callback *out)
{
    *wanted = !has(t, lc__model_summary_ops.name) && t->opt.enable_model_summary != LC_OFF;
    return *wanted ? lc_model_summary_new(NULL, out) : LC_OK;
}

static lc_status early_stopping(lc_trainer *t, bool *wanted, lc_callback *out)
{
    const lc_trainer_options *o = &t->opt;
    *wanted = o->early_stopping && *o->early_stopping;
    if (!*wanted) return LC_OK;
    lc_early_stopping_args a = lc_early_stopping_defaults();
    a.monitor = o->early_stopping;
    a.mode = o->mode;
    a.min_delta = o->min_delta;
    a.patience = o->patience;
    a.stopping_threshold = o->stopping_threshold;
    a.divergence_threshold = o->divergence_threshold;
    return lc_early_stopping_new(&a, out);
}

static lc_status model_checkpoint(lc_trainer *t, bool *wanted, lc_callback *out)
{
    const lc_trainer_options *o = &t->opt;
    bool given = false;
    for (int i = 0; i < t->n_callbacks; i++) given |= t->callbacks[i]->ops.saves_checkpoints;
    *wanted = !given && o->enable_checkpointing != LC_OFF;
    if (!*wanted) return LC_OK;
    if (o->train_time_interval.unit != LC_UNIT_NONE && o->train_time_interval.unit != LC_UNIT_SECONDS)
        return lc_fail(LC_ERR_CONFIG, "train_time_interval is a time: 30s, 10m, 2h");
    lc_model_checkpoint_args a = lc_model_checkpoint_defaults();
    a.dirpath = o->dirpath;
    a.filename = o->filename;
    a.monitor = o->monitor;
    a.mode = o->mode;
    a.save_last = (unsigned char)o->save_last;
    a.save_top_k = o->save_top_k;
    a.save_on_exception = o->save_on_exception;
    a.save_weights_only = o->save_weights_only;
    a.every_n_train_steps = o->every_n_train_steps;
    a.every_n_epochs = o->every_n_epochs;
    a.train_time_interval = o->train_time_interval.value;
    a.save_on_train_epoch_end = (unsigned char)o->save_on_train_epoch_end;
    return lc_model_checkpoint_new(&a, out);
}

static default_callback *const defaults[] = {timer,         slurm_timer,    progress_bar,
                                             model_summary, early_stopping, model_checkpoint};

lc_status lc__default_callbacks(lc_trainer *t)
{
    for (int i = 0; i < t->n_callbacks; i++) LC_TRY(lc__check_callback(t, t->callbacks[i])); /* the options resolved */
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        lc_callback cb;
        bool wanted = false;
        LC_TRY(defaults[i](t, &wanted, &cb));
        if (wanted) LC_TRY(lc_trainer_add_callback(t, cb));
    }
    return LC_OK;
}
