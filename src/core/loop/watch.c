/* SPDX-License-Identifier: Apache-2.0 */
/* Training problems that are not errors, reported once per fit: a loss that is no longer finite, a scale of the loss
 * that skipped updates have made small, an epoch in which training_step returned no loss, an epoch in which nothing was
 * updated, and a model in evaluation mode. After each epoch, samples that could not be read.
 *
 * The loss and its scale are checked with every log_every_n_steps-th step and with the last batch of an epoch; the loss
 * also when values of the step are read anyway because they were logged. No step waits for them: those of a device are
 * checked when they have arrived (core/logging/arrivals.h). */
#include "core/loop/loop.h"
#include "core/logging/arrivals.h"
#include "core/hooks/trainer_internal.h"
#include "data/batch_slice.h"
#include "data/data_internal.h"
#include "record/graph_impl.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void report_loss(void *trainer, double loss, lc__moment at)
{
    lc_trainer *t = trainer;
    lc__watch *w = &t->loop->watch;
    if (w->loss_reported || isfinite(loss)) return;
    w->loss_reported = true;
    lc_trainer_message(t, LC_WARNING,
                       "the loss is %g at step %lld (epoch %lld, batch %lld); detect_anomaly names the operator that "
                       "makes the first one; a lower learning rate or gradient_clip_val may keep it from growing",
                       isnan(loss) ? (double)NAN : loss, (long long)at.step, (long long)at.epoch, (long long)at.batch);
}

static lc_status look_at_loss(lc_trainer *t)
{
    double loss;
    if (t->loop->watch.loss_reported || !t->outputs.loss) return LC_OK;
    if (t->logging->arrivals) return lc__arrivals_call(t, t->outputs.loss, report_loss, t);
    if (lc__results_have(&t->logging->train_results, t->outputs.loss, &loss) || lc_item(t->outputs.loss, &loss) >= 0)
        report_loss(t, loss, (lc__moment){t->global_step, t->current_epoch, t->batch_idx});
    return LC_OK;
}

/* Gradients that are divided by as much do not overflow because of the scale. */
#define SMALL_SCALE 0x1p-10

static void report_scale(void *trainer, double unscale, lc__moment at)
{
    lc_trainer *t = trainer;
    lc__watch *w = &t->loop->watch;
    if (w->scale_reported || unscale * SMALL_SCALE <= 1) return;
    w->scale_reported = true;
    lc_trainer_message(
        t, LC_WARNING,
        "the scale of the loss has fallen to %g at step %lld (epoch %lld, batch %lld), since updates are "
        "skipped whose gradients are not finite; detect_anomaly says whether the loss is the cause; if "
        "it is finite, bf16-mixed has a larger range",
        1 / unscale, (long long)at.step, (long long)at.epoch, (long long)at.batch);
}

static lc_status look_at_scale(lc_trainer *t)
{
    double unscale;
    lc_tensor *tensor = t->graph->unscale;
    if (t->loop->watch.scale_reported || !tensor) return LC_OK;
    if (t->logging->arrivals) return lc__arrivals_call(t, tensor, report_scale, t);
    if (lc_item(tensor, &unscale) >= 0)
        report_scale(t, unscale, (lc__moment){t->global_step, t->current_epoch, t->batch_idx});
    return LC_OK;
}

void lc__watch_begin(lc_trainer *t)
{
    t->loop->watch = (lc__watch){.losses = 0};
}

/* Parts in evaluation mode are a choice (a frozen backbone); all of the model is likely a leftover, as of sampling. */
void lc__watch_mode(lc_trainer *t)
{
    if (t->m->training || t->opt.barebones) return;
    lc_trainer_message(t, LC_WARNING,
                       "the model is in evaluation mode when its training starts: dropout is off, and batch norms keep "
                       "their statistics; unless that is intended, call lc_module_train(&model, true) before the fit");
}

void lc__watch_epoch(lc_trainer *t)
{
    t->loop->watch.batches = t->loop->watch.losses = t->loop->watch.updates = 0;
    t->loop->watch.first_step = t->global_step;
}

lc_status lc__watch_batch(lc_trainer *t, const lc_batch *batch, bool stepped)
{
    lc__watch *w = &t->loop->watch;
    int64_t every = t->opt.log_every_n_steps;
    if (t->opt.barebones) return LC_OK;
    if (!lc__is_empty_share(batch)) w->batches++;
    if (t->outputs.loss) w->losses++;
    bool due = t->is_last_batch || (stepped && every > 0 && t->global_step % every == 0);
    if (due || t->logging->train_results.n_read > 0) LC_TRY(look_at_loss(t));
    return due ? look_at_scale(t) : LC_OK;
}

void lc__watch_epoch_end(lc_trainer *t)
{
    lc__watch *w = &t->loop->watch;
    bool manual = t->mo.manual_optimization;
    const char *why = NULL;
    if (w->idle_reported || t->opt.barebones) return;
    if (!t->batches_done && !t->loop->epoch_ended_early && !t->is_last_batch) /* stopped before the first batch */
        return;
    if (!t->batches_done)
        why = t->loop->epoch_ended_early ? "on_train_batch_start ended it before the first batch"
                                         : "the loader gave no batches";
    else if (!w->batches) /* no batch was left of a resumed epoch */
        return;
    else if (!w->losses && !manual)
        why = "training_step returned no loss for any of its batches; return one, or set .manual_optimization";
    else if (manual && t->optimizers.n && t->global_step == w->first_step)
        why = "training_step did not call lc_manual_step";
    else if (!manual && t->optimizers.n && !w->updates && t->mo.optimizer_step == lc_default_optimizer_step &&
             t->global_step > w->first_step)
        why = "every update was skipped, by LC_SKIP from on_before_optimizer_step or the precision, or because there "
              "was no gradient: does any parameter require one, and does the loss depend on it?";
    if (!why) return;
    w->idle_reported = true;
    lc_trainer_message(t, LC_WARNING, "epoch %lld trained nothing (step %lld): %s", (long long)t->current_epoch,
                       (long long)t->global_step, why);
}

/* The samples of a rank that were replaced. */
typedef struct replaced {
    int64_t n;
    char why[504]; /* of the first */
} replaced;

/* Adds up what all ranks say; the text is that of the first rank that has one. */
static lc_status add_ranks(const lc_trainer *t, replaced *all)
{
    replaced *each = malloc((size_t)t->n_ranks * sizeof *each);
    if (!each) return lc_fail(LC_ERR_MEMORY, "out of memory: what ranks could not read");
    lc_status s = lc_comm_all_gather(t->comm, all, each, (int64_t)sizeof *all, LC_U8, NULL);
    if (s >= 0) *all = (replaced){0};
    for (int i = 0; s >= 0 && i < t->n_ranks; i++) {
        if (each[i].n && !all->n) memcpy(all->why, each[i].why, sizeof all->why);
        all->n += each[i].n;
    }
    free(each);
    return s;
}

lc_status lc__watch_replaced(lc_trainer *t, const lc__source *source)
{
    const char *why;
    replaced all = {.n = lc__dataloader_replaced(source->loader, &why)};
    if (all.n < 0) return LC_OK; /* the same on all ranks, if they share the data */
    if (why) snprintf(all.why, sizeof all.why, "%s", why);
    if (t->comm && lc__source_is_shared(source)) LC_TRY(add_ranks(t, &all));
    if (!all.n || t->sanity || t->opt.barebones) return LC_OK;
    lc_trainer_message(t, LC_WARNING,
                       "%s, epoch %lld: %lld sample%s could not be read and had the data of others; the first: %s",
                       lc_stage_name(t->validating ? LC_STAGE_VALIDATE : t->stage), (long long)t->current_epoch,
                       (long long)all.n, all.n == 1 ? "" : "s", all.why);
    return LC_OK;
}
