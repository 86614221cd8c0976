/* SPDX-License-Identifier: Apache-2.0 */
/* Logged values of several ranks. With one rank these functions do nothing. */
#ifndef LC_CORE_LOGGING_RESULTS_RANKS_H
#define LC_CORE_LOGGING_RESULTS_RANKS_H

#include "core/input/input.h"
#include "core/logging/logging.h"

/* Reduces as logged values are; comm NULL: one rank. Collective. */
lc_status lc__ranks_reduce(lc_comm *comm, double *values, int n, lc_log_reduce how) LC_MUST_USE;
/* The value that a monitor reads (LC_CALLBACK_METRICS), from rank 0, so that all ranks decide the same. *found: whether
 * rank 0 has one, since others may know more or fewer. Collective. */
lc_status lc__metric_from_rank_zero(lc_trainer *t, const char *name, bool *found, double *value) LC_MUST_USE;

/* After the first batch of a fit: warns if ranks have logged different values, which is an error at the end of the
 * epoch. Collective. */
lc_status lc__look_at_names(lc_trainer *t, const lc_batch *batch) LC_MUST_USE;
/* Whether a logged value must still be reduced over the ranks. Not collective. */
bool lc__is_of_all_ranks(const lc__logged *e);
/* Whether some values of the epoch are not reduced yet, so that each rank has only its part. Not collective. */
bool lc__results_are_shared(const lc__results *r);

/* After the step of the first batch of an epoch or an evaluation's loader: gives ranks without samples the names that
 * the others log. Collective if there are such ranks. */
lc_status lc__share_names(lc_trainer *t, lc__results *r, const lc__source *source, const lc_batch *batch) LC_MUST_USE;
/* Reduces an epoch's sums over all ranks: once before they are shown, and again after the hooks of its end, for values
 * that these have logged. */
lc_status lc__results_reduce(lc_trainer *t, lc__results *r) LC_MUST_USE;
/* lc__results_save for the sums over all ranks; those of this rank do not change. */
lc_status lc__results_save_all(lc_trainer *t, lc__results *r, lc_state *out) LC_MUST_USE;
/* Reduces values of this step logged with .sync_dist: those from hooks at the batch's end, or all others. Each value is
 * reduced in one of the two calls, so a step has no more collectives than values. */
lc_status lc__results_reduce_step(lc_trainer *t, lc__results *r, bool batch_end) LC_MUST_USE;

#endif
