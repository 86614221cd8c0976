/* SPDX-License-Identifier: Apache-2.0 */
/* Batches in a step, as fields of samples, and the operators that change them. */
#ifndef LC_DATA_TRANSFORMS_BATCH_H
#define LC_DATA_TRANSFORMS_BATCH_H

#include <lightc/data.h>
#include <lightc/op.h>

extern const lc_op lc__op_transform_batch, lc__op_mix_batch;

/* The field that [B,...] has one sample of in each row. */
lc_field lc__sample_of(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout);
/* Whether an operand can be the keys of a batch. */
lc_status lc__check_keys(const lc_infer *call, int input) LC_MUST_USE;

#endif
