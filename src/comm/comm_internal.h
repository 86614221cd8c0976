/* SPDX-License-Identifier: Apache-2.0 */
/* How the rooms of src/comm depend on each other:
 *
 *   comm.c        the public functions: requests, statistics, groups; call.c: one call; history.c: the last calls
 *   combine.c     the arithmetic of reductions
 *   memory.c      memory that the ranks of a host use in place
 *   progress_thread.c  drives calls while their rank computes
 *   exchange/     exchange.c, groups.c: collectives over streams of bytes between any two ranks, the one
 *                 implementation used by self, threads, shm, tcp and their mixtures, each of which is a transport
 *                 communicator.c: a communicator made of them
 *                 schedule.c: what a collective consists of; two_levels.c: if ranks are on several hosts
 *                 exposed.c: memory of a rank that other ranks of its host use in place
 *   transport/    rings.c: in shared memory, of threads of a process (threads.c) or processes of a host (shm.c)
 *                 tcp.c: between hosts; tcp_place.c: where a rank is reached; tcp_mesh.c: its connections
 *                 tcp_lanes.c: bytes between rings and a connection; tcp_records.c: sealed records
 *                 mixed.c: the rings between ranks of a host, tcp, or relay.c over mpi, between hosts
 *                 mpi_plugin.c: opens the plug-in liblightc_mpi, whose files are in mpi/
 *                 fake.c: ranks that do not exist
 *   control/      how ranks find each other and learn of the run's end (wire.c: the messages)
 *   coordinator/  the other end of the control channel
 *   net/          proof*.c: how ends of a connection show that they know the run's secret; seal_*.c: sealed messages
 *                 socket.c: what all TCP connections share; guests.c: connections that have proven nothing yet
 *   world/        which rank a process is, joining, leaving */
#ifndef LC_COMM_INTERNAL_H
#define LC_COMM_INTERNAL_H

#include <lightc/comm.h>

/* ---- transports ----
 * Between any two ranks, in each direction, there are LC__LANES streams of bytes, in order and without loss. Every
 * message starts and ends on a multiple of LC__GRAIN bytes, and so do the buffers: what `room` and `peek` return is
 * contiguous and never ends inside of an element, except in the padding at the end of a message. */
enum { LC__LANE_COLLECTIVE = 0, LC__LANE_DIRECT, LC__LANES, LC__LANE_ANSWERED = LC__LANES, LC__GRAIN = 64 };

#define LC__NO_PUT SIZE_MAX
/* The rank that left, and the rank that waits for it. */
#define LC__MISSED_TEXT "rank %d has left the group while rank %d still waits for it"

typedef lc_meeting lc__meeting;

typedef struct lc__transport_ops {
    const char *name;
    /* Bytes are held up while the rank computes, because the receiving side has little room: a thread then drives the
     * calls, and sleeps in `idle` (`sleep` of lc_comm_ops). */
    bool wants_thread;
    /* The ranks are processes of one host, which can map each other's files: /proc/PID/fd/N. */
    bool sees_files;
    /* OPTIONAL: makes what groups are opened with, in place of `opening`; NULL if color is negative. Collective over
     * the ranks that are divided into groups, none of which has another call under way. */
    lc_status (*prepare)(void *self, int color, int key, void **opening);
    /* Collective; size is at least 2. */
    lc_status (*open)(void *opening, int rank, int size, const lc__meeting *meeting, void **out);
    void (*close)(void *self);
    /* Where bytes for `peer` may be written: up to the returned number, a multiple of LC__GRAIN. Called only while a
     * message is not complete. */
    size_t (*room)(void *self, int peer, int lane, void **at);
    void (*commit)(void *self, int peer, int lane, size_t n);
    /* OPTIONAL, in place of both for many bytes: takes some of them without a copy, and returns how much of the stream
     * that is, in whole grains (zeros follow the last of the n bytes); 0: try later. LC__NO_PUT: not for this peer. */
    size_t (*put)(void *self, int peer, int lane, const void *data, size_t n);
    /* OPTIONAL: whether all that was committed is out of this rank's hands, so that it moves on without `progress`. No
     * call is done before that. NULL: always. */
    bool (*sent)(void *self, int peer, int lane);
    /* Where bytes that arrived from `peer` are. */
    size_t (*peek)(void *self, int peer, int lane, const void **at);
    void (*consume)(void *self, int peer, int lane, size_t n);
    /* OPTIONAL: one more lane, LC__LANE_ANSWERED. Its reader writes an answer over the bytes that it consumes; their
     * writer finds it where `peek_answer` says, and gets room again for as much as it takes. Both are called by a rank
     * that waits for answers. */
    size_t (*peek_answer)(void *self, int peer, const void **at);
    void (*take_answer)(void *self, int peer, size_t n);
    /* OPTIONAL: notes that this rank waits for `peer`, from which nothing has arrived. */
    void (*miss)(void *self, int peer, int lane);
    /* Moves bytes, without waiting; fails if a rank is lost or the group was aborted. */
    lc_status (*progress)(void *self);
    void (*idle)(void *self, int microseconds); /* see lc_comm_ops */
    void (*abort)(void *self, const char *why);
    /* OPTIONAL: the host of a rank, as a number. NULL: all ranks are on one host, or their hosts are unknown. */
    int (*host)(void *self, int rank);
} lc__transport_ops;

/* How connections between two ranks are protected after both ends have proven that they belong to the group: not at
 * all, or they are sealed (seal.h), so that nobody can change what is sent, or nobody can read it either. */
typedef enum lc__security { LC__SECURITY_NONE, LC__SECURITY_AUTH, LC__SECURITY_ENCRYPT } lc__security;

/* Parses "none", "auth" or "encrypt"; NULL and "" mean none. */
lc_status lc__security_find(const char *name, lc__security *out) LC_MUST_USE;
const char *lc__security_name(lc__security s);

/* Where others find this rank over TCP, and the run's secret; "" if it has none. */
typedef struct lc__tcp_place {
    char address[64], secret[65];
    lc__security security;
    double silence; /* seconds without an answer after which a rank is lost; a rank that computes still answers */
} lc__tcp_place;

/* silence 0: that of the control channel. The security is that of LIGHTC_COMM_SECURITY, or none. */
lc_status lc__tcp_place_set(lc__tcp_place *p, const char *address, const char *secret, double silence) LC_MUST_USE;
/* lc_comm_tcp and lc_comm_shm_tcp, for ranks that have a secret. */
lc_status lc__comm_tcp(const lc__tcp_place *here, int rank, int size, const lc__meeting *meeting,
                       lc_comm **out) LC_MUST_USE;
lc_status lc__comm_shm_tcp(const lc__tcp_place *here, int host, int rank, int size, const lc__meeting *meeting,
                           lc_comm **out) LC_MUST_USE;

/* The transports that mixed.c combines. without [size]: ranks that are reached otherwise; NULL: none. */
extern const lc__transport_ops lc__shm, lc__tcp;
lc_status lc__tcp_open(const lc__tcp_place *here, int rank, int size, const bool *without, const lc__meeting *meeting,
                       void **out) LC_MUST_USE;

/* Checks that there is such a rank. */
lc_status lc__comm_check_ranks(int rank, int size) LC_MUST_USE;
/* The same, and copies the caller's meeting, which several ranks need to find each other. */
lc_status lc__comm_take_meeting(int rank, int size, const lc_meeting *given, lc_meeting *out) LC_MUST_USE;

/* Makes a communicator over a transport. Takes ownership of `transport` (NULL with one rank), also on failure.
 * `opening` is passed to `open` when the group is split, if there is no `prepare`; `transport` owns it, and without a
 * transport it is ignored. */
lc_status lc__exchange_new(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size,
                           lc_comm **out) LC_MUST_USE;

/* Ranks that have nothing to contribute to calls, and do not know of them, must make them all the same, with zeros.
 * From lc__comm_announce to lc__comm_announce_end, every call of the ranks that know is preceded by a broadcast that
 * describes it, from rank `leader`, one of them. Meanwhile lc__comm_follow, on the other ranks, makes the announced
 * calls until there are no more. All are collective. Only for calls that reduce or gather: in any other, a rank's zeros
 * are useless. */
void lc__comm_announce(lc_comm *comm, int leader);
lc_status lc__comm_announce_end(lc_comm *comm) LC_MUST_USE;
lc_status lc__comm_follow(lc_comm *comm, int leader) LC_MUST_USE;

/* As lc_comm_wait, but gives up with the error of any of `others` [n] that fails (each may be NULL, or the request's
 * own communicator): when ranks use several groups at once, the failure may be known only in another one. The request's
 * communicator is then aborted. */
lc_status lc__comm_wait_with(lc_request *request, lc_comm *const *others, int n) LC_MUST_USE;

/* Whether exposing memory is of use (lc_comm_ops); then `expose`, while nothing else runs on the communicator, and
 * `conceal`. */
bool lc__comm_can_expose(const lc_comm *comm);
lc_status lc__comm_expose(lc_comm *comm, void *data, size_t bytes, int fd) LC_MUST_USE;
void lc__comm_conceal(lc_comm *comm, const void *data);

/* memory.c: memory allocated by lc_comm_alloc_mem. */
typedef struct lc__comm_memory {
    struct lc__comm_memory *next;
    void *data;
    size_t bytes;
} lc__comm_memory;
lc__comm_memory **lc__comm_memories(lc_comm *comm);
void lc__comm_memory_release(lc__comm_memory *list); /* once nobody uses it */

/* As lc_comm_get_stats, with the groups that were split from it. */
void lc__comm_total(lc_comm *comm, lc_comm_stats *out);

/* The node of this rank, as the smallest rank on it. A node is a machine, or the part of it that the launcher calls a
 * node (connect.c). Collective. */
lc_status lc__comm_node(lc_comm *comm, int *node) LC_MUST_USE;

/* Whether lc_comm_mpi would find its plug-in. */
bool lc__mpi_is_there(void);

/* Adds what this rank is doing on `comm` and on the groups split from it. From any thread. */
struct lc__standing;
void lc__comm_standing(lc_comm *comm, struct lc__standing *io);

/* How far this rank is in the calls of `comm`, without its groups: how many collectives it has begun, and how many of
 * these are done; and the peer of the oldest send or receive under way, or -1. From any thread. */
typedef struct lc__comm_reach {
    uint64_t begun, done;
    int peer;
} lc__comm_reach;
lc__comm_reach lc__comm_reached(const lc_comm *comm);

/* As lc_comm_progress, even if nothing runs: others may need this rank's messages to move on. */
void lc__comm_look(lc_comm *comm);

/* A communicator knows at once that a rank is missing; the reason is known elsewhere, and a moment later. So `explain`
 * replaces the first LC_ERR_PEER of the communicator and of groups split from now on. It may wait. */
void lc__comm_explained_by(lc_comm *comm, lc_status (*explain)(void *ctx, lc_status loss), void *ctx);

bool lc__comm_is_explained(const lc_comm *comm);

/* This rank makes no more calls, and calls in flight fail on all ranks with `why`, including those of groups split from
 * this one. When it returns, the memory of these calls belongs to the caller again. An lc_comm_abort, which any thread
 * may call, is noticed in the rank's next call. Call this from the rank's thread. NULL is fine. */
void lc__comm_give_up(lc_comm *comm, const char *why);

/* From now on lc_comm_free calls `on_free` instead of freeing, for a communicator with several users. NULL: it frees
 * again. */
void lc__comm_on_free(lc_comm *comm, void (*on_free)(void));

#endif
