/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks of a module: its vtable lc_module_ops, and their arguments.
 *
 * The order of the slots below is the order of calls in a run. Callbacks (callback.h) run before the module in every
 * hook except on_train_epoch_end, where callbacks that monitor (early stopping, checkpoints) come last. All hooks run
 * on the training thread, on every rank. A hook returns LC_OK, LC_STOP ("end the training after this step"; the same as
 * lc_trainer_stop), or an error (lc_fail(...)), which ends the run: on_exception, then teardown, always follow. */
#ifndef LIGHTC_HOOKS_H
#define LIGHTC_HOOKS_H

#include <lightc/batch.h>
#include <lightc/metrics.h>
#include <lightc/module.h>
#include <lightc/optim.h>
#include <lightc/state.h>

typedef struct lc_dataloader lc_dataloader;
typedef struct lc_dataset lc_dataset;
typedef struct lc_scheduler lc_scheduler;

#define LC_MAX_OPTIMIZERS    8
#define LC_MAX_LOADERS       16
#define LC_MAX_OUTPUTS_NAMED 8

/* Every hook there is, X(ID, name). Only ever grows at the end. */
#define LC_HOOK_LIST(X)                                                                                                \
    X(PREPARE_DATA, prepare_data)                                                                                      \
    X(SETUP, setup)                                                                                                    \
    X(CONFIGURE_MODEL, configure_model)                                                                                \
    X(CONFIGURE_CALLBACKS, configure_callbacks)                                                                        \
    X(CONFIGURE_OPTIMIZERS, configure_optimizers)                                                                      \
    X(ON_FIT_START, on_fit_start)                                                                                      \
    X(ON_SANITY_CHECK_START, on_sanity_check_start)                                                                    \
    X(ON_SANITY_CHECK_END, on_sanity_check_end)                                                                        \
    X(ON_TRAIN_START, on_train_start)                                                                                  \
    X(ON_TRAIN_EPOCH_START, on_train_epoch_start)                                                                      \
    X(ON_TRAIN_BATCH_START, on_train_batch_start)                                                                      \
    X(OPTIMIZER_STEP, optimizer_step)                                                                                  \
    X(TRAINING_STEP, training_step)                                                                                    \
    X(ON_BEFORE_ZERO_GRAD, on_before_zero_grad)                                                                        \
    X(OPTIMIZER_ZERO_GRAD, optimizer_zero_grad)                                                                        \
    X(ON_BEFORE_BACKWARD, on_before_backward)                                                                          \
    X(BACKWARD, backward)                                                                                              \
    X(ON_AFTER_BACKWARD, on_after_backward)                                                                            \
    X(ON_BEFORE_OPTIMIZER_STEP, on_before_optimizer_step)                                                              \
    X(CONFIGURE_GRADIENT_CLIPPING, configure_gradient_clipping)                                                        \
    X(LR_SCHEDULER_STEP, lr_scheduler_step)                                                                            \
    X(ON_TRAIN_BATCH_END, on_train_batch_end)                                                                          \
    X(ON_VALIDATION_MODEL_ZERO_GRAD, on_validation_model_zero_grad)                                                    \
    X(ON_VALIDATION_MODEL_EVAL, on_validation_model_eval)                                                              \
    X(ON_VALIDATION_START, on_validation_start)                                                                        \
    X(ON_VALIDATION_EPOCH_START, on_validation_epoch_start)                                                            \
    X(ON_VALIDATION_BATCH_START, on_validation_batch_start)                                                            \
    X(VALIDATION_STEP, validation_step)                                                                                \
    X(ON_VALIDATION_BATCH_END, on_validation_batch_end)                                                                \
    X(ON_VALIDATION_EPOCH_END, on_validation_epoch_end)                                                                \
    X(ON_VALIDATION_END, on_validation_end)                                                                            \
    X(ON_VALIDATION_MODEL_TRAIN, on_validation_model_train)                                                            \
    X(ON_TRAIN_EPOCH_END, on_train_epoch_end)                                                                          \
    X(ON_TRAIN_END, on_train_end)                                                                                      \
    X(ON_FIT_END, on_fit_end)                                                                                          \
    X(ON_TEST_MODEL_EVAL, on_test_model_eval)                                                                          \
    X(ON_TEST_START, on_test_start)                                                                                    \
    X(ON_TEST_EPOCH_START, on_test_epoch_start)                                                                        \
    X(ON_TEST_BATCH_START, on_test_batch_start)                                                                        \
    X(TEST_STEP, test_step)                                                                                            \
    X(ON_TEST_BATCH_END, on_test_batch_end)                                                                            \
    X(ON_TEST_EPOCH_END, on_test_epoch_end)                                                                            \
    X(ON_TEST_END, on_test_end)                                                                                        \
    X(ON_TEST_MODEL_TRAIN, on_test_model_train)                                                                        \
    X(ON_PREDICT_MODEL_EVAL, on_predict_model_eval)                                                                    \
    X(ON_PREDICT_START, on_predict_start)                                                                              \
    X(ON_PREDICT_EPOCH_START, on_predict_epoch_start)                                                                  \
    X(ON_PREDICT_BATCH_START, on_predict_batch_start)                                                                  \
    X(PREDICT_STEP, predict_step)                                                                                      \
    X(ON_PREDICT_BATCH_END, on_predict_batch_end)                                                                      \
    X(ON_PREDICT_EPOCH_END, on_predict_epoch_end)                                                                      \
    X(ON_PREDICT_END, on_predict_end)                                                                                  \
    X(ON_EXCEPTION, on_exception)                                                                                      \
    X(TEARDOWN, teardown)                                                                                              \
    X(ON_SAVE_CHECKPOINT, on_save_checkpoint)                                                                          \
    X(ON_LOAD_CHECKPOINT, on_load_checkpoint)                                                                          \
    X(TRAIN_DATALOADER, train_dataloader)                                                                              \
    X(VAL_DATALOADER, val_dataloader)                                                                                  \
    X(TEST_DATALOADER, test_dataloader)                                                                                \
    X(PREDICT_DATALOADER, predict_dataloader)                                                                          \
    X(ON_BEFORE_BATCH_TRANSFER, on_before_batch_transfer)                                                              \
    X(TRANSFER_BATCH_TO_DEVICE, transfer_batch_to_device)                                                              \
    X(ON_AFTER_BATCH_TRANSFER, on_after_batch_transfer)

typedef enum lc_hook {
#define LC_HOOK_ENUM(id, name) LC_HOOK_##id,
    LC_HOOK_LIST(LC_HOOK_ENUM)
#undef LC_HOOK_ENUM
        LC_HOOKS, /* how many */
} lc_hook;

/* "fit" (training, with validation in it), "validate", "test", "predict". */
typedef enum lc_stage { LC_STAGE_FIT = 0, LC_STAGE_VALIDATE, LC_STAGE_TEST, LC_STAGE_PREDICT } lc_stage;

/* Which ranks a callback wants to run on. */
typedef enum lc_ranks { LC_EVERY_RANK = 0, LC_RANK_ZERO } lc_ranks;

/* The results of training_step: given to on_train_batch_end, also to the batch-end hooks of evaluation. The values have
 * been computed when a batch-end hook runs; lc_item and lc_tensor_read do not split the plan there. */
typedef struct lc_outputs {
    lc_tensor *loss;     /* what the step returned; NULL if it skipped the batch */
    double loss_divisor; /* Lightning's outputs["loss"] is loss / accumulate_grad_batches */
    int n;               /* named outputs (lc_output) */
    const char *names[LC_MAX_OUTPUTS_NAMED];
    lc_tensor *values[LC_MAX_OUTPUTS_NAMED];
} lc_outputs;

/* ---- what configure_optimizers fills ---- */

typedef enum lc_interval { LC_INTERVAL_EPOCH = 0, LC_INTERVAL_STEP } lc_interval;

typedef struct lc_scheduler_config {
    lc_scheduler *scheduler;
    int optimizer;          /* number of the optimizer it drives, in the order they were added; set by the trainer */
    lc_interval interval;   /* default: once an epoch */
    int64_t frequency;      /* steps every `frequency` epochs, or optimizer steps; 0: 1 */
    const char *monitor;    /* the metric a plateau scheduler looks at; static or owned by the module */
    bool reduce_on_plateau; /* steps with the value of `monitor` (after validation) */
    bool not_strict;        /* a missing metric skips the step instead of ending the run */
    const char *name;       /* for LearningRateMonitor; NULL: "lr-<optimizer>" */
    void *reserved[2];
} lc_scheduler_config;

typedef lc_tensor *lc_training_step_fn(lc_module *self, const lc_batch *batch, int64_t batch_idx);

typedef struct lc_optimizer_config {
    lc_optimizer *optimizer;
    lc_training_step_fn *training_step; /* NULL: ops->training_step. With several optimizers: the step of this one */
} lc_optimizer_config;

typedef struct lc_optimizers {
    int n, n_schedulers;
    lc_optimizer_config optimizers[LC_MAX_OPTIMIZERS];
    lc_scheduler_config schedulers[LC_MAX_OPTIMIZERS];
} lc_optimizers;

/* ---- what *_dataloader fills ---- */
typedef struct lc_loaders {
    int n;
    lc_dataloader *loaders[LC_MAX_LOADERS];
} lc_loaders;

/* The closure that optimizer_step gets: runs training_step, marks gradients to be zeroed, and runs backward. */
typedef struct lc_closure lc_closure;

/* ---- the module's vtable ---- */
struct lc_module_ops {
    size_t size;      /* LC_MODULE_OPS_INIT(name) */
    const char *name; /* of the model: "classifier" */

    /* ---------------- REQUIRED for fit ---------------- */
    /* Computes the loss (one element) of a batch by calling operations. NULL skips the batch (it still counts as an
     * optimizer step, as in Lightning); NULL after lc_fail (except with LC_ERR_NOT_FOUND, which a mere lookup may
     * give), or an error tensor, ends the run with that error. */
    lc_training_step_fn *training_step;
    /* Says what to train with: lc_optimizers_add(out, optimizer), lc_optimizers_add_scheduler(...). The trainer takes
     * the optimizers and schedulers over, and frees them. */
    lc_status (*configure_optimizers)(lc_module *self, lc_optimizers *out);

    /* ---------------- OPTIONAL ---------------- */
    /* training_step calls lc_manual_backward, lc_manual_step and lc_manual_zero_grad itself. */
    bool manual_optimization;

    /* -- data: lc_loaders_add(out, loader); the trainer frees the loaders. Not called if loaders were given to
     * lc_trainer_fit, lc_trainer_validate, ... */
    lc_status (*train_dataloader)(lc_module *self, lc_loaders *out);
    lc_status (*val_dataloader)(lc_module *self, lc_loaders *out);
    lc_status (*test_dataloader)(lc_module *self, lc_loaders *out);
    lc_status (*predict_dataloader)(lc_module *self, lc_loaders *out);

    /* -- evaluation steps */
    lc_status (*validation_step)(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx);
    lc_status (*test_step)(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx);
    /* The prediction is copied out and kept (unless lc_run_args.discard_predictions). Default: forward. */
    lc_tensor *(*predict_step)(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx);
    lc_tensor *(*forward)(lc_module *self, const lc_batch *batch);

    /* -- once a run, in call order */
    /* May add callbacks with lc_trainer_add_callback. */
    lc_status (*configure_callbacks)(lc_module *self);
    lc_status (*prepare_data)(lc_module *self);
    lc_status (*setup)(lc_module *self, lc_stage stage);
    lc_status (*configure_model)(lc_module *self);
    lc_status (*on_fit_start)(lc_module *self);
    lc_status (*on_train_start)(lc_module *self);

    /* -- each epoch, each batch */
    lc_status (*on_train_epoch_start)(lc_module *self);
    /* LC_SKIP skips the rest of the epoch (Lightning's -1): no on_train_batch_end, no validation. */
    lc_status (*on_train_batch_start)(lc_module *self, const lc_batch *batch, int64_t batch_idx);
    /* Default: lc_default_optimizer_step. An override calls lc_closure_run (or the default) at least once. `optimizer`
     * is NULL if configure_optimizers added none. */
    lc_status (*optimizer_step)(lc_module *self, int64_t epoch, int64_t batch_idx, lc_optimizer *optimizer,
                                lc_closure *closure);
    lc_status (*on_before_zero_grad)(lc_module *self, lc_optimizer *optimizer);
    lc_status (*optimizer_zero_grad)(lc_module *self, int64_t epoch, int64_t batch_idx, lc_optimizer *optimizer);
    /* loss: the one that is differentiated; a precision may have scaled it. */
    lc_status (*on_before_backward)(lc_module *self, lc_tensor *loss);
    lc_status (*backward)(lc_module *self, lc_tensor *loss); /* default: lc_backward */
    lc_status (*on_after_backward)(lc_module *self);
    /* LC_SKIP leaves the update out; the step still counts. LC_SKIP on one rank is LC_SKIP on all. */
    lc_status (*on_before_optimizer_step)(lc_module *self, lc_optimizer *optimizer);
    /* Called without a clip value too (gradient_clip_val is 0 then). Default: lc_clip_gradients. */
    lc_status (*configure_gradient_clipping)(lc_module *self, lc_optimizer *optimizer, double gradient_clip_val,
                                             const char *gradient_clip_algorithm);
    /* `metric` is the value of a plateau scheduler's monitor, or NULL. Default: lc_default_lr_scheduler_step. */
    lc_status (*lr_scheduler_step)(lc_module *self, lc_scheduler *scheduler, const double *metric);
    lc_status (*on_train_batch_end)(lc_module *self, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx);

    /* -- validation (inside fit, and lc_trainer_validate) */
    /* Not inside an accumulation window. Default: zeroes all gradients, also those added up by hand. */
    lc_status (*on_validation_model_zero_grad)(lc_module *self);
    lc_status (*on_validation_model_eval)(lc_module *self); /* default: lc_module_train(self, false) */
    lc_status (*on_validation_start)(lc_module *self);
    lc_status (*on_validation_epoch_start)(lc_module *self);
    lc_status (*on_validation_batch_start)(lc_module *self, const lc_batch *batch, int64_t batch_idx,
                                           int dataloader_idx);
    lc_status (*on_validation_batch_end)(lc_module *self, const lc_outputs *outputs, const lc_batch *batch,
                                         int64_t batch_idx, int dataloader_idx);
    lc_status (*on_validation_epoch_end)(lc_module *self);
    lc_status (*on_validation_end)(lc_module *self);
    lc_status (*on_validation_model_train)(lc_module *self); /* default: restores the modes from before */

    lc_status (*on_train_epoch_end)(lc_module *self);
    lc_status (*on_train_end)(lc_module *self);
    lc_status (*on_fit_end)(lc_module *self);

    /* -- test */
    lc_status (*on_test_model_eval)(lc_module *self);
    lc_status (*on_test_start)(lc_module *self);
    lc_status (*on_test_epoch_start)(lc_module *self);
    lc_status (*on_test_batch_start)(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx);
    lc_status (*on_test_batch_end)(lc_module *self, const lc_outputs *outputs, const lc_batch *batch, int64_t batch_idx,
                                   int dataloader_idx);
    lc_status (*on_test_epoch_end)(lc_module *self);
    lc_status (*on_test_end)(lc_module *self);
    lc_status (*on_test_model_train)(lc_module *self);

    /* -- predict */
    lc_status (*on_predict_model_eval)(lc_module *self);
    lc_status (*on_predict_start)(lc_module *self);
    lc_status (*on_predict_epoch_start)(lc_module *self);
    lc_status (*on_predict_batch_start)(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx);
    lc_status (*on_predict_batch_end)(lc_module *self, const lc_outputs *outputs, const lc_batch *batch,
                                      int64_t batch_idx, int dataloader_idx);
    lc_status (*on_predict_epoch_end)(lc_module *self);
    lc_status (*on_predict_end)(lc_module *self);

    lc_status (*teardown)(lc_module *self, lc_stage stage);

    /* -- checkpoints: state of the module other than its parameters. `state` is the module's own object. */
    lc_status (*on_save_checkpoint)(lc_module *self, lc_state *state);
    lc_status (*on_load_checkpoint)(lc_module *self, const lc_state *state);

    /* -- before each batch's start hooks, in training and evaluation (a datamodule's hook replaces the module's).
     * `batch` is a copy whose tensors may be exchanged, also for results of operations, which are recorded into the
     * step. */
    lc_status (*on_before_batch_transfer)(lc_module *self, lc_batch *batch, int dataloader_idx);
    lc_status (*transfer_batch_to_device)(lc_module *self, lc_batch *batch, int dataloader_idx);
    lc_status (*on_after_batch_transfer)(lc_module *self, lc_batch *batch, int dataloader_idx);
};

#define LC_MODULE_OPS_INIT(text) .size = sizeof(lc_module_ops), .name = (text)

/* ---- logging ---- */

typedef enum lc_log_reduce { LC_LOG_MEAN = 0, LC_LOG_SUM, LC_LOG_MIN, LC_LOG_MAX } lc_log_reduce;

typedef struct lc_log_args {
    size_t size;
    bool prog_bar;           /* show it in the progress bar */
    bool logger;             /* send it to loggers; default on */
    lc_choice on_step;       /* log the value of every step; LC_AUTO: the hook's default */
    lc_choice on_epoch;      /* log it reduced over the epoch; LC_AUTO: the hook's default */
    unsigned char reduce_fx; /* lc_log_reduce: how values are reduced over the epoch */
    bool add_dataloader_idx; /* append "/dataloader_idx_N" with several loaders; default on */
    /* The value of a step is the mean (sum, ...) over all ranks instead of rank 0's value: all ranks must log it in
     * that step. Values of an epoch are always those of all ranks. */
    bool sync_dist;
    /* Not reduced over ranks, not even over an epoch: each rank keeps its own, and rank 0's is logged and monitored.
     * Other ranks need not log it. */
    bool rank_zero_only;
    int64_t batch_size; /* weight of the mean; 0: samples in the batch */
    lc_site site;       /* filled in by the macro */
} lc_log_args;
LC_DEFAULTS(lc_log, lc_log_args, .logger = true, .on_step = LC_AUTO, .on_epoch = LC_AUTO, .add_dataloader_idx = true)

LC_BEGIN_DECLS

/* "on_train_start"; NULL if out of range. */
LC_API const char *lc_hook_name(lc_hook hook);
LC_API const char *lc_stage_name(lc_stage stage);

/* Logs a value from a hook of a module or callback. `value` is a tensor of one element: the value is read back after
 * the step has run, so that logging never splits a plan. Errors (a name used twice with different arguments, a hook
 * that may not log) end the run after the hook. `name` must be the same pointer or text each time; it is copied.
 *
 *     lc_log(self, "train_loss", loss, .prog_bar = true);
 *     lc_log_value(self, "temperature", 0.7, .on_step = false, .on_epoch = true); */
LC_API void lc_log_at(lc_module *self, const char *name, lc_tensor *value, const lc_log_args *args);
LC_API void lc_log_value_at(lc_module *self, const char *name, double value, const lc_log_args *args);
#define lc_log(...)       LC_LOG_(lc_log_at, __VA_ARGS__, )
#define lc_log_value(...) LC_LOG_(lc_log_value_at, __VA_ARGS__, )
#define LC_LOG_(function, self, name, value, ...)                                                                      \
    LC_CALL_(LC_UNIQUE_, lc_log_args, lc_log_defaults(), function, (self, name, value, ), (), .site = LC_HERE,         \
             __VA_ARGS__)

/* Logs a metric (metrics.h), whose value over the epoch, or over the evaluation, is computed by the trainer when all
 * batches are done; then the trainer resets it. Update it first, and log it for every batch:
 *
 *     LC_TRY(lc_metric_update_tensor(m->accuracy, logits, batch->y));
 *     lc_log_metric(self, "val_acc", m->accuracy, .prog_bar = true);
 *
 * The metric must have one value and belongs to the program, which keeps it until the epoch ends. Training, validation
 * and each of several loaders need metrics of their own. Options are those of lc_log except .on_step, .reduce_fx and
 * .batch_size, which make no sense here and are rejected. A checkpoint inside an epoch holds the metric's state; a run
 * that continues restores it at the first log and gives the same value bit for bit, if there is no more than one update
 * per log. (With several ranks, sums of floating-point numbers are equal within rounding: the state is that of all
 * ranks together.) */
LC_API void lc_log_metric_at(lc_module *self, const char *name, lc_metric *metric, const lc_log_args *args);
#define lc_log_metric(...) LC_LOG_(lc_log_metric_at, __VA_ARGS__, )

/* Hands a named value of this step to the batch-end hooks (lc_outputs). `name` is static. */
LC_API void lc_output(lc_module *self, const char *name, lc_tensor *value);

/* ---- optimizers and loaders ----
 * The list takes over what is added. If that fails it is freed, unless it is in a list or part of another object
 * already. */
LC_API lc_status lc_optimizers_add(lc_optimizers *out, lc_optimizer *optimizer) LC_MUST_USE;
/* Adds an optimizer with a training step of its own (automatic optimization with several optimizers). */
LC_API lc_status lc_optimizers_add_step(lc_optimizers *out, lc_optimizer *optimizer,
                                        lc_training_step_fn *step) LC_MUST_USE;
LC_API lc_status lc_optimizers_add_scheduler(lc_optimizers *out, lc_scheduler_config config) LC_MUST_USE;
LC_API lc_status lc_loaders_add(lc_loaders *out, lc_dataloader *loader) LC_MUST_USE;

/* ---- for overrides of the optimization hooks ---- */
/* Runs training_step, the zero-grad mark and backward (again at each call); returns the loss (NULL: skipped, or *status
 * is an error). */
LC_API lc_tensor *lc_closure_run(lc_closure *closure, lc_status *status);
LC_API lc_status lc_default_optimizer_step(lc_module *self, int64_t epoch, int64_t batch_idx, lc_optimizer *optimizer,
                                           lc_closure *closure) LC_MUST_USE;
/* Clips by "norm" or "value"; nothing if gradient_clip_val is 0. */
LC_API lc_status lc_clip_gradients(lc_module *self, lc_optimizer *optimizer, double gradient_clip_val,
                                   const char *gradient_clip_algorithm) LC_MUST_USE;
LC_API lc_status lc_default_lr_scheduler_step(lc_module *self, lc_scheduler *scheduler,
                                              const double *metric) LC_MUST_USE;

/* ---- manual optimization ---- */
LC_API lc_optimizer *lc_manual_optimizer(lc_module *self, int i); /* NULL if there is none */
LC_API lc_status lc_manual_zero_grad_at(lc_module *self, lc_optimizer *optimizer, lc_site site) LC_MUST_USE;
#define lc_manual_zero_grad(self, optimizer) lc_manual_zero_grad_at(self, optimizer, LC_HERE) /* NULL: of all */
LC_API lc_status lc_manual_backward_at(lc_module *self, lc_tensor *loss, lc_site site) LC_MUST_USE;
#define lc_manual_backward(self, loss) lc_manual_backward_at(self, loss, LC_HERE)
/* Fires on_before_optimizer_step, records the update, counts a step. Gradients of several backward passes are added,
 * not averaged. */
LC_API lc_status lc_manual_step_at(lc_module *self, lc_optimizer *optimizer, lc_site site) LC_MUST_USE;
#define lc_manual_step(self, optimizer) lc_manual_step_at(self, optimizer, LC_HERE)
/* The same with a closure, which zeroes gradients, computes the loss and calls lc_manual_backward; LBFGS calls it
 * several times. If the closure returns NULL nothing is updated; it sets *status to end the run with an error. *loss
 * (may be NULL) receives the loss of the last call. */
typedef lc_tensor *lc_manual_closure_fn(void *ctx, lc_status *status);
LC_API lc_status lc_manual_step_closure_at(lc_module *self, lc_optimizer *optimizer, lc_manual_closure_fn *closure,
                                           void *ctx, lc_tensor **loss, lc_site site) LC_MUST_USE;
#define lc_manual_step_closure(self, optimizer, closure, ctx, loss)                                                    \
    lc_manual_step_closure_at(self, optimizer, closure, ctx, loss, LC_HERE)
/* Parameters that belong only to other optimizers require no gradient until lc_untoggle_optimizer or the end of
 * training_step. What was recorded before is run first. */
LC_API lc_status lc_toggle_optimizer(lc_module *self, const lc_optimizer *optimizer) LC_MUST_USE;
LC_API lc_status lc_untoggle_optimizer(lc_module *self) LC_MUST_USE;

LC_END_DECLS
#endif
