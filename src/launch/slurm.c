/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/slurm.h"
#include "base/spawn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Seconds given to scontrol and squeue, which all ranks wait for: an unreachable controller must not stop training. */
#define PATIENCE 10.0

bool lc__on_slurm(void)
{
    const char *job = getenv("SLURM_JOB_ID"), *name = getenv("SLURM_JOB_NAME");
    return job && *job && !(name && (!strcmp(name, "bash") || !strcmp(name, "interactive")));
}

static void job_of(char *id, size_t size)
{
    const char *array = getenv("SLURM_ARRAY_JOB_ID"), *task = getenv("SLURM_ARRAY_TASK_ID"),
               *job = getenv("SLURM_JOB_ID");
    if (array && task)
        snprintf(id, size, "%.50s_%.50s", array, task);
    else
        snprintf(id, size, "%.100s", job ? job : "");
}

lc_status lc__slurm_requeue(void)
{
    char id[128], said[8];
    job_of(id, sizeof id);
    return lc__spawn_ask((char *const[]){"scontrol", "requeue", id, NULL}, PATIENCE, said, sizeof said);
}

bool lc__slurm_time(const char *text, double *seconds)
{
    static const double scale[] = {1, 60, 3600};
    double parts[3];
    long days = 0;
    int n = 0;
    char *end;
    if (!strcmp(text, "UNLIMITED")) {
        *seconds = INFINITY;
        return true;
    }
    if (strchr(text, '-')) {
        days = strtol(text, &end, 10);
        if (end == text || *end != '-') return false;
        text = end + 1;
    }
    for (;; text = end + 1) {
        if (n == 3 || *text < '0' || *text > '9') return false;
        parts[n++] = (double)strtol(text, &end, 10);
        if (!*end) break;
        if (*end != ':') return false;
    }
    *seconds = (double)days * 86400;
    for (int i = 0; i < n; i++) *seconds += parts[n - 1 - i] * scale[i];
    return n > 1;
}

lc_status lc__slurm_time_left(double *seconds)
{
    const char *end_time = getenv("SLURM_JOB_END_TIME"); /* since Slurm 23 */
    char id[128], said[64], *end;
    if (end_time && *end_time) {
        double when = strtod(end_time, &end);
        if (!*end) {
            *seconds = when - (double)time(NULL);
            return LC_OK;
        }
    }
    job_of(id, sizeof id);
    LC_TRY(lc__spawn_ask((char *const[]){"squeue", "--noheader", "--format=%L", "--job", id, NULL}, PATIENCE, said,
                         sizeof said));
    said[strcspn(said, " \n")] = 0;
    if (lc__slurm_time(said, seconds)) return LC_OK;
    return lc_fail(LC_ERR_FORMAT, "squeue reports \"%.40s\" as the time left of job %s, which is not a time", id, said);
}
