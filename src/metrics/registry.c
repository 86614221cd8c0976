/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics by name. To add one: a constructor (or a kind in an existing file) and a line here. */
#include "base/args.h"
#include "metrics_internal.h"
#include "base/handle.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    lc__metric_make *make;
    lc_metric_kind kind;
    lc_average average; /* TorchMetrics' default */
    bool classifies;
} metrics[] = {
    {"Accuracy", lc__metric_counts, LC_METRIC_ACCURACY, LC_AVERAGE_MICRO, true},
    {"Precision", lc__metric_counts, LC_METRIC_PRECISION, LC_AVERAGE_MICRO, true},
    {"Recall", lc__metric_counts, LC_METRIC_RECALL, LC_AVERAGE_MICRO, true},
    {"F1Score", lc__metric_counts, LC_METRIC_F1, LC_AVERAGE_MICRO, true},
    {"FBetaScore", lc__metric_counts, LC_METRIC_FBETA, LC_AVERAGE_MICRO, true},
    {"Specificity", lc__metric_counts, LC_METRIC_SPECIFICITY, LC_AVERAGE_MICRO, true},
    {"JaccardIndex", lc__metric_counts, LC_METRIC_JACCARD, LC_AVERAGE_MACRO, true},
    {"HammingDistance", lc__metric_counts, LC_METRIC_HAMMING, LC_AVERAGE_MICRO, true},
    {"ConfusionMatrix", lc__metric_confusion, LC_METRIC_CONFUSION, LC_AVERAGE_NONE, true},
    {"CohenKappa", lc__metric_confusion, LC_METRIC_KAPPA, LC_AVERAGE_NONE, true},
    {"MatthewsCorrCoef", lc__metric_confusion, LC_METRIC_MCC, LC_AVERAGE_NONE, true},
    {"AUROC", lc__metric_curve, LC_METRIC_AUROC, LC_AVERAGE_MACRO, true},
    {"AveragePrecision", lc__metric_curve, LC_METRIC_AVERAGE_PRECISION, LC_AVERAGE_MACRO, true},
    {"MeanSquaredError", lc__metric_regression, LC_METRIC_MSE, LC_AVERAGE_NONE, false},
    {"MeanAbsoluteError", lc__metric_regression, LC_METRIC_MAE, LC_AVERAGE_NONE, false},
    {"R2Score", lc__metric_regression, LC_METRIC_R2, LC_AVERAGE_NONE, false},
    {"ExplainedVariance", lc__metric_regression, LC_METRIC_EXPLAINED_VARIANCE, LC_AVERAGE_NONE, false},
    {"PearsonCorrCoef", lc__metric_regression, LC_METRIC_PEARSON, LC_AVERAGE_NONE, false},
    {"SpearmanCorrCoef", lc__metric_spearman, LC_METRIC_SPEARMAN, LC_AVERAGE_NONE, false},
    {"MeanMetric", lc__metric_aggregate, LC_METRIC_MEAN, LC_AVERAGE_NONE, false},
    {"SumMetric", lc__metric_aggregate, LC_METRIC_SUM, LC_AVERAGE_NONE, false},
    {"MaxMetric", lc__metric_aggregate, LC_METRIC_MAX, LC_AVERAGE_NONE, false},
    {"MinMetric", lc__metric_aggregate, LC_METRIC_MIN, LC_AVERAGE_NONE, false},
};
#define N_METRICS ((int)(sizeof metrics / sizeof *metrics))

const char *lc_metric_name_at(int i)
{
    return i >= 0 && i < N_METRICS ? metrics[i].name : NULL;
}

static lc_status fill_classification(const char *name, lc_average average, lc_metric_args *o)
{
    if (!o->task) o->task = o->num_classes ? LC_TASK_MULTICLASS : o->num_labels ? LC_TASK_MULTILABEL : LC_TASK_BINARY;
    if (!o->average) o->average = average;
    if (o->task == LC_TASK_MULTICLASS && (o->num_classes < 2 || o->num_classes > INT64_C(1) << 24))
        return lc_fail(LC_ERR_ARGUMENT, "%s: multiclass needs num_classes of at least 2, not %lld", name,
                       (long long)o->num_classes);
    if (o->task == LC_TASK_MULTILABEL && (o->num_labels < 1 || o->num_labels > INT64_C(1) << 24))
        return lc_fail(LC_ERR_ARGUMENT, "%s: multilabel needs num_labels of at least 1, not %lld", name,
                       (long long)o->num_labels);
    if (o->top_k < 1 || (o->task == LC_TASK_MULTICLASS && o->top_k > o->num_classes) ||
        (o->task != LC_TASK_MULTICLASS && o->top_k != 1))
        return lc_fail(LC_ERR_ARGUMENT, "%s: top_k %lld is not valid for the task", name, (long long)o->top_k);
    return LC_OK;
}

lc_status lc_metric_new_with(const char *name, lc_metric **out, const lc_metric_args *args)
{
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    LC__TAKE_IF_GIVEN(o, lc_metric, lc_metric_args, args);
    if (o.num_outputs < 1 || o.num_outputs > INT64_C(1) << 24)
        return lc_fail(LC_ERR_ARGUMENT, "%s: num_outputs %lld is out of range", name, (long long)o.num_outputs);
    if (!(o.beta >= 0)) return lc_fail(LC_ERR_ARGUMENT, "%s: beta must not be negative; it is %g", name, o.beta);
    for (int i = 0; i < N_METRICS; i++)
        if (!strcmp(name, metrics[i].name)) {
            if (metrics[i].classifies) LC_TRY(fill_classification(name, metrics[i].average, &o));
            return metrics[i].make(metrics[i].kind, &o, out);
        }
    char known[600];
    size_t at = 0;
    for (int i = 0; i < N_METRICS && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", metrics[i].name);
    return lc_fail(LC_ERR_NOT_FOUND, "unknown metric '%s'; available: %s", name, known);
}
