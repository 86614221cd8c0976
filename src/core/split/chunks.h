/* SPDX-License-Identifier: Apache-2.0 */
/* `deterministic`: N ranks, or devices, give the bits of one. A batch of all ranks is cut into chunks that do not
 * depend on their number; training_step, validation_step and test_step are called for one after the other, gradients
 * are added on a tree over chunks (parallel/tree/tree.h), and logged values without rounding (exact_sum.h). */
#ifndef LC_CORE_SPLIT_CHUNKS_H
#define LC_CORE_SPLIT_CHUNKS_H

#include "core/hooks/trainer_internal.h"
#include "data/batch_slice.h"
#include "parallel/tree/tree.h"

typedef struct lc__chunks {
    lc__tree *tree; /* NULL: gradients are not summed on one (manual optimisation, no fit) */
    double window;  /* chunks in the first batch of the running window: its samples / chunk */
    /* The batch that is cut */
    const lc_batch *batch;
    int64_t size, n, first; /* samples of a chunk; how many this rank or device has, and the number of its first */
    int64_t slot;           /* of its first in `slices` */
    lc__batch_slice *slices;
    int64_t cap;
    lc_outputs *outputs; /* of each chunk */
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
int64_t lc__chunks_each(int64_t samples, int64_t size, int devices);

/* Cuts `batch` into t->chunks->n chunks, of which this makes one, which is t->batch then. */
lc_status lc__chunks_cut(lc_trainer *t, const lc_batch *batch) LC_MUST_USE;
lc_status lc__chunks_take(lc_trainer *t, int64_t i, const lc_batch **out) LC_MUST_USE;
/* How much of a whole chunk chunk i is, by its samples. */
double lc__chunks_part(const lc__chunks *k, int64_t i);

/* chunk_statistics.c: running statistics of batch norm, on that many devices. Before the batch; behind chunk i, which
 * counts `weight`, or if this rank has none; each on every device that has chunks; and at the end, on several ranks or
 * devices (`parts` of which had chunks) when the step has run. There are `chunks` in all. */
lc_status lc__statistics_new(lc__chunks *k, lc_module *m, int devices) LC_MUST_USE;
void lc__statistics_free(lc__chunks *k);
void lc__statistics_begin(lc__chunks *k);
lc_status lc__statistics_chunk(lc__chunks *k, int64_t i, double weight) LC_MUST_USE;
lc_status lc__statistics_no_chunk(lc__chunks *k) LC_MUST_USE;
lc_status lc__statistics_end(lc__chunks *k, lc_comm *comm, int parts, double chunks) LC_MUST_USE;

/* What closure_run does for a whole batch. */
lc_status lc__chunks_closure(lc_closure *c) LC_MUST_USE;

#endif
