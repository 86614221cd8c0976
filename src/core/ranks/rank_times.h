/* SPDX-License-Identifier: Apache-2.0 */
/* How long ranks wait for each other: each keeps the times of its latest steps, and at the end of a fit rank 0 gets all
 * of them and says what was lost, and to whom. Nothing is communicated before. */
#ifndef LC_CORE_RANKS_RANK_TIMES_H
#define LC_CORE_RANKS_RANK_TIMES_H

#include "core/hooks/trainer_internal.h"

enum { LC__RANK_TIMES_KEPT = 1024, LC__RANK_TIMES_SKIPPED = 2 }; /* skipped: the first ones, in which plans are made */

/* An optimizer step: from asking the loader for its first batch to gradients that are those of all ranks. */
typedef struct lc__rank_step {
    int32_t all_us, loading_us; /* loading_us: of it, waiting for the loader */
    int32_t waited_us;          /* of it, in calls of the communicator */
} lc__rank_step;

/* What rank 0 gets of each rank. */
typedef struct lc__rank_record {
    int64_t steps;             /* all of the fit */
    int64_t sent, sent_across; /* bytes, of the steps that were not skipped; to other hosts */
    char host[64];
    lc__rank_step of[LC__RANK_TIMES_KEPT]; /* step i is of[i % LC__RANK_TIMES_KEPT] */
} lc__rank_record;

/* A fit begins, or ends. */
lc_status lc__rank_times_begin(lc_trainer *t) LC_MUST_USE;
void lc__rank_times_free(lc_trainer *t);

/* A step begins, if none has. Returns what time it is. */
int64_t lc__rank_times_start(lc_trainer *t);
/* The loader was asked then, and has answered. */
void lc__rank_times_loaded(lc_trainer *t, int64_t asked);
/* Gradients are about to be synced; and the step has run, with the update, which waits for the last of them. */
void lc__rank_times_sync(lc_trainer *t);
void lc__rank_times_stepped(lc_trainer *t);

/* Rank 0 says it, where at least a twentieth of the time was lost, or a profiler runs. Collective. */
lc_status lc__rank_times_report(lc_trainer *t) LC_MUST_USE;

/* What comes of the records of n ranks; times in seconds. */
typedef struct lc__rank_verdict {
    int64_t steps;               /* that were looked at */
    double step;                 /* its median */
    double exposed, exposed_all; /* all ranks waited: communication that no computation hid. Median, and share of all */
    double late, late_p95, late_all; /* some ranks waited longer than others: for the slowest one */
    int slowest;                     /* that was waited for most often; -1: none more often than by chance */
    int64_t slowest_steps;           /* in which it was */
    double slowest_late;             /* median of what was lost in these */
    double slowest_loading;          /* how much longer than the other ranks it waited for its loader: medians */
    int64_t sent, sent_across;       /* bytes a step, by one rank, in the mean */
} lc__rank_verdict;
lc_status lc__rank_times_judge(const lc__rank_record *all, int n, lc__rank_verdict *out) LC_MUST_USE;

#endif
