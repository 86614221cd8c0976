/* SPDX-License-Identifier: Apache-2.0 */
/* Some samples of a batch, as a batch: for code that cuts a batch and runs training_step on each part. */
#ifndef LC_DATA_BATCH_SLICE_H
#define LC_DATA_BATCH_SLICE_H

#include <lightc/batch.h>

/* ---- shares ----
 *
 * A batch is divided among ranks or devices so that each has the same share of every loader in a combined loader: only
 * then does a loss that is a sum of means have the gradient of the whole batch. */

/* A rank's share of a global batch may have no samples: the rank then only takes part in collective work. */
static inline bool lc__is_empty_share(const lc_batch *batch)
{
    return batch && batch->size == 0 && batch->global_size > 0;
}

/* Samples of the batch over all ranks. */
int64_t lc__batch_samples(const lc_batch *batch);
/* Samples of the smallest part. */
int64_t lc__batch_least(const lc_batch *batch);
/* The number of units into which the batch is divided, all with the same share of every part: the greatest common
 * divisor of its parts' samples. If it is less than `shares`, some shares are empty. 0: they would be empty although
 * every part has enough samples; each part is then cut separately, as evenly as possible. */
int64_t lc__batch_units(const lc_batch *batch, int64_t shares);
/* The share of a part, or of a batch without parts, with `samples` over all ranks. */
void lc__batch_share(int64_t samples, int64_t units, int64_t share, int64_t shares, int64_t *begin, int64_t *n);

/* One slice, rebuilt in each step: it reuses its tensors, so that the steady state allocates nothing. Slices in use at
 * the same time need one struct each. Initialize with zeros. */
typedef struct lc__batch_slice {
    lc_batch batch;
    lc_tensor *inputs[LC_MAX_BATCH_TENSORS + 2]; /* owned; for the tensors, x and y */
    struct lc__batch_slice *parts;               /* for the parts of a combined loader's batch */
    const lc_batch **part_batches;
    int n_parts;
} lc__batch_slice;

/* *out: samples [begin, begin + n) of `batch`, which must have them; valid until the next call, and as long as `batch`.
 * Every tensor whose first dimension is batch->size is cut, all others are passed on unchanged. The slice of an input
 * tensor is an input tensor over the same memory, which any thread may use; the slice of any other tensor is an
 * lc_slice, recorded in the current step. indices, first and global_offset are those of the slice, global_size stays.
 *
 * With a combined loader's batch every part is cut: of its P samples, those from floor(begin * P / size) to
 * floor((begin + n) * P / size), so that slices without gaps have parts without gaps. If `batch` is a slice of a global
 * batch, these numbers are the global batch's, so that a slice of a slice equals the same slice of the whole. */
lc_status lc__batch_cut(lc__batch_slice *s, const lc_batch *batch, int64_t begin, int64_t n,
                        const lc_batch **out) LC_MUST_USE;
/* The same for share `share` of `shares`, in `units` of the batch. */
lc_status lc__batch_cut_share(lc__batch_slice *s, const lc_batch *batch, int64_t units, int64_t share, int64_t shares,
                              const lc_batch **out) LC_MUST_USE;
void lc__batch_slice_release(lc__batch_slice *s);

#endif
