/* SPDX-License-Identifier: Apache-2.0 */
/* The metric handle: checks around the vtable, and the convenient forms of update. */
#include "base/number.h"
#include "base/args.h"
#include "base/float_traps.h"
#include "metrics_internal.h"
#include "base/handle.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct lc_metric {
    lc__mark mark;
    lc_metric_ops ops;
    void *self;
    bool counts; /* since the last reset it was updated, or got another's counts */
};

lc_status lc_metric_from_ops(const lc_metric_ops *ops, void *self, lc_metric **out)
{
    if (out) *out = NULL;
    lc_metric_ops full = {0};
    LC_TRY(lc__ops_take(&full, sizeof full, ops, offsetof(lc_metric_ops, additive), "a metric", "LC_METRIC_OPS_INIT"));
    if (!full.name) full.name = "metric";
    lc_status status = LC_OK;
    lc_metric *m = calloc(1, sizeof *m);
    if (!out)
        status = lc__is_null(__func__, "out");
    else if (!m)
        status = lc_fail(LC_ERR_MEMORY, "out of memory for metric '%s'", full.name);
    else if (!full.update || !full.outputs || !full.compute || !full.reset || !full.save || !full.merge || !full.free)
        status = lc_fail(LC_ERR_ARGUMENT, "metric '%s' lacks one of update, outputs, compute, reset, save, merge, free",
                         full.name);
    if (status < 0 || !m) {
        if (full.free) full.free(self);
        free(m);
        return status;
    }
    m->mark = LC__MARK_OF(METRIC);
    m->ops = full;
    m->self = self;
    full.reset(self);
    *out = m;
    return LC_OK;
}

void lc_metric_free(lc_metric *m)
{
    if (!m) return;
    LC__IS_OR_NULL(m, METRIC, );
    m->ops.free(m->self);
    lc__mark_clear(&m->mark);
    free(m);
}

const char *lc_metric_name(const lc_metric *m)
{
    LC__IS(m, METRIC, "");
    return m->ops.name;
}

/* A metric of the program may return an error without a message. */
static lc_status said(const lc_metric *m, lc_status s, unsigned before)
{
    if (s >= 0 || lc__error_count() != before) return s;
    return lc_fail_context(lc__said(s, before), "metric '%s'", m->ops.name);
}

lc_status lc_metric_update(lc_metric *m, const lc_metric_batch *batch)
{
    LC__WITHOUT_TRAPS();
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    LC__NEEDS(batch, LC_ERR_ARGUMENT);
    LC_TRY(lc__reserved_check(batch->reserved, "lc_metric_batch"));
    if (batch->n < 0 || batch->columns < 1)
        return lc_fail(LC_ERR_ARGUMENT, "%s: invalid batch of %lld samples with %lld columns", m->ops.name,
                       (long long)batch->n, (long long)batch->columns);
    m->counts = true;
    if (batch->n == 0) return LC_OK;
    unsigned before = lc__error_count();
    return said(m, m->ops.update(m->self, batch), before);
}

lc_status lc_metric_update_scores(lc_metric *m, int64_t n, int64_t columns, const float *scores, const int64_t *targets)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    return lc_metric_update(m, &(lc_metric_batch){.n = n, .columns = columns, .scores = scores, .targets = targets});
}

lc_status lc_metric_update_labels(lc_metric *m, int64_t n, const int64_t *labels, const int64_t *targets)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    return lc_metric_update(m, &(lc_metric_batch){.n = n, .columns = 1, .labels = labels, .targets = targets});
}

lc_status lc_metric_update_values(lc_metric *m, int64_t n, const float *predicted, const float *targets)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    return lc_metric_update(m, &(lc_metric_batch){.n = n, .columns = 1, .scores = predicted, .values = targets});
}

lc_status lc_metric_update_value(lc_metric *m, double value, double weight)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    float v = (float)value, w = (float)weight;
    return lc_metric_update(m, &(lc_metric_batch){.n = 1, .columns = 1, .scores = &v, .weights = &w});
}

/* ---- tensors ---- */

/* Reads a tensor as f32 (floats) or i64 (integers) into new memory. */
static lc_status read_as(lc_tensor *t, const char *who, float **floats, int64_t **integers)
{
    lc_dtype dtype = lc_tensor_dtype(t);
    int64_t n = lc_tensor_numel(t);
    lc_status status = LC_OK;
    void *raw = NULL;
    *floats = NULL;
    *integers = NULL;
    if (n < 0 || (uint64_t)n > SIZE_MAX / 16) return lc_fail(LC_ERR_MEMORY, "%s: the tensor is too large", who);
    size_t bytes = (size_t)n * lc_dtype_size(dtype);
    raw = malloc(bytes ? bytes : 1);
    if (!raw) return lc_fail(LC_ERR_MEMORY, "%s: out of memory for %zu bytes", who, bytes);
    LC_TRY_GOTO(status, done, lc_tensor_read(t, raw, bytes));
    if (dtype == LC_F32 || dtype == LC_I64) {
        *(dtype == LC_F32 ? (void **)floats : (void **)integers) = raw;
        return LC_OK;
    }
    void *wide = malloc((size_t)n * 8 + 1);
    if (!wide) {
        status = lc_fail(LC_ERR_MEMORY, "%s: out of memory for %zu bytes", who, (size_t)n * 8);
        goto done;
    }
    if (lc_dtype_is_float(dtype)) {
        *floats = wide;
        for (int64_t i = 0; i < n; i++) (*floats)[i] = (float)lc__number_at(raw, dtype, i);
    } else {
        *integers = wide;
        for (int64_t i = 0; i < n; i++)
            (*integers)[i] = lc__load_integer((const char *)raw + (size_t)i * lc_dtype_size(dtype), dtype);
    }
done:
    free(raw);
    return status;
}

lc_status lc_metric_update_tensor(lc_metric *m, lc_tensor *predicted, lc_tensor *targets)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    lc_status status = LC_OK;
    float *scores = NULL, *values = NULL;
    int64_t *labels = NULL, *wanted = NULL;
    if (lc_tensor_is_error(predicted) || (targets && lc_tensor_is_error(targets)))
        return lc_fail_context(LC_ERR_STATE, "%s: one of the tensors is the result of a failed operation", m->ops.name);
    if (lc_tensor_ndim(predicted) > 2)
        return lc_fail(LC_ERR_SHAPE, "%s takes [N] or [N, columns], not a tensor of %d dimensions; reshape it",
                       m->ops.name, lc_tensor_ndim(predicted));
    lc_metric_batch b = {.n = lc_tensor_ndim(predicted) ? lc_tensor_dim(predicted, 0) : 1,
                         .columns = lc_tensor_ndim(predicted) == 2 ? lc_tensor_dim(predicted, 1) : 1};
    if (targets && lc_tensor_numel(targets) != b.n && lc_tensor_numel(targets) != b.n * b.columns)
        return lc_fail(LC_ERR_SHAPE, "%s: %lld targets do not match %lld predictions of %lld columns", m->ops.name,
                       (long long)lc_tensor_numel(targets), (long long)b.n, (long long)b.columns);
    LC_TRY_GOTO(status, done, read_as(predicted, m->ops.name, &scores, &labels));
    if (targets) LC_TRY_GOTO(status, done, read_as(targets, m->ops.name, &values, &wanted));
    if (wanted && labels && b.columns > 1 && lc_tensor_numel(targets) != b.n * b.columns) {
        status = lc_fail(LC_ERR_SHAPE, "%s: labels and targets must have the same shape", m->ops.name);
        goto done;
    }
    b.scores = scores;
    b.labels = labels;
    b.targets = wanted;
    b.values = values;
    b.n_targets = targets ? lc_tensor_numel(targets) : 0;
    status = lc_metric_update(m, &b);
done:
    free(scores);
    free(values);
    free(labels);
    free(wanted);
    return status;
}

/* ---- values and state ---- */

int64_t lc_metric_outputs(const lc_metric *m)
{
    LC__IS(m, METRIC, 0);
    return m->ops.outputs(m->self);
}

lc_status lc_metric_compute_all(lc_metric *m, double *values, int64_t n)
{
    LC__WITHOUT_TRAPS();
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(values, LC_ERR_ARGUMENT);
    int64_t outputs = m->ops.outputs(m->self);
    if (n != outputs)
        return lc_fail(LC_ERR_ARGUMENT, "%s has %lld values, but there is room for %lld", m->ops.name,
                       (long long)outputs, (long long)n);
    unsigned before = lc__error_count();
    return said(m, m->ops.compute(m->self, values), before);
}

lc_status lc_metric_compute(lc_metric *m, double *value)
{
    LC__WITHOUT_TRAPS();
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    LC__NEEDS(value, LC_ERR_ARGUMENT);
    int64_t outputs = m->ops.outputs(m->self);
    if (outputs != 1)
        return lc_fail(LC_ERR_ARGUMENT, "%s has %lld values; use lc_metric_compute_all", m->ops.name,
                       (long long)outputs);
    unsigned before = lc__error_count();
    return said(m, m->ops.compute(m->self, value), before);
}

void lc_metric_reset(lc_metric *m)
{
    LC__IS(m, METRIC, );
    m->ops.reset(m->self);
    m->counts = false;
}

bool lc__metric_has_counted(const lc_metric *m)
{
    return m->counts;
}

lc_status lc_metric_save(const lc_metric *m, double *data, int64_t *n)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    LC__NEEDS(n, LC_ERR_ARGUMENT);
    unsigned before = lc__error_count();
    return said(m, m->ops.save(m->self, data, n), before);
}

lc_status lc_metric_merge_state(lc_metric *m, const double *data, int64_t n)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(data, LC_ERR_ARGUMENT);
    unsigned before = lc__error_count();
    m->counts = true;
    return said(m, m->ops.merge(m->self, data, n), before);
}

lc_status lc_metric_load(lc_metric *m, const double *data, int64_t n)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    if (n > 0) LC__NEEDS(data, LC_ERR_ARGUMENT);
    m->ops.reset(m->self);
    unsigned before = lc__error_count();
    m->counts = true;
    return said(m, m->ops.merge(m->self, data, n), before);
}

lc_status lc_metric_merge(lc_metric *m, const lc_metric *other)
{
    LC__IS(m, METRIC, LC_ERR_ARGUMENT);
    LC__IS(other, METRIC, LC_ERR_ARGUMENT);
    if (strcmp(m->ops.name, other->ops.name) != 0)
        return lc_fail(LC_ERR_ARGUMENT, "%s cannot be merged with %s", m->ops.name, other->ops.name);
    int64_t n = 0;
    LC_TRY(other->ops.save(other->self, NULL, &n));
    double *data = malloc(((size_t)n + 1) * sizeof *data);
    if (!data)
        return lc_fail(LC_ERR_MEMORY, "%s: out of memory for a state of %lld numbers", m->ops.name, (long long)n);
    lc_status status = other->ops.save(other->self, data, &n);
    if (status == LC_OK) status = m->ops.merge(m->self, data, n);
    m->counts = true;
    free(data);
    return status;
}

bool lc_metric_is_additive(const lc_metric *m)
{
    LC__IS(m, METRIC, false);
    return m->ops.additive;
}

lc_status lc__metric_room(const char *name, const double *data, int64_t *n, int64_t need)
{
    int64_t room = *n;
    *n = need;
    if (data && room < need)
        return lc_fail(LC_ERR_ARGUMENT, "%s: the state has %lld numbers, but there is room for %lld", name,
                       (long long)need, (long long)room);
    return LC_OK;
}
