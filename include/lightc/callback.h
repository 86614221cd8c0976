/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks: code that runs at the hooks of a run without being part of the model.
 *
 * A callback is (ops, self). Every slot is optional. A slot that is missing costs nothing: the trainer keeps one list
 * per hook of those that have it. Slots return LC_OK, LC_STOP (end the training after this step), LC_SKIP where it says
 * so, or an error, which ends the run. The trainer is passed to each; lc_trainer_module gives the model.
 *
 * To add one to lightc: a file in src/callbacks/ with its ops and its constructor (declared here), and a line in
 * registry.c. */
#ifndef LIGHTC_CALLBACK_H
#define LIGHTC_CALLBACK_H

#include <lightc/hooks.h>

typedef struct lc_callback_ops {
    size_t size;      /* LC_CALLBACK_OPS_INIT(name) */
    const char *name; /* "EarlyStopping" */
    lc_ranks ranks;   /* default: every rank */
    /* EarlyStopping and checkpoint callbacks: on_train_epoch_end comes after the module's. */
    bool monitors;
    /* Checkpoint callbacks come last in the list, after all others. */
    bool saves_checkpoints;

    /* ---- OPTIONAL, in call order ---- */
    lc_status (*setup)(void *self, lc_trainer *t, lc_stage stage);
    lc_status (*on_fit_start)(void *self, lc_trainer *t);
    lc_status (*on_sanity_check_start)(void *self, lc_trainer *t);
    lc_status (*on_sanity_check_end)(void *self, lc_trainer *t);
    lc_status (*on_train_start)(void *self, lc_trainer *t);
    lc_status (*on_train_epoch_start)(void *self, lc_trainer *t);
    /* LC_SKIP skips the rest of the epoch. */
    lc_status (*on_train_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx);
    lc_status (*on_before_zero_grad)(void *self, lc_trainer *t, lc_optimizer *optimizer);
    lc_status (*on_before_backward)(void *self, lc_trainer *t, lc_tensor *loss);
    lc_status (*on_after_backward)(void *self, lc_trainer *t);
    lc_status (*on_before_optimizer_step)(void *self, lc_trainer *t, lc_optimizer *optimizer);
    lc_status (*on_train_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx);
    lc_status (*on_validation_start)(void *self, lc_trainer *t);
    lc_status (*on_validation_epoch_start)(void *self, lc_trainer *t);
    lc_status (*on_validation_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                           int dataloader_idx);
    lc_status (*on_validation_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                         int64_t batch_idx, int dataloader_idx);
    lc_status (*on_validation_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_validation_end)(void *self, lc_trainer *t);
    lc_status (*on_train_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_train_end)(void *self, lc_trainer *t);
    lc_status (*on_fit_end)(void *self, lc_trainer *t);
    lc_status (*on_test_start)(void *self, lc_trainer *t);
    lc_status (*on_test_epoch_start)(void *self, lc_trainer *t);
    lc_status (*on_test_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                     int dataloader_idx);
    lc_status (*on_test_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                   int64_t batch_idx, int dataloader_idx);
    lc_status (*on_test_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_test_end)(void *self, lc_trainer *t);
    lc_status (*on_predict_start)(void *self, lc_trainer *t);
    lc_status (*on_predict_epoch_start)(void *self, lc_trainer *t);
    lc_status (*on_predict_batch_start)(void *self, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                        int dataloader_idx);
    lc_status (*on_predict_batch_end)(void *self, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                      int64_t batch_idx, int dataloader_idx);
    lc_status (*on_predict_epoch_end)(void *self, lc_trainer *t);
    lc_status (*on_predict_end)(void *self, lc_trainer *t);
    /* The run failed or was interrupted. `status` is the error, `message` its text; what this returns is ignored. */
    lc_status (*on_exception)(void *self, lc_trainer *t, lc_status status, const char *message);
    lc_status (*teardown)(void *self, lc_trainer *t, lc_stage stage);

    /* A checkpoint is being written or was read: `state` is the root of the whole state, to add to or look at. */
    lc_status (*on_save_checkpoint)(void *self, lc_trainer *t, lc_state *state);
    lc_status (*on_load_checkpoint)(void *self, lc_trainer *t, const lc_state *state);
    /* The callback's own state, kept under its state key. */
    lc_status (*save_state)(void *self, lc_trainer *t, lc_state *state);
    lc_status (*load_state)(void *self, lc_trainer *t, const lc_state *state);
    /* The key. Default: ops->name. Two callbacks with state and one key are refused. */
    const char *(*state_key)(void *self);
    /* Something people should know: level is "info", "warning" or "error". For callbacks that show things. */
    void (*on_message)(void *self, lc_trainer *t, const char *level, const char *text);
    /* The trainer is freed. */
    void (*free)(void *self);
} lc_callback_ops;

#define LC_CALLBACK_OPS_INIT(text) .size = sizeof(lc_callback_ops), .name = (text)

typedef struct lc_callback {
    const lc_callback_ops *ops;
    void *self;
} lc_callback;

/* ---- the callbacks of lightc. Arguments are Lightning's; 0/NULL means the default. ---- */

typedef struct lc_model_checkpoint_args {
    const char *dirpath;  /* default: RUN_DIR/checkpoints */
    const char *filename; /* default: "{epoch}-{step}" */
    const char *monitor;  /* default: none, the newest is kept */
    const char *mode;     /* "min" (default) or "max" */
    bool verbose;
    unsigned char save_last; /* lc_choice: `last.ckpt` always names the newest state */
    int64_t save_top_k;      /* default 1; -1: all; LC_SAVE_NONE: none */
    bool save_on_exception;
    bool save_weights_only;
    unsigned char auto_insert_metric_name;       /* lc_choice, default on */
    int64_t every_n_train_steps, every_n_epochs; /* at most one trigger; default: every epoch */
    double train_time_interval;                  /* seconds */
    unsigned char save_on_train_epoch_end;       /* lc_choice; default as Lightning decides it */
    unsigned char enable_version_counter;        /* lc_choice, default on */
    bool wait; /* write on the training thread (default: a thread writes a snapshot) */
} lc_model_checkpoint_args;
#define LC_SAVE_NONE INT64_MIN

typedef struct lc_early_stopping_args {
    const char *monitor; /* REQUIRED */
    const char *mode;    /* "min" (default) or "max" */
    double min_delta;
    int64_t patience; /* default 3; LC_SAVE_NONE means 0 */
    bool verbose;
    unsigned char strict, check_finite; /* lc_choice, default on */
    bool has_stopping_threshold, has_divergence_threshold;
    double stopping_threshold, divergence_threshold;
    unsigned char check_on_train_epoch_end; /* lc_choice */
} lc_early_stopping_args;

typedef enum lc_stopping_reason {
    LC_NOT_STOPPED = 0,
    LC_STOPPING_THRESHOLD,
    LC_DIVERGENCE_THRESHOLD,
    LC_PATIENCE_EXHAUSTED,
    LC_NON_FINITE_METRIC,
} lc_stopping_reason;

typedef struct lc_early_stopping_info {
    int64_t stopped_epoch, wait_count;
    double best_score;
    lc_stopping_reason reason;
    const char *message; /* borrowed */
} lc_early_stopping_info;

typedef struct lc_model_checkpoint_info {
    const char *best_model_path, *last_model_path, *dirpath; /* "" if none; borrowed */
    bool has_best_score;
    double best_model_score;
} lc_model_checkpoint_info;

typedef struct lc_progress_bar_args {
    int fd;              /* default 2, stderr */
    double refresh_rate; /* redraws a second; default 10 */
    unsigned char style; /* lc_progress_style */
} lc_progress_bar_args;
typedef enum lc_progress_style { LC_PROGRESS_AUTO = 0, LC_PROGRESS_BAR, LC_PROGRESS_LINES } lc_progress_style;

typedef struct lc_learning_rate_monitor_args {
    const char *logging_interval; /* "step", "epoch"; NULL: as each scheduler says */
    bool log_momentum, log_weight_decay;
} lc_learning_rate_monitor_args;

/* A callback from functions: any of them may be NULL. */
typedef struct lc_lambda_args {
    void *context;
    lc_status (*on_fit_start)(void *context, lc_trainer *t);
    lc_status (*on_train_start)(void *context, lc_trainer *t);
    lc_status (*on_train_epoch_start)(void *context, lc_trainer *t);
    lc_status (*on_train_batch_end)(void *context, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx);
    lc_status (*on_validation_end)(void *context, lc_trainer *t);
    lc_status (*on_train_epoch_end)(void *context, lc_trainer *t);
    lc_status (*on_train_end)(void *context, lc_trainer *t);
    lc_status (*on_fit_end)(void *context, lc_trainer *t);
    lc_status (*on_exception)(void *context, lc_trainer *t, lc_status status, const char *message);
} lc_lambda_args;

LC_BEGIN_DECLS
/* args may be NULL where nothing is required. The callback is the trainer's once it was added. */
LC_API lc_status lc_model_checkpoint_new(const lc_model_checkpoint_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_model_checkpoint_get(const lc_callback *cb, lc_model_checkpoint_info *out) LC_MUST_USE;
LC_API lc_status lc_early_stopping_new(const lc_early_stopping_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_early_stopping_get(const lc_callback *cb, lc_early_stopping_info *out) LC_MUST_USE;
LC_API lc_status lc_progress_bar_new(const lc_progress_bar_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_model_summary_new(int max_depth, lc_callback *out) LC_MUST_USE; /* levels; 0: 2, -1: all */
LC_API lc_status lc_learning_rate_monitor_new(const lc_learning_rate_monitor_args *args, lc_callback *out) LC_MUST_USE;
/* Stops after `seconds` of training, at a step or (epoch_interval) at the end of an epoch. */
LC_API lc_status lc_timer_new(double seconds, bool epoch_interval, lc_callback *out) LC_MUST_USE;
LC_API double lc_timer_elapsed(const lc_callback *cb); /* seconds of training; kept over a resume */
LC_API lc_status lc_lambda_callback_new(const lc_lambda_args *args, lc_callback *out) LC_MUST_USE;
LC_END_DECLS
#endif
