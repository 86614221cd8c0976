/* SPDX-License-Identifier: Apache-2.0 */
/* Areas under curves: AUROC and average precision, exact (without predefined thresholds), so the state holds every
 * sample: a row of its scores (probabilities) and its target or targets; -1 is an ignored label. */
#include "rows.h"

#include <math.h>

typedef struct curve {
    lc_metric_kind kind;
    lc_metric_args o;
    const char *name;
    int64_t k; /* columns of scores */
    rows rows; /* k scores, then one target (multilabel: k) */
} curve;

static lc_status curve_update(void *self, const lc_metric_batch *b)
{
    curve *m = self;
    if (!b->scores) return lc_fail(LC_ERR_ARGUMENT, "%s needs scores, not labels", m->name);
    LC_TRY(lc__metric_check(m->name, &m->o, b));
    double *to;
    LC_TRY(rows_grow(&m->rows, b->n, m->name, &to));
    bool many = m->o.task == LC_TASK_MULTILABEL, logits = false;
    /* Ignored samples are skipped when scores are tested for being logits; ignored labels are not. */
    for (int64_t i = 0; i < b->n && !logits; i++)
        if (many || !lc__metric_ignored(&m->o, b->targets[i]))
            logits = !lc__metric_are_probabilities(b->scores + i * m->k, m->k);
    for (int64_t i = 0; i < b->n; i++) {
        const float *s = b->scores + i * m->k;
        if (!many && lc__metric_ignored(&m->o, b->targets[i])) continue;
        double most = s[0], sum = 0;
        for (int64_t c = 1; c < m->k; c++)
            if (s[c] > most) most = s[c];
        for (int64_t c = 0; c < m->k; c++) sum += exp(s[c] - most);
        /* Rounded to f32, so that ties are those of TorchMetrics. */
        for (int64_t c = 0; c < m->k; c++)
            *to++ = !logits                           ? s[c]
                    : m->o.task == LC_TASK_MULTICLASS ? (float)(exp(s[c] - most) / sum)
                                                      : (float)lc__metric_sigmoid(s[c]);
        for (int64_t c = 0; c < (many ? m->k : 1); c++) {
            int64_t target = b->targets[many ? i * m->k + c : i];
            *to++ = lc__metric_ignored(&m->o, target) ? -1 : (double)target;
        }
        m->rows.n++;
    }
    return LC_OK;
}

static int64_t curve_outputs(void *self)
{
    curve *m = self;
    return m->o.task != LC_TASK_BINARY && m->o.average == LC_AVERAGE_NONE ? m->k : 1;
}

typedef struct pair {
    double score;
    bool positive;
} pair;

static int by_score_descending(const void *a, const void *b)
{
    double x = ((const pair *)a)->score, y = ((const pair *)b)->score;
    return (x < y) - (x > y);
}

/* Sorts the pairs, and iterates over groups of equal scores. Without positives, or negatives, the area is 0. */
static double area(lc_metric_kind kind, pair *p, int64_t n)
{
    double positives = 0, tp = 0, fp = 0, sum = 0;
    qsort(p, (size_t)n, sizeof *p, by_score_descending);
    for (int64_t i = 0; i < n; i++) positives += p[i].positive;
    double negatives = (double)n - positives;
    if (positives == 0 || (kind == LC_METRIC_AUROC && negatives == 0)) return 0;
    for (int64_t i = 0; i < n;) {
        double tp0 = tp, fp0 = fp, score = p[i].score;
        for (; i < n && p[i].score == score; i++) {
            tp += p[i].positive;
            fp += !p[i].positive;
        }
        /* A NaN does not equal itself: the loop would not end. */
        if (tp == tp0 && fp == fp0) return NAN;
        sum += kind == LC_METRIC_AUROC ? (fp - fp0) * (tp + tp0) / 2 : (tp - tp0) * (tp / (tp + fp));
    }
    return kind == LC_METRIC_AUROC ? sum / (positives * negatives) : sum / positives;
}

static lc_status curve_compute(void *self, double *out)
{
    curve *m = self;
    bool many = m->o.task == LC_TASK_MULTILABEL, micro = many && m->o.average == LC_AVERAGE_MICRO;
    int64_t n = m->rows.n, k = m->k;
    if (n == 0) {
        for (int64_t i = 0; i < curve_outputs(m); i++) out[i] = NAN;
        return LC_OK;
    }
    pair *p = malloc((size_t)(n * (micro ? k : 1)) * sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "%s: out of memory for %lld samples", m->name, (long long)n);
    double sum = 0, weights = 0;
    int64_t count = 0;
    bool only_first = false; /* all samples are of class 0 */
    for (int64_t c = 0; c < k; c++) {
        double occurs = 0;
        if (!micro) count = 0;
        for (int64_t i = 0; i < n; i++) {
            const double *row = m->rows.data + i * m->rows.width;
            double target = many ? row[k + c] : row[k];
            if (target < 0) continue;
            bool positive = m->o.task == LC_TASK_MULTICLASS ? target == (double)c : target == 1;
            p[count++] = (pair){row[c], positive};
            occurs += positive;
        }
        if (micro) continue;
        double v = area(m->kind, p, count);
        if (c == 0) only_first = occurs == (double)count;
        /* A class without samples has no recall, and is left out of averages. TorchMetrics takes its recall as 1 if no
         * target is different from 0: then its value is 0. */
        if (m->kind == LC_METRIC_AVERAGE_PRECISION && m->o.task == LC_TASK_MULTICLASS && occurs == 0 && !only_first)
            v = NAN;
        double w = m->o.average == LC_AVERAGE_WEIGHTED ? occurs : 1;
        if (m->o.task == LC_TASK_BINARY || m->o.average == LC_AVERAGE_NONE) {
            out[c] = v;
        } else if (!isnan(v)) {
            sum += w * v;
            weights += w;
        }
    }
    if (micro)
        *out = area(m->kind, p, count);
    else if (m->o.task != LC_TASK_BINARY && m->o.average != LC_AVERAGE_NONE)
        *out = weights != 0 ? sum / weights : m->o.average == LC_AVERAGE_WEIGHTED ? 0 : NAN;
    free(p);
    return LC_OK;
}

static void curve_reset(void *self)
{
    ((curve *)self)->rows.n = 0;
}

static lc_status curve_save(void *self, double *data, int64_t *n)
{
    curve *m = self;
    return rows_save(&m->rows, m->name, data, n);
}

static lc_status curve_merge(void *self, const double *data, int64_t n)
{
    curve *m = self;
    return rows_merge(&m->rows, m->name, data, n);
}

static void curve_free(void *self)
{
    free(((curve *)self)->rows.data);
    free(self);
}

lc_status lc__metric_curve(lc_metric_kind kind, const lc_metric_args *o, lc_metric **out)
{
    const char *name = kind == LC_METRIC_AUROC ? "AUROC" : "AveragePrecision";
    if (o->task == LC_TASK_MULTICLASS && o->average == LC_AVERAGE_MICRO)
        return lc_fail(LC_ERR_UNSUPPORTED, "%s of a multiclass task has no micro average; use macro, weighted or none",
                       name);
    curve *m = calloc(1, sizeof *m);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory for metric '%s'", name);
    m->kind = kind;
    m->o = *o;
    m->name = name;
    m->k = o->task == LC_TASK_MULTICLASS ? o->num_classes : o->task == LC_TASK_MULTILABEL ? o->num_labels : 1;
    m->rows.width = m->k + (o->task == LC_TASK_MULTILABEL ? m->k : 1);
    lc_metric_ops ops = {
        LC_METRIC_OPS_INIT,       .name = name,         .update = curve_update, .outputs = curve_outputs,
        .compute = curve_compute, .reset = curve_reset, .save = curve_save,     .merge = curve_merge,
        .free = curve_free,
    };
    return lc_metric_from_ops(&ops, m, out);
}
