/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the three files of ModelCheckpoint: model_checkpoint.c decides and saves, model_checkpoint_undo.c forgets
 * what was not saved, and model_checkpoint_state.c knows which checkpoints are its own and carries that from a run to
 * the one that continues it. */
#ifndef LC_CALLBACKS_MODEL_CHECKPOINT_H
#define LC_CALLBACKS_MODEL_CHECKPOINT_H

#include "callbacks/callbacks.h"
#include "core/checkpoint/taken.h"

#include <stdlib.h>

typedef struct lc__kept {
    char *path;
    double score;
    char training[48]; /* which saved it; "": this run, or one from before trainings had ids */
} lc__kept;

typedef enum lc__missed { LC__MISSED_NONE, LC__MISSED_BEST, LC__MISSED_LAST } lc__missed;

typedef struct model_checkpoint {
    lc_model_checkpoint_args a;
    char *dirpath, *filename, *monitor, *mode;
    char *dir; /* where it saves; set in setup */
    char *key;
    bool max;
    int64_t k;
    lc__kept *best; /* the kept ones, in the order they came */
    int n_best, cap_best;
    char *best_path, *kth_path, *last_path;
    double best_score, kth_value, current;
    bool has_best_score, has_current;
    bool has_last; /* the name in last_path was taken by this process */
    int64_t last_step_saved;
    int64_t last_time_ns;
    bool deferred;
    bool again;                      /* what was missed in the last epoch is saved when the training ends */
    bool last_is_own;                /* last_path is not a link */
    lc__taken *training;             /* held in `dir` on rank 0 (lc__mc_claim) */
    bool claimed;                    /* in this fit */
    lc__missed saving, missed;       /* what is saved; what was not, and has not been made good */
    struct model_checkpoint *before; /* as it was before the save that is under way; NULL: none is */
} model_checkpoint;

static inline lc_status lc__set_text(char **to, const char *from)
{
    char *copy;
    LC_TRY(lc__copy_text(from, &copy));
    free(*to);
    *to = copy;
    return LC_OK;
}

/* Before a save changes what is remembered: settles the one before, and keeps everything as it is. */
lc_status lc__mc_begin_save(model_checkpoint *c, lc_trainer *t) LC_MUST_USE;
/* How the save went (an lc__save_settled): if it failed, all is as lc__mc_begin_save found it. */
void lc__mc_settled(void *self, bool saved);
void lc__mc_free_memory(model_checkpoint *c);

lc_status lc__mc_save(void *self, lc_trainer *t, lc_state *out) LC_MUST_USE;
lc_status lc__mc_load(void *self, lc_trainer *t, const lc_state *in) LC_MUST_USE;

/* Before the first save of a fit, by every ModelCheckpoint of the run: each takes the training's id in its directory
 * until the fit ends. If another process has it, which goes on with the same training, this run gets an id of its own.
 * Collective. */
lc_status lc__mc_claim(lc_trainer *t) LC_MUST_USE;
void lc__mc_release(model_checkpoint *c);
/* At the end of a fit that saved nothing: takes away what a process left of the id that it held when it died. */
void lc__mc_clean_claim(const model_checkpoint *c, const lc_trainer *t);

/* By its text; what is removed is looked up (lc__ckpt_then_remove_in). */
bool lc__mc_is_below(const model_checkpoint *c, const char *path);
/* On rank 0. A new checkpoint of this training may have the name: nothing has it, or one that will be removed. */
bool lc__may_reuse(const lc_trainer *t, const char *path);
/* On rank 0. What is at `path` may give way to this training's `last`: a link that leads nowhere, or to a checkpoint
 * that is not known to be of another training; or a checkpoint of this one. *there: something has that name. */
bool lc__may_become_last(const lc_trainer *t, const char *path, bool *there);

#endif
