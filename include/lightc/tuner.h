/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner: finds a learning rate and a batch size to start with.
 *
 * Both run the module for a few steps with a separate trainer, which has the options of the given one but shows, logs
 * and writes nothing, and restore parameters and buffers bit for bit. They find the hyperparameter to set by its name
 * in lc_module_save_hyperparameters.
 *
 *     lc_lr_find_result r;
 *     LC_TRY(lc_tuner_lr_find(trainer, &m.base, NULL, &r, .num_training = 50));           m's "lr" is set now
 *     LC_TRY(lc_lr_find_write_svg(&r, "lr.svg"));
 *     lc_lr_find_release(&r);
 *
 * With several ranks the calls are collective, and all ranks find the same: losses are means over all ranks' samples,
 * and a size fits if it fits on every rank. Trials communicate on separate groups. Rank 0 writes the files.
 *
 * The callbacks LearningRateFinder and BatchSizeFinder do the same when a fit begins, BatchSizeFinder also before
 * validate, test and predict. */
#ifndef LIGHTC_TUNER_H
#define LIGHTC_TUNER_H

#include <lightc/callbacks.h>
#include <lightc/trainer.h>

/* Arguments and their defaults are Lightning's. */
typedef struct lc_lr_find_args {
    size_t size;
    double min_lr, max_lr;
    int64_t num_training;        /* steps to take */
    const char *mode;            /* how the rate grows: "exponential" (default) or "linear" */
    double early_stop_threshold; /* stop when the smoothed loss is above this times the best. INFINITY: never */
    bool update_attr;            /* default on: set the hyperparameter, and the optimizers of a running fit */
    const char *attr_name; /* its name; default: "lr" or "learning_rate", also in a struct inside ("optimizer.lr") */
    const char *spacing; /* the axis of the loss's slope: "log10" of the rate (default if it grows exponentially) or the
                            rate itself, "lr" (default if it grows linearly; Lightning 2.6's) */
} lc_lr_find_args;
LC_DEFAULTS(lc_lr_find, lc_lr_find_args, .min_lr = 1e-8, .max_lr = 1, .num_training = 100, .early_stop_threshold = 4,
            .update_attr = true)

typedef struct lc_lr_find_result {
    int64_t n;         /* points of the curve; NAN for a batch without a loss */
    double *lr, *loss; /* [n]; losses smoothed: mean with weight 0.98, corrected for its beginning */
    bool exponential;
    int64_t suggested; /* point of the steepest descent of the loss; -1: too few points */
    double suggestion; /* its rate; NAN: none */
    bool stopped_early;
    bool over_log10; /* the slope is over log10 of the rate, on which exponentially growing rates are evenly spaced */
} lc_lr_find_result;

typedef struct lc_scale_batch_size_args {
    size_t size;
    const char *mode; /* "power" (default): double until it fails; "binsearch": then halve the gap */
    int64_t steps_per_trial;
    int64_t init_val;
    int64_t max_trials;         /* with binsearch, only trials that fit count */
    const char *batch_arg_name; /* the hyperparameter that the loaders read; default "batch_size" */
    double margin;              /* binsearch: the fraction subtracted at the end */
    int64_t max_val;
    int64_t max_bytes;  /* for intermediate results; 0: what the machine has free */
    const char *method; /* the run to try: "fit" (default), "validate", "test" or "predict"; the callback uses the run
                           it is in */
} lc_scale_batch_size_args;
LC_DEFAULTS(lc_scale_batch_size, lc_scale_batch_size_args, .steps_per_trial = 3, .init_val = 2, .max_trials = 25,
            .margin = 0.05, .max_val = 8192)

typedef struct lc_scale_batch_size_result {
    int64_t batch_size;    /* the hyperparameter is set to it */
    int64_t planned_bytes; /* of intermediate results of a step of this size (of the largest tried that fits) */
    int64_t too_large;     /* the smallest size that did not fit; 0: all sizes tried fit */
    int trials;
} lc_scale_batch_size_result;

LC_BEGIN_DECLS

/* Trains with rising learning rates (one optimizer, automatic optimization) and finds where the loss falls fastest.
 * `run` says where the data come from, as in lc_trainer_fit. Skipped (no points) with fast_dev_run. */
#define lc_tuner_lr_find(t, m, run, ...) LC_CALL_NEW_(lc_tuner_lr_find, lc_lr_find, (t, m, run, ), __VA_ARGS__, )
LC_API lc_status lc_tuner_lr_find_with(lc_trainer *t, lc_module *m, const lc_run_args *run, lc_lr_find_result *out,
                                       const lc_lr_find_args *args) LC_MUST_USE;
LC_API void lc_lr_find_release(lc_lr_find_result *r);
/* The point of the suggestion without the first `skip_begin` and last `skip_end` points (10 and 1 for the other
 * functions), or -1. */
LC_API int64_t lc_lr_find_suggest(const lc_lr_find_result *r, int64_t skip_begin, int64_t skip_end);
/* lr,loss: one line a point. */
LC_API lc_status lc_lr_find_write_csv(const lc_lr_find_result *r, const char *path) LC_MUST_USE;
/* The curve, with the suggestion marked. */
LC_API lc_status lc_lr_find_write_svg(const lc_lr_find_result *r, const char *path) LC_MUST_USE;

/* Finds the largest batch that fits into memory. A size that does not fit is detected when the step is planned, before
 * memory is allocated. The loaders must be the module's or a datamodule's, and read the hyperparameter. */
#define lc_tuner_scale_batch_size(t, m, run, ...)                                                                      \
    LC_CALL_NEW_(lc_tuner_scale_batch_size, lc_scale_batch_size, (t, m, run, ), __VA_ARGS__, )
LC_API lc_status lc_tuner_scale_batch_size_with(lc_trainer *t, lc_module *m, const lc_run_args *run,
                                                lc_scale_batch_size_result *out,
                                                const lc_scale_batch_size_args *args) LC_MUST_USE;

/* ---- the same as callbacks, when a fit begins (not when it continues from a checkpoint); BatchSizeFinder also before
 * every validate, test and predict, with their loaders ---- */

/* lc_learning_rate_finder(&cb, .num_training = 50), as the makers of callbacks.h. */
#define lc_learning_rate_finder(...) LC_CALLBACK_FROM_(lc_lr_find, lc_learning_rate_finder_new, __VA_ARGS__, )
#define lc_batch_size_finder(...)    LC_CALLBACK_FROM_(lc_scale_batch_size, lc_batch_size_finder_new, __VA_ARGS__, )
/* Leaves lr_find.csv and lr_find.svg in the folder of the run. Texts in args must outlive the callback. */
LC_API lc_status lc_learning_rate_finder_new(const lc_lr_find_args *args, lc_callback *out) LC_MUST_USE;
LC_API const lc_lr_find_result *lc_learning_rate_finder_get(const lc_callback *cb); /* borrowed; NULL: it is none */
LC_API lc_status lc_batch_size_finder_new(const lc_scale_batch_size_args *args, lc_callback *out) LC_MUST_USE;
LC_API lc_scale_batch_size_result lc_batch_size_finder_get(const lc_callback *cb); /* zeros: it is none */

LC_END_DECLS
#endif
