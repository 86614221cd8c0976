/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the ranks of a plan on this machine, waits for them, and ends them together.
 *
 * supervisor.c      starts processes, waits for them, ends them together
 * failure.c         reports why a run failed
 * restart.c         decides which ranks go on
 * adopted.c         ends processes that mpirun or a rank has left
 * process.c         one process: environment, fork and exec
 * mpirun_command.c  the command that starts ranks on other hosts
 * kept_output.c     keeps what ranks other than 0 print
 * mpirun_output.c   the same under mpirun
 * secret.c          the secret by which the ranks of a run know each other
 *
 * A supervisor is never a rank: it survives whatever happens to one. */
#ifndef LC_LAUNCH_SUPERVISOR_SUPERVISOR_H
#define LC_LAUNCH_SUPERVISOR_SUPERVISOR_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* cpu_set_t */
#endif
#include <lightc/launch.h>
#include <signal.h>
#include <sys/types.h>

#include "comm/control/control.h"
#include "base/cores.h"
#include "base/str.h"

/* ---- kept_output.c ---- */

/* Opens an unnamed file in $TMPDIR (or /tmp), else in `root`. It is gone when the last process has closed it. */
lc_status lc__output_open(const char *root, int *fd) LC_MUST_USE;
/* Reads its last `lines` lines. *more: there are others before them. */
void lc__output_tail(int fd, int lines, lc__str *out, bool *more);
/* Copies it to the file `path`. */
lc_status lc__output_save(int fd, const char *path) LC_MUST_USE;

/* ---- mpirun_output.c ---- */

typedef struct lc__gather lc__gather;

/* *fd is meant for mpirun's standard error; the caller closes it. What the n ranks print under `mark` goes into
 * files[rank], which are opened when needed (-1: not yet) and belong to the caller. */
lc_status lc__gather_start(const char *root, const char *mark, int *files, int n, int *fd,
                           lc__gather **out) LC_MUST_USE;
/* The rank that mpirun names as the first that failed, and its status as of waitpid; -1: mpirun does not say. */
typedef struct lc__blame {
    int rank, status;
} lc__blame;
#define LC__BLAMES_NOBODY ((lc__blame){-1, -1})

/* Call it after the end of mpirun. Returns when all that mpirun has written is read. If nobody reads what is shown for
 * `patience` seconds (and one), the rest is lost. NULL is fine. */
lc__blame lc__gather_end(lc__gather *g, double patience);
/* Looks for the failed rank in a line of mpirun's output. */
void lc__mpirun_blames(const char *line, lc__blame *b);

/* ---- process.c ---- */

typedef struct lc__place {
    int rank, size, local_rank, local_size, node_rank, num_nodes;
} lc__place;

/* One string "NAME=value" a line, for lc__environment. */
typedef struct lc__environment {
    char **list; /* for exec */
    lc__str text;
} lc__environment;

/* This process's environment, in which the variables in `add` ("NAME=value\n" each) replace those of the same names. */
lc_status lc__environment_make(const lc__str *add, lc__environment *out) LC_MUST_USE;
void lc__environment_release(lc__environment *e);

typedef struct lc__process {
    const char *file; /* searched for in PATH, then in the current directory as mpirun does, if it has no slash */
    char *const *argv;
    char *const *environment;
    int output;             /* descriptor for its standard output and error; -1: this process's */
    int error_output;       /* if >= 0, used for its standard error instead of `output` */
    bool no_input;          /* /dev/null; otherwise this process's, if it is not a terminal */
    const cpu_set_t *cores; /* NULL: all */
    const sigset_t *unblock;
} lc__process;

/* Starts it in a process group of its own. It is killed when the thread that started it ends. *exec_error: why the
 * program could not be executed; 0: something else failed. */
lc_status lc__process_start(const lc__process *p, pid_t *pid, int *exec_error) LC_MUST_USE;
/* Replaces this process by a program, which is searched for likewise. Returns only on failure, with the errno. */
int lc__exec(char *const *argv);
lc_status lc__exec_fail(int error, const char *file) LC_MUST_USE;
int lc__exec_status(int error); /* as of a shell: 127 if there is no such program, 126 if it cannot be executed */
/* "exited with status 3", "killed by signal 9 (Killed)". */
void lc__process_status(int status, char *text, size_t size);

/* ---- supervisor.c ---- */

typedef struct lc__hosts {
    char **names;
    int n;
} lc__hosts;

typedef struct lc__run_plan {
    const char *file;
    char *const *argv;
    const int *nodes; /* ranks of each node */
    int num_nodes;
    int node;            /* the node that this machine is; -1: all of them */
    const char *address; /* of the coordinator; NULL: loopback */
    int port;            /* 0: any */
    const char *secret;  /* NULL: a new one */
    int max_restarts;
    unsigned terms; /* terms of continuing without ranks (control.h), as far as known before ranks report */
    const char *root_dir;
    lc__control_times times; /* 0: the default */
    const lc__hosts *hosts;  /* of the nodes, if mpirun starts their ranks; NULL: this machine */
    const char *starter;     /* path of `lightc`, which starts the ranks on hosts that have it; NULL: none */
    const char *unknown; /* hosts that cannot be reached from here, though mpirun may know a way ("b, c"); NULL: none */
} lc__run_plan;

lc_status lc__supervise(const lc__run_plan *plan, int *exit_status) LC_MUST_USE;

/* ---- secret.c ---- */

#define LC__SECRET_SIZE 33
/* 32 random digits. */
lc_status lc__secret_make(char secret[LC__SECRET_SIZE]) LC_MUST_USE;

/* ---- mpirun_command.c ---- */

/* The arguments of mpirun for the ranks that are left: nodes[i] on host i. `environment`: mpirun's. */
typedef struct lc__mpirun {
    const char **argv;
    lc__str list, names;
    char number[16];
} lc__mpirun;

lc_status lc__mpirun_make(const lc__run_plan *plan, const int *nodes, char *const *environment,
                          lc__mpirun *out) LC_MUST_USE;
void lc__mpirun_release(lc__mpirun *m);

#endif
