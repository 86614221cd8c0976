/* SPDX-License-Identifier: Apache-2.0 */
/* The optimization of one batch: closure, gradient hooks, update, schedulers. With manual optimization the module makes
 * the calls it needs (manual.c).
 *
 * Everything here only records. The plan is submitted (lc_step_run) after the update of the last optimizer, or after
 * backward while gradients are being accumulated. */
#include "core/loop/loop.h"
#include "core/logging/logging.h"
#include "core/input/input.h"
#include "core/hooks/profiling.h"
#include "core/hooks/hooks.h"
#include "core/split/chunks.h"
#include "core/split/step.h"
#include "base/handle.h"
#include "core/split/device_parts.h"
#include "core/ranks/rank_times.h"
#include "core/logging/results_ranks.h"
#include "core/ranks/ranks.h"
#include "data/batch_slice.h"
#include "optim/optim_internal.h"
#include "engine/run/run.h"

#include <math.h>
#include <string.h>

/* ---- the closure ---- */

lc_status lc__backward(lc_trainer *t, lc_tensor *loss)
{
    LC_TRY(lc__backward_hooks(t, loss));
    t->window_backwards++;
    LC_TRY(lc__batch_norms_end(t, true));
    if (!t->accumulating || t->strategy->syncs_every_backward) LC_TRY(lc__sync_gradients(t));
    LC_TRY(lc__hook(t, LC_HOOK_ON_AFTER_BACKWARD, NULL));
    return LC_OK;
}

static lc_status closure_run(lc_closure *c)
{
    lc_trainer *t = c->t;
    c->ran = true;
    t->outputs.n = c->outputs;
    if (lc__tree_of(t)) return lc__chunks_closure(c);
    if (t->device_parts) return lc__device_parts_closure(c);
    LC_TRY(lc__batch_norms_begin(t, c->batch));
    LC_TRY(lc__run_training_step(c));
    if (lc__window_place(t, c->batch_idx) == 0) LC_TRY(lc__closure_zero_grad(c));
    if (c->loss) return lc__backward(t, c->loss);
    LC_TRY(lc__batch_norms_end(t, false));
    if (t->accumulating && !t->strategy->syncs_every_backward) return LC_OK;
    lc__peers_before_backward(t->graph);
    lc__scale_no_loss(t);
    return lc__sync_gradients(t); /* other ranks may have a loss */
}

lc_tensor *lc_closure_run(lc_closure *closure, lc_status *status)
{
    LC__NEEDS(status, NULL);
    *status = LC_ERR_ARGUMENT;
    LC__IS(closure, CLOSURE, NULL);
    *status = closure_run(closure);
    return *status < 0 ? NULL : closure->loss;
}

lc_status lc__precision_before_step(const lc_precision_ops *precision, void *self, lc_optimizer *optimizer, bool *skip)
{
    lc_status s = precision->before_optimizer_step ? precision->before_optimizer_step(self, optimizer) : LC_OK;
    *skip = s == LC_SKIP;
    return s < 0 ? s : LC_OK;
}

lc_status lc__precision_check(const lc_precision_ops *precision, const lc_optimizers *optimizers)
{
    for (int i = 0; i < optimizers->n && precision->scale_changes; i++)
        if (lc__evaluates(optimizers->optimizers[i].optimizer))
            return lc_fail(LC_ERR_CONFIG,
                           "%s evaluates the loss several times per update, and with precision %s the scale of the "
                           "loss may change in between; use bf16-mixed or 32-true, or another optimizer",
                           optimizers->optimizers[i].optimizer->ops->name, precision->name);
    return LC_OK;
}

void lc__leave_update_out(lc_optimizer *optimizer)
{
    optimizer->clip_factor = NULL, optimizer->clip_by_value = false;
}

lc_status lc__before_step(lc_trainer *t, lc_optimizer *optimizer, bool *skip)
{
    LC_TRY(lc__precision_before_step(&t->precision, t->precision_self, optimizer, skip));
    LC_TRY(lc__hook(t, LC_HOOK_ON_BEFORE_OPTIMIZER_STEP, &(lc__hook_args){.optimizer = optimizer}));
    *skip |= t->skip;
    t->skip = false;
    LC_TRY(lc__vote_skip(t, skip));
    if (*skip && optimizer) lc__leave_update_out(optimizer);
    return LC_OK;
}

/* The steps between backward pass and update in automatic optimization. */
static lc_status before_update(lc_trainer *t, lc_optimizer *optimizer, bool *skip)
{
    LC_TRY(lc__before_step(t, optimizer, skip));
    if (*skip) return LC_OK;
    double clip = isnan(t->opt.gradient_clip_val) ? 0 : t->opt.gradient_clip_val;
    const char *algorithm = t->opt.gradient_clip_algorithm ? t->opt.gradient_clip_algorithm : "norm";
    const lc__hook_args args = {.optimizer = optimizer, .clip = clip, .algorithm = algorithm};
    return lc__hook(t, LC_HOOK_CONFIGURE_GRADIENT_CLIPPING, &args);
}

lc_status lc__read_loss(const lc_trainer *t, lc_tensor *tensor, double *loss)
{
    LC_TRY(lc_item(tensor, loss));
    if (t->graph->loss_weight) *loss *= *t->graph->loss_weight;
    return lc__ranks_reduce(t->comm, loss, 1, LC_LOG_MEAN);
}

/* For optimizers that evaluate the loss several times: runs each evaluation immediately. */
static lc_status evaluate(void *ctx, double *loss)
{
    lc_closure *c = ctx;
    lc_trainer *t = c->t;
    lc_optimizer *opt = lc__closure_optimizer(c);
    bool skip;
    if (!c->ran) LC_TRY(closure_run(c));
    c->ran = false;
    if (!c->loss) return LC_SKIP;
    LC_TRY(before_update(t, opt, &skip));
    if (skip) return LC_SKIP;
    LC_TRY(lc_step_run(t->graph));
    return lc__read_loss(t, c->loss, loss);
}

lc_status lc_default_optimizer_step(lc_module *self, int64_t epoch, int64_t batch_idx, lc_optimizer *optimizer,
                                    lc_closure *closure)
{
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    if (optimizer) LC__IS(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__IS(closure, CLOSURE, LC_ERR_ARGUMENT);
    lc_trainer *t = closure->t;
    bool skip;
    (void)self, (void)epoch, (void)batch_idx;
    if (optimizer && lc__evaluates(optimizer)) {
        lc_status s = lc_optimizer_step_closure(optimizer, evaluate, closure);
        closure->ran = true;
        t->loop->watch.updates += s == LC_OK;
        return s;
    }
    if (!closure->ran) LC_TRY(closure_run(closure));
    if (!optimizer) return LC_OK;
    LC_TRY(before_update(t, optimizer, &skip));
    /* Without a gradient in the whole window there is nothing to update, but the step still counts. */
    if (!skip && t->window_backwards > 0) {
        lc_optimizer_step_at(optimizer, LC__NO_SITE);
        t->loop->watch.updates++;
    }
    return LC_OK;
}

lc_status lc_clip_gradients(lc_module *self, lc_optimizer *optimizer, double gradient_clip_val,
                            const char *gradient_clip_algorithm)
{
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    if (optimizer) LC__IS(optimizer, OPTIMIZER, LC_ERR_ARGUMENT);
    lc_trainer *t = lc_module_root(self)->trainer;
    bool none = t && !t->mo.manual_optimization && t->window_backwards == 0;
    if (!(gradient_clip_val > 0) || !optimizer || none) return LC_OK;
    if (!gradient_clip_algorithm || !strcmp(gradient_clip_algorithm, "norm"))
        lc_clip_grad_norm_at(optimizer, gradient_clip_val, LC__NO_SITE);
    else if (!strcmp(gradient_clip_algorithm, "value"))
        lc_clip_grad_value_at(optimizer, gradient_clip_val, LC__NO_SITE);
    else
        return lc_fail(LC_ERR_CONFIG, "gradient_clip_algorithm is \"%s\"; it must be norm or value",
                       gradient_clip_algorithm);
    return LC_OK;
}

lc_status lc_default_lr_scheduler_step(lc_module *self, lc_scheduler *scheduler, const double *metric)
{
    LC__IS(self, MODULE, LC_ERR_ARGUMENT);
    LC__IS(scheduler, SCHEDULER, LC_ERR_ARGUMENT);
    (void)self;
    return metric ? lc_scheduler_step_metric(scheduler, *metric) : lc_scheduler_step(scheduler);
}

static lc_status zero_gradients(lc_module *m)
{
    lc_zero_grad(lc_module_root(m)->trainer->graph);
    return LC_OK;
}

static lc_status default_zero_grad(lc_module *m, int64_t epoch, int64_t batch_idx, lc_optimizer *opt)
{
    (void)epoch, (void)batch_idx, (void)opt;
    return zero_gradients(m);
}

static lc_status default_backward(lc_module *m, lc_tensor *loss)
{
    lc_site site = lc_module_root(m)->trainer->loop->backward_site;
    lc_backward_at(loss, site.file ? site : lc__site_of(loss));
    return LC_OK;
}

void lc__optimization_fill(lc_trainer *t)
{
    lc_module_ops *mo = &t->mo;
    if (!mo->optimizer_step) mo->optimizer_step = lc_default_optimizer_step;
    if (!mo->optimizer_zero_grad) mo->optimizer_zero_grad = default_zero_grad;
    if (!mo->on_validation_model_zero_grad) mo->on_validation_model_zero_grad = zero_gradients;
    if (!mo->backward) mo->backward = default_backward;
    if (!mo->configure_gradient_clipping && t->opt.gradient_clip_val > 0)
        mo->configure_gradient_clipping = lc_clip_gradients;
    if (!mo->lr_scheduler_step) mo->lr_scheduler_step = lc_default_lr_scheduler_step;
}

/* ---- one batch ---- */

/* With several ranks, the step runs when gradients are exchanged. Values to keep for later: any value for the step
 * functions of the next optimizers (except values of a chunk, which no other chunk can use), logged values for the
 * hooks in between. */
static lc__keeps kept_at_sync(const lc_trainer *t, bool is_last_optimizer)
{
    bool hooks =
        t->has_late_hooks || t->hooks[LC_HOOK_ON_AFTER_BACKWARD].n || t->hooks[LC_HOOK_ON_BEFORE_OPTIMIZER_STEP].n;
    if (!is_last_optimizer && !lc__tree_of(t)) return LC__KEEPS_ALL;
    return hooks ? LC__KEEPS_NUMBERS : LC__KEEPS_NAMED;
}

static lc_status automatic(lc_trainer *t, const lc_batch *batch, int64_t batch_idx)
{
    int n = t->optimizers.n ? t->optimizers.n : 1; /* none: the loss is still computed */
    for (int i = 0; i < n; i++) {
        lc_closure c = {.mark = LC__MARK_OF(CLOSURE),
                        .t = t,
                        .optimizer = t->optimizers.n ? i : -1,
                        .batch = batch,
                        .batch_idx = batch_idx,
                        .outputs = t->outputs.n};
        t->graph->sync_keeps = kept_at_sync(t, i == n - 1);
        if (t->accumulating) {
            LC_TRY(closure_run(&c));
        } else {
            lc_optimizer *opt = lc__closure_optimizer(&c);
            const lc__hook_args args = {.batch_idx = batch_idx, .optimizer = opt, .closure = &c};
            LC_TRY(lc__hook(t, LC_HOOK_OPTIMIZER_STEP, &args));
            if (!c.ran)
                return lc_fail(LC_ERR_USER, "optimizer_step of %s did not run its closure (lc_closure_run)",
                               t->mo.name);
        }
        if (c.loss) t->outputs.loss = c.loss;
    }
    if (!t->accumulating) t->global_step++;
    return LC_OK;
}

lc_status lc__check_accumulation(const lc_trainer *t, int64_t n)
{
    for (int i = 0; i < t->optimizers.n && n > 1; i++)
        if (lc__evaluates(t->optimizers.optimizers[i].optimizer))
            return lc_fail(LC_ERR_CONFIG,
                           "accumulate_grad_batches=%lld: %s evaluates the loss of a batch several times; set it to 1",
                           (long long)n, t->optimizers.optimizers[i].optimizer->ops->name);
    if (t->optimizers.n > 1 && n > 1 && !t->mo.manual_optimization)
        return lc_fail(LC_ERR_CONFIG, "accumulate_grad_batches=%lld needs a single optimizer, or manual optimization",
                       (long long)n);
    return LC_OK;
}

/* With manual optimization, or optimizers that evaluate the loss several times, a rank without samples cannot know how
 * often the others synchronize. */
static lc_status check_shares(const lc_trainer *t, const lc_batch *batch)
{
    const char *what = t->mo.manual_optimization ? "manual optimization" : NULL;
    if (!t->comm || !lc__source_is_shared(&t->input->train)) return LC_OK;
    if (!lc__leaves_ranks_empty(t, &t->input->train, batch)) return LC_OK;
    for (int i = 0; i < t->optimizers.n && !what; i++)
        if (lc__evaluates(t->optimizers.optimizers[i].optimizer))
            what = t->optimizers.optimizers[i].optimizer->ops->name;
    if (!what) return LC_OK;
    return lc_fail(LC_ERR_CONFIG,
                   "with %s every rank needs samples in every batch, but this one has %lld for %d ranks; use "
                   "drop_last, or another batch_size",
                   what, (long long)lc__batch_least(batch), t->n_ranks);
}

static lc_status in_batch(const lc_trainer *t, lc_status s, int64_t i)
{
    if (lc__names_hook(t)) return s; /* the message already has epoch and batch */
    /* A device may have met the error in an earlier batch. */
    return lc_fail_context(s, "%sepoch %lld, batch %lld", t->logging->arrivals ? "noticed in " : "",
                           (long long)t->current_epoch, (long long)i);
}

lc_status lc__optimize(lc_trainer *t, const lc_batch *batch, int64_t batch_idx)
{
    LC_TRY(check_shares(t, batch));
    t->outputs.loss = NULL;
    t->outputs.n = 0;
    t->outputs.loss_divisor = (double)t->accumulate;
    int64_t before = t->global_step;
    lc_status s =
        t->mo.manual_optimization ? lc__optimize_manually(t, batch, batch_idx) : automatic(t, batch, batch_idx);
    if (s < 0 && t->graph->status == LC_OK) return s; /* an error of the program, not of the recorded step */
    if (s < 0) return in_batch(t, s, batch_idx);
    LC_TRY(lc_step_status(t->graph));
    int64_t start = LC__PROFILE_START(t);
    s = lc_step_run(t->graph);
    if (s >= 0) s = lc__end_batch(t);
    LC__PROFILE_ACTION(t, "run_step", start);
    lc__rank_times_stepped(t);
    t->recording = false;
    if (s < 0) return in_batch(t, s, batch_idx);
    LC_TRY(lc__results_read(t, &t->logging->train_results));
    LC_TRY(lc__watch_batch(t, batch, t->global_step != before));
    if (batch_idx == 0) {
        LC_TRY(lc__share_names(t, &t->logging->train_results, &t->input->train, batch));
        LC_TRY(lc__look_at_names(t, batch));
    }
    LC_TRY(lc__results_reduce_step(t, &t->logging->train_results, false));
    LC_TRY(lc__results_publish_step(t, &t->logging->train_results));
    if (t->global_step != before) {
        t->optimizer_steps++;
        LC_TRY(lc__unused_look(t));
    }
    return LC_OK;
}

/* ---- schedules ---- */

static lc_status no_metric(lc_trainer *t, const lc_scheduler_config *c)
{
    double value;
    if (lc_trainer_metric(t, c->monitor, &value) >= 0) lc_fail(LC_ERR_NOT_FOUND, "rank 0 did not log it");
    return lc_fail_context(LC_ERR_CONFIG, "the scheduler %s needs `%s`", lc_scheduler_name(c->scheduler), c->monitor);
}

static lc_status step_scheduler(lc_trainer *t, const lc_scheduler_config *c)
{
    double value, *metric = NULL;
    if (c->reduce_on_plateau) {
        bool found;
        /* The schedule sees the values that this batch logged, not those of a validation, as in Lightning. */
        if (c->interval == LC_INTERVAL_STEP) LC_TRY(lc__results_publish_step(t, &t->logging->train_results));
        LC_TRY(lc__metric_from_rank_zero(t, c->monitor, &found, &value));
        if (!found && c->not_strict) return LC_OK;
        if (!found) return no_metric(t, c);
        metric = &value;
    }
    return lc__hook(t, LC_HOOK_LR_SCHEDULER_STEP, &(lc__hook_args){.scheduler = c->scheduler, .metric = metric});
}

lc_status lc__update_schedulers(lc_trainer *t, lc_interval interval, bool plateau)
{
    if (t->mo.manual_optimization) return LC_OK;
    if (interval == LC_INTERVAL_STEP && t->accumulating) return LC_OK;
    for (int i = 0; i < t->optimizers.n_schedulers; i++) {
        const lc_scheduler_config *c = &t->optimizers.schedulers[i];
        if (c->interval != interval || c->reduce_on_plateau != plateau) continue;
        int64_t done = interval == LC_INTERVAL_STEP ? t->optimizer_steps : t->current_epoch + 1;
        if (done % c->frequency == 0) LC_TRY(step_scheduler(t, c));
    }
    return LC_OK;
}

void lc__optimizers_free(lc_trainer *t)
{
    for (int i = 0; i < t->optimizers.n_schedulers; i++) lc_scheduler_free(t->optimizers.schedulers[i].scheduler);
    for (int i = 0; i < t->optimizers.n; i++) lc_optimizer_free(t->optimizers.optimizers[i].optimizer);
    memset(&t->optimizers, 0, sizeof t->optimizers);
}

/* ---- outputs ---- */

void lc_output(lc_module *self, const char *name, lc_tensor *value)
{
    LC__IS(self, MODULE, );
    lc_trainer *t = lc_module_root(self)->trainer;
    if (!name || (value && !lc__is_tensor(value))) {
        lc_status s =
            lc_fail(LC_ERR_ARGUMENT, "lc_output: %s", name ? "the value is not a tensor" : "the name is NULL");
        if (t) lc__defer_error(t, s);
        return;
    }
    if (!t || !value) return;
    if (t->outputs.n == LC_MAX_OUTPUTS_NAMED) {
        lc__defer_error(
            t, lc_fail(LC_ERR_ARGUMENT, "lc_output(\"%.60s\"): more than %d outputs", name, LC_MAX_OUTPUTS_NAMED));
        return;
    }
    t->outputs.names[t->outputs.n] = name;
    t->outputs.values[t->outputs.n++] = t->recording ? lc_keep(value) : value;
}
