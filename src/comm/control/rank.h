/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's end of the control channel: control.c (what the rank calls) and rank_thread.c (its thread). */
#ifndef LC_COMM_CONTROL_RANK_H
#define LC_COMM_CONTROL_RANK_H

#include "comm/control/control_internal.h"
#include "base/at_fork.h"

enum { LC__WATCHED = 8 };

struct lc__control {
    lc__control_options options;
    char *address, *secret; /* of options */
    char local[64];         /* the address of this host that leads to the coordinator */
    int wake;
    pthread_t thread;
    lc__at_fork forked;
    bool alone;           /* in a forked child of its process: there is no thread */
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    lc__wire wire; /* closed once the run has ended */
    bool started, welcome, ready, ended, over, closing;
    pid_t parent;     /* the launcher */
    bool orphaned;    /* it is gone, and the coordinator knows */
    bool by_word;     /* it was the coordinator that ended the run */
    bool unexplained; /* it has been waited for the end in vain: the coordinator does not know of what is wrong */
    char message[LC__END_TEXT], refused[256], waiting[512];
    char doubt[LC__DOUBT_TEXT];                       /* why it is not the coordinator of this run that was reached */
    uint8_t asked[LC__NONCE], hello[LC__HELLO_BYTES]; /* the coordinator's number, and what this rank answered */
    bool greeted;
    char coordinator[LC__HOST_TEXT + 64]; /* what is gone when it is */
    double heard, beat, ended_at, closing_at;
    bool process_exit;
    lc_comm *watched[LC__WATCHED];
    uint64_t reports, reports_sent; /* of progress; of which the coordinator knows */
    double called;                  /* when the last calls were sent */
    int64_t step;
    char where[128];
    bool in_run;
    uint64_t meeting; /* the number of the last one */
    void *gifts;      /* where those of the current meeting go */
    size_t gift_bytes;
    bool met;
};

/* ---- rank_thread.c ---- */

/* The thread; its argument is an lc__control. */
void *lc__control_serve(void *control);

/* The rest with the lock. */

/* The run has ended: the error that says why. */
lc_status lc__control_fail_ended(const lc__control *c) LC_MUST_USE;
/* Queues a message and sends what can be sent at once, so that it is under way even if this process ends now. With the
 * lock. False: no memory. */
bool lc__control_tell(lc__control *c, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data,
                      size_t n);
/* Queues the last calls on all that is watched. `answer`: they were asked for. */
void lc__control_tell_calls(lc__control *c, bool answer, double now);
/* Queues where this rank is, if it is time, or there is news. */
void lc__control_beat(lc__control *c, double now);

#endif
