/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights are pruned next: the rankings of torch.nn.utils.prune, on host copies. */
#ifndef LC_CALLBACKS_PRUNING_MASKS_H
#define LC_CALLBACKS_PRUNING_MASKS_H

#include <lightc/tensor.h>

typedef struct lc__prune_amount {
    double part;   /* fraction of the remaining weights; the count is rounded half to even */
    int64_t count; /* if greater than 0, instead */
} lc__prune_amount;

/* Sets mask[i] to 0 for the entries of least score among those that are 1; the first ones of equal scores. A count
 * beyond them is an error, as in PyTorch. */
lc_status lc__prune_least(const double *score, float *mask, int64_t n, lc__prune_amount amount) LC_MUST_USE;
/* The same for the channels of dimension `dim`; score(channel) is the norm of order p over the rest of the tensor, or a
 * random number from `key` if p is NaN. */
lc_status lc__prune_channels(const double *values, float *mask, const lc_type *type, int dim, double p, uint64_t key,
                             lc__prune_amount amount) LC_MUST_USE;

#endif
