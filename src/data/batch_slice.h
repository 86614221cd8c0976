/* SPDX-License-Identifier: Apache-2.0 */
/* Some samples of a batch, as a batch: for what cuts a batch and runs training_step on each part of it. */
#ifndef LC_DATA_BATCH_SLICE_H
#define LC_DATA_BATCH_SLICE_H

#include <lightc/batch.h>

/* One slice, made anew in each step: tensors that it has handed out are used again, so that the steady step allocates
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
 * Of a combined loader's batch every part is cut: where it has P samples, those from floor(begin * P / size) to
 * floor((begin + n) * P / size), so that slices without gaps have parts without gaps. */
lc_status lc__batch_cut(lc__batch_slice *s, const lc_batch *batch, int64_t begin, int64_t n,
                        const lc_batch **out) LC_MUST_USE;
void lc__batch_slice_release(lc__batch_slice *s);

#endif
