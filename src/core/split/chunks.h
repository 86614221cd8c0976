/* SPDX-License-Identifier: Apache-2.0 */
/* `deterministic`: N ranks, or devices, give the same bits as one. The batch of all ranks is cut into chunks that do
 * not depend on N; training_step, validation_step and test_step run for one chunk after the other, gradients are added
 * on a tree over chunks (parallel/tree/tree.h), and logged values are added without rounding (exact_sum.h). */
#ifndef LC_CORE_SPLIT_CHUNKS_H
#define LC_CORE_SPLIT_CHUNKS_H

#include "core/split/split.h"
#include "core/split/step.h"
#include "parallel/tree/tree.h"

typedef struct lc__chunks {
    lc__tree *tree;   /* NULL: gradients are not summed on a tree (manual optimization, no fit) */
    double window;    /* the size of the running window's first batch, in chunks */
    lc__split *split; /* one for the batch, or one for each device's part */
    int n_splits;
    lc__split *now; /* the split that runs, or ran last */
    int64_t first;  /* number of its first chunk */
    struct lc__statistics *statistics;
} lc__chunks;

/* NULL: gradients are not summed on a tree. */
static inline lc__tree *lc__tree_of(const lc_trainer *t)
{
    return t->chunks ? t->chunks->tree : NULL;
}

/* Predictions are per sample and need no sums. */
static inline bool lc__cuts_chunks(const lc_trainer *t)
{
    return t->chunks && t->stage != LC_STAGE_PREDICT;
}

/* Whether this fit sums gradients on a tree. */
static inline bool lc__sums_on_tree(const lc_trainer *t)
{
    return t->chunks && !t->mo.manual_optimization;
}

/* How many batches of the running window are held on the tree, between two batches. */
static inline int64_t lc__chunks_window(const lc_trainer *t)
{
    return lc__tree_of(t) && t->epoch_open && t->accumulating ? lc__window_place(t, t->batches_done) : 0;
}

/* Makes t->chunks if the options ask for it. */
lc_status lc__chunks_begin(lc_trainer *t) LC_MUST_USE;
/* Prepares a fit, when its optimizers exist. */
lc_status lc__chunks_train(lc_trainer *t) LC_MUST_USE;
void lc__chunks_free(lc_trainer *t); /* before the graph */

/* The number of chunks of this rank's share of a batch; 1 if it is not cut. */
int64_t lc__chunks_in(const lc_trainer *t, const lc_batch *batch);
/* Samples of a chunk of the batch; 0: unknown (several ranks, and the batch does not list its pieces). */
int64_t lc__chunks_size(const lc_trainer *t, const lc_batch *batch);
/* The number of chunks in the batch of all ranks; a last chunk with fewer samples counts as a fraction. */
double lc__chunks_of_all(const lc_trainer *t, const lc_batch *batch);
/* Chunks of each of `devices`, a power of two; the last may have fewer. */
int64_t lc__chunks_per_device(int64_t samples, int64_t size, int devices);

/* Calls fn for one chunk of the batch after the other, or once for all of a batch that is not cut. */
lc_status lc__each_chunk(lc_trainer *t, const lc_batch *batch, lc__piece_fn *fn, void *ctx,
                         lc_tensor **value) LC_MUST_USE;
/* Samples of the running chunk divided by those of a whole one. */
double lc__chunk_weight(const lc__chunks *k);

/* chunk_statistics.c: running statistics of batch norm, on `devices` devices. On each device that has chunks, call
 * _begin before the first chunk and _chunk after each, while the step is recorded; _no_chunk if this rank has none.
 * Call _end when the step has run: `parts` devices had chunks, and all ranks had `chunks`. */
lc_status lc__statistics_new(lc__chunks *k, lc_module *m, int devices) LC_MUST_USE;
void lc__statistics_free(lc__chunks *k);
void lc__statistics_begin(lc__chunks *k);
lc_status lc__statistics_chunk(lc__chunks *k) LC_MUST_USE;
lc_status lc__statistics_no_chunk(lc__chunks *k) LC_MUST_USE;
lc_status lc__statistics_end(lc__chunks *k, lc_comm *comm, int parts, double chunks) LC_MUST_USE;

/* closure_run for a batch that is cut into chunks. */
lc_status lc__chunks_closure(lc_closure *c) LC_MUST_USE;

#endif
