/* SPDX-License-Identifier: Apache-2.0 */
/* A call, whatever backend runs it: its text, the checks of its arguments, the bytes it moves. */
#include "comm/call.h"
#include "base/handle.h"

#include "comm/combine.h"

#include <stdio.h>

const char *lc_collective_name(lc_collective op)
{
    switch (op) {
#define NAME(id, value, text)                                                                                          \
    case id:                                                                                                           \
        return text;
        LC_COLLECTIVE_LIST(NAME)
#undef NAME
    default:
        return "?";
    }
}

void lc_comm_call_text(const lc_comm_call *call, char *text, size_t size)
{
    LC__NEEDS(call, );
    LC__NEEDS(text, );
    const char *name = lc_collective_name(call->op);
    long long n = (long long)call->count;
    switch (call->op) {
    case LC_COMM_BARRIER:
        snprintf(text, size, "%s", name);
        break;
    case LC_COMM_ALL_REDUCE:
    case LC_COMM_REDUCE_SCATTER:
        snprintf(text, size, "%s of %lld %s, %s", name, n, lc_dtype_name(call->dtype), lc__reduce_name(call->reduce));
        break;
    case LC_COMM_REDUCE:
        snprintf(text, size, "%s of %lld %s, %s, to rank %d", name, n, lc_dtype_name(call->dtype),
                 lc__reduce_name(call->reduce), call->peer);
        break;
    case LC_COMM_GATHER:
    case LC_COMM_SEND:
        snprintf(text, size, "%s of %lld %s to rank %d", name, n, lc_dtype_name(call->dtype), call->peer);
        break;
    case LC_COMM_BROADCAST:
    case LC_COMM_SCATTER:
    case LC_COMM_RECV:
        snprintf(text, size, "%s of %lld %s from rank %d", name, n, lc_dtype_name(call->dtype), call->peer);
        break;
    default:
        snprintf(text, size, "%s of %lld %s", name, n, lc_dtype_name(call->dtype));
    }
}

bool lc__call_is_direct(lc_collective op)
{
    return op == LC_COMM_SEND || op == LC_COMM_RECV;
}

static bool needs_in(const lc_comm_call *call, int rank)
{
    switch (call->op) {
    case LC_COMM_BARRIER:
    case LC_COMM_RECV:
        return false;
    case LC_COMM_BROADCAST:
    case LC_COMM_SCATTER:
        return call->peer == rank;
    default:
        return true;
    }
}

static bool needs_out(const lc_comm_call *call, int rank)
{
    switch (call->op) {
    case LC_COMM_BARRIER:
    case LC_COMM_SEND:
        return false;
    case LC_COMM_REDUCE:
    case LC_COMM_GATHER:
        return call->peer == rank;
    default:
        return true;
    }
}

bool lc__call_has_peer(lc_collective op)
{
    return op == LC_COMM_BROADCAST || op == LC_COMM_REDUCE || op == LC_COMM_SCATTER || op == LC_COMM_GATHER ||
           lc__call_is_direct(op);
}

/* Whether the call works in place as it may: in == out, or one is this rank's part of the other. */
static bool is_in_place(const lc_comm_call *call, int rank, size_t part)
{
    switch (call->op) {
    case LC_COMM_REDUCE:
    case LC_COMM_ALL_REDUCE:
        return call->in == call->out;
    case LC_COMM_ALL_GATHER:
        return (uintptr_t)call->in == (uintptr_t)call->out + (size_t)rank * part;
    case LC_COMM_REDUCE_SCATTER:
        return (uintptr_t)call->out == (uintptr_t)call->in + (size_t)rank * part;
    default:
        return false;
    }
}

static lc_status check_overlap(const lc_comm_call *call, int rank, int size, size_t part)
{
    static const char *const may_be[LC_COLLECTIVES] = {
        [LC_COMM_REDUCE] = ", or be identical",
        [LC_COMM_ALL_REDUCE] = ", or be identical",
        [LC_COMM_ALL_GATHER] = ", or `in` must be this rank's part of `out`",
        [LC_COMM_REDUCE_SCATTER] = ", or `out` must be this rank's part of `in`",
    };
    bool gives_parts =
        call->op == LC_COMM_SCATTER || call->op == LC_COMM_REDUCE_SCATTER || call->op == LC_COMM_ALL_TO_ALL;
    bool gets_parts = call->op == LC_COMM_GATHER || call->op == LC_COMM_ALL_GATHER || call->op == LC_COMM_ALL_TO_ALL;
    size_t n_in = gives_parts ? part * (size_t)size : part, n_out = gets_parts ? part * (size_t)size : part;
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    if (call->op == LC_COMM_BROADCAST || !needs_in(call, rank) || !needs_out(call, rank)) return LC_OK;
    if (in + n_in <= out || out + n_out <= in || is_in_place(call, rank, part)) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: `in` and `out` overlap on rank %d; they must not overlap%s",
                   lc_collective_name(call->op), rank, may_be[call->op] ? may_be[call->op] : "");
}

lc_status lc__call_check(const lc_comm_call *call, int rank, int size)
{
    const char *name = lc_collective_name(call->op);
    if (call->op < LC_COMM_BARRIER || call->op >= LC_COLLECTIVES)
        return lc_fail(LC_ERR_ARGUMENT, "%d is not a collective", (int)call->op);
    if (call->op == LC_COMM_BARRIER) return LC_OK;
    size_t width = lc_dtype_size(call->dtype);
    if (!width) return lc_fail(LC_ERR_DTYPE, "%s: %d is not a data type", name, (int)call->dtype);
    if (call->count < 0 || call->count > INT64_MAX / (int64_t)width / size)
        return lc_fail(LC_ERR_ARGUMENT, "%s: count is %lld", name, (long long)call->count);
    if (lc__call_has_peer(call->op) && (call->peer < 0 || call->peer >= size))
        return lc_fail(LC_ERR_ARGUMENT, "%s: there is no rank %d; there are 0 to %d", name, call->peer, size - 1);
    if (lc__reduces(call->op)) LC_TRY(lc__combine_check(call->dtype, call->reduce));
    if (call->count && ((needs_in(call, rank) && !call->in) || (needs_out(call, rank) && !call->out)))
        return lc_fail(LC_ERR_ARGUMENT, "%s: rank %d needs a buffer but got NULL", name, rank);
    return call->count ? check_overlap(call, rank, size, (size_t)call->count * width) : LC_OK;
}

int64_t lc__call_to_send(const lc_comm_call *call, int rank, int size)
{
    int64_t n = size, bytes = call->count * (int64_t)lc_dtype_size(call->dtype);
    bool root = call->peer == rank;
    if (n == 1) return 0;
    switch (call->op) {
    case LC_COMM_ALL_REDUCE:
        return 2 * bytes * (n - 1) / n;
    case LC_COMM_BROADCAST:
        return bytes * (root ? 2 * (n - 1) : n - 2) / n;
    case LC_COMM_REDUCE:
    case LC_COMM_GATHER:
        return root ? 0 : bytes;
    case LC_COMM_SCATTER:
        return root ? bytes * (n - 1) : 0;
    case LC_COMM_ALL_GATHER:
    case LC_COMM_REDUCE_SCATTER:
    case LC_COMM_ALL_TO_ALL:
        return bytes * (n - 1);
    case LC_COMM_SEND:
        return root ? 0 : bytes;
    default:
        return 0;
    }
}
