/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a run in a checkpoint: saving it, finding a checkpoint, continuing from it. */
#ifndef LC_CORE_RESUME_RESUME_H
#define LC_CORE_RESUME_RESUME_H

#include "core/resume/after_save.h"

/* The place in the loop at which a checkpoint was taken, so that what follows is neither skipped nor repeated. */
typedef enum lc__phase {
    LC__PHASE_START = 0,  /* between epochs */
    LC__PHASE_BATCH,      /* in on_train_batch_end */
    LC__PHASE_VALIDATION, /* in on_validation_end of a validation inside an epoch */
    LC__PHASE_EPOCH_END,  /* in on_train_epoch_end */
} lc__phase;

typedef struct lc__resume {
    bool is_probe;      /* a run of the tuner, which continues from no checkpoint */
    int64_t fit_number; /* number of the program's running or last fit, from 1; 0: none yet */

    /* saving */
    char *training; /* id of the training whose checkpoints this run writes: new, or from the checkpoint */
    lc_ckpt_writer *writer;
    bool sharded_checkpoints; /* every rank writes a part */
    bool stops_on_save_error;
    lc__saves saves;
    lc__phase phase;
    bool torn; /* a batch failed after a part of it had run, so the state is between two steps */

    /* continuing */
    lc_checkpoint *restoring_from;
    bool weights_loaded;   /* opt.weights */
    char *loader_state;    /* from a checkpoint, until the loader takes it */
    int64_t resumed_batch; /* batch size of the run being continued, over all ranks; 0: unknown */
    double scales[2];      /* of losses: in an unfinished window of the checkpoint, and in this run */
    int64_t cursor_epoch;  /* the epoch in which batches_done counts */
    lc__phase resume_phase;
    bool resume_mid_epoch;
} lc__resume;

void lc__resume_free(lc_trainer *t); /* resume.c */

/* ---- resume.c ---- */
/* Saves a checkpoint and waits until it is written. Collective: an error on one rank is an error on all. */
lc_status lc__save_checkpoint(lc_trainer *t, const char *path, bool weights_only) LC_MUST_USE;
lc_status lc__open_checkpoint(lc_trainer *t, const char *path) LC_MUST_USE;
/* Weights, datamodule, callbacks: before configure_optimizers. For a module that stays in slices, only state without
 * tensors is restored there, and the rest when the module has been cut. */
typedef enum lc__restoring { LC__AT_ONCE, LC__AHEAD_OF_SLICES, LC__IN_SLICES } lc__restoring;
lc_status lc__restore_module(lc_trainer *t, lc__restoring when) LC_MUST_USE;
lc_status lc__restore_progress(lc_trainer *t) LC_MUST_USE; /* the rest: after on_fit_start */
/* The origin recorded in checkpoints saved from now on. */
lc__ckpt_origin lc__origin(const lc_trainer *t);
/* The newest good checkpoint below the root; LC_ERR_NOT_FOUND if there is none. */
lc_status lc__find_last(const lc_trainer *t, char *path, size_t size) LC_MUST_USE;
/* Whether these ranks were restarted and there is a checkpoint of this run and fit to continue from. */
bool lc__find_restart(const lc_trainer *t, char *path, size_t size);
lc_status lc__find_best(const lc_trainer *t, char *path, size_t size) LC_MUST_USE;
lc_status lc__resolve_ckpt_path(lc_trainer *t, const char *asked, char **out) LC_MUST_USE;
/* Rank 0: takes the name for the checkpoint saved next. *taken: the name exists already, or another run is about to use
 * it (core/checkpoint/taken.h). */
lc_status lc__take_checkpoint_name(lc_trainer *t, const char *path, bool *taken) LC_MUST_USE;
/* As lc__save_checkpoint, in two parts: *writing is set when the state is complete on all ranks; a later error is of
 * writing on this rank. */
lc_status lc__save_state(lc_trainer *t, const char *path, bool weights_only, bool wait, bool *writing) LC_MUST_USE;
/* Settles the checkpoint in flight. LOOK: only if its result is known (not collective); RESULT: waits for the result,
 * on all ranks; ALL: waits for links and removals, too. Returns an error that stops the run. */
typedef enum lc__settling { LC__SETTLE_LOOK, LC__SETTLE_RESULT, LC__SETTLE_ALL } lc__settling;
lc_status lc__settle(lc_trainer *t, lc__settling how) LC_MUST_USE;

/* Samples in a batch of all ranks; 0: unknown. */
int64_t lc__global_batch(const lc_trainer *t);
/* Warns if a run continues inside an epoch with batches of another size. */
void lc__check_global_batch(lc_trainer *t);

/* ---- requeue.c ---- */
lc_status lc__save_on_request(lc_trainer *t) LC_MUST_USE; /* after SIGUSR1, between steps */
/* The file to continue from; `fit`: only of this fit of the program, 0: of any. */
lc_status lc__find_hpc(const lc_trainer *t, int64_t fit, char *path, size_t size) LC_MUST_USE;

#endif
