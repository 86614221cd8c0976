/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a run in a checkpoint: saving it, finding one, going on from it. */
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
    bool is_probe;      /* of the tuner: goes on from no checkpoint */
    int64_t fit_number; /* which of the program's fits runs, or ran last: from 1; 0: none yet */

    /* saving */
    char *training; /* whose checkpoints this run writes and may remove: its own id, or that of what it goes on from */
    lc_ckpt_writer *writer;
    bool sharded_checkpoints; /* every rank writes a part of them */
    bool stops_on_save_error;
    lc__saves saves;
    lc__phase phase;
    bool torn; /* a batch failed when a part of it had run: the state is between two steps */

    /* going on */
    lc_checkpoint *restoring_from;
    bool weights_loaded;   /* opt.weights */
    char *loader_state;    /* from a checkpoint, until the loader has it */
    int64_t resumed_batch; /* samples in a batch of the run that is continued; 0: unknown */
    int64_t cursor_epoch;  /* the epoch that batches_done counts in */
    lc__phase resume_phase;
    bool resume_mid_epoch;
} lc__resume;

void lc__resume_free(lc_trainer *t); /* resume.c */

/* ---- resume.c ---- */
/* Writes it now. Collective: an error of one rank is everybody's. */
lc_status lc__save_checkpoint(lc_trainer *t, const char *path, bool weights_only) LC_MUST_USE;
lc_status lc__open_checkpoint(lc_trainer *t, const char *path) LC_MUST_USE;
/* Weights, datamodule, callbacks: before configure_optimizers; of a module that stays in slices what has no tensors
 * there, and the rest when it has been cut. */
typedef enum lc__restoring { LC__AT_ONCE, LC__AHEAD_OF_SLICES, LC__IN_SLICES } lc__restoring;
lc_status lc__restore_module(lc_trainer *t, lc__restoring when) LC_MUST_USE;
lc_status lc__restore_progress(lc_trainer *t) LC_MUST_USE; /* the rest: after on_fit_start */
/* The origin recorded in checkpoints saved from now on. */
lc__ckpt_origin lc__origin(const lc_trainer *t);
/* The newest good checkpoint below the root; LC_ERR_NOT_FOUND if there is none. */
lc_status lc__find_last(const lc_trainer *t, char *path, size_t size) LC_MUST_USE;
/* Whether these ranks were started again, and a checkpoint of this run and fit is there to go on from. */
bool lc__find_restart(const lc_trainer *t, char *path, size_t size);
lc_status lc__find_best(const lc_trainer *t, char *path, size_t size) LC_MUST_USE;
lc_status lc__resolve_ckpt_path(lc_trainer *t, const char *asked, char **out) LC_MUST_USE;
/* Rank 0: takes the name for the checkpoint that is saved next, or says that something has it already, or another run
 * is about to give it to something (core/checkpoint/taken.h). */
lc_status lc__take_checkpoint_name(lc_trainer *t, const char *path, bool *taken) LC_MUST_USE;
/* The same in two parts: *writing is set when the state is put together on all ranks; errors from then on are of this
 * rank's writing. */
lc_status lc__save_state(lc_trainer *t, const char *path, bool weights_only, bool wait, bool *writing) LC_MUST_USE;
/* What becomes of the checkpoint in flight: a look whether that is known (not collective); its result, on all ranks;
 * and all that is done afterwards (links, removals). An error is one that stops the run. */
typedef enum lc__settling { LC__SETTLE_LOOK, LC__SETTLE_RESULT, LC__SETTLE_ALL } lc__settling;
lc_status lc__settle(lc_trainer *t, lc__settling how) LC_MUST_USE;

/* Samples in a batch of all ranks; 0: unknown. */
int64_t lc__global_batch(const lc_trainer *t);
/* Says so if a run goes on inside an epoch with batches of another size. */
void lc__check_global_batch(lc_trainer *t);

/* ---- requeue.c ---- */
lc_status lc__save_on_request(lc_trainer *t) LC_MUST_USE; /* after SIGUSR1, between steps */
/* Which one to go on from; `fit`: of this one of the program's fits, 0: of any. */
lc_status lc__find_hpc(const lc_trainer *t, int64_t fit, char *path, size_t size) LC_MUST_USE;

#endif
