/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives in a plan (operators: ops/ops_comm.h): a peer of graphs that use them (record/peer.h). Each becomes two
 * nodes: "launch" copies x and starts the call, where the user recorded it, so that the order of calls is the order of
 * recording on every rank; "wait" completes it, just before the first node that reads the result. The executor moves
 * bytes between any two nodes. */
#ifndef LC_PARALLEL_COLLECTIVES_COLLECTIVES_H
#define LC_PARALLEL_COLLECTIVES_COLLECTIVES_H

#include <lightc/op.h>

struct lc_build;

/* The pass that makes these nodes, at LC_PHASE_SPLIT. Without b->optimize the wait follows its launch. */
lc_status lc__split_collectives(struct lc_build *b) LC_MUST_USE;

/* The operators of these nodes; ends with NULL. */
extern const lc_op *const lc__collective_ops[];

#endif
