/* SPDX-License-Identifier: Apache-2.0 */
/* An lc_comm_ops over MPI.
 *
 * MPI wants the collectives of a communicator begun in the same order on all ranks. Those here have several steps, so
 * they run one after another, in the order of their calls; send and receive run alongside.
 *
 * MPI calls cannot be canceled. After an error nothing is freed: neither the duplicate of the communicator nor memory
 * that MPI may still write to. */
#include "backend.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef LC_MPI_LARGE
#define LC_MPI_LARGE INT32_MAX /* bytes of all ranks up to which plain counts are used; tests make it small */
#endif

lc_status lc__mpi_check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (code == MPI_SUCCESS) return LC_OK;
    MPI_Error_string(code, text, &n);
    return lc_fail(LC_ERR_PEER, "%s: %.*s", what, n, text);
}

lc_status lc__mpi_type(const backend *x, int64_t bytes, MPI_Datatype *type, int *count)
{
    enum { BLOCK = LC_MPI_LARGE < 1 << 30 ? LC_MPI_LARGE : 1 << 30 };
    *type = MPI_BYTE;
    *count = (int)bytes;
    /* Open MPI multiplies rank and count as ints. */
    if (bytes <= LC_MPI_LARGE / x->size) return LC_OK;
    if (bytes / BLOCK > INT32_MAX)
        return lc_fail(LC_ERR_UNSUPPORTED, "MPI cannot move %lld bytes in one call", (long long)bytes);
    MPI_Datatype block = MPI_DATATYPE_NULL;
    int lengths[2] = {(int)(bytes / BLOCK), (int)(bytes % BLOCK)};
    MPI_Aint at[2] = {0, (MPI_Aint)(bytes - bytes % BLOCK)};
    *count = 1;
    LC_TRY(lc__mpi_check(MPI_Type_contiguous(BLOCK, MPI_BYTE, &block), "MPI_Type_contiguous"));
    MPI_Datatype types[2] = {block, MPI_BYTE};
    lc_status s = lc__mpi_check(MPI_Type_create_struct(2, lengths, at, types, type), "MPI_Type_create_struct");
    MPI_Type_free(&block);
    LC_TRY(s);
    return lc__mpi_check(MPI_Type_commit(type), "MPI_Type_commit");
}

void lc__mpi_untype(MPI_Datatype *type)
{
    if (*type != MPI_BYTE && *type != MPI_DATATYPE_NULL) MPI_Type_free(type);
}

lc_status lc__mpi_test(MPI_Request *request, const char *what, bool *done)
{
    int flag = 0;
    LC_TRY(lc__mpi_check(MPI_Test(request, &flag, MPI_STATUS_IGNORE), what));
    *done = flag;
    return LC_OK;
}

header lc__mpi_header(const lc_comm_call *call, uint64_t number)
{
    return (header){(uint32_t)call->op, (uint32_t)call->dtype, (uint32_t)call->reduce, call->peer, call->count, number};
}

/* ---- aborting ---- */

/* On the owner's thread. The letters are short, so that they leave at once; whether they arrive is never checked. */
static void send_abort(backend *x)
{
    for (int i = 0; i < x->size; i++)
        if (i != x->rank) MPI_Isend(x->why_out, WHY_BYTES, MPI_CHAR, i, TAG_ABORT, x->comm, &x->abort_out[i]);
    atomic_store(&x->aborted, 3);
}

static void abort_all(void *self, const char *why)
{
    backend *x = self;
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&x->aborted, &nobody, 1)) return;
    snprintf(x->why_out, sizeof x->why_out, "%s", why);
    lc__mpi_note_failure();
    atomic_store(&x->aborted, 2);
    if (pthread_equal(pthread_self(), x->owner)) send_abort(x);
}

static lc_status check_abort(backend *x)
{
    bool arrived = false;
    int aborted = atomic_load(&x->aborted);
    if (aborted == 2) send_abort(x);
    if (aborted >= 2) return lc_fail(LC_ERR_PEER, "%s", x->why_out);
    LC_TRY(lc__mpi_test(&x->abort_in, "waiting for other ranks", &arrived));
    if (!arrived) return LC_OK;
    x->why_in[WHY_BYTES - 1] = 0;
    return lc_fail(LC_ERR_PEER, "%s", x->why_in);
}

/* As in lc_comm_history, which does not count splits. */
static unsigned long long shown_number(const backend *x, const header *h)
{
    return h->op == LC_COMM_SEND || h->op == LC_COMM_RECV ? h->number : h->number - x->splits;
}

lc_status lc__mpi_mismatch(backend *x, int from, const header *got, const header *want)
{
    char theirs[LC_COMM_CALL_TEXT] = "", ours[LC_COMM_CALL_TEXT] = "", why[WHY_BYTES];
    const header *both[] = {got, want};
    for (int i = 0; i < 2; i++) {
        lc_comm_call call = {(lc_collective)both[i]->op,
                             (lc_reduce_op)both[i]->reduce,
                             (lc_dtype)both[i]->dtype,
                             both[i]->peer,
                             NULL,
                             NULL,
                             both[i]->count};
        lc_comm_call_text(&call, i ? ours : theirs, LC_COMM_CALL_TEXT);
    }
    snprintf(why, sizeof why,
             "the ranks make different calls: call %llu is %s on rank %d, and call %llu is %s on rank %d",
             shown_number(x, want), ours, x->rank, shown_number(x, got), theirs, from);
    abort_all(x, why);
    return lc_fail(LC_ERR_STATE, "%s", why);
}

static lc_status failed(backend *x, lc_status s)
{
    x->failed = true;
    lc__mpi_note_failure();
    return s;
}

/* ---- calls ---- */

static void append(queue *q, pending *p)
{
    if (q->last)
        q->last->next = p;
    else
        q->first = p;
    q->last = p;
}

static lc_status start(void *self, const lc_comm_call *call, void *state)
{
    backend *x = self;
    pending *p = state;
    p->call = *call;
    if (call->op != LC_COMM_SEND && call->op != LC_COMM_RECV) {
        append(&x->collectives, p);
        return LC_OK;
    }
    append(&x->direct, p);
    lc_status s = lc__mpi_direct_start(x, p);
    return s < 0 ? failed(x, s) : LC_OK;
}

static lc_status advance(backend *x)
{
    LC_TRY(check_abort(x));
    if (x->direct.first) LC_TRY(lc__mpi_direct(x));
    for (pending *p; (p = x->collectives.first) != NULL;) {
        bool done = false;
        LC_TRY(lc__mpi_collective(x, &p->call, &done));
        if (!done) break;
        x->collectives.first = p->next;
        if (!p->next) x->collectives.last = NULL;
        p->done = true;
        x->naps = 0;
    }
    return LC_OK;
}

static lc_status poll_all(void *self, void *state, bool *done)
{
    backend *x = self;
    lc_status s = advance(x);
    if (s < 0) return failed(x, s);
    if (state) *done = ((pending *)state)->done;
    return LC_OK;
}

/* Nothing wakes this rank: it polls, first often, then at intervals. (With more ranks than cores, Open MPI gives the
 * core away by itself.) */
static void idle(void *self, int microseconds)
{
    enum { SPINS = 3000, YIELDS = 500, NAP_US = 50 };
    backend *x = self;
    if (x->naps++ < SPINS) return;
    if (x->naps < SPINS + YIELDS) {
        sched_yield();
        return;
    }
    struct timespec t = {0, (microseconds < NAP_US ? microseconds : NAP_US) * 1000L};
    nanosleep(&t, NULL);
}

/* ---- making and freeing ---- */

static void free_memory(backend *x)
{
    for (letter *l = x->spare, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    free(x->slots[0].send);
    free(x->scratch);
    free(x->packets);
    free(x->parts);
    free(x->sent);
    free(x->abort_out);
    free(x);
}

static void backend_free(void *self)
{
    backend *x = self;
    int gone = 1;
    MPI_Finalized(&gone);
    if (x->failed || atomic_load(&x->aborted) || gone || x->collectives.first || x->direct.first) {
        lc__mpi_note_failure();
        return;
    }
    if (x->abort_in != MPI_REQUEST_NULL) {
        MPI_Cancel(&x->abort_in);
        MPI_Wait(&x->abort_in, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&x->comm);
    free_memory(x);
}

static bool allocate(backend *x)
{
    size_t n = (size_t)x->size;
    x->packets = aligned_alloc(64, (n + 1) * sizeof(packet));
    x->parts = calloc(n, sizeof *x->parts);
    x->sent = calloc(2 * n, sizeof *x->sent);
    x->received = x->sent ? x->sent + n : NULL;
    x->abort_out = calloc(n, sizeof *x->abort_out);
    int *counts = calloc(4 * n * SLOTS, sizeof *counts);
    for (int i = 0; i < SLOTS && counts; i++) {
        slot *s = &x->slots[i];
        s->scatter = s->gather = MPI_REQUEST_NULL;
        s->send = counts + 4 * n * (size_t)i;
        s->receive = s->send + n;
        s->whole = s->receive + n;
        s->at = s->whole + n;
    }
    return x->packets && x->parts && x->sent && x->abort_out && counts;
}

lc_status lc__mpi_backend_new(MPI_Comm comm, backend **out)
{
    lc_status status = LC_OK;
    backend *x = calloc(1, sizeof *x);
    if (!x) {
        MPI_Comm_free(&comm);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a communicator over MPI");
    }
    x->comm = comm;
    x->owner = pthread_self();
    x->abort_in = x->request = MPI_REQUEST_NULL;
    LC_TRY_GOTO(status, done,
                lc__mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
    LC_TRY_GOTO(status, done, lc__mpi_check(MPI_Comm_rank(comm, &x->rank), "MPI_Comm_rank"));
    LC_TRY_GOTO(status, done, lc__mpi_check(MPI_Comm_size(comm, &x->size), "MPI_Comm_size"));
    if (!allocate(x))
        LC_TRY_GOTO(status, done,
                    lc_fail(LC_ERR_MEMORY, "out of memory: a communicator of %d ranks over MPI", x->size));
    LC_TRY_GOTO(status, done,
                lc__mpi_check(MPI_Irecv(x->why_in, WHY_BYTES, MPI_CHAR, MPI_ANY_SOURCE, TAG_ABORT, comm, &x->abort_in),
                              "MPI_Irecv"));
    *out = x;
    x = NULL;
done:
    if (x) {
        MPI_Comm_free(&x->comm);
        free_memory(x);
    }
    return status;
}

/* MPI_Comm_split waits and cannot be interrupted, so it is called when all ranks have arrived. */
static lc_status split(void *self, int color, int key, int *rank, int *size, void **out)
{
    backend *x = self, *made = NULL;
    const lc_comm_call all = {.op = LC_COMM_BARRIER, .dtype = LC_U8, .peer = -1};
    MPI_Comm group = MPI_COMM_NULL;
    bool done = false;
    while (!done) {
        lc_status s = check_abort(x);
        if (s >= 0) s = lc__mpi_collective(x, &all, &done);
        if (s < 0) return failed(x, s);
        if (!done) idle(x, 50);
    }
    x->naps = 0;
    x->splits++;
    LC_TRY(lc__mpi_check(MPI_Comm_split(x->comm, color < 0 ? MPI_UNDEFINED : color, key, &group), "MPI_Comm_split"));
    if (group == MPI_COMM_NULL) return LC_OK;
    LC_TRY(lc__mpi_backend_new(group, &made));
    *rank = made->rank;
    *size = made->size;
    *out = made;
    return LC_OK;
}

const lc_comm_ops lc__mpi_ops = {
    LC_COMM_OPS_INIT("mpi"), .state_bytes = sizeof(pending), .start = start, .poll = poll_all,
    .split = split,          .free = backend_free,           .idle = idle,   .abort = abort_all,
};
