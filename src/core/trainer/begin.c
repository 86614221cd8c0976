/* SPDX-License-Identifier: Apache-2.0 */
/* Everything before the loops: checks and sets up the module, opens the checkpoint the run continues from, and makes
 * the optimizers of a fit. */
#include "base/args.h"
#include "core/trainer/run.h"
#include "core/trainer/matmul_precision.h"
#include "core/trainer/memory_limit.h"
#include "core/trainer/precision_time.h"
#include "base/handle.h"
#include "comm/agree.h"
#include "comm/world/world.h"
#include "core/hooks/hooks.h"
#include "core/hooks/precision_calls.h"
#include "core/hooks/profiling.h"
#include "core/input/input.h"
#include "core/logging/arrivals.h"
#include "core/loop/loop.h"
#include "core/options/hyperparameters.h"
#include "core/ranks/rank_times.h"
#include "core/ranks/ranks.h"
#include "core/resume/resume.h"
#include "core/resume/run_state.h"
#include "core/split/chunks.h"
#include "core/split/device_parts.h"
#include "core/split/step.h"
#include "module/tensors.h"
#include "optim/optim_internal.h"
#include "optim/state_buffers.h"
#include "tensor/initial.h"

#include <stdlib.h>
#include <string.h>

/* Counts fits across all trainers: after a restart, fits are matched by order. */
static atomic_int_least64_t fits_begun;

/* The function that the stage needs and the module lacks, or NULL. */
static const char *missing(const lc_module_ops *mo, lc_stage stage)
{
    switch (stage) {
    case LC_STAGE_FIT:
        return mo->configure_optimizers ? NULL : mo->training_step ? "configure_optimizers" : "training_step";
    case LC_STAGE_VALIDATE:
        return mo->validation_step ? NULL : "validation_step";
    case LC_STAGE_TEST:
        return mo->test_step ? NULL : "test_step";
    case LC_STAGE_PREDICT:
        return mo->predict_step ? NULL : "predict_step (or forward)";
    }
    return NULL;
}

static lc_status check_manual(const lc_trainer *t)
{
    if (t->accumulate_next != 1)
        return lc_fail(LC_ERR_CONFIG, "accumulate_grad_batches needs automatic optimization; %s optimizes manually",
                       t->mo.name);
    if (t->opt.gradient_clip_val > 0)
        return lc_fail(LC_ERR_CONFIG,
                       "gradient_clip_val needs automatic optimization; %s optimizes manually "
                       "(call lc_clip_gradients)",
                       t->mo.name);
    return LC_OK;
}

/* Copies the module's vtable to the trainer, with defaults in its empty slots, if it has what the stage needs. */
static lc_status take_ops(lc_trainer *t, const lc_module *m, lc_stage stage)
{
    const lc_module_ops *ops = m->ops;
    if (!ops) return lc_fail(LC_ERR_CONFIG, "the module has no operations; call lc_module_init(&m.base, &ops, seed)");
    if (lc__ops_check(sizeof *ops, ops, offsetof(lc_module_ops, name) + sizeof(char *), "the module",
                      "LC_MODULE_OPS_INIT(\"name\")") < 0)
        return lc_fail(LC_ERR_CONFIG, "%s", lc_error_message());
    lc_status s = lc_module_status(m);
    if (s < 0) return lc_fail_context(s, "building %s", ops->name ? ops->name : "the module");
    lc__module_ops_fill(t, ops);
    lc__optimization_fill(t);
    const char *lacks = missing(&t->mo, stage);
    if (lacks)
        return lc_fail(LC_ERR_CONFIG, "%s has no %s, which %s needs", ops->name ? ops->name : "the module", lacks,
                       lc_stage_name(stage));
    return t->mo.manual_optimization && stage == LC_STAGE_FIT ? check_manual(t) : LC_OK;
}

static void decide_validation(lc_trainer *t)
{
    bool loader =
        (t->args && (t->args->n_dataloaders || t->args->val_dataloader)) || lc__has_loaders(t, LC_STAGE_VALIDATE);
    t->input->enable_validation = loader && t->mo.validation_step && !lc__allows_none(t->opt.limit_val_batches);
    if (t->stage == LC_STAGE_FIT && loader != (t->mo.validation_step != NULL))
        lc_trainer_message(t, LC_WARNING, "%s has a %s but no %s; validation is skipped", t->mo.name,
                           loader ? "val_dataloader" : "validation_step",
                           loader ? "validation_step" : "val_dataloader");
}

lc_status lc__make_graph(lc_trainer *t, int64_t max_bytes)
{
    char device[LC__DEVICE_NAME];
    LC_TRY(lc__rank_device(t->opt.accelerator, t->strategy, t->strategy_self, device));
    lc_graph_args o = LC_ARGS(lc_graph, .threads = t->opt.threads ? (int)t->opt.threads : lc__world_threads(),
                              .deterministic = t->opt.deterministic, .seed = (uint64_t)t->opt.seed, .tune = t->opt.tune,
                              .nan_check = t->opt.detect_anomaly, .max_bytes = max_bytes, .device = device);
    LC_TRY(lc__matmul_precision_parse(t->opt.float32_matmul_precision, &o.matmul_precision));
    LC_TRY(lc__precision_configure_graph(&t->precision, &t->precision_self, &o));
    return lc_graph_new_with(&t->graph, &o);
}

/* Opens the checkpoint the run continues from. Rank 0 finds it, since other machines may not see a new one yet, and
 * sends its path with the id of a new training (lc__ckpt_origin); a training that continues keeps its id. */
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
    char *from = both ? strchr(both, ' ') : NULL; /* NULL with a test's communicator that sends nothing */
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

/* Clears the state of the previous run. */
static void reset(lc_trainer *t)
{
    t->resume->torn = false;
    t->user_stop = t->stop_wish = t->ranks->agreed_save = t->ranks->agreed_validate = false;
    t->ranks->agreed_signal = 0;
    t->soft_stops = 0;
    t->resume->phase = t->resume->resume_phase = LC__PHASE_START;
    t->resume->resume_mid_epoch = false;
    t->deferred = t->recording = t->skip = false;
    t->logging->epoch_end_reached = t->validating = t->sanity = t->loop->val_has_run = false;
    t->batch = NULL;
    for (size_t i = 0; i < sizeof t->logging->metrics / sizeof *t->logging->metrics; i++)
        lc__map_clear(&t->logging->metrics[i]);
    t->depth = 0;
    atomic_store(&t->ranks->signal, 0);
    atomic_store(&t->ranks->save_requested, 0);
    t->run->time_start_ns = lc__now_ns();
    if (t->stage == LC_STAGE_PREDICT) lc__forget_predictions(t);
    if (t->stage != LC_STAGE_FIT) t->logging->n_results = 0;
}

lc_status lc__run_begin(lc_trainer *t, lc_module *m, const lc_run_args *args, lc_stage stage)
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
    LC_TRY(take_ops(t, m, stage));
    LC_TRY(lc__datamodule_attach(t, args ? args->datamodule : NULL));
    t->m = m;
    m->trainer = t;
    t->in_run = true;
    t->run_state = LC_RUN_RUNNING;
    if (stage == LC_STAGE_FIT && !t->resume->is_probe) {
        t->resume->fit_number = atomic_fetch_add(&fits_begun, 1) + 1;
        lc__world_trained(false);
    }
    reset(t);
    lc__note_progress(t);
    if (!t->graph) LC_TRY(lc__make_graph(t, 0));
    t->run->before = lc__device_use(t->graph->on);
    t->run->on_device = true;
    LC_TRY(lc__chunks_begin(t));
    if (t->profiling) lc__profiling_begin(t);
    LC_TRY(lc__configure_callbacks(t));
    LC_TRY(lc__hooks_rebuild(t));
    lc__hooks_find_users(t);
    decide_validation(t);
    LC_TRY(lc__check_same_options(t));
    lc__report_idle_options(t);
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
    LC_TRY(lc__module_move(m, t->graph->on));
    LC_TRY(lc__precision_convert_module(&t->precision, &t->precision_self, m));
    if (t->resume->restoring_from)
        LC_TRY(lc__restore_module(t, lc__stays_in_slices(t) ? LC__AHEAD_OF_SLICES : LC__AT_ONCE));
    LC_TRY(lc__initial_weights(t));
    LC_TRY(lc__device_parts_setup(t));
    if (stage != LC_STAGE_PREDICT) LC_TRY(lc__hyperparameters_log(t, m));
    LC_TRY(lc__results_reset(t, &t->logging->train_results));
    LC_TRY(lc__results_reset(t, &t->logging->eval_results));
    return lc__arrivals_begin(t);
}

/* The program may have freed what it added, which the trainer frees. */
static lc_status check_alive(const lc_trainer *t)
{
    bool alive = true;
    for (int i = 0; i < t->optimizers.n; i++)
        alive &= lc__has_mark(t->optimizers.optimizers[i].optimizer, LC__MARK_OF(OPTIMIZER));
    for (int i = 0; i < t->optimizers.n_schedulers; i++)
        alive &= lc__has_mark(t->optimizers.schedulers[i].scheduler, LC__MARK_OF(SCHEDULER));
    if (alive) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT,
                   "configure_optimizers of %s freed an optimizer or a schedule that it had added; the trainer frees "
                   "them",
                   t->mo.name);
}

/* A schedule of an optimizer that is not trained with would change nothing. In manual optimization the program steps
 * schedules, and gives the metric. */
static lc_status check_schedulers(lc_trainer *t)
{
    for (int i = 0; i < t->optimizers.n_schedulers; i++) {
        lc_scheduler_config *c = &t->optimizers.schedulers[i];
        int k = 0;
        while (k < t->optimizers.n && t->optimizers.optimizers[k].optimizer != c->scheduler->optimizer) k++;
        if (k == t->optimizers.n)
            return lc_fail(LC_ERR_CONFIG,
                           "configure_optimizers of %s added a schedule (%s) of an optimizer that it did not add; add "
                           "the optimizer that the schedule was made with",
                           t->mo.name, lc_scheduler_name(c->scheduler));
        if (c->reduce_on_plateau && !c->monitor && !t->mo.manual_optimization)
            return lc_fail(LC_ERR_CONFIG,
                           "configure_optimizers of %s: a ReduceLROnPlateau scheduler needs .monitor: the metric to "
                           "watch",
                           t->mo.name);
        c->optimizer = k;
    }
    return LC_OK;
}

/* The module may leave its training step to the optimizers. With several optimizers, each needs its own: a loss does
 * not name its optimizer. */
static lc_status check_optimizers(const lc_trainer *t)
{
    if (!t->mo.training_step && (t->mo.manual_optimization || !lc__training_step_of(t, 0)))
        return lc_fail(LC_ERR_CONFIG, "%s has no training_step, which fit needs", t->mo.name);
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
    lc_status s = lc__hook(t, LC_HOOK_CONFIGURE_OPTIMIZERS, &(lc__hook_args){.optimizers = &t->optimizers});
    /* The module has the error of a constructor that failed; the hook may only know that there is no optimizer. */
    if (lc_module_root(t->m)->status < 0)
        s = lc_fail_context(lc_module_status(t->m), "configure_optimizers of %s", t->mo.name);
    LC_TRY(s);
    if (!t->optimizers.n)
        lc_trainer_message(t, LC_WARNING, "configure_optimizers of %s added no optimizers: nothing will be trained",
                           t->mo.name);
    LC_TRY(check_alive(t));
    LC_TRY(check_optimizers(t));
    LC_TRY(check_schedulers(t));
    LC_TRY(lc__precision_check(&t->precision, &t->optimizers));
    LC_TRY(lc__check_accumulation(t, t->accumulate_next));
    for (int i = 0; i < t->optimizers.n; i++) {
        list[i] = t->optimizers.optimizers[i].optimizer;
        LC_TRY(lc__optimizer_sums_in_f32(list[i], lc__sums_on_tree(t)));
    }
    if (t->strategy->setup) LC_TRY(t->strategy->setup(t->strategy_self, t->graph, t->m, list, t->optimizers.n));
    LC_TRY(lc__ranks_optimizers(t->comm, t->m, &t->optimizers));
    if (t->resume->restoring_from && lc__stays_in_slices(t)) LC_TRY(lc__restore_module(t, LC__IN_SLICES));
    LC_TRY(lc__module_fill(t->m));
    LC_TRY(lc__unused_begin(t));
    LC_TRY(lc__rank_times_begin(t));
    LC_TRY(lc__batch_norms_setup(t, lc__device_parts_most(t)));
    LC_TRY(lc__read_buffers_setup(t));
    LC_TRY(lc__chunks_train(t));
    return lc__device_parts_set_optimizers(t);
}

static lc_status report_precision(lc_trainer *t)
{
    char text[LC__SLOWER_SIZE];
    if (!lc__is_rank_zero(t) || t->opt.barebones || t->resume->is_probe) return LC_OK;
    LC_TRY(lc__precision_slower(t->graph, t->precision.name, text));
    if (*text) lc_trainer_message(t, LC_WARNING, "%s", text);
    const char *higher = lc__matmul_precision_falls_back(t->graph);
    if (higher) lc_trainer_message(t, LC_WARNING, "%s", higher);
    return LC_OK;
}

lc_status lc__fit_begin(lc_trainer *t)
{
    LC_TRY(report_precision(t));
    lc__watch_begin(t);
    lc_graph_set_window(t->graph, 0); /* an earlier fit with manual optimization may have set it */
    lc__saves_begin(t);
    LC_TRY(set_up_optimizers(t));
    LC_TRY(lc__votes_begin(t));
    LC_TRY(lc__memory_limit_apply(t->opt.memory_limit, t->graph, t->m, &t->optimizers, lc__device_parts_devices(t),
                                  t->opt.gather_parameters));
    LC_TRY(lc__hook(t, LC_HOOK_ON_FIT_START, NULL));
    if (t->resume->restoring_from) {
        LC_TRY(lc__restore_progress(t));
        lc_trainer_message(t, LC_INFO, "resumed from %s: epoch %lld, step %lld (checksums verified)", t->ckpt_path,
                           (long long)t->current_epoch, (long long)t->global_step);
    } else {
        lc_zero_grad(t->graph);
        t->window_backwards = 0;
        t->epoch_open = false;
        t->current_epoch = t->epochs_processed; /* the last fit may have failed at the end of an epoch */
    }
    lc_checkpoint_close(t->resume->restoring_from);
    t->resume->restoring_from = NULL;
    return LC_OK;
}
