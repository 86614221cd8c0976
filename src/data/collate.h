/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of samples that differ in size: what they are padded to, and their lengths. */
#ifndef LC_DATA_COLLATE_H
#define LC_DATA_COLLATE_H

#include "data/gather.h"

/* How the samples of a loader become a batch. */
struct lc__padding {
    int n;                                 /* tensors of a batch: the fields, then lengths */
    int lengths_of[LC_MAX_BATCH_TENSORS];  /* for each after the fields: whose lengths they are */
    char names[LC_MAX_BATCH_TENSORS][64];  /* "x_lengths" */
    uint64_t values[LC_MAX_BATCH_TENSORS]; /* for each field an element that fills up, in its dtype */
    size_t bytes[LC_MAX_BATCH_TENSORS];    /* of each tensor in this rank's largest share of a batch */
    size_t row[LC_MAX_BATCH_TENSORS];      /* of each tensor, one sample in the largest shape */
    size_t sample[LC_MAX_BATCH_TENSORS];   /* of each field in the largest sample */
    lc_pad_side side;
    int64_t multiple;
    lc_collate_sizes_fn *sizes;
    lc_collate_fn *collate;
    void *ctx;
};

/* From the arguments of a loader over a dataset whose samples differ in size. */
lc_status lc__padding_init(lc__padding *p, const lc_dataset *d, const lc_dataloader_args *args) LC_MUST_USE;
/* The field that tensor t of a batch is, as far as its shape is known. */
lc_field lc__padding_field(const lc__padding *p, const lc_dataset *d, int t);
/* The shape of field f in a batch that has samples of up to these sizes; changes `sizes`. */
lc_status lc__padding_sizes(const lc__padding *p, const lc_dataset *d, int f, int64_t *sizes) LC_MUST_USE;
/* Sets p->bytes, p->row and p->sample for the epoch that has begun. *grown: any is larger than before. */
lc_status lc__padding_measure(lc__padding *p, const lc__epoch *e, bool *grown) LC_MUST_USE;
/* Sets the sizes of a slot, and gathers this rank's share of a batch into it. */
lc_status lc__padding_gather(const lc__padding *p, const lc__epoch *e, lc__rank_share share, lc__slot *s,
                             lc__gatherer *w) LC_MUST_USE;

#endif
