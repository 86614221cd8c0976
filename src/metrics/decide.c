/* SPDX-License-Identifier: Apache-2.0 */
/* From scores to decisions, as TorchMetrics makes them: thresholds on probabilities, logits through a sigmoid first,
 * the best class, or one of the k best. */
#include "metrics_internal.h"

#include <math.h>

bool lc__metric_are_probabilities(const float *scores, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(scores[i] >= 0.0f && scores[i] <= 1.0f)) return false;
    return true;
}

double lc__metric_sigmoid(double x)
{
    return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

lc_status lc__metric_check(const char *name, const lc_metric_args *o, const lc_metric_batch *b)
{
    int64_t classes = o->task == LC_TASK_MULTICLASS ? o->num_classes : 2;
    int64_t columns = o->task == LC_TASK_MULTILABEL                ? o->num_labels
                      : o->task == LC_TASK_MULTICLASS && b->scores ? o->num_classes
                                                                   : 1;
    if (!b->scores && !b->labels) return lc_fail(LC_ERR_ARGUMENT, "%s needs scores or predicted labels", name);
    if (!b->targets) return lc_fail(LC_ERR_ARGUMENT, "%s needs integer targets", name);
    if (b->columns != columns)
        return lc_fail(LC_ERR_SHAPE, "%s expects predictions of %lld columns, not %lld%s", name, (long long)columns,
                       (long long)b->columns,
                       o->task == LC_TASK_BINARY ? " (the task is binary; give num_classes or num_labels)" : "");
    int64_t targets = o->task == LC_TASK_MULTILABEL ? b->n * columns : b->n;
    if (b->n_targets && b->n_targets != targets)
        return lc_fail(LC_ERR_SHAPE, "%s expects %lld targets, not %lld", name, (long long)targets,
                       (long long)b->n_targets);
    for (int64_t i = 0; i < targets; i++)
        if ((b->targets[i] < 0 || b->targets[i] >= classes) && !lc__metric_ignored(o, b->targets[i]))
            return lc_fail(LC_ERR_ARGUMENT, "%s: target %lld of sample %lld is not one of %lld classes", name,
                           (long long)b->targets[i], (long long)(i * b->n / targets), (long long)classes);
    for (int64_t i = 0; b->labels && i < b->n * columns; i++)
        if (b->labels[i] < 0 || b->labels[i] >= classes)
            return lc_fail(LC_ERR_ARGUMENT, "%s: predicted label %lld of sample %lld is not one of %lld classes", name,
                           (long long)b->labels[i], (long long)(i / columns), (long long)classes);
    return LC_OK;
}

/* The first of the largest; a NaN counts as larger than everything, as in PyTorch. */
static int64_t best_of(const float *s, int64_t n)
{
    int64_t best = 0;
    for (int64_t c = 1; c < n; c++)
        if (s[c] > s[best] || (isnan(s[c]) && !isnan(s[best]))) best = c;
    return best;
}

static bool among_best(const float *s, int64_t n, int64_t k, int64_t target)
{
    int64_t better = 0;
    for (int64_t c = 0; c < n; c++) better += s[c] > s[target] || (c < target && s[c] == s[target]);
    return better < k;
}

/* Whether the scores are logits, to which the sigmoid is applied. */
static bool are_logits(const lc_metric_args *o, const lc_metric_batch *b, bool without_ignored)
{
    if (!b->scores) return false;
    for (int64_t i = 0; i < b->n * b->columns; i++)
        if (!(without_ignored && lc__metric_ignored(o, b->targets[i])) &&
            !lc__metric_are_probabilities(b->scores + i, 1))
            return true;
    return false;
}

lc_status lc__metric_decide(const char *name, const lc_metric_args *o, const lc_metric_batch *b, bool removes_ignored,
                            lc__decision_fn *decision, void *ctx)
{
    LC_TRY(lc__metric_check(name, o, b));
    if (o->task == LC_TASK_MULTICLASS) {
        if (o->top_k > 1 && !b->scores) return lc_fail(LC_ERR_ARGUMENT, "%s with top_k needs scores, not labels", name);
        for (int64_t i = 0; i < b->n; i++) {
            int64_t target = b->targets[i], predicted;
            if (lc__metric_ignored(o, target)) continue;
            if (b->labels) {
                predicted = b->labels[i];
            } else {
                const float *s = b->scores + i * b->columns;
                predicted =
                    o->top_k > 1 && among_best(s, b->columns, o->top_k, target) ? target : best_of(s, b->columns);
            }
            decision(ctx, 0, predicted, target);
        }
        return LC_OK;
    }
    /* Comparisons in f32, as in TorchMetrics. */
    const float threshold = (float)o->threshold;
    bool logits = are_logits(o, b, removes_ignored && o->task == LC_TASK_BINARY);
    for (int64_t i = 0; i < b->n; i++)
        for (int64_t l = 0; l < b->columns; l++) {
            int64_t at = i * b->columns + l;
            if (lc__metric_ignored(o, b->targets[at])) continue;
            float s = b->scores ? b->scores[at] : 0.0f;
            if (logits) s = (float)lc__metric_sigmoid(s);
            decision(ctx, l, b->labels ? b->labels[at] : s > threshold, b->targets[at]);
        }
    return LC_OK;
}
