/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of src/metrics. */
#ifndef LC_METRICS_INTERNAL_H
#define LC_METRICS_INTERNAL_H

#include <lightc/metrics.h>

/* Which formula: every metric of one family has the same state and one constructor. */
typedef enum lc_metric_kind {
    /* counts.c */
    LC_METRIC_ACCURACY,
    LC_METRIC_PRECISION,
    LC_METRIC_RECALL,
    LC_METRIC_FBETA,
    LC_METRIC_F1,
    LC_METRIC_SPECIFICITY,
    LC_METRIC_JACCARD,
    LC_METRIC_HAMMING,
    /* confusion.c */
    LC_METRIC_CONFUSION,
    LC_METRIC_KAPPA,
    LC_METRIC_MCC,
    /* curves.c */
    LC_METRIC_AUROC,
    LC_METRIC_AVERAGE_PRECISION,
    /* regression.c */
    LC_METRIC_MSE,
    LC_METRIC_MAE,
    LC_METRIC_R2,
    LC_METRIC_EXPLAINED_VARIANCE,
    LC_METRIC_PEARSON,
    /* spearman.c */
    LC_METRIC_SPEARMAN,
    /* aggregate.c */
    LC_METRIC_MEAN,
    LC_METRIC_SUM,
    LC_METRIC_MAX,
    LC_METRIC_MIN,
} lc_metric_kind;

/* `o` has its defaults filled in (registry.c). */
typedef lc_status lc__metric_make(lc_metric_kind kind, const lc_metric_args *o, lc_metric **out);
lc__metric_make lc__metric_counts, lc__metric_confusion, lc__metric_curve, lc__metric_regression, lc__metric_spearman,
    lc__metric_aggregate;

/* ---- classification: one decision at a time (decide.c) ---- */

/* One decision for a classification metric: the true and the predicted class in 0..classes-1 (0/1 for binary and
 * multilabel, where `label` is the label's index). */
typedef void lc__decision_fn(void *ctx, int64_t label, int64_t predicted, int64_t target);

/* Turns a batch into decisions: checks it, then applies sigmoid if scores are logits, thresholds, argmax, top-k,
 * ignore_index. An invalid batch causes no decision. removes_ignored: as TorchMetrics, the metric removes ignored
 * samples of a binary task before it tests whether scores are logits, not after that. */
lc_status lc__metric_decide(const char *name, const lc_metric_args *o, const lc_metric_batch *b, bool removes_ignored,
                            lc__decision_fn *decision, void *ctx);
/* Checks targets and sizes of a batch of scores. */
lc_status lc__metric_check(const char *name, const lc_metric_args *o, const lc_metric_batch *b);

/* True if all n scores are probabilities, in [0, 1]; else TorchMetrics takes them for logits. */
bool lc__metric_are_probabilities(const float *scores, int64_t n);
double lc__metric_sigmoid(double x);

static inline bool lc__metric_ignored(const lc_metric_args *o, int64_t target)
{
    return o->ignore_index != LC_UNSET && target == o->ignore_index;
}

/* The room check of a save: *n doubles are available, `need` are needed. */
lc_status lc__metric_room(const char *name, const double *data, int64_t *n, int64_t need);

/* Whether it was updated, or got another's counts, since the last reset. */
bool lc__metric_has_counted(const lc_metric *m);

#endif
