/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's state, shared by supervisor.c, adopted.c, failure.c and restart.c. A life is the time from the start
 * of the ranks to their end; a restart begins the next one. */
#ifndef LC_LAUNCH_SUPERVISOR_SUPERVISOR_INTERNAL_H
#define LC_LAUNCH_SUPERVISOR_SUPERVISOR_INTERNAL_H

#include "launch/supervisor/supervisor.h"

#include "base/signal_fd.h"
#include "comm/control/times.h"

typedef struct child {
    pid_t pid;   /* 0: has ended, or never was */
    pid_t group; /* its pid, kept after its end */
    int output, status;
    double stopped_at; /* when it was seen stopped; 0: it runs */
    bool ended_here;   /* killed by this process, as it did not end by itself */
    bool lost;
    lc__place place;
} child;

typedef struct supervisor {
    const lc__run_plan *plan;
    lc__control_times times;
    int n, size;     /* ranks on this machine, and in total */
    int began;       /* ranks in total before any was lost */
    child *children; /* ranks, or mpirun */
    int *nodes;      /* with mpirun: ranks of each host */
    bool *lost;      /* with mpirun, by rank, set when a life is over */
    int *kept;       /* with mpirun: files of the ranks' output; -1: none yet */
    lc__blame blame; /* with mpirun, once it has ended */
    lc__gather *gather;
    lc__cores cores;
    lc__signal_fd signals;
    char host[256], secret[LC__SECRET_SIZE];
    const char *key;    /* the secret of the run */
    unsigned terms;     /* of continuing without ranks (control.h) */
    char run[17];       /* the run's name in checkpoints */
    char restarted[64]; /* when the run began; "": this is its first life */
    lc__coordinator *coordinator;
    lc__watch *watch; /* on a node without the coordinator: reports its ranks to it */
    lc__str calls;    /* the last calls of each rank, if the run has failed */
    int port;
    bool everywhere;    /* the coordinator listens on every interface, as its address is not this host's */
    int exec_error;     /* errno of the program's exec; 0: none */
    int signal;         /* SIGINT, SIGTERM or SIGHUP, passed on */
    int requests;       /* how often SIGINT and SIGTERM came */
    double insist;      /* when the second is passed on once more; 0: never */
    int culprit;        /* index of the child that is to blame; -1: none */
    bool run_ended;     /* the coordinator has ended the run */
    bool asked;         /* mpirun was asked to end */
    bool killed;        /* the remaining processes were killed */
    bool common;        /* no single rank is at fault */
    double deadline;    /* when the remaining processes are killed; 0: never */
    double stopped_for; /* how long the rank at fault was stopped, which is why it is killed; 0: it was not */
} supervisor;

child *lc__child_of_rank(const supervisor *s, int rank); /* NULL: it is not on this machine */

/* ---- adopted.c ---- */

/* Kills the processes left on this machine by an mpirun that was killed, or interrupted twice. They are now children of
 * this process, and useless. */
void lc__end_orphans(const supervisor *s);
/* Waits for the helper processes that forward the output of ranks on this machine: each exits when everything is sent.
 * One that still waits, as for a daemon started by a rank, is killed. */
void lc__end_forwarders(const supervisor *s);

/* ---- failure.c, restart.c ---- */

/* Shows the last calls, if there are any, and writes them to a file, with the reason why the run has ended, for users
 * without a terminal. */
void lc__supervisor_show_calls(const supervisor *s, const char *why);
/* Reports what ended the run, with the output of the rank that is to blame. Call it after the end of all children. */
lc_status lc__supervisor_failure(supervisor *s) LC_MUST_USE;
/* Call it then: selects the ranks to start in the next life, if any are left. */
void lc__supervisor_go_on(supervisor *s);

#endif
