/* SPDX-License-Identifier: Apache-2.0 */
/* The loops: epochs and batches, the update, evaluation; predictions, warnings. */
#ifndef LC_CORE_LOOP_LOOP_H
#define LC_CORE_LOOP_LOOP_H

#include "core/hooks/trainer_internal.h"
#include "core/input/input.h"

/* Counts that reveal problems which are not errors (watch.c). */
typedef struct lc__watch {
    int64_t batches, losses, updates; /* in this epoch and run: batches with samples of this rank; with a loss */
    int64_t first_step;               /* global_step when the epoch began */
    bool loss_reported, scale_reported, idle_reported; /* reported once per fit */
} lc__watch;

typedef struct lc__predictions {
    lc_tensor **t;
    int64_t n, cap;
} lc__predictions;

typedef struct lc__unused lc__unused; /* unused_parameters.c */

typedef struct lc__loop {
    bool epoch_complete, epoch_ended_early;
    bool val_has_run;
    lc_site backward_site; /* of the running lc_manual_backward */
    lc_tensor **toggled;   /* parameters that lc_toggle_optimizer has frozen */
    int n_toggled, cap_toggled;
    bool *modes; /* train/eval flags of the module tree while an evaluation runs */
    int n_modes, cap_modes;
    lc__watch watch;
    lc__unused *unused; /* NULL: already reported */
    lc__predictions predictions[LC_MAX_LOADERS];
    bool keeps_predictions; /* until the end of the run, also with discard_predictions: a callback writes them */
    bool no_prediction;     /* predict_step returned none for some batch, and this was reported */
} lc__loop;

void lc__loop_free(lc_trainer *t); /* loop.c */

/* ---- fit.c, evaluate.c ---- */
lc_status lc__fit_loop(lc_trainer *t) LC_MUST_USE;
lc_status lc__sanity_check(lc_trainer *t) LC_MUST_USE;
lc_status lc__eval_loop(lc_trainer *t) LC_MUST_USE;
lc_status lc__train_batch(lc_trainer *t, const lc_batch *batch, bool is_last) LC_MUST_USE;
lc_status lc__end_of_epoch(lc_trainer *t) LC_MUST_USE;
/* One pass over the training data through training_step, without gradients, updates, logged values and hooks (except
 * transfer hooks, which prepare the batch). before(ctx, batch_idx) runs before each batch. */
lc_status lc__forward_epoch(lc_trainer *t, void (*before)(void *ctx, int64_t batch_idx), void *ctx) LC_MUST_USE;
bool lc__validation_due(const lc_trainer *t); /* after the running batch */

/* ---- optimize.c ---- */
lc_status lc__optimize(lc_trainer *t, const lc_batch *batch, int64_t batch_idx) LC_MUST_USE;
/* An error if the optimizers do not allow accumulate_grad_batches = n. */
lc_status lc__check_accumulation(const lc_trainer *t, int64_t n) LC_MUST_USE;
lc_status lc__update_schedulers(lc_trainer *t, lc_interval interval, bool plateau) LC_MUST_USE;
void lc__optimizers_free(lc_trainer *t);
void lc__optimization_fill(lc_trainer *t); /* sets the module's default hooks */
/* A scaled loss changes with each update, so no optimizer may evaluate it several times. */
lc_status lc__precision_check(const lc_precision_ops *precision, const lc_optimizers *optimizers) LC_MUST_USE;
/* *skip: the precision skips the update on this rank. */
lc_status lc__precision_before_step(const lc_precision_ops *precision, void *self, lc_optimizer *optimizer,
                                    bool *skip) LC_MUST_USE;
/* Drops clipping recorded for a skipped update, so that the next one does not apply it. */
void lc__leave_update_out(lc_optimizer *optimizer);
/* The backward pass with its hooks. Sums gradients over all ranks, unless they are still being accumulated. */
lc_status lc__backward(lc_trainer *t, lc_tensor *loss) LC_MUST_USE;
/* *skip: the precision or a hook returned LC_SKIP, so there is no update. */
lc_status lc__before_step(lc_trainer *t, lc_optimizer *optimizer, bool *skip) LC_MUST_USE;
/* Reads the loss for an optimizer: the mean over all ranks, weighted like their gradients, so that all ranks take the
 * same path. Runs the recorded operations. */
lc_status lc__read_loss(const lc_trainer *t, lc_tensor *tensor, double *loss) LC_MUST_USE;

/* ---- manual.c ---- */
/* One batch of a module with manual_optimization. */
lc_status lc__optimize_manually(lc_trainer *t, const lc_batch *batch, int64_t batch_idx) LC_MUST_USE;

/* ---- predictions.c ---- */
/* Keeps the prediction for this batch; NULL: this rank has none. Collective. */
lc_status lc__keep_prediction(lc_trainer *t, int loader, lc_tensor *value) LC_MUST_USE;

void lc__forget_predictions(lc_trainer *t);

/* ---- watch.c ---- */
void lc__watch_begin(lc_trainer *t); /* at the start of a fit */
void lc__watch_mode(lc_trainer *t);  /* before on_train_start, with the modes that the fit begins with */
void lc__watch_epoch(lc_trainer *t); /* at the start of an epoch, or when a run continues inside one */
/* Call after each training batch, when its logged values have been read. stepped: an optimizer step was made. */
lc_status lc__watch_batch(lc_trainer *t, const lc_batch *batch, bool stepped) LC_MUST_USE;
void lc__watch_epoch_end(lc_trainer *t);
/* When a loader's epoch is over, in any stage. Collective if the ranks share its data and samples may be replaced. */
lc_status lc__watch_replaced(lc_trainer *t, const lc__source *source) LC_MUST_USE;

/* ---- unused_parameters.c: in a fit; after each optimizer step; when it ends. Not collective. ---- */
lc_status lc__unused_begin(lc_trainer *t) LC_MUST_USE;
lc_status lc__unused_look(lc_trainer *t) LC_MUST_USE;
lc_status lc__unused_end(lc_trainer *t) LC_MUST_USE;
void lc__unused_free(lc_trainer *t);

#endif
