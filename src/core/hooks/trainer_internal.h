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

/* ---- results.c ---- */
/* Of means and sums, in deterministic runs. A step has one number from each of its chunks. */
typedef struct lc__exact_sums {
    lc__exact_sum epoch, step;
    double step_weight;
    int64_t step_count;
    int64_t step_number; /* the batch that `step` is of */
} lc__exact_sums;

/* In place of a loader's number. */
enum { LC__NO_LOADER = -1, LC__ALL_LOADERS = -2 };

/* One value that is logged, under one name, from one hook. */
typedef struct lc__logged {
    char *name, *step_name,
        *epoch_name;   /* with the loader's suffix; the last two end in _step, _epoch if both are on */
    const char *given; /* the pointer the program passed, to find it again fast */
    char *base;        /* what it said */
    lc_hook hook;
    int loader; /* LC__NO_LOADER: no suffix */
    int source; /* the loader whose batch it was logged for */
    lc_log_args args;
    bool on_step, on_epoch, logger;
    bool active;         /* logged since the last reset */
    bool reduced;        /* what was logged is that of all ranks, if it is to be */
    bool has_step;       /* `step` holds a value */
    int64_t step_number; /* of lc__results.step: the batch that `step` is of */
    double step, sum, weight;
    double step_weight;    /* the samples that `step` is of */
    lc__exact_sums *exact; /* `sum` and `step` where they must not be rounded on the way; NULL: they may be */
    /* `step` is of parts up to this one of the batch with that number: of those before, value and weight. */
    int64_t batch;
    int part;
    double parts_value, parts_weight, part_weight;
    lc_metric *metric; /* borrowed while its epoch runs; `sum` is its value, once `computed` */
    bool of_metric, computed;
    double *state; /* of the metric: from a checkpoint, or for one */
    int64_t n_state;
    int slots[5]; /* places in the metric maps: callback name, step, epoch; progress bar step, epoch; -1: none */
} lc__logged;

typedef struct lc__pending {
    int entry;
    lc_tensor *tensor;
    double weight;
    int part;
} lc__pending;

typedef struct lc__results {
    lc__logged *e;
    int n, cap;
    int cursor; /* where the next lookup starts: values are logged in the same order each step */
    lc__pending *pending;
    int n_pending, cap_pending;
    bool training; /* step values can be monitored */
    bool exact;    /* sums are exact_sum.h's */
    int64_t step;  /* of the trainer's batches, counted up */
} lc__results;

/* Named values in the order they came. */
typedef struct lc__metric_map {
    lc_metric_value *v; /* names are owned */
    int n, cap;
} lc__metric_map;

/* ---- source.c ---- */
/* A loader in a run. Where its length is unknown one batch is read ahead (and copied), to know which is the last. */
typedef struct lc__source {
    lc_dataloader *loader;
    bool owned, running, sequential;
    bool sharded;       /* by the run, which undoes it */
    lc_shard unsharded; /* as it was before */
    int64_t length;     /* batches an epoch, after limits; -1: unknown */
    int64_t own_length; /* of training: before the ranks agreed on the least of their lengths */
    int64_t limit;      /* of an unknown length; -1: none */
    int64_t fetched;
    struct lc__batch_copy *ahead[2];
    int which;            /* of `ahead` that is read next; -1: none */
    unsigned char *state; /* of a loader that has one, for checkpoints */
    size_t n_state, cap_state;
} lc__source;

typedef struct lc__sources {
    lc__source s[LC_MAX_LOADERS];
    int n;
} lc__sources;

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

/* When validation is due within an epoch. */
typedef enum lc__val_check {
    LC__VAL_BATCHES,   /* every val_check_batch batches */
    LC__VAL_EPOCH_END, /* at the end of an epoch of unknown length */
    LC__VAL_TIME,
    LC__VAL_STEPS
} lc__val_check;

struct lc_trainer {
    lc__mark mark;
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
    bool uneven_told;    /* that ranks have different numbers of batches */
    bool parts_told;     /* that a combined loader's batch is shared out unevenly */
    lc__unused *unused;  /* NULL: what was unused is told */
    lc_tensor **toggled; /* parameters that lc_toggle_optimizer has frozen */
    int n_toggled, cap_toggled;

    /* where the run stands */
    lc_stage stage;
    lc_run_state run_state;
    bool torn;   /* a batch failed when a part of it had run: the state is between two steps */
    bool silent; /* lc_log does nothing: a pass over the data that is no training */
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
    int64_t time_start_ns, val_time_ns;

    /* data */
    lc__source train;
    lc__sources eval;
    bool eval_loaded;
    lc__datamodule datamodule;
    bool transfers;   /* datamodule or module has one of the three hooks of transfer */
    lc_batch arrived; /* the batch they worked on */
    lc__val_check val_check;
    int64_t val_check_batch; /* LC__VAL_BATCHES */
    bool enable_validation;
    int64_t val_batch_count[LC_MAX_LOADERS]; /* validation batches so far: the step of their rows */
    const lc_batch *batch;
    bool recording; /* a step is open and has not been run yet */
    int dataloader_idx;
    int64_t loaders_epoch;
    char *loader_state; /* from a checkpoint, until the loader has it */
    const lc_run_args *args;
    lc_outputs outputs;

    /* metrics */
    lc__results train_results, eval_results;
    bool epoch_end_reached;
    lc__metric_map metrics[3]; /* lc_metric_set */
    lc_metric_value *row;
    int cap_row;
    lc_metric_value *result_values[LC_MAX_LOADERS];
    int n_result_values[LC_MAX_LOADERS], n_results;
    lc__predictions predictions[LC_MAX_LOADERS];

    /* loggers and files */
    lc_logger *loggers;
    bool *logger_failed;
    int n_loggers;
    bool loggers_started;
    void (*log_message)(lc_trainer *t, lc_level level, const char *text); /* NULL: no logger has started */
    struct lc__media *media;                                              /* log_media.c */
    char *run_dir, *run_id;
    char *training; /* whose checkpoints this run writes and may remove: its own id, or that of what it goes on from */
    int version;
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

/* ---- results.c ---- */
lc_status lc__results_read(lc_trainer *t, lc__results *r) LC_MUST_USE; /* after the step ran */
void lc__results_publish_step(lc_trainer *t, lc__results *r);
lc_status lc__results_publish_epoch(lc_trainer *t, lc__results *r) LC_MUST_USE; /* computes metrics */
void lc__results_reset(lc__results *r);
void lc__results_free(lc__results *r);
double lc__logged_epoch_value(const lc__logged *e);
const char *lc__log_rule(lc_hook hook); /* what lc_log does there by default, for people */
lc__logged *lc__results_add(lc__results *r, const char *base, lc_hook hook, int loader, const lc_log_args *args,
                            bool on_step, bool on_epoch);
#define LC__MOST_NAME 400 /* characters of a logged name */
lc__logged *lc__results_find(lc__results *r, const char *name, lc_hook hook, int loader); /* NULL: it is not there */

/* ---- results_state.c ---- */
lc_status lc__results_save(lc__results *r, lc_state *out) LC_MUST_USE;
lc_status lc__results_load(lc_trainer *t, lc__results *r, const lc_state *in) LC_MUST_USE;

/* ---- metric_map.c ---- */
int lc__map_find(const lc__metric_map *m, const char *name); /* -1: it is not there */
int lc__map_slot(lc__metric_map *m, const char *name);       /* made if it is new; -1: out of memory */
/* "`a`, `b`", as far as there is room; returns text. */
const char *lc__map_names(const lc__metric_map *m, char *text, size_t size);
void lc__map_clear(lc__metric_map *m);
void lc__map_free(lc__metric_map *m);

/* ---- log_metric.c ---- */
/* The metric was logged as e, of r. */
lc_status lc__logged_metric(lc__results *r, lc__logged *e, lc_metric *metric) LC_MUST_USE;
/* Makes e->sum the value of e's metric; nothing for other entries. */
lc_status lc__logged_compute(lc__logged *e) LC_MUST_USE;
void lc__logged_forget(lc__logged *e); /* resets the metric */
/* What came from a checkpoint and adds up over ranks; a metric's value is that of all, and stays. */
void lc__logged_drop(lc__logged *e);
/* Copies the metric's state into the entry, and its value as it is now (weight 0: it has none yet). */
lc_status lc__logged_keep(lc__logged *e) LC_MUST_USE;
void lc__logged_give(lc__logged *e, double *state, int64_t n); /* a state in place of its own; taken over */
/* The epoch's rows are sent, or the run ends: metrics are reset and forgotten. */
void lc__results_release(lc__results *r);
/* Before that, if the epoch is not finished: keeps their states, for a checkpoint that is saved later. */
lc_status lc__results_keep(lc__results *r) LC_MUST_USE;
lc_status lc__logged_metric_save(lc__logged *e, lc_state *out) LC_MUST_USE;
lc_status lc__logged_metric_load(lc__logged *e, const lc_state *in) LC_MUST_USE;

/* ---- rows.c ---- */
typedef enum lc__values { LC__STEP_VALUES, LC__EPOCH_VALUES } lc__values;
/* Sends the values of r that go to loggers, of all loaders, at the trainer's own step and with the epoch. */
lc_status lc__rows_send(lc_trainer *t, lc__results *r, lc__values which) LC_MUST_USE;
/* Those of an evaluation's step, of one loader (or LC__NO_LOADER), at a step of its own. */
lc_status lc__rows_send_eval(lc_trainer *t, lc__results *r, int64_t step, int loader) LC_MUST_USE;
lc_status lc__rows_keep_results(lc_trainer *t, lc__results *r, int loader) LC_MUST_USE;
bool lc__should_log(const lc_trainer *t);
/* Puts a value into a row of n, in the order of names; the later of two equal names wins. Returns the new n. */
int lc__row_insert(lc_metric_value *row, int n, const char *name, double value);

/* ---- source.c ---- */
lc_status lc__source_begin(lc__source *s, int64_t epoch, int64_t start) LC_MUST_USE;
/* *out NULL at the end. */
lc_status lc__source_next(lc__source *s, const lc_batch **out, bool *is_last) LC_MUST_USE;
void lc__source_end(lc__source *s);
/* Ranks have slices of its batches; else it is this rank's own. */
bool lc__source_is_shared(const lc__source *s);
/* Whether some rank's share of a batch that is cut for the ranks is empty. Not collective. */
bool lc__leaves_ranks_empty(const lc_trainer *t, const lc__source *source, const lc_batch *batch);
void lc__source_close(lc__source *s);
void lc__sources_close(lc__sources *s);
lc_status lc__setup_train_data(lc_trainer *t) LC_MUST_USE;
lc_status lc__setup_eval_data(lc_trainer *t) LC_MUST_USE;

/* ---- source_state.c ---- */
/* Takes down the loader's state, before the next batch is read ahead: behind the one that is handed out. */
lc_status lc__source_remember(lc__source *s) LC_MUST_USE;
/* Whether it has more than the place where it stands. */
bool lc__source_has_state(const lc__source *s);
lc_status lc__source_save(lc_comm *comm, lc__source *s, lc_state *out) LC_MUST_USE; /* collective; NULL: one rank */
/* This rank's state in a checkpoint's `loop`, for lc__source_load, in place of *hex; NULL: there is none. */
lc_status lc__source_saved(const lc_trainer *t, const lc_state *in, char **hex) LC_MUST_USE;
lc_status lc__source_load(lc__source *s, const char *hex) LC_MUST_USE; /* before lc__source_begin */

/* ---- datamodule.c ---- */
lc_status lc__datamodule_attach(lc_trainer *t, const lc_datamodule *d) LC_MUST_USE;
/* Loaders come from the datamodule, or where there is none from the module. */
bool lc__has_loaders(const lc_trainer *t, lc_stage stage); /* FIT: of training */
lc_status lc__ask_loaders(lc_trainer *t, lc_hook hook, lc_loaders *out) LC_MUST_USE;
/* Runs the hooks of transfer; *batch becomes what they made of it. Inside of a step. */
lc_status lc__transfer(lc_trainer *t, const lc_batch **batch, int dataloader_idx) LC_MUST_USE;
lc_status lc__datamodule_save(lc_trainer *t, lc_state *root) LC_MUST_USE;
lc_status lc__datamodule_load(lc_trainer *t, const lc_state *root) LC_MUST_USE;

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

/* ---- run_dir.c ---- */
#define LC__RUN_NAME "lightning_logs"
/* Makes root_dir/name/version_N with an N of its own. */
lc_status lc__take_version(const char *root_dir, const char *name, int *version, char **run_dir) LC_MUST_USE;
lc_status lc__new_run_id(char **out) LC_MUST_USE;
/* Appends loggers of the program to `list`, all that can be called at all. */
lc_status lc__loggers_take(const lc_logger *given, int n, lc_logger *list, int *n_list) LC_MUST_USE;
lc_status lc__loggers_open(lc_trainer *t) LC_MUST_USE;  /* makes them, by options */
lc_status lc__loggers_start(lc_trainer *t) LC_MUST_USE; /* takes version_N */
void lc__loggers_status(lc_trainer *t, const char *status);
void lc__loggers_flush(lc_trainer *t);
void lc__loggers_finish(lc_trainer *t, const char *status);
lc_status lc__hyperparameters_log(lc_trainer *t, const lc_module *m) LC_MUST_USE; /* hyperparameters.c */
lc_status lc__loggers_row(lc_trainer *t, const lc_log_row *row);
void lc__logger_failed(lc_trainer *t, int i, const char *what);        /* says once that logger i could not */
lc_status lc__checkpoint_dir(lc_trainer *t, lc__str *out) LC_MUST_USE; /* where checkpoints go by default */
void lc__note_checkpoint(lc_trainer *t, const char *path, int64_t step, double score, bool has_score);
void lc__note_removed_checkpoint(lc_trainer *t, const char *path);

/* ---- log_media.c ---- */
void lc__media_free(struct lc__media *m);

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
