/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights are pruned next: the rankings of torch.nn.utils.prune, on host copies. */
#ifndef LC_CALLBACKS_PRUNING_MASKS_H
#define LC_CALLBACKS_PRUNING_MASKS_H

#include <lightc/tensor.h>

typedef struct lc__prune_amount {
    double part;   /* of what is not pruned yet; rounded to the nearest even */
    int64_t count; /* if greater than 0, instead */
} lc__prune_amount;

/* Sets mask[i] (1 or 0) to 0 for the least of the entries that are 1: those of least score. Equal scores: the first. */
lc_status lc__prune_least(const double *score, float *mask, int64_t n, lc__prune_amount amount) LC_MUST_USE;
/* The same for the channels of dimension `dim`; score(channel) is the norm of order p over the rest of the tensor, or
 * a random number if p is NaN (`key` then says which). */
lc_status lc__prune_channels(const float *values, float *mask, const lc_type *type, int dim, double p, uint64_t key,
                             lc__prune_amount amount) LC_MUST_USE;

#endif
