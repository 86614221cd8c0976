/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a batch of all ranks in `deterministic` training (lc_share.pieces), which core/split computes as
 * chunks. Their number depends only on the number of samples, so it is the same for any number of ranks. */
#ifndef LC_CORE_INPUT_PIECES_H
#define LC_CORE_INPUT_PIECES_H

#include "core/hooks/trainer_internal.h"

/* The number of pieces of a batch with that many samples over all ranks. */
int64_t lc__pieces_of(const lc_trainer *t, int64_t samples);
/* How a loader must cut its batches for this rank; `train`: gradients are summed over the pieces. */
lc_status lc__pieces_share(const lc_trainer *t, const lc_dataloader *l, bool train, lc_share *out) LC_MUST_USE;

#endif
