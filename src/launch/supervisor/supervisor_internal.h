/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor, as supervisor.c (a life), adopted.c (what others leave it), failure.c
 * (what is said of a death) and restart.c (who lives on) share it. */
#ifndef LC_LAUNCH_SUPERVISOR_SUPERVISOR_INTERNAL_H
#define LC_LAUNCH_SUPERVISOR_SUPERVISOR_INTERNAL_H

#include "launch/supervisor/supervisor.h"

#include "base/signal_fd.h"
#include "comm/control/times.h"

typedef struct child {
    pid_t pid;   /* 0: has ended, or never was */
    pid_t group; /* what it was, also then */
    int output, status;
    double stopped_at; /* when that was seen; 0: it runs */
    bool ended_here;   /* by this process, as it did not end by itself */
    bool lost;
    lc__place place;
} child;

typedef struct supervisor {
    const lc__run_plan *plan;
    lc__control_times times;
    int n, size;     /* ranks here, and in all */
    int began;       /* in all, before any was lost */
    child *children; /* ranks, or mpirun */
    int *nodes;      /* with mpirun: ranks of each host */
    bool *lost;      /* with mpirun, once a life is over: by rank */
    int *kept;       /* with mpirun: files of what ranks print, -1: nothing yet */
    lc__blame blame; /* with mpirun, once it has ended */
    lc__gather *gather;
    lc__cores cores;
    lc__signal_fd signals;
    char host[256], secret[LC__SECRET_SIZE];
    const char *key;    /* the secret of the run */
    unsigned terms;     /* of going on */
    char run[17];       /* its name in checkpoints */
    char restarted[64]; /* when the run began; "": this is its first life */
    lc__coordinator *coordinator;
    lc__watch *watch; /* on a node without the coordinator: reports its ranks to it */
    lc__str calls;    /* the last ones of each rank, of a run that has failed */
    int port;
    bool everywhere;    /* it listens on every interface, as it does not have the address that others know it by */
    int exec_error;     /* of the program; 0: none */
    int signal;         /* SIGINT, SIGTERM or SIGHUP, passed on */
    int culprit;        /* index of the child that is to blame; -1: none */
    bool run_ended;     /* by the coordinator */
    bool asked;         /* mpirun, to end */
    bool killed;        /* who was left */
    bool common;        /* no single rank is at fault */
    double deadline;    /* when those that are left are killed; 0: never */
    double stopped_for; /* how long the rank at fault was stopped, which is why it is killed; 0: it was not */
} supervisor;

child *lc__child_of_rank(const supervisor *s, int rank); /* NULL: it is not one of this machine */

/* ---- adopted.c ---- */

/* Processes left on this machine by an mpirun that was killed, or interrupted twice: they are now children of this
 * process, and useless. */
void lc__end_orphans(const supervisor *s);
/* The helper processes that forward the output of ranks on this machine: each exits when everything is sent. One that
 * still waits, as for a daemon started by a rank, is killed. */
void lc__end_forwarders(const supervisor *s);

/* ---- failure.c, restart.c ---- */

/* Shows the last calls, if there are any, and writes them to a file, with the reason why the run has ended, for users
 * without a terminal. */
void lc__supervisor_show_calls(const supervisor *s, const char *why);
/* What ended the run, as an error; with what the rank that is to blame has printed. After the end of all children. */
lc_status lc__supervisor_failure(supervisor *s) LC_MUST_USE;
/* After that: the remaining ranks are those to start next, if there are any. */
void lc__supervisor_go_on(supervisor *s);

#endif
