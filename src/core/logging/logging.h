/* SPDX-License-Identifier: Apache-2.0 */
/* Logged values, from lc_log to the rows of loggers, and the folder of a run. */
#ifndef LC_CORE_LOGGING_LOGGING_H
#define LC_CORE_LOGGING_LOGGING_H

#include "base/exact_sum.h"
#include "core/hooks/trainer_internal.h"
#include "core/logging/step_value.h"

/* Means and sums in deterministic runs. */
typedef struct lc__exact_sums {
    lc__exact_sum epoch, step;
} lc__exact_sums;

/* Used in place of a loader's index. */
enum { LC__NO_LOADER = -1, LC__ALL_LOADERS = -2 };

/* A logged value: one name in one hook. */
typedef struct lc__logged {
    char *name, *step_name,
        *epoch_name;   /* with the loader's suffix; the last two end in _step, _epoch if both are on */
    const char *given; /* the program's pointer to the name, for fast lookup */
    char *base;        /* the name it passed */
    lc_hook hook;
    int loader; /* LC__NO_LOADER: no suffix */
    int source; /* the loader whose batch it was logged for; LC__ALL_LOADERS: the hook has no batch */
    lc_log_args args;
    bool on_step, on_epoch, logger;
    bool active;         /* logged since the last reset */
    bool reduced;        /* the value is that of all ranks, if it is reduced at all */
    bool has_step;       /* `step` holds a value */
    int64_t step_number; /* lc__results.step of `step` */
    double step, sum, weight;
    double step_weight;    /* samples of `step` */
    lc__exact_sums *exact; /* `sum` and `step` without intermediate rounding; NULL: rounded */
    lc__step_value pieces; /* how `step` came about */
    lc_metric *metric;     /* borrowed while its epoch runs; `sum` is its value, once `computed` */
    bool of_metric, computed, warned;
    double *state; /* the metric's, from or for a checkpoint */
    int64_t n_state;
    const double *of_ranks; /* while it is saved: sum and weight of each rank, if they are added up; else NULL */
    int slots[5]; /* indices in the metric maps: callback name, step, epoch; progress bar step, epoch; -1: none */
} lc__logged;

/* A value of an entry, and what it stands for. */
typedef struct lc__note {
    struct lc__results *r;
    int entry;
    double weight;
    lc__place place;
    int64_t step; /* lc__results.step */
} lc__note;

typedef struct lc__pending {
    lc__note note;
    lc_tensor *tensor; /* NULL: a number that waits for a tensor before it */
    double value;      /* of a tensor when it has been read */
} lc__pending;

typedef struct lc__results {
    lc__logged *e;
    int n, cap;
    int cursor; /* start of the next lookup: values are logged in the same order each step */
    lc__pending *pending;
    int n_pending, cap_pending;
    int n_read;    /* of `pending`, those that lc__results_read read last */
    bool training; /* step values can be monitored */
    bool exact;    /* sums are exact (exact_sum.h) */
    int64_t step;  /* number of the trainer's batch */
} lc__results;

/* Named values in the order of their first use. */
typedef struct lc__metric_map {
    lc_metric_value *v; /* names are owned */
    int n, cap;
} lc__metric_map;

typedef struct lc__logging {
    lc__results train_results, eval_results;
    struct lc__arrivals *arrivals; /* arrivals.h; NULL: values are on the host when a step has run */
    bool silent;                   /* lc_log does nothing: a pass over the data without training */
    bool epoch_end_reached;        /* the values of the running epoch are complete */
    lc__metric_map metrics[3];     /* lc_metric_set */
    lc_metric_value *row;
    int cap_row;
    /* The results of an evaluation, by loader. */
    lc_metric_value *result_values[LC_MAX_LOADERS];
    int n_result_values[LC_MAX_LOADERS], n_results;

    lc_logger *loggers;
    bool *logger_failed;
    int n_loggers;
    bool loggers_started;
    struct lc__media *media; /* log_media.c */
    char *run_id;
    int version;
} lc__logging;

/* ---- logging.c ---- */
void lc__logging_init(lc_trainer *t);
void lc__logging_free(lc_trainer *t); /* after the loggers have finished */

/* ---- results.c ---- */
lc_status lc__results_read(lc_trainer *t, lc__results *r) LC_MUST_USE; /* after the step ran */
/* False if the value was not read with those of the last step. */
bool lc__results_have(const lc__results *r, const lc_tensor *tensor, double *value);
lc_status lc__results_publish_step(lc_trainer *t, lc__results *r) LC_MUST_USE;
/* For arrivals.c: adds a value that is on the host, and publishes those that are. */
void lc__results_add_value(const lc__note *n, double v);
void lc__results_publish_now(lc_trainer *t, lc__results *r);
lc_status lc__results_publish_epoch(lc_trainer *t, lc__results *r) LC_MUST_USE; /* computes metrics */
lc_status lc__results_reset(lc_trainer *t, lc__results *r) LC_MUST_USE;
void lc__results_free(lc__results *r);
double lc__logged_epoch_value(const lc__logged *e);
const char *lc__log_rule(lc_hook hook); /* the text for messages and docs: what lc_log does by default */
lc__logged *lc__results_add(lc__results *r, const char *base, lc_hook hook, int loader, const lc_log_args *args,
                            bool on_step, bool on_epoch);
#define LC__MOST_NAME 400 /* characters of a logged name */
lc__logged *lc__results_find(lc__results *r, const char *name, lc_hook hook, int loader); /* NULL: not found */

/* ---- results_state.c ---- */
lc_status lc__results_save(const lc_trainer *t, lc__results *r, lc_state *out) LC_MUST_USE;
lc_status lc__results_load(lc_trainer *t, lc__results *r, const lc_state *in) LC_MUST_USE;

/* ---- metric_map.c ---- */
/* The values of a set, also those that a device still has to copy. */
lc__metric_map *lc__metrics(lc_trainer *t, lc_metric_set set);
int lc__map_find(const lc__metric_map *m, const char *name); /* -1: not found */
int lc__map_slot(lc__metric_map *m, const char *name);       /* added if new; -1: out of memory */
/* Writes "`a`, `b`", cut to size; returns text. */
const char *lc__map_names(const lc__metric_map *m, char *text, size_t size);
void lc__map_clear(lc__metric_map *m);
void lc__map_free(lc__metric_map *m);

/* ---- log_metric.c ---- */
/* Call when `metric` is logged as entry e of r. */
lc_status lc__logged_metric(const lc_trainer *t, lc__results *r, lc__logged *e, lc_metric *metric) LC_MUST_USE;
/* Makes e->sum the value of e's metric; nothing for other entries. */
lc_status lc__logged_compute(lc_trainer *t, lc__logged *e) LC_MUST_USE;
void lc__logged_forget(lc__logged *e); /* resets the metric */
/* For ranks other than 0: drops sums and states from a checkpoint, which must count once. A metric's value is kept,
 * since it is not summed. */
void lc__logged_drop(lc__logged *e);
/* Copies the metric's state into the entry, and its current value (weight 0: none yet). */
lc_status lc__logged_keep(lc__logged *e) LC_MUST_USE;
void lc__logged_give(lc__logged *e, double *state, int64_t n); /* replaces the entry's state; owns `state` */
/* Resets and forgets metrics, when the epoch's rows are sent or the run ends. */
void lc__results_release(lc__results *r);
/* Before that, if the epoch is unfinished: keeps their states for a later checkpoint. */
lc_status lc__results_keep(lc__results *r) LC_MUST_USE;
lc_status lc__logged_metric_save(lc__logged *e, lc_state *out) LC_MUST_USE;
lc_status lc__logged_metric_load(lc__logged *e, const lc_state *in) LC_MUST_USE;

/* ---- rows.c ---- */
typedef enum lc__values { LC__STEP_VALUES, LC__EPOCH_VALUES } lc__values;
/* Sends the values of r for loggers, of all dataloaders, at the trainer's step. The epoch and the trainer's own values
 * are added here, since lc_trainer_log works only inside a hook. */
lc_status lc__rows_send(lc_trainer *t, lc__results *r, lc__values which) LC_MUST_USE;
/* Sends the values of an evaluation's step, of one loader (or LC__NO_LOADER), at the given step. */
lc_status lc__rows_send_eval(lc_trainer *t, lc__results *r, int64_t step, int loader) LC_MUST_USE;
lc_status lc__rows_keep_results(lc_trainer *t, lc__results *r, int loader) LC_MUST_USE;
/* Whether log_every_n_steps includes this step. */
bool lc__log_interval_due(const lc_trainer *t);
bool lc__should_log(const lc_trainer *t); /* the same, and in every step of fast_dev_run */
/* An error unless these are values that a program may send as a row. */
lc_status lc__row_check(const lc_metric_value *values, int n) LC_MUST_USE;
/* Inserts a value into a row of n, sorted by name; the later of two equal names wins. Returns the new n. */
int lc__row_insert(lc_metric_value *row, int n, const char *name, double value);

/* ---- run_dir.c ---- */
#define LC__RUN_NAME "lightning_logs"
/* Makes root_dir/name/version_N with an N that no other run has. */
lc_status lc__take_version(const char *root_dir, const char *name, int *version, char **run_dir) LC_MUST_USE;
lc_status lc__new_run_id(char **out) LC_MUST_USE;
/* Appends the program's loggers to `list`, except those that cannot be called. */
lc_status lc__loggers_take(const lc_logger *given, int n, lc_logger *list, int *n_list) LC_MUST_USE;
lc_status lc__loggers_open(lc_trainer *t) LC_MUST_USE;  /* makes the loggers that the options name */
lc_status lc__loggers_start(lc_trainer *t) LC_MUST_USE; /* takes version_N */
void lc__loggers_status(lc_trainer *t, const char *status);
void lc__loggers_flush(lc_trainer *t);
void lc__loggers_finish(lc_trainer *t, const char *status);
lc_status lc__hyperparameters_log(lc_trainer *t, const lc_module *m) LC_MUST_USE; /* hyperparameters.c */
lc_status lc__loggers_row(lc_trainer *t, const lc_log_row *row);
/* Warns once if s, which logger i returned, is an error: it could not `what`. before: as for lc__said. */
void lc__logger_result(lc_trainer *t, int i, lc_status s, unsigned before, const char *what);
/* Calls a slot of logger i, which is l_ in the arguments. */
#define LC__LOGGER_CALL(t, i, slot, what, ...)                                                                         \
    do {                                                                                                               \
        const lc_logger *l_ = &(t)->logging->loggers[i];                                                               \
        unsigned before_ = lc__error_count();                                                                          \
        lc__logger_result(t, i, l_->ops->slot(__VA_ARGS__), before_, what);                                            \
    } while (0)
lc_status lc__checkpoint_dir(lc_trainer *t, lc__str *out) LC_MUST_USE; /* the default directory of checkpoints */
void lc__note_checkpoint(lc_trainer *t, const char *path, int64_t step, double score, bool has_score);
void lc__note_removed_checkpoint(lc_trainer *t, const char *path);

/* ---- log_media.c ---- */
void lc__media_free(struct lc__media *m);

#endif
