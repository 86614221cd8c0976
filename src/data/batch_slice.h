/* SPDX-License-Identifier: Apache-2.0 */
/* Some samples of a batch, as a batch: for what cuts a batch and runs training_step on each part of it. */
#ifndef LC_DATA_BATCH_SLICE_H
#define LC_DATA_BATCH_SLICE_H

#include <lightc/batch.h>

/* ---- shares ----
 *
 * A batch is shared out to ranks or devices so that each has the same part of all the loaders that a combined loader
 * consists of: a loss is a sum of means, and has the gradient of the whole batch only then. */

/* A rank's share of a global batch may be no sample at all: then it only joins what all ranks do. */
static inline bool lc__is_empty_share(const lc_batch *batch)
{
    return batch && batch->size == 0 && batch->global_size > 0;
}

/* Over all ranks. */
int64_t lc__batch_samples(const lc_batch *batch);
/* Samples of the smallest part. */
int64_t lc__batch_least(const lc_batch *batch);
/* The number of units into which the batch is divided, all with the same share of every part: the greatest common
 * divisor of its parts' samples. If it is less than `shares`, some get nothing. 0: that would be so although every part
 * has samples for all of them; then each part is cut by itself, as evenly as possible. */
int64_t lc__batch_units(const lc_batch *batch, int64_t shares);
/* For a part, or a batch without parts, with `samples` over all ranks. */
void lc__batch_share(int64_t samples, int64_t units, int64_t share, int64_t shares, int64_t *begin, int64_t *n);

/* One slice, rebuilt in each step: tensors that it has handed out are used again, so that the steady step allocates
 * nothing. Slices that are in use at the same time need one each. Zeros: a fresh one. */
typedef struct lc__batch_slice {
    lc_batch batch;
    lc_tensor *inputs[LC_MAX_BATCH_TENSORS + 2]; /* owned; of the tensors, x and y */
    struct lc__batch_slice *parts;               /* of a combined loader's batch */
    const lc_batch **part_batches;
    int n_parts;
} lc__batch_slice;

/* *out: samples [begin, begin + n) of `batch`, which must have them; valid until the next call, and as long as `batch`.
 * Every tensor whose first dimension is batch->size is cut, all others are handed on as they are. An input tensor's
 * slice is an input tensor over the same memory, which any thread may use; any other's is an lc_slice of it, recorded
 * in the step that runs. indices, first and global_offset are those of the slice, global_size stays.
 *
 * Of a combined loader's batch every part is cut: of its P samples, those from floor(begin * P / size) to floor((begin
 * + n) * P / size), so that slices without gaps have parts without gaps. Numbers are those of the global batch if
 * `batch` is a slice of one, so that a slice of a slice is what it would be of the whole. */
lc_status lc__batch_cut(lc__batch_slice *s, const lc_batch *batch, int64_t begin, int64_t n,
                        const lc_batch **out) LC_MUST_USE;
/* The same for share `share` of `shares`, in `units` of the batch. */
lc_status lc__batch_cut_share(lc__batch_slice *s, const lc_batch *batch, int64_t units, int64_t share, int64_t shares,
                              const lc_batch **out) LC_MUST_USE;
void lc__batch_slice_release(lc__batch_slice *s);

#endif
