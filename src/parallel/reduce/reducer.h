/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients over several ranks: all-reduced in buckets, while the backward pass still runs.
 *
 * A bucket is a range of a flat gradient buffer. The buffer is in reverse order of registration, which is roughly the
 * order in which gradients become known; so a bucket is sent by the node that follows its last gradient, and the
 * executor moves bytes between any two nodes. The ranks launch buckets in the order of their ranges, always all of
 * them: a parameter that has no gradient contributes zeros. In the same step the ranks agree on which parameters have a
 * gradient on any rank (one byte each, plus the trainer's flags), so that the update skips the parameters that it would
 * skip on one rank.
 *
 * The reducer belongs to the graph's thread. */
#ifndef LC_PARALLEL_REDUCE_REDUCER_H
#define LC_PARALLEL_REDUCE_REDUCER_H

#include <lightc/comm.h>
#include <lightc/module.h>
#include "record/graph_impl.h"

typedef struct lc__reducer lc__reducer;

/* Bytes that the trainer may agree on with every sync: the result is the largest of all ranks'. */
#define LC__SYNC_FLAGS 8

/* `comm` is borrowed. bucket_bytes 0: 512 KiB. From now on the graph reduces when lc__reducer_sync is called, and
 * averages over the ranks. */
lc_status lc__reducer_new(lc_graph *g, lc_comm *comm, size_t bucket_bytes, lc__reducer **out) LC_MUST_USE;
void lc__reducer_free(lc__reducer *r); /* NULL is fine; before the graph */
/* The operators of this room; ends with NULL. */
extern const lc_op *const lc__reduce_ops[];
/* The reducer of a graph, or NULL. */
lc__reducer *lc__reducer_of_graph(const lc_graph *g);

/* Before parameters are added: shards them too (shard.h), in stage 1, 2 or 3. From stage 2 on gradients are reduced
 * after every backward pass, so each needs a sync. */
void lc__reducer_shard(lc__reducer *r, int stage);
/* In stage 3, before parameters are added: the ranks of `slices`, not all ranks, have a slice each. The ranks of
 * `replicas` (NULL: none) have the same slice, each in its own copy, and gradients are summed over them too. Both are
 * groups split from the reducer's communicator; borrowed. */
void lc__reducer_replicate(lc__reducer *r, lc_comm *slices, lc_comm *replicas);
/* Makes parameters whole again on every rank; in stage 3 results of earlier steps expire. Collective. */
lc_status lc__reducer_gather(lc__reducer *r) LC_MUST_USE;

/* Around a batch, in stage 3: parameters are gathered when they are used, so a rank that runs the module fewer times
 * (`passes`; 0: it has no sample) must take part in the gathers of the others. If passes differ the ranks agree before
 * each gather, in the sync and in lc__reducer_end_batch. Collective. */
lc_status lc__reducer_begin_batch(lc__reducer *r, int64_t passes) LC_MUST_USE;
lc_status lc__reducer_end_batch(lc__reducer *r) LC_MUST_USE;

/* Whether sums are formed on one tree over all ranks: if there are replicas, the ranks of each copy must form a
 * subtree. As far as this rank knows. */
bool lc__reducer_sums_on_tree(const lc__reducer *r);

/* Before parameters are added: buckets of gradients are sent as `wire` (compress.h); LC_F32: unchanged. Not with
 * sharding. */
lc_status lc__reducer_compress(lc__reducer *r, lc_dtype wire) LC_MUST_USE;

/* The parameters of an optimizer are reduced from now on. Call it in the same order on all ranks. */
lc_status lc__reducer_add(lc__reducer *r, lc_optimizer *opt) LC_MUST_USE;
/* All parameters of a module when none is trained: to shard them. */
lc_status lc__reducer_add_module(lc__reducer *r, lc_module *m) LC_MUST_USE;

/* Gradients that a sync has summed since the last lc_zero_grad are summed again after another backward pass, so each
 * rank first replaces them by its share. Here this is done at once, between steps, to save gradients;
 * lc__reducer_unshare restores the sums, which an update may need next. */
lc_status lc__reducer_share(lc__reducer *r) LC_MUST_USE;
void lc__reducer_unshare(lc__reducer *r);
/* Gradients were restored from a checkpoint that was saved after a sync: each rank has its share of the sums.
 * lc__reducer_has_shares: whether any trained parameter still has a share, because there was no sync since. The same on
 * all ranks. */
void lc__reducer_restored(lc__reducer *r);
bool lc__reducer_has_shares(const lc__reducer *r);

/* Loss weight of this rank: n_r * N / m for n_r of m samples on N ranks; 1 if all ranks have equally many. Set it
 * before the backward pass is recorded. */
void lc__reducer_set_weight(lc__reducer *r, double weight);

/* Call it after the backward pass that ends a window: runs what was recorded, with the reductions. Collective. flags:
 * in, this rank's; out, the largest of each.
 *
 * The last buckets may still be in flight when it returns: the next run waits for them. An update that comes first
 * waits bucket by bucket, so that communication and update overlap. Nothing is in flight after lc_step_run. */
lc_status lc__reducer_sync(lc__reducer *r, uint8_t flags[LC__SYNC_FLAGS]) LC_MUST_USE;

typedef struct lc__reducer_stats {
    int64_t syncs, buckets, bytes; /* bytes: of gradients as sent, over all syncs */
    int64_t exposed_ns;            /* waiting for buckets after the end of the backward pass */
} lc__reducer_stats;
void lc__reducer_get_stats(const lc__reducer *r, lc__reducer_stats *out);

#endif
