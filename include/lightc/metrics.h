/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics: numbers computed over many batches, equal to TorchMetrics' of the same name.
 *
 * A metric keeps a small state; update() adds a batch, compute() gives the value over all since the last reset, merge()
 * adds another metric's state (of a part of the data, of another rank), and state is a flat list of doubles, so that
 * it can be stored, sent and merged.
 *
 *     lc_metric *acc = NULL;
 *     LC_TRY(lc_metric_new("Accuracy", &acc, .num_classes = 10));
 *     LC_TRY(lc_metric_update_scores(acc, 64, 10, scores, targets));
 *     LC_TRY(lc_metric_compute(acc, &value));
 *
 * To add one: an lc_metric_ops in a file of src/metrics/, and a line in registry.c. */
#ifndef LIGHTC_METRICS_H
#define LIGHTC_METRICS_H

#include <lightc/args.h>
#include <lightc/tensor.h>

LC_BEGIN_DECLS

typedef struct lc_metric lc_metric;

typedef enum lc_metric_task {
    LC_TASK_DEFAULT = 0, /* multiclass with num_classes, multilabel with num_labels, else binary */
    LC_TASK_BINARY,
    LC_TASK_MULTICLASS,
    LC_TASK_MULTILABEL,
} lc_metric_task;

typedef enum lc_average {
    LC_AVERAGE_DEFAULT = 0, /* as TorchMetrics: micro; macro for JaccardIndex, AUROC, AveragePrecision */
    LC_AVERAGE_MICRO,       /* over all decisions */
    LC_AVERAGE_MACRO,       /* mean over the classes */
    LC_AVERAGE_WEIGHTED,    /* mean over the classes, by how often they occur */
    LC_AVERAGE_NONE,        /* one value per class */
} lc_average;

typedef enum lc_normalize {
    LC_NORMALIZE_NONE = 0, /* counts */
    LC_NORMALIZE_TRUE,     /* rows (true classes) add up to 1 */
    LC_NORMALIZE_PRED,     /* columns do */
    LC_NORMALIZE_ALL,      /* everything does */
} lc_normalize;

typedef struct lc_metric_args {
    size_t size;
    lc_metric_task task;
    int64_t num_classes; /* multiclass */
    int64_t num_labels;  /* multilabel */
    lc_average average;
    int64_t top_k;          /* multiclass: correct if the target is among the k best */
    double threshold;       /* binary, multilabel: a score above it is a 1 */
    int64_t ignore_index;   /* targets equal to it are left out; LC_UNSET: none */
    double beta;            /* FBetaScore */
    double zero_division;   /* value of 0/0 in Precision, Recall, F-scores and JaccardIndex */
    lc_normalize normalize; /* ConfusionMatrix */
    bool not_squared;       /* MeanSquaredError: its root (squared=False) */
    int64_t num_outputs;    /* regression on [N, outputs] */
    bool raw_values;        /* R2Score, ExplainedVariance: a value per output instead of their mean */
    int kappa_weights; /* CohenKappa: weight of an error: 0: all the same, 1: its distance, 2: its squared distance */
} lc_metric_args;
LC_DEFAULTS(lc_metric, lc_metric_args, .top_k = 1, .threshold = 0.5, .ignore_index = LC_UNSET, .beta = 1,
            .num_outputs = 1)

/* The batch that update gets: plain host arrays, row-major. */
typedef struct lc_metric_batch {
    int64_t n;              /* samples */
    int64_t columns;        /* scores (and float targets) per sample; 1 for a vector */
    const float *scores;    /* [n, columns]: probabilities or logits, or values in regression; or NULL */
    const int64_t *labels;  /* instead of scores: predicted classes [n, columns] */
    const int64_t *targets; /* [n], multilabel [n, columns] */
    const float *values;    /* instead of targets, in regression: [n, columns] */
    const float *weights;   /* Mean: weight of each; NULL: 1 */
    int64_t n_targets;      /* entries of targets or values; 0: as many as the metric expects */
    void *reserved[2];
} lc_metric_batch;

typedef struct lc_metric_ops {
    size_t size; /* LC_METRIC_OPS_INIT */
    const char *name;
    /* ---- REQUIRED ---- */
    lc_status (*update)(void *self, const lc_metric_batch *batch);
    /* How many values compute gives: 1, or a number per class, or a matrix. */
    int64_t (*outputs)(void *self);
    lc_status (*compute)(void *self, double *out);
    void (*reset)(void *self);
    /* The state as doubles. *n in: the room in `data` (0 with data NULL asks for the number); out: how many. */
    lc_status (*save)(void *self, double *data, int64_t *n);
    /* Adds a saved state to this metric's. After a reset this is loading, bit for bit. An update must add the batch's
     * own state in the same way as merge, so that a metric that is saved, loaded and continued has exactly the value of
     * one that was not. */
    lc_status (*merge)(void *self, const double *data, int64_t n);
    void (*free)(void *self);
    /* ---- OPTIONAL ---- */
    /* True if states are merged by adding them number by number (so that ranks can all-reduce). Default: false. */
    bool additive;
} lc_metric_ops;

#define LC_METRIC_OPS_INIT .size = sizeof(lc_metric_ops)

/* A metric by its TorchMetrics name: Accuracy, Precision, Recall, F1Score, FBetaScore, Specificity, JaccardIndex,
 * HammingDistance, ConfusionMatrix, CohenKappa, MatthewsCorrCoef, AUROC, AveragePrecision, MeanSquaredError,
 * MeanAbsoluteError, R2Score, ExplainedVariance, PearsonCorrCoef, SpearmanCorrCoef, MeanMetric, SumMetric, MaxMetric,
 * MinMetric. The error for an unknown name lists the available ones. */
#define lc_metric_new(name, ...) LC_CALL_NEW_(lc_metric_new, lc_metric, (name, ), __VA_ARGS__, )
LC_API lc_status lc_metric_new_with(const char *name, lc_metric **out, const lc_metric_args *args) LC_MUST_USE;
/* A metric of the program's own; takes `self` over, also when it fails. */
LC_API lc_status lc_metric_from_ops(const lc_metric_ops *ops, void *self, lc_metric **out) LC_MUST_USE;
LC_API void lc_metric_free(lc_metric *m); /* NULL is fine */
/* Name i of the built-in metrics, NULL after the last. */
LC_API const char *lc_metric_name_at(int i);

LC_API const char *lc_metric_name(const lc_metric *m);
/* Counts a batch; the functions below fill one. A batch without samples changes nothing. */
LC_API lc_status lc_metric_update(lc_metric *m, const lc_metric_batch *batch) LC_MUST_USE;
/* Scores [n, columns] against integer targets. */
LC_API lc_status lc_metric_update_scores(lc_metric *m, int64_t n, int64_t columns, const float *scores,
                                         const int64_t *targets) LC_MUST_USE;
/* Predicted classes against true ones, [n] each. */
LC_API lc_status lc_metric_update_labels(lc_metric *m, int64_t n, const int64_t *labels,
                                         const int64_t *targets) LC_MUST_USE;
/* Predicted numbers against true ones, [n] each. */
LC_API lc_status lc_metric_update_values(lc_metric *m, int64_t n, const float *predicted,
                                         const float *targets) LC_MUST_USE;
/* One number, rounded to f32 (MeanMetric and its like). */
LC_API lc_status lc_metric_update_value(lc_metric *m, double value, double weight) LC_MUST_USE;
/* From tensors: scores (float) or labels (integer), and targets of either kind; NULL for aggregates. Reads them, which
 * runs the step up to there. */
LC_API lc_status lc_metric_update_tensor(lc_metric *m, lc_tensor *predicted, lc_tensor *targets) LC_MUST_USE;

LC_API int64_t lc_metric_outputs(const lc_metric *m); /* how many values it has */
/* The value; an error for metrics with more than one. */
LC_API lc_status lc_metric_compute(lc_metric *m, double *value) LC_MUST_USE;
/* All lc_metric_outputs values; matrices row-major. */
LC_API lc_status lc_metric_compute_all(lc_metric *m, double *values, int64_t n) LC_MUST_USE;
LC_API void lc_metric_reset(lc_metric *m); /* as it was made */
/* Adds what `other`, a metric of the same name and arguments, has counted. */
LC_API lc_status lc_metric_merge(lc_metric *m, const lc_metric *other) LC_MUST_USE;
/* Writes the counts of the metric to `data` as numbers. *n is the room there, and afterwards how many numbers there
 * are; with data NULL nothing is written. */
LC_API lc_status lc_metric_save(const lc_metric *m, double *data, int64_t *n) LC_MUST_USE;
LC_API lc_status lc_metric_load(lc_metric *m, const double *data, int64_t n) LC_MUST_USE; /* reset and merge */
LC_API lc_status lc_metric_merge_state(lc_metric *m, const double *data, int64_t n) LC_MUST_USE;
LC_API bool lc_metric_is_additive(const lc_metric *m);

LC_END_DECLS

#endif
