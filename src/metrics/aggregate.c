/* SPDX-License-Identifier: Apache-2.0 */
/* Plain aggregates of numbers: mean (weighted), sum, max, min. NaN is left out, as TorchMetrics does. */
#include "metrics_internal.h"

#include <math.h>
#include <stdlib.h>

typedef struct aggregate {
    lc_metric_kind kind;
    const char *name;
    double value, weight;
} aggregate;

static void add(aggregate *m, double v, double w)
{
    switch (m->kind) {
    case LC_METRIC_MAX:
        if (v > m->value) m->value = v;
        break;
    case LC_METRIC_MIN:
        if (v < m->value) m->value = v;
        break;
    case LC_METRIC_MEAN:
        m->value += v * w;
        break;
    default:
        m->value += v;
    }
    m->weight += w;
}

static int64_t aggregate_outputs(void *self)
{
    (void)self;
    return 1;
}

static lc_status aggregate_compute(void *self, double *out)
{
    const aggregate *m = self;
    *out = m->kind == LC_METRIC_MEAN ? m->value / m->weight : m->value;
    return LC_OK;
}

static void aggregate_reset(void *self)
{
    aggregate *m = self;
    m->value = m->kind == LC_METRIC_MAX ? -INFINITY : m->kind == LC_METRIC_MIN ? INFINITY : 0;
    m->weight = 0;
}

static lc_status aggregate_save(void *self, double *data, int64_t *n)
{
    const aggregate *m = self;
    LC_TRY(lc__metric_room(m->name, data, n, 2));
    if (data) data[0] = m->value, data[1] = m->weight;
    return LC_OK;
}

static lc_status aggregate_merge(void *self, const double *data, int64_t n)
{
    aggregate *m = self;
    if (n != 2) return lc_fail(LC_ERR_STATE, "%s: the state has %lld numbers, but needs 2", m->name, (long long)n);
    if (m->kind == LC_METRIC_MAX || m->kind == LC_METRIC_MIN) {
        add(m, data[0], data[1]);
    } else {
        m->value += data[0];
        m->weight += data[1];
    }
    return LC_OK;
}

static lc_status aggregate_update(void *self, const lc_metric_batch *b)
{
    aggregate *m = self, batch = *m;
    if (!b->scores && !b->labels) return lc_fail(LC_ERR_ARGUMENT, "%s needs values", m->name);
    aggregate_reset(&batch);
    for (int64_t i = 0; i < b->n * b->columns; i++) {
        double v = b->scores ? b->scores[i] : (double)b->labels[i], w = b->weights ? b->weights[i] : 1;
        if (!isnan(v) && !isnan(w)) add(&batch, v, w);
    }
    return aggregate_merge(m, (const double[]){batch.value, batch.weight}, 2);
}

lc_status lc__metric_aggregate(lc_metric_kind kind, const lc_metric_args *o, lc_metric **out)
{
    (void)o;
    const char *name = kind == LC_METRIC_MEAN  ? "MeanMetric"
                       : kind == LC_METRIC_SUM ? "SumMetric"
                       : kind == LC_METRIC_MAX ? "MaxMetric"
                                               : "MinMetric";
    aggregate *m = calloc(1, sizeof *m);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory for metric '%s'", name);
    m->kind = kind;
    m->name = name;
    lc_metric_ops ops = {
        LC_METRIC_OPS_INIT,
        .name = name,
        .update = aggregate_update,
        .outputs = aggregate_outputs,
        .compute = aggregate_compute,
        .reset = aggregate_reset,
        .save = aggregate_save,
        .merge = aggregate_merge,
        .free = free,
        .additive = kind == LC_METRIC_MEAN || kind == LC_METRIC_SUM,
    };
    return lc_metric_from_ops(&ops, m, out);
}
