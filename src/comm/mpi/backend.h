/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in liblightc_mpi. It uses only lightc's public headers, so that a site can build it with its own mpicc:
 *
 *   world.c        starting MPI, and what host programs and lc_comm_mpi call
 *   backend.c      an lc_comm_ops: the queue of calls, groups, aborts
 *   collective.c   the collectives, on MPI's non-blocking ones
 *   direct.c       send and receive */
#ifndef LC_COMM_MPI_BACKEND_H
#define LC_COMM_MPI_BACKEND_H

#include <lightc/comm_mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum { TAG_PACKET = 1, TAG_DATA, TAG_ABORT };
enum { PACKET_DATA = 192, WHY_BYTES = 512, SLOTS = 3 };

/* Description of a call, which ranks exchange before they rely on it. */
typedef struct header {
    uint32_t op, dtype, reduce;
    int32_t peer;
    int64_t count;
    uint64_t number;
} header;

/* Every call begins with a packet; small calls end with it too, because it holds their data. */
typedef struct packet {
    header header;
    _Alignas(64) unsigned char data[PACKET_DATA];
} packet;

/* Memory of a message that MPI works on. */
typedef struct letter {
    packet packet;
    struct letter *next;
} letter;

/* A call under way. */
typedef struct pending {
    lc_comm_call call;
    struct pending *next;
    uint64_t number;
    bool done;
    /* for send and receive */
    letter *letter;
    MPI_Request head, data;
    bool headed; /* the packet has arrived, and the data is under way */
} pending;

typedef struct queue {
    pending *first, *last;
} queue;

/* A piece of a reduction on its way: to the ranks that combine it, and from them. */
typedef struct slot {
    MPI_Request scatter, gather;
    char *scratch;
    int *send, *receive, *whole, *at; /* [size] bytes, which MPI reads while it works */
} slot;

typedef enum stage { STAGE_IDLE, STAGE_PACKETS, STAGE_MOVE, STAGE_REDUCE } stage;

typedef struct backend {
    MPI_Comm comm;
    int rank, size;
    pthread_t owner;
    bool failed;
    int naps;
    letter *spare;
    queue direct;
    uint64_t *sent, *received; /* [size] numbers of direct calls */
    /* the running collective: the first one */
    queue collectives;
    stage stage;
    uint64_t number, splits; /* collectives so far, and how many of them were made by splits */
    packet *packets;         /* [size], and this rank's */
    MPI_Request request;
    const void **parts;
    char *scratch; /* of all slots */
    int64_t round_bytes, rounds, begun, combined, finished;
    slot slots[SLOTS];
    /* aborting */
    MPI_Request abort_in, *abort_out;
    char why_in[WHY_BYTES], why_out[WHY_BYTES];
    atomic_int aborted; /* 1: `why_out` is being written; 2: it must be sent; 3: it was sent */
} backend;

/* An error of MPI, as a status with MPI's message. */
lc_status lc__mpi_check(int code, const char *what) LC_MUST_USE;
/* `bytes` bytes as a count of a type: MPI's counts are ints. The type is freed with lc__mpi_untype, also while it is in
 * use. */
lc_status lc__mpi_type(const backend *x, int64_t bytes, MPI_Datatype *type, int *count) LC_MUST_USE;
void lc__mpi_untype(MPI_Datatype *type);
lc_status lc__mpi_test(MPI_Request *request, const char *what, bool *done) LC_MUST_USE;

header lc__mpi_header(const lc_comm_call *call, uint64_t number);
/* Reports it to all ranks, and returns this rank's error. */
lc_status lc__mpi_mismatch(backend *x, int from, const header *got, const header *want);

static inline int64_t lc__mpi_bytes(const lc_comm_call *call)
{
    return call->count * (int64_t)lc_dtype_size(call->dtype);
}

/* Takes ownership of the duplicate `comm`, also on failure. */
lc_status lc__mpi_backend_new(MPI_Comm comm, backend **out) LC_MUST_USE;
extern const lc_comm_ops lc__mpi_ops;

/* Advances the first collective; *done: it is complete. */
lc_status lc__mpi_collective(backend *x, const lc_comm_call *call, bool *done) LC_MUST_USE;
lc_status lc__mpi_direct_start(backend *x, pending *p) LC_MUST_USE;
lc_status lc__mpi_direct(backend *x) LC_MUST_USE;

/* Notes that a communicator of this process has failed, so that MPI cannot be finalized in order (world.c). */
void lc__mpi_note_failure(void);

#endif
