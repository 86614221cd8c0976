/* SPDX-License-Identifier: Apache-2.0 */
/* `deterministic`: N ranks, or devices, give the bits of one. A batch of all ranks is cut into chunks that do not
 * depend on their number; training_step, validation_step and test_step are called for one after the other, gradients
 * are added on a tree over chunks (parallel/tree/tree.h), and logged values without rounding (exact_sum.h). */
#ifndef LC_CORE_SPLIT_CHUNKS_H
#define LC_CORE_SPLIT_CHUNKS_H

#include "core/split/split.h"
#include "core/split/step.h"
#include "parallel/tree/tree.h"

typedef struct lc__chunks {
    lc__tree *tree;   /* NULL: gradients are not summed on one (manual optimisation, no fit) */
    double window;    /* chunks in the first batch of the running window: its samples / chunk */
    lc__split *split; /* of the batch, or of each device's part of it */
    int n_splits;
    lc__split *now; /* the one that runs, or ran last */
    int64_t first;  /* the number of its first chunk */
    struct lc__statistics *statistics;
} lc__chunks;

/* NULL: gradients are not summed on one. */
static inline lc__tree *lc__tree_of(const lc_trainer *t)
{
    return t->chunks ? t->chunks->tree : NULL;
}

/* Predictions are of samples, and need no sums. */
static inline bool lc__cuts_chunks(const lc_trainer *t)
{
    return t->chunks && t->stage != LC_STAGE_PREDICT;
}

/* How many batches of the running window are held on the tree, between two batches. */
static inline int64_t lc__chunks_window(const lc_trainer *t)
{
    return lc__tree_of(t) && t->epoch_open && t->accumulating ? lc__window_place(t, t->batches_done) : 0;
}

/* Makes t->chunks if the options ask for it. */
lc_status lc__chunks_begin(lc_trainer *t) LC_MUST_USE;
/* For a fit, when its optimizers are made. */
lc_status lc__chunks_train(lc_trainer *t) LC_MUST_USE;
void lc__chunks_free(lc_trainer *t); /* before the graph */

/* As how many chunks this rank's share of a batch is computed: 1 where it is not cut. */
int64_t lc__chunks_in(const lc_trainer *t, const lc_batch *batch);
/* Samples of a chunk of the batch; 0: several ranks, and the batch does not say. */
int64_t lc__chunks_size(const lc_trainer *t, const lc_batch *batch);
/* A batch of all ranks in chunks, of which the last may be a part of one. */
double lc__chunks_of_all(const lc_trainer *t, const lc_batch *batch);
/* How many chunks each of `devices` has, but the last: a power of two. */
int64_t lc__chunks_per_device(int64_t samples, int64_t size, int devices);

/* Calls fn for one chunk of the batch after the other, or once for all of a batch that is not cut. */
lc_status lc__each_chunk(lc_trainer *t, const lc_batch *batch, lc__piece_fn *fn, void *ctx,
                         lc_tensor **value) LC_MUST_USE;
/* How much of a whole chunk the running one is, by its samples. */
double lc__chunk_weight(const lc__chunks *k);

/* chunk_statistics.c: running statistics of batch norm, on that many devices. Before the first chunk; after each, while
 * it runs, or if this rank has none; each on every device that has chunks; and at the end, on several ranks or devices
 * (`parts` of which had chunks) when the step has run. There are `chunks` in all. */
lc_status lc__statistics_new(lc__chunks *k, lc_module *m, int devices) LC_MUST_USE;
void lc__statistics_free(lc__chunks *k);
void lc__statistics_begin(lc__chunks *k);
lc_status lc__statistics_chunk(lc__chunks *k) LC_MUST_USE;
lc_status lc__statistics_no_chunk(lc__chunks *k) LC_MUST_USE;
lc_status lc__statistics_end(lc__chunks *k, lc_comm *comm, int parts, double chunks) LC_MUST_USE;

/* What closure_run does for a whole batch. */
lc_status lc__chunks_closure(lc_closure *c) LC_MUST_USE;

#endif
