/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting flat buffers into units and slices (tensor/slice.h has their form), and making them whole again. */
#ifndef LC_PARALLEL_SHARD_SHARD_H
#define LC_PARALLEL_SHARD_SHARD_H

#include "tensor/slice.h"

/* Shards a flat buffer among the ranks of `comm`, which must have the same values in it; of initial ones each makes its
 * slices. Its parameters move, gradients are lost. One that is sharded in this way already stays so, in another way is
 * made whole first. replicas: the ranks of all copies that will have this rank's slice; NULL: there is one copy.
 * unit_bytes: of parameters, see above. Collective. */
lc_status lc__flat_shard(lc_flat *flat, lc_comm *comm, lc_comm *replicas, int stage, size_t unit_bytes,
                         const void *owner) LC_MUST_USE;
/* Stage 3: parameters are whole again on every rank; the rest stays as it is. Collective. */
lc_status lc__flat_gather(lc_flat *flat) LC_MUST_USE;
#endif
