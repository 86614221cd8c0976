/* SPDX-License-Identifier: Apache-2.0 */
/* A batch: a short list of named tensors, as a loader hands it to a step. Borrowed: the loader reuses the memory after
 * the step. */
#ifndef LIGHTC_BATCH_H
#define LIGHTC_BATCH_H

#include <lightc/tensor.h>

#define LC_MAX_BATCH_TENSORS 8

typedef struct lc_batch {
    lc_tensor *x; /* the first tensor (inputs) */
    lc_tensor *y; /* the second (targets), or NULL */
    int n;
    lc_tensor *tensors[LC_MAX_BATCH_TENSORS]; /* input tensors: their memory may differ from step to step */
    const char *names[LC_MAX_BATCH_TENSORS];
    int64_t size; /* samples in it */
    /* Numbers of the samples in their dataset, [size]; NULL: unknown. */
    const int64_t *indices;
    /* With a combined loader: one batch per loader, NULL when exhausted; the fields above mirror the first non-NULL
     * one. 0: a batch of one loader. */
    int n_parts;
    const struct lc_batch *const *parts;
    /* If a loader belongs to one rank of several (lc_share) this is the rank's share of a global batch, and may be
     * empty: `size` is 0 then, and global_size is not. */
    int64_t global_size;   /* samples in the shares of all ranks together; 0: not a share, `size` is all, and all ranks
                              have the same weight */
    int64_t global_offset; /* position of the first sample here among those */
    int64_t first;         /* position of the first sample here in its loader's epoch; the global batch begins
                            * global_offset samples earlier. A program's own loaders may leave it 0. */
    int64_t piece; /* samples in a piece of the global batch, if it is cut into pieces (lc_share.pieces); else 0 */
} lc_batch;

LC_BEGIN_DECLS
/* An input tensor: a persistent tensor over memory of the caller, which may be exchanged between steps without planning
 * again. `data` is dense in `layout`, 64-byte aligned for best speed, and must stay valid while the step runs. */
LC_API lc_status lc_input_new(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout, void *data,
                              lc_tensor **out) LC_MUST_USE;
/* Exchanges the memory (same dtype, rank, layout), and the first dimension: the number of samples. */
LC_API void lc_input_set(lc_tensor *input, void *data, int64_t samples);
LC_END_DECLS

#endif
