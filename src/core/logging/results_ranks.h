/* SPDX-License-Identifier: Apache-2.0 */
/* Logged values of several ranks. With one rank these functions do nothing. */
#ifndef LC_CORE_LOGGING_RESULTS_RANKS_H
#define LC_CORE_LOGGING_RESULTS_RANKS_H

#include "core/input/input.h"
#include "core/logging/logging.h"

/* As logged values are reduced; comm NULL: one rank. Collective. */
lc_status lc__ranks_reduce(lc_comm *comm, double *values, int n, lc_log_reduce how) LC_MUST_USE;
/* What monitors look at (LC_CALLBACK_METRICS): rank 0's value on all ranks, so that they decide alike; *found: whether
 * rank 0 has one, for others may know more or fewer. Collective. */
lc_status lc__metric_from_rank_zero(lc_trainer *t, const char *name, bool *found, double *value) LC_MUST_USE;

/* After the first batch of a fit: a warning if ranks have logged different values, which will be an error at the end of
 * the epoch. Collective. */
lc_status lc__look_at_names(lc_trainer *t, const lc_batch *batch) LC_MUST_USE;
/* Whether a logged value is still to be put together over the ranks. Not collective. */
bool lc__is_of_all_ranks(const lc__logged *e);
/* Whether ranks have parts of an epoch's values, which have not been put together yet. Not collective. */
bool lc__results_are_shared(const lc__results *r);

/* After the step of the first batch of an epoch or an evaluation's loader: ranks without samples of it
 * learn what the others log. Collective where there are such ranks. */
lc_status lc__share_names(lc_trainer *t, lc__results *r, const lc__source *source, const lc_batch *batch) LC_MUST_USE;
/* Sums of an epoch over all ranks, once, before they are shown; and again after the hooks of its end, for what these
 * have logged. */
lc_status lc__results_reduce(lc_trainer *t, lc__results *r) LC_MUST_USE;
/* lc__results_save of all ranks' sums; this rank's stay what they are. */
lc_status lc__results_save_all(lc_trainer *t, lc__results *r, lc_state *out) LC_MUST_USE;
/* Values of this step that asked for it (.sync_dist): those that hooks at the batch's end log, or all others. Each
 * is reduced in one of two calls, so that a step has no more collectives than values. */
lc_status lc__results_reduce_step(lc_trainer *t, lc__results *r, bool batch_end) LC_MUST_USE;

#endif
