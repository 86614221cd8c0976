/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer: runs a module.
 *
 * One trainer belongs to one thread. fit, validate, test and predict may be called one after the other, also with
 * several modules. The order of hooks, counters, logging rules and names of checkpoints are Lightning's;
 * docs/trainer.md lists the intended differences.
 *
 * Runs, the functions for programs with their own loop, and lc_trainer_save_checkpoint are collective: with several
 * ranks each rank calls them, in the same order. The rest is local. */
#ifndef LIGHTC_TRAINER_H
#define LIGHTC_TRAINER_H

#include <lightc/datamodule.h>
#include <lightc/options.h>
#include <lightc/precision.h>
#include <lightc/strategy.h>

/* The arguments of a run: lc_trainer_fit(t, m, .train_dataloader = loader, .ckpt_path = "last"). For the functions
 * that take a pointer to them, NULL means the defaults. */
typedef struct lc_run_args {
    size_t size;
    lc_dataloader *train_dataloader;   /* fit. Default: the module's */
    lc_dataloader *val_dataloader;     /* fit: one validation loader (or the list below) */
    lc_dataloader *const *dataloaders; /* fit: for validation; else for the run. Default: the module's */
    int n_dataloaders;
    const char *ckpt_path;    /* a path, "best", "last" or "hpc"; default: the option's (fit only) */
    bool discard_predictions; /* predict: do not keep them */
    /* Loaders and hooks of the data; no loaders may be given then. Must outlive the run. */
    const lc_datamodule *datamodule;
} lc_run_args;
LC_DEFAULTS(lc_run, lc_run_args, .discard_predictions = false)

/* One loader's metrics of validate or test. */
typedef struct lc_metrics {
    const lc_metric_value *values; /* sorted by name */
    int n;
} lc_metrics;

typedef enum lc_run_state {
    LC_RUN_INITIALIZING = 0,
    LC_RUN_RUNNING,
    LC_RUN_FINISHED,
    LC_RUN_INTERRUPTED, /* by an error or a signal */
} lc_run_state;

LC_BEGIN_DECLS

/* A trainer with copies of the options (NULL: the defaults). Takes over opt->storage, the callbacks, the loggers, the
 * profilers and the precision, which another trainer of the same options cannot have as well (LC_ERR_STATE). If the
 * options ask for several ranks and lc_trainer_options_parse has not seen them, this starts them: the starting
 * process gets LC_STOP, with *out NULL, when they have ended well (docs/launching.md). */
LC_API lc_status lc_trainer_new(lc_trainer_options *opt, lc_trainer **out) LC_MUST_USE;
/* Frees the trainer, its callbacks, loggers and optimizers. The program owns the modules; release them afterwards. NULL
 * is fine; in a hook of a run it frees nothing, and the run ends with an error. */
LC_API void lc_trainer_free(lc_trainer *t);
/* Adds a callback, before a run or in configure_callbacks. The trainer frees it, also on failure. It takes the place of
 * the trainer's own callback of its kind (the progress bar, ModelSummary, ModelCheckpoint, Timer), which is freed. In
 * configure_callbacks it also replaces callbacks of its kind that were added before that call, so a module that runs
 * again has its callbacks once. LC_ERR_CONFIG: a second progress bar, or a state key that is taken; LC_ERR_STATE:
 * called later in a run. */
LC_API lc_status lc_trainer_add_callback(lc_trainer *t, lc_callback callback) LC_MUST_USE;

/* ---- runs. LC_ERR_INTERRUPTED after SIGINT, SIGTERM or SIGHUP: the message says where the state was saved. ---- */
#define lc_trainer_fit(t, ...) LC_CALL_NEW_(lc_trainer_fit, lc_run, (t, ), __VA_ARGS__, )
LC_API lc_status lc_trainer_fit_with(lc_trainer *t, lc_module *m, const lc_run_args *args) LC_MUST_USE;
/* validate, test and predict: m may be NULL after a fit. The best checkpoint is then loaded into the module that was
 * fitted. */
#define lc_trainer_validate(t, ...) LC_CALL_NEW_(lc_trainer_validate, lc_run, (t, ), __VA_ARGS__, )
LC_API lc_status lc_trainer_validate_with(lc_trainer *t, lc_module *m, const lc_run_args *args) LC_MUST_USE;
#define lc_trainer_test(t, ...) LC_CALL_NEW_(lc_trainer_test, lc_run, (t, ), __VA_ARGS__, )
LC_API lc_status lc_trainer_test_with(lc_trainer *t, lc_module *m, const lc_run_args *args) LC_MUST_USE;
#define lc_trainer_predict(t, ...) LC_CALL_NEW_(lc_trainer_predict, lc_run, (t, ), __VA_ARGS__, )
LC_API lc_status lc_trainer_predict_with(lc_trainer *t, lc_module *m, const lc_run_args *args) LC_MUST_USE;
/* The results of the last validate or test, for loader i. Empty if there is no such loader. Borrowed until the next
 * run. */
LC_API lc_metrics lc_trainer_results(const lc_trainer *t, int loader);
/* Predictions of the last predict, in order: persistent tensors, borrowed until the next run. */
LC_API int64_t lc_trainer_prediction_count(const lc_trainer *t, int loader);
LC_API lc_tensor *lc_trainer_prediction(const lc_trainer *t, int loader, int64_t i);

/* ---- for programs that own their loop ----
 * An error of one of these ends the run as an error ends fit (on_exception, teardown); lc_trainer_end is then not
 * called. */
/* Sets the module up (setup, configure_optimizers, on_fit_start, on_train_start), as fit does before its loop. */
LC_API lc_status lc_trainer_begin(lc_trainer *t, lc_module *m) LC_MUST_USE;
/* One training batch: hooks, training_step, backward, and an optimizer step if the accumulation window is full.
 * *loss (may be NULL) receives the value, NaN if the batch was skipped. LC_STOP: a callback, a signal or max_steps
 * asks to stop; call lc_trainer_end then. */
LC_API lc_status lc_trainer_step(lc_trainer *t, const lc_batch *batch, double *loss) LC_MUST_USE;
/* Ends the epoch that lc_trainer_step counted: epoch hooks and rows. */
LC_API lc_status lc_trainer_end_epoch(lc_trainer *t) LC_MUST_USE;
/* lc_trainer_end_epoch if an epoch is open, then on_train_end, on_fit_end and teardown. */
LC_API lc_status lc_trainer_end(lc_trainer *t) LC_MUST_USE;

/* ---- checkpoints ---- */
/* Writes a checkpoint and waits until it is durable. */
LC_API lc_status lc_trainer_save_checkpoint(lc_trainer *t, const char *path, bool weights_only) LC_MUST_USE;
/* Copies the parameters and buffers of a checkpoint, or of a plain safetensors file (PyTorch's state_dict), into a
 * module. With `strict` both must have exactly the same names; without, the names in common are copied, and having none
 * in common is an error. lc_module_load_weights (weights.h) also reports what was left out, and can map names. */
LC_API lc_status lc_module_load_checkpoint(lc_module *m, const char *path, bool strict) LC_MUST_USE;

/* ---- control ---- */
LC_API void lc_trainer_stop(lc_trainer *t); /* should_stop = true: latches until the run's end */
LC_API bool lc_trainer_should_stop(const lc_trainer *t);
/* Logs from a callback, as lc_log does from a module. */
LC_API void lc_trainer_log_at(lc_trainer *t, const char *name, double value, const lc_log_args *args);
#define lc_trainer_log(...) LC_LOG_(lc_trainer_log_at, __VA_ARGS__, )
/* Sends a row to the loggers at once, outside of the rules of lc_log. epoch -1: the row has none. */
LC_API lc_status lc_trainer_log_row(lc_trainer *t, const lc_metric_value *values, int n, int64_t step,
                                    int64_t epoch) LC_MUST_USE;
/* These log other data than rows of numbers; rank 0 sends it, and all ranks may call (gather a tensor in slices first).
 * An error says what is wrong with the arguments; a failing logger is a warning, once, as for rows. The data goes at
 * once to the loggers that keep such data (docs/loggers.md); if none does, a warning says so once. Outside of a run
 * that logs, nothing happens. step -1: lc_trainer_logger_step. */
LC_API lc_status lc_trainer_log_hyperparameters(lc_trainer *t, const lc_hparam *params, int n) LC_MUST_USE;
/* The distribution of the elements of x, in TensorBoard's own bins. Elements that are not finite are not counted. */
LC_API lc_status lc_trainer_log_histogram(lc_trainer *t, const char *name, lc_tensor *x, int64_t step) LC_MUST_USE;
/* The same from counts: counts[i] values are between edges[i] and edges[i + 1]. */
LC_API lc_status lc_trainer_log_counts(lc_trainer *t, const char *name, const double *edges, const double *counts,
                                       int n_bins, int64_t step) LC_MUST_USE;
/* x [H,W] or [C,H,W], C 1 (gray), 3 (RGB) or 4 (RGBA); u8, or floats from 0 to 1. */
LC_API lc_status lc_trainer_log_image(lc_trainer *t, const char *name, lc_tensor *x, int64_t step) LC_MUST_USE;
LC_API lc_status lc_trainer_log_text(lc_trainer *t, const char *name, const char *text, int64_t step) LC_MUST_USE;
/* Prints a message. It goes to the loggers and to callbacks with on_message, such as the progress bar; without one,
 * warnings and errors go to standard error (except with barebones). */
LC_API void lc_trainer_message(lc_trainer *t, lc_level level, const char *format, ...) LC_PRINTF(3, 4);
/* Changes accumulate_grad_batches from the next window on; a window that has begun ends as it began. */
LC_API lc_status lc_trainer_set_accumulate_grad_batches(lc_trainer *t, int64_t n) LC_MUST_USE;

/* ---- state ----
 * These describe the current run, or the last one. Before the first run they return 0, NULL, "", or -1 if that means
 * unknown; for an index out of range, NULL (or a struct of zeros). Modules and datamodules are the program's; loaders,
 * optimizers and schedulers are borrowed until the next run begins, loggers and callbacks until lc_trainer_free. */
LC_API lc_module *lc_trainer_module(const lc_trainer *t);
LC_API lc_graph *lc_trainer_graph(const lc_trainer *t);
LC_API const lc_trainer_options *lc_trainer_get_options(const lc_trainer *t); /* resolved */
LC_API int64_t lc_trainer_global_step(const lc_trainer *t);                   /* optimizer steps done */
LC_API int64_t lc_trainer_current_epoch(const lc_trainer *t);                 /* epochs completed */
LC_API int64_t lc_trainer_batch_idx(const lc_trainer *t);   /* of the batch being run, or the last one */
LC_API int64_t lc_trainer_logger_step(const lc_trainer *t); /* batches that ended a window */
LC_API bool lc_trainer_is_last_batch(const lc_trainer *t);
LC_API bool lc_trainer_is_accumulating(const lc_trainer *t); /* the current batch does not end with a step */
/* Batches of an epoch that the limits leave; -1: unknown, or the loader is not made yet. */
LC_API int64_t lc_trainer_num_training_batches(const lc_trainer *t);
LC_API int64_t lc_trainer_num_val_batches(const lc_trainer *t, int loader); /* also test, predict */
LC_API int lc_trainer_num_val_loaders(const lc_trainer *t);
LC_API int64_t lc_trainer_num_sanity_val_batches(const lc_trainer *t, int loader);
LC_API int lc_trainer_dataloader_idx(const lc_trainer *t);
/* Optimizer steps of the whole run: ceil(batches / k) * max_epochs, at most max_steps; INFINITY if unlimited. */
LC_API lc_status lc_trainer_estimated_stepping_batches(lc_trainer *t, double *out) LC_MUST_USE;
LC_API lc_stage lc_trainer_stage(const lc_trainer *t);
LC_API bool lc_trainer_sanity_checking(const lc_trainer *t);
LC_API bool lc_trainer_training(const lc_trainer *t);   /* fit runs, and no validation inside it, or sanity check */
LC_API bool lc_trainer_validating(const lc_trainer *t); /* a validation runs, inside fit too; not the sanity check */
LC_API bool lc_trainer_testing(const lc_trainer *t);
LC_API bool lc_trainer_predicting(const lc_trainer *t);
LC_API bool lc_trainer_evaluating(const lc_trainer *t); /* validation (not the sanity check) or test */
LC_API lc_run_state lc_trainer_state(const lc_trainer *t);
LC_API bool lc_trainer_interrupted(const lc_trainer *t);    /* state is LC_RUN_INTERRUPTED */
LC_API int lc_trainer_received_signal(const lc_trainer *t); /* 0: none */
LC_API bool lc_trainer_received_sigterm(const lc_trainer *t);
LC_API int64_t lc_trainer_max_epochs(const lc_trainer *t); /* resolved; -1: no limit */
LC_API int64_t lc_trainer_min_epochs(const lc_trainer *t);
LC_API int64_t lc_trainer_max_steps(const lc_trainer *t);
LC_API int64_t lc_trainer_min_steps(const lc_trainer *t);
LC_API int64_t lc_trainer_accumulate_grad_batches(const lc_trainer *t); /* as set last */
/* The number of batches between validations, or one of these. */
enum {
    LC_VAL_EPOCH_END = -1, /* at the end of an epoch of unknown length */
    LC_VAL_TIME = -2,      /* after a time */
    LC_VAL_STEPS = -3,     /* after a number of optimizer steps */
};
LC_API int64_t lc_trainer_val_check_batch(const lc_trainer *t);
LC_API bool lc_trainer_enable_validation(const lc_trainer *t);
LC_API int lc_trainer_global_rank(const lc_trainer *t);
LC_API int lc_trainer_local_rank(const lc_trainer *t);
LC_API int lc_trainer_node_rank(const lc_trainer *t);
LC_API int lc_trainer_world_size(const lc_trainer *t);
LC_API int lc_trainer_num_nodes(const lc_trainer *t);
LC_API int lc_trainer_num_devices(const lc_trainer *t); /* of this machine */
/* Memory use of device `device` of a strategy with several devices per process (data_parallel, central_storage); -1:
 * the host of central_storage. For the largest batch so far. LC_ERR_STATE without such a strategy, or before its first
 * run. */
LC_API lc_status lc_trainer_device_memory(const lc_trainer *t, int device, lc_device_memory *out) LC_MUST_USE;
/* Memory use of this rank, with all of its devices; includes gradients and optimizer state even before the first step.
 * The simple profiler reports it at the end of a fit.
 * In a fit with the strategy sharded: its slices; gathered units count as intermediate results. */
LC_API lc_status lc_trainer_memory(const lc_trainer *t, lc_device_memory *out) LC_MUST_USE;
LC_API bool lc_trainer_is_global_zero(const lc_trainer *t);
LC_API const char *lc_trainer_accelerator(const lc_trainer *t); /* "cpu", "sim:1" */
LC_API const lc_strategy_ops *lc_trainer_strategy(const lc_trainer *t);
LC_API lc_precision lc_trainer_precision(const lc_trainer *t); /* belongs to the trainer */
LC_API const char *lc_trainer_default_root_dir(const lc_trainer *t);
LC_API const char *lc_trainer_run_dir(const lc_trainer *t);   /* root/lightning_logs/version_N; "" without loggers */
LC_API const char *lc_trainer_ckpt_path(const lc_trainer *t); /* the checkpoint this run continues; "" if none */
LC_API int lc_trainer_logger_count(const lc_trainer *t);
LC_API lc_logger lc_trainer_logger(const lc_trainer *t, int i);
/* The loaders of the run; NULL: none yet. */
LC_API lc_dataloader *lc_trainer_train_dataloader(const lc_trainer *t);
LC_API lc_dataloader *lc_trainer_val_dataloader(const lc_trainer *t, int i); /* also test, predict */
LC_API const lc_datamodule *lc_trainer_datamodule(const lc_trainer *t);      /* NULL: none */
LC_API int lc_trainer_optimizer_count(const lc_trainer *t);
LC_API lc_optimizer *lc_trainer_optimizer(const lc_trainer *t, int i);
LC_API int lc_trainer_scheduler_count(const lc_trainer *t);
LC_API const lc_scheduler_config *lc_trainer_scheduler(const lc_trainer *t, int i);
LC_API int lc_trainer_callback_count(const lc_trainer *t);
LC_API lc_callback lc_trainer_callback(const lc_trainer *t, int i);
/* The nth callback of that name ("EarlyStopping", "ProgressBar"); ops NULL: there is none. */
LC_API lc_callback lc_trainer_callback_named(const lc_trainer *t, const char *name, int nth);
LC_API lc_callback lc_trainer_checkpoint_callback(const lc_trainer *t, int nth); /* of any kind that saves */
/* Seconds of wall clock since the run began (after a run: since the last one began). */
LC_API double lc_trainer_elapsed(const lc_trainer *t);

/* ---- metrics ----
 * Metrics as logged in the current run, or the last one: each run begins with none. */
typedef enum lc_metric_set {
    LC_CALLBACK_METRICS = 0, /* everything that can be monitored */
    LC_LOGGED_METRICS,       /* what went to the loggers last */
    LC_PROGRESS_BAR_METRICS,
} lc_metric_set;
/* The message of LC_ERR_NOT_FOUND lists the available metrics. */
LC_API lc_status lc_trainer_metric(lc_trainer *t, const char *name, double *out) LC_MUST_USE;
LC_API int lc_trainer_metric_count(lc_trainer *t, lc_metric_set set);
/* In the order of first logging; name NULL: index out of range. The name is borrowed until the next run begins. */
LC_API lc_metric_value lc_trainer_metric_at(lc_trainer *t, lc_metric_set set, int i);

LC_END_DECLS
#endif
