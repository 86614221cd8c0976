/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings about options that are given and do nothing, because the option that they belong to is not. */
#include "core/options/options.h"
#include "core/resume/resume.h"
#include "core/trainer/run.h"

enum { MOST = 10 };

static const struct {
    const char *needs, *or_needs;
    const char *options[MOST];
} idle[] = {
    {"early_stopping", NULL, {"patience", "min_delta", "stopping_threshold", "divergence_threshold"}},
    {"monitor", "early_stopping", {"mode"}},
    {"weights",
     NULL,
     {"weights_strict", "weights_strip_prefix", "weights_add_prefix", "weights_rename", "weights_skip",
      "weights_transpose", "weights_skip_mismatched"}},
    {"gradient_clip_val", NULL, {"gradient_clip_algorithm"}},
    {"deterministic", NULL, {"deterministic_chunk"}},
};

/* `monitor` is not among them: the callbacks of a program may ask for it. */
static const char *const of_checkpoints[] = {
    "filename",         "save_top_k",          "save_last",         "every_n_train_steps",
    "every_n_epochs",   "train_time_interval", "save_weights_only", "save_on_train_epoch_end",
    "save_on_exception"};

static void report_idle(lc_trainer *t, int row)
{
    const char *needs = idle[row].needs, *or_needs = idle[row].or_needs;
    if (lc__option_is_given(needs, &t->opt) || (or_needs && lc__option_is_given(or_needs, &t->opt))) return;
    for (int i = 0; i < MOST && idle[row].options[i]; i++)
        if (lc__option_is_given(idle[row].options[i], &t->opt))
            lc_trainer_message(t, LC_WARNING, "%s has no effect without %s%s%s", idle[row].options[i], needs,
                               or_needs ? " or " : "", or_needs ? or_needs : "");
}

void lc__report_idle_options(lc_trainer *t)
{
    bool off = t->opt.barebones || t->opt.fast_dev_run; /* which turn off much of what is given */
    if (t->run->idle_reported || t->resume->is_probe || off) return;
    t->run->idle_reported = true;
    for (int i = 0; i < (int)(sizeof idle / sizeof *idle); i++) report_idle(t, i);
    for (size_t i = 0; t->opt.enable_checkpointing == LC_OFF && i < sizeof of_checkpoints / sizeof *of_checkpoints; i++)
        if (lc__option_is_given(of_checkpoints[i], &t->opt))
            lc_trainer_message(t, LC_WARNING, "%s has no effect with enable_checkpointing=false", of_checkpoints[i]);
}
