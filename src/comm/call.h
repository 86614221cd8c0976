/* SPDX-License-Identifier: Apache-2.0 */
/* A collective call: which ranks take part, whether its arguments are valid, how many bytes it moves. */
#ifndef LC_COMM_CALL_H
#define LC_COMM_CALL_H

#include <lightc/comm.h>

static inline bool lc__reduces(lc_collective op)
{
    return op == LC_COMM_ALL_REDUCE || op == LC_COMM_REDUCE_SCATTER || op == LC_COMM_REDUCE;
}

/* Whether it is a send or a receive, in which only two ranks take part. */
bool lc__call_is_direct(lc_collective op);
/* Whether `peer` of a call is a rank. */
bool lc__call_has_peer(lc_collective op);
/* Whether rank `rank` of `size` may make the call, with these arguments. */
lc_status lc__call_check(const lc_comm_call *call, int rank, int size) LC_MUST_USE;
/* Bytes that this rank has to send for it, whatever the algorithm. */
int64_t lc__call_to_send(const lc_comm_call *call, int rank, int size);

#endif
