/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics of regression: errors, R2, explained variance, Pearson's correlation. Sums are kept in f64. Pearson's state
 * holds means and centered sums (merged by Chan's formula), because raw sums would cancel. */
#include "metrics_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 6 /* numbers per output */
/* Errors: count, sum. R2: count, residual sum of squares, sum and sum of squares of targets. Explained variance: count,
 * sum and sum of squares of errors, of targets. Pearson: count, two means, three centered sums. */

typedef struct regression {
    lc_metric_kind kind;
    const char *name;
    int64_t outputs;
    bool root, raw;
    double state[]; /* [outputs, WIDTH], and room for the state of a batch */
} regression;

static double predicted_at(const lc_metric_batch *b, int64_t i)
{
    return b->scores ? b->scores[i] : (double)b->labels[i];
}

static double target_at(const lc_metric_batch *b, int64_t i)
{
    return b->values ? b->values[i] : (double)b->targets[i];
}

static bool one_value(const regression *m)
{
    return (m->kind == LC_METRIC_R2 || m->kind == LC_METRIC_EXPLAINED_VARIANCE) && !m->raw;
}

static int64_t regression_outputs(void *self)
{
    regression *m = self;
    return one_value(m) ? 1 : m->outputs;
}

/* 1 - a/b, where 0/0 scores 1 and x/0 scores 0. */
static double one_minus(double a, bool a_is_0, double b, bool b_is_0)
{
    return a_is_0 ? 1 : b_is_0 ? 0 : 1 - a / b;
}

static double value(const regression *m, const double *s)
{
    double n = s[0];
    switch (m->kind) {
    case LC_METRIC_MSE:
        return m->root ? sqrt(s[1] / n) : s[1] / n;
    case LC_METRIC_MAE:
        return s[1] / n;
    case LC_METRIC_R2: {
        double total = s[3] - s[2] * (s[2] / n);
        return one_minus(s[1], fabs(s[1]) <= 1e-4, total, fabs(total) <= 1e-4);
    }
    case LC_METRIC_EXPLAINED_VARIANCE: {
        double of_errors = s[2] / n - (s[1] / n) * (s[1] / n), of_targets = s[4] / n - (s[3] / n) * (s[3] / n);
        return one_minus(of_errors, fabs(of_errors) <= 1e-14 * (s[2] / n), of_targets,
                         fabs(of_targets) <= 1e-14 * (s[4] / n));
    }
    default: {
        double r = s[5] / (sqrt(s[3]) * sqrt(s[4]));
        return r > 1 ? 1 : r < -1 ? -1 : r;
    }
    }
}

static lc_status regression_compute(void *self, double *out)
{
    regression *m = self;
    double sum = 0;
    for (int64_t i = 0; i < m->outputs; i++) {
        const double *s = m->state + i * WIDTH;
        if (m->kind == LC_METRIC_R2 && s[0] < 2)
            return lc_fail(LC_ERR_STATE, "%s needs at least two samples, got %g", m->name, s[0]);
        double v = value(m, s);
        if (!one_value(m)) out[i] = v;
        sum += v;
    }
    if (one_value(m)) *out = sum / (double)m->outputs;
    return LC_OK;
}

static void regression_reset(void *self)
{
    regression *m = self;
    memset(m->state, 0, (size_t)(m->outputs * WIDTH) * sizeof *m->state);
}

static lc_status regression_save(void *self, double *data, int64_t *n)
{
    regression *m = self;
    LC_TRY(lc__metric_room(m->name, data, n, m->outputs * WIDTH));
    if (data) memcpy(data, m->state, (size_t)*n * sizeof *data);
    return LC_OK;
}

static lc_status regression_merge(void *self, const double *data, int64_t n)
{
    regression *m = self;
    if (n != m->outputs * WIDTH)
        return lc_fail(LC_ERR_STATE, "%s: the state has %lld numbers, but needs %lld", m->name, (long long)n,
                       (long long)(m->outputs * WIDTH));
    for (int64_t i = 0; i < m->outputs; i++) {
        double *a = m->state + i * WIDTH;
        const double *b = data + i * WIDTH;
        if (m->kind != LC_METRIC_PEARSON) {
            for (int j = 0; j < WIDTH; j++) a[j] += b[j];
            continue;
        }
        if (b[0] == 0) continue;
        if (a[0] == 0) { /* loading into an empty state is exact, bit for bit */
            memcpy(a, b, WIDTH * sizeof *a);
            continue;
        }
        double all = a[0] + b[0];
        double dx = b[1] - a[1], dy = b[2] - a[2], both = a[0] * b[0] / all;
        a[1] += dx * b[0] / all;
        a[2] += dy * b[0] / all;
        a[3] += b[3] + dx * dx * both;
        a[4] += b[4] + dy * dy * both;
        a[5] += b[5] + dx * dy * both;
        a[0] = all;
    }
    return LC_OK;
}

static lc_status regression_update(void *self, const lc_metric_batch *b)
{
    regression *m = self;
    bool flat = m->outputs == 1 && (m->kind == LC_METRIC_MSE || m->kind == LC_METRIC_MAE);
    if ((!b->scores && !b->labels) || (!b->values && !b->targets))
        return lc_fail(LC_ERR_ARGUMENT, "%s needs predicted and true values", m->name);
    if (!flat && b->columns != m->outputs)
        return lc_fail(LC_ERR_SHAPE, "%s expects %lld columns (num_outputs), not %lld", m->name, (long long)m->outputs,
                       (long long)b->columns);
    if (b->n_targets && b->n_targets != b->n * b->columns)
        return lc_fail(LC_ERR_SHAPE, "%s expects %lld targets, not %lld", m->name, (long long)(b->n * b->columns),
                       (long long)b->n_targets);
    double *batch = m->state + m->outputs * WIDTH;
    memset(batch, 0, (size_t)(m->outputs * WIDTH) * sizeof *batch);
    for (int64_t i = 0; i < b->n * b->columns; i++) {
        double *s = batch + (flat ? 0 : i % m->outputs) * WIDTH;
        double x = predicted_at(b, i), y = target_at(b, i);
        s[0]++;
        switch (m->kind) {
        case LC_METRIC_MSE:
            s[1] += (x - y) * (x - y);
            break;
        case LC_METRIC_MAE:
            s[1] += fabs(x - y);
            break;
        case LC_METRIC_R2:
            s[1] += (x - y) * (x - y);
            s[2] += y;
            s[3] += y * y;
            break;
        case LC_METRIC_EXPLAINED_VARIANCE:
            s[1] += y - x;
            s[2] += (y - x) * (y - x);
            s[3] += y;
            s[4] += y * y;
            break;
        default: {
            double dx = x - s[1], dy = y - s[2];
            s[1] += dx / s[0];
            s[2] += dy / s[0];
            s[3] += dx * (x - s[1]);
            s[4] += dy * (y - s[2]);
            s[5] += dx * (y - s[2]);
        }
        }
    }
    return regression_merge(m, batch, m->outputs * WIDTH);
}

lc_status lc__metric_regression(lc_metric_kind kind, const lc_metric_args *o, lc_metric **out)
{
    const char *name = kind == LC_METRIC_MSE                  ? "MeanSquaredError"
                       : kind == LC_METRIC_MAE                ? "MeanAbsoluteError"
                       : kind == LC_METRIC_R2                 ? "R2Score"
                       : kind == LC_METRIC_EXPLAINED_VARIANCE ? "ExplainedVariance"
                                                              : "PearsonCorrCoef";
    regression *m = malloc(sizeof *m + (size_t)(2 * o->num_outputs * WIDTH) * sizeof m->state[0]);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory for metric '%s'", name);
    *m = (regression){
        .kind = kind, .name = name, .outputs = o->num_outputs, .root = o->not_squared, .raw = o->raw_values};
    lc_metric_ops ops = {
        LC_METRIC_OPS_INIT,
        .name = name,
        .update = regression_update,
        .outputs = regression_outputs,
        .compute = regression_compute,
        .reset = regression_reset,
        .save = regression_save,
        .merge = regression_merge,
        .free = free,
        .additive = kind != LC_METRIC_PEARSON,
    };
    return lc_metric_from_ops(&ops, m, out);
}
