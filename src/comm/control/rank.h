/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's end of the control channel: control.c (what the rank calls) and rank_thread.c (its thread). */
#ifndef LC_COMM_CONTROL_RANK_H
#define LC_COMM_CONTROL_RANK_H

#include "comm/control/control_internal.h"
#include "base/at_fork.h"

enum { LC__WATCHED = 8 };

struct lc__control {
    lc__control_args options;
    char *address, *secret; /* copies, to which `options` points */
    char local[64];         /* the address of this host that leads to the coordinator */
    int wake;
    pthread_t thread;
    lc__at_fork forked;
    bool alone;           /* in a forked child of its process: there is no thread */
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t changed;
    lc__wire wire; /* closed once the run has ended */
    bool started, welcome, ready, ended, over, closing;
    pid_t parent;     /* the launcher */
    bool orphaned;    /* the launcher is gone, and the coordinator knows */
    bool by_word;     /* the coordinator ended the run */
    bool unexplained; /* a wait for the end was in vain: the coordinator does not know what is wrong */
    char message[LC__END_TEXT], refused[256], waiting[512];
    char doubt[LC__DOUBT_TEXT];                       /* why the process that was reached is not the coordinator */
    uint8_t asked[LC__NONCE], hello[LC__HELLO_BYTES]; /* the coordinator's nonce, and this rank's answer */
    bool greeted;
    char coordinator[LC__HOST_TEXT + 64]; /* its name in messages */
    double heard, beat, ended_at, closing_at;
    bool process_exit;
    lc_comm *watched[LC__WATCHED];
    uint64_t reports, reports_sent; /* how many reports of progress; how many the coordinator knows */
    double called;                  /* when the last calls were sent */
    int64_t step;
    char where[128];
    bool in_run;
    uint64_t meeting; /* the number of the last meeting */
    void *gifts;      /* where the data of the current meeting goes */
    size_t gift_bytes;
    bool met;
};

/* ---- rank_thread.c ---- */

/* The thread; its argument is an lc__control. */
void *lc__control_serve(void *control);

/* The rest is called with the lock. */

/* The error that says why the run has ended. */
lc_status lc__control_fail_ended(const lc__control *c) LC_MUST_USE;
/* Queues a message and sends what can be sent at once, so that it is under way even if this process ends now. False: no
 * memory. */
bool lc__control_send(lc__control *c, lc__frame_kind kind, const void *head, size_t head_bytes, const void *data,
                      size_t n);
/* Queues the last calls on all communicators watched. `answer`: they were asked for. */
void lc__control_send_calls(lc__control *c, bool answer, double now);
/* Queues a heartbeat, with where this rank is, if it is due or there is news. */
void lc__control_beat(lc__control *c, double now);

#endif
