/* SPDX-License-Identifier: Apache-2.0 */
/* SIGUSR1, which SLURM sends before a job's time is over (#SBATCH --signal=USR1@90). The state is saved to
 * <default_root_dir>/hpc_ckpt_N.ckpt after the step, the job is queued again, and training continues until the job is
 * ended. A job that SLURM restarted continues from the newest of these files; with several fits in a program, each
 * continues from its own. Without SLURM, the signal asks for a checkpoint. */
#include "core/ranks/ranks.h"
#include "core/resume/resume.h"
#include "core/checkpoint/checkpoint.h"
#include "comm/agree.h"
#include "core/resume/after_save.h"
#include "launch/slurm.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "hpc_ckpt_"

static bool is_of_fit(const lc_trainer *t, const char *name, int64_t fit)
{
    char path[4200];
    lc__manifest m = {0};
    int n = snprintf(path, sizeof path, "%s/%s", t->root_dir, name);
    bool is =
        n > 0 && (size_t)n < sizeof path && lc__manifest_read(&lc__io_system, path, &m) >= 0 && m.origin.fit == fit;
    lc__manifest_release(&m);
    return is;
}

/* The largest N of hpc_ckpt_N.ckpt, or 0. `fit`: only files that this fit of the program has written; 0: all. */
static long newest(const lc_trainer *t, int64_t fit)
{
    long most = 0;
    DIR *d = opendir(t->root_dir);
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));) {
        char *end;
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        long n = strtol(e->d_name + strlen(PREFIX), &end, 10);
        if (!strcmp(end, ".ckpt") && n > most && (!fit || is_of_fit(t, e->d_name, fit))) most = n;
    }
    closedir(d);
    return most;
}

lc_status lc__find_hpc(const lc_trainer *t, int64_t fit, char *path, size_t size)
{
    long n = newest(t, fit);
    if (n == 0) return lc_fail(LC_ERR_NOT_FOUND, "there is no " PREFIX "N.ckpt in %s", t->root_dir);
    snprintf(path, size, "%s/" PREFIX "%ld.ckpt", t->root_dir, n);
    return LC_OK;
}

/* The path with the next number that no other run in this directory has taken. */
static lc_status next_path(lc_trainer *t, char *path, size_t size)
{
    bool taken = true;
    for (long i = newest(t, 0) + 1; taken; i++) {
        int n = snprintf(path, size, "%s/" PREFIX "%ld.ckpt", t->root_dir, i);
        if (n < 0 || (size_t)n >= size) return lc_fail(LC_ERR_IO, "the path of default_root_dir is too long");
        taken = false; /* rank 0 decides */
        if (lc__is_rank_zero(t)) LC_TRY(lc__take_checkpoint_name(t, path, &taken));
    }
    return LC_OK;
}

lc_status lc__save_on_request(lc_trainer *t)
{
    char path[4200];
    atomic_store(&t->ranks->save_requested, 0);
    t->ranks->agreed_save = false;            /* until the next request */
    LC_TRY(lc__settle(t, LC__SETTLE_RESULT)); /* first, so that its error is not taken for one of this save */
    lc_status s = lc__ranks_agree(t->comm, next_path(t, path, sizeof path));
    if (s >= 0) s = lc__save_checkpoint(t, path, false);
    lc__saves_count(t, path, s);
    if (s < 0) {
        lc_trainer_message(t, LC_ERROR, "SIGUSR1: the state could not be saved: %s", lc_error_message());
        return LC_OK; /* training is not affected */
    }
    lc_trainer_message(t, LC_INFO, "SIGUSR1: saved %s", path);
    if (lc__is_rank_zero(t) && lc__on_slurm() && lc__slurm_requeue() < 0)
        lc_trainer_message(t, LC_WARNING, "%s", lc_error_message());
    return LC_OK;
}
