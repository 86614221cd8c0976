/* SPDX-License-Identifier: Apache-2.0 */
/* Spearman's correlation: Pearson's of the ranks, where ties have the mean of their ranks. Needs every sample. */
#include "rows.h"

#include <math.h>

typedef struct spearman {
    int64_t outputs;
    rows rows; /* predicted values, then true ones */
} spearman;

static const char name[] = "SpearmanCorrCoef";

static lc_status spearman_update(void *self, const lc_metric_batch *b)
{
    spearman *m = self;
    if ((!b->scores && !b->labels) || (!b->values && !b->targets))
        return lc_fail(LC_ERR_ARGUMENT, "%s needs predicted and true values", name);
    if (b->columns != m->outputs)
        return lc_fail(LC_ERR_SHAPE, "%s expects %lld columns (num_outputs), not %lld", name, (long long)m->outputs,
                       (long long)b->columns);
    if (b->n_targets && b->n_targets != b->n * b->columns)
        return lc_fail(LC_ERR_SHAPE, "%s expects %lld targets, not %lld", name, (long long)(b->n * b->columns),
                       (long long)b->n_targets);
    double *to;
    LC_TRY(rows_grow(&m->rows, b->n, name, &to));
    for (int64_t i = 0; i < b->n; i++, to += m->rows.width)
        for (int64_t c = 0; c < m->outputs; c++) {
            int64_t at = i * m->outputs + c;
            to[c] = b->scores ? b->scores[at] : (double)b->labels[at];
            to[m->outputs + c] = b->values ? b->values[at] : (double)b->targets[at];
        }
    m->rows.n += b->n;
    return LC_OK;
}

static int64_t spearman_outputs(void *self)
{
    return ((spearman *)self)->outputs;
}

typedef struct entry {
    double value;
    int64_t at;
} entry;

static int by_value(const void *a, const void *b)
{
    double x = ((const entry *)a)->value, y = ((const entry *)b)->value;
    return (x > y) - (x < y);
}

/* The ranks of a column, minus their mean. */
static void centered_ranks(const rows *r, int64_t column, entry *sorted, double *ranks)
{
    for (int64_t i = 0; i < r->n; i++) sorted[i] = (entry){r->data[i * r->width + column], i};
    qsort(sorted, (size_t)r->n, sizeof *sorted, by_value);
    for (int64_t i = 0; i < r->n;) {
        int64_t end = i + 1;
        while (end < r->n && sorted[end].value == sorted[i].value) end++;
        for (int64_t j = i; j < end; j++) ranks[sorted[j].at] = 0.5 * (double)(i + end - 1) - 0.5 * (double)(r->n - 1);
        i = end;
    }
}

static lc_status spearman_compute(void *self, double *out)
{
    spearman *m = self;
    int64_t n = m->rows.n;
    if (n == 0) {
        for (int64_t c = 0; c < m->outputs; c++) out[c] = NAN;
        return LC_OK;
    }
    entry *sorted = malloc((size_t)n * sizeof *sorted);
    double *x = malloc((size_t)n * 2 * sizeof *x);
    lc_status status = LC_OK;
    if (!sorted || !x) {
        status = lc_fail(LC_ERR_MEMORY, "%s: out of memory for %lld samples", name, (long long)n);
        goto done;
    }
    for (int64_t c = 0; c < m->outputs; c++) {
        double xx = 0, yy = 0, xy = 0, *y = x + n;
        centered_ranks(&m->rows, c, sorted, x);
        centered_ranks(&m->rows, m->outputs + c, sorted, y);
        for (int64_t i = 0; i < n; i++) {
            xx += x[i] * x[i];
            yy += y[i] * y[i];
            xy += x[i] * y[i];
        }
        /* TorchMetrics' epsilon: without variance the value is 0, not NaN. */
        double r = xy / (double)n / (sqrt(xx / (double)n) * sqrt(yy / (double)n) + 1e-6);
        out[c] = r > 1 ? 1 : r < -1 ? -1 : r;
    }
done:
    free(sorted);
    free(x);
    return status;
}

static void spearman_reset(void *self)
{
    ((spearman *)self)->rows.n = 0;
}

static lc_status spearman_save(void *self, double *data, int64_t *n)
{
    return rows_save(&((spearman *)self)->rows, name, data, n);
}

static lc_status spearman_merge(void *self, const double *data, int64_t n)
{
    return rows_merge(&((spearman *)self)->rows, name, data, n);
}

static void spearman_free(void *self)
{
    free(((spearman *)self)->rows.data);
    free(self);
}

static const lc_metric_ops spearman_ops = {
    LC_METRIC_OPS_INIT,          .name = name,
    .update = spearman_update,   .outputs = spearman_outputs,
    .compute = spearman_compute, .reset = spearman_reset,
    .save = spearman_save,       .merge = spearman_merge,
    .free = spearman_free,
};

lc_status lc__metric_spearman(lc_metric_kind kind, const lc_metric_args *o, lc_metric **out)
{
    (void)kind;
    spearman *m = calloc(1, sizeof *m);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory for metric '%s'", name);
    m->outputs = o->num_outputs;
    m->rows.width = 2 * o->num_outputs;
    return lc_metric_from_ops(&spearman_ops, m, out);
}
