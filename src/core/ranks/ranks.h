/* SPDX-License-Identifier: Apache-2.0 */
/* What the trainer does with other ranks. Every function is collective unless it says otherwise, and does nothing with
 * one rank. */
#ifndef LC_CORE_RANKS_RANKS_H
#define LC_CORE_RANKS_RANKS_H

#include "core/hooks/trainer_internal.h"

#include <stdatomic.h>

typedef struct lc__ranks {
    struct lc__rank_times *rank_times; /* of a fit with several ranks (rank_times.h); NULL */
    bool reads_buffers;                /* training steps may read some, which are rank 0's then */
    lc_comm *batch_norm_comm;          /* of batch norm layers (sync_batch_norm.c); NULL: each rank's own statistics */
    int batch_norm_leader;             /* in a batch that some ranks have no sample of; -1 */
    bool uneven_parts_reported;        /* that a combined loader's batch is shared out unevenly */
    bool votes_skip, votes_stop;       /* in a fit, after hooks that may want it on one rank */
    /* What this rank's signals ask for, and what all ranks have agreed on. */
    atomic_int signal;
    atomic_int save_requested; /* SIGUSR1 */
    int agreed_signal;
    bool agreed_save, agreed_validate;
} lc__ranks;

/* An error if a run of this trainer has failed, and with it what joined the ranks. Not collective. */
lc_status lc__ranks_are_there(const lc_trainer *t) LC_MUST_USE;

/* same_run.c: parameters and buffers become rank 0's; an error names the first tensor that another rank does not have
 * under the same name, with the same type and shape. `sharding`: parameters will be, or are, in slices: those that
 * have no values yet become rank 0's by what they begin with, and still have none (tensor/initial.h). Collective. */
lc_status lc__ranks_model(lc_comm *comm, lc_module *m, bool sharding) LC_MUST_USE;
/* After that and the sharding: initial values of what is not in slices, rank 0's. Collective. */
lc_status lc__ranks_fill(lc_comm *comm, lc_module *m) LC_MUST_USE;

lc_strategy_request lc__strategy_request(const lc_trainer_options *o);
/* Whether the strategy does what the options ask of strategies that can: gradients sent as they say, copies of so many
 * ranks. */
lc_status lc__request_check(const lc_strategy_request *ask, const lc_strategy_ops *strategy, const lc_comm *comm,
                            bool deterministic) LC_MUST_USE;

/* Warns once of a combined loader's batch that is shared out unevenly (lc__batch_units). */
void lc__tell_uneven(lc_trainer *t, const lc_batch *batch, int64_t shares);

/* same_run.c: an error names the first difference between this rank and rank 0: in options (after validation has been
 * decided), and in data (once the loaders are open). */
lc_status lc__check_same_options(lc_trainer *t) LC_MUST_USE;
lc_status lc__check_same_data(lc_trainer *t) LC_MUST_USE;
/* The same of optimizers and schedulers of one model: kinds, numbers, and who trains which parameter. Collective. */
lc_status lc__ranks_optimizers(lc_comm *comm, lc_module *m, const lc_optimizers *optimizers) LC_MUST_USE;

/* Shown if this rank is lost. */
void lc__tell_progress(lc_trainer *t);

/* Around what a batch computes (lc_strategy_ops); `passes`: backward passes of a share that is not empty. */
lc_status lc__begin_batch(lc_trainer *t, const lc_batch *batch, int64_t passes) LC_MUST_USE;
lc_status lc__end_batch(lc_trainer *t) LC_MUST_USE;
/* The share of the running batch (lc_strategy_ops.before_backward). */
void lc__weigh_batch(lc_trainer *t, const lc_batch *batch);
/* Gradients of all ranks, and what each wants of the run (stop, save, ...): from then on all want the same. */
lc_status lc__sync_gradients(lc_trainer *t) LC_MUST_USE;
/* Before a fit: whether hooks of any rank can want that an update is left out, or the training ends, when gradients
 * have been exchanged. Only then do ranks vote on it. Collective. */
lc_status lc__votes_begin(lc_trainer *t) LC_MUST_USE;
/* After on_before_optimizer_step: *skip is what any rank wants; at the end of a batch lc__should_stop is. Collective.
 */
lc_status lc__vote_skip(lc_trainer *t, bool *skip) LC_MUST_USE;
lc_status lc__vote_stop(lc_trainer *t) LC_MUST_USE;
/* Only the wishes, when no gradients are exchanged: before the first batch, and at the start and end of an epoch. */
lc_status lc__sync_wishes(lc_trainer *t) LC_MUST_USE;

/* Whether val_check_interval, a time, has passed on this rank. Not collective. */
bool lc__validation_time_is_up(const lc_trainer *t);
/* The signal that ends the run, or 0, and whether SIGUSR1 asked for a checkpoint: with several ranks, what all agreed
 * on with the last sync. Not collective. */
int lc__signal_of(const lc_trainer *t);
bool lc__save_requested(const lc_trainer *t);

/* sync_batch_norm.c. In a fit, with so many devices in this process: the layers' group; around each training_step with
 * its backward pass: what ranks without samples do meanwhile. */
lc_status lc__batch_norms_setup(lc_trainer *t, int devices) LC_MUST_USE;
void lc__batch_norms_release(lc_trainer *t);
lc_status lc__batch_norms_begin(lc_trainer *t, const lc_batch *batch) LC_MUST_USE;
lc_status lc__batch_norms_end(lc_trainer *t, bool has_loss) LC_MUST_USE;

/* Buffers (statistics of batch norm) as rank 0 has them, and what callbacks would save in their place. */
lc_status lc__buffers_from_rank_zero(lc_trainer *t) LC_MUST_USE;
/* Buffers a training step may read: broadcast before the first step of each window. Call the setup once per fit. */
lc_status lc__read_buffers_setup(lc_trainer *t) LC_MUST_USE;
lc_status lc__read_buffers_from_rank_zero(lc_trainer *t) LC_MUST_USE;

#endif
