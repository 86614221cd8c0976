/* SPDX-License-Identifier: Apache-2.0 */
/* EarlyStopping: stops when a metric no longer improves.
 *
 * Its request holds until its next decision, also across a resume: before min_epochs and min_steps are reached the
 * training continues, and then stops only if the latest decision still says so. */
#include "base/c_locale.h"
#include "core/logging/logging.h"
#include "callbacks/callbacks.h"
#include "base/handle.h"
#include "core/logging/results_ranks.h"
#include "base/state_count.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct early_stopping {
    lc_early_stopping_args a;
    char *monitor, *key;
    bool max, at_train_epoch_end, vote;
    int64_t patience, wait, stopped_epoch;
    double best;
    lc_stopping_reason reason;
    char message[512];
} early_stopping;

static bool better(const early_stopping *e, double a, double b)
{
    return e->max ? a > b : a < b;
}

static lc_status es_setup(void *self, lc_trainer *t, lc_stage stage)
{
    early_stopping *e = self;
    lc_duration v = t->opt.val_check_interval;
    if (stage != LC_STAGE_FIT) return LC_OK;
    e->vote = false;
    bool whole = v.unit == LC_UNIT_NONE || (v.unit == LC_UNIT_FRACTION && v.value == 1);
    e->at_train_epoch_end = e->a.check_on_train_epoch_end != LC_AUTO ? e->a.check_on_train_epoch_end == LC_ON
                                                                     : whole && t->opt.check_val_every_n_epoch == 1;
    return LC_OK;
}

static lc_stopping_reason decide(early_stopping *e, double v)
{
    if (e->a.check_finite && !isfinite((float)v)) {
        lc__snprintf(e->message, sizeof e->message,
                     "Monitored metric %s = %g is not finite. Previous best value was %.3f. Signaling Trainer to stop.",
                     e->monitor, v, e->best);
        return LC_NON_FINITE_METRIC;
    }
    if (!isnan(e->a.stopping_threshold) && better(e, v, e->a.stopping_threshold)) {
        lc__snprintf(e->message, sizeof e->message,
                     "Stopping threshold reached: %s = %g %s %g. Signaling Trainer to stop.", e->monitor, v,
                     e->max ? ">" : "<", e->a.stopping_threshold);
        return LC_STOPPING_THRESHOLD;
    }
    if (!isnan(e->a.divergence_threshold) && better(e, e->a.divergence_threshold, v)) {
        lc__snprintf(e->message, sizeof e->message,
                     "Divergence threshold reached: %s = %g %s %g. Signaling Trainer to stop.", e->monitor, v,
                     e->max ? "<" : ">", e->a.divergence_threshold);
        return LC_DIVERGENCE_THRESHOLD;
    }
    /* In single precision and in this order, as in Lightning: it matters if the gain is exactly min_delta. */
    float delta = (float)e->a.min_delta, gained = (float)v + (e->max ? -delta : delta);
    if (better(e, (double)gained, (double)(float)e->best)) {
        if (isfinite(e->best))
            lc__snprintf(e->message, sizeof e->message,
                         "Metric %s improved by %.3f >= min_delta = %g. New best score: %.3f", e->monitor,
                         fabs(e->best - v), e->a.min_delta, v);
        else
            lc__snprintf(e->message, sizeof e->message, "Metric %s improved. New best score: %.3f", e->monitor, v);
        e->best = v;
        e->wait = 0;
        return LC_NOT_STOPPED;
    }
    e->message[0] = 0;
    if (++e->wait < e->patience) return LC_NOT_STOPPED;
    snprintf(
        e->message, sizeof e->message,
        "Monitored metric %s did not improve in the last %lld records. Best score: %.3f. Signaling Trainer to stop.",
        e->monitor, (long long)e->wait, e->best);
    return LC_PATIENCE_EXHAUSTED;
}

static lc_status look(early_stopping *e, lc_trainer *t)
{
    const lc__metric_map *m = lc__metrics(t, LC_CALLBACK_METRICS);
    double value;
    bool found;
    if (t->opt.fast_dev_run) return LC_OK;
    LC_TRY(lc__metric_from_rank_zero(t, e->monitor, &found, &value));
    if (!found) {
        char known[400];
        lc__map_names(m, known, sizeof known);
        lc_status s =
            lc_fail(LC_ERR_STATE,
                    "Early stopping conditioned on metric `%s` which is not available. Pass in or modify your "
                    "`EarlyStopping` callback to use any of the following: %s",
                    e->monitor, *known ? known : "none, since nothing has been logged (lc_log)");
        if (e->a.strict) return s;
        lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
        return LC_OK;
    }
    e->reason = decide(e, value);
    bool stop = e->reason != LC_NOT_STOPPED;
    if (stop) e->stopped_epoch = t->current_epoch;
    lc__soft_stop(t, &e->vote, stop);
    if (e->message[0] && (stop || e->a.verbose)) lc_trainer_message(t, LC_INFO, "%s", e->message);
    return LC_OK;
}

static lc_status es_epoch_end(void *self, lc_trainer *t)
{
    early_stopping *e = self;
    return e->at_train_epoch_end ? look(e, t) : LC_OK;
}

static lc_status es_validation_end(void *self, lc_trainer *t)
{
    early_stopping *e = self;
    return !e->at_train_epoch_end && t->stage == LC_STAGE_FIT && !t->sanity ? look(e, t) : LC_OK;
}

static const char *es_key(void *self)
{
    return ((early_stopping *)self)->key;
}

static lc_status es_save(void *self, lc_trainer *t, lc_state *out)
{
    early_stopping *e = self;
    (void)t;
    LC_TRY(lc_state_set_int(out, "wait_count", e->wait));
    LC_TRY(lc_state_set_int(out, "stopped_epoch", e->stopped_epoch));
    LC_TRY(lc_state_set_double(out, "best_score", e->best));
    LC_TRY(lc_state_set_int(out, "patience", e->patience));
    LC_TRY(lc_state_set_int(out, "reason", e->reason));
    LC_TRY(lc_state_set_bool(out, "stop", e->vote));
    return LC_OK;
}

/* The reason may not hold for a run continued with other arguments. */
static bool reason_holds(const early_stopping *e)
{
    switch (e->reason) {
    case LC_STOPPING_THRESHOLD:
        return !isnan(e->a.stopping_threshold);
    case LC_DIVERGENCE_THRESHOLD:
        return !isnan(e->a.divergence_threshold);
    case LC_PATIENCE_EXHAUSTED:
        return e->wait >= e->patience;
    case LC_NON_FINITE_METRIC:
        return e->a.check_finite;
    default:
        return false;
    }
}

static lc_status es_load(void *self, lc_trainer *t, const lc_state *in)
{
    early_stopping *e = self;
    int64_t reason;
    bool stop = false;
    LC_TRY(lc__state_get_count(in, "wait_count", 0, &e->wait));
    LC_TRY(lc__state_get_count(in, "stopped_epoch", -1, &e->stopped_epoch));
    LC_TRY(lc_state_get_double(in, "best_score", &e->best));
    LC_TRY(lc_state_get_int(in, "reason", &reason));
    e->reason = reason >= 0 && reason <= LC_NON_FINITE_METRIC ? (lc_stopping_reason)reason : LC_NOT_STOPPED;
    if (lc_state_find(in, "stop")) LC_TRY(lc_state_get_bool(in, "stop", &stop));
    lc__soft_stop(t, &e->vote, stop && reason_holds(e));
    return LC_OK;
}

static void es_release(void *self)
{
    early_stopping *e = self;
    free(e->monitor);
    free(e->key);
}

const lc_callback_ops lc__early_stopping_ops = {
    LC_CALLBACK_OPS_INIT("EarlyStopping"),
    .monitors = true,
    .setup = es_setup,
    .on_validation_end = es_validation_end,
    .on_train_epoch_end = es_epoch_end,
    .save_state = es_save,
    .load_state = es_load,
    .state_key = es_key,
    .free = lc__owned_free,
};

lc_status lc_early_stopping_new(const lc_early_stopping_args *given, lc_callback *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_CALLBACK_TAKE(args, lc_early_stopping, given);
    if (!args->monitor || !*args->monitor)
        return lc_fail(LC_ERR_CONFIG, "EarlyStopping needs monitor, the metric to watch");
    if (args->mode && strcmp(args->mode, "min") != 0 && strcmp(args->mode, "max") != 0)
        return lc_fail(LC_ERR_CONFIG, "EarlyStopping: mode is \"%.40s\"; it must be min or max", args->mode);
    if (args->patience < 0)
        return lc_fail(LC_ERR_CONFIG, "EarlyStopping: patience is %lld; it must not be negative",
                       (long long)args->patience);
    early_stopping *e = lc__owned_new(sizeof *e, es_release);
    if (!e) return lc_fail(LC_ERR_MEMORY, "out of memory: EarlyStopping");
    e->a = *args;
    e->max = args->mode && !strcmp(args->mode, "max");
    e->patience = args->patience;
    e->best = e->max ? -INFINITY : INFINITY;
    lc__str key = {0};
    lc__str_add(&key, "EarlyStopping{'monitor': '%s', 'mode': '%s'}", args->monitor, e->max ? "max" : "min");
    e->key = key.s;
    if (key.failed || !lc__dup(args->monitor, &e->monitor)) {
        lc__owned_free(e);
        return lc_fail(LC_ERR_MEMORY, "out of memory: EarlyStopping");
    }
    *out = (lc_callback){&lc__early_stopping_ops, e};
    return LC_OK;
}

lc_status lc_early_stopping_get(const lc_callback *cb, lc_early_stopping_info *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    if (!cb || !cb->ops || LC__SLOT(cb->ops, save_state) != es_save)
        return lc_fail(LC_ERR_ARGUMENT, "this callback is not an EarlyStopping");
    const early_stopping *e = cb->self;
    *out = (lc_early_stopping_info){e->stopped_epoch, e->wait, e->best, e->reason, e->message};
    return LC_OK;
}
