/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks that options ask for: Timer, progress bar, summary, early stopping and checkpoints, unless the program
 * added its own. To add one: its file here, a function below, and its name in callbacks.h and src/builtin.c. */
#include "callbacks/callbacks.h"

#include <string.h>

static bool has(const lc_trainer *t, const char *kind)
{
    return lc__callback_of_kind(t, kind) != NULL;
}

lc_status lc__default_timer(lc_trainer *t, bool *wanted, lc_callback *out)
{
    *wanted = t->opt.max_time.unit == LC_UNIT_SECONDS;
    if (*wanted && has(t, lc__timer_ops.name)) {
        lc_trainer_message(t, LC_INFO, "max_time is ignored: the callbacks contain a Timer");
        *wanted = false;
    }
    return *wanted ? lc_timer_new(t->opt.max_time.value, false, out) : LC_OK;
}

lc_status lc__default_slurm_timer(lc_trainer *t, bool *wanted, lc_callback *out)
{
    lc_duration margin = t->opt.slurm_margin;
    *wanted = margin.unit != LC_UNIT_NONE;
    if (*wanted && margin.unit != LC_UNIT_SECONDS)
        return lc_fail(LC_ERR_CONFIG, "slurm_margin must be a time: 90s, 10m");
    return *wanted ? lc__slurm_timer_new(margin.value, out) : LC_OK;
}

lc_status lc__default_progress_bar(lc_trainer *t, bool *wanted, lc_callback *out)
{
    *wanted = !has(t, LC__KIND_PROGRESS_BAR) && t->opt.enable_progress_bar != LC_OFF;
    return *wanted ? lc_progress_bar_new(NULL, out) : LC_OK;
}

lc_status lc__default_model_summary(lc_trainer *t, bool *wanted, lc_callback *out)
{
    *wanted = !has(t, lc__model_summary_ops.name) && t->opt.enable_model_summary != LC_OFF;
    return *wanted ? lc_model_summary_new(NULL, out) : LC_OK;
}

lc_status lc__default_early_stopping(lc_trainer *t, bool *wanted, lc_callback *out)
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

lc_status lc__default_model_checkpoint(lc_trainer *t, bool *wanted, lc_callback *out)
{
    const lc_trainer_options *o = &t->opt;
    bool given = false;
    for (int i = 0; i < t->n_callbacks; i++) given |= t->callbacks[i]->ops.saves_checkpoints;
    *wanted = !given && o->enable_checkpointing != LC_OFF;
    if (!*wanted) return LC_OK;
    if (o->train_time_interval.unit != LC_UNIT_NONE &&
        !(o->train_time_interval.unit == LC_UNIT_SECONDS && o->train_time_interval.value > 0))
        return lc_fail(LC_ERR_CONFIG, "train_time_interval must be a time of more than 0: 30s, 10m, 2h");
    lc_model_checkpoint_args a = lc_model_checkpoint_defaults();
    a.dirpath = o->dirpath;
    a.filename = o->filename;
    a.monitor = o->monitor;
    a.mode = o->mode;
    a.save_last = o->save_last == LC_ON;
    a.save_top_k = o->save_top_k;
    a.save_on_exception = o->save_on_exception;
    a.save_weights_only = o->save_weights_only;
    a.every_n_train_steps = o->every_n_train_steps;
    a.every_n_epochs = o->every_n_epochs;
    a.train_time_interval = o->train_time_interval.value;
    a.save_on_train_epoch_end = o->save_on_train_epoch_end;
    return lc_model_checkpoint_new(&a, out);
}
