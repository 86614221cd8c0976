/* SPDX-License-Identifier: Apache-2.0 */
/* Loggers: where metrics go. The trainer calls them on rank 0, on the training thread; a logger copies its arguments
 * and returns at once (its own thread writes). A logger that fails never ends the training: since it writes later, the
 * next call returns the failure, once; the trainer turns it into a warning. lightc's loggers keep what they could not
 * write and try again (nothing is lost if space is freed on a full disk in time).
 *
 * To add one: a file in src/loggers/ with an lc_logger_ops, and a line in src/builtin.c. */
#ifndef LIGHTC_LOGGER_H
#define LIGHTC_LOGGER_H

#include <lightc/args.h>
#include <lightc/status.h>

typedef struct lc_logger lc_logger;

/* One named value. */
typedef struct lc_metric_value {
    const char *name;
    double value;
} lc_metric_value;

/* One row: what Lightning's logger.log_metrics gets. */
typedef struct lc_log_row {
    const lc_metric_value *values; /* sorted by name; borrowed */
    int n;
    int64_t step;
    int64_t epoch;   /* -1: the row has no epoch column */
    int64_t time_ns; /* wall clock, since 1970 */
} lc_log_row;

/* An option, as text. */
typedef struct lc_named_text {
    const char *name, *value;
} lc_named_text;

/* A hyperparameter. A field of a struct within a struct has a name like "optimizer/lr". */
typedef enum lc_hparam_kind {
    LC_HPARAM_NONE = 0, /* not set */
    LC_HPARAM_BOOL,     /* integer: 0 or 1 */
    LC_HPARAM_INT,      /* integer */
    LC_HPARAM_FLOAT,    /* number */
    LC_HPARAM_TEXT,     /* text */
} lc_hparam_kind;

typedef struct lc_hparam {
    const char *name;
    lc_hparam_kind kind;
    int64_t integer;
    double number;
    const char *text; /* UTF-8 */
} lc_hparam;

/* The number of values in each bin. Bin i holds edges[i] <= x < edges[i + 1]; the last bin includes x =
 * edges[n_bins]. */
typedef struct lc_log_histogram {
    const char *name;
    int64_t step, time_ns;
    int n_bins;
    const double *edges;                              /* n_bins + 1, ascending */
    const double *counts;                             /* n_bins */
    double minimum, maximum, count, sum, sum_squares; /* of the values */
} lc_log_histogram;

typedef struct lc_log_image {
    const char *name;
    int64_t step, time_ns;
    int width, height, channels; /* 1: gray, 3: RGB, 4: RGBA */
    const uint8_t *pixels;       /* [height,width,channels] */
} lc_log_image;

typedef struct lc_log_text {
    const char *name;
    int64_t step, time_ns;
    const char *text; /* UTF-8; TensorBoard shows it as Markdown */
} lc_log_text;

typedef struct lc_run_info {
    const char *root_dir; /* default_root_dir */
    const char *name;     /* "lightning_logs" */
    const char *run_dir;  /* root_dir/name/version_N: exists already */
    int version;
    const lc_named_text *options; /* resolved trainer options */
    int n_options;
    bool resumed;
    int64_t resumed_step; /* rows after this step are superseded */
    const char *run_id;   /* unique text of this run; a logger started with the same text continues that run */
} lc_run_info;

typedef struct lc_logger_ops {
    size_t size; /* LC_LOGGER_OPS_INIT */
    const char *name;
    /* REQUIRED, in call order */
    /* If it fails the other calls follow nevertheless, so that a logger may try again. */
    lc_status (*start)(void *self, const lc_run_info *run);
    lc_status (*log_row)(void *self, const lc_log_row *row);
    /* OPTIONAL. A logger without a slot ignores the record; if no logger keeps it, the trainer says so once. */
    /* Called before the first row, if there are any; called again if some become known later: a name replaces an
     * earlier one. */
    lc_status (*log_hyperparameters)(void *self, const lc_hparam *params, int n);
    lc_status (*log_histogram)(void *self, const lc_log_histogram *histogram);
    lc_status (*log_image)(void *self, const lc_log_image *image);
    lc_status (*log_text)(void *self, const lc_log_text *text);
    /* OPTIONAL (no-op) */
    /* A checkpoint at `path` is durable. */
    lc_status (*log_checkpoint)(void *self, const char *path, int64_t step, double score, bool has_score);
    /* A message of the trainer (lc_trainer_message). */
    lc_status (*log_message)(void *self, lc_level level, const char *text);
    /* The run's current status: as in finish, or "running" (again). A program that fails may end without finish. */
    lc_status (*log_status)(void *self, const char *status);
    lc_status (*flush)(void *self);
    /* "success", "failed", "interrupted". No call except free follows. Waits until everything is written. */
    lc_status (*finish)(void *self, const char *status);
    void (*free)(void *self);
    /* OPTIONAL (no-op). A checkpoint that was logged has been removed: better or newer ones are kept. */
    lc_status (*log_checkpoint_removed)(void *self, const char *path);
} lc_logger_ops;

#define LC_LOGGER_OPS_INIT .size = sizeof(lc_logger_ops)

struct lc_logger {
    const lc_logger_ops *ops;
    void *self;
};

LC_BEGIN_DECLS
/* A logger by its name in the option `logger`: "csv", "stream:|python3 bridge.py". The error for an unknown name lists
 * the available ones. All constructors copy their texts. The trainer frees the logger; before it has one, the program
 * calls out->ops->free(out->self). */
LC_API lc_status lc_logger_new(const char *name, lc_logger *out) LC_MUST_USE;

/* metrics.csv in the run's directory: sorted header, one row a call, as Lightning's CSVLogger; pandas reads it at any
 * moment. */
LC_API lc_status lc_csv_logger_new(lc_logger *out) LC_MUST_USE;
/* The run database <root_dir>/lightc.db (docs/run-database.md). */
LC_API lc_status lc_sqlite_logger_new(lc_logger *out) LC_MUST_USE;
/* events.out.tfevents.* and hparams.yaml in the run's directory, as Lightning's TensorBoardLogger. */
LC_API lc_status lc_tensorboard_logger_new(lc_logger *out) LC_MUST_USE;

/* The run as JSON lines, for programs that forward it (docs/loggers.md has the format). `target`: a file that is
 * appended to, a FIFO, or "|COMMAND", which is run by the shell and reads the lines from its input. NULL: stream.jsonl
 * in the run's directory. */
LC_API lc_status lc_stream_logger_new(const char *target, lc_logger *out) LC_MUST_USE;

/* A run of an MLflow server, over its REST interface. Unsent records are kept in <root_dir>/mlflow-spool and sent
 * later, if need be by the next run that has this logger. LC_ERR_UNSUPPORTED if libcurl is missing. */
typedef struct lc_mlflow_args {
    size_t size;
    const char *tracking_uri;    /* "http://host:5000"; NULL: MLFLOW_TRACKING_URI */
    const char *experiment_name; /* NULL: MLFLOW_EXPERIMENT_NAME, or "lightning_logs" */
    const char *run_name;        /* NULL: "version_N" */
    bool log_model;              /* send checkpoints as artifacts, too */
} lc_mlflow_args;
LC_DEFAULTS(lc_mlflow, lc_mlflow_args, )
#define lc_mlflow_logger_new(...) LC_CALL_NEW_(lc_mlflow_logger_new, lc_mlflow, (), __VA_ARGS__, )
LC_API lc_status lc_mlflow_logger_new_with(lc_logger *out, const lc_mlflow_args *args) LC_MUST_USE;
LC_END_DECLS

#endif
