/* SPDX-License-Identifier: Apache-2.0 */
/* Communication between ranks: the collectives, send and receive, on groups of ranks.
 *
 * An lc_comm is one rank's end of a group. Its calls are *collective*: every rank of the group makes the same calls in
 * the same order (send and receive: the two ranks they concern). A call with a request returns at once and runs while
 * requests are polled; a call without one returns when it is done:
 *
 *     lc_request *r;
 *     LC_TRY(lc_comm_all_reduce(comm, gradients, gradients, n, LC_F32, LC_COMM_SUM, &r));
 *     ... compute, with lc_comm_progress(comm) now and then ...
 *     LC_TRY(lc_comm_wait(r));
 *
 * Bytes move inside lc_comm_progress, lc_comm_poll and lc_comm_wait, on the thread that calls them. Over TCP, where
 * rare calls would leave the link idle, lc_comm_progress hands running calls to a thread of the communicator, which
 * sleeps unless data moves. A communicator, with the groups split from it, belongs to one thread of the program at a
 * time, and stays with it while calls run; waiting on one makes progress on all of them. The memory passed to a call
 * belongs to the call until it is done.
 *
 * Sums have defined bits: contributions are combined on one balanced tree over the ranks in their order,
 * ((0+1)+(2+3))+((4+5)+6), whatever the backend. f16 and bf16 are combined in f32 and rounded once. This holds over MPI
 * too: data moves by MPI's collectives, but never by its reductions, whose order MPI may choose.
 *
 * Every call is described to the other ranks; ranks that make different calls get an error that names both ranks and
 * both calls. If neither sends the other anything (a root that gathers, and a rank that waits for its scatter) both
 * wait until the coordinator ends the run (lc_comm_world; docs/launching.md, silence_timeout). A communicator that
 * failed stays failed: every later call returns the first error, and so do calls of the other ranks.
 *
 * To add a backend: a file in src/comm/transport with an lc_comm_ops; a backend that moves streams of bytes needs only
 * an lc__transport_ops (src/comm/comm_internal.h), and every call works on top of it. */
#ifndef LIGHTC_COMM_H
#define LIGHTC_COMM_H

#include <lightc/tensor.h>

typedef struct lc_comm lc_comm;
typedef struct lc_request lc_request;

/* X(identifier, value, name) */
#define LC_COLLECTIVE_LIST(X)                                                                                          \
    X(LC_COMM_BARRIER, 1, "barrier")                                                                                   \
    X(LC_COMM_BROADCAST, 2, "broadcast")                                                                               \
    X(LC_COMM_REDUCE, 3, "reduce")                                                                                     \
    X(LC_COMM_ALL_REDUCE, 4, "all_reduce")                                                                             \
    X(LC_COMM_SCATTER, 5, "scatter")                                                                                   \
    X(LC_COMM_GATHER, 6, "gather")                                                                                     \
    X(LC_COMM_ALL_GATHER, 7, "all_gather")                                                                             \
    X(LC_COMM_REDUCE_SCATTER, 8, "reduce_scatter")                                                                     \
    X(LC_COMM_ALL_TO_ALL, 9, "all_to_all")                                                                             \
    X(LC_COMM_SEND, 10, "send")                                                                                        \
    X(LC_COMM_RECV, 11, "recv")

typedef enum lc_collective {
#define LC_COLLECTIVE_ENUM(id, value, name) id = value,
    LC_COLLECTIVE_LIST(LC_COLLECTIVE_ENUM)
#undef LC_COLLECTIVE_ENUM
        LC_COLLECTIVES
} lc_collective;

typedef enum lc_reduce_op {
    LC_COMM_SUM = 0, /* not of bool */
    LC_COMM_PROD,    /* not of bool */
    LC_COMM_MIN,     /* of bool: and. NaN wins */
    LC_COMM_MAX,     /* of bool: or. NaN wins */
} lc_reduce_op;

#define LC_COMM_CALL_TEXT 96 /* bytes of lc_comm_call_text */

/* One call, as backends get it. `count` is in elements of `dtype`. */
typedef struct lc_comm_call {
    lc_collective op;
    lc_reduce_op reduce; /* of the calls that reduce */
    lc_dtype dtype;
    int peer;       /* the root, or the other side of send and recv; -1 */
    const void *in; /* this rank's input; NULL if it has none */
    void *out;      /* this rank's output */
    int64_t count;  /* of the whole for broadcast, reduce, all_reduce, send, recv; else of one rank's part */
    void *reserved[2];
} lc_comm_call;

/* Totals of a communicator so far. */
typedef struct lc_comm_stats {
    int64_t calls[LC_COLLECTIVES];
    int64_t bytes[LC_COLLECTIVES]; /* of `count` elements each */
    int64_t sent;                  /* bytes this rank sent, or has to send, for them, without headers */
    int64_t waited_ns;             /* in lc_comm_wait, and in calls without a request */
    int64_t sent_across;           /* of `sent`: to ranks of other hosts, if hosts are known (lc_comm_shm_tcp) */
} lc_comm_stats;

/* ---- what a backend does ----
 * All slots are called by the thread that owns the communicator, except `abort` (any thread). With `sleep`, a thread of
 * the communicator calls it, and `start`, `poll` and `stats` as well; calls never overlap. */
typedef struct lc_comm_ops {
    size_t size; /* LC_COMM_OPS_INIT(name) */
    const char *name;
    size_t state_bytes; /* of memory that a call has while it runs */
    /* ---- REQUIRED ---- */
    /* Begins a call; `state` is state_bytes of zeros at an address that stays until the call is done. Returns soon.
     * After an error it must not use `state` again. */
    lc_status (*start)(void *self, const lc_comm_call *call, void *state);
    /* Makes progress on all running calls, without waiting for other ranks. With a `state`, sets *done to whether that
     * call is complete. */
    lc_status (*poll)(void *self, void *state, bool *done);
    /* The ranks of each `color` become a group, in the order of (key, rank). Collective. *out: the backend of the new
     * group, NULL if color is negative. The slot may be NULL: groups are not supported. */
    lc_status (*split)(void *self, int color, int key, int *rank, int *size, void **out);
    void (*free)(void *self);
    /* ---- OPTIONAL ---- */
    /* Called while a rank waits for a call: spins, or sleeps until something may move, at most that long. Default:
     * yields the processor. */
    void (*idle)(void *self, int microseconds);
    /* Ends the running calls of all ranks: their polls fail, with `why` if it can be passed on. From any thread. */
    void (*abort)(void *self, const char *why);
    /* Corrects the number of bytes sent (`sent`), and fills in what only a backend knows (`sent_across`). */
    void (*stats)(void *self, lc_comm_stats *io);
    /* As idle, from a thread that is not the rank's and must not spin: sleeps until data may move, at most that long.
     * `hurry`: the rank waits. While the rank computes, perhaps on the core that the thread would wake up on, incoming
     * data may accumulate: returns for how many microseconds the thread should rest unless the rank begins to wait;
     * else 0. A backend with this slot gets a thread, which moves bytes from the call of lc_comm_progress until all
     * calls are done, so that they progress while the rank computes. Calls of the backend never overlap, except
     * `abort`. */
    int (*sleep)(void *self, int microseconds, bool hurry);
    /* Lets other ranks read and write `bytes` bytes at `data`, which is the file `fd` mapped (-1: this rank has no such
     * file), while calls on data in them run, so that these need no copies. Does nothing if that is not possible.
     * Collective, with the same number of bytes on all ranks. */
    lc_status (*expose)(void *self, void *data, size_t bytes, int fd);
    /* Ends that, if it was exposed; called as often as expose. `data` stays the mapping of `fd` until then. */
    void (*conceal)(void *self, const void *data);
    /* A number that changes whenever bytes of a call move. From any thread. If all ranks of a run wait in calls and
     * none of these numbers changes for long, they wait for each other, and the run ends; without this slot that is
     * never detected. */
    uint64_t (*moved)(void *self);
} lc_comm_ops;

#define LC_COMM_OPS_INIT(text) .size = sizeof(lc_comm_ops), .name = (text)

/* How the ranks of a group exchange data before they can communicate: each gives `bytes` bytes and gets those of all,
 * in the order of ranks. Collective; waits. */
typedef struct lc_meeting {
    size_t size; /* LC_MEETING_INIT; in C++ LC_OPS */
    lc_status (*all_gather)(void *ctx, const void *mine, void *all, size_t bytes);
    void *ctx;
    /* OPTIONAL: returns an error if waiting for the others has become pointless. Called several times a second while
     * connections are made. */
    lc_status (*check)(void *ctx);
} lc_meeting;

#define LC_MEETING_INIT .size = sizeof(lc_meeting)

LC_BEGIN_DECLS

/* ---- making one ---- */

/* One rank: calls copy. */
LC_API lc_status lc_comm_self(lc_comm **out) LC_MUST_USE;
/* `size` ranks in this process: out[i] is for the thread that is rank i. */
LC_API lc_status lc_comm_threads(int size, lc_comm **out) LC_MUST_USE;
/* Ranks that are processes of this host, through memory they share; `meeting` is needed only during the call.
 * Collective. */
LC_API lc_status lc_comm_shm(int rank, int size, const lc_meeting *meeting, lc_comm **out) LC_MUST_USE;
/* Ranks anywhere, over TCP. `address`: of this host, as the other ranks reach it; NULL: loopback. `meeting` as above;
 * anyone who reads its data can join the ranks. Collective. */
LC_API lc_status lc_comm_tcp(const char *address, int rank, int size, const lc_meeting *meeting,
                             lc_comm **out) LC_MUST_USE;
/* Ranks on several hosts: through shared memory between those that give the same `host` (any number), over TCP between
 * others. If each host has the same number of ranks, with consecutive numbers, all_reduce, reduce_scatter, all_gather
 * and broadcast send each byte to another host once instead of once for each rank (reductions: if that many is a power
 * of two, and not of f16 and bf16). `address` and `meeting` as above. Collective. */
LC_API lc_status lc_comm_shm_tcp(const char *address, int host, int rank, int size, const lc_meeting *meeting,
                                 lc_comm **out) LC_MUST_USE;
/* All processes that mpirun started, over MPI. Opens the plug-in liblightc_mpi, from LIGHTC_MPI_PLUGIN, from next to
 * this library, or from the library path; LC_ERR_UNSUPPORTED says what to do if there is none. See also
 * <lightc/comm_mpi.h>. Collective. */
LC_API lc_status lc_comm_mpi(lc_comm **out) LC_MUST_USE;
/* As lc_comm_shm_tcp, but with send and receive of `far`, a communicator over MPI with the same ranks, between hosts.
 * `far` is taken over, also on failure. Collective. */
LC_API lc_status lc_comm_shm_over(lc_comm *far, int host, const lc_meeting *meeting, lc_comm **out) LC_MUST_USE;
/* Rank `rank` of `size` ranks that do not exist: calls complete at once and change only the stats. For planning. It
 * cannot be split, since the colors of the other ranks are unknown: LC_ERR_UNSUPPORTED, and it stays usable. */
LC_API lc_status lc_comm_fake(int rank, int size, lc_comm **out) LC_MUST_USE;
/* All ranks of this run, over the fastest available backend, for programs without a trainer. The number of this
 * process, and the meeting place of the ranks, come from the environment made by `lightc launch`, mpirun, srun or
 * torchrun, or by a first process that started ranks in lc_trainer_options_parse (docs/launching.md); with none of them
 * it is the only rank. Every call, and a trainer with the strategy ddp, gets the same communicator: do not use it while
 * a trainer runs, and do not communicate from two threads. A process that exits with status 0 on the thread that
 * joined, without lc_comm_free, leaves as if it had called it; a process that ends in any other way has failed, and the
 * others are notified. An error says what is missing, or which ranks did not join within `start_timeout` (300 seconds,
 * unless lc_trainer_options_parse has read another). Collective. */
LC_API lc_status lc_comm_world(lc_comm **out) LC_MUST_USE;
/* A backend of the program's own. Takes `self` over, also when it fails. */
LC_API lc_status lc_comm_new(const lc_comm_ops *ops, void *self, int rank, int size, lc_comm **out) LC_MUST_USE;
/* The ranks of each `color` (0 or more) become a communicator, ordered by `key`, then by rank; *out is NULL if color is
 * negative. Collective; nothing else may run on `comm`. An error on any rank while the group is made ends `comm` on
 * all, as an error of a call does. An abort of `comm` also aborts its groups; they may be freed in any order. */
LC_API lc_status lc_comm_split(lc_comm *comm, int color, int key, lc_comm **out) LC_MUST_USE;
/* The caller frees every communicator it made; that of lc_comm_world once for each call. NULL is fine. Calls that still
 * run are forgotten. A rank that waits in a call for a rank that has left gets an error. Over MPI, freeing the world's
 * waits until all ranks free it, or the run has ended. */
LC_API void lc_comm_free(lc_comm *comm);

/* Zeroed memory, aligned to a page. If the ranks are processes of one host that can access each other's memory, an
 * all_reduce in place (in == out) of 16 KiB and more that is in such memory on all of them needs no copies, and is
 * several times as fast; otherwise, and beyond the first few allocations, it is ordinary memory. After an error of
 * `comm` other ranks may still write to it until it is freed. Collective, with the same size on all ranks; nothing else
 * may run on `comm`. Fails if any rank cannot allocate it. */
LC_API lc_status lc_comm_alloc_mem(lc_comm *comm, size_t bytes, void **out) LC_MUST_USE;
/* Call it when no call uses the memory, and before lc_comm_free, which frees what is left. Not collective. NULL is
 * fine. */
LC_API void lc_comm_free_mem(lc_comm *comm, void *data);

LC_API int lc_comm_rank(const lc_comm *comm);         /* of this process or thread, from 0 */
LC_API int lc_comm_size(const lc_comm *comm);         /* how many ranks there are */
LC_API const char *lc_comm_name(const lc_comm *comm); /* of the backend: "shm"; static */
/* Counts only this rank's calls, without those of groups split from it. Not collective; from the thread that the
 * communicator belongs to. */
LC_API void lc_comm_get_stats(const lc_comm *comm, lc_comm_stats *out);
LC_API const char *lc_collective_name(lc_collective op); /* "all_reduce"; static */

/* ---- for backends ---- */

/* The combination defined above: out[i] = parts[0][i] + parts[1][i] + ... for `count` elements, on the tree over
 * 0..n-1. `out` may be one of the parts. */
LC_API void lc_comm_combine(lc_dtype dtype, lc_reduce_op op, int n, const void *const *parts, void *out, int64_t count);
/* "all_reduce of 4096 f32, sum", for messages. LC_COMM_CALL_TEXT bytes are enough. */
LC_API void lc_comm_call_text(const lc_comm_call *call, char *text, size_t size);

/* ---- the calls ----
 * N is the size. `in` and `out` are the same if the call allows it (see below), or do not overlap; anything else is an
 * error. Without `request` (NULL) a call returns when it is done on this rank. */

/* No rank returns before every rank has called. */
LC_API lc_status lc_comm_barrier(lc_comm *comm, lc_request **request) LC_MUST_USE;
/* data [count] of root, to all. */
LC_API lc_status lc_comm_broadcast(lc_comm *comm, void *data, int64_t count, lc_dtype dtype, int root,
                                   lc_request **request) LC_MUST_USE;
/* in [count] of all, combined, to out [count] of root (elsewhere out may be NULL). in == out is fine. */
LC_API lc_status lc_comm_reduce(lc_comm *comm, const void *in, void *out, int64_t count, lc_dtype dtype,
                                lc_reduce_op op, int root, lc_request **request) LC_MUST_USE;
/* in [count] of all, combined, to out [count] of all. in == out is fine. */
LC_API lc_status lc_comm_all_reduce(lc_comm *comm, const void *in, void *out, int64_t count, lc_dtype dtype,
                                    lc_reduce_op op, lc_request **request) LC_MUST_USE;
/* Part i of in [N,count] of root (elsewhere in may be NULL), to out [count] of rank i. */
LC_API lc_status lc_comm_scatter(lc_comm *comm, const void *in, void *out, int64_t count, lc_dtype dtype, int root,
                                 lc_request **request) LC_MUST_USE;
/* in [count] of rank i, to part i of out [N,count] of root (elsewhere out may be NULL). */
LC_API lc_status lc_comm_gather(lc_comm *comm, const void *in, void *out, int64_t count, lc_dtype dtype, int root,
                                lc_request **request) LC_MUST_USE;
/* in [count] of rank i, to part i of out [N,count] of all. in may be part `rank` of out. */
LC_API lc_status lc_comm_all_gather(lc_comm *comm, const void *in, void *out, int64_t count, lc_dtype dtype,
                                    lc_request **request) LC_MUST_USE;
/* in [N,count] of all, combined; part i to out [count] of rank i. out may be part `rank` of in. */
LC_API lc_status lc_comm_reduce_scatter(lc_comm *comm, const void *in, void *out, int64_t count, lc_dtype dtype,
                                        lc_reduce_op op, lc_request **request) LC_MUST_USE;
/* Part j of in [N,count] of rank i, to part i of out [N,count] of rank j. */
LC_API lc_status lc_comm_all_to_all(lc_comm *comm, const void *in, void *out, int64_t count, lc_dtype dtype,
                                    lc_request **request) LC_MUST_USE;
/* data [count] to, and from, `peer`. What one rank sends another arrives in the order it was sent in. To send to the
 * own rank, start one of the two with a request; the other may be without: LC_ERR_STATE if it would wait forever. */
LC_API lc_status lc_comm_send(lc_comm *comm, const void *data, int64_t count, lc_dtype dtype, int peer,
                              lc_request **request) LC_MUST_USE;
LC_API lc_status lc_comm_recv(lc_comm *comm, void *data, int64_t count, lc_dtype dtype, int peer,
                              lc_request **request) LC_MUST_USE;
/* Any of the calls above. */
LC_API lc_status lc_comm_start(lc_comm *comm, const lc_comm_call *call, lc_request **request) LC_MUST_USE;

/* ---- requests ----
 * A request is gone once poll said done, once wait returned, and after any error. */
LC_API lc_status lc_comm_poll(lc_request *request, bool *done) LC_MUST_USE;
LC_API lc_status lc_comm_wait(lc_request *request) LC_MUST_USE;
/* Makes progress on all calls that run on `comm`, without waiting, or lets the communicator's thread do so. For a rank
 * that continues with something else. */
LC_API lc_status lc_comm_progress(lc_comm *comm) LC_MUST_USE;

/* ---- when something is wrong ---- */

/* Ends the running calls of this communicator, and of those split from it, on every rank, with `why` (or NULL) as the
 * message. From any thread. */
LC_API void lc_comm_abort(lc_comm *comm, const char *why);
/* The last calls of this rank, newest last, a line each: "12 all_reduce of 4096 f32, sum: running". Returns the length
 * it needs, as snprintf. */
LC_API int lc_comm_history(const lc_comm *comm, char *text, size_t size);

LC_END_DECLS
#endif
