/* SPDX-License-Identifier: Apache-2.0 */
/* Everything after the loops. In any case, on_exception (after an error) and teardown run, and resources are
 * released. */
#include "base/c_locale.h"
#include "core/trainer/memory_limit.h"
#include "core/trainer/run.h"
#include "comm/agree.h"
#include "comm/world/world.h"
#include "core/hooks/hooks.h"
#include "core/hooks/profiling.h"
#include "core/input/input.h"
#include "core/logging/arrivals.h"
#include "core/loop/loop.h"
#include "core/ranks/rank_times.h"
#include "core/ranks/ranks.h"
#include "core/resume/resume.h"
#include "core/split/device_parts.h"

#include <math.h>
#include <stdio.h>

static void on_exception(lc_trainer *t, lc_status s, const char *message)
{
    (void)!lc__hook(t, LC_HOOK_ON_EXCEPTION, &(lc__hook_args){.status = s, .message = message});
    t->deferred = false; /* the run's error is reported */
}

/* Between runs the module is whole, unless it stays in slices. */
static lc_status make_whole(lc_trainer *t)
{
    return t->strategy->finish && !lc__stays_in_slices(t) ? t->strategy->finish(t->strategy_self) : LC_OK;
}

/* After a fit: reports its checkpoint, and the folder of its metrics. */
static void say_where(lc_trainer *t)
{
    double best_score;
    const char *best = lc__best_checkpoint(t, &best_score);
    if (best) {
        char score[64] = "";
        if (!isnan(best_score) && t->opt.monitor)
            lc__snprintf(score, sizeof score, " (%.40s %.4g)", t->opt.monitor, best_score);
        lc_trainer_message(t, LC_INFO, "%s checkpoint: %s%s", *score ? "best" : "last", best, score);
    }
    if (t->logging->loggers_started && t->run_dir) lc_trainer_message(t, LC_INFO, "metrics: %s", t->run_dir);
    lc__device_parts_report(t);
}

/* The loop has succeeded: settles checkpoints, and makes the module whole again. *missed: only the last checkpoint
 * failed. */
static lc_status after_success(lc_trainer *t, bool *missed)
{
    LC_TRY(lc__settle(t, LC__SETTLE_ALL));
    /* From here on all ranks may read the files that rank 0 has written. */
    LC_TRY(lc__ranks_barrier(t->comm));
    if (t->stage == LC_STAGE_FIT) LC_TRY(lc__rank_times_report(t));
    if (t->stage == LC_STAGE_FIT && t->profiling) lc__memory_profile(t);
    LC_TRY(make_whole(t));
    if (t->stage != LC_STAGE_FIT) return LC_OK;
    say_where(t);
    lc_status s = lc__saves_verdict(t);
    *missed = s < 0;
    if (*missed) lc__world_trained(true);
    return s;
}

static void show_error(lc_trainer *t, lc_status s)
{
    if (s < 0) lc_trainer_message(t, LC_ERROR, "%s", lc_error_message());
}

/* The run has failed or was interrupted. message: the text of its error, which errors of the clean-up must not
 * replace. */
static void after_failure(lc_trainer *t, lc_status s, bool missed, char *message, size_t size)
{
    if (s == LC_ERR_PEER && t->comm && t->strategy->explain) t->strategy->explain(t->strategy_self);
    lc__copy_message(message, size);
    t->run_state = LC_RUN_INTERRUPTED;
    t->deferred = false;
    /* In an interrupted fit all ranks stop after the same step; otherwise each stops where it is, which ends the
     * others. */
    bool together = (s == LC_ERR_INTERRUPTED && t->stage == LC_STAGE_FIT) || missed;
    if (t->comm && t->strategy->fail && s != LC_ERR_PEER && !together) {
        t->strategy->fail(t->strategy_self, message);
        lc__copy_message(message, size); /* now with the rank, if this process reports it */
    }
    if (!together) t->comm = NULL; /* from here on each rank continues by itself */
    on_exception(t, s, message);
    show_error(t, lc__settle(t, LC__SETTLE_ALL));
    /* A rank that exits while rank 0 still writes would be reported as lost. */
    if (together) show_error(t, lc__ranks_barrier(t->comm));
    if (together && !missed) show_error(t, make_whole(t));
}

/* ended: how the run has. A device that has failed returns its error again, which is known by then. */
static void settle_values(lc_trainer *t, lc_status ended)
{
    lc_status s = lc__arrivals_settle(t);
    if (s < 0 && (s != LC_ERR_DEVICE || s != ended)) lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
    lc__arrivals_end(t);
}

static void release(lc_trainer *t, lc_status ended)
{
    lc__batch_norms_release(t);
    lc__rank_times_free(t);
    lc__unused_free(t);
    settle_values(t, ended);
    /* The program owns the metrics and may free them from here on. */
    if (t->epoch_open && lc__results_keep(&t->logging->train_results) < 0)
        lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
    lc__results_release(&t->logging->train_results);
    lc__results_release(&t->logging->eval_results);
    if (t->profiling) lc__profiling_watch(t, t->input->train.loader, false);
    lc__input_close(t);
}

lc_status lc__run_finish(lc_trainer *t, lc_status s)
{
    char message[1024];
    bool missed = false;
    lc__copy_message(message, sizeof message);
    if (t->graph && lc_current_graph() == t->graph && lc_step_end(t->graph) < 0) {
        if (s >= 0)
            s = LC_ERR_INTERNAL;
        else
            lc_fail(s, "%s", message); /* the first error also names the batch, the graph's does not */
    }
    t->recording = false;
    t->batch = NULL;
    if (s >= 0) s = after_success(t, &missed);
    if (s < 0) after_failure(t, s, missed, message, sizeof message);
    release(t, s);
    if (t->run->setup_done) {
        t->run->setup_done = false;
        lc_status torn = lc__hook(t, LC_HOOK_TEARDOWN, &(lc__hook_args){.stage = t->stage});
        if (torn < 0 && s >= 0) {
            s = torn;
            after_failure(t, s, false, message, sizeof message);
        }
    }
    lc_checkpoint_close(t->resume->restoring_from);
    t->resume->restoring_from = NULL;
    /* The signal to end may still arrive a second time, or for the first time if another rank got it. */
    if (atomic_load(&t->ranks->signal) || t->ranks->agreed_signal)
        lc__signals_keep(t);
    else
        lc__signals_end(t);
    if (t->profiling) lc__profiling_end(t);
    if (s < 0) lc__loggers_status(t, s == LC_ERR_INTERRUPTED ? "interrupted" : "failed");
    lc__loggers_flush(t);
    if (t->in_run && t->run_state == LC_RUN_RUNNING) t->run_state = LC_RUN_FINISHED;
    t->in_run = false;
    if (t->comm && t->strategy->progress) t->strategy->progress(t->strategy_self, t->global_step, NULL);
    if (t->run->on_device) lc__device_use(t->run->before);
    t->run->on_device = false;
    t->args = NULL;
    if (t->m) t->m->trainer = NULL;
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}
