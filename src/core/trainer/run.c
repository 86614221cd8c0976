/* SPDX-License-Identifier: Apache-2.0 */
/* fit, validate, test, predict: what surrounds the loops, in Lightning's order. Whatever happens, on_exception (after
 * an error) and teardown run, and what was taken is given back. */
#include "core/trainer/memory_limit.h"
#include "core/trainer/run.h"
#include "core/loop/loop.h"
#include "core/resume/resume.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "core/hooks/hooks.h"
#include "comm/world/world.h"
#include "core/checkpoint/checkpoint.h"
#include "base/handle.h"
#include "core/options/hyperparameters.h"
#include "core/split/chunks.h"
#include "core/ranks/rank_times.h"
#include "core/split/device_parts.h"
#include "comm/agree.h"
#include "core/ranks/ranks.h"
#include "core/resume/run_state.h"
#include "core/resume/after_save.h"
#include "core/hooks/profiling.h"
#include "core/hooks/trainer_internal.h"
#include "module/tensors.h"
#include "optim/optim_internal.h"
#include "tensor/initial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of all trainers: a program that is started again is recognised in its fits by their order alone. */
static atomic_int_least64_t fits_begun;

static lc_status check_module(lc_trainer *t, const lc_module *m, lc_stage stage)
{
    const lc_module_ops *ops = m->ops;
    if (!ops) return lc_fail(LC_ERR_CONFIG, "the module has no operations; call lc_module_init(&m.base, &ops, seed)");
    if (!ops->size)
        return lc_fail(LC_ERR_CONFIG, "the operations of the module have no size: start them with "
                                      "LC_MODULE_OPS_INIT(\"name\")");
    lc_status s = lc_module_status(m);
    if (s < 0) return lc_fail_context(s, "building %s", ops->name ? ops->name : "the module");
    lc__module_ops_fill(t, ops);
    lc__optimization_fill(&t->mo);
    const char *missing = NULL;
    switch (stage) {
    case LC_STAGE_FIT:
        missing = !t->mo.training_step ? "training_step" : !t->mo.configure_optimizers ? "configure_optimizers" : NULL;
        break;
    case LC_STAGE_VALIDATE:
        missing = t->mo.validation_step ? NULL : "validation_step";
        break;
    case LC_STAGE_TEST:
        missing = t->mo.test_step ? NULL : "test_step";
        break;
    case LC_STAGE_PREDICT:
        missing = t->mo.predict_step ? NULL : "predict_step (or forward)";
        break;
    }
    if (missing)
        return lc_fail(LC_ERR_CONFIG, "%s has no %s, which %s needs", ops->name ? ops->name : "the module", missing,
                       lc_stage_name(stage));
    if (t->mo.manual_optimization && stage == LC_STAGE_FIT) {
        if (t->accumulate_next != 1)
            return lc_fail(LC_ERR_CONFIG, "accumulate_grad_batches needs automatic optimization; %s optimizes manually",
                           t->mo.name);
        if (t->opt.gradient_clip_val > 0)
            return lc_fail(LC_ERR_CONFIG,
                           "gradient_clip_val needs automatic optimization; %s optimizes manually "
                           "(call lc_clip_gradients)",
                           t->mo.name);
    }
    return LC_OK;
}

static bool is_zero(lc_duration d)
{
    return d.unit != LC_UNIT_NONE && d.value == 0;
}

static void decide_validation(lc_trainer *t)
{
    bool loader =
        (t->args && (t->args->n_dataloaders || t->args->val_dataloader)) || lc__has_loaders(t, LC_STAGE_VALIDATE);
    t->input->enable_validation = loader && t->mo.validation_step && !is_zero(t->opt.limit_val_batches);
    if (t->stage == LC_STAGE_FIT && loader != (t->mo.validation_step != NULL))
        lc_trainer_message(t, LC_WARNING, "%s has a %s but no %s; validation is skipped", t->mo.name,
                           loader ? "val_dataloader" : "validation_step",
                           loader ? "validation_step" : "val_dataloader");
}

static lc_status make_graph(lc_trainer *t)
{
    lc_graph_args o = LC_ARGS(lc_graph, .threads = t->opt.threads ? (int)t->opt.threads : lc__world_threads(),
                              .deterministic = t->opt.deterministic, .seed = (uint64_t)t->opt.seed, .tune = t->opt.tune,
                              .nan_check = t->opt.detect_anomaly);
    return t->graph ? LC_OK : lc_graph_new_with(&t->graph, &o);
}

static void on_exception(lc_trainer *t, lc_status s, const char *message)
{
    (void)!lc__hook(t, LC_HOOK_ON_EXCEPTION, &(lc__hook_args){.status = s, .message = message});
    t->deferred = false; /* the run's error is told */
}

/* The module may be whole at no time: weights of a checkpoint are read into slices, and evaluation works in them. */
static bool stays_in_slices(const lc_trainer *t)
{
    return t->comm && t->strategy->shard_parameters && !t->opt.gather_parameters;
}

/* Between runs, unless it may not be. */
static lc_status make_whole(lc_trainer *t)
{
    return t->strategy->finish && !stays_in_slices(t) ? t->strategy->finish(t->strategy_self) : LC_OK;
}

/* Opens what the run goes on from. Which one it is, rank 0 finds: elsewhere a new one may not be seen yet. With it goes
 * the id of a training that begins here (lc__ckpt_origin); one that goes on has the id that it had. */
static lc_status open_start(lc_trainer *t, const char *asked)
{
    char *path = NULL, *id = NULL, *both = NULL;
    lc_status s = LC_OK;
    if (lc__is_rank_zero(t)) {
        s = lc__resolve_ckpt_path(t, asked, &path);
        if (s >= 0) s = t->resume->training ? lc__copy_text(t->resume->training, &id) : lc__new_run_id(&id);
        if (s >= 0) s = lc__format(&both, "%s %s", id, path ? path : "");
    }
    s = lc__ranks_agree(t->comm, s);
    if (s >= 0) s = lc__ranks_text(t->comm, &both);
    char *from = both ? strchr(both, ' ') : NULL; /* NULL: as of a test's communicator, which carries nothing */
    if (s >= 0 && from) {
        *from++ = 0;
        free(t->resume->training);
        t->resume->training = NULL;
        s = lc__copy_text(both, &t->resume->training);
        if (s >= 0 && *from) s = lc__open_checkpoint(t, from);
    }
    const char *had =
        s >= 0 && t->resume->restoring_from ? lc__checkpoint_origin(t->resume->restoring_from)->training : "";
    if (*had && t->stage == LC_STAGE_FIT) {
        free(t->resume->training);
        t->resume->training = NULL;
        s = lc__copy_text(had, &t->resume->training);
    }
    free(both);
    free(path);
    free(id);
    return s;
}

/* Everything before the loop. The trainer must not be running. */
static lc_status begin(lc_trainer *t, lc_module *m, const lc_run_args *args, lc_stage stage)
{
    const char *asked = args && args->ckpt_path ? args->ckpt_path : stage == LC_STAGE_FIT ? t->opt.ckpt_path : NULL;
    lc_status s;
    if (!m) {
        m = t->m;
        if (!asked) asked = "best";
        if (!m) return lc_fail(LC_ERR_ARGUMENT, "%s needs a module", lc_stage_name(stage));
    }
    LC_TRY(lc__ranks_are_there(t));
    t->stage = stage;
    t->args = args;
    LC_TRY(check_module(t, m, stage));
    LC_TRY(lc__datamodule_attach(t, args ? args->datamodule : NULL));
    t->m = m;
    m->trainer = t;
    t->in_run = true;
    t->run_state = LC_RUN_RUNNING;
    if (stage == LC_STAGE_FIT && !t->resume->is_probe) {
        t->resume->fit_number = atomic_fetch_add(&fits_begun, 1) + 1;
        lc__world_trained(false);
    }
    t->resume->torn = false;
    t->user_stop = t->stop_wish = t->ranks->agreed_save = t->ranks->agreed_validate = false;
    t->ranks->agreed_signal = 0;
    t->soft_stops = 0;
    t->resume->phase = t->resume->resume_phase = LC__PHASE_START;
    t->resume->resume_mid_epoch = false;
    t->deferred = t->recording = t->skip = false;
    t->logging->epoch_end_reached = t->validating = t->sanity = false;
    t->batch = NULL;
    for (size_t i = 0; i < sizeof t->logging->metrics / sizeof *t->logging->metrics; i++)
        lc__map_clear(&t->logging->metrics[i]);
    t->depth = 0;
    atomic_store(&t->ranks->signal, 0);
    atomic_store(&t->ranks->save_requested, 0);
    t->run->time_start_ns = lc__now_ns();
    for (int i = 0; i < LC_MAX_LOADERS && stage == LC_STAGE_PREDICT; i++) {
        for (int64_t k = 0; k < t->loop->predictions[i].n; k++) lc_tensor_unref(t->loop->predictions[i].t[k]);
        t->loop->predictions[i].n = 0;
    }
    if (stage != LC_STAGE_FIT) t->logging->n_results = 0;
    lc__tell_progress(t);
    LC_TRY(make_graph(t));
    LC_TRY(lc__chunks_begin(t));
    if (t->profiling) lc__profiling_begin(t);
    LC_TRY(lc__configure_callbacks(t));
    LC_TRY(lc__hooks_rebuild(t));
    decide_validation(t);
    LC_TRY(lc__check_same_options(t));
    for (int i = 0; i < t->n_callbacks && !asked && stage == LC_STAGE_FIT; i++)
        if (t->callbacks[i]->ops.ckpt_path) asked = t->callbacks[i]->ops.ckpt_path(t->callbacks[i]->self, t);
    LC_TRY(open_start(t, asked));
    LC_TRY(lc__signals_begin(t));
    LC_TRY(lc__hook(t, LC_HOOK_PREPARE_DATA, NULL));
    if (stage != LC_STAGE_PREDICT) LC_TRY(lc__loggers_start(t));
    t->run->setup_done = true;
    LC_TRY(lc__hook(t, LC_HOOK_SETUP, &(lc__hook_args){.stage = t->stage}));
    LC_TRY(lc__hook(t, LC_HOOK_CONFIGURE_MODEL, NULL));
    s = lc_module_status(m);
    if (s < 0) return lc_fail_context(s, "building %s", t->mo.name);
    if (t->resume->restoring_from)
        LC_TRY(lc__restore_module(t, stays_in_slices(t) ? LC__AHEAD_OF_SLICES : LC__AT_ONCE));
    LC_TRY(lc__initial_weights(t));
    LC_TRY(lc__device_parts_setup(t));
    if (stage != LC_STAGE_PREDICT) LC_TRY(lc__hyperparameters_log(t, m));
    lc__results_reset(&t->logging->train_results);
    lc__results_reset(&t->logging->eval_results);
    return LC_OK;
}

/* Which of several optimizers a loss is for, nobody can guess. */
static lc_status check_optimizers(const lc_trainer *t)
{
    if (t->optimizers.n < 2 || t->mo.manual_optimization) return LC_OK;
    for (int i = 0; i < t->optimizers.n; i++)
        if (!t->optimizers.optimizers[i].training_step)
            return lc_fail(LC_ERR_CONFIG,
                           "%s has %d optimizers: give each its own training step (lc_optimizers_add_step), or set "
                           ".manual_optimization and step them yourself",
                           t->mo.name, t->optimizers.n);
    return LC_OK;
}

static lc_status set_up_optimizers(lc_trainer *t)
{
    lc_optimizer *list[LC_MAX_OPTIMIZERS];
    lc__optimizers_free(t);
    if (t->precision->convert_module) LC_TRY(t->precision->convert_module(&t->precision_self, t->m));
    LC_TRY(lc__hook(t, LC_HOOK_CONFIGURE_OPTIMIZERS, &(lc__hook_args){.optimizers = &t->optimizers}));
    lc_status s = lc_module_status(t->m);
    if (s < 0) return lc_fail_context(s, "configure_optimizers of %s", t->mo.name);
    if (!t->optimizers.n)
        lc_trainer_message(t, LC_WARNING, "configure_optimizers of %s added no optimizers: nothing will be trained",
                           t->mo.name);
    LC_TRY(check_optimizers(t));
    LC_TRY(lc__check_accumulation(t, t->accumulate_next));
    for (int i = 0; i < t->optimizers.n; i++) list[i] = t->optimizers.optimizers[i].optimizer;
    if (t->strategy->setup) LC_TRY(t->strategy->setup(t->strategy_self, t->graph, t->m, list, t->optimizers.n));
    LC_TRY(lc__ranks_optimizers(t->comm, t->m, &t->optimizers));
    if (t->resume->restoring_from && stays_in_slices(t)) LC_TRY(lc__restore_module(t, LC__IN_SLICES));
    LC_TRY(lc__module_fill(t->m));
    LC_TRY(lc__unused_begin(t));
    LC_TRY(lc__rank_times_begin(t));
    LC_TRY(lc__batch_norms_setup(t, lc__device_parts_most(t)));
    LC_TRY(lc__read_buffers_setup(t));
    LC_TRY(lc__chunks_train(t));
    return lc__device_parts_set_optimizers(t);
}

static lc_status fit_begin(lc_trainer *t)
{
    lc__watch_begin(t);
    lc_graph_set_window(t->graph, 0); /* an earlier fit by hand has set it */
    lc__saves_begin(t);
    LC_TRY(set_up_optimizers(t));
    LC_TRY(lc__votes_begin(t));
    LC_TRY(lc__memory_limit_apply(t->opt.memory_limit, t->graph, t->m, &t->optimizers, lc__device_parts_devices(t),
                                  t->opt.gather_parameters));
    lc_module_train(t->m, true);
    LC_TRY(lc__hook(t, LC_HOOK_ON_FIT_START, NULL));
    if (t->resume->restoring_from) {
        LC_TRY(lc__restore_progress(t));
        lc_trainer_message(t, LC_INFO, "resumed from %s: epoch %lld, step %lld (checksums verified)", t->ckpt_path,
                           (long long)t->current_epoch, (long long)t->global_step);
    } else {
        lc_zero_grad(t->graph);
        t->window_backwards = 0;
        t->epoch_open = false;
    }
    lc_checkpoint_close(t->resume->restoring_from);
    t->resume->restoring_from = NULL;
    return LC_OK;
}

static void stop_message(lc_trainer *t, int64_t first_step)
{
    if (t->ckpt_path && t->global_step == first_step)
        lc_trainer_message(t, LC_INFO, "nothing left to train: %s is already at epoch %lld, step %lld", t->ckpt_path,
                           (long long)t->current_epoch, (long long)t->global_step);
    if (t->max_steps >= 0 && t->global_step >= t->max_steps)
        lc_trainer_message(t, LC_INFO, "fit stopped: max_steps=%lld reached", (long long)t->max_steps);
    else if (t->max_epochs >= 0 && t->epochs_processed >= t->max_epochs)
        lc_trainer_message(t, LC_INFO, "fit stopped: max_epochs=%lld reached", (long long)t->max_epochs);
    else if (lc_trainer_num_training_batches(t) == 0)
        lc_trainer_message(t, LC_WARNING,
                           "fit stopped: no training batches; the loader has none (with drop_last: fewer samples than "
                           "one batch of all ranks), or limit_train_batches allows none");
}

static lc_status fit_body(lc_trainer *t)
{
    if (t->opt.max_epochs == LC_UNSET && t->max_epochs == 1000)
        lc_trainer_message(t, LC_INFO, "max_epochs was not set: training for 1000 epochs; -1 trains without a limit");
    LC_TRY(fit_begin(t));
    int64_t first_step = t->global_step;
    LC_TRY(lc__sanity_check(t));
    LC_TRY(lc__fit_loop(t));
    LC_TRY(lc__unused_end(t));
    stop_message(t, first_step);
    return lc__hook(t, LC_HOOK_ON_FIT_END, NULL);
}

/* What a person wants to know after a fit: where things lie, and how it goes on. */
static void say_where(lc_trainer *t)
{
    double best_score;
    const char *best = lc__best_checkpoint(t, &best_score);
    if (best) {
        char score[64] = "";
        if (!isnan(best_score) && t->opt.monitor)
            snprintf(score, sizeof score, " (%.40s %.4g)", t->opt.monitor, best_score);
        lc_trainer_message(t, LC_INFO, "%s checkpoint: %s%s", *score ? "best" : "last", best, score);
    }
    if (t->logging->loggers_started && t->run_dir) lc_trainer_message(t, LC_INFO, "metrics: %s", t->run_dir);
    lc__device_parts_report(t);
}

/* Everything after the loop: also after an error. Returns the run's status. */
static lc_status finish(lc_trainer *t, lc_status s)
{
    char message[1024];
    bool missed = false; /* all is well but for the last checkpoint */
    lc__device_part_leave(t);
    lc__copy_message(message, sizeof message);
    if (t->graph && lc_current_graph() == t->graph && lc_step_end(t->graph) < 0) {
        if (s >= 0)
            s = LC_ERR_INTERNAL;
        else
            lc_fail(s, "%s", message); /* which says more than the graph knows: the batch */
    }
    t->recording = false;
    t->batch = NULL;
    if (s >= 0) {
        lc_status written = lc__settle(t, LC__SETTLE_ALL);
        /* From here on all ranks may read what rank 0 has written. */
        if (written >= 0) written = lc__ranks_barrier(t->comm);
        if (written >= 0 && t->stage == LC_STAGE_FIT) written = lc__rank_times_report(t);
        if (written >= 0) written = make_whole(t);
        if (written < 0)
            s = written;
        else if (t->stage == LC_STAGE_FIT) {
            say_where(t);
            s = lc__saves_verdict(t);
            missed = s < 0;
            if (missed) lc__world_trained(true);
        }
    }
    if (s < 0) {
        if (s == LC_ERR_PEER && t->comm && t->strategy->explain) t->strategy->explain(t->strategy_self);
        /* What clean-up says must not hide the cause. */
        lc__copy_message(message, sizeof message);
        t->run_state = LC_RUN_INTERRUPTED;
        t->deferred = false;
        /* In a fit all ranks stop behind the same step; elsewhere each stops where it is, which ends the others. */
        bool together = (s == LC_ERR_INTERRUPTED && t->stage == LC_STAGE_FIT) || missed;
        if (t->comm && t->strategy->fail && s != LC_ERR_PEER && !together) {
            t->strategy->fail(t->strategy_self, message);
            lc__copy_message(message, sizeof message); /* which rank it was, where that has to be said here */
        }
        if (!together) t->comm = NULL; /* what is left to do, each rank does alone */
        on_exception(t, s, message);
        lc_status written = lc__settle(t, LC__SETTLE_ALL);
        if (written < 0) lc_trainer_message(t, LC_ERROR, "%s", lc_error_message());
        /* A rank that was interrupted and left would be missed while rank 0 still writes. */
        if (together && lc__ranks_barrier(t->comm) < 0) lc_trainer_message(t, LC_ERROR, "%s", lc_error_message());
        if (together && !missed && make_whole(t) < 0) lc_trainer_message(t, LC_ERROR, "%s", lc_error_message());
    }
    lc__batch_norms_release(t);
    lc__rank_times_free(t);
    lc__unused_free(t);
    /* Metrics are the program's: from here on it may free them. */
    if (t->epoch_open && lc__results_keep(&t->logging->train_results) < 0)
        lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
    lc__results_release(&t->logging->train_results);
    lc__results_release(&t->logging->eval_results);
    if (t->profiling) lc__profiling_watch(t, t->input->train.loader, false);
    lc__source_close(&t->input->train);
    t->input->train.which = -1;
    lc__sources_close(&t->input->eval);
    t->input->eval_loaded = false;
    if (t->run->setup_done) {
        t->run->setup_done = false;
        lc_status torn = lc__hook(t, LC_HOOK_TEARDOWN, &(lc__hook_args){.stage = t->stage});
        if (torn < 0 && s >= 0) {
            s = torn;
            t->run_state = LC_RUN_INTERRUPTED;
            lc__copy_message(message, sizeof message);
        }
    }
    lc_checkpoint_close(t->resume->restoring_from);
    t->resume->restoring_from = NULL;
    /* Who was told to end may be told the same again a moment later. */
    if (atomic_load(&t->ranks->signal))
        lc__signals_keep(t);
    else
        lc__signals_end(t);
    if (t->profiling) lc__profiling_end(t);
    if (s < 0) lc__loggers_status(t, s == LC_ERR_INTERRUPTED ? "interrupted" : "failed");
    lc__loggers_flush(t);
    if (t->in_run && t->run_state == LC_RUN_RUNNING) t->run_state = LC_RUN_FINISHED;
    t->in_run = false;
    if (t->comm && t->strategy->progress) t->strategy->progress(t->strategy_self, t->global_step, NULL);
    t->args = NULL;
    if (t->m) t->m->trainer = NULL;
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

static lc_status run(lc_trainer *t, lc_module *m, const lc_run_args *args, lc_stage stage,
                     lc_status (*body)(lc_trainer *))
{
    if (!t) return lc_fail(LC_ERR_ARGUMENT, "the trainer is NULL");
    if (t->in_run) return lc_fail(LC_ERR_STATE, "the trainer is already running");
    lc_status s = begin(t, m, args, stage);
    if (s >= 0) s = body(t);
    return finish(t, s);
}

lc_status lc_trainer_fit(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    if (!m) return lc_fail(LC_ERR_ARGUMENT, "fit needs a module");
    return run(t, m, args, LC_STAGE_FIT, fit_body);
}

static lc_status set_up_model(lc_trainer *t)
{
    if (stays_in_slices(t)) {
        LC_TRY(t->strategy->shard_parameters(t->strategy_self, t->graph, t->m));
        if (t->resume->restoring_from) LC_TRY(lc__restore_module(t, LC__IN_SLICES));
    } else {
        LC_TRY(lc__ranks_model(t->comm, t->m, false));
    }
    lc_checkpoint_close(t->resume->restoring_from);
    t->resume->restoring_from = NULL;
    return lc__module_fill(t->m);
}

static lc_status eval_body(lc_trainer *t)
{
    LC_TRY(set_up_model(t));
    LC_TRY(lc__setup_eval_data(t));
    LC_TRY(lc__check_same_data(t));
    bool none = true; /* limits of 0: nothing is run, not even hooks */
    for (int i = 0; i < t->input->eval.n; i++)
        none = none && (t->input->eval.s[i].length == 0 || t->input->eval.s[i].limit == 0);
    if (none) {
        t->logging->n_results = 0;
        lc_trainer_message(t, LC_WARNING, "%s: the batch to run is NULL", lc_stage_name(t->stage));
        return LC_OK;
    }
    return lc__eval_loop(t);
}

lc_status lc_trainer_validate(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    return run(t, m, args, LC_STAGE_VALIDATE, eval_body);
}

lc_status lc_trainer_test(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    return run(t, m, args, LC_STAGE_TEST, eval_body);
}

lc_status lc_trainer_predict(lc_trainer *t, lc_module *m, const lc_run_args *args)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    return run(t, m, args, LC_STAGE_PREDICT, eval_body);
}

/* ---- programs that own their loop ---- */

lc_status lc_trainer_begin(lc_trainer *t, lc_module *m)
{
    LC__IS_OR_NULL(m, MODULE, LC_ERR_ARGUMENT);
    LC__IS_OR_NULL(t, TRAINER, LC_ERR_ARGUMENT);
    if (!t || !m) return lc_fail(LC_ERR_ARGUMENT, "lc_trainer_begin needs a trainer and a module");
    if (t->in_run) return lc_fail(LC_ERR_STATE, "the trainer is already running");
    lc_status s = begin(t, m, NULL, LC_STAGE_FIT);
    if (s >= 0) s = fit_begin(t);
    t->input->enable_validation = false;
    t->run->own_loop = true;
    t->input->train.length = t->input->train.limit = -1;
    t->resume->resume_phase = LC__PHASE_START;
    if (!t->resume->resume_mid_epoch) t->epoch_open = false;
    if (s >= 0) s = lc__hook(t, LC_HOOK_ON_TRAIN_START, NULL);
    if (s >= 0) return LC_OK;
    t->run->own_loop = false;
    return finish(t, s);
}

static lc_status own_loop(lc_trainer *t, const char *what)
{
    return t && t->in_run && t->run->own_loop ? LC_OK : lc_fail(LC_ERR_STATE, "%s: call lc_trainer_begin first", what);
}

lc_status lc_trainer_step(lc_trainer *t, const lc_batch *batch, double *loss)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC_TRY(own_loop(t, "lc_trainer_step"));
    lc_status s = LC_OK;
    t->resume->resume_mid_epoch = false;
    if (!t->epoch_open) {
        t->epoch_open = true;
        t->loop->epoch_ended_early = false;
        t->resume->cursor_epoch = t->current_epoch;
        t->batches_done = t->window_begin = 0;
        lc__watch_epoch(t);
        s = lc__hook(t, LC_HOOK_ON_TRAIN_EPOCH_START, NULL);
    }
    if (s >= 0) s = lc__train_batch(t, batch, false);
    if (s >= 0 && lc__save_requested(t)) s = lc__save_on_request(t);
    if (s >= 0 && loss) {
        *loss = NAN;
        if (t->outputs.loss) s = lc_item(t->outputs.loss, loss);
    }
    if (s < 0) {
        t->run->own_loop = false;
        return finish(t, s);
    }
    bool stop = lc__should_stop(t) || lc__signal_of(t) || (t->max_steps >= 0 && t->global_step >= t->max_steps);
    return stop ? LC_STOP : LC_OK;
}

lc_status lc_trainer_end_epoch(lc_trainer *t)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC_TRY(own_loop(t, "lc_trainer_end_epoch"));
    if (!t->epoch_open) return LC_OK;
    t->is_last_batch = true;
    lc_status s = lc__end_of_epoch(t);
    t->is_last_batch = false;
    if (s < 0) {
        t->run->own_loop = false;
        return finish(t, s);
    }
    return LC_OK;
}

lc_status lc_trainer_end(lc_trainer *t)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC_TRY(own_loop(t, "lc_trainer_end"));
    LC_TRY(lc_trainer_end_epoch(t));
    t->run->own_loop = false;
    lc_status s = lc__unused_end(t);
    if (s >= 0) s = lc__hook(t, LC_HOOK_ON_TRAIN_END, NULL);
    if (s >= 0) s = lc__hook(t, LC_HOOK_ON_FIT_END, NULL);
    return finish(t, s);
}
