/* SPDX-License-Identifier: Apache-2.0 */
/* Options: one table describes each option once.
 *
 * A table (lc_option) and a struct define the command line (`--max_epochs 5`, `--max-epochs=5`, `--no_progress`-like
 * switches for booleans), the environment (LIGHTC_MAX_EPOCHS), a JSON file (`--config run.json`), `--help`,
 * `--print_config`, and the error that names the nearest option when one is misspelled. Precedence: command line over
 * environment over file over the struct's previous values. Programs describe their own options in the same way:
 *
 *     typedef struct { const char *data; int64_t batch_size; struct { double lr; } optimizer; } args;
 *     static const lc_option mine[] = {
 *         LC_OPTION(args, data, LC_OPTION_TEXT, 0, 0, "folder with the data"),
 *         LC_OPTION(args, batch_size, LC_OPTION_INT, 1, 1e9, "samples in a batch"),
 *         LC_FIELD(args, optimizer.lr, "learning rate"),
 *     };
 *     args a = {.data = "data", .batch_size = 64, .optimizer.lr = 1e-3};
 *     LC_MAIN_TRY(lc_trainer_options_parse_with(&opt, mine, 3, &a, argc, argv));
 *
 * A field of a nested struct has a dot in its name: --optimizer.lr 0.1, LIGHTC_OPTIMIZER_LR=0.1, and in JSON
 * {"optimizer": {"lr": 0.1}} or {"optimizer.lr": 0.1}. hyperparameters.h keeps such a struct with the model.
 *
 * To add an option to the trainer: one line in LC_TRAINER_OPTION_LIST. */
#ifndef LIGHTC_OPTIONS_H
#define LIGHTC_OPTIONS_H

#include <lightc/callback.h>
#include <lightc/logger.h>
#include <lightc/profiler.h>

/* ---- amounts with a unit ---- */
typedef enum lc_unit {
    LC_UNIT_NONE = 0, /* not given */
    LC_UNIT_BATCHES,  /* "100ba", or a whole number: 100 */
    LC_UNIT_FRACTION, /* "0.2": of an epoch, or of a loader */
    LC_UNIT_EPOCHS,   /* "3ep" */
    LC_UNIT_STEPS,    /* "500st": optimizer steps */
    LC_UNIT_SECONDS,  /* "30s", "10m", "2h", "1d", "00:02:30:00" */
} lc_unit;

typedef struct lc_duration {
    double value;
    lc_unit unit;
} lc_duration;

#define LC_BATCHES(n)  LC_LITERAL(lc_duration, LC_CAST_(double, n), LC_UNIT_BATCHES)
#define LC_FRACTION(x) LC_LITERAL(lc_duration, LC_CAST_(double, x), LC_UNIT_FRACTION)
#define LC_EPOCHS(n)   LC_LITERAL(lc_duration, LC_CAST_(double, n), LC_UNIT_EPOCHS)
#define LC_STEPS(n)    LC_LITERAL(lc_duration, LC_CAST_(double, n), LC_UNIT_STEPS)
#define LC_SECONDS(x)  LC_LITERAL(lc_duration, LC_CAST_(double, x), LC_UNIT_SECONDS)

typedef enum lc_option_kind {
    LC_OPTION_INT = 1,  /* int64_t; "none" is LC_UNSET */
    LC_OPTION_FLOAT,    /* double; "none" is LC_NOT_GIVEN */
    LC_OPTION_BOOL,     /* bool */
    LC_OPTION_CHOICE,   /* lc_choice: true, false, auto */
    LC_OPTION_TEXT,     /* const char *; "none" is NULL; lives as long as the options' storage */
    LC_OPTION_DURATION, /* lc_duration */
    LC_OPTION_INT32,    /* int */
    LC_OPTION_FLOAT32,  /* float */
    LC_OPTION_COUNT,    /* int64_t; true is 1, as is the bare name; false is 0 */
    LC_OPTION_SIZE, /* int64_t, in bytes: "512MiB", "1.5GiB" (also KiB and TiB; K, M, G and T mean the same), or bytes;
                       "none" is 0 */
    LC_OPTION_WORKERS, /* int, num_workers of a loader: a number, or "auto", which is LC_WORKERS_AUTO */
} lc_option_kind;

typedef struct lc_option {
    const char *name;
    lc_option_kind kind;
    size_t offset;           /* in the struct */
    double minimum, maximum; /* checked where minimum < maximum */
    const char *help;        /* one line */
    void *reserved[2];
} lc_option;

/* Rows of a table: static const lc_option mine[] = {LC_OPTION(...), LC_FIELD(...)}. */
/* clang-format off */
#define LC_OPTION(type, field, kind, minimum, maximum, help)                                                           \
    {#field, kind, offsetof(type, field), minimum, maximum, help, {NULL, NULL}}
/* clang-format on */
/* The same with the kind of the field's type, and any value. */
#define LC_FIELD(type, field, help) LC_OPTION(type, field, LC_KIND_OF_(type, field), 0, 0, help)

/* X(C type, kind) */
#define LC_OPTION_TYPES_(X)                                                                                            \
    X(long, LC_OPTION_INT)                                                                                             \
    X(long long, LC_OPTION_INT)                                                                                        \
    X(int, LC_OPTION_INT32)                                                                                            \
    X(double, LC_OPTION_FLOAT)                                                                                         \
    X(float, LC_OPTION_FLOAT32)                                                                                        \
    X(bool, LC_OPTION_BOOL)                                                                                            \
    X(lc_choice, LC_OPTION_CHOICE)                                                                                     \
    X(const char *, LC_OPTION_TEXT)                                                                                    \
    X(lc_duration, LC_OPTION_DURATION)
#ifdef __cplusplus
extern "C++" {
template <typename type> struct lc_kind_of_;
#define LC_KIND_(type, id)                                                                                             \
    template <> struct lc_kind_of_<type> {                                                                             \
        static constexpr lc_option_kind kind = id;                                                                     \
    };
LC_OPTION_TYPES_(LC_KIND_)
#undef LC_KIND_
}
#define LC_KIND_OF_(type, field) lc_kind_of_<decltype(static_cast<type *>(nullptr)->field)>::kind
#else
#define LC_KIND_(type, id)       , type : id
#define LC_KIND_OF_(type, field) _Generic(((type *)0)->field LC_OPTION_TYPES_(LC_KIND_))
#endif

/* ---- the trainer's options: X(kind, C type, name, default, minimum, maximum, help) ---- */
/* clang-format off */
#define LC_TRAINER_OPTION_LIST(X)                                                                                    \
    /* how long */                                                                                                   \
    X(INT, int64_t, max_epochs, LC_UNSET, -1, 1e15, "epochs to train; -1: no limit (default 1000, unless max_steps or max_time is given)") \
    X(INT, int64_t, min_epochs, LC_UNSET, 0, 1e15, "train at least this many epochs, even when something asks to stop") \
    X(INT, int64_t, max_steps, -1, -1, 1e18, "optimizer steps to train; -1: no limit")                               \
    X(INT, int64_t, min_steps, LC_UNSET, 0, 1e18, "train at least this many optimizer steps, even when something asks to stop") \
    X(DURATION, lc_duration, max_time, {0}, 0, 0, "stop after this time: 30s, 10m, 2h, 00:02:30:00; or 3ep, 500st")  \
    X(DURATION, lc_duration, slurm_margin, {0}, 0, 0, "in a Slurm job: stop this long before its time limit: 90s, 10m") \
    /* which part of the data */                                                                                     \
    X(DURATION, lc_duration, limit_train_batches, {0}, 0, 0, "training batches per epoch: 100, or a fraction: 0.2")  \
    X(DURATION, lc_duration, limit_val_batches, {0}, 0, 0, "validation batches of each loader: 100, or a fraction: 0.2; 0: none") \
    X(DURATION, lc_duration, limit_test_batches, {0}, 0, 0, "test batches of each loader: 100, or a fraction: 0.2")  \
    X(DURATION, lc_duration, limit_predict_batches, {0}, 0, 0, "predict batches of each loader: 100, or a fraction: 0.2") \
    X(DURATION, lc_duration, overfit_batches, {0}, 0, 0, "train and validate on this many batches, in order")        \
    X(COUNT, int64_t, fast_dev_run, 0, 0, 1e9, "smoke test: run this many batches of everything and write nothing")  \
    /* validation */                                                                                                 \
    X(DURATION, lc_duration, val_check_interval, {0}, 0, 0, "validate after this fraction of an epoch (0.25), this many batches (100), optimizer steps (500st) or epochs (2ep), or this time (10m)") \
    X(INT, int64_t, check_val_every_n_epoch, 1, 1, 1e15, "validate every N epochs; none: count batches across epochs") \
    X(INT, int64_t, num_sanity_val_steps, 2, -1, 1e15, "validation batches to run before training; -1: all")         \
    X(BOOL, bool, inference_mode, true, 0, 0, "no gradients in validate, test and predict")                          \
    X(BOOL, bool, use_distributed_sampler, true, 0, 0, "with several ranks: give each its share of the loaders' samples") \
    X(INT, int64_t, reload_dataloaders_every_n_epochs, 0, 0, 1e15, "ask the module for its loaders again every N epochs") \
    /* optimization */                                                                                               \
    X(INT, int64_t, accumulate_grad_batches, 1, 1, 1e9, "batches per optimizer step")                                \
    X(FLOAT, double, gradient_clip_val, LC_NOT_GIVEN, 0, 1e300, "clip gradients to this norm (or value); 0: no clipping") \
    X(TEXT, const char *, gradient_clip_algorithm, NULL, 0, 0, "norm or value")                                      \
    /* logging */                                                                                                    \
    X(TEXT, const char *, logger, NULL, 0, 0, "where logged values go, several separated by commas, or none (default csv,sqlite)") \
    X(TEXT, const char *, default_root_dir, NULL, 0, 0, "directory of all runs (default: the current directory)")    \
    X(TEXT, const char *, run_name, NULL, 0, 0, "folder for the runs in default_root_dir (default lightning_logs)")  \
    X(INT, int64_t, log_every_n_steps, 50, 0, 1e15, "log step values every N optimizer steps; 0: never")             \
    X(CHOICE, lc_choice, enable_progress_bar, LC_AUTO, 0, 0, "show a progress bar")                                  \
    X(CHOICE, lc_choice, enable_model_summary, LC_AUTO, 0, 0, "print a table of the layers")                         \
    X(BOOL, bool, barebones, false, 0, 0, "run the bare loop, without logging, checkpoints or bar: for measurements") \
    X(TEXT, const char *, profiler, NULL, 0, 0, "measure where time goes; several separated by commas") \
    X(BOOL, bool, trace_hooks, false, 0, 0, "print every hook as it runs, and the object it belongs to")             \
    X(BOOL, bool, enable_autolog_hparams, true, 0, 0, "log the hyperparameters of module and datamodule")            \
    /* checkpoints */                                                                                                \
    X(CHOICE, lc_choice, enable_checkpointing, LC_AUTO, 0, 0, "write checkpoints")                                   \
    X(TEXT, const char *, ckpt_path, NULL, 0, 0, "continue from this checkpoint: a path, best, last, or hpc (the one saved on SIGUSR1)") \
    X(TEXT, const char *, weights, NULL, 0, 0, "start from these weights: a safetensors file, or a checkpoint of which only the weights are used") \
    X(BOOL, bool, weights_strict, true, 0, 0, "the names of these weights must match the model's; off: load the names both have and report the rest") \
    X(TEXT, const char *, weights_strip_prefix, NULL, 0, 0, "prefix to remove from the names of these weights: model.") \
    X(TEXT, const char *, weights_add_prefix, NULL, 0, 0, "prefix to add to the names of these weights")             \
    X(TEXT, const char *, weights_rename, NULL, 0, 0, "rename by pattern, OLD=NEW, several separated by commas: enc.*=encoder.*") \
    X(TEXT, const char *, weights_skip, NULL, 0, 0, "patterns of model names to leave unchanged, separated by commas: head.*") \
    X(TEXT, const char *, weights_transpose, NULL, 0, 0, "patterns of model names whose matrices the file stores transposed") \
    X(BOOL, bool, weights_skip_mismatched, false, 0, 0, "skip tensors whose shape differs")                          \
    X(TEXT, const char *, dirpath, NULL, 0, 0, "directory of checkpoints (default RUN/checkpoints)")                 \
    X(TEXT, const char *, filename, NULL, 0, 0, "name of checkpoints, as {epoch}-{val_loss:.2f} (default {epoch}-{step})") \
    X(TEXT, const char *, monitor, NULL, 0, 0, "metric that ranks checkpoints")                                      \
    X(TEXT, const char *, mode, NULL, 0, 0, "min or max: which values of the metric are best (also for early stopping)") \
    X(INT, int64_t, save_top_k, 1, -1, 1e9, "checkpoints to keep; -1: all, 0: none")                                 \
    X(CHOICE, lc_choice, save_last, LC_AUTO, 0, 0, "keep last.ckpt, the newest state")                               \
    X(INT, int64_t, every_n_train_steps, LC_UNSET, 0, 1e15, "save every N optimizer steps; 0: never")                \
    X(INT, int64_t, every_n_epochs, LC_UNSET, 0, 1e15, "save every N epochs (default 1, unless another trigger is given); 0: never") \
    X(DURATION, lc_duration, train_time_interval, {0}, 0, 0, "save at this interval: 10m")                           \
    X(BOOL, bool, save_weights_only, false, 0, 0, "leave the optimizer and the state out of checkpoints")            \
    X(TEXT, const char *, state_dict_type, NULL, 0, 0, "full: rank 0 writes checkpoints; sharded: each rank writes its part; auto") \
    X(TEXT, const char *, on_save_error, NULL, 0, 0, "continue (default) or stop when a checkpoint cannot be written, as on a full disk") \
    X(CHOICE, lc_choice, save_on_train_epoch_end, LC_AUTO, 0, 0, "save at the end of the training epoch instead of after validation") \
    X(BOOL, bool, save_on_exception, false, 0, 0, "save a checkpoint when the run fails")                            \
    /* early stopping */                                                                                             \
    X(TEXT, const char *, early_stopping, NULL, 0, 0, "stop when this metric no longer improves")                    \
    X(INT, int64_t, patience, 3, 0, 1e15, "stop after this many validations without improvement")                    \
    X(FLOAT, double, min_delta, 0, 0, 1e300, "smallest change that counts as an improvement")                        \
    X(FLOAT, double, stopping_threshold, LC_NOT_GIVEN, -1e300, 1e300, "stop when the metric is better than this")    \
    X(FLOAT, double, divergence_threshold, LC_NOT_GIVEN, -1e300, 1e300, "stop when the metric is worse than this")   \
    /* the machine */                                                                                                \
    X(TEXT, const char *, accelerator, NULL, 0, 0, "auto, cpu, or a backend's name")                                 \
    X(TEXT, const char *, strategy, NULL, 0, 0, "how the run is spread over devices and processes; sharded is sharded_3, dp is data_parallel") \
    X(TEXT, const char *, devices, NULL, 0, 0, "processes on this machine (data_parallel and central_storage: devices of one process), each with its share of the cores; auto: one process with all cores") \
    X(INT, int64_t, num_nodes, 1, 1, 1e6, "machines; see nodes_file and node_rank")                                  \
    X(INT, int64_t, node_rank, LC_UNSET, 0, 1e6, "number of this machine when the program is started by hand on each; MASTER_ADDR and MASTER_PORT say where they meet") \
    X(TEXT, const char *, nodes_file, NULL, 0, 0, "file with one machine name per line; mpirun starts the ranks on the first num_nodes") \
    X(TEXT, const char *, memory_limit, NULL, 0, 0, "most memory a rank may use, as 512MiB or 1.5GiB; checked before training starts and whenever a step is planned") \
    X(FLOAT, double, bucket_cap_mb, 0.5, 1e-6, 1e6, "MiB of gradients that ddp and sharded reduce in one call, overlapped with the backward pass; lightc bench comm suggests a value") \
    X(INT, int64_t, shard_size, 0, 0, 1e6, "ranks that share one copy of the model with sharded_hybrid; must divide the number of ranks; 0: the ranks of a node") \
    X(BOOL, bool, gather_parameters, true, 0, 0, "with sharded_3 and sharded_hybrid: every rank has the whole module between fits; false: parameters stay sliced all the time, for models that fit on no single rank") \
    X(TEXT, const char *, gradient_compression, NULL, 0, 0, "type in which ddp sends gradients: none (their own), or bf16 or fp16, which halve the bytes") \
    X(TEXT, const char *, comm_security, NULL, 0, 0, "protection of connections between ranks, after both ends have proven that they belong to the run: none (plain data), auth (changes are detected) or encrypt (also unreadable); not over MPI") \
    X(INT, int64_t, max_restarts, 0, 0, 1e6, "how many times to continue from the last checkpoint with the remaining ranks when ranks are lost") \
    X(FLOAT, double, start_timeout, 300, 0.01, 1e9, "seconds within which all ranks must have joined")               \
    X(FLOAT, double, silence_timeout, 10, 0.01, 1e9, "seconds without a heartbeat after which a rank counts as lost") \
    X(FLOAT, double, progress_timeout, 0, -1, 1e9, "seconds without a step after which a rank counts as stuck; 0: 20 times the longest step so far, at least half an hour; -1: never") \
    X(FLOAT, double, grace_period, 2, 0.01, 1e9, "seconds that ranks have to exit after one is lost, before they are killed") \
    X(TEXT, const char *, precision, NULL, 0, 0, "types of the numbers to compute with")                             \
    X(TEXT, const char *, float32_matmul_precision, NULL, 0, 0, "what products of f32 may be computed in: highest (f32), high (three products of bf16) or medium (one); without units for matrices both are highest (default highest)") \
    X(INT, int64_t, threads, 0, 0, 4096, "threads per kernel; 0: OMP_NUM_THREADS, or one per processor that the process may use") \
    X(INT, int64_t, seed, 0, 0, 9e15, "seed of all random numbers")                                                  \
    X(BOOL, bool, deterministic, false, 0, 0, "make results independent of the number of threads and ranks")         \
    X(INT, int64_t, deterministic_chunk, 0, 0, 1e6, "most samples per chunk of the gradient sum; 0: chosen from the batch size") \
    X(BOOL, bool, sync_batchnorm, false, 0, 0, "with several ranks: compute batch norm statistics over all of them") \
    X(BOOL, bool, tune, false, 0, 0, "choose kernels and their thread counts by timing them; choices are cached")    \
    X(BOOL, bool, detect_anomaly, false, 0, 0, "stop at the first operator that makes a NaN or infinity, and report its source line") \
    X(BOOL, bool, handle_signals, true, 0, 0, "SIGINT, SIGTERM and SIGHUP end the run after the current step, with a checkpoint; SIGUSR1 saves one")
/* clang-format on */

typedef struct lc_trainer_options {
    size_t size;
#define LC_TRAINER_OPTION_FIELD(kind, type, name, def, min, max, help) type name;
    LC_TRAINER_OPTION_LIST(LC_TRAINER_OPTION_FIELD)
#undef LC_TRAINER_OPTION_FIELD
    /* Callbacks and loggers of the program, taken over by the trainer: another trainer needs new ones, set here again
     * (LC_ERR_STATE; LC_ERR_ARGUMENT for one of lightc's that another trainer or a fabric has).
     * With any logger here, the default of `logger` does not apply. */
    const lc_callback *callbacks;
    int n_callbacks;
    const lc_logger *loggers;
    int n_loggers;
    const lc_profiler *profilers; /* in addition to those in `profiler`; taken over too */
    int n_profilers;
    const struct lc_precision *precision_plugin; /* in place of `precision` (lightc/precision.h); taken over */
    /* The program's own communicator (of an MPI code, of threads), whose ranks the strategy uses instead of finding or
     * starting ranks; every rank makes a trainer with the same options. Ranks of MPI are watched until the trainer is
     * freed (start_timeout, silence_timeout, progress_timeout): if one is lost, calls of the others fail with the
     * cause, and no process is killed. Borrowed; NULL: none. */
    struct lc_comm *comm;
    /* Texts that parsing allocated; lc_trainer_new takes them over, and for another trainer the program parses again.
     */
    void *storage;
    /* The program's own options as parsing left them, as members of a JSON object: part of the run's config.json. NULL:
     * none. */
    const char *own_config;
} lc_trainer_options;

#ifdef __cplusplus
#define LC_TRAINER_OPTION_DEFAULT(kind, type, name, def, min, max, help) LC_TRAINER_DEFAULT_##kind##_(name, (def))
#define LC_TRAINER_DEFAULT_INT_(name, def)                               o.name = def;
#define LC_TRAINER_DEFAULT_COUNT_(name, def)                             o.name = def;
#define LC_TRAINER_DEFAULT_FLOAT_(name, def)                             o.name = def;
#define LC_TRAINER_DEFAULT_BOOL_(name, def)                              o.name = def;
#define LC_TRAINER_DEFAULT_CHOICE_(name, def)                            o.name = def;
#define LC_TRAINER_DEFAULT_TEXT_(name, def)                              o.name = def;
#define LC_TRAINER_DEFAULT_DURATION_(name, def)                          /* not given */
static inline lc_trainer_options lc_trainer_options_init_()
{
    lc_trainer_options o = {};
    o.size = sizeof(o);
    LC_TRAINER_OPTION_LIST(LC_TRAINER_OPTION_DEFAULT)
    return o;
}
#define LC_TRAINER_OPTIONS_INIT lc_trainer_options_init_()
#else
#define LC_TRAINER_OPTION_DEFAULT(kind, type, name, def, min, max, help) .name = def,
#define LC_TRAINER_OPTIONS_INIT                                                                                        \
    {                                                                                                                  \
        .size = sizeof(lc_trainer_options), LC_TRAINER_OPTION_LIST(LC_TRAINER_OPTION_DEFAULT)                          \
    }
#endif

/* A struct and the table that describes it. */
typedef struct lc_option_set {
    const char *title; /* heading in --help */
    const lc_option *options;
    int n;
    void *target;
    void *reserved[2];
} lc_option_set;

LC_BEGIN_DECLS

/* Reads the command line (argv[1..]), the environment and --config FILE into `opt`. LC_STOP after --help or
 * --print_config, which print to standard output. If the options ask for several ranks (--devices 2 --strategy ddp), or
 * for restarts of a run of one rank (--max_restarts), on the command line, in the environment or in FILE, the program
 * starts its ranks here, by running itself again: the first process waits for them, and gets LC_STOP when they have
 * succeeded, or an error that names the rank that failed (docs/launching.md). Texts point into argv, the environment,
 * or opt->storage. Variables that look like a misspelled option cause a warning on standard error. lc_options_parse
 * only reads, and starts nothing. */
LC_API lc_status lc_trainer_options_parse(lc_trainer_options *opt, int argc, char **argv) LC_MUST_USE;
/* The same with `n` options of the program's own, in `target`. */
LC_API lc_status lc_trainer_options_parse_with(lc_trainer_options *opt, const lc_option *options, int n, void *target,
                                               int argc, char **argv) LC_MUST_USE;
/* The same with several structs of the program's own. */
LC_API lc_status lc_trainer_options_parse_sets(lc_trainer_options *opt, const lc_option_set *sets, int n_sets, int argc,
                                               char **argv) LC_MUST_USE;
/* For programs without a trainer, which use few of its options: as lc_trainer_options_parse_with, but accepts only the
 * options that start ranks (devices, num_nodes, node_rank, nodes_file, default_root_dir, max_restarts and the timeouts
 * except progress_timeout) and those in `used`, separated by blanks ("max_epochs seed"; NULL: none). Any other option
 * is an error, and --help does not list it. */
LC_API lc_status lc_trainer_options_parse_used(lc_trainer_options *opt, const char *used, const lc_option *options,
                                               int n, void *target, int argc, char **argv) LC_MUST_USE;
/* Frees what parsing allocated; only needed if no trainer was made of `opt`. */
LC_API void lc_trainer_options_release(lc_trainer_options *opt);

/* The general functions, for programs without a trainer. `env_prefix` is "LIGHTC_" above; NULL: no environment.
 * *storage receives what must be freed with lc_options_free when the texts are no longer needed. */
LC_API lc_status lc_options_parse(const lc_option_set *sets, int n_sets, const char *env_prefix, int argc, char **argv,
                                  void **storage) LC_MUST_USE;
LC_API void lc_options_free(void *storage);
/* Sets one option from text; the error names the option, the value, and what it should be. */
LC_API lc_status lc_option_set_text(const lc_option *option, void *target, const char *text) LC_MUST_USE;
/* The value as text that parsing would read back. Returns the length it needs, as snprintf. */
LC_API int lc_option_get_text(const lc_option *option, const void *target, char *text, size_t size);
/* The trainer's table. */
LC_API const lc_option *lc_trainer_option_table(int *n);
/* A duration from text: see lc_unit. "none" is LC_UNIT_NONE. */
LC_API lc_status lc_duration_parse(const char *text, lc_duration *out) LC_MUST_USE;

LC_END_DECLS
#endif
