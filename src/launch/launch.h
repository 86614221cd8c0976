/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks, inside the library.
 *
 * self_launch.c    runs this program again as its own ranks (options of the trainer)
 * launch.c         lc_launch, which `lightc launch` calls
 * mpirun.c         starts ranks on several hosts with mpirun
 * slurm.c          the Slurm job that a run is part of
 * supervisor/      starts the ranks of this machine, waits for them, and ends them together */
#ifndef LC_LAUNCH_LAUNCH_H
#define LC_LAUNCH_LAUNCH_H

#include "launch/supervisor/supervisor.h"

#include <lightc/options.h>

/* ---- mpirun.c ---- */

lc_status lc__hosts_add(lc__hosts *h, const char *name, size_t n) LC_MUST_USE;
/* The first n different hosts of a file in mpirun's format: the first word of each line is a host. */
lc_status lc__hosts_of_file(const char *path, int n, lc__hosts *out) LC_MUST_USE;
void lc__hosts_release(lc__hosts *h);

/* Supervises mpirun, which starts plan->nodes[i] ranks on host i. */
lc_status lc__launch_mpirun(const lc__run_plan *plan, const lc__hosts *hosts, int *exit_status) LC_MUST_USE;

/* ---- self_launch.c ---- */

/* Supervises `local` ranks of this program on each machine that the options ask for. LC_STOP: they have succeeded. */
lc_status lc__launch_self(const lc_trainer_options *o, int local) LC_MUST_USE;

#endif
