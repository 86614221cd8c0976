/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives, as the operator table and the planner see them: x | the ints below | -> y. They have no kernel; the
 * planner makes two nodes of each (parallel/collectives/collectives.h).
 *
 * To add one: its name in the list, its type and its gradient in collective.c, its public function in
 * include/lightc/ops_comm.h, what it starts in parallel/collectives/collectives.c, and a row in
 * tests/support/collective_rows.h. */
#ifndef LC_OPS_OPS_COMM_H
#define LC_OPS_OPS_COMM_H

#include <lightc/ops_comm.h>

/* Rank and size are ints although the communicator knows them: a type may depend only on ints, and a plan must not
 * match another communicator at the address of a freed one. */
enum {
    LC__COMM_WHICH, /* lc_collective */
    LC__COMM_POINTER,
    LC__COMM_RANK,
    LC__COMM_SIZE,
    LC__COMM_ROOT,   /* or -1 */
    LC__COMM_REDUCE, /* lc_reduce_op */
    LC__COMM_INTS
};

#define LC_OPS_COMM_LIST(X)                                                                                            \
    X(all_reduce) X(reduce) X(broadcast) X(all_gather) X(reduce_scatter) X(gather_to) X(scatter_from) X(all_to_all)

#endif
