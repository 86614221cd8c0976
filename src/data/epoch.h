/* SPDX-License-Identifier: Apache-2.0 */
/* The batches of an epoch: the order of its samples, and this rank's share of each batch. */
#ifndef LC_DATA_EPOCH_H
#define LC_DATA_EPOCH_H

#include <lightc/data.h>

/* See collate.h. */
typedef struct lc__padding lc__padding;

typedef struct lc__epoch {
    lc_dataset *dataset;
    lc_sampler sampler;
    bool drop_last;
    bool sequential; /* the dataset's order, whatever the sampler's is */
    uint64_t seed;
    lc_share share;
    int64_t global_batch; /* samples of a full batch on all ranks together; not with max_tokens */
    /* If samples differ in size: how batches are made of them (batches.h). */
    const lc__padding *padding;
    int64_t max_tokens; /* of a rank's share of a batch, once padded; 0: batches have a number of samples */
    bool group_by_length;
    bool shuffles;                  /* the order is the sampler's or a random one; else that of the dataset */
    int64_t counted_epoch, counted; /* batches of an epoch that may not have begun; -1: none is known */

    /* The epoch that has begun. */
    int64_t *order, order_room, n_samples, n_batches;
    int64_t *ends, ends_room; /* with max_tokens: where in `order` each batch ends */
    uint64_t key;             /* what the keys of samples depend on */
} lc__epoch;

/* This rank's share of a batch: samples [begin, begin + n) of the epoch's order, `offset` after the first of the
 * `global_size` samples of all ranks. */
typedef struct lc__rank_share {
    int64_t begin, n, offset, global_size;
} lc__rank_share;

/* Samples and batches of any epoch; < 0: the sampler's length is invalid. */
int64_t lc__epoch_samples(const lc__epoch *e, int64_t epoch);
int64_t lc__epoch_batches(lc__epoch *e, int64_t epoch);
/* The share or the order has changed: batches are counted again. */
void lc__epoch_changed(lc__epoch *e);

/* Asks the sampler for the order of an epoch that starts at batch `start`. */
lc_status lc__epoch_begin(lc__epoch *e, int64_t epoch, int64_t start) LC_MUST_USE;
lc__rank_share lc__epoch_share(const lc__epoch *e, int64_t batch);
/* Whether a rank's share was set; without one, other ranks may have different loaders, which this one does not know. */
bool lc__epoch_is_share(const lc__epoch *e);
void lc__epoch_release(lc__epoch *e);

#endif
