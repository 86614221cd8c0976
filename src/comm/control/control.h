/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel: how the processes of a run find each other, and how all of them learn that one is lost.
 *
 * One process hosts the *coordinator* (a thread): the supervisor of a run that lightc launched, else rank 0. Every rank
 * keeps one TCP connection to it, served by a thread of its own, so that it works while the rank computes, hangs in a
 * collective, or has its training thread stopped in a debugger. It carries the meeting (what ranks must know of each
 * other before they can communicate), heartbeats, progress, and the one message that ends the run. Connections begin
 * with both ends proving that they know the run's secret (proof.h); an end that does not is rejected. Nothing here
 * depends on MPI or on shared memory. */
#ifndef LC_COMM_CONTROL_CONTROL_H
#define LC_COMM_CONTROL_CONTROL_H

#include "comm/comm_internal.h"
#include "base/str.h"

typedef struct lc__coordinator lc__coordinator;
typedef struct lc__control lc__control;
typedef struct lc__watch lc__watch;

/* In seconds; 0: the value that the launcher passes on (LIGHTC_START_TIMEOUT, ...), else the default. */
typedef struct lc__control_times {
    double start;     /* until all ranks have joined: 300 */
    double heartbeat; /* between two heartbeats of a rank, and of the coordinator: 0.5 */
    double silence;   /* without a heartbeat, a rank counts as lost: 10 (a process that has ended is noticed at once) */
    double progress;  /* without a step or other progress, a rank counts as stuck: 0 = learned from its run
                         (coordinator/stall.c), < 0 = never */
    double grace;     /* between the message that ends the run and _exit of a rank that ignores it: 2 */
    double progress_least; /* the least limit that is learned: 1800 */
    double progress_line;  /* without progress, a line is printed: 60 */
} lc__control_times;

/* On what terms a run continues without some of its ranks: not at all if each has its own data; with a power of two of
 * them if only that many can share a batch; not after training has ended, until ranks report other terms. */
enum { LC__OWN_DATA = 1, LC__POWER_OF_TWO = 2, LC__TRAINED = 4 };

/* Checks the length of a run's secret. */
lc_status lc__control_check_secret(const char *secret) LC_MUST_USE;

/* ---- the coordinator ---- */

/* Binds to `address` (an address of this host, NULL: loopback only, "*": every interface) and *port (0: any, which is
 * then stored), and serves `size` ranks from a thread. `secret`: 16 to 64 bytes of text. `times` may be NULL. */
lc_status lc__coordinator_start(const char *address, int *port, int size, const char *secret,
                                const lc__control_times *times, lc__coordinator **out) LC_MUST_USE;
/* As above, but `address` is how other hosts reach this one. If it is not an address of this host (a router's, say),
 * listens on all interfaces and sets *everywhere. Errors of MASTER_ADDR and MASTER_PORT say what is wrong with them. */
lc_status lc__coordinator_start_as(const char *address, bool others, int *port, int size, const char *secret,
                                   const lc__control_times *times, bool *everywhere, lc__coordinator **out) LC_MUST_USE;
/* The warning printed in that case. */
#define LC__EVERYWHERE                                                                                                 \
    "warning: MASTER_ADDR (%s) is not an address of this host, so it listens on all of its addresses; if the other "   \
    "ranks do not connect, set it to an address of the host of rank 0, or start this one as another node"
/* Ends the run on behalf of a rank whose process has ended: `how` ("killed by signal 9 (Killed)"; NULL: with status 0).
 * What the rank itself reported before, with lc__control_fail or a goodbye, takes precedence. A rank that ended with
 * status 0 without joining ends the run only if another has joined, and so waits for it. */
void lc__coordinator_rank_ended(lc__coordinator *c, int rank, const char *how);
/* This process starts `count` ranks from `first` on, which join with this identity; other processes that claim to be
 * these ranks are rejected. */
void lc__coordinator_claim(lc__coordinator *c, int first, int count, uint64_t identity);
/* Whether it has ended the run. *silent: the rank whose silence was the cause, and whose process may still exist; or
 * -1. */
bool lc__coordinator_ended(lc__coordinator *c, int *silent);
/* Whether the run has ended because of this rank: it was the cause, or as silent as the one that was. */
bool lc__coordinator_lost(lc__coordinator *c, int rank);
/* The terms reported by any rank. */
unsigned lc__coordinator_terms(lc__coordinator *c);
/* Whether the rank has joined. */
bool lc__coordinator_has_met(lc__coordinator *c, int rank);
/* Whether it has joined and not left, so that its silence ends the run. */
bool lc__coordinator_watches(lc__coordinator *c, int rank);
/* Called on rank 0 when it hosts the coordinator, to print why the run ended. Runs on a thread of the coordinator
 * before ranks are notified (they wait only a moment if it takes long); rank 0, whose process may exit then, is
 * notified last. `message` is why, `calls` are the last calls of each rank, a text of some lines; "" if none is known.
 * It may take long. */
void lc__coordinator_on_end(lc__coordinator *c, void (*on_end)(void *ctx, const char *message, const char *calls),
                            void *ctx);
/* For the process that prints what happens to the run: `on_stall` is called from a thread of its own with a line about
 * a rank that makes no progress, which does not end the run. It may never return. */
void lc__coordinator_on_stall(lc__coordinator *c, void (*on_stall)(const char *text));
void lc__show_stall(const char *text); /* an on_stall: prints a warning on standard error */
/* Call it when all processes have ended: whether a rank failed, or was lost while others waited for it, whatever the
 * exit statuses say. Waits until that is known, if any rank is gone without a goodbye. */
bool lc__coordinator_failed(lc__coordinator *c);
/* The signal for which all ranks have stopped together; 0: none, or the run has failed. */
int lc__coordinator_stopped(lc__coordinator *c);
/* The message that ended the run, or "". "rank 3 (host a), step 120, epoch 2, validation: why". */
void lc__coordinator_message(lc__coordinator *c, char *text, size_t size);
/* The cause in that message if nobody has reported how the rank ended. */
#define LC__GONE "its process ended or its network failed: the connection is closed"
/* How it begins if ranks miss the process that started them. */
#define LC__ORPHANED "the process that started it"
/* The last calls of each rank, once the run has ended. */
void lc__coordinator_last_calls(lc__coordinator *c, lc__str *out);
/* The same while the run goes on, if a rank has been in the same call for more than a second; else nothing. */
void lc__coordinator_stuck_calls(lc__coordinator *c, lc__str *out);
/* The state to print while ranks wait for others, updated every few seconds: the missing ranks ("ranks 2, 3 of 4"), and
 * a connection that was rejected ("": none); false: nothing to print. The caller prints it: after the first call, ranks
 * are no longer notified. */
bool lc__coordinator_waits(lc__coordinator *c, char who[256], char refused[256]);
/* Stops it. Ranks that have not said goodbye continue without a control channel. NULL is fine. */
void lc__coordinator_stop(lc__coordinator *c);

/* ---- a rank ---- */

typedef struct lc__control_args {
    int rank, size;
    const char *address; /* of the coordinator: a name or a number */
    int port;
    const char *secret;
    lc__control_times times;
    /* Identity of the process, or of its launcher, which is the same for all ranks of one launcher; 0: that of this
     * process. A rank that has joined, or has left, is recognized by it. */
    uint64_t identity;
    const char *launcher;    /* static; names this process's parent, with which the run ends. NULL: it does not */
    bool supervisor_reports; /* the coordinator's process prints why the run has ended, so errors that repeat it are
                                marked (lc__note_reported) */
    /* Called with a line to print while it waits ("waiting for ranks 2, 3 of 4 at ..."); NULL: nothing is printed. */
    void (*say)(void *ctx, const char *text);
    void *ctx;
} lc__control_args;

/* Connects, and returns when all ranks have; the error of a start that took too long names those that have not. */
lc_status lc__control_open(const lc__control_args *options, lc__control **out) LC_MUST_USE;
/* An lc__meeting of all ranks: all_gather is lc__control_all_gather, ctx the control. At most 64 KiB from each rank;
 * from one thread at a time. Fails with LC_ERR_PEER when the run has ended. */
lc_status lc__control_all_gather(void *control, const void *mine, void *all, size_t bytes) LC_MUST_USE;
/* Reports that this rank has made its last call on the communicator watched first, that of all ranks. Returns when all
 * ranks have reported this, or with LC_ERR_PEER when the run ends instead, as it does if another rank waits for this
 * one in a call. `look` (NULL: nothing) is called meanwhile, a hundred times a second, with `ctx`. */
lc_status lc__control_leave(lc__control *c, void (*look)(void *ctx), void *ctx) LC_MUST_USE;
/* When the run ends, `comm` is aborted with its message; until then its last calls, and those of its groups, are sent
 * with heartbeats. Up to 8; unwatch it before it is freed. */
void lc__control_watch(lc__control *c, lc_comm *comm);
void lc__control_unwatch(lc__control *c, lc_comm *comm);
/* Reports progress: `step`, and where the rank is, which is shown if it is lost ("epoch 2, validation"; NULL: outside
 * of any run; LC__OWN_LOOP: in a loop of the program's own, where a learned limit does not hold). Cheap; from any
 * thread. */
#define LC__OWN_LOOP "its own loop"
void lc__control_progress(lc__control *c, int64_t step, const char *where);
/* Reports terms to a launcher that may restart the run. */
void lc__control_terms(lc__control *c, unsigned terms);
/* The same for a single rank, which is not connected: it connects to the coordinator to report this, and leaves. */
void lc__control_last_terms(const lc__control_args *options, unsigned terms);

/* How a rank reports that it fails, or asks why others do:
 *
 *   function        called by                           connected  waits          this thread's message afterwards
 *   fail            any thread, in passing              yes        no             as it was
 *   fail_and_wait   the rank that is at fault           yes        1 s            that of all ranks, if of this rank
 *   last_words      a rank that fails before it meets   not yet    2 s            as fail_and_wait
 *   explain         a rank that misses another          yes        `seconds`      why the run has ended, if it has
 *   pass_on         the same, if it cannot go on        yes        and 1 s more   the same; it ends the run itself
 *
 * lc__world_last_words (world.h) is for a process that ends, and picks the one that fits. */

/* Ends the run on all ranks with "rank 3 (host a), step 120: why". Rank 3 is this one, or that of its newest error
 * (lc__error_rank), whose own report takes precedence if it arrives in time. Not for LC_ERR_PEER. */
void lc__control_fail(lc__control *c, const char *why);
/* `why` is this thread's newest error. */
void lc__control_fail_and_wait(lc__control *c, const char *why);
/* Connects to the coordinator to report it; does nothing if it cannot be reached. */
void lc__control_last_words(const lc__control_args *options, const char *why);
/* LC_ERR_PEER if the run has ended, else `status`. */
lc_status lc__control_explain(lc__control *c, double seconds, lc_status status);
/* As lc__control_explain. If the coordinator knows no reason by then (a rank has left too early, a connection between
 * two ranks broke), this rank reports its own. After an lc__control_explain in vain it does not wait for that again. */
lc_status lc__control_pass_on(lc__control *c, double seconds, lc_status status);
/* Whether the run has ended, and why. */
bool lc__control_ended(lc__control *c, char *text, size_t size);
/* `process_exit`: lightc launched this process, so a rank that ignores the end (does not close the channel) is ended
 * with _exit(1) after the grace period, and `say` gets the message; false, the default, for processes of a host
 * program. */
void lc__control_last_resort(lc__control *c, bool process_exit);
/* The address of this host that leads to the coordinator, as a number. Other ranks find this one there. */
void lc__control_local_address(const lc__control *c, char *text, size_t size);
/* Says goodbye for a rank whose process ends because all have stopped together, as `signal` asked for. Only
 * lc__control_close may follow. */
void lc__control_stopped(lc__control *c, int signal);
/* Says goodbye, after which the rank is not missed, and closes the channel. NULL is fine. */
void lc__control_close(lc__control *c);

/* ---- a launcher on another host than the coordinator's ---- */

/* Waits until the coordinator of `options` is reachable, and reports to it that this process ("node 1") starts the
 * `count` ranks from options->rank on, which join with options->identity. While the watch is open no other launcher may
 * start them; fails if one has. */
lc_status lc__watch_open(const lc__control_args *options, const char *who, int count, lc__watch **out) LC_MUST_USE;
/* As lc__coordinator_rank_ended, for one of these ranks. Does nothing if the coordinator is gone. */
void lc__watch_report(lc__watch *w, int rank, const char *how);
void lc__watch_close(lc__watch *w); /* NULL is fine */

#endif
