/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the three files of ModelCheckpoint: model_checkpoint.c decides and saves, model_checkpoint_undo.c rolls
 * back after a failed save, and model_checkpoint_state.c knows which checkpoints are its own and saves that for the
 * next run. */
#ifndef LC_CALLBACKS_MODEL_CHECKPOINT_H
#define LC_CALLBACKS_MODEL_CHECKPOINT_H

#include "callbacks/callbacks.h"
#include "core/checkpoint/taken.h"

#include <stdlib.h>

typedef struct lc__kept {
    char *path;
    double score;
    char training[48]; /* id of the training that saved it; "": this run, or one from before trainings had ids */
} lc__kept;

typedef enum lc__missed { LC__MISSED_NONE, LC__MISSED_BEST, LC__MISSED_LAST } lc__missed;

typedef struct model_checkpoint {
    lc_model_checkpoint_args a;
    char *dirpath, *filename, *monitor, *mode;
    char *dir; /* directory of the checkpoints; set in setup */
    char *key;
    bool max;
    int64_t k;
    lc__kept *best; /* the checkpoints kept, oldest first */
    int n_best, cap_best;
    char *best_path, *kth_path, *last_path;
    double best_score, kth_value, current;
    bool has_best_score, has_current;
    bool has_last; /* the name in last_path was taken by this process */
    int64_t last_step_saved;
    int64_t last_time_ns;
    bool deferred;
    bool retries;                    /* at the end of the training, after a save that failed */
    bool again;                      /* at the end of the training, saves what failed to be saved in the last epoch */
    bool last_is_own;                /* last_path is not a link */
    lc__taken *training;             /* the training's id, reserved in `dir` on rank 0 (lc__mc_claim) */
    bool claimed;                    /* in this fit */
    lc__missed saving, missed;       /* kind of the current save; kind of the last failed save, until a save succeeds */
    struct model_checkpoint *before; /* the state before the current save; NULL: no save is under way */
} model_checkpoint;

static inline lc_status lc__set_text(char **to, const char *from)
{
    char *copy;
    LC_TRY(lc__copy_text(from, &copy));
    free(*to);
    *to = copy;
    return LC_OK;
}

/* Called before a save changes the state: settles the previous save, and keeps a copy of the state. */
lc_status lc__mc_begin_save(model_checkpoint *c, lc_trainer *t) LC_MUST_USE;
/* The outcome of the save (an lc__save_settled): on failure, restores the state from before lc__mc_begin_save. */
void lc__mc_settled(void *self, bool saved);
void lc__mc_free_memory(model_checkpoint *c);

lc_status lc__mc_save(void *self, lc_trainer *t, lc_state *out) LC_MUST_USE;
lc_status lc__mc_load(void *self, lc_trainer *t, const lc_state *in) LC_MUST_USE;

/* Called before the first save of a fit: every ModelCheckpoint of the run reserves the training's id in its directory
 * until the fit ends. If another process that continues the same training holds it, this run gets a new id.
 * Collective. */
lc_status lc__mc_claim(lc_trainer *t) LC_MUST_USE;
void lc__mc_release(model_checkpoint *c);
/* Called at the end of a fit that saved nothing: removes the reservation that a dead process left for the training's
 * id. */
void lc__mc_clean_claim(const model_checkpoint *c, const lc_trainer *t);

/* Compares only the text; lc__ckpt_then_remove_in looks the path up before it removes anything. */
bool lc__mc_is_below(const model_checkpoint *c, const char *path);
/* On rank 0. Whether a new checkpoint of this training may use the name: it is free, or a checkpoint of this training
 * has it. */
bool lc__may_reuse(const lc_trainer *t, const char *path);
/* On rank 0. Whether `path` may be replaced by this training's `last`: it is a dangling link, a link to a checkpoint
 * that is not known to be of another training, or a checkpoint of this one. *there: something has that name. */
bool lc__may_become_last(const lc_trainer *t, const char *path, bool *there);

#endif
