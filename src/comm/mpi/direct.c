/* SPDX-License-Identifier: Apache-2.0 */
/* Send and receive: a packet, followed by the data if they do not fit into it. The receive for the data is posted once
 * the packet has arrived, and packets of one sender are handled in order, so data goes to the right memory. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

static letter *take_letter(backend *x)
{
    letter *l = x->spare;
    if (l)
        x->spare = l->next;
    else
        l = aligned_alloc(64, (sizeof *l + 63) / 64 * 64);
    if (l) memset(l, 0, sizeof *l);
    return l;
}

lc_status lc__mpi_direct_start(backend *x, pending *p)
{
    int64_t bytes = lc__mpi_bytes(&p->call);
    int peer = p->call.peer, count;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    p->head = p->data = MPI_REQUEST_NULL;
    p->letter = take_letter(x);
    if (!p->letter) return lc_fail(LC_ERR_MEMORY, "out of memory: a message");
    packet *m = &p->letter->packet;
    if (p->call.op == LC_COMM_RECV) {
        p->number = ++x->received[peer];
        return lc__mpi_check(MPI_Irecv(m, sizeof *m, MPI_BYTE, peer, TAG_PACKET, x->comm, &p->head), "MPI_Irecv");
    }
    p->number = ++x->sent[peer];
    p->headed = true;
    m->header = lc__mpi_header(&p->call, p->number);
    if (bytes > 0 && bytes <= PACKET_DATA) memcpy(m->data, p->call.in, (size_t)bytes);
    LC_TRY(lc__mpi_check(MPI_Isend(m, sizeof *m, MPI_BYTE, peer, TAG_PACKET, x->comm, &p->head), "MPI_Isend"));
    if (bytes <= PACKET_DATA) return LC_OK;
    LC_TRY(lc__mpi_type(x, bytes, &type, &count));
    lc_status s = lc__mpi_check(MPI_Isend(p->call.in, count, type, peer, TAG_DATA, x->comm, &p->data), "MPI_Isend");
    lc__mpi_untype(&type);
    return s;
}

/* The packet of a receive has arrived. */
static lc_status open_letter(backend *x, pending *p)
{
    const packet *m = &p->letter->packet;
    const header *got = &m->header, want = lc__mpi_header(&p->call, p->number);
    int64_t bytes = lc__mpi_bytes(&p->call);
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int count;
    p->headed = true;
    if (got->op != LC_COMM_SEND || got->peer != x->rank || got->dtype != want.dtype || got->count != want.count ||
        got->number != want.number)
        return lc__mpi_mismatch(x, p->call.peer, got, &want);
    if (bytes > 0 && bytes <= PACKET_DATA) memcpy(p->call.out, m->data, (size_t)bytes);
    if (bytes <= PACKET_DATA) return LC_OK;
    LC_TRY(lc__mpi_type(x, bytes, &type, &count));
    lc_status s =
        lc__mpi_check(MPI_Irecv(p->call.out, count, type, p->call.peer, TAG_DATA, x->comm, &p->data), "MPI_Irecv");
    lc__mpi_untype(&type);
    return s;
}

/* Whether an earlier receive from the same rank still waits for its packet. */
static bool must_wait(const backend *x, const pending *p)
{
    for (const pending *q = x->direct.first; q != p; q = q->next)
        if (!q->headed && q->call.peer == p->call.peer) return true;
    return false;
}

static lc_status advance(backend *x, pending *p, bool *done)
{
    if (!p->headed && must_wait(x, p)) return LC_OK;
    LC_TRY(lc__mpi_test(&p->head, lc_collective_name(p->call.op), done));
    if (!*done) return LC_OK;
    if (!p->headed) LC_TRY(open_letter(x, p));
    return lc__mpi_test(&p->data, lc_collective_name(p->call.op), done);
}

lc_status lc__mpi_direct(backend *x)
{
    pending *before = NULL;
    for (pending *p = x->direct.first, *next; p; p = next) {
        bool done = false;
        next = p->next;
        LC_TRY(advance(x, p, &done));
        if (!done) {
            before = p;
            continue;
        }
        p->letter->next = x->spare;
        x->spare = p->letter;
        if (before)
            before->next = next;
        else
            x->direct.first = next;
        if (!next) x->direct.last = before;
        p->done = true;
        x->naps = 0;
    }
    return LC_OK;
}
