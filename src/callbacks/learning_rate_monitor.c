/* SPDX-License-Identifier: Apache-2.0 */
/* LearningRateMonitor: sends learning rates (and momentum, weight decay) to the loggers. Rows have no epoch column. */
#include "core/logging/logging.h"
#include "callbacks/callbacks.h"
#include "base/grow.h"
#include "base/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One number that is watched. */
typedef struct watched {
    char *name;
    const double *value;
    lc_interval interval;
    bool scheduled;
} watched;

typedef struct lr_monitor {
    lc_learning_rate_monitor_args a;
    char interval; /* 's', 'e' or 0 */
    watched *w;
    lc_metric_value *row;
    int n, cap;
    int n_groups;                                     /* of all optimizers, when the names were made */
    const lc_scheduler *schedules[LC_MAX_OPTIMIZERS]; /* of the run, at that time */
} lr_monitor;

static lc_status add(lr_monitor *l, const char *name, const char *suffix, const double *value, lc_interval interval,
                     bool scheduled)
{
    int cap = l->cap;
    LC_TRY(lc__grow(&l->w, &cap, l->n, 1, "LearningRateMonitor"));
    LC_TRY(lc__grow(&l->row, &l->cap, l->n, 1, "LearningRateMonitor"));
    lc__str text = {0};
    lc__str_add(&text, "%s%s", name, suffix);
    if (text.failed) return lc_fail(LC_ERR_MEMORY, "out of memory: LearningRateMonitor");
    l->w[l->n++] = (watched){text.s, value, interval, scheduled};
    return LC_OK;
}

static void clear(lr_monitor *l)
{
    for (int i = 0; i < l->n; i++) free(l->w[i].name);
    l->n = 0;
}

/* Index of a hyperparameter, or -1. */
static int hyper(const lc_optimizer *opt, const char *name)
{
    for (int h = 0; opt->ops->hyper_names[h]; h++)
        if (!strcmp(opt->ops->hyper_names[h], name)) return h;
    return -1;
}

static int groups(const lc_trainer *t)
{
    int n = 0;
    for (int i = 0; i < t->optimizers.n; i++) n += t->optimizers.optimizers[i].optimizer->n_groups;
    return n;
}

/* StochasticWeightAveraging puts its own schedule in the place of another. */
static bool schedules_changed(lr_monitor *l, const lc_trainer *t)
{
    bool changed = false;
    for (int i = 0; i < LC_MAX_OPTIMIZERS; i++) {
        const lc_scheduler *s = i < t->optimizers.n_schedulers ? t->optimizers.schedulers[i].scheduler : NULL;
        changed |= s != l->schedules[i];
        l->schedules[i] = s;
    }
    return changed;
}

/* The types of the optimizers that have been named, once for each name that no schedule gives. */
typedef struct named {
    const char *types[2 * LC_MAX_OPTIMIZERS];
    int n;
} named;

/* Watches an optimizer under its schedule's name, or its own. `schedule`: NULL if it has none. */
static lc_status watch(lr_monitor *l, const lc_optimizer *opt, const lc_scheduler_config *schedule, named *before)
{
    static const double none = 0;
    const char *given = schedule ? schedule->name : NULL;
    char base[160], number[16] = "", name[256];
    int same = 0;
    if (!given) before->types[before->n++] = opt->ops->name;
    for (int k = 0; k < before->n; k++) same += !strcmp(before->types[k], opt->ops->name);
    if (same > 1) snprintf(number, sizeof number, "-%d", same - 1);
    snprintf(base, sizeof base, "%s%s%s", given ? "" : "lr-", given ? given : opt->ops->name, number);
    lc_interval interval = schedule ? schedule->interval : LC_INTERVAL_EPOCH;
    int momentum = hyper(opt, "momentum") >= 0 ? hyper(opt, "momentum") : hyper(opt, "beta1");
    int decay = hyper(opt, "weight_decay");
    for (int g = 0; g < opt->n_groups; g++) {
        const lc_param_group *group = &opt->groups[g];
        for (int k = 0; k < g && group->name[0]; k++)
            if (!strcmp(opt->groups[k].name, group->name))
                return lc_fail(LC_ERR_CONFIG,
                               "LearningRateMonitor: %s has two groups named \"%s\"; give one of them another name",
                               opt->ops->name, group->name);
        if (group->name[0])
            snprintf(name, sizeof name, "%s/%s", base, group->name);
        else if (opt->n_groups > 1)
            snprintf(name, sizeof name, "%s/pg%d", base, g + 1);
        else
            snprintf(name, sizeof name, "%s", base);
        LC_TRY(add(l, name, "", &group->hyper[0], interval, schedule != NULL));
        if (l->a.log_momentum)
            LC_TRY(
                add(l, name, "-momentum", momentum >= 0 ? &group->hyper[momentum] : &none, interval, schedule != NULL));
        if (l->a.log_weight_decay && decay >= 0)
            LC_TRY(add(l, name, "-weight_decay", &group->hyper[decay], interval, schedule != NULL));
    }
    return LC_OK;
}

/* First the schedules in their order, then the optimizers without one. Names are made again when a group is added. */
static lc_status collect(lr_monitor *l, const lc_trainer *t)
{
    const lc_optimizers *all = &t->optimizers;
    named before = {.n = 0};
    clear(l);
    l->n_groups = groups(t);
    for (int k = 0; k < all->n_schedulers; k++)
        LC_TRY(watch(l, all->schedulers[k].scheduler->optimizer, &all->schedulers[k], &before));
    for (int i = 0; i < all->n; i++) {
        bool scheduled = false;
        for (int k = 0; k < all->n_schedulers; k++)
            scheduled |= all->schedulers[k].scheduler->optimizer == all->optimizers[i].optimizer;
        if (!scheduled) LC_TRY(watch(l, all->optimizers[i].optimizer, NULL, &before));
    }
    return LC_OK;
}

static lc_status lm_train_start(void *self, lc_trainer *t)
{
    LC_TRY(lc__needs_logger(t, "LearningRateMonitor"));
    return collect(self, t);
}

/* interval -1: all of them. */
static lc_status send(lr_monitor *l, lc_trainer *t, int interval)
{
    int n = 0;
    if (schedules_changed(l, t) || groups(t) != l->n_groups) LC_TRY(collect(l, t));
    for (int i = 0; i < l->n; i++) {
        if (interval >= 0 && l->w[i].scheduled && l->w[i].interval != (lc_interval)interval) continue;
        l->row[n++] = (lc_metric_value){l->w[i].name, *l->w[i].value};
        int slot = lc__map_slot(lc__metrics(t, LC_CALLBACK_METRICS), l->w[i].name);
        if (slot >= 0) lc__metrics(t, LC_CALLBACK_METRICS)->v[slot].value = *l->w[i].value;
    }
    return lc_trainer_log_row(t, l->row, n, t->batches_that_stepped, -1);
}

static lc_status lm_batch_start(void *self, lc_trainer *t, const lc_batch *batch, int64_t i)
{
    lr_monitor *l = self;
    (void)batch, (void)i;
    if (l->interval == 'e' || !lc__log_interval_due(t)) return LC_OK;
    return send(l, t, l->interval == 's' ? -1 : LC_INTERVAL_STEP);
}

static lc_status lm_epoch_start(void *self, lc_trainer *t)
{
    lr_monitor *l = self;
    return l->interval == 's' ? LC_OK : send(l, t, l->interval == 'e' ? -1 : LC_INTERVAL_EPOCH);
}

static void lm_release(void *self)
{
    lr_monitor *l = self;
    clear(l);
    free(l->w);
    free(l->row);
}

const lc_callback_ops lc__learning_rate_monitor_ops = {
    LC_CALLBACK_OPS_INIT("LearningRateMonitor"),
    .on_train_start = lm_train_start,
    .on_train_epoch_start = lm_epoch_start,
    .on_train_batch_start = lm_batch_start,
    .free = lc__owned_free,
};

lc_status lc_learning_rate_monitor_new(const lc_learning_rate_monitor_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_learning_rate_monitor, given);
    const char *how = args->logging_interval;
    if (how && strcmp(how, "step") != 0 && strcmp(how, "epoch") != 0)
        return lc_fail(LC_ERR_CONFIG, "LearningRateMonitor: logging_interval is \"%.40s\"; it must be step or epoch",
                       how);
    lr_monitor *l = lc__owned_new(sizeof *l, lm_release);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: LearningRateMonitor");
    l->a = *args;
    l->interval = how ? how[0] : 0;
    *out = (lc_callback){&lc__learning_rate_monitor_ops, l};
    return LC_OK;
}
