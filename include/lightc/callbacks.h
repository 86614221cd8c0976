/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks of lightc. Arguments and their defaults are Lightning's (args.h). docs/callbacks.md describes each
 * callback and its differences.
 *
 *     lc_callback cb;
 *     LC_TRY(lc_early_stopping(&cb, .monitor = "val_loss", .patience = 5));
 *
 * The callback then goes into lc_trainer_options.callbacks or to lc_trainer_add_callback; the trainer owns it from then
 * on. Texts and lists in the arguments are copied. A `context` is borrowed: it must outlive the callback. */
#ifndef LIGHTC_CALLBACKS_H
#define LIGHTC_CALLBACKS_H

#include <lightc/callback.h>
#include <lightc/options.h>

/* ModelCheckpoint. Several runs may share dirpath: each reserves its names (-v1, -v2, ... if one is taken), and counts
 * and removes only checkpoints of its own training, which a run resumed from one of them continues
 * (docs/checkpoints.md). */
typedef struct lc_model_checkpoint_args {
    size_t size;
    const char *dirpath;  /* default: RUN_DIR/checkpoints */
    const char *filename; /* default, also if it is empty: "{epoch}-{step}"; with Python's formats for numbers */
    const char *monitor;  /* default: none, the newest is kept */
    const char *mode;     /* "min" (default) or "max" */
    bool verbose;
    bool save_last;     /* `last.ckpt` always names the newest state */
    int64_t save_top_k; /* -1: all; 0: none */
    bool save_on_exception;
    bool save_weights_only;
    bool auto_insert_metric_name;                /* default on */
    int64_t every_n_train_steps, every_n_epochs; /* at most one trigger; 0: off; if none is given: every epoch */
    double train_time_interval;                  /* seconds */
    lc_choice save_on_train_epoch_end;           /* LC_AUTO: as Lightning decides it */
    bool enable_version_counter;                 /* default on; off: a checkpoint of that name is replaced */
    bool wait; /* write on the training thread (default: a thread writes a snapshot) */
} lc_model_checkpoint_args;
LC_DEFAULTS(lc_model_checkpoint, lc_model_checkpoint_args, .save_top_k = 1, .auto_insert_metric_name = true,
            .every_n_train_steps = LC_UNSET, .every_n_epochs = LC_UNSET, .save_on_train_epoch_end = LC_AUTO,
            .enable_version_counter = true)

typedef struct lc_early_stopping_args {
    size_t size;
    const char *monitor; /* REQUIRED */
    const char *mode;    /* "min" (default) or "max" */
    double min_delta;
    int64_t patience;
    bool verbose;
    bool strict, check_finite;                       /* default on */
    double stopping_threshold, divergence_threshold; /* default: none */
    lc_choice check_on_train_epoch_end;              /* LC_AUTO: as Lightning decides it */
} lc_early_stopping_args;
LC_DEFAULTS(lc_early_stopping, lc_early_stopping_args, .patience = 3, .strict = true, .check_finite = true,
            .stopping_threshold = LC_NOT_GIVEN, .divergence_threshold = LC_NOT_GIVEN,
            .check_on_train_epoch_end = LC_AUTO)

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
    const char *message; /* borrowed until the callback decides again */
} lc_early_stopping_info;

typedef struct lc_model_checkpoint_info {
    const char *best_model_path, *last_model_path, *dirpath; /* "" if none; borrowed until the callback saves again */
    bool has_best_score;
    double best_model_score;
} lc_model_checkpoint_info;

typedef struct lc_progress_bar_args {
    size_t size;
    int fd;              /* default 2, stderr */
    double refresh_rate; /* redraws a second */
    unsigned char style; /* lc_progress_style */
} lc_progress_bar_args;
LC_DEFAULTS(lc_progress_bar, lc_progress_bar_args, .fd = 2, .refresh_rate = 10)
typedef enum lc_progress_style { LC_PROGRESS_AUTO = 0, LC_PROGRESS_BAR, LC_PROGRESS_LINES } lc_progress_style;

/* RichProgressBar: a bar each for the run, the epoch and the evaluation, and a line of metrics, in colors; the plain
 * progress bar if lines cannot be redrawn. */
typedef struct lc_rich_progress_bar_args {
    size_t size;
    int fd;              /* default 2, stderr */
    double refresh_rate; /* redraws a second */
    unsigned char style; /* lc_progress_style */
    bool leave;          /* the bars of each epoch stay */
} lc_rich_progress_bar_args;
LC_DEFAULTS(lc_rich_progress_bar, lc_rich_progress_bar_args, .fd = 2, .refresh_rate = 10)

/* ModelSummary: the table of layers. Given the types of a batch, it also shows the inputs, outputs and cost of a
 * forward pass (predict_step or forward, recorded and not run). */
typedef struct lc_model_summary_args {
    size_t size;
    int max_depth;                 /* levels to show; 0: only the totals; -1: all */
    const lc_type *example_inputs; /* of the batch's tensors in their order; default: no such columns */
    int n_example_inputs;
    int fd; /* default 2, stderr */
} lc_model_summary_args;
LC_DEFAULTS(lc_model_summary, lc_model_summary_args, .max_depth = 1, .fd = 2)

typedef struct lc_learning_rate_monitor_args {
    size_t size;
    const char *logging_interval; /* "step", "epoch"; NULL: as each scheduler says */
    bool log_momentum, log_weight_decay;
} lc_learning_rate_monitor_args;
LC_DEFAULTS(lc_learning_rate_monitor, lc_learning_rate_monitor_args, )

/* Gradients are accumulated over `factor` batches from `epoch` on. */
typedef struct lc_accumulation {
    int64_t epoch, factor;
} lc_accumulation;
typedef struct lc_gradient_accumulation_scheduler_args {
    size_t size;
    const lc_accumulation *scheduling; /* REQUIRED; in any order; the factor before the first is 1 */
    int n_scheduling;
} lc_gradient_accumulation_scheduler_args;
LC_DEFAULTS(lc_gradient_accumulation_scheduler, lc_gradient_accumulation_scheduler_args, )

/* WeightAveraging keeps the mean of the weights after each optimizer step next to the model, validates with it, and
 * leaves it in the model at the end. Checkpoints hold the average as their model, and also the weights that training
 * continues with. */
typedef struct lc_weight_averaging_args {
    size_t size;
    bool use_buffers; /* default on: average buffers too (except counters, which are copied); off: copy all of them */
    /* Whether to average now: after optimizer step `step` (from 0; epoch is then -1), and after epoch `epoch` (step is
     * then -1). Default: after every step. */
    bool (*should_update)(void *context, int64_t step, int64_t epoch);
    void *context;
} lc_weight_averaging_args;
LC_DEFAULTS(lc_weight_averaging, lc_weight_averaging_args, .use_buffers = true)

/* EMAWeightAveraging: average = decay * average + (1 - decay) * weights; the first update copies. */
typedef struct lc_ema_weight_averaging_args {
    size_t size;
    bool use_buffers; /* default on; off: copy buffers */
    double decay;
    int64_t update_every_n_steps;     /* 0: not at steps */
    int64_t update_starting_at_step;  /* from 0 */
    int64_t update_starting_at_epoch; /* also at the end of every epoch from this one on; LC_UNSET: at none */
} lc_ema_weight_averaging_args;
LC_DEFAULTS(lc_ema_weight_averaging, lc_ema_weight_averaging_args, .use_buffers = true, .decay = 0.999,
            .update_every_n_steps = 1, .update_starting_at_epoch = LC_UNSET)

/* StochasticWeightAveraging: from an epoch on the learning rate goes to swa_lrs and the mean of the weights at the
 * start of each epoch is kept; at the end of the last epoch it becomes the model's weights, and the statistics of batch
 * norms are recomputed in one pass over the training data. */
typedef struct lc_stochastic_weight_averaging_args {
    size_t size;
    const double *swa_lrs; /* REQUIRED: one for all groups of the optimizer, or one for each */
    int n_swa_lrs;
    lc_duration swa_epoch_start; /* LC_FRACTION(x) of max_epochs, or LC_EPOCHS(n) */
    int64_t annealing_epochs;
    const char *annealing_strategy; /* "cos" (default) or "linear" */
} lc_stochastic_weight_averaging_args;
LC_DEFAULTS(lc_stochastic_weight_averaging, lc_stochastic_weight_averaging_args, .swa_epoch_start = LC_FRACTION(0.8),
            .annealing_epochs = 10)

/* BaseFinetuning: parts of a model are frozen before training and join it later. A checkpoint remembers what is frozen
 * and which groups were added. */
typedef struct lc_finetuning_args {
    size_t size;
    void *context;
    lc_status (*freeze_before_training)(void *context, lc_module *m);                              /* REQUIRED */
    lc_status (*finetune_function)(void *context, lc_module *m, int64_t epoch, lc_optimizer *opt); /* REQUIRED */
} lc_finetuning_args;
LC_DEFAULTS(lc_finetuning, lc_finetuning_args, )

typedef struct lc_unfreeze_args {
    size_t size;
    double lr;               /* default: the rate of the first group, divided by initial_denom_lr */
    double initial_denom_lr; /* default 10 */
    bool train_bn;           /* default on */
} lc_unfreeze_args;
LC_DEFAULTS(lc_unfreeze, lc_unfreeze_args, .lr = LC_NOT_GIVEN, .initial_denom_lr = 10, .train_bn = true)

/* BackboneFinetuning: the part named "backbone" is frozen until an epoch; its learning rate then grows to that of the
 * rest. */
typedef struct lc_backbone_finetuning_args {
    size_t size;
    const char *backbone; /* path of the part; default "backbone" */
    int64_t unfreeze_backbone_at_epoch;
    double (*lambda_func)(int64_t epoch); /* factor on its rate each epoch; default 2 */
    double backbone_initial_ratio_lr;     /* first rate, as a fraction of the optimizer's */
    double backbone_initial_lr;           /* first rate; default: by the ratio */
    bool should_align;                    /* default on: its rate ends at the optimizer's */
    bool train_bn;                        /* default on: batch norms join the training as well */
    bool verbose;
} lc_backbone_finetuning_args;
LC_DEFAULTS(lc_backbone_finetuning, lc_backbone_finetuning_args, .unfreeze_backbone_at_epoch = 10,
            .backbone_initial_ratio_lr = 0.1, .backbone_initial_lr = LC_NOT_GIVEN, .should_align = true,
            .train_bn = true)

/* ModelPruning: sets a part of the weights to zero and keeps it there. Checkpoints hold the pruned weights. */
typedef struct lc_model_pruning_args {
    size_t size;
    const char
        *pruning_fn; /* REQUIRED: "l1_unstructured", "random_unstructured", "ln_structured", "random_structured" */
    const char *const *parameters_to_prune; /* paths; default: every weight and bias */
    int n_parameters_to_prune;
    lc_choice use_global_unstructured; /* one ranking for all; LC_AUTO: on for the unstructured ones */
    double amount;                     /* fraction of the weights not pruned yet, [0, 1] */
    int64_t amount_count;              /* instead of amount: how many weights (channels, if structured) each time */
    /* Called at each epoch, if given. */
    double (*amount_fn)(void *context, int64_t epoch);
    bool (*apply_pruning)(void *context, int64_t epoch);
    bool (*lottery_ticket)(void *context, int64_t epoch);
    void *context;
    bool use_lottery_ticket_hypothesis; /* default on: remaining weights restart from their initial values */
    bool resample_parameters;           /* restart from the initial values in another random order */
    int pruning_dim;                    /* structured: which dimension channels are counted in; default 0 */
    double pruning_norm;                /* ln_structured; REQUIRED there */
    int verbose;                        /* 1: print the sparsity; 2: that of every parameter */
    bool prune_on_train_epoch_end;      /* default on; off: at the end of a validation */
} lc_model_pruning_args;
LC_DEFAULTS(lc_model_pruning, lc_model_pruning_args, .use_global_unstructured = LC_AUTO, .amount = 0.5,
            .use_lottery_ticket_hypothesis = true, .prune_on_train_epoch_end = true)

typedef struct lc_sparsity {
    const char *path; /* borrowed */
    int64_t pruned, total;
} lc_sparsity;

/* OnExceptionCheckpoint: a run that fails saves its state as dirpath/filename.ckpt, and the next fit without a
 * ckpt_path continues from it; a fit that ends well removes it, if it continued from it or saved it itself. If the
 * failing batch had begun to change the state nothing is saved, since the run could not be continued exactly. With
 * several ranks, rank 0 saves without the others. Nothing is saved if rank 0 has only a part of the state: if weights
 * or optimizers are sharded, inside an accumulation window or with manual optimization (except in deterministic runs),
 * in an epoch that has already logged values to be reduced over it, or if the train loader has a state. A warning names
 * the reason. The same holds for ModelCheckpoint's save_on_exception. */
typedef struct lc_on_exception_checkpoint_args {
    size_t size;
    const char *dirpath;  /* REQUIRED */
    const char *filename; /* default "on_exception" */
} lc_on_exception_checkpoint_args;
LC_DEFAULTS(lc_on_exception_checkpoint, lc_on_exception_checkpoint_args, )

/* SpikeDetection: a spike is a loss that is worse than the one before, and further from the mean of the last `window`
 * losses than both tolerances, or not finite. Its batch and the one before are listed in exclude_batches_path. */
typedef struct lc_spike_detection_args {
    size_t size;
    const char *mode; /* "min" (default) or "max" */
    int64_t window;
    int64_t warmup; /* batches of an epoch that are not judged */
    double atol;
    double rtol;                      /* of the mean */
    const char *exclude_batches_path; /* a folder or a .json file; default: default_root_dir */
    bool finite_only;                 /* default on: a loss that is not finite is a spike */
    bool
        skip; /* leave the update of a spike's accumulation window out and go on; default: the run ends with an error */
} lc_spike_detection_args;
LC_DEFAULTS(lc_spike_detection, lc_spike_detection_args, .finite_only = true, .window = 10, .warmup = 1, .rtol = 2)

/* GradientNormMonitor: norms of gradients before clipping, as "grad_2.0_norm/PATH" and "grad_2.0_norm_total" (with
 * several optimizers, of the one that stepped last). */
typedef struct lc_gradient_norm_monitor_args {
    size_t size;
    double norm_type; /* INFINITY: the largest element */
    bool total_only, prog_bar;
    bool every_step; /* compute them at every step, not only when a row is logged */
} lc_gradient_norm_monitor_args;
LC_DEFAULTS(lc_gradient_norm_monitor, lc_gradient_norm_monitor_args, .norm_type = 2)

/* WeightHistogram: the distribution of every parameter for loggers that keep histograms (TensorBoard). */
typedef struct lc_weight_histogram_args {
    size_t size;
    int64_t every_n_epochs;      /* at its last batch */
    int64_t every_n_train_steps; /* instead */
    bool gradients;              /* also of gradients, as PATH.grad */
} lc_weight_histogram_args;
LC_DEFAULTS(lc_weight_histogram, lc_weight_histogram_args, .every_n_epochs = 1)

/* ThroughputMonitor: rows "train/time", "train/batches", "train/samples", and when the window is full
 * "train/device/batches_per_sec", samples_per_sec, items_per_sec, flops_per_sec and mfu (the fraction of
 * available_flops); also for validate, test and predict. The planner counts the operations. */
typedef struct lc_throughput_monitor_args {
    size_t size;
    int64_t (*batch_size_fn)(void *context, const lc_batch *batch); /* default: the batch's size */
    int64_t (*length_fn)(void *context, const lc_batch *batch);     /* items (tokens) in a batch; default: none */
    void *context;
    int64_t window_size;    /* batches */
    double available_flops; /* per second; default: the rate of a large matrix product on this machine, measured at
                               setup */
} lc_throughput_monitor_args;
LC_DEFAULTS(lc_throughput_monitor, lc_throughput_monitor_args, .window_size = 100)

/* DeviceStatsMonitor: rows "DeviceStatsMonitor.on_train_batch_start/cpu_percent" and the like, at the start and end of
 * logged batches: cpu_percent, cpu_vm_percent, cpu_swap_percent, rss_bytes, rss_peak_bytes, user_seconds,
 * system_seconds, major_page_faults, involuntary_context_switches, planned_bytes, scratch_bytes. */
typedef struct lc_device_stats_monitor_args {
    size_t size;
    const char *const *filter_keys; /* numbers to leave out */
    int n_filter_keys;
} lc_device_stats_monitor_args;
LC_DEFAULTS(lc_device_stats_monitor, lc_device_stats_monitor_args, )

/* PredictionWriter: writes predictions to a file or passes them to functions. With lc_run_args.discard_predictions the
 * trainer keeps them only until they have been written; for a .npy file of one rank it keeps none. */
typedef struct lc_prediction_writer_args {
    size_t size;
    const char *path; /* "out.npy" (rows are appended; "out_1.npy" for the second loader), or "out.safetensors" */
    const char *write_interval; /* "batch", "epoch", "batch_and_epoch"; default: as the file needs it, else "epoch" */
    lc_status (*write_on_batch_end)(void *context, lc_trainer *t, lc_tensor *prediction, const lc_batch *batch,
                                    int64_t batch_idx, int dataloader_idx);
    lc_status (*write_on_epoch_end)(void *context, lc_trainer *t); /* lc_trainer_prediction has them all */
    void *context;
} lc_prediction_writer_args;
LC_DEFAULTS(lc_prediction_writer, lc_prediction_writer_args, )

/* Notifier: notifies a command or a web address when a run or an epoch starts, ends or fails, from its own thread. The
 * message is a JSON object with event ("run_start", "run_end", "run_failed", "epoch_start", "epoch_end"), stage, model,
 * run_dir, host, pid, epoch, global_step, seconds, message (of a failure) and metrics. A delivery that fails is a
 * warning, once. */
enum {
    LC_NOTIFY_RUN_START = 1,
    LC_NOTIFY_RUN_END = 2,
    LC_NOTIFY_RUN_FAILED = 4,
    LC_NOTIFY_EPOCH_START = 8,
    LC_NOTIFY_EPOCH_END = 16,
};
typedef struct lc_notifier_args {
    size_t size;
    const char *command; /* run by sh -c, with the message as its input and LIGHTC_EVENT in its environment */
    const char *url;     /* the message is posted there (needs libcurl) */
    unsigned events;     /* LC_NOTIFY_*; default: those of runs */
    int timeout_s;       /* of one delivery */
} lc_notifier_args;
LC_DEFAULTS(lc_notifier, lc_notifier_args, .timeout_s = 10,
            .events = LC_NOTIFY_RUN_START | LC_NOTIFY_RUN_END | LC_NOTIFY_RUN_FAILED)

/* A callback made of functions, one for each hook of lc_callback_ops (see there); any may be NULL. */
typedef struct lc_lambda_args {
    size_t size;
    void *context;
    lc_status (*setup)(void *context, lc_trainer *t, lc_stage stage);
    lc_status (*on_fit_start)(void *context, lc_trainer *t);
    lc_status (*on_sanity_check_start)(void *context, lc_trainer *t);
    lc_status (*on_sanity_check_end)(void *context, lc_trainer *t);
    lc_status (*on_train_start)(void *context, lc_trainer *t);
    lc_status (*on_train_epoch_start)(void *context, lc_trainer *t);
    /* LC_SKIP skips the rest of the epoch. */
    lc_status (*on_train_batch_start)(void *context, lc_trainer *t, const lc_batch *batch, int64_t batch_idx);
    lc_status (*on_before_zero_grad)(void *context, lc_trainer *t, lc_optimizer *optimizer);
    lc_status (*on_before_backward)(void *context, lc_trainer *t, lc_tensor *loss);
    lc_status (*on_after_backward)(void *context, lc_trainer *t);
    /* LC_SKIP leaves the update out; the step still counts. */
    lc_status (*on_before_optimizer_step)(void *context, lc_trainer *t, lc_optimizer *optimizer);
    lc_status (*on_train_batch_end)(void *context, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx);
    lc_status (*on_validation_start)(void *context, lc_trainer *t);
    lc_status (*on_validation_epoch_start)(void *context, lc_trainer *t);
    lc_status (*on_validation_batch_start)(void *context, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                           int dataloader_idx);
    lc_status (*on_validation_batch_end)(void *context, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                         int64_t batch_idx, int dataloader_idx);
    lc_status (*on_validation_epoch_end)(void *context, lc_trainer *t);
    lc_status (*on_validation_end)(void *context, lc_trainer *t);
    lc_status (*on_train_epoch_end)(void *context, lc_trainer *t);
    lc_status (*on_train_end)(void *context, lc_trainer *t);
    lc_status (*on_fit_end)(void *context, lc_trainer *t);
    lc_status (*on_test_start)(void *context, lc_trainer *t);
    lc_status (*on_test_epoch_start)(void *context, lc_trainer *t);
    lc_status (*on_test_batch_start)(void *context, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                     int dataloader_idx);
    lc_status (*on_test_batch_end)(void *context, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                   int64_t batch_idx, int dataloader_idx);
    lc_status (*on_test_epoch_end)(void *context, lc_trainer *t);
    lc_status (*on_test_end)(void *context, lc_trainer *t);
    lc_status (*on_predict_start)(void *context, lc_trainer *t);
    lc_status (*on_predict_epoch_start)(void *context, lc_trainer *t);
    lc_status (*on_predict_batch_start)(void *context, lc_trainer *t, const lc_batch *batch, int64_t batch_idx,
                                        int dataloader_idx);
    lc_status (*on_predict_batch_end)(void *context, lc_trainer *t, const lc_outputs *outputs, const lc_batch *batch,
                                      int64_t batch_idx, int dataloader_idx);
    lc_status (*on_predict_epoch_end)(void *context, lc_trainer *t);
    lc_status (*on_predict_end)(void *context, lc_trainer *t);
    /* The run failed or was interrupted. `status` is the error, `message` its text; the result is ignored. */
    lc_status (*on_exception)(void *context, lc_trainer *t, lc_status status, const char *message);
    lc_status (*teardown)(void *context, lc_trainer *t, lc_stage stage);

    lc_status (*on_save_checkpoint)(void *context, lc_trainer *t, lc_state *state);
    lc_status (*on_load_checkpoint)(void *context, lc_trainer *t, const lc_state *state);
    void (*on_message)(void *context, lc_trainer *t, lc_level level, const char *text);
} lc_lambda_args;
LC_DEFAULTS(lc_lambda, lc_lambda_args, )

/* lc_early_stopping(&cb, .monitor = "val_loss", .patience = 5), where cb is an lc_callback; the value is the status of
 * lc_early_stopping_new. */
#define LC_CALLBACK_(name, out, ...) LC_CALLBACK_FROM_(name, name##_new, out, __VA_ARGS__)
#define LC_CALLBACK_FROM_(name, function, out, ...)                                                                    \
    LC_CALL_(LC_UNIQUE_, name##_args, name##_defaults(), function, (), (, out), __VA_ARGS__)
#define lc_model_checkpoint(...)                LC_CALLBACK_(lc_model_checkpoint, __VA_ARGS__, )
#define lc_early_stopping(...)                  LC_CALLBACK_(lc_early_stopping, __VA_ARGS__, )
#define lc_progress_bar(...)                    LC_CALLBACK_(lc_progress_bar, __VA_ARGS__, )
#define lc_rich_progress_bar(...)               LC_CALLBACK_(lc_rich_progress_bar, __VA_ARGS__, )
#define lc_model_summary(...)                   LC_CALLBACK_(lc_model_summary, __VA_ARGS__, )
#define lc_learning_rate_monitor(...)           LC_CALLBACK_(lc_learning_rate_monitor, __VA_ARGS__, )
#define lc_gradient_accumulation_scheduler(...) LC_CALLBACK_(lc_gradient_accumulation_scheduler, __VA_ARGS__, )
#define lc_weight_averaging(...)                LC_CALLBACK_(lc_weight_averaging, __VA_ARGS__, )
#define lc_ema_weight_averaging(...)            LC_CALLBACK_(lc_ema_weight_averaging, __VA_ARGS__, )
#define lc_stochastic_weight_averaging(...)     LC_CALLBACK_(lc_stochastic_weight_averaging, __VA_ARGS__, )
#define lc_finetuning(...)                      LC_CALLBACK_(lc_finetuning, __VA_ARGS__, )
#define lc_backbone_finetuning(...)             LC_CALLBACK_(lc_backbone_finetuning, __VA_ARGS__, )
#define lc_model_pruning(...)                   LC_CALLBACK_(lc_model_pruning, __VA_ARGS__, )
#define lc_on_exception_checkpoint(...)         LC_CALLBACK_(lc_on_exception_checkpoint, __VA_ARGS__, )
#define lc_spike_detection(...)                 LC_CALLBACK_(lc_spike_detection, __VA_ARGS__, )
#define lc_gradient_norm_monitor(...)           LC_CALLBACK_(lc_gradient_norm_monitor, __VA_ARGS__, )
#define lc_weight_histogram(...)                LC_CALLBACK_(lc_weight_histogram, __VA_ARGS__, )
#define lc_throughput_monitor(...)              LC_CALLBACK_(lc_throughput_monitor, __VA_ARGS__, )
#define lc_device_stats_monitor(...)            LC_CALLBACK_(lc_device_stats_monitor, __VA_ARGS__, )
#define lc_prediction_writer(...)               LC_CALLBACK_(lc_prediction_writer, __VA_ARGS__, )
#define lc_notifier(...)                        LC_CALLBACK_(lc_notifier, __VA_ARGS__, )
#define lc_lambda_callback(...)                 LC_CALLBACK_FROM_(lc_lambda, lc_lambda_callback_new, __VA_ARGS__, )

LC_BEGIN_DECLS
/* args may be NULL if no argument is required. The trainer owns the callback once it was added. */
LC_API lc_status lc_model_checkpoint_new(const lc_model_checkpoint_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_model_checkpoint_get(const lc_callback *cb, lc_model_checkpoint_info *out) LC_MUST_USE;
LC_API lc_status lc_early_stopping_new(const lc_early_stopping_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_early_stopping_get(const lc_callback *cb, lc_early_stopping_info *out) LC_MUST_USE;
LC_API lc_status lc_progress_bar_new(const lc_progress_bar_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_rich_progress_bar_new(const lc_rich_progress_bar_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_model_summary_new(const lc_model_summary_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_learning_rate_monitor_new(const lc_learning_rate_monitor_args *args, lc_callback *out) LC_MUST_USE;
/* Stops after `seconds` of training, at a step or (epoch_interval) at the end of an epoch. */
LC_API lc_status lc_timer_new(double seconds, bool epoch_interval, lc_callback *out) LC_MUST_USE;
LC_API double lc_timer_elapsed(const lc_callback *cb); /* seconds of training; kept over a resume */
LC_API lc_status lc_gradient_accumulation_scheduler_new(const lc_gradient_accumulation_scheduler_args *args,
                                                        lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_weight_averaging_new(const lc_weight_averaging_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_ema_weight_averaging_new(const lc_ema_weight_averaging_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_stochastic_weight_averaging_new(const lc_stochastic_weight_averaging_args *args,
                                                    lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_finetuning_new(const lc_finetuning_args *args, lc_callback *out) LC_MUST_USE;
/* For freeze_before_training: nothing in `part` is trained; with train_bn, except its batch norms. */
LC_API void lc_finetuning_freeze(lc_module *part, bool train_bn);
/* For finetune_function: `part` is trained from now on; parameters that the optimizer does not have yet get a group of
 * their own. Without train_bn, batch norms are left out. lc_finetuning_unfreeze(backbone, opt, .lr = 1e-4) */
#define lc_finetuning_unfreeze(part, ...) LC_CALL_NEW_(lc_finetuning_unfreeze, lc_unfreeze, (part, ), __VA_ARGS__, )
LC_API lc_status lc_finetuning_unfreeze_with(lc_module *part, lc_optimizer *opt,
                                             const lc_unfreeze_args *args) LC_MUST_USE;
LC_API lc_status lc_backbone_finetuning_new(const lc_backbone_finetuning_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_model_pruning_new(const lc_model_pruning_args *args, lc_callback *out) LC_MUST_USE;
/* Sparsity of the i-th pruned parameter, or of all together (-1). LC_ERR_NOT_FOUND if there is none. */
LC_API lc_status lc_model_pruning_sparsity(const lc_callback *cb, int i, lc_sparsity *out) LC_MUST_USE;
LC_API lc_status lc_on_exception_checkpoint_new(const lc_on_exception_checkpoint_args *args,
                                                lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_spike_detection_new(const lc_spike_detection_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_gradient_norm_monitor_new(const lc_gradient_norm_monitor_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_weight_histogram_new(const lc_weight_histogram_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_throughput_monitor_new(const lc_throughput_monitor_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_device_stats_monitor_new(const lc_device_stats_monitor_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_prediction_writer_new(const lc_prediction_writer_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_notifier_new(const lc_notifier_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_status lc_lambda_callback_new(const lc_lambda_args *args, lc_callback *out) LC_MUST_USE;
LC_END_DECLS
#endif
