/* SPDX-License-Identifier: Apache-2.0 */
/* Validation, test and prediction: one loop; the stage decides which hooks it calls. */
#include "core/loop/loop.h"
#include "core/resume/resume.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "core/hooks/hooks.h"
#include "core/split/chunks.h"
#include "base/grow.h"
#include "core/split/device_parts.h"
#include "core/hooks/profiling.h"
#include "core/logging/results_ranks.h"
#include "core/ranks/ranks.h"
#include "base/signal_fd.h"
#include "base/status.h"
#include "data/batch_slice.h"

#include <stdlib.h>
#include <string.h>

/* Random operators in evaluation use keys far from those of training, so they cannot change training's random
 * numbers. */
#define EVAL_STEP_BASE ((uint64_t)1 << 62)

/* ---- train and eval flags of the module tree ---- */

static lc_status remember_modes(lc_trainer *t, const lc_module *m)
{
    LC_TRY(lc__grow(&t->loop->modes, &t->loop->cap_modes, t->loop->n_modes, 1, "the modes of modules"));
    t->loop->modes[t->loop->n_modes++] = m->training;
    for (int i = 0; i < m->n_children; i++) LC_TRY(remember_modes(t, m->children[i]));
    return LC_OK;
}

static void restore_modes(lc_trainer *t, lc_module *m, int *i)
{
    if (*i < t->loop->n_modes) m->training = t->loop->modes[(*i)++];
    for (int c = 0; c < m->n_children; c++) restore_modes(t, m->children[c], i);
}

/* ---- a batch ---- */

/* Arguments for the steps of a batch's pieces. */
typedef struct eval_step {
    lc_trainer *t;
    int64_t i;
    int loader;
} eval_step;

static bool keeps_predictions(const lc_trainer *t)
{
    return t->loop->keeps_predictions || !(t->args && t->args->discard_predictions);
}

/* It has no place among those that are kept, so the later ones have other numbers than their batches. */
static void report_no_prediction(lc_trainer *t, int64_t batch_idx)
{
    if (t->loop->no_prediction || !keeps_predictions(t)) return;
    t->loop->no_prediction = true;
    lc_trainer_message(t, LC_WARNING,
                       "predict_step of %s returned no prediction for batch %lld, so none is kept for it; with "
                       ".discard_predictions it need not return any",
                       t->mo.name, (long long)batch_idx);
}

/* *prediction: the result of predict_step, else NULL. */
static lc_status call_step(void *ctx, const lc_batch *batch, lc_tensor **prediction)
{
    const eval_step *e = ctx;
    lc_trainer *t = e->t;
    lc_status s;
    *prediction = NULL;
    lc__outer_hook outer = lc__hook_enter(t, lc__eval_hook(t, LC_HOOK_VALIDATION_STEP));
    int64_t start = LC__PROFILE_START(t);
    switch (t->stage) {
    case LC_STAGE_TEST:
        s = t->mo.test_step(t->m, batch, e->i, e->loader);
        break;
    case LC_STAGE_PREDICT:
        *prediction = t->mo.predict_step(t->m, batch, e->i, e->loader);
        s = *prediction ? LC_OK : lc__error_since(t->errors_before_hook);
        if (!*prediction && s >= 0) report_no_prediction(t, e->i);
        if (*prediction && !lc_tensor_is_error(*prediction)) lc_keep(*prediction);
        break;
    default:
        s = t->mo.validation_step(t->m, batch, e->i, e->loader);
    }
    LC__PROFILE_HOOK(t, NULL, start);
    lc_status recorded = lc_step_status(t->graph);
    if (recorded < 0) s = recorded;
    if (s != LC_OK || t->deferred) s = lc__hook_result(t, s, NULL);
    lc__hook_leave(t, outer);
    return s;
}

static lc_status run_step(lc_trainer *t, const lc_batch *batch, int64_t i, int loader)
{
    lc_tensor *prediction = NULL;
    eval_step step = {t, i, loader};
    LC_TRY(lc__each_part(t, batch, call_step, &step, &prediction));
    int64_t start = LC__PROFILE_START(t);
    lc_status s = lc__device_parts_run(t, &prediction);
    if (s >= 0) s = lc_step_run(t->graph);
    LC__PROFILE_ACTION(t, "run_step", start);
    t->recording = false;
    if (s < 0) return lc_fail_context(s, "%s, batch %lld", lc_stage_name(t->stage), (long long)i);
    if (prediction) {
        t->outputs.loss = NULL;
        t->outputs.n = 1;
        t->outputs.names[0] = "prediction";
        t->outputs.values[0] = prediction;
    }
    return lc__results_read(t, &t->logging->eval_results);
}

static lc_status run_batch(lc_trainer *t, const lc_batch *batch, int64_t i, int loader)
{
    t->batch = batch;
    t->outputs = (lc_outputs){.loss_divisor = 1};
    lc__note_progress(t);
    LC_TRY(lc_step_begin(t->graph, EVAL_STEP_BASE + (uint64_t)i, (uint64_t)loader));
    t->graph->evaluates = t->stage == LC_STAGE_FIT || t->opt.inference_mode;
    lc__graph_modes(t->graph);
    t->recording = true;
    t->skip = false;
    t->logging->eval_results.step++;
    LC_TRY(lc__transfer(t, &batch, loader));
    const lc__hook_args start = {.batch = batch, .batch_idx = i, .dataloader_idx = loader};
    LC_TRY(lc__hook(t, lc__eval_hook(t, LC_HOOK_ON_VALIDATION_BATCH_START), &start));
    LC_TRY(lc__begin_batch(t, batch, lc__chunks_in(t, batch)));
    if (lc__is_empty_share(batch)) {
        t->recording = false;
        t->logging->eval_results.n_pending = 0; /* values that the hook has recorded are not computed */
    } else {
        LC_TRY(run_step(t, batch, i, loader));
    }
    LC_TRY(lc__end_batch(t));
    if (t->stage == LC_STAGE_PREDICT && keeps_predictions(t))
        LC_TRY(lc__keep_prediction(t, loader, t->outputs.n ? t->outputs.values[0] : NULL));
    if (i == 0 && t->stage != LC_STAGE_PREDICT)
        LC_TRY(lc__share_names(t, &t->logging->eval_results, &t->input->eval.s[loader], batch));
    LC_TRY(lc__results_reduce_step(t, &t->logging->eval_results, false));
    const lc__hook_args end = {.outputs = &t->outputs, .batch = batch, .batch_idx = i, .dataloader_idx = loader};
    LC_TRY(lc__hook(t, lc__eval_hook(t, LC_HOOK_ON_VALIDATION_BATCH_END), &end));
    LC_TRY(lc__results_reduce_step(t, &t->logging->eval_results, true));
    LC_TRY(lc_step_end(t->graph));
    t->batch = NULL;
    if (t->stage == LC_STAGE_PREDICT || !t->logging->eval_results.n) return LC_OK;
    LC_TRY(lc__results_publish_step(t, &t->logging->eval_results));
    if (t->sanity) return LC_OK;
    int64_t row = t->input->val_batch_count[loader];
    return lc__rows_send_eval(t, &t->logging->eval_results, row, t->input->eval.n > 1 ? loader : LC__NO_LOADER);
}

/* A loader has one epoch at a time. */
static lc_status check_free(const lc_trainer *t, const lc__source *s)
{
    const lc__source *train = &t->input->train;
    if (!train->running || train->loader != s->loader || t->is_last_batch) return LC_OK;
    return lc_fail(
        LC_ERR_CONFIG,
        "validation inside an epoch needs a loader of its own, since a loader has one epoch at a time: make a "
        "second one over the same dataset");
}

static lc_status run_loader(lc_trainer *t, int loader)
{
    lc__source *s = &t->input->eval.s[loader];
    int64_t most = t->sanity && t->opt.num_sanity_val_steps >= 0 ? t->opt.num_sanity_val_steps : INT64_MAX;
    int64_t saved_idx = t->batch_idx;
    if (most == 0 || s->length == 0) return LC_OK;
    LC_TRY(check_free(t, s));
    if (t->profiling) lc__profiling_watch(t, s->loader, true);
    lc_status status = lc__source_begin(s, t->current_epoch, 0);
    t->dataloader_idx = loader;
    for (int64_t i = 0; status >= 0 && i < most; i++) {
        const lc_batch *batch;
        bool last;
        int64_t start = LC__PROFILE_START(t);
        status = lc__source_next(s, &batch, &last);
        LC__PROFILE_ACTION(t, "val_dataloader_next", start);
        if (status < 0 || !batch) break;
        t->batch_idx = i;
        t->input->eval_batches++;
        start = LC__PROFILE_START(t);
        status = run_batch(t, batch, i, loader);
        LC__PROFILE_ACTION(t, "run_evaluation_batch", start);
        if (status < 0) break;
        if (!t->sanity) t->input->val_batch_count[loader]++;
        if (last) break;
        lc__signal_fd_share(t->ranks->signals, false);
        if (atomic_load_explicit(&t->ranks->signal, memory_order_relaxed) && t->stage != LC_STAGE_FIT) {
            lc__note_signal(atomic_load(&t->ranks->signal));
            status = lc_fail(LC_ERR_INTERRUPTED, "%s was interrupted by signal %d", lc_stage_name(t->stage),
                             atomic_load(&t->ranks->signal));
        }
    }
    lc__source_end(s);
    if (status >= 0) status = lc__watch_replaced(t, s);
    if (t->profiling) lc__profiling_watch(t, s->loader, false);
    t->batch_idx = saved_idx;
    t->dataloader_idx = 0;
    return status;
}

static lc_status end_epoch(lc_trainer *t)
{
    lc__results *r = &t->logging->eval_results;
    bool publish = t->stage != LC_STAGE_PREDICT;
    t->logging->epoch_end_reached = true;
    if (publish) LC_TRY(lc__results_reduce(t, r));
    if (publish) LC_TRY(lc__results_publish_epoch(t, r));
    LC_TRY(lc__hook(t, lc__eval_hook(t, LC_HOOK_ON_VALIDATION_EPOCH_END), NULL));
    if (!publish) return LC_OK;
    LC_TRY(lc__results_reduce(t, r));
    LC_TRY(lc__results_publish_epoch(t, r));
    if (t->sanity) return LC_OK;
    if (t->stage != LC_STAGE_FIT)
        for (int i = 0; i < t->input->eval.n; i++) LC_TRY(lc__rows_keep_results(t, r, i));
    t->logging->n_results = t->stage != LC_STAGE_FIT ? t->input->eval.n : t->logging->n_results;
    return lc__rows_send(t, r, LC__EPOCH_VALUES);
}

static lc_status run_hooks_and_loaders(lc_trainer *t)
{
    LC_TRY(lc__hook(t, lc__eval_hook(t, LC_HOOK_ON_VALIDATION_MODEL_EVAL), NULL));
    LC_TRY(lc__buffers_from_rank_zero(t));
    LC_TRY(lc__hook(t, lc__eval_hook(t, LC_HOOK_ON_VALIDATION_START), NULL));
    LC_TRY(lc__hook(t, lc__eval_hook(t, LC_HOOK_ON_VALIDATION_EPOCH_START), NULL));
    for (int i = 0; i < t->input->eval.n; i++) {
        LC_TRY(run_loader(t, i));
        /* Metrics of a loader are available when it ends, as in Lightning, even if the next loader fails. Those of
         * several ranks are combined once, after the last loader. */
        if (i + 1 < t->input->eval.n && !t->comm && t->stage != LC_STAGE_PREDICT)
            LC_TRY(lc__results_publish_epoch(t, &t->logging->eval_results));
    }
    LC_TRY(end_epoch(t));
    if (!t->sanity) t->loop->val_has_run = true;
    /* A checkpoint saved in this hook must not validate again when it is resumed. */
    if (t->stage == LC_STAGE_FIT && t->resume->phase == LC__PHASE_BATCH) t->resume->phase = LC__PHASE_VALIDATION;
    LC_TRY(lc__hook(t, lc__eval_hook(t, LC_HOOK_ON_VALIDATION_END), NULL));
    lc__results_release(&t->logging->eval_results);
    return LC_OK;
}

/* The batches of an evaluation of its own count from 0, and not among those of the fit's validations. */
static lc_status run_counting_apart(lc_trainer *t)
{
    int64_t of_fit[LC_MAX_LOADERS];
    memcpy(of_fit, t->input->val_batch_count, sizeof of_fit);
    memset(t->input->val_batch_count, 0, sizeof of_fit);
    lc_status s = run_hooks_and_loaders(t);
    memcpy(t->input->val_batch_count, of_fit, sizeof of_fit);
    return s;
}

lc_status lc__eval_loop(lc_trainer *t)
{
    const lc_batch *saved_batch = t->batch;
    bool saved_end = t->logging->epoch_end_reached;
    t->batch = NULL;
    t->logging->epoch_end_reached = false;
    t->validating = t->stage == LC_STAGE_FIT || t->stage == LC_STAGE_VALIDATE;
    LC_TRY(lc__results_reset(t, &t->logging->eval_results));
    t->loop->n_modes = 0;
    LC_TRY(remember_modes(t, t->m));
    lc_status s = t->stage == LC_STAGE_FIT ? run_hooks_and_loaders(t) : run_counting_apart(t);
    t->input->eval_batches = 0;
    int i = 0;
    if (s < 0) {
        restore_modes(t, t->m, &i); /* for a fit after this one */
        t->validating = false;
        return s;
    }
    if (t->validating && t->mo.on_validation_model_train)
        s = lc__hook(t, LC_HOOK_ON_VALIDATION_MODEL_TRAIN, NULL);
    else if (t->stage == LC_STAGE_TEST && t->mo.on_test_model_train)
        s = lc__hook(t, LC_HOOK_ON_TEST_MODEL_TRAIN, NULL);
    else
        restore_modes(t, t->m, &i);
    t->validating = false;
    t->logging->epoch_end_reached = saved_end;
    t->batch = saved_batch;
    return s;
}

static lc_status run_sanity_check(lc_trainer *t)
{
    t->sanity = true;
    /* A run continued after an epoch counts it as completed when its loop begins, as in Lightning. */
    int64_t completed = t->ckpt_path && t->current_epoch > 0 && !t->epoch_open;
    t->current_epoch -= completed;
    lc_status s = lc__hook(t, LC_HOOK_ON_SANITY_CHECK_START, NULL);
    if (s >= 0) s = lc__setup_eval_data(t);
    if (s >= 0) s = lc__check_same_data(t);
    if (s >= 0) s = lc__eval_loop(t);
    if (s >= 0) s = lc__hook(t, LC_HOOK_ON_SANITY_CHECK_END, NULL);
    t->sanity = false;
    t->current_epoch += completed;
    return s < 0 ? s : lc__results_reset(t, &t->logging->eval_results);
}

/* Its hooks see its metrics, as those of any validation; afterwards there are those from before, of a checkpoint. */
lc_status lc__sanity_check(lc_trainer *t)
{
    lc__metric_map before[sizeof t->logging->metrics / sizeof *t->logging->metrics];
    if (!t->input->enable_validation || t->opt.num_sanity_val_steps == 0 || t->resume->resume_mid_epoch) return LC_OK;
    memcpy(before, t->logging->metrics, sizeof before);
    memset(t->logging->metrics, 0, sizeof before);
    lc_status s = run_sanity_check(t);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) lc__map_free(&t->logging->metrics[i]);
    memcpy(t->logging->metrics, before, sizeof before);
    return s;
}
