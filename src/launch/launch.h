/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks, inside the library.
 *
 * self_launch.c    this program, run again as its own ranks (options of the trainer)
 * launch.c         lc_launch, behind `lightc launch`
 * mpirun.c         ranks on several hosts, which mpirun starts
 * slurm.c          the job that a run is part of
 * supervisor/      what starts them on this machine, waits for them, and ends them together */
#ifndef LC_LAUNCH_LAUNCH_H
#define LC_LAUNCH_LAUNCH_H

#include "launch/supervisor/supervisor.h"

#include <lightc/options.h>

/* ---- mpirun.c ---- */

lc_status lc__hosts_add(lc__hosts *h, const char *name, size_t n) LC_MUST_USE;
/* The first n different ones of a file as mpirun takes it: a line each, whose first word counts. */
lc_status lc__hosts_of_file(const char *path, int n, lc__hosts *out) LC_MUST_USE;
void lc__hosts_release(lc__hosts *h);

/* Supervises mpirun, which starts plan->nodes[i] ranks on host i. */
lc_status lc__launch_mpirun(const lc__run_plan *plan, const lc__hosts *hosts, int *exit_status) LC_MUST_USE;

/* ---- self_launch.c ---- */

/* Supervises `local` ranks of this program on each machine that the options ask for. LC_STOP: they have ended well. */
lc_status lc__launch_self(const lc_trainer_options *o, int local) LC_MUST_USE;

#endif
