/* SPDX-License-Identifier: Apache-2.0 */
/* The Slurm job in which this process runs, as Slurm's environment variables and commands describe it. */
#ifndef LC_LAUNCH_SLURM_H
#define LC_LAUNCH_SLURM_H

#include <stdbool.h>

#include <lightc/status.h>

/* Whether this process runs in a job that is not just an interactive shell. */
bool lc__on_slurm(void);

/* Requeues the job: Slurm ends it and starts it again later. */
lc_status lc__slurm_requeue(void) LC_MUST_USE;

/* Seconds until the job's time is over; infinite if that is not limited. */
lc_status lc__slurm_time_left(double *seconds) LC_MUST_USE;

/* Parses a time as squeue writes it ("1-02:03:04", "2:03:04" or "3:04"); "UNLIMITED" is infinite. False: not a time. */
bool lc__slurm_time(const char *text, double *seconds);

#endif
