/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's struct, which every room of src/core uses. A room's own state is a struct in its header, to which the
 * trainer points; docs/design.md has a line for each room. */
#ifndef LC_CORE_HOOKS_TRAINER_INTERNAL_H
#define LC_CORE_HOOKS_TRAINER_INTERNAL_H

#include "base/handle.h"

#include <lightc/checkpoint.h>
#include <lightc/data.h>
#include <lightc/sched.h>
#include <lightc/trainer.h>
#include "core/checkpoint/checkpoint.h"
#include "base/clock.h"
#include "core/options/options.h"
#include "base/status.h"
#include "base/str.h"

typedef struct lc__callback {
    lc_callback_ops ops; /* a full copy: the program's struct may be shorter */
    void *self;
    bool is_default;     /* the trainer made it */
    uint64_t configured; /* number of the configure_callbacks call that added it; 0: none */
} lc__callback;
#define LC__KIND_PROGRESS_BAR "ProgressBar"

typedef struct lc__datamodule {
    lc_datamodule_ops ops; /* a full copy; zeros: no datamodule */
    lc_datamodule given;
} lc__datamodule;

typedef struct lc__hook_list {
    lc__callback **e;
    int n;
} lc__hook_list;

/* Which slots a hook has in this run: a step pays for no others. ANY: several, or the hook is traced or profiled. */
typedef enum lc__hook_users { LC__USED_BY_ANY, LC__USED_BY_NONE, LC__USED_BY_MODULE } lc__hook_users;

/* The piece of a batch for which something happens. Pieces are numbered over the whole run. */
typedef struct lc__place {
    int64_t piece; /* 0: the batch is not cut */
    int64_t first; /* pieces from this number on are of the same batch */
} lc__place;

struct lc_trainer {
    lc__mark mark;
    /* State of the rooms above: declared in their headers, made together with the trainer by trainer/trainer.c. */
    struct lc__input *input;
    struct lc__logging *logging;
    struct lc__ranks *ranks;
    struct lc__resume *resume;
    struct lc__loop *loop;
    struct lc__run *run;
    struct lc__chunks *chunks;             /* split/chunks.h; NULL: batches are not cut */
    struct lc__device_parts *device_parts; /* split/device_parts.h; NULL: one device */

    lc_trainer_options opt;
    void *storage;
    char *root_dir, *run_dir;

    /* callbacks and hooks */
    lc__callback **callbacks;
    int n_callbacks, cap_callbacks;
    lc__hook_list hooks[LC_HOOKS];
    lc__hook_list monitor_epoch_end; /* on_train_epoch_end of early stopping and checkpoints */
    lc__hook_list message_hooks;
    bool hooks_dirty;
    lc__hook_users hook_users[LC_HOOKS];
    bool making_defaults;
    uint64_t configurations, configuring; /* calls of configure_callbacks; number of the running one, 0: none */
    lc_hook hook;                         /* the running hook */
    unsigned errors_before_hook;          /* of this thread (lc__error_count) */
    unsigned error_with_hook;             /* error count when a message named its hook: outer hooks then add nothing */
    int depth;                            /* of nested hooks, for trace_hooks */
    bool skip;                            /* a hook returned LC_SKIP */
    bool deferred;                        /* deferred_* hold an error of lc_log or the recorder */
    lc_status deferred_status;
    char *deferred_message;
    struct lc__profiling *profiling;                                      /* NULL: no profiler */
    void (*log_message)(lc_trainer *t, lc_level level, const char *text); /* NULL: no logger runs */

    /* the model and its computation */
    lc_module *m;
    lc_module_ops mo;    /* with defaults for slots that are always called */
    bool has_late_hooks; /* the module has hooks between the backward pass and the update */
    lc__datamodule datamodule;
    lc_optimizers optimizers;
    lc_graph *graph;
    lc_precision_ops precision; /* a full copy */
    void *precision_self;
    const lc_strategy_ops *strategy;
    void *strategy_self;
    lc_comm *comm; /* the strategy's; NULL: one rank, or a rank that continues by itself after a failure (ranks.h) */
    int rank, n_ranks;

    /* position of the run */
    lc_stage stage;
    lc_run_state run_state;
    const lc_run_args *args;
    bool in_run, sanity, validating;
    char *ckpt_path;      /* the checkpoint this run continues; NULL: none */
    int64_t resumed_step; /* the step of its last row */
    int64_t max_epochs, min_epochs, max_steps, min_steps;
    bool user_stop, stop_wish; /* on all ranks; on this one, until they have agreed on it */
    int soft_stops;            /* early stopping callbacks that want to stop */
    int64_t global_step, current_epoch, batches_that_stepped, total_batches, optimizer_steps;
    int64_t epochs_processed;
    int64_t batch_idx;    /* the running or last batch */
    int64_t batches_done; /* of the running epoch */
    bool epoch_open;      /* the epoch is not complete */
    bool epoch_begun;     /* its on_train_epoch_start has run */
    bool is_last_batch;

    /* the window of accumulation */
    bool accumulating;
    int64_t window_backwards;
    int64_t accumulate, accumulate_next; /* length in batches of the running window, and of later ones */
    int64_t window_begin;                /* the batch of the epoch from which windows have that length */

    /* the batch */
    const lc_batch *batch;
    int dataloader_idx;
    int part;        /* the device part being recorded */
    lc__place place; /* the piece being recorded */
    int64_t pieces;  /* how many have been entered so far */
    lc_tensor *loss; /* of the running backward pass, before it is scaled */
    bool recording;  /* a step is open and has not run yet */
    lc_outputs outputs;
};

/* Index of the batch within its accumulation window; at 0 gradients are zeroed. */
static inline int64_t lc__window_place(const lc_trainer *t, int64_t batch_idx)
{
    return t->accumulate == 1 ? 0 : (batch_idx - t->window_begin) % t->accumulate;
}
static inline bool lc__is_rank_zero(const lc_trainer *t)
{
    return t->rank == 0;
}

/* ---- callback_list.c ---- */
/* An error if the options turn off the feature that this callback of theirs implements. */
lc_status lc__check_callback(const lc_trainer *t, const lc__callback *cb) LC_MUST_USE;
void lc__callbacks_free(lc_trainer *t);
/* The key of a callback's state in checkpoints. */
const char *lc__state_key(const lc__callback *cb);
/* The tensor to save in place of a tensor of the module, from the first callback that has one; NULL: the tensor
 * itself. */
lc_tensor *lc__saved_tensor(lc_trainer *t, lc_tensor *of);
lc__callback *lc__callback_of_kind(const lc_trainer *t, const char *kind);
/* Runs the module's configure_callbacks; its callbacks replace others of their kind. */
lc_status lc__configure_callbacks(lc_trainer *t) LC_MUST_USE;

/* The best checkpoint of this trainer's callbacks and its score (NaN: none); NULL: none yet. */
const char *lc__best_checkpoint(const lc_trainer *t, double *score);

/* ---- control.c ---- */
bool lc__should_stop(const lc_trainer *t);
/* Early stopping: unlike lc_trainer_stop, the vote holds until the callback takes it back. */
void lc__soft_stop(lc_trainer *t, bool *vote, bool stop);

#endif
