/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's calls that involve other ranks. Every function is collective unless it says otherwise, and does nothing
 * with one rank. */
#ifndef LC_CORE_RANKS_RANKS_H
#define LC_CORE_RANKS_RANKS_H

#include "core/hooks/trainer_internal.h"
#include "device/device.h"

#include <stdatomic.h>

typedef struct lc__ranks {
    struct lc__rank_times *rank_times; /* NULL: not in a fit with several ranks (rank_times.h) */
    bool reads_buffers;                /* training steps may read buffers, so rank 0's are sent before */
    lc_comm *batch_norm_comm;          /* for batch norm layers (sync_batch_norm.c); NULL: statistics per rank */
    int batch_norm_leader;             /* the rank to follow in a batch of which some ranks have no sample; -1: none */
    bool uneven_parts_reported;        /* the warning of lc__warn_uneven was given */
    bool votes_skip, votes_stop;       /* in this fit, ranks vote after hooks that may skip or stop on one rank */
    /* Requests by signals to this rank, and those that all ranks have agreed on. */
    atomic_int signal;
    atomic_int save_requested;     /* SIGUSR1 */
    struct lc__signal_fd *signals; /* while they are watched */
    int agreed_signal;
    bool agreed_save, agreed_validate;
} lc__ranks;

/* An error if an earlier run of this trainer has failed and the ranks are no longer connected. Not collective. */
lc_status lc__ranks_are_there(const lc_trainer *t) LC_MUST_USE;

/* same_run.c: gives all ranks the parameters and buffers of rank 0; an error names the first tensor whose name, type or
 * shape differs between ranks. `sharding`: parameters are, or will be, in slices; those without values yet only get
 * rank 0's initializer (tensor/initial.h). Collective. */
lc_status lc__ranks_model(lc_comm *comm, lc_module *m, bool sharding) LC_MUST_USE;
/* After lc__ranks_model and sharding: sends rank 0's initial values of tensors that are not in slices. Collective. */
lc_status lc__ranks_fill(lc_comm *comm, lc_module *m) LC_MUST_USE;

lc_strategy_request lc__strategy_request(const lc_trainer_options *o);
/* An error if the strategy does not support a request of the options: compressed gradients, or shard_size. */
lc_status lc__request_check(const lc_strategy_request *ask, const lc_strategy_ops *strategy, const lc_comm *comm,
                            bool deterministic) LC_MUST_USE;

/* rank_device.c: the name of the device of this rank. If `accelerator` names a kind of device without a number, and the
 * strategy has started several ranks on this machine, rank i of them has device i. Not collective. */
lc_status lc__rank_device(const char *accelerator, const lc_strategy_ops *strategy, void *self,
                          char name[LC__DEVICE_NAME]) LC_MUST_USE;

/* Warns once if a combined loader's batch is divided unevenly (lc__batch_units). */
void lc__warn_uneven(lc_trainer *t, const lc_batch *batch, int64_t shares);

/* same_run.c: an error names the first difference between this rank and rank 0, in options (call when validation has
 * been decided) or data (call when the loaders are open). */
lc_status lc__check_same_options(lc_trainer *t) LC_MUST_USE;
lc_status lc__check_same_data(lc_trainer *t) LC_MUST_USE;
/* The same for optimizers and schedulers: kinds, numbers, and which optimizer trains which parameter. Collective. */
lc_status lc__ranks_optimizers(lc_comm *comm, lc_module *m, const lc_optimizers *optimizers) LC_MUST_USE;

/* Records the progress to report if this rank is lost. */
void lc__note_progress(lc_trainer *t);

/* Before and after the computation of a batch (lc_strategy_ops); `passes`: backward passes of a non-empty share. */
lc_status lc__begin_batch(lc_trainer *t, const lc_batch *batch, int64_t passes) LC_MUST_USE;
lc_status lc__end_batch(lc_trainer *t) LC_MUST_USE;
/* Passes this rank's weight in the running batch to the strategy (lc_strategy_ops.before_backward). */
void lc__weigh_batch(lc_trainer *t, const lc_batch *batch);
/* Sums gradients over all ranks and exchanges each rank's wishes (stop, save, ...); afterwards all ranks have the
 * same. */
lc_status lc__sync_gradients(lc_trainer *t) LC_MUST_USE;
/* Before a fit: finds out whether hooks of any rank can skip an update, or end training, after gradients have been
 * exchanged. Ranks vote only if so. Collective. */
lc_status lc__votes_begin(lc_trainer *t) LC_MUST_USE;
/* After on_before_optimizer_step, *skip is set if any rank wants it; at the end of a batch, likewise lc__should_stop.
 * Collective. */
lc_status lc__vote_skip(lc_trainer *t, bool *skip) LC_MUST_USE;
lc_status lc__vote_stop(lc_trainer *t) LC_MUST_USE;
/* Exchanges only the wishes, when there are no gradients: before the first batch, and at the start and end of an
 * epoch. */
lc_status lc__sync_wishes(lc_trainer *t) LC_MUST_USE;

/* Whether val_check_interval (a time) has passed on this rank. Not collective. */
bool lc__validation_time_is_up(const lc_trainer *t);
/* The signal that ends the run, or 0, and whether SIGUSR1 asked for a checkpoint: with several ranks, as agreed in the
 * last sync. Not collective. */
int lc__signal_of(const lc_trainer *t);
bool lc__save_requested(const lc_trainer *t);

/* sync_batch_norm.c. _setup and _release, once per fit: the layers' communicator. _begin and _end, around each
 * training_step and its backward pass: ranks without samples make the layers' calls, too. */
lc_status lc__batch_norms_setup(lc_trainer *t, int devices) LC_MUST_USE;
void lc__batch_norms_release(lc_trainer *t);
lc_status lc__batch_norms_begin(lc_trainer *t, const lc_batch *batch) LC_MUST_USE;
lc_status lc__batch_norms_end(lc_trainer *t, bool has_loss) LC_MUST_USE;

/* Sends rank 0's buffers (statistics of batch norm), and the tensors that callbacks save in their place, to all
 * ranks. */
lc_status lc__buffers_from_rank_zero(lc_trainer *t) LC_MUST_USE;
/* Buffers a training step may read: broadcast before the first step of each window. Call the setup once per fit. */
lc_status lc__read_buffers_setup(lc_trainer *t) LC_MUST_USE;
lc_status lc__read_buffers_from_rank_zero(lc_trainer *t) LC_MUST_USE;

#endif
