/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics that need the whole confusion matrix: the matrix itself, Cohen's kappa, Matthews' correlation. Rows are true
 * classes, columns predicted ones; multilabel has a 2x2 matrix for each label. */
#include "metrics_internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct confusion {
    lc_metric_kind kind;
    lc_metric_args o;
    const char *name;
    int64_t k, matrices;  /* k x k each */
    double *is_true;      /* [k], set by margins() */
    double *is_predicted; /* [k] */
    double state[];
} confusion;

static void decide(void *ctx, int64_t label, int64_t predicted, int64_t target)
{
    confusion *m = ctx;
    m->state[(label * m->k + target) * m->k + predicted]++;
}

static lc_status confusion_update(void *self, const lc_metric_batch *b)
{
    confusion *m = self;
    return lc__metric_decide(m->name, &m->o, b, true, decide, m);
}

static int64_t size_of(const confusion *m)
{
    return m->matrices * m->k * m->k;
}

static int64_t confusion_outputs(void *self)
{
    confusion *m = self;
    return m->kind == LC_METRIC_CONFUSION ? size_of(m) : 1;
}

/* Counts how often each class is true, and how often it is predicted, in the matrices [first, last). */
static void margins(const confusion *m, int64_t first, int64_t last)
{
    for (int64_t i = 0; i < m->k; i++) {
        m->is_true[i] = m->is_predicted[i] = 0;
        for (int64_t l = first; l < last; l++)
            for (int64_t j = 0; j < m->k; j++) {
                m->is_true[i] += m->state[(l * m->k + i) * m->k + j];
                m->is_predicted[i] += m->state[(l * m->k + j) * m->k + i];
            }
    }
}

static void matrix(const confusion *m, double *out)
{
    int64_t k = m->k;
    memcpy(out, m->state, (size_t)size_of(m) * sizeof *out);
    for (int64_t l = 0; l < m->matrices && m->o.normalize; l++) {
        double *c = out + l * k * k, all = 0;
        const double *raw = m->state + l * k * k;
        for (int64_t i = 0; i < k * k; i++) all += raw[i];
        margins(m, l, l + 1);
        for (int64_t t = 0; t < k; t++)
            for (int64_t p = 0; p < k; p++) {
                double sum = m->o.normalize == LC_NORMALIZE_TRUE   ? m->is_true[t]
                             : m->o.normalize == LC_NORMALIZE_PRED ? m->is_predicted[p]
                                                                   : all;
                c[t * k + p] = sum != 0.0 ? raw[t * k + p] / sum : 0.0;
            }
    }
}

/* Errors are weighted by the distance of the classes. */
static double weighted_kappa(const confusion *m, double all)
{
    double seen = 0, chance = 0;
    for (int64_t i = 0; i < m->k; i++)
        for (int64_t j = 0; j < m->k; j++) {
            double far = fabs((double)(i - j)), weight = m->o.kappa_weights == 1 ? far : far * far;
            seen += weight * m->state[i * m->k + j];
            chance += weight * m->is_true[i] * m->is_predicted[j] / all;
        }
    return 1 - seen / chance;
}

static double kappa(const confusion *m)
{
    double all = 0, same = 0, chance = 0;
    margins(m, 0, m->matrices);
    for (int64_t i = 0; i < m->k; i++) {
        all += m->is_true[i];
        same += m->state[i * m->k + i];
        chance += m->is_true[i] * m->is_predicted[i];
    }
    if (m->o.kappa_weights) return weighted_kappa(m, all);
    chance /= all;
    return 1 - (all - same) / (all - chance);
}

static double matthews(const confusion *m)
{
    double all = 0, same = 0, tp = 0, pp = 0, tt = 0;
    margins(m, 0, m->matrices);
    for (int64_t i = 0; i < m->k; i++) {
        double t = m->is_true[i], p = m->is_predicted[i];
        all += t;
        for (int64_t l = 0; l < m->matrices; l++) same += m->state[(l * m->k + i) * m->k + i];
        tp += t * p;
        pp += p * p;
        tt += t * t;
    }
    double numerator = same * all - tp, denominator = (all * all - pp) * (all * all - tt);
    if (m->k == 2) {
        double c[4] = {0};
        for (int64_t l = 0; l < m->matrices; l++)
            for (int i = 0; i < 4; i++) c[i] += m->state[l * 4 + i];
        double right = c[0] + c[3], wrong = c[1] + c[2];
        if (right != 0 && wrong == 0) return 1;
        if (right == 0 && wrong != 0) return -1;
        if (denominator == 0) {
            /* One class never occurs or is never predicted: TorchMetrics takes the limit. */
            double eps = FLT_EPSILON, a = 0, b = 0;
            if (c[3] == 0 || c[0] == 0) a = right;
            if (c[1] == 0 || c[2] == 0) b = wrong;
            numerator = sqrt(eps) * (a - b);
            denominator = (c[3] + c[1] + eps) * (c[3] + c[2] + eps) * (c[0] + c[1] + eps) * (c[0] + c[2] + eps);
        }
    }
    return denominator == 0 ? 0 : numerator / sqrt(denominator);
}

static lc_status confusion_compute(void *self, double *out)
{
    confusion *m = self;
    if (m->kind == LC_METRIC_CONFUSION)
        matrix(m, out);
    else
        *out = m->kind == LC_METRIC_KAPPA ? kappa(m) : matthews(m);
    return LC_OK;
}

static void confusion_reset(void *self)
{
    confusion *m = self;
    memset(m->state, 0, (size_t)size_of(m) * sizeof *m->state);
}

static lc_status confusion_save(void *self, double *data, int64_t *n)
{
    confusion *m = self;
    LC_TRY(lc__metric_room(m->name, data, n, size_of(m)));
    if (data) memcpy(data, m->state, (size_t)*n * sizeof *data);
    return LC_OK;
}

static lc_status confusion_merge(void *self, const double *data, int64_t n)
{
    confusion *m = self;
    if (n != size_of(m))
        return lc_fail(LC_ERR_STATE, "%s: the state has %lld numbers, but needs %lld", m->name, (long long)n,
                       (long long)size_of(m));
    for (int64_t i = 0; i < n; i++) m->state[i] += data[i];
    return LC_OK;
}

lc_status lc__metric_confusion(lc_metric_kind kind, const lc_metric_args *o, lc_metric **out)
{
    const char *name = kind == LC_METRIC_CONFUSION ? "ConfusionMatrix"
                       : kind == LC_METRIC_KAPPA   ? "CohenKappa"
                                                   : "MatthewsCorrCoef";
    int64_t k = o->task == LC_TASK_MULTICLASS ? o->num_classes : 2;
    int64_t matrices = o->task == LC_TASK_MULTILABEL ? o->num_labels : 1;
    if (kind == LC_METRIC_KAPPA && o->task == LC_TASK_MULTILABEL)
        return lc_fail(LC_ERR_UNSUPPORTED, "%s supports binary and multiclass tasks only", name);
    if (o->kappa_weights < 0 || o->kappa_weights > 2 || (unsigned)o->normalize > LC_NORMALIZE_ALL)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: kappa_weights must be 0, 1 or 2 (not %d), and normalize a value of lc_normalize (not %d)",
                       name, o->kappa_weights, (int)o->normalize);
    if (k > 16384)
        return lc_fail(LC_ERR_ARGUMENT, "%s: a matrix of %lld x %lld is too large; at most 16384 classes", name,
                       (long long)k, (long long)k);
    confusion *m = malloc(sizeof *m + (size_t)(matrices * k * k + 2 * k) * sizeof m->state[0]);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory for metric '%s'", name);
    *m = (confusion){.kind = kind, .o = *o, .name = name, .k = k, .matrices = matrices};
    m->is_true = m->state + size_of(m);
    m->is_predicted = m->is_true + k;
    lc_metric_ops ops = {
        LC_METRIC_OPS_INIT,
        .name = name,
        .update = confusion_update,
        .outputs = confusion_outputs,
        .compute = confusion_compute,
        .reset = confusion_reset,
        .save = confusion_save,
        .merge = confusion_merge,
        .free = free,
        .additive = true,
    };
    return lc_metric_from_ops(&ops, m, out);
}
