/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on several ranks, and runs that end as if the machine had died and continue.
 *
 * The test defines `run` and `outcome` before it includes this, and `train` and `same` after it. */
#ifndef LC_TESTS_RUNS_H
#define LC_TESTS_RUNS_H

#include "comm_world.h"
#include "scratch.h"

/* comm: NULL for one process. */
static lc_status train(lc_comm *comm, const run *r, outcome *out);
static bool same(const outcome *a, const outcome *b);

typedef struct ranks {
    run r;
    outcome out[4];
} ranks;

static inline lc_status rank_trains(lc_comm *comm, void *ctx)
{
    ranks *r = ctx;
    return train(comm, &r->r, &r->out[lc_comm_rank(comm)]);
}

/* All of up to four ranks have the same outcome. */
static inline void train_ranks(const run *r, int n, outcome *out)
{
    ranks all = {.r = *r};
    CHECK_RANKS("threads", n, rank_trains, &all);
    for (int i = 1; i < n; i++) CHECK(same(&all.out[0], &all.out[i]));
    *out = all.out[0];
}

/* Continues from the stop.ckpt of the run before. */
static inline lc_status resume(const run *before, const run *r, outcome *out)
{
    char path[700];
    run rest = *r;
    snprintf(path, sizeof path, "%s/stop.ckpt", before->root);
    rest.ckpt_path = path;
    return train(NULL, &rest, out);
}

/* Dies after that many steps, and continues; `out` is that of the second part. */
static inline void train_in_two(const run *r, int64_t steps, outcome *out)
{
    run first = *r, rest = *r;
    rest.root = first.root = fresh_dir("two");
    first.stop_after = steps;
    CHECK_STATUS(train(NULL, &first, out), LC_ERR_USER);
    CHECK_OK(resume(&first, &rest, out));
}

#endif
