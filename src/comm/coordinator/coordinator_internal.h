/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the coordinator:
 *
 *   coordinator.c  its thread, which goes in rounds, and what its process calls
 *   admit.c        unproven connections, and how they become members' and launchers'
 *   launchers.c    launchers, and their ranks
 *   members.c      messages from members and to them
 *   verdict.c      whether the run has ended, and why
 *   stall.c        ranks that make no progress: when a line is printed, and when the run ends
 *   calls.c        the last calls of all ranks; calls that do not match, and ranks that wait for each other
 *
 * A connection is *unproven* until it has proven that it knows the secret; then it belongs to a
 * *member* or a *launcher*. Each has an identity: a rank belongs to the process that joined first with its number, or
 * to that process's launcher. The *verdict* is why the run ends. Members whose processes have ended
 * count as lost once their last messages have arrived.
 *
 * All functions are called with the coordinator's lock. */
#ifndef LC_COMM_COORDINATOR_COORDINATOR_INTERNAL_H
#define LC_COMM_COORDINATOR_COORDINATOR_INTERNAL_H

#include "comm/control/control_internal.h"
#include "comm/control/times.h"
#include "comm/net/guests.h"
#include "base/at_fork.h"
#include "base/str.h"

#include <poll.h>

enum { LC__PLACE_TEXT = 256 };

typedef enum lc__member_state { LC__ABSENT, LC__HERE, LC__LOST, LC__FAILED, LC__LEFT } lc__member_state;

typedef struct lc__member {
    lc__member_state state;
    bool waiting; /* HERE: for the others to join */
    bool blamed;  /* the run has ended because of it */
    lc__wire wire;
    char host[LC__HOST_TEXT];
    uint64_t process, identity;
    double heard;             /* when anything arrived last */
    double since;             /* LOST, FAILED: when that was seen */
    char cause[LC__END_TEXT]; /* FAILED: in the rank's words */
    bool own_matter;          /* FAILED: for a reason other than its calls */
    int error_of;             /* FAILED: the rank on which it happened; not a rank of the run: this one */
    char ended[256];          /* how its process ended, as its watcher reports it; "": it is thought to run */
    bool well;                /* it ended with status 0 */
    double ended_at;
    uint64_t reports; /* how many reports of progress */
    double reported;  /* when the last one arrived */
    bool in_run;      /* it reports from inside of a trainer's run */
    int64_t step;     /* -1: none yet */
    char where[128];
    char calls[LC__LAST_TEXT]; /* its last calls, as reported */
    double called;             /* when; 0: never */
    bool answered;             /* these are its answer, at the end */
    bool in_call;              /* it waits in a call */
    uint64_t activity;         /* as reported: history.h */
    double moved;              /* when `activity` changed */
    struct lc__under_way {     /* its oldest call that has not ended */
        uint64_t number, collective;
        char group[32], text[LC_COMM_CALL_TEXT];
    } under_way;
    double since_call;    /* since when `under_way` is the same call */
    uint64_t begun, done; /* its collectives, as reported */
    int peer;             /* the other side of a send or receive that was under way; -1: none */
    double reached;       /* when it reported the last three */
    double leaving;       /* since when it makes no more calls; 0: it may make more */
    uint8_t *gift;        /* its data for the current meeting */
    size_t gift_bytes;
    uint64_t gift_number; /* 0: none */
    double given;         /* when it arrived */
} lc__member;

typedef struct lc__unproven {
    lc__guest guest;
    lc__wire wire;
    uint8_t asked[LC__NONCE]; /* the nonce that it was sent */
} lc__unproven;

/* The launcher of the ranks [first, first + count). */
typedef struct lc__launcher {
    lc__wire wire; /* fd is -1 for the coordinator's own process */
    bool here;
    uint64_t identity;
    int first, count;
    char sender[LC__SENDER_TEXT];
} lc__launcher;

struct lc__coordinator {
    int listener, wake, size;
    char secret[65];
    lc__control_times times;
    pthread_t thread;
    lc__at_fork forked;
    bool alone;             /* in a forked child of its process: there is no thread */
    pthread_mutex_t lock;   /* guards everything below */
    lc__member *members;    /* [size] */
    lc__unproven *unproven; /* [most_unproven] */
    int n_unproven, most_unproven;
    double shut;             /* until when no connection is accepted, as all unproven ones have time left */
    lc__launcher *launchers; /* [size] */
    int n_launchers;
    bool gathering;     /* ranks wait for others that have not joined, or not joined again */
    bool ending, ended; /* `message` says why; ending: ranks are asked for their last calls, and none is notified yet */
    bool stopping;
    bool harmless;                     /* the run ended because a process ended with status 0 without a goodbye */
    unsigned terms;                    /* reported by any rank (control.h) */
    int stopped;                       /* the signal for which all have stopped, as reported by ranks that have left */
    int silent;                        /* the rank whose silence ended the run, or -1 */
    double left;                       /* when the last rank said goodbye; 0: none has */
    double slept, woken;               /* for how long this process was stopped, and until when */
    double started, beat, word, asked; /* word: when waiting ranks are notified next */
    double compared;                   /* when calls were compared last */
    double longest;                    /* longest time between two reports of progress in a run, of any rank */
    double next_line;                  /* seconds without progress until the next line is printed */
    void (*on_stall)(const char *text);
    bool asked_for_word, news; /* this process prints which ranks are awaited; there is something new to print */
    char message[LC__END_TEXT];
    char refused[256]; /* the last connection rejected while ranks are awaited; "": none */
    bool full;         /* no descriptor is left for a new connection; until the next round */
    lc__str calls;     /* the last calls of each rank, once the run has ended */
    void (*on_end)(void *ctx, const char *message, const char *calls);
    void *ctx;
    bool unshown;          /* on_end must still be called, and rank 0 notified */
    struct pollfd *polled; /* [2 + 2 * size + most_unproven] */
};

/* ---- members.c ---- */

/* A connection for whose messages there is no memory is given up. */
void lc__member_send(lc__member *m, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data,
                     size_t n);
void lc__member_send_text(lc__member *m, lc__frame_kind kind, const char *text);
void lc__members_send(lc__coordinator *c, lc__frame_kind kind, const char *text);
/* Handles what has arrived. */
void lc__member_serve(lc__coordinator *c, lc__member *m, double now);
void lc__member_lost(lc__member *m, double now);
/* Reported by the watcher of its process: how it ended; NULL: with status 0. */
void lc__member_ended(lc__member *m, const char *how, double now);

/* ---- admit.c ---- */

void lc__admit_accept(lc__coordinator *c, double now);
void lc__admit_serve(lc__coordinator *c, lc__unproven *s, double now);
void lc__admit_forget(lc__coordinator *c, double now);
/* From now on waits for all ranks to join. */
void lc__admit_gather(lc__coordinator *c, double now);

/* ---- launchers.c ---- */

/* Whether a rank that joins with this identity is rejected because another launcher starts it; `why` says so. */
bool lc__launcher_forbids(const lc__coordinator *c, int rank, uint64_t identity, char *why, size_t size);
/* A launcher with this answer takes over the connection; false: it is rejected, and `why` says why. */
bool lc__launcher_add(lc__coordinator *c, lc__wire *w, const uint8_t hello[LC__HELLO_BYTES], char *why, size_t size);
/* Handles what has arrived. */
void lc__launcher_serve(lc__coordinator *c, lc__launcher *l, double now);
/* Forgets launchers that are gone. */
void lc__launchers_tidy(lc__coordinator *c);

/* ---- verdict.c ---- */

/* Ends the run, with c->message. */
void lc__verdict_end(lc__coordinator *c);
/* Decides whether the run ends. Returns whether to look again soon. */
bool lc__verdict_decide(lc__coordinator *c, double now);
/* Ends the run if anything is wrong, without waiting for a better explanation. */
void lc__verdict_settle(lc__coordinator *c);
/* "ranks 2, 3": those with is[i]. */
void lc__verdict_list(const lc__coordinator *c, const bool *is, char *text, size_t size);
/* "ranks 2, 3 of 4": those that have not joined. */
void lc__verdict_absent(const lc__coordinator *c, char *text, size_t size);

/* "rank 3 (host a), step 120, epoch 2, validation" */
void lc__verdict_place(const lc__coordinator *c, int rank, char *text, size_t size);
/* The rank that has reported nothing for longest, for more than `seconds`, and waits for no other; -1: none. */
int lc__verdict_who_hangs(const lc__coordinator *c, double now, double seconds);

/* ---- stall.c ---- */

/* Notes that a rank has reported progress, from inside of a trainer's run or from elsewhere. */
void lc__stall_take_report(lc__coordinator *c, lc__member *m, bool in_run, double now);
/* Seconds without progress after which this rank ends the run; INFINITY: never. */
double lc__stall_limit(const lc__coordinator *c, const lc__member *m);
/* Prints a line about a rank without progress, and again each time it has taken twice as long. */
void lc__stall_judge(lc__coordinator *c, double now);

/* ---- calls.c ---- */

void lc__calls_take(lc__member *m, const lc__frame *f, double now);
/* The last calls of each rank, as text. */
void lc__calls_list(const lc__coordinator *c, lc__str *out);
/* Whether a rank has been in the same call for more than a second. */
bool lc__calls_are_stuck(const lc__coordinator *c, double now);
/* Ends the run if ranks make different calls, or all wait for each other. */
void lc__calls_judge(lc__coordinator *c, double now);

#endif
