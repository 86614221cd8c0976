/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the coordinator:
 *
 *   coordinator.c  its thread, which goes in rounds, and what its process calls
 *   door.c         strangers, and how they become members
 *   watch.c        launchers, and the ranks that are theirs
 *   members.c      messages from members and to them
 *   verdict.c      whether the run has ended, and of what
 *   stall.c        ranks that make no progress: when it is printed, and when the run ends
 *   calls.c        what everybody did last; calls that do not fit, and ranks that wait for each other
 *
 * A connection at the *door* is a stranger's until it has proven that it knows the secret; then it belongs to a
 * *member* or a *launcher*. Each has an identity: a rank belongs to the process that came first with its number, or to
 * that process's launcher. The *verdict* is why the run ends. Members whose processes have ended are *buried*: lost,
 * once their last words are in.
 *
 * All of it is called with the coordinator's lock. */
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
    bool waiting; /* HERE, for the others */
    bool blamed;  /* the run has ended because of it */
    lc__wire wire;
    char host[LC__HOST_TEXT];
    uint64_t process, identity;
    double heard;             /* when anything came */
    double since;             /* LOST, FAILED: when that was seen */
    char cause[LC__END_TEXT]; /* FAILED: in the rank's words */
    bool own_matter;          /* FAILED: for a reason other than its calls */
    int error_of;             /* FAILED: the rank on which it happened; none of the run's: this one */
    char ended[256];          /* in the words of who watches its process; "" while it is thought to run */
    bool well;                /* it has */
    double ended_at;
    uint64_t reports; /* of progress */
    double reported;  /* when their number grew */
    bool in_run;      /* it reports from inside of a trainer's run */
    int64_t step;     /* -1: none yet */
    char where[128];
    char calls[LC__LAST_TEXT]; /* the last ones it reported */
    double called;             /* when; 0: never */
    bool answered;             /* that was when it was asked, at the end */
    bool in_call;              /* it waits in one */
    uint64_t activity;         /* as reported: history.h */
    double moved;              /* when that changed */
    struct lc__under_way {     /* its oldest call that has not ended */
        uint64_t number, collective;
        char group[32], text[LC_COMM_CALL_TEXT];
    } under_way;
    double since_call;    /* since when it is that one */
    uint64_t begun, done; /* its calls on all ranks, as reported */
    int peer;             /* the other side of a send or receive that was under way; -1: none */
    double reached;       /* when it reported these three */
    double leaving;       /* since when it makes no more calls; 0: it may */
    uint8_t *gift;        /* what it gives to the meeting that is on */
    size_t gift_bytes;
    uint64_t gift_number; /* 0: nothing */
    double given;         /* when */
} lc__member;

typedef struct lc__stranger {
    lc__guest guest;
    lc__wire wire;
    uint8_t asked[LC__NONCE]; /* the number that it was sent */
} lc__stranger;

/* The launcher of the ranks [first, first + count). */
typedef struct lc__launcher {
    lc__wire wire; /* fd is -1 of the process that the coordinator is in */
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
    bool alone;              /* in a forked child of its process: there is no thread */
    pthread_mutex_t lock;    /* of everything below */
    lc__member *members;     /* [size] */
    lc__stranger *strangers; /* [most_strangers] */
    int n_strangers, most_strangers;
    double shut;             /* until when nobody is accepted, as no stranger has had its time */
    lc__launcher *launchers; /* [size] */
    int n_launchers;
    bool gathering;     /* ranks wait for others that have not come, or not come back */
    bool ending, ended; /* `message` says why; ending: ranks are asked for their last calls, and none is notified yet */
    bool stopping;
    bool harmless;                     /* the end: somebody has left without a goodbye, whose process has ended well */
    unsigned terms;                    /* of all ranks together */
    int stopped;                       /* the signal that all have stopped for, as those say that have left since */
    int silent;                        /* the rank whose silence ended the run, or -1 */
    double left;                       /* when the last rank said goodbye; 0: none has */
    double slept, woken;               /* for how long this process was stopped, and until when */
    double started, beat, word, asked; /* word: when waiting ranks are notified next */
    double compared;                   /* when calls were */
    double longest;                    /* seconds between two reports of progress in a run, of any rank */
    double next_line;                  /* seconds without progress after which people are notified */
    void (*on_stall)(const char *text);
    bool asked_for_word, news; /* this process prints who waits for whom; there is something new to print */
    char message[LC__END_TEXT];
    char refused[256]; /* the last that was turned away while others are waited for; "" */
    bool full;         /* this process has no descriptor for who knocks; until the next round */
    lc__str calls;     /* the last ones of each rank, once the run has ended */
    void (*on_end)(void *ctx, const char *message, const char *calls);
    void *ctx;
    bool unshown;          /* on_end is still to be called, and rank 0 to be notified */
    struct pollfd *polled; /* [2 + 2 * size + most_strangers] */
};

/* ---- members.c ---- */

/* A connection that has no memory left for its messages is as good as gone. */
void lc__member_tell(lc__member *m, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data,
                     size_t n);
void lc__member_tell_text(lc__member *m, lc__frame_kind kind, const char *text);
void lc__members_tell(lc__coordinator *c, lc__frame_kind kind, const char *text);
/* Takes what has come. */
void lc__member_serve(lc__coordinator *c, lc__member *m, double now);
void lc__member_lost(lc__member *m, double now);
/* Reported by the watcher of its process: how it ended; NULL: well. */
void lc__member_ended(lc__member *m, const char *how, double now);

/* ---- door.c ---- */

void lc__door_accept(lc__coordinator *c, double now);
void lc__door_serve(lc__coordinator *c, lc__stranger *s, double now);
void lc__door_forget(lc__coordinator *c, double now);
/* From now on all ranks are waited for. */
void lc__door_gather(lc__coordinator *c, double now);

/* ---- watch.c ---- */

/* Whether a rank that comes with this identity is turned away because another launcher starts it; then why. */
bool lc__launcher_forbids(const lc__coordinator *c, int rank, uint64_t identity, char *why, size_t size);
/* A launcher with this answer takes the connection over; false: it is turned away, and why. */
bool lc__launcher_add(lc__coordinator *c, lc__wire *w, const uint8_t hello[LC__HELLO_BYTES], char *why, size_t size);
/* Takes what has come. */
void lc__launcher_serve(lc__coordinator *c, lc__launcher *l, double now);
/* Forgets those that are gone. */
void lc__launchers_tidy(lc__coordinator *c);

/* ---- verdict.c ---- */

/* The run ends, as c->message says. */
void lc__verdict_end(lc__coordinator *c);
/* Whether to look again soon. */
bool lc__verdict_decide(lc__coordinator *c, double now);
/* What is wrong is said without waiting for a better explanation. */
void lc__verdict_settle(lc__coordinator *c);
/* "ranks 2, 3": those with is[i]. */
void lc__verdict_list(const lc__coordinator *c, const bool *is, char *text, size_t size);
/* "ranks 2, 3 of 4": those that are waited for. */
void lc__verdict_absent(const lc__coordinator *c, char *text, size_t size);

/* "rank 3 (host a), step 120, epoch 2, validation" */
void lc__verdict_place(const lc__coordinator *c, int rank, char *text, size_t size);
/* The rank that has reported nothing for more than `seconds` and waits for nobody, for longest; -1: there is none. */
int lc__verdict_who_hangs(const lc__coordinator *c, double now, double seconds);

/* ---- stall.c ---- */

/* A rank has reported progress, from inside of a trainer's run or from elsewhere. */
void lc__stall_take_report(lc__coordinator *c, lc__member *m, bool in_run, double now);
/* Seconds without progress after which this rank ends the run; INFINITY: never. */
double lc__stall_limit(const lc__coordinator *c, const lc__member *m);
/* Notifies people of a rank without progress, again each time it has taken twice as long. */
void lc__stall_judge(lc__coordinator *c, double now);

/* ---- calls.c ---- */

void lc__calls_take(lc__member *m, const lc__frame *f, double now);
/* The last calls of each rank, for people. */
void lc__calls_list(const lc__coordinator *c, lc__str *out);
/* Whether a rank has been in the same call for more than a second. */
bool lc__calls_are_stuck(const lc__coordinator *c, double now);
/* Ends the run where ranks make different calls, or all wait for each other. */
void lc__calls_judge(lc__coordinator *c, double now);

#endif
