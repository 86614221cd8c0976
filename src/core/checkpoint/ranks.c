/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint written by several ranks: the training threads' side. Rank 0 makes the temporary directory and
 * broadcasts its name; then each rank writes its part in the background (joint.c). Only the training threads use the
 * communicator, in collective calls at the start of a checkpoint and when they wait for its result. */
#include "core/checkpoint/removal.h"
#include "core/checkpoint/joint.h"
#include "comm/agree.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

lc_status lc__state_dict_type(const char *asked, const lc_strategy_ops *strategy, bool *sharded)
{
    bool automatic = !asked || !strcmp(asked, "auto");
    *sharded = automatic ? strategy->shards_state : !strcmp(asked, "sharded");
    if (automatic || *sharded || !strcmp(asked, "full")) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "state_dict_type=\"%.60s\"; available: full, sharded and auto", asked);
}

lc_status lc__ranks_open_checkpoint(lc_comm *comm, const char *path, lc_checkpoint **out)
{
    lc_status status =
        lc__checkpoint_open_together(path, comm ? lc_comm_rank(comm) : 0, comm ? lc_comm_size(comm) : 1, out);
    status = lc__ranks_agree(comm, status);
    if (status >= 0) return LC_OK;
    lc_checkpoint_close(*out);
    *out = NULL;
    return status;
}

/* ---- writing ---- */

static void forget_joint(lc_ckpt_writer *w)
{
    if (w->joint.dir && w->joint.rank == 0)
        (void)!lc__ckpt_remove_own(w->io, w->joint.dir); /* no background thread has taken it */
    free(w->joint.dir);
    if (w->joint.size && w->joint.lock_fd >= 0) close(w->joint.lock_fd);
    w->joint.dir = NULL;
    w->joint.rank = w->joint.size = 0;
    w->joint.lock_fd = -1;
}

lc_status lc__ckpt_commit_together(lc_ckpt_writer *w, lc_comm *comm, bool wait)
{
    char *dir = NULL;
    int lock_fd = -1;
    lc_status status = LC_OK, made = LC_OK;
    if (!w->state) return lc_fail(LC_ERR_STATE, "there is no checkpoint to commit");
    int rank = comm ? lc_comm_rank(comm) : 0;
    if (rank == 0) made = lc__ckpt_make_temp(w->io, w->path, &dir, &lock_fd);
    made = lc__ranks_agree(comm, made);
    if (made >= 0) status = lc__ranks_text(comm, &dir);
    if (made < 0 || status < 0) {
        if (rank == 0 && dir) (void)!lc__ckpt_remove_own(w->io, dir); /* no rank will write there */
        if (lock_fd >= 0) close(lock_fd);
        free(dir);
        lc_ckpt_abort(w);
        return made < 0 ? made : status;
    }
    w->joint.rank = rank;
    w->joint.size = comm ? lc_comm_size(comm) : 1;
    w->joint.dir = dir;
    w->joint.lock_fd = lock_fd;
    w->together = true;
    w->joint_error.status = LC_OK;
    status = lc_ckpt_commit(w, false);
    lc__first_error_note(&w->joint_error, status);
    return wait ? lc__ckpt_wait_together(w, comm) : status;
}

/* Waits until this rank's files are safe. */
static lc_status wait_for_part(lc_ckpt_writer *w)
{
    pthread_mutex_lock(&w->lock);
    while (w->in_flight && w->job != w->done && !w->joint_safe) pthread_cond_wait(&w->changed, &w->lock);
    lc_status status = w->in_flight && w->job == w->done ? lc__first_error_status(&w->result) : LC_OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void give_up(lc_ckpt_writer *w)
{
    pthread_mutex_lock(&w->lock);
    w->given_up = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

lc_status lc__ckpt_wait_together(lc_ckpt_writer *w, lc_comm *comm)
{
    if (!w->together) return lc_ckpt_wait(w);
    lc__first_error e = w->joint_error;
    w->together = false;
    lc__first_error_note(&e, wait_for_part(w));
    /* Rank 0 waits further only if all ranks are known to be done. */
    lc_status parts = lc__ranks_agree(comm, lc__first_error_status(&e));
    if (parts == LC_ERR_PEER) e.status = LC_OK; /* other errors follow from it */
    lc__first_error_note(&e, parts);
    if (parts < 0 || (!comm && w->joint.size > 1)) give_up(w);
    lc__first_error_note(&e, lc_ckpt_wait(w));
    forget_joint(w);
    lc_status status = lc__first_error_status(&e);
    return parts < 0 ? status : lc__ranks_agree(comm, status);
}
