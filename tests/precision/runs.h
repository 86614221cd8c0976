/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on several ranks, and runs that end as if the machine had died and continue.
 *
 * The test defines `run` and `outcome` before it includes this, and `train` and `same` after it. */
#ifndef LC_TESTS_RUNS_H
#define LC_TESTS_RUNS_H

#include "rank_runs.h"
#include "scratch.h"

static bool same(const outcome *a, const outcome *b);

/* All ranks have the same outcome. */
static inline void train_ranks(const run *r, int n, outcome *out)
{
    ranks all;
    train_each_rank(r, n, &all);
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
