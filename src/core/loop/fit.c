/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs and batches of training, in Lightning's order. RESUME marks the places where a resumed run enters. */
#include "core/loop/loop.h"
#include "core/resume/resume.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "core/hooks/profiling.h"
#include "core/hooks/hooks.h"
#include "core/split/chunks.h"
#include "core/split/step.h"
#include "core/ranks/rank_times.h"
#include "core/logging/results_ranks.h"
#include "core/ranks/ranks.h"
#include "core/resume/after_save.h"
#include "base/signal_fd.h"
#include "base/status.h"
#include "data/batch_slice.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static bool can_stop_early(const lc_trainer *t)
{
    return t->epochs_processed >= t->min_epochs && t->global_step >= t->min_steps;
}

static bool max_steps_reached(const lc_trainer *t)
{
    return t->max_steps >= 0 && t->global_step >= t->max_steps;
}

bool lc__validation_due(const lc_trainer *t)
{
    int64_t every = t->opt.check_val_every_n_epoch;
    if (!t->input->enable_validation) return false;
    if (every != LC_UNSET && (t->current_epoch + 1) % every != 0) return false;
    if (t->is_last_batch && t->input->val_check == LC__VAL_EPOCH_END) return true;
    if (lc__should_stop(t) && can_stop_early(t)) return true;
    if (t->input->val_check == LC__VAL_TIME) return t->comm ? t->ranks->agreed_validate : lc__validation_time_is_up(t);
    if (t->input->val_check == LC__VAL_STEPS)
        return !t->accumulating && t->optimizer_steps % (int64_t)t->opt.val_check_interval.value == 0;
    if (t->input->val_check == LC__VAL_EPOCH_END) return false;
    int64_t done = every != LC_UNSET ? t->batches_done : t->total_batches;
    if (t->input->train.length < 0 && t->input->train.limit > 0 && t->opt.val_check_interval.unit == LC_UNIT_NONE)
        return done % t->input->train.limit == 0;
    return done % t->input->val_check_batch == 0;
}

/* After on_train_batch_end: rows, validation, schedulers that monitor a metric. */
static lc_status after_batch(lc_trainer *t, lc__phase done)
{
    if (done != LC__PHASE_VALIDATION && !t->accumulating && !t->opt.barebones && t->logging->train_results.n &&
        lc__should_log(t))
        LC_TRY(lc__rows_send(t, &t->logging->train_results, LC__STEP_VALUES));
    if (done != LC__PHASE_VALIDATION && lc__validation_due(t)) {
        if (!t->accumulating) LC_TRY(lc__hook(t, LC_HOOK_ON_VALIDATION_MODEL_ZERO_GRAD, NULL));
        LC_TRY(lc__setup_eval_data(t));
        LC_TRY(lc__eval_loop(t));
        t->input->val_time_ns = lc__now_ns();
        t->ranks->agreed_validate = false; /* until the next request */
    }
    if (t->optimizers.n_schedulers) LC_TRY(lc__update_schedulers(t, LC_INTERVAL_STEP, true));
    if (!t->accumulating) t->batches_that_stepped++;
    t->resume->phase = LC__PHASE_START;
    return t->resume->writer ? lc__settle(t, LC__SETTLE_LOOK) : LC_OK;
}

/* A new accumulate_grad_batches takes effect here, unless a window is in progress. */
static void place_in_window(lc_trainer *t, int64_t i, bool is_last)
{
    if (t->accumulate != t->accumulate_next && (i == 0 || !t->accumulating)) {
        t->accumulate = t->accumulate_next;
        t->window_begin = i;
    }
    bool ends = lc__window_place(t, i) == t->accumulate - 1 || is_last;
    t->accumulating = !t->mo.manual_optimization && !ends;
}

static lc_status train_batch(lc_trainer *t, const lc_batch *batch, bool is_last)
{
    int64_t i = t->batches_done;
    if (!t->accumulating) LC_TRY(lc__read_buffers_from_rank_zero(t));
    t->batch_idx = i;
    t->batch = batch;
    t->is_last_batch = is_last;
    place_in_window(t, i, is_last);
    t->skip = false;
    t->logging->train_results.step++;
    /* Ranks have different samples, so they draw different random numbers. Chunks are numbered across ranks. */
    int rank = lc__tree_of(t) ? 0 : lc_trainer_global_rank(t);
    LC_TRY(lc_step_begin(t->graph, (uint64_t)t->total_batches, (uint64_t)rank));
    t->recording = true;
    LC_TRY(lc__begin_batch(t, batch, lc__chunks_in(t, batch)));
    lc__weigh_batch(t, batch);
    lc__note_progress(t);
    LC_TRY(lc__transfer(t, &batch, 0));
    LC_TRY(lc__hook(t, LC_HOOK_ON_TRAIN_BATCH_START, &(lc__hook_args){.batch = batch, .batch_idx = i}));
    if (t->skip) {
        t->skip = t->recording = false;
        t->batch = NULL;
        t->loop->epoch_ended_early = true;
        t->total_batches++; /* the batch counts for intervals across epochs */
        LC_TRY(lc_step_end(t->graph));
        return lc__update_schedulers(t, LC_INTERVAL_EPOCH, false);
    }
    LC_TRY(lc__optimize(t, batch, i));
    if (t->optimizers.n_schedulers) {
        LC_TRY(lc__update_schedulers(t, LC_INTERVAL_STEP, false));
        if (is_last) LC_TRY(lc__update_schedulers(t, LC_INTERVAL_EPOCH, false));
    }
    t->batches_done = i + 1;
    t->total_batches++;
    t->resume->phase = LC__PHASE_BATCH;
    const lc__hook_args args = {.outputs = &t->outputs, .batch = batch, .batch_idx = i};
    LC_TRY(lc__hook(t, LC_HOOK_ON_TRAIN_BATCH_END, &args));
    LC_TRY(lc__vote_stop(t));
    LC_TRY(lc__results_reduce_step(t, &t->logging->train_results, true));
    if (t->comm) LC_TRY(lc__results_publish_step(t, &t->logging->train_results));
    LC_TRY(lc_step_end(t->graph));
    t->batch = NULL;
    return after_batch(t, LC__PHASE_START);
}

static int64_t plans_run(const lc_trainer *t)
{
    lc_graph_stats stats;
    lc_graph_get_stats(t->graph, &stats);
    return stats.hits + stats.misses;
}

/* A batch that fails restores the counters, so that a checkpoint saved now can be continued, unless a part of the batch
 * has run already (because of a host read in the middle of a step). */
lc_status lc__train_batch(lc_trainer *t, const lc_batch *batch, bool is_last)
{
    int64_t done = t->batches_done, batch_idx = t->batch_idx, backwards = t->window_backwards, step = t->global_step;
    int64_t plans = plans_run(t);
    bool last = t->is_last_batch, accumulating = t->accumulating;
    lc_status s = train_batch(t, batch, is_last);
    if (s >= 0 || t->batches_done != done) return s;
    t->resume->torn = plans_run(t) != plans;
    t->batch_idx = batch_idx;
    t->window_backwards = backwards;
    t->global_step = step;
    t->is_last_batch = last;
    t->accumulating = accumulating;
    return s;
}

static bool epoch_done(lc_trainer *t)
{
    if (t->is_last_batch || t->loop->epoch_ended_early || max_steps_reached(t)) return true;
    if (t->input->train.length >= 0 && t->batches_done >= t->input->train.length) return true;
    return lc__should_stop(t) && can_stop_early(t);
}

static lc_status save_interrupted(lc_trainer *t, int sig)
{
    const char *name = sig == SIGINT ? "SIGINT" : sig == SIGTERM ? "SIGTERM" : "SIGHUP";
    lc__str dir = {0};
    lc_status s;
    if (t->opt.fast_dev_run || t->opt.barebones || t->opt.enable_checkpointing == LC_OFF)
        return lc_fail(LC_ERR_INTERRUPTED, "stopped by %s after step %lld; nothing was saved", name,
                       (long long)t->global_step);
    s = lc__checkpoint_dir(t, &dir);
    if (s >= 0) {
        lc__str_add(&dir, "/interrupted.ckpt");
        lc__settle_before_the_end(t);
        s = dir.failed ? lc_fail(LC_ERR_MEMORY, "out of memory") : lc__save_checkpoint(t, dir.s, false);
    }
    if (s < 0)
        s = lc_fail(LC_ERR_INTERRUPTED, "stopped by %s after step %lld; the state could not be saved: %s", name,
                    (long long)t->global_step, lc_error_message());
    else
        s = lc_fail(LC_ERR_INTERRUPTED, "stopped by %s after step %lld; continue with --ckpt_path %s", name,
                    (long long)t->global_step, dir.s);
    lc__str_free(&dir);
    return s;
}

static lc_status interrupted(lc_trainer *t)
{
    int sig = lc__signal_of(t);
    lc_status s = save_interrupted(t, sig);
    lc__note_signal(sig);
    if (!lc__is_rank_zero(t)) lc__note_reported(); /* all ranks were interrupted, and rank 0 reports it */
    return s;
}

/* RESUME: inside an epoch whose start hooks have run. */
static lc_status continue_epoch(lc_trainer *t, lc__phase resume)
{
    t->resume->resume_mid_epoch = false;
    t->batch_idx = t->batches_done ? t->batches_done - 1 : 0;
    t->loop->epoch_complete = false;
    if (resume == LC__PHASE_BATCH || resume == LC__PHASE_VALIDATION) {
        t->resume->phase = LC__PHASE_BATCH;
        LC_TRY(after_batch(t, resume));
    } else if (t->input->train.length < 0 || t->batches_done < t->input->train.length) {
        t->is_last_batch = false;
    }
    return LC_OK;
}

static lc_status start_epoch(lc_trainer *t)
{
    if (t->epoch_open) LC_TRY(lc__results_reset(t, &t->logging->train_results)); /* from an epoch that ended early */
    t->resume->cursor_epoch = t->current_epoch;
    t->epoch_open = true;
    t->batches_done = t->window_begin = 0;
    t->batch_idx = 0;
    t->is_last_batch = t->loop->epoch_complete = t->epoch_begun = false;
    LC_TRY(lc__hook(t, LC_HOOK_ON_TRAIN_EPOCH_START, NULL));
    t->epoch_begun = true;
    return LC_OK;
}

/* *batch: NULL if there is none: the loader is empty, or its length was unknown. */
static lc_status next_batch(lc_trainer *t, const lc_batch **batch, bool *last)
{
    long long epoch = (long long)t->current_epoch;
    int64_t start = LC__PROFILE_START(t), asked = lc__rank_times_start(t);
    lc_status s = lc__source_next(&t->input->train, batch, last);
    lc__rank_times_loaded(t, asked);
    LC__PROFILE_ACTION(t, "train_dataloader_next", start);
    if (s < 0) return lc_fail_context(s, "train_dataloader, epoch %lld, batch %lld", epoch, (long long)t->batches_done);
    if (*batch) return LC_OK;
    t->is_last_batch = true;
    if (t->batches_done || t->max_epochs >= 0) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "the training loader gave no batch in epoch %lld; since max_epochs sets no limit, training would "
                   "never end",
                   epoch);
}

static lc_status run_batches(lc_trainer *t)
{
    lc_status s;
    bool done;
    do {
        const lc_batch *batch;
        bool last;
        LC_TRY(next_batch(t, &batch, &last));
        if (!batch) return LC_OK;
        int64_t start = LC__PROFILE_START(t);
        s = lc__train_batch(t, batch, last);
        LC__PROFILE_ACTION(t, "run_training_batch", start);
        done = epoch_done(t);
        lc__signal_fd_share(t->ranks->signals, done);
        if (s >= 0 && lc__save_requested(t)) s = lc__save_on_request(t);
        if (s >= 0 && lc__signal_of(t) && !done) s = interrupted(t);
    } while (s >= 0 && !done);
    return s;
}

static lc_status run_epoch(lc_trainer *t)
{
    lc__phase resume = t->resume->resume_phase;
    t->resume->resume_phase = LC__PHASE_START;
    t->logging->epoch_end_reached = false;
    t->loop->epoch_ended_early = false;
    lc__note_progress(t);
    LC_TRY(t->resume->resume_mid_epoch ? continue_epoch(t, resume) : start_epoch(t));
    LC_TRY(lc__sync_wishes(t));
    lc__watch_epoch(t);
    if (epoch_done(t)) return LC_OK;
    if (t->resume->loader_state) {
        LC_TRY(lc__name_checkpoint(t->ckpt_path, lc__source_load(&t->input->train, t->resume->loader_state)));
        free(t->resume->loader_state);
        t->resume->loader_state = NULL;
    }
    LC_TRY(lc__source_begin(&t->input->train, t->current_epoch, t->batches_done));
    lc_status s = run_batches(t);
    lc__source_end(&t->input->train);
    LC_TRY(s);
    s = lc_module_status(t->m); /* of parts made in a step, whose errors nothing else reports */
    if (s < 0) return lc_fail_context(s, "building %s", t->mo.name);
    return lc__watch_replaced(t, &t->input->train);
}

/* After on_train_epoch_end: schedulers that monitor a metric, and the row. */
static lc_status after_epoch(lc_trainer *t)
{
    lc__results *r = &t->logging->train_results;
    if (t->loop->epoch_complete) LC_TRY(lc__update_schedulers(t, LC_INTERVAL_EPOCH, true));
    /* The row belongs to the last step, which has been counted already. */
    t->batches_that_stepped--;
    lc_status s = lc__rows_send(t, r, LC__EPOCH_VALUES);
    t->batches_that_stepped++;
    LC_TRY(s);
    if (t->epoch_open) { /* another run may continue the epoch */
        LC_TRY(lc__results_keep(r));
        lc__results_release(r);
    } else { /* already now, so that on_train_start can log for the first epoch */
        LC_TRY(lc__results_reset(t, r));
    }
    return LC_OK;
}

lc_status lc__end_of_epoch(lc_trainer *t)
{
    lc__results *r = &t->logging->train_results;
    fflush(stdout); /* show the program's output, also in a file, before that of the end of the epoch */
    lc__note_progress(t);
    t->logging->epoch_end_reached = true;
    t->epochs_processed++;
    t->loop->epoch_complete = t->is_last_batch || t->loop->epoch_ended_early;
    lc__watch_epoch_end(t);
    LC_TRY(lc__sync_wishes(t));
    LC_TRY(lc__results_reduce(t, r));
    LC_TRY(lc__results_publish_epoch(t, r));
    /* A failure before this point repeats the end of the epoch, not the epoch. */
    if (t->loop->epoch_complete) t->epoch_open = false;
    t->resume->phase = LC__PHASE_EPOCH_END;
    LC_TRY(lc__hook(t, LC_HOOK_ON_TRAIN_EPOCH_END, NULL));
    LC_TRY(lc__results_reduce(t, r));
    LC_TRY(lc__results_publish_epoch(t, r));
    if (t->monitor_epoch_end.n) LC_TRY(lc__hook_monitors(t));
    LC_TRY(lc__sync_wishes(t)); /* these hooks' wishes: the loop decides before the next sync of gradients */
    LC_TRY(after_epoch(t));
    t->logging->epoch_end_reached = false;
    t->resume->phase = LC__PHASE_START;
    t->current_epoch++;
    fflush(stdout);
    return LC_OK;
}

typedef struct forward_pass {
    lc_trainer *t;
    int64_t i;
} forward_pass;

static lc_status forward(void *ctx, const lc_batch *batch, lc_tensor **loss)
{
    const forward_pass *f = ctx;
    lc_trainer *t = f->t;
    lc_hook saved = t->hook;
    *loss = NULL;
    t->hook = LC_HOOK_TRAINING_STEP;
    t->outputs.n = 0; /* outputs are unused here, but the list holds only those of one batch */
    lc_no_grad_begin();
    lc_training_step_fn *step = t->mo.training_step ? t->mo.training_step : lc__training_step_of(t, 0);
    lc_tensor *given = step(t->m, batch, f->i);
    lc_no_grad_end();
    t->outputs.n = 0;
    t->hook = saved;
    LC_TRY(lc_step_status(t->graph));
    if (given) lc_keep(given);
    return LC_OK;
}

static lc_status forward_chunk(void *ctx, const lc_batch *chunk, lc_tensor **loss)
{
    const forward_pass *f = ctx;
    lc__chunks *k = f->t->chunks;
    if (k->now->entered == 0) lc__statistics_begin(k);
    LC_TRY(forward(ctx, chunk, loss));
    return lc__statistics_chunk(k);
}

/* In chunks as in training, so that statistics are the same on any number of ranks. */
static lc_status forward_pieces(lc_trainer *t, const lc_batch *batch, int64_t i)
{
    forward_pass f = {t, i};
    lc_tensor *loss;
    if (lc__tree_of(t)) {
        LC_TRY(lc__each_chunk(t, batch, forward_chunk, &f, &loss));
        if (!t->chunks->now->n) LC_TRY(lc__statistics_no_chunk(t->chunks));
    } else {
        if (lc__is_empty_share(batch)) return LC_OK;
        LC_TRY(forward(&f, batch, &loss));
    }
    return lc_step_run(t->graph);
}

/* Call after lc__end_batch: until then ranks gather parameters for ranks with more chunks. */
static lc_status end_chunks(lc_trainer *t, const lc_batch *batch)
{
    LC_TRY(lc__statistics_end(t->chunks, t->comm, 1, lc__chunks_of_all(t, batch)));
    return lc_step_run(t->graph);
}

static lc_status forward_batch(lc_trainer *t, const lc_batch *batch, int64_t i)
{
    t->batch = batch;
    t->batch_idx = i;
    LC_TRY(lc_step_begin(t->graph, (uint64_t)(t->total_batches + i), 0));
    LC_TRY(lc__begin_batch(t, batch, lc__chunks_in(t, batch)));
    LC_TRY(lc__transfer(t, &batch, 0));
    LC_TRY(lc__batch_norms_begin(t, batch));
    lc_status s = forward_pieces(t, batch, i);
    if (s >= 0) s = lc__batch_norms_end(t, true);
    if (s >= 0) s = lc__end_batch(t);
    if (s >= 0 && lc__tree_of(t)) s = end_chunks(t, batch);
    lc_status ended = lc_step_end(t->graph);
    t->batch = NULL;
    return s < 0 ? s : ended;
}

lc_status lc__forward_epoch(lc_trainer *t, void (*before)(void *ctx, int64_t batch_idx), void *ctx)
{
    lc_status s;
    bool last = false;
    t->logging->silent = true;
    s = lc__source_begin(&t->input->train, t->current_epoch, 0);
    for (int64_t i = 0; s >= 0 && !last; i++) {
        const lc_batch *batch = NULL;
        s = lc__source_next(&t->input->train, &batch, &last);
        if (s < 0 || !batch) break;
        before(ctx, i);
        s = forward_batch(t, batch, i);
    }
    lc__source_end(&t->input->train);
    t->logging->silent = false;
    return s;
}

static bool fit_done(lc_trainer *t)
{
    if (t->input->train.length == 0 || t->input->train.limit == 0 || max_steps_reached(t)) return true;
    if (t->max_epochs >= 0 && t->epochs_processed >= t->max_epochs) return true;
    return lc__should_stop(t) && can_stop_early(t);
}

/* Whether this fit may train less than was trained already, so that its end is not that of the training. */
static bool is_past_its_end(const lc_trainer *t)
{
    if (t->input->train.length == 0 || t->input->train.limit == 0) return true;
    if (t->max_steps >= 0 && t->global_step > t->max_steps) return true;
    return t->max_epochs >= 0 && t->epochs_processed > t->max_epochs;
}

lc_status lc__fit_loop(lc_trainer *t)
{
    if (lc__allows_none(t->opt.limit_train_batches)) return LC_OK;
    LC_TRY(lc__setup_train_data(t));
    if (t->max_epochs == 0 || t->max_steps == 0) return LC_OK;
    lc__check_global_batch(t);
    LC_TRY(lc__sync_wishes(t));
    bool at_end = t->resume->resume_phase == LC__PHASE_EPOCH_END;
    if (at_end) {
        /* RESUME: the epoch's hooks have run, but the rest of its end has not. */
        t->current_epoch--;
        t->loop->epoch_complete = true;
        lc_status s = after_epoch(t);
        t->current_epoch++;
        LC_TRY(s);
        t->resume->resume_phase = LC__PHASE_START;
    }
    /* RESUME: an unfinished batch, or end of an epoch or of training, is finished even if no batch is left. */
    bool unfinished = t->resume->resume_mid_epoch && t->resume->resume_phase != LC__PHASE_START &&
                      (t->is_last_batch || max_steps_reached(t));
    if (!unfinished && fit_done(t) && (!at_end || is_past_its_end(t))) return LC_OK;
    if (t->input->enable_validation) LC_TRY(lc__setup_eval_data(t));
    LC_TRY(lc__check_same_data(t));
    lc__watch_mode(t);
    LC_TRY(lc__hook(t, LC_HOOK_ON_TRAIN_START, NULL));
    LC_TRY(lc__sync_wishes(t));
    lc__waiting_begin(t);
    while (unfinished || !fit_done(t)) {
        unfinished = false;
        LC_TRY(lc__setup_train_data(t));
        int64_t start = LC__PROFILE_START(t);
        LC_TRY(run_epoch(t));
        LC_TRY(lc__end_of_epoch(t));
        LC__PROFILE_ACTION(t, "run_training_epoch", start);
        if (lc__signal_of(t)) return interrupted(t);
    }
    lc__waiting_end(t);
    LC_TRY(lc__hook(t, LC_HOOK_ON_TRAIN_END, NULL));
    return LC_OK;
}
