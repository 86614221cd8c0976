/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on several ranks. The test defines `run` and `outcome` before it includes this, and `train` after it. */
#ifndef LC_TESTS_RANK_RUNS_H
#define LC_TESTS_RANK_RUNS_H

#include "comm_world.h"

enum { MOST_RANKS = 4 };

/* comm: NULL for one process. */
static lc_status train(lc_comm *comm, const run *r, outcome *out);

typedef struct ranks {
    const run *r;
    outcome out[MOST_RANKS]; /* of each */
} ranks;

static inline lc_status rank_trains(lc_comm *comm, void *ctx)
{
    ranks *all = ctx;
    return train(comm, all->r, &all->out[lc_comm_rank(comm)]);
}

static inline void train_each_rank(const run *r, int n, ranks *all)
{
    memset(all, 0, sizeof *all);
    all->r = r;
    CHECK_RANKS("threads", n, rank_trains, all);
}

#endif
