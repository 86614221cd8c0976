/* SPDX-License-Identifier: Apache-2.0 */
/* Time that ranks wait for each other. Each rank records its latest steps; at the end of a fit rank 0 gathers the
 * records and reports the time lost, and for which rank. Nothing is sent before. */
#ifndef LC_CORE_RANKS_RANK_TIMES_H
#define LC_CORE_RANKS_RANK_TIMES_H

#include "core/hooks/trainer_internal.h"

enum { LC__RANK_TIMES_KEPT = 1024, LC__RANK_TIMES_SKIPPED = 2 }; /* skipped: the first steps, in which plans are made */

/* An optimizer step, from the request for its first batch to the sum of gradients over all ranks. */
typedef struct lc__rank_step {
    int32_t all_us, loading_us; /* loading_us: the part spent waiting for the loader */
    int32_t waited_us;          /* the part spent waiting in the communicator */
} lc__rank_step;

/* The record of a rank, sent to rank 0. */
typedef struct lc__rank_record {
    int64_t steps;             /* in the whole fit */
    int64_t sent, sent_across; /* bytes in the steps that were not skipped; those to other hosts */
    char host[64];
    lc__rank_step of[LC__RANK_TIMES_KEPT]; /* step i is of[i % LC__RANK_TIMES_KEPT] */
} lc__rank_record;

/* Called at the start and end of a fit. */
lc_status lc__rank_times_begin(lc_trainer *t) LC_MUST_USE;
void lc__rank_times_free(lc_trainer *t);

/* Begins a step, unless one is running. Returns the time. */
int64_t lc__rank_times_start(lc_trainer *t);
/* Call when the loader, asked at that time, has given a batch. */
void lc__rank_times_loaded(lc_trainer *t, int64_t asked);
/* _sync: before gradients are synced. _stepped: when the step has run, including the update, which waits for the last
 * gradients. */
void lc__rank_times_sync(lc_trainer *t);
void lc__rank_times_stepped(lc_trainer *t);

/* Rank 0 reports, if at least a twentieth of the time was lost or a profiler runs. Collective. */
lc_status lc__rank_times_report(lc_trainer *t) LC_MUST_USE;

/* The evaluation of the records of n ranks; times in seconds. */
typedef struct lc__rank_verdict {
    int64_t steps;               /* steps evaluated */
    double step;                 /* median time of a step */
    double exposed, exposed_all; /* all ranks waited: communication not hidden by computation; median, share of time */
    double late, late_p95, late_all; /* some ranks waited longer than others, for the slowest one */
    int slowest;                     /* rank waited for most often; -1: none more often than by chance */
    int64_t slowest_steps;           /* steps in which it was */
    double slowest_late;             /* median time lost in these */
    double slowest_loading;          /* its extra wait for the loader compared with the other ranks; of medians */
    int64_t sent, sent_across;       /* mean bytes per step and rank */
} lc__rank_verdict;
lc_status lc__rank_times_judge(const lc__rank_record *all, int n, lc__rank_verdict *out) LC_MUST_USE;

#endif
