/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of samples that differ in size. */
#ifndef LC_DATA_BATCHES_H
#define LC_DATA_BATCHES_H

#include "data/epoch.h"

/* Changes the order of an epoch so that the samples of a batch have like lengths, and finds where batches of up to
 * max_tokens end: a function of the epoch's order, the seed and the epoch. */
lc_status lc__batches_find(lc__epoch *e, int64_t epoch) LC_MUST_USE;

#endif
