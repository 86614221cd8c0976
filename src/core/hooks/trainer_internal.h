/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer, inside: its state, and what the rooms of src/core offer each other (docs/design.md has a line for each).
 *
 *   trainer/     trainer.c: making one; run.c: fit, validate, test, predict; accessors.c: what it says about itself;
 *                start_ranks.c: the command line, and ranks; signals.c: SIGINT, SIGTERM, SIGHUP; memory_limit.c
 *   hooks/       table.c: the table of hooks; hooks.c: their dispatch; callback_list.c; profiling.c;
 *                control.c: messages, stopping; by_name.c: what is built in
 *   loop/        fit.c: epochs and batches; optimize.c: the step, with closures, optimizers and schedules;
 *                evaluate.c: validation, test, prediction; predictions.c: what predict returns; watch.c: warnings
 *   input/       source.c: loaders, limits; source_state.c: loaders in checkpoints; datamodule.c
 *   split/       chunks.c: batches in chunks, the same for any ranks; device_parts.c: batches of several devices
 *   logging/     results.c: lc_log; log_metric.c; log_media.c: histograms, images, texts; rows.c: what goes to loggers;
 *                hyperparameters.c; run_dir.c: version_N, loggers
 *   ranks/       wishes.c: what ranks agree on; shares.c: their shares of a batch; same_run.c: whether they are one run
 *   resume/      save.c: checkpoints; resume.c continues from one; optimizer_state.c: optimizers in checkpoints */
#ifndef LC_CORE_HOOKS_TRAINER_INTERNAL_H
#define LC_CORE_HOOKS_TRAINER_INTERNAL_H

#include "base/handle.h"
#include <stdatomic.h>

#include <lightc/checkpoint.h>
#include <lightc/data.h>
#include <lightc/sched.h>
#include <lightc/trainer.h>
#include "core/checkpoint/checkpoint.h"
#include "base/clock.h"
#include "base/exact_sum.h"
#include "core/options/options.h"
#include "base/status.h"
#include "base/str.h"

/* ---- hooks.c ---- */
typedef struct lc__callback {
    lc_callback_ops ops; /* a full copy: a program may have been built with a shorter struct */
    void *self;
    bool is_default;     /* the trainer made it */
    uint64_t configured; /* in which call of configure_callbacks it was added; 0: in none */
} lc__callback;
#define LC__KIND_PROGRESS_BAR "ProgressBar"

/* ---- datamodule.c ---- */
typedef struct lc__datamodule {
    lc_datamodule_ops ops; /* a full copy; zeros: there is none */
    lc_datamodule given;
} lc__datamodule;

/* ---- watch.c: what goes wrong without being an error ---- */
typedef struct lc__watch {
    int64_t batches, losses, updates; /* of the epoch, in this run: with samples of this rank; that have a loss */
    int64_t first_step;               /* global_step when it began */
    bool loss_told, idle_told;        /* each once a fit */
} lc__watch;

typedef struct lc__hook_list {
    lc__callback **e;
    int n;
} lc__hook_list;

/* ---- watch.c ---- */
void lc__watch_begin(lc_trainer *t); /* a fit */
void lc__watch_epoch(lc_trainer *t); /* begins, or goes on */
/* A batch was trained on. stepped: an optimizer step was made; values_were_read: the step's values are on the host. */
void lc__watch_batch(lc_trainer *t, const lc_batch *batch, bool stepped, bool values_were_read);
void lc__watch_epoch_end(lc_trainer *t);

/* ---- resume.c: where in the loop a checkpoint was taken, so that what follows is neither skipped nor repeated. ----
 */
typedef enum lc__phase {
    LC__PHASE_START = 0,  /* between epochs */
    LC__PHASE_BATCH,      /* in on_train_batch_end */
    LC__PHASE_VALIDATION, /* in on_validation_end of a validation inside an epoch */
    LC__PHASE_EPOCH_END,  /* in on_train_epoch_end */
} lc__phase;

struct lc_closure {
    lc__mark mark;
    lc_trainer *t;
    int optimizer;
    const lc_batch *batch;
    int64_t batch_idx;
    lc_tensor *loss;
    bool ran;
};

typedef struct lc__predictions {
    lc_tensor **t;
    int64_t n, cap;
} lc__predictions;

/* ---- unused_parameters.c: in a fit; behind each optimizer step; when it ends. Not collective. ---- */
typedef struct lc__unused lc__unused;
lc_status lc__unused_begin(lc_trainer *t) LC_MUST_USE;
lc_status lc__unused_look(lc_trainer *t) LC_MUST_USE;
lc_status lc__unused_end(lc_trainer *t) LC_MUST_USE;
void lc__unused_free(lc_trainer *t);

/* ---- resume/after_save.h ---- */
typedef void lc__save_settled(void *owner, bool saved);
typedef struct lc__saves {
    /* The save that is under way: the same on all ranks. */
    bool under_way;
    char *path;
    int64_t step, epoch;
    double score;
    bool has_score, verbose;
    void *owner;
    lc__save_settled *settled;
    /* On this rank: */
    bool known, noted; /* `status` is how it went; loggers know of it */
    lc_status status;
    char early[1024];             /* the message of `status` */
    struct lc__replaced {         /* what may have been removed meanwhile */
        char *path, training[48]; /* of which training, "" if that is not known */
    } * replaced;
    int n_replaced;
    /* Of the fit, the same on all ranks: */
    int64_t failures;
    bool last_failed;
    char why[1024];
    int why_of; /* the rank on which that happened; -1: this one */
    char *good; /* the newest that is saved; NULL: none is */
} lc__saves;

struct lc_trainer {
    lc__mark mark;
    /* What the rooms above keep: their own headers have it, and trainer/trainer.c makes it with the trainer. */
    struct lc__input *input;
    struct lc__logging *logging;

    lc_trainer_options opt;
    void *storage;
    char *root_dir;
    bool is_probe;      /* of the tuner: goes on from no checkpoint */
    int64_t fit_number; /* which of the program's fits runs, or ran last: from 1; 0: none yet */

    /* callbacks */
    lc__callback **callbacks;
    int n_callbacks, cap_callbacks;
    lc__hook_list hooks[LC_HOOKS];
    lc__hook_list monitor_epoch_end; /* on_train_epoch_end of early stopping and checkpoints */
    lc__hook_list message_hooks;
    bool hooks_dirty;
    lc__watch watch;
    bool making_defaults;
    uint64_t configurations, configuring; /* calls of configure_callbacks; which one runs, 0: none */

    /* the module */
    lc_module *m;
    lc_module_ops mo;    /* what it lacks and is called in any case is filled */
    bool has_late_hooks; /* the module has some between the backward pass and the update */
    bool *modes;         /* train/eval flags of the module tree while an evaluation runs */
    int n_modes, cap_modes;
    lc_graph *graph;
    struct lc__device_parts *device_parts; /* split/device_parts.h; NULL: one device */
    int part;                              /* of the batch, that is being recorded */
    int64_t cuts;                          /* batches cut into parts so far */
    const lc_strategy_ops *strategy;
    void *strategy_self;
    struct lc__chunks *chunks; /* split/chunks.h; NULL: batches are not cut */
    lc_comm *comm;             /* of the strategy; NULL: one rank, or one that has failed and acts alone (ranks.h) */
    int rank, n_ranks;
    struct lc__rank_times *rank_times; /* of a fit with several ranks (rank_times.h); NULL */
    bool reads_buffers;                /* training steps may read some, which are rank 0's then (ranks.h) */
    lc_comm *batch_norm_comm; /* of batch norm layers (ranks/sync_batch_norm.c); NULL: each rank's own statistics */
    int batch_norm_leader;    /* in a batch that some ranks have no sample of; -1 */
    bool stop_wish, agreed_save, agreed_validate; /* of this rank alone; of all ranks */
    int agreed_signal;
    bool votes_skip, votes_stop; /* in a fit, after hooks that may want it on one rank (ranks.h) */
    const lc_precision_ops *precision;
    void *precision_self;
    lc_optimizers optimizers;
    bool parts_told;     /* that a combined loader's batch is shared out unevenly */
    lc__unused *unused;  /* NULL: what was unused is told */
    lc_tensor **toggled; /* parameters that lc_toggle_optimizer has frozen */
    int n_toggled, cap_toggled;

    /* where the run stands */
    lc_stage stage;
    lc_run_state run_state;
    bool torn; /* a batch failed when a part of it had run: the state is between two steps */
    bool in_run, sanity, validating, restoring, setup_done, own_loop;
    lc_hook hook;                /* the hook that runs */
    unsigned errors_before_hook; /* of this thread (lc__error_count) */
    unsigned error_with_hook;    /* the count when a message named its hook: hooks around that one add nothing */
    int depth;                   /* trace_hooks: of hooks inside of hooks */
    bool skip;                   /* a hook said LC_SKIP */
    bool deferred;               /* deferred_* hold an error of lc_log or of the recorder */
    lc_status deferred_status;
    char *deferred_message;
    int64_t global_step, current_epoch, batches_that_stepped, total_batches, optimizer_steps;
    int64_t epochs_processed;
    int64_t batch_idx;     /* of the running or last batch */
    int64_t batches_done;  /* of the running epoch */
    lc_site backward_site; /* of lc_manual_backward, while it runs */
    int64_t window_backwards;
    bool is_last_batch, accumulating, epoch_complete, epoch_ended_early;
    int64_t accumulate, accumulate_next; /* batches of the running window, and of those behind it */
    int64_t window_begin;                /* the batch of the epoch from which on windows have that length */
    int64_t max_epochs, min_epochs, max_steps, min_steps;
    bool user_stop;
    int soft_stops; /* early stopping callbacks that want to stop */
    lc__phase phase;
    lc__phase resume_phase;
    bool resume_mid_epoch;
    int64_t time_start_ns;

    /* data */
    lc__datamodule datamodule;
    const lc_batch *batch;
    bool recording; /* a step is open and has not been run yet */
    int dataloader_idx;
    char *loader_state; /* from a checkpoint, until the loader has it */
    const lc_run_args *args;
    lc_outputs outputs;

    lc__predictions predictions[LC_MAX_LOADERS];

    /* loggers and files */
    void (*log_message)(lc_trainer *t, lc_level level, const char *text); /* NULL: no logger has started */
    char *run_dir;
    char *training; /* whose checkpoints this run writes and may remove: its own id, or that of what it goes on from */
    lc_ckpt_writer *writer;
    bool sharded_checkpoints; /* every rank writes a part of them */
    bool stops_on_save_error;
    lc__saves saves;
    bool val_has_run;
    char *ckpt_path;     /* what this run continues; NULL: nothing */
    bool weights_loaded; /* opt.weights */
    lc_checkpoint *restoring_from;
    int64_t resumed_step;  /* of its last row */
    int64_t resumed_batch; /* samples in a batch of the run that is continued; 0: unknown */
    int64_t cursor_epoch;  /* the epoch that batches_done counts in */
    bool epoch_open;       /* it is not complete */

    struct lc__profiling *profiling; /* NULL: nobody asks how long things take */

    /* signals.c */
    struct lc__signals *signals;
    atomic_int signal;
    atomic_int save_requested; /* SIGUSR1 */
};

static inline bool lc__is_rank_zero(const lc_trainer *t)
{
    return t->rank == 0;
}

/* ---- loops ---- */
lc_status lc__fit_loop(lc_trainer *t) LC_MUST_USE;
lc_status lc__sanity_check(lc_trainer *t) LC_MUST_USE;
lc_status lc__eval_loop(lc_trainer *t) LC_MUST_USE;
lc_status lc__train_batch(lc_trainer *t, const lc_batch *batch, bool is_last) LC_MUST_USE;
/* Of a batch of the epoch in its window; 0: gradients are zeroed. */
static inline int64_t lc__window_place(const lc_trainer *t, int64_t batch_idx)
{
    return (batch_idx - t->window_begin) % t->accumulate;
}
lc_status lc__end_of_epoch(lc_trainer *t) LC_MUST_USE;
/* One pass over the training data through training_step, without gradients, updates, logged values and hooks (but those
 * of transfer, which make the batch what it is); before(ctx, batch_idx) runs before each batch. */
lc_status lc__forward_epoch(lc_trainer *t, void (*before)(void *ctx, int64_t batch_idx), void *ctx) LC_MUST_USE;
bool lc__validation_due(const lc_trainer *t); /* after the running batch */

/* ---- predictions.c ---- */
/* Of this batch; NULL: this rank has none. Collective. */
lc_status lc__keep_prediction(lc_trainer *t, int loader, lc_tensor *value) LC_MUST_USE;

/* ---- resume.c ---- */
/* Samples in a batch of all ranks; 0: unknown. */
int64_t lc__global_batch(const lc_trainer *t);
/* Says so if a run goes on inside an epoch with batches of another size. */
void lc__check_global_batch(lc_trainer *t);

/* ---- loop/optimize.c ---- */
/* The parts of a closure's run, for who puts them together otherwise (split/chunks.c). */
lc_status lc__run_training_step(lc_closure *c) LC_MUST_USE; /* of c->batch; sets c->loss */
lc_status lc__closure_zero_grad(lc_closure *c) LC_MUST_USE;
lc_status lc__backward_hooks(lc_trainer *t, lc_tensor *loss) LC_MUST_USE;
lc_status lc__optimize(lc_trainer *t, const lc_batch *batch, int64_t batch_idx) LC_MUST_USE;
/* Whether the optimizers allow for that accumulate_grad_batches. */
lc_status lc__check_accumulation(const lc_trainer *t, int64_t n) LC_MUST_USE;
lc_status lc__update_schedulers(lc_trainer *t, lc_interval interval, bool plateau) LC_MUST_USE;
void lc__optimizers_free(lc_trainer *t);
void lc__optimization_fill(lc_module_ops *mo); /* the default hooks */
/* *skip: the precision leaves the update out on this rank. */
lc_status lc__precision_before_step(const lc_precision_ops *precision, void *self, lc_optimizer *optimizer,
                                    bool *skip) LC_MUST_USE;
/* What was recorded for this update (clipping) is not for the next. */
void lc__leave_update_out(lc_optimizer *optimizer);

/* ---- resume.c ---- */
/* Writes it now. Collective: an error of one rank is everybody's. */
lc_status lc__save_checkpoint(lc_trainer *t, const char *path, bool weights_only) LC_MUST_USE;
lc_status lc__open_checkpoint(lc_trainer *t, const char *path) LC_MUST_USE;
/* Weights, datamodule, callbacks: before configure_optimizers; of a module that stays in slices what has no tensors
 * there, and the rest when it has been cut. */
typedef enum lc__restoring { LC__AT_ONCE, LC__AHEAD_OF_SLICES, LC__IN_SLICES } lc__restoring;
lc_status lc__restore_module(lc_trainer *t, lc__restoring when) LC_MUST_USE;
lc_status lc__restore_progress(lc_trainer *t) LC_MUST_USE; /* the rest: after on_fit_start */
/* Of what it saves now. */
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

/* ---- signals.c ---- */
lc_status lc__signals_begin(lc_trainer *t) LC_MUST_USE;
void lc__signals_end(lc_trainer *t);
void lc__signals_keep(lc_trainer *t); /* after an interrupted run: the process watches on until another run begins */

/* ---- requeue.c ---- */
lc_status lc__save_on_request(lc_trainer *t) LC_MUST_USE; /* after SIGUSR1, between steps */
/* Which one to go on from; `fit`: of this one of the program's fits, 0: of any. */
lc_status lc__find_hpc(const lc_trainer *t, int64_t fit, char *path, size_t size) LC_MUST_USE;

/* ---- callback_list.c ---- */
/* Whether the options, which hold it, have not turned off what it does. */
lc_status lc__check_callback(const lc_trainer *t, const lc__callback *cb) LC_MUST_USE;
/* What the first callback that has any saves in place of a tensor of the module; NULL: itself. */
lc_tensor *lc__saved_tensor(lc_trainer *t, lc_tensor *of);
lc__callback *lc__callback_of_kind(const lc_trainer *t, const char *kind);
/* The module's hook, whose callbacks take the place of those of their kind. */
lc_status lc__configure_callbacks(lc_trainer *t) LC_MUST_USE;

/* The best checkpoint of this trainer's callbacks and its score (NaN: none); NULL: there is none yet. */
const char *lc__best_checkpoint(const lc_trainer *t, double *score);

/* ---- control.c ---- */
bool lc__should_stop(const lc_trainer *t);
/* Early stopping: a wish that holds until the callback takes it back (unlike lc_trainer_stop). */
void lc__soft_stop(lc_trainer *t, bool *vote, bool stop);

/* memory_limit.c: the option memory_limit, checked, and applied to the steps of a module once its optimizers have been
 * shared out; devices: those that compute them, or NULL; gathers: what is in slices will be whole when the run has
 * ended. */
lc_status lc__memory_limit_parse(const char *text, int64_t *bytes) LC_MUST_USE;
struct lc__devices;
lc_status lc__memory_limit_apply(const char *text, lc_graph *g, lc_module *m, const lc_optimizers *optimizers,
                                 struct lc__devices *devices, bool gathers) LC_MUST_USE;

#endif
