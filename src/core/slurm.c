/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pipe2 */
#endif
#include "core/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

bool lc__on_slurm(void)
{
    const char *job = getenv("SLURM_JOB_ID"), *name = getenv("SLURM_JOB_NAME");
    return job && *job && !(name && (!strcmp(name, "bash") || !strcmp(name, "interactive")));
}

/* The beginning of what the command prints, in `text`. */
static lc_status run(char *const argv[], char *text, size_t size)
{
    posix_spawn_file_actions_t files;
    pid_t pid;
    int out[2], status = 0;
    size_t n = 0;
    char rest[256];
    if (pipe2(out, O_CLOEXEC) != 0) return lc_fail(LC_ERR_IO, "cannot run %s: %s", argv[0], strerror(errno));
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    int failed = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(out[1]);
    for (ssize_t got = 1; !failed && got != 0;) {
        bool room = n + 1 < size;
        got = room ? read(out[0], text + n, size - 1 - n) : read(out[0], rest, sizeof rest);
        if (got < 0 && errno != EINTR) break;
        if (got > 0 && room) n += (size_t)got;
    }
    text[n] = 0;
    close(out[0]);
    if (failed) return lc_fail(LC_ERR_IO, "cannot run %s: %s", argv[0], strerror(failed));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return lc_fail(LC_ERR_IO, "%s %s failed (status %d)", argv[0], argv[1], status);
    return LC_OK;
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
    return run((char *const[]){"scontrol", "requeue", id, NULL}, said, sizeof said);
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
    LC_TRY(run((char *const[]){"squeue", "--noheader", "--format=%L", "--job", id, NULL}, said, sizeof said));
    said[strcspn(said, " \n")] = 0;
    if (lc__slurm_time(said, seconds)) return LC_OK;
    return lc_fail(LC_ERR_FORMAT, "squeue says that job %s has \"%.40s\" left, which is no time", id, said);
}
