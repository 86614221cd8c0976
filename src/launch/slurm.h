/* SPDX-License-Identifier: Apache-2.0 */
/* The Slurm job in which this process runs: what only its commands know and do. */
#ifndef LC_LAUNCH_SLURM_H
#define LC_LAUNCH_SLURM_H

#include <stdbool.h>

#include <lightc/status.h>

/* In a job, and not in a shell that is one. */
bool lc__on_slurm(void);

/* Queues the job again: Slurm ends it, and starts it later. */
lc_status lc__slurm_requeue(void) LC_MUST_USE;

/* Seconds until the job's time is over; infinite if that is not limited. */
lc_status lc__slurm_time_left(double *seconds) LC_MUST_USE;

/* "1-02:03:04", "2:03:04" or "3:04", as squeue writes it, in seconds; "UNLIMITED": infinite. False: none of them. */
bool lc__slurm_time(const char *text, double *seconds);

#endif
