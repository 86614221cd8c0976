/* SPDX-License-Identifier: Apache-2.0 */
/* How processes of one machine share its cores. */
#ifndef LC_BASE_CORES_H
#define LC_BASE_CORES_H

#include <lightc/status.h>
#include <sched.h>

/* The cores that this process may use, sorted so that neighbors are adjacent. */
typedef struct lc__cores {
    int n, n_cores; /* logical processors, and cores: hyperthreads share one */
    int granted;    /* as many processors as control groups let all processes keep busy together; at most n */
    struct lc__core {
        int package, core, cpu;
    } * cpus;
} lc__cores;

lc_status lc__cores_find(lc__cores *out) LC_MUST_USE;
void lc__cores_release(lc__cores *c);
/* The part of process `i` of `n`: whole cores, if there are as many; else whole processors. Returns the threads that it
 * can run without disturbing others (one a core, and no more than are granted), or 0 if there are fewer processors than
 * processes, or fewer granted. */
int lc__cores_share(const lc__cores *c, int i, int n, cpu_set_t *out);
/* How many of `threads` process `i` of `n` may have if a quota of processors (INT_MAX: none) is for all of them; at
 * least 1. */
int lc__cores_of_quota(int threads, int quota, int i, int n);
/* Binds this thread, and threads it starts later, to the part of process `i` of the `n` that share what this one may
 * use. Returns lc__cores_share's number; 0: it is not bound. */
int lc__cores_take(int i, int n);

#endif
