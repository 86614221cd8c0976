/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives over MPI's non-blocking ones.
 *
 * A call begins with MPI_Iallgather of one packet from each rank, which says what the call is. So ranks that make
 * different calls learn it before MPI is asked for something undefined; no rank leaves a barrier early; and calls whose
 * data fits into the packets are then done. For other calls, MPI's collective of the same name follows.
 *
 * Reductions are different, since MPI may add in any order. They go in rounds: by MPI_Ialltoallv to the ranks that
 * combine them (each of N ranks a part), then by MPI_Iallgatherv to all, several rounds at a time. That moves no more
 * bytes than MPI's own algorithms for large reductions do. All ranks begin the same rounds in the same order, as MPI
 * demands: the second step of a round comes after the first step of the next SLOTS-1 ones. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a round: what fits into caches, but from each rank no less than is worth a message. */
#ifndef LC_MPI_ROUND
#define LC_MPI_ROUND (1 << 20)
#endif
enum { GRAIN = 64, LEAST_PART = LC_MPI_ROUND < 8192 ? GRAIN : 8192 };

static bool reduces(const lc_comm_call *call)
{
    return call->op == LC_COMM_ALL_REDUCE || call->op == LC_COMM_REDUCE_SCATTER || call->op == LC_COMM_REDUCE;
}

static int64_t round_up(int64_t n)
{
    return (n + GRAIN - 1) / GRAIN * GRAIN;
}

/* ---- packets ---- */

/* Bytes that a rank puts into its packet; more than PACKET_DATA: nothing. */
static int64_t small_bytes(const backend *x, const lc_comm_call *call)
{
    int64_t bytes = lc__mpi_bytes(call);
    bool of_each = call->op == LC_COMM_SCATTER || call->op == LC_COMM_REDUCE_SCATTER || call->op == LC_COMM_ALL_TO_ALL;
    return of_each && bytes <= PACKET_DATA ? bytes * x->size : bytes;
}

static lc_status begin(backend *x, const lc_comm_call *call)
{
    packet *mine = &x->packets[x->size];
    int64_t bytes = small_bytes(x, call);
    bool gives = (call->op != LC_COMM_BROADCAST && call->op != LC_COMM_SCATTER) || call->peer == x->rank;
    memset(mine, 0, sizeof *mine);
    mine->header = lc__mpi_header(call, ++x->number);
    if (gives && bytes > 0 && bytes <= PACKET_DATA) memcpy(mine->data, call->in, (size_t)bytes);
    x->stage = STAGE_PACKETS;
    return lc__mpi_check(
        MPI_Iallgather(mine, sizeof *mine, MPI_BYTE, x->packets, sizeof *mine, MPI_BYTE, x->comm, &x->request),
        "MPI_Iallgather");
}

static lc_status compare(backend *x)
{
    const header *own = &x->packets[x->size].header;
    for (int i = 0; i < x->size; i++)
        if (memcmp(&x->packets[i].header, own, sizeof *own) != 0)
            return lc__mpi_mismatch(x, i, &x->packets[i].header, own);
    return LC_OK;
}

static void combine_packets(backend *x, const lc_comm_call *call, int64_t offset)
{
    for (int i = 0; i < x->size; i++) x->parts[i] = x->packets[i].data + offset;
    lc_comm_combine(call->dtype, call->reduce, x->size, x->parts, call->out, call->count);
}

/* The packets held all the data. */
static void finish_small(backend *x, const lc_comm_call *call)
{
    size_t bytes = (size_t)lc__mpi_bytes(call);
    bool root = call->peer == x->rank;
    char *out = call->out;
    if (!bytes) return;
    switch (call->op) {
    case LC_COMM_BROADCAST:
        if (!root) memcpy(out, x->packets[call->peer].data, bytes);
        break;
    case LC_COMM_SCATTER:
        memcpy(out, x->packets[call->peer].data + (size_t)x->rank * bytes, bytes);
        break;
    case LC_COMM_GATHER:
    case LC_COMM_ALL_GATHER:
        for (int i = 0; i < x->size && (root || call->op == LC_COMM_ALL_GATHER); i++)
            memcpy(out + (size_t)i * bytes, x->packets[i].data, bytes);
        break;
    case LC_COMM_ALL_TO_ALL:
        for (int i = 0; i < x->size; i++)
            memcpy(out + (size_t)i * bytes, x->packets[i].data + (size_t)x->rank * bytes, bytes);
        break;
    case LC_COMM_REDUCE_SCATTER:
        combine_packets(x, call, x->rank * (int64_t)bytes);
        break;
    case LC_COMM_ALL_REDUCE:
        combine_packets(x, call, 0);
        break;
    case LC_COMM_REDUCE:
        if (root) combine_packets(x, call, 0);
        break;
    default:
        break;
    }
}

/* ---- calls that only move data ---- */

static lc_status begin_move(backend *x, const lc_comm_call *call)
{
    int64_t bytes = lc__mpi_bytes(call);
    const char *in = call->in;
    char *out = call->out;
    bool root = call->peer == x->rank;
    MPI_Datatype t = MPI_DATATYPE_NULL;
    int n, code;
    LC_TRY(lc__mpi_type(x, bytes, &t, &n));
    switch (call->op) {
    case LC_COMM_BROADCAST: /* on the root, MPI only reads it */
        code = MPI_Ibcast(root ? (void *)(uintptr_t)in : out, n, t, call->peer, x->comm, &x->request);
        break;
    case LC_COMM_SCATTER:
        code = MPI_Iscatter(in, n, t, out, n, t, call->peer, x->comm, &x->request);
        break;
    case LC_COMM_GATHER:
        code = MPI_Igather(in, n, t, out, n, t, call->peer, x->comm, &x->request);
        break;
    case LC_COMM_ALL_GATHER:
        code = MPI_Iallgather(in == out + x->rank * bytes ? MPI_IN_PLACE : in, n, t, out, n, t, x->comm, &x->request);
        break;
    default:
        code = MPI_Ialltoall(in, n, t, out, n, t, x->comm, &x->request);
    }
    lc__mpi_untype(&t);
    return lc__mpi_check(code, lc_collective_name(call->op));
}

/* ---- reductions ---- */

static int64_t total(const backend *x, const lc_comm_call *call)
{
    return lc__mpi_bytes(call) * (call->op == LC_COMM_REDUCE_SCATTER ? x->size : 1);
}

/* Where a round begins in each rank's part (for reduce_scatter: the user's part; else the whole), and its bytes
 * there. */
static int64_t place(const backend *x, const lc_comm_call *call, int64_t round, int64_t *bytes)
{
    int64_t step = call->op == LC_COMM_REDUCE_SCATTER ? x->round_bytes / x->size : x->round_bytes;
    int64_t at = round * step, left = lc__mpi_bytes(call) - at;
    *bytes = left < step ? left : step;
    return at;
}

/* Bytes of the part that `rank` combines in a round; *stride between parts in the scratch memory. */
static int64_t part_of(const backend *x, const lc_comm_call *call, int64_t bytes, int rank, int64_t *stride)
{
    if (call->op == LC_COMM_REDUCE_SCATTER) {
        *stride = round_up(bytes);
        return bytes;
    }
    *stride = round_up((bytes + x->size - 1) / x->size);
    int64_t left = bytes - rank * *stride;
    return left < 0 ? 0 : left < *stride ? left : *stride;
}

static lc_status begin_reduction(backend *x, const lc_comm_call *call)
{
    if (!x->scratch) {
        int64_t least = (int64_t)LEAST_PART * x->size, wanted = LC_MPI_ROUND;
        int64_t bytes = round_up((wanted > least ? wanted : least) / x->size) * x->size;
        x->scratch = aligned_alloc(4096, (size_t)((bytes * SLOTS + 4095) / 4096 * 4096));
        if (!x->scratch)
            return lc_fail(LC_ERR_MEMORY, "out of memory: %lld bytes for reductions", (long long)bytes * SLOTS);
        x->round_bytes = bytes;
        for (int i = 0; i < SLOTS; i++) x->slots[i].scratch = x->scratch + i * bytes;
    }
    x->rounds = (total(x, call) + x->round_bytes - 1) / x->round_bytes;
    x->begun = x->combined = x->finished = 0;
    return LC_OK;
}

static const char *contribution(const lc_comm_call *call, int64_t at, int64_t stride, int rank)
{
    const char *in = call->in;
    return call->op == LC_COMM_REDUCE_SCATTER ? in + rank * lc__mpi_bytes(call) + at : in + at + rank * stride;
}

/* The parts of reduce_scatter are far apart: each is a type with its address. */
static lc_status scatter_far(backend *x, const lc_comm_call *call, slot *s, int64_t at, int n)
{
    MPI_Datatype piece = MPI_DATATYPE_NULL, spaced = MPI_DATATYPE_NULL;
    LC_TRY(lc__mpi_check(MPI_Type_contiguous(n, MPI_BYTE, &piece), "MPI_Type_contiguous"));
    int code = MPI_Type_create_resized(piece, 0, (MPI_Aint)lc__mpi_bytes(call), &spaced);
    MPI_Type_free(&piece);
    LC_TRY(lc__mpi_check(code, "MPI_Type_create_resized"));
    LC_TRY(lc__mpi_check(MPI_Type_commit(&spaced), "MPI_Type_commit"));
    for (int i = 0; i < x->size; i++) s->send[i] = i != x->rank, s->whole[i] = i;
    code = MPI_Ialltoallv((const char *)call->in + at, s->send, s->whole, spaced, s->scratch, s->receive, s->at,
                          MPI_BYTE, x->comm, &s->scatter);
    MPI_Type_free(&spaced);
    return lc__mpi_check(code, "MPI_Ialltoallv");
}

static lc_status scatter_round(backend *x, const lc_comm_call *call, int64_t round)
{
    slot *s = &x->slots[round % SLOTS];
    int64_t bytes, stride, at = place(x, call, round, &bytes);
    for (int i = 0; i < x->size; i++) {
        bool other = i != x->rank;
        s->whole[i] = (int)part_of(x, call, bytes, i, &stride);
        s->send[i] = other ? s->whole[i] : 0;
        s->receive[i] = other ? (int)part_of(x, call, bytes, x->rank, &stride) : 0;
        s->at[i] = (int)(i * stride);
    }
    if (call->op == LC_COMM_REDUCE_SCATTER) return scatter_far(x, call, s, at, (int)bytes);
    return lc__mpi_check(MPI_Ialltoallv((const char *)call->in + at, s->send, s->at, MPI_BYTE, s->scratch, s->receive,
                                        s->at, MPI_BYTE, x->comm, &s->scatter),
                         "MPI_Ialltoallv");
}

static lc_status combine_round(backend *x, const lc_comm_call *call, int64_t round)
{
    slot *s = &x->slots[round % SLOTS];
    int64_t bytes, stride, at = place(x, call, round, &bytes), n = part_of(x, call, bytes, x->rank, &stride);
    char *out = call->out, *to = out ? out + at : NULL; /* NULL: a reduction to another rank */
    bool root = call->peer == x->rank;
    for (int i = 0; i < x->size; i++) x->parts[i] = s->scratch + i * stride;
    x->parts[x->rank] = contribution(call, at, stride, x->rank);
    if (call->op == LC_COMM_ALL_REDUCE || (call->op == LC_COMM_REDUCE && root)) to = out + at + x->rank * stride;
    if (call->op == LC_COMM_REDUCE && !root) to = s->scratch + x->rank * stride;
    lc_comm_combine(call->dtype, call->reduce, x->size, x->parts, to, n / (int64_t)lc_dtype_size(call->dtype));
    if (call->op == LC_COMM_ALL_REDUCE)
        return lc__mpi_check(
            MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, out + at, s->whole, s->at, MPI_BYTE, x->comm, &s->gather),
            "MPI_Iallgatherv");
    if (call->op == LC_COMM_REDUCE)
        return lc__mpi_check(MPI_Igatherv(root ? MPI_IN_PLACE : to, (int)n, MPI_BYTE, root ? out + at : NULL, s->whole,
                                          s->at, MPI_BYTE, call->peer, x->comm, &s->gather),
                             "MPI_Igatherv");
    return LC_OK;
}

static lc_status advance_rounds(backend *x, const lc_comm_call *call, bool *done)
{
    for (bool moved = true; moved;) {
        bool here = false;
        moved = false;
        if (x->begun < x->rounds && x->begun < x->finished + SLOTS) {
            LC_TRY(scatter_round(x, call, x->begun++));
            moved = true;
        }
        if (x->combined < x->begun && (x->begun == x->rounds || x->begun >= x->combined + SLOTS)) {
            LC_TRY(lc__mpi_test(&x->slots[x->combined % SLOTS].scatter, lc_collective_name(call->op), &here));
            if (here) LC_TRY(combine_round(x, call, x->combined++));
            moved = moved || here;
        }
        if (x->finished < x->combined) {
            LC_TRY(lc__mpi_test(&x->slots[x->finished % SLOTS].gather, lc_collective_name(call->op), &here));
            if (here) x->finished++;
            moved = moved || here;
        }
        if (moved) x->naps = 0;
    }
    *done = x->finished == x->rounds;
    return LC_OK;
}

/* ---- a call, step by step ---- */

static lc_status after_packets(backend *x, const lc_comm_call *call, bool *done)
{
    LC_TRY(compare(x));
    if (small_bytes(x, call) <= PACKET_DATA) {
        finish_small(x, call);
        *done = true;
        return LC_OK;
    }
    *done = false;
    x->stage = reduces(call) ? STAGE_REDUCE : STAGE_MOVE;
    return reduces(call) ? begin_reduction(x, call) : begin_move(x, call);
}

lc_status lc__mpi_collective(backend *x, const lc_comm_call *call, bool *done)
{
    const char *name = lc_collective_name(call->op);
    *done = false;
    if (x->stage == STAGE_IDLE) LC_TRY(begin(x, call));
    if (x->stage == STAGE_PACKETS) {
        LC_TRY(lc__mpi_test(&x->request, name, done));
        if (*done) LC_TRY(after_packets(x, call, done));
    } else if (x->stage == STAGE_MOVE) {
        LC_TRY(lc__mpi_test(&x->request, name, done));
    }
    if (x->stage == STAGE_REDUCE && !*done) LC_TRY(advance_rounds(x, call, done));
    if (*done) x->stage = STAGE_IDLE;
    return LC_OK;
}
