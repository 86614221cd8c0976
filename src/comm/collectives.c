/* SPDX-License-Identifier: Apache-2.0 */
/* A function for each call of lc_comm_start. */
#include "lightc/comm.h"
#include "base/handle.h"

lc_status lc_comm_barrier(lc_comm *c, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){.op = LC_COMM_BARRIER}, r);
}

lc_status lc_comm_broadcast(lc_comm *c, void *data, int64_t count, lc_dtype dtype, int root, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(
        c,
        &(lc_comm_call){.op = LC_COMM_BROADCAST, .dtype = dtype, .peer = root, .in = data, .out = data, .count = count},
        r);
}

lc_status lc_comm_reduce(lc_comm *c, const void *in, void *out, int64_t count, lc_dtype dtype, lc_reduce_op op,
                         int root, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_REDUCE, op, dtype, root, in, out, count}, r);
}

lc_status lc_comm_all_reduce(lc_comm *c, const void *in, void *out, int64_t count, lc_dtype dtype, lc_reduce_op op,
                             lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_ALL_REDUCE, op, dtype, -1, in, out, count}, r);
}

lc_status lc_comm_scatter(lc_comm *c, const void *in, void *out, int64_t count, lc_dtype dtype, int root,
                          lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_SCATTER, 0, dtype, root, in, out, count}, r);
}

lc_status lc_comm_gather(lc_comm *c, const void *in, void *out, int64_t count, lc_dtype dtype, int root, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_GATHER, 0, dtype, root, in, out, count}, r);
}

lc_status lc_comm_all_gather(lc_comm *c, const void *in, void *out, int64_t count, lc_dtype dtype, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_ALL_GATHER, 0, dtype, -1, in, out, count}, r);
}

lc_status lc_comm_reduce_scatter(lc_comm *c, const void *in, void *out, int64_t count, lc_dtype dtype, lc_reduce_op op,
                                 lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_REDUCE_SCATTER, op, dtype, -1, in, out, count}, r);
}

lc_status lc_comm_all_to_all(lc_comm *c, const void *in, void *out, int64_t count, lc_dtype dtype, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_ALL_TO_ALL, 0, dtype, -1, in, out, count}, r);
}

lc_status lc_comm_send(lc_comm *c, const void *data, int64_t count, lc_dtype dtype, int peer, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_SEND, 0, dtype, peer, data, NULL, count}, r);
}

lc_status lc_comm_recv(lc_comm *c, void *data, int64_t count, lc_dtype dtype, int peer, lc_request **r)
{
    LC__IS(c, COMM, LC_ERR_ARGUMENT);
    return lc_comm_start(c, &(lc_comm_call){LC_COMM_RECV, 0, dtype, peer, NULL, data, count}, r);
}
