/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics made of true and false positives and negatives per class: accuracy, precision, recall, F, specificity,
 * Jaccard, Hamming. State: for each class (one for binary, each label for multilabel) how often it was predicted
 * correctly, predicted, true, and counted. */
#include "metrics_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RIGHT, PREDICTED, TRUE, SEEN, N_COUNTS };

typedef struct counts {
    lc_metric_kind kind;
    lc_metric_args o;
    const char *name;
    int64_t k;      /* classes or labels */
    double state[]; /* [N_COUNTS, k] */
} counts;

static void decide_class(void *ctx, int64_t label, int64_t predicted, int64_t target)
{
    counts *m = ctx;
    (void)label;
    m->state[RIGHT * m->k + target] += predicted == target;
    m->state[PREDICTED * m->k + predicted]++;
    m->state[TRUE * m->k + target]++;
}

static void decide_label(void *ctx, int64_t label, int64_t predicted, int64_t target)
{
    counts *m = ctx;
    m->state[RIGHT * m->k + label] += predicted && target;
    m->state[PREDICTED * m->k + label] += predicted != 0;
    m->state[TRUE * m->k + label] += target != 0;
    m->state[SEEN * m->k + label]++;
}

static lc_status counts_update(void *self, const lc_metric_batch *b)
{
    counts *m = self;
    return lc__metric_decide(m->name, &m->o, b, m->kind == LC_METRIC_JACCARD,
                             m->o.task == LC_TASK_MULTICLASS ? decide_class : decide_label, m);
}

static int64_t counts_outputs(void *self)
{
    counts *m = self;
    return m->o.task != LC_TASK_BINARY && m->o.average == LC_AVERAGE_NONE ? m->k : 1;
}

typedef struct cell {
    double tp, fp, fn, tn;
} cell;

static double divide(double a, double b, double otherwise)
{
    return b != 0.0 ? a / b : otherwise;
}

static double score(const counts *m, const cell *c)
{
    const double z = m->o.zero_division;
    bool one_of_many = m->o.task == LC_TASK_MULTICLASS;
    switch (m->kind) {
    case LC_METRIC_PRECISION:
        return divide(c->tp, c->tp + c->fp, z);
    case LC_METRIC_RECALL:
        return divide(c->tp, c->tp + c->fn, z);
    case LC_METRIC_F1:
    case LC_METRIC_FBETA: {
        double b2 = m->kind == LC_METRIC_F1 ? 1.0 : m->o.beta * m->o.beta;
        return divide((1 + b2) * c->tp, (1 + b2) * c->tp + b2 * c->fn + c->fp, z);
    }
    case LC_METRIC_SPECIFICITY:
        return divide(c->tn, c->tn + c->fp, 0);
    case LC_METRIC_JACCARD:
        return divide(c->tp, c->tp + c->fp + c->fn, z);
    case LC_METRIC_HAMMING:
        return 1 - (one_of_many ? divide(c->tp, c->tp + c->fn, 0)
                                : divide(c->tp + c->tn, c->tp + c->tn + c->fp + c->fn, 0));
    default:
        return one_of_many ? divide(c->tp, c->tp + c->fn, 0) : divide(c->tp + c->tn, c->tp + c->tn + c->fp + c->fn, 0);
    }
}

/* Weight of a class in an average. A class that neither occurs nor was predicted has weight 0 in a macro average; with
 * top_k, TorchMetrics checks only the targets in three of the metrics. */
static double weight(const counts *m, int64_t i, const cell *c)
{
    bool one_of_many = m->o.task == LC_TASK_MULTICLASS;
    if (m->o.average == LC_AVERAGE_WEIGHTED) return c->tp + c->fn;
    if (!one_of_many) return 1;
    if (m->kind == LC_METRIC_JACCARD && i == m->o.ignore_index) return 0;
    bool of_targets = m->o.top_k > 1 &&
                      (m->kind == LC_METRIC_ACCURACY || m->kind == LC_METRIC_PRECISION || m->kind == LC_METRIC_RECALL);
    return c->tp + c->fn + (of_targets ? 0 : c->fp) != 0 ? 1 : 0;
}

static lc_status counts_compute(void *self, double *out)
{
    counts *m = self;
    const double *s = m->state;
    double all = 0, sum = 0, weights = 0;
    cell total = {0};
    for (int64_t i = 0; i < m->k; i++) all += s[TRUE * m->k + i];
    for (int64_t i = 0; i < m->k; i++) {
        cell c = {.tp = s[RIGHT * m->k + i]};
        c.fp = s[PREDICTED * m->k + i] - c.tp;
        c.fn = s[TRUE * m->k + i] - c.tp;
        c.tn = (m->o.task == LC_TASK_MULTICLASS ? all : s[SEEN * m->k + i]) - c.tp - c.fp - c.fn;
        double v = score(m, &c), w = weight(m, i, &c);
        if (m->o.task == LC_TASK_BINARY || m->o.average == LC_AVERAGE_NONE) out[i] = v;
        sum += w * v;
        weights += w;
        /* Samples of an ignored class were skipped; predictions of that class still count, except for Jaccard. */
        if (m->kind == LC_METRIC_JACCARD && m->o.task == LC_TASK_MULTICLASS && i == m->o.ignore_index) continue;
        total.tp += c.tp, total.fp += c.fp, total.fn += c.fn, total.tn += c.tn;
    }
    if (m->o.task == LC_TASK_BINARY || m->o.average == LC_AVERAGE_NONE) return LC_OK;
    if (m->o.average == LC_AVERAGE_MICRO)
        *out = score(m, &total);
    else
        *out = m->kind == LC_METRIC_JACCARD ? sum / weights : divide(sum, weights, 0);
    return LC_OK;
}

static void counts_reset(void *self)
{
    counts *m = self;
    memset(m->state, 0, (size_t)(N_COUNTS * m->k) * sizeof *m->state);
}

static lc_status counts_save(void *self, double *data, int64_t *n)
{
    counts *m = self;
    LC_TRY(lc__metric_room(m->name, data, n, N_COUNTS * m->k));
    if (data) memcpy(data, m->state, (size_t)*n * sizeof *data);
    return LC_OK;
}

static lc_status counts_merge(void *self, const double *data, int64_t n)
{
    counts *m = self;
    if (n != N_COUNTS * m->k)
        return lc_fail(LC_ERR_STATE, "%s: the state has %lld numbers, but needs %lld", m->name, (long long)n,
                       (long long)(N_COUNTS * m->k));
    for (int64_t i = 0; i < n; i++) m->state[i] += data[i];
    return LC_OK;
}

lc_status lc__metric_counts(lc_metric_kind kind, const lc_metric_args *o, lc_metric **out)
{
    static const char *const names[] = {
        [LC_METRIC_ACCURACY] = "Accuracy",    [LC_METRIC_PRECISION] = "Precision",
        [LC_METRIC_RECALL] = "Recall",        [LC_METRIC_FBETA] = "FBetaScore",
        [LC_METRIC_F1] = "F1Score",           [LC_METRIC_SPECIFICITY] = "Specificity",
        [LC_METRIC_JACCARD] = "JaccardIndex", [LC_METRIC_HAMMING] = "HammingDistance",
    };
    int64_t k = o->task == LC_TASK_MULTICLASS ? o->num_classes : o->task == LC_TASK_MULTILABEL ? o->num_labels : 1;
    counts *m = malloc(sizeof *m + (size_t)(N_COUNTS * k) * sizeof m->state[0]);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory for metric '%s'", names[kind]);
    *m = (counts){.kind = kind, .o = *o, .name = names[kind], .k = k};
    lc_metric_ops ops = {
        LC_METRIC_OPS_INIT,        .name = names[kind],       .update = counts_update,
        .outputs = counts_outputs, .compute = counts_compute, .reset = counts_reset,
        .save = counts_save,       .merge = counts_merge,     .free = free,
        .additive = true,
    };
    return lc_metric_from_ops(&ops, m, out);
}
