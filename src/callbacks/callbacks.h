/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by lightc's own callbacks, whose `self` is from lc__owned_new. */
#ifndef LC_CALLBACKS_CALLBACKS_H
#define LC_CALLBACKS_CALLBACKS_H

#include <math.h>
#include <string.h>

#include "core/logging/logging.h"
#include "base/args.h"
#include "base/owned.h"

#include <lightc/callbacks.h>
#include "builtin.h"
#include "core/hooks/trainer_internal.h"

extern const lc_callback_ops lc__model_checkpoint_ops, lc__early_stopping_ops, lc__progress_bar_ops,
    lc__rich_progress_bar_ops, lc__model_summary_ops, lc__learning_rate_monitor_ops, lc__timer_ops;

/* A copy, or NULL for NULL; false: out of memory. */
static inline bool lc__dup(const char *s, char **out)
{
    *out = NULL;
    return !s || lc__copy_text(s, out) == LC_OK;
}

/* Declares `args`: the caller's arguments, or the defaults if there are none (NULL). */
#define LC_CALLBACK_TAKE(args, name, given)                                                                            \
    name##_args taken_ = name##_defaults();                                                                            \
    const name##_args *const args = &taken_;                                                                           \
    if (given) LC_TRY(lc__args_take(&taken_, sizeof taken_, given, #name "_new", #name))

/* For callbacks that only log. fast_dev_run and barebones open no logger, which is not an error; with several ranks,
 * rank 0 logs. */
static inline lc_status lc__needs_logger(const lc_trainer *t, const char *who)
{
    const char *named = t->opt.logger ? t->opt.logger : "";
    bool none = !t->logging->n_loggers && (!strcmp(named, "none") || !strcmp(named, "false")) && !t->opt.barebones &&
                t->rank == 0;
    return none ? lc_fail(LC_ERR_CONFIG, "%s needs a logger; this trainer has none", who) : LC_OK;
}

/* parameters.c: the parameters of a model, each under PREFIX PATH SUFFIX, so that no step needs to build names. */
typedef struct lc__parameters {
    lc_tensor **v; /* borrowed */
    char **names;
    int n, cap;
} lc__parameters;
/* Frees what the list held before. */
lc_status lc__parameters_collect(lc_module *m, const char *prefix, const char *suffix,
                                 lc__parameters *list) LC_MUST_USE;
void lc__parameters_free(lc__parameters *list);

/* slurm_timer.c: stops `margin` seconds before the Slurm job's time limit. */
lc_status lc__slurm_timer_new(double margin, lc_callback *out) LC_MUST_USE;

/* defaults.c: the callbacks that options ask for. */
lc__default_callback lc__default_timer, lc__default_slurm_timer, lc__default_progress_bar, lc__default_model_summary,
    lc__default_early_stopping, lc__default_model_checkpoint;

/* checkpoint_name.c: fills "{epoch:02d}-{val_loss:.2f}" in. */
lc_status lc__checkpoint_name(lc_trainer *t, int64_t epoch, const char *filename, bool insert_names,
                              lc__str *out) LC_MUST_USE;
/* An error if that would fail whatever the metrics are. */
lc_status lc__checkpoint_name_check(const char *filename) LC_MUST_USE;

#endif
