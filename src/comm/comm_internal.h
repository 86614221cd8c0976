/* SPDX-License-Identifier: Apache-2.0 */
/* How the rooms of src/comm depend on each other:
 *
 *   comm.c        what users call: requests, statistics, groups; call.c: what a call is; history.c: the last calls
 *   combine.c     the arithmetic of reductions
 *   memory.c      memory that ranks of a host use in place
 *   progress_thread.c  carries calls on while their rank computes
 *   exchange/     exchange.c, groups.c: collectives over streams of bytes between each two ranks, the one
 *                 implementation used by self, threads, shm, tcp and their mixtures, each of which is a transport
 *                 communicator.c: a communicator made of them
 *                 schedule.c: what a collective consists of; two_levels.c: where ranks live on several hosts
 *                 exposed.c: memory of ranks that the others of a host use in place
 *   transport/    rings.c: in shared memory, of threads of a process (threads.c) or processes of a host (shm.c)
 *                 tcp.c: between hosts; tcp_place.c: where a rank is reached; tcp_mesh.c: its connections
 *                 tcp_lanes.c: bytes between rings and a connection; tcp_records.c: if it is sealed
 *                 mixed.c: the rings between ranks of a host, tcp, or relay.c over mpi, between hosts
 *                 mpi_plugin.c: opens the plug-in liblightc_mpi, whose files are in mpi/
 *                 fake.c: no ranks at all
 *   control/      how ranks find each other and hear of the end (wire.c: the messages)
 *   coordinator/  the other end
 *   net/          proof*.c: how ends of a connection show that they know the run's secret; seal_*.c: sealed messages
 *                 socket.c: what is the same for all TCP connections; guests.c: those that have proven nothing
 *   world/        which rank a process is, joining, leaving */
#ifndef LC_COMM_INTERNAL_H
#define LC_COMM_INTERNAL_H

#include <lightc/comm.h>

/* ---- transports ----
 * Between each two ranks, in each direction, there are LC__LANES streams of bytes, in order and without loss. Every
 * message starts and ends on a multiple of LC__GRAIN bytes, and so do the buffers: what `room` and `peek` return is
 * contiguous and never ends inside of an element, but at the end of a message that is padded. */
enum { LC__LANE_COLLECTIVE = 0, LC__LANE_DIRECT, LC__LANES, LC__LANE_ANSWERED = LC__LANES, LC__GRAIN = 64 };

#define LC__NO_PUT SIZE_MAX
/* The rank that left, and the rank that waits for it. */
#define LC__MISSED_TEXT "rank %d has left the group while rank %d still waits for it"

typedef lc_meeting lc__meeting;

typedef struct lc__transport_ops {
    const char *name;
    /* Bytes are held up because the receiving side has little room: see `sleep` of lc_comm_ops, which is `idle`
     * here. */
    bool wants_thread;
    /* The ranks are processes of one host, which can map each other's files: /proc/PID/fd/N. */
    bool sees_files;
    /* OPTIONAL: what groups are opened with, in place of `opening`; NULL where color is negative. Collective over the
     * ranks that are divided into groups, of which none has another call under way. */
    lc_status (*prepare)(void *self, int color, int key, void **opening);
    /* Collective; size is at least 2. */
    lc_status (*open)(void *opening, int rank, int size, const lc__meeting *meeting, void **out);
    void (*close)(void *self);
    /* Where bytes for `peer` may be written: up to the returned number, a multiple of LC__GRAIN. Called only for a
     * message that is not through. */
    size_t (*room)(void *self, int peer, int lane, void **at);
    void (*commit)(void *self, int peer, int lane, size_t n);
    /* OPTIONAL: in place of both, for many bytes: takes some of them in place, as much of the stream as it returns, in
     * whole grains (zeros after the last of the n bytes); 0: later. LC__NO_PUT: not to this peer. */
    size_t (*put)(void *self, int peer, int lane, const void *data, size_t n);
    /* OPTIONAL: whether all that was committed is out of this rank's hands, so that it moves on without `progress`. A
     * call is not done before. NULL: always. */
    bool (*sent)(void *self, int peer, int lane);
    /* Where bytes from `peer` are. */
    size_t (*peek)(void *self, int peer, int lane, const void **at);
    void (*consume)(void *self, int peer, int lane, size_t n);
    /* OPTIONAL: one more lane, LC__LANE_ANSWERED. Its reader writes an answer over the bytes that it consumes; their
     * writer finds it where `peek_answer` says, and has room again for as much as it takes. Both are called by a rank
     * that waits for answers. */
    size_t (*peek_answer)(void *self, int peer, const void **at);
    void (*take_answer)(void *self, int peer, size_t n);
    /* OPTIONAL: there is nothing from `peer`, and this rank waits for it. */
    void (*miss)(void *self, int peer, int lane);
    /* Moves bytes, without waiting; an error when a rank is lost or the group was aborted. */
    lc_status (*progress)(void *self);
    void (*idle)(void *self, int microseconds); /* see lc_comm_ops */
    void (*abort)(void *self, const char *why);
    /* OPTIONAL: the host of a rank, as a number. NULL: all are on one, or it is not known. */
    int (*host)(void *self, int rank);
} lc__transport_ops;

/* What connections between two ranks do after both ends have proven that they belong to the group: nothing more, or
 * they are sealed (seal.h), so that nobody can change what is sent, or nobody can read it either. */
typedef enum lc__security { LC__SECURITY_NONE, LC__SECURITY_AUTH, LC__SECURITY_ENCRYPT } lc__security;

/* Parses "none", "auth" or "encrypt"; NULL and "" mean none. */
lc_status lc__security_find(const char *name, lc__security *out) LC_MUST_USE;
const char *lc__security_name(lc__security s);

/* Where others find this rank over TCP, and the run's secret; "" if it has none. */
typedef struct lc__tcp_place {
    char address[64], secret[65];
    lc__security security;
    double silence; /* seconds without an answer after which a rank counts as lost; one that computes answers */
} lc__tcp_place;

/* silence 0: as of the control channel. The security is as LIGHTC_COMM_SECURITY says, or none. */
lc_status lc__tcp_place_set(lc__tcp_place *p, const char *address, const char *secret, double silence) LC_MUST_USE;
/* lc_comm_tcp and lc_comm_shm_tcp, for ranks that have a secret. */
lc_status lc__comm_tcp(const lc__tcp_place *here, int rank, int size, const lc__meeting *meeting,
                       lc_comm **out) LC_MUST_USE;
lc_status lc__comm_shm_tcp(const lc__tcp_place *here, int host, int rank, int size, const lc__meeting *meeting,
                           lc_comm **out) LC_MUST_USE;

/* What mixed.c puts together. without [size]: ranks that are reached otherwise; NULL: none. */
extern const lc__transport_ops lc__shm, lc__tcp;
lc_status lc__tcp_open(const lc__tcp_place *here, int rank, int size, const bool *without, const lc__meeting *meeting,
                       void **out) LC_MUST_USE;

/* That there is such a rank; and that ranks can find each other, where there are several. */
lc_status lc__comm_check_ranks(int rank, int size) LC_MUST_USE;
lc_status lc__comm_check_meeting(int rank, int size, const lc_meeting *meeting) LC_MUST_USE;

/* A communicator over a transport; takes `transport` (NULL with one rank) over, also when it fails. `opening` is what
 * `open` is given when the group is split, if there is no `prepare`; `transport` keeps it, and without one it is not
 * looked at. */
lc_status lc__exchange_new(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size,
                           lc_comm **out) LC_MUST_USE;

/* A rank that has nothing to give to calls it does not know of makes them all the same, with zeros. From
 * lc__comm_announce to lc__comm_announce_end every call of the ranks that know is preceded by a broadcast of rank
 * `leader`, one of them, that says what comes; lc__comm_follow, on the others meanwhile, does what is said until there
 * are no more. Each collective. Only for calls that reduce or gather: a rank's zeros are useless to any other. */
void lc__comm_announce(lc_comm *comm, int leader);
lc_status lc__comm_announce_end(lc_comm *comm) LC_MUST_USE;
lc_status lc__comm_follow(lc_comm *comm, int leader) LC_MUST_USE;

/* lc_comm_wait, given up with the error of one of `others` [n] that has failed (NULL, and the request's own, are fine):
 * when ranks use several groups at once, the failure may be known only in another one. The request's communicator is
 * then aborted. */
lc_status lc__comm_wait_with(lc_request *request, lc_comm *const *others, int n) LC_MUST_USE;

/* Whether there is anything to be had from exposing memory (lc_comm_ops); then `expose`, where nothing else runs on the
 * communicator, and `conceal`. */
bool lc__comm_can_expose(const lc_comm *comm);
lc_status lc__comm_expose(lc_comm *comm, void *data, size_t bytes, int fd) LC_MUST_USE;
void lc__comm_conceal(lc_comm *comm, const void *data);

/* memory.c: what lc_comm_alloc_mem has given out. */
typedef struct lc__comm_memory {
    struct lc__comm_memory *next;
    void *data;
    size_t bytes;
} lc__comm_memory;
lc__comm_memory **lc__comm_memories(lc_comm *comm);
void lc__comm_memory_release(lc__comm_memory *list); /* once nobody uses it */

/* lc_comm_get_stats, of the groups that were split from it as well. */
void lc__comm_total(lc_comm *comm, lc_comm_stats *out);

/* Which node this rank lives on, as the smallest rank that does: the same machine, or the node of it that the launcher
 * says (connect.c). Collective. */
lc_status lc__comm_node(lc_comm *comm, int *node) LC_MUST_USE;

/* Whether lc_comm_mpi would find its plug-in. */
bool lc__mpi_is_there(void);

/* Adds what this rank does on `comm` and on the groups split from it. From any thread. */
struct lc__standing;
void lc__comm_standing(lc_comm *comm, struct lc__standing *io);

/* How far this rank is in the calls of `comm`, its groups not counted: how many that take all ranks it has begun, and
 * how many of these are done; and the other side of the oldest send or receive under way, or -1. From any thread. */
typedef struct lc__comm_reach {
    uint64_t begun, done;
    int peer;
} lc__comm_reach;
lc__comm_reach lc__comm_reached(const lc_comm *comm);

/* As lc_comm_progress, also where nothing runs: others may need this rank's messages to move on. */
void lc__comm_look(lc_comm *comm);

/* A rank that others miss is known to the communicator at once, and why it is missing to somebody else a moment later:
 * the first LC_ERR_PEER, of groups split from now on too, is what `explain` makes of it. It may wait. */
void lc__comm_explained_by(lc_comm *comm, lc_status (*explain)(void *ctx, lc_status loss), void *ctx);

bool lc__comm_is_explained(const lc_comm *comm);

/* This rank makes no more calls, and calls in flight fail on all ranks with `why`, including those of groups split from
 * this one. When it returns, the memory of these calls belongs to the caller again. An lc_comm_abort, which any thread
 * may call, is noticed in the rank's next call. From the rank's thread. NULL is fine. */
void lc__comm_give_up(lc_comm *comm, const char *why);

/* From now on lc_comm_free calls `instead`: for a communicator that several have. NULL: it is freed again. */
void lc__comm_on_free(lc_comm *comm, void (*on_free)(void));

#endif
