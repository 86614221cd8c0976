/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the ranks of a run.
 *
 * Programs with a trainer do not need this: `--devices 2 --strategy ddp` starts their ranks. It is for programs that
 * start others, as `lightc launch` does. docs/launching.md describes a rank's environment, and the other ways to start
 * one. */
#ifndef LIGHTC_LAUNCH_H
#define LIGHTC_LAUNCH_H

#include <lightc/args.h>
#include <lightc/status.h>

/* Most ranks of one machine. */
#define LC_MAX_LOCAL_RANKS 1024

typedef struct lc_launch_args {
    size_t size;
    char *const *argv; /* the program, searched for in PATH, then here, and its arguments; NULL after the last */
    int ranks;         /* how many; 0: the sum of `hosts`, or 1 */
    /* "a:4,b:4" puts 4 ranks on each host, through mpirun; "local:2,local:2" simulates hosts on this one. NULL: all
     * ranks on this one. */
    const char *hosts;
    int max_restarts;     /* how many times the remaining ranks restart from the last checkpoint when ranks are lost */
    const char *root_dir; /* directory for the output of failed ranks; NULL: the current directory */
    double start_timeout, silence_timeout, progress_timeout,
        grace_period; /* seconds, as the options of these names; progress_timeout 0: learned from the run's steps, -1:
                         never */
} lc_launch_args;
LC_DEFAULTS(lc_launch, lc_launch_args, .start_timeout = 300, .silence_timeout = 10, .grace_period = 2)

LC_BEGIN_DECLS

/* Starts the ranks and returns when all have ended. Meanwhile this process is their supervisor: it forwards SIGINT,
 * SIGTERM, SIGHUP and SIGUSR1, and when a rank is lost it ends the others. Ranks do not outlive it. Rank 0 writes to
 * this process's standard output; the output of the others is kept, and shown for a failed rank. LC_OK if all ended
 * with status 0; else the error names the rank that failed first, and *exit_status (may be NULL) is its status: 128 + N
 * for a signal N; if none was started, 127 if there is no such program, 126 if it cannot be executed, else 1.
 * LC_ERR_INTERRUPTED if they ended because of a signal to this process. LC_ERR_CONFIG in a rank: a program that
 * launches itself would never end. mpirun may start `lightc launch` as a rank: there this call executes the program in
 * its place, and returns only if it cannot. */
#define lc_launch(...) LC_CALL_NEW_(lc_launch, lc_launch, (), __VA_ARGS__, )
LC_API lc_status lc_launch_with(int *exit_status, const lc_launch_args *args) LC_MUST_USE;

LC_END_DECLS
#endif
