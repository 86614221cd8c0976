/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting flat buffers into units and slices (tensor/slice.h has their layout), and making them whole again. */
#ifndef LC_PARALLEL_SHARD_SHARD_H
#define LC_PARALLEL_SHARD_SHARD_H

#include "tensor/slice.h"

/* Shards a flat buffer among the ranks of `comm`. They must have the same values in it; from initial values each rank
 * makes its own slices. Parameters move, gradients are lost. A buffer that is already sharded in this way stays as it
 * is; one that is sharded in another way is made whole first. replicas: the ranks of all copies that will have this
 * rank's slice; NULL: there is one copy. unit_bytes: size of a unit's parameters. Collective. */
lc_status lc__flat_shard(lc_flat *flat, lc_comm *comm, lc_comm *replicas, int stage, size_t unit_bytes,
                         const void *owner) LC_MUST_USE;
/* Stage 3: makes parameters whole again on every rank; the rest stays sharded. Collective. */
lc_status lc__flat_gather(lc_flat *flat) LC_MUST_USE;
#endif
