/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics: the value after all batches of every case of metrics.json. Pass: within 1e-5. With a precision, scores are
 * results of a step in it; if it stores 16 bits, the recording is of other numbers, and what the metric makes of the
 * rounded ones as arrays is compared. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of nested lists, in order. */
typedef struct numbers {
    double *values;
    int64_t n, room;
} numbers;

static bool flatten(const cJSON *json, numbers *out)
{
    if (cJSON_IsArray(json)) {
        const cJSON *e;
        cJSON_ArrayForEach(e, json) if (!flatten(e, out)) return false;
        return true;
    }
    if (out->n == out->room) {
        out->room = out->room ? 2 * out->room : 256;
        double *more = realloc(out->values, (size_t)out->room * sizeof *more);
        if (!more) return false;
        out->values = more;
    }
    out->values[out->n++] = json_value(json);
    return true;
}

static lc_status read_options(const cJSON *args, lc_metric_args *o)
{
    const char *task = json_text(args, "task", "");
    o->task = !strcmp(task, "binary")       ? LC_TASK_BINARY
              : !strcmp(task, "multilabel") ? LC_TASK_MULTILABEL
                                            : LC_TASK_MULTICLASS;
    const char *average = json_text(args, "average", NULL);
    static const struct {
        const char *name;
        lc_average average;
    } averages[] = {{"micro", LC_AVERAGE_MICRO},
                    {"macro", LC_AVERAGE_MACRO},
                    {"weighted", LC_AVERAGE_WEIGHTED},
                    {"none", LC_AVERAGE_NONE}};
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(args, "average"))) o->average = LC_AVERAGE_NONE;
    for (size_t i = 0; average && i < sizeof averages / sizeof averages[0]; i++)
        if (!strcmp(average, averages[i].name)) o->average = averages[i].average;
    o->num_classes = (int64_t)json_number(args, "num_classes", 0);
    o->num_labels = (int64_t)json_number(args, "num_labels", 0);
    o->num_outputs = (int64_t)json_number(args, "num_outputs", 1);
    o->top_k = (int64_t)json_number(args, "top_k", 1);
    o->threshold = json_number(args, "threshold", 0.5);
    if (json_has(args, "ignore_index")) o->ignore_index = (int64_t)json_number(args, "ignore_index", 0);
    o->beta = json_number(args, "beta", 1);
    o->zero_division = json_number(args, "zero_division", 0);
    o->not_squared = json_number(args, "squared", 1) == 0;
    const char *outputs = json_text(args, "multioutput", "uniform_average");
    o->raw_values = !strcmp(outputs, "raw_values");
    if (strcmp(outputs, "uniform_average") && !o->raw_values)
        return lc_fail(LC_ERR_UNSUPPORTED, "multioutput=\"%s\" is unknown", outputs);
    const char *normalize = json_text(args, "normalize", "none");
    o->normalize = !strcmp(normalize, "true")   ? LC_NORMALIZE_TRUE
                   : !strcmp(normalize, "pred") ? LC_NORMALIZE_PRED
                   : !strcmp(normalize, "all")  ? LC_NORMALIZE_ALL
                                                : LC_NORMALIZE_NONE;
    if (strcmp(normalize, "none") && !o->normalize)
        return lc_fail(LC_ERR_UNSUPPORTED, "normalize=\"%s\" is unknown", normalize);
    const char *weights = json_text(args, "weights", "none");
    o->kappa_weights = !strcmp(weights, "linear") ? 1 : !strcmp(weights, "quadratic") ? 2 : 0;
    if (strcmp(weights, "none") && !o->kappa_weights)
        return lc_fail(LC_ERR_UNSUPPORTED, "weights=\"%s\" is unknown", weights);
    return LC_OK;
}

/* The lists as floats and as integers, for whichever the metric accepts. */
typedef struct column {
    float *real;
    int64_t *whole;
} column;

static lc_status read_column(const cJSON *json, int64_t *n, column *out)
{
    numbers list = {0};
    lc_status status = LC_OK;
    if (!flatten(json, &list)) status = lc_fail(LC_ERR_MEMORY, "out of memory");
    out->real = calloc((size_t)list.n + 1, sizeof *out->real);
    out->whole = calloc((size_t)list.n + 1, sizeof *out->whole);
    if (!out->real || !out->whole) status = lc_fail(LC_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; status == LC_OK && i < list.n; i++) {
        out->real[i] = (float)list.values[i];
        out->whole[i] = (int64_t)list.values[i];
    }
    *n = list.n;
    free(list.values);
    return status;
}

/* The distribution of the recorded numbers: "n", "u", "b", "i5"; "" if there are none. */
static const char *kind_of(const cJSON *json, const char *key)
{
    const cJSON *kind = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(json, key), 0);
    return cJSON_IsString(kind) ? kind->valuestring : "";
}

/* Where a metric gets its batches from. */
typedef struct source {
    lc_graph *g;      /* a step of it; NULL: from arrays */
    lc_dtype rounded; /* 0, or the type that scores are rounded to */
} source;

static lc_status input_of(lc_dtype dtype, const int64_t *shape, int ndim, const void *data, lc_tensor **out)
{
    LC_TRY(lc_tensor_new(dtype, ndim, shape, out));
    return lc_tensor_write(*out, data, (size_t)lc_tensor_numel(*out) * lc_dtype_size(dtype));
}

/* The batch as tensors of a step. */
static lc_status update_in_step(lc_metric *m, lc_graph *g, const lc_metric_batch *b, int64_t n_targets)
{
    lc_tensor *predicted = NULL, *targets = NULL;
    const int64_t shape[] = {b->n, b->columns};
    lc_status status, ended;
    LC_TRY_GOTO(status, done, lc_step_begin(g, 0, 0));
    LC_TRY_GOTO(
        status, end,
        input_of(b->scores ? LC_F32 : LC_I64, shape, 2, b->scores ? (const void *)b->scores : b->labels, &predicted));
    if (b->targets || b->values)
        LC_TRY_GOTO(status, end,
                    input_of(b->values ? LC_F32 : LC_I64, &n_targets, 1,
                             b->values ? (const void *)b->values : b->targets, &targets));
    status = lc_metric_update_tensor(m, b->scores ? lc_mul_scalar(predicted, 1) : predicted, targets);
end:
    ended = lc_step_end(g);
    if (status == LC_OK) status = ended;
done:
    lc_tensor_unref(predicted);
    lc_tensor_unref(targets);
    return status;
}

/* [n, columns, inner] to [n, inner, columns]. */
static lc_status move_last(column *list, int64_t n, int64_t columns, int64_t inner)
{
    size_t total = (size_t)(n * columns * inner);
    column moved = {calloc(total + 1, sizeof *moved.real), calloc(total + 1, sizeof *moved.whole)};
    bool fits = moved.real && moved.whole;
    for (int64_t i = 0; fits && i < n; i++)
        for (int64_t c = 0; c < columns; c++)
            for (int64_t k = 0; k < inner; k++) {
                int64_t from = (i * columns + c) * inner + k, to = (i * inner + k) * columns + c;
                moved.real[to] = list->real[from];
                moved.whole[to] = list->whole[from];
            }
    column old = fits ? *list : moved;
    if (fits) *list = moved;
    free(old.real);
    free(old.whole);
    return fits ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory");
}

/* TorchMetrics' classification takes samples of several dimensions: [N,*], or with scores and labels [N,C,*]. */
static lc_status fold(const cJSON *json, int ndim, const int64_t *shape, bool labels, column *preds, column *target,
                      lc_metric_batch *b)
{
    const char *task = json_text(cJSON_GetObjectItemCaseSensitive(json, "args"), "task", "");
    bool many = !strcmp(task, "multilabel"), alone = !strcmp(task, "binary") || (labels && !many);
    if (!*task || ndim < (alone ? 2 : 3)) return LC_OK;
    int64_t total = b->n * b->columns;
    b->columns = alone ? 1 : shape[1];
    int64_t inner = alone ? 1 : total / (shape[0] * shape[1]);
    b->n = total / b->columns;
    if (alone) return LC_OK;
    LC_TRY(move_last(preds, shape[0], shape[1], inner));
    return many ? move_last(target, shape[0], shape[1], inner) : LC_OK;
}

static lc_status update(lc_metric *m, const cJSON *json, const cJSON *data, const source *from)
{
    column preds = {0}, target = {0};
    int64_t n = 0, n_targets = 0, shape[LC_MAX_DIMS] = {0};
    lc_status status;
    bool labels = kind_of(json, "preds")[0] == 'i';
    bool classes = kind_of(json, "target")[0] == 'i' || json_number(json, "long_target", 0) != 0;
    LC_TRY_GOTO(status, done, read_column(cJSON_GetObjectItemCaseSensitive(data, "preds"), &n, &preds));
    for (int64_t i = 0; i < n && from->rounded; i++)
        preds.real[i] = (float)check_rounded(from->rounded, (double)preds.real[i]);
    lc_metric_batch b = {.n = n, .columns = 1};
    int ndim = json_ints(data, "preds_shape", LC_MAX_DIMS, shape);
    if (ndim > 1) {
        b.n = shape[0];
        b.columns = shape[0] ? n / shape[0] : 1;
    }
    if (json_has(data, "target"))
        LC_TRY_GOTO(status, done, read_column(cJSON_GetObjectItemCaseSensitive(data, "target"), &n_targets, &target));
    if (n && n_targets) LC_TRY_GOTO(status, done, fold(json, ndim, shape, labels, &preds, &target, &b));
    if (labels)
        b.labels = preds.whole;
    else
        b.scores = preds.real;
    if (target.real) {
        if (classes)
            b.targets = target.whole;
        else
            b.values = target.real;
    }
    status = from->g ? update_in_step(m, from->g, &b, n_targets) : lc_metric_update(m, &b);
done:
    free(preds.real);
    free(preds.whole);
    free(target.real);
    free(target.whole);
    return status;
}

/* TorchMetrics' R2Score and ExplainedVariance take the number of outputs from the first batch. */
static void take_outputs(const cJSON *json, lc_metric_args *o)
{
    const char *name = json_text(json, "class", "?");
    int64_t shape[LC_MAX_DIMS] = {0};
    const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(json, "data"), 0);
    if (strcmp(name, "R2Score") && strcmp(name, "ExplainedVariance")) return;
    if (json_ints(first, "preds_shape", LC_MAX_DIMS, shape) == 2) o->num_outputs = shape[1];
}

/* The value after all batches. */
static lc_status compute(const cJSON *json, const source *from, numbers *out)
{
    lc_metric_args options = lc_metric_defaults();
    lc_metric *m = NULL;
    lc_status status;
    const cJSON *data;
    LC_TRY_GOTO(status, done, read_options(cJSON_GetObjectItemCaseSensitive(json, "args"), &options));
    take_outputs(json, &options);
    LC_TRY_GOTO(status, done, lc_metric_new_with(json_text(json, "class", "?"), &m, &options));
    cJSON_ArrayForEach(data, cJSON_GetObjectItemCaseSensitive(json, "data"))
        LC_TRY_GOTO(status, done, update(m, json, data, from));
    out->n = lc_metric_outputs(m);
    out->values = calloc((size_t)out->n + 1, sizeof *out->values);
    status = out->values ? lc_metric_compute_all(m, out->values, out->n) : lc_fail(LC_ERR_MEMORY, "out of memory");
done:
    lc_metric_free(m);
    return status;
}

static lc_status run_metric(const cJSON *json, lc_graph *g, lc_dtype rounded)
{
    numbers got = {0}, want = {0};
    lc_status status = LC_OK;
    if (rounded)
        LC_TRY_GOTO(status, done, compute(json, &(source){.rounded = rounded}, &want));
    else if (!flatten(cJSON_GetObjectItemCaseSensitive(json, "value"), &want))
        LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory"));
    LC_TRY_GOTO(status, done, compute(json, &(source){.g = g}, &got));
    if (got.n != want.n)
        status = lc_fail(LC_ERR_SHAPE, "%lld values, wanted %lld", (long long)got.n, (long long)want.n);
    for (int64_t i = 0; status == LC_OK && i < got.n; i++) {
        double w = want.values[i], x = got.values[i];
        if (fabs(x - w) <= 1e-5 * fmax(1, fabs(w)) || (x != x && w != w)) continue;
        status = lc_fail(LC_ERR_NUMERIC, "value %lld: got %.9g, wanted %.9g", (long long)i, x, w);
    }
done:
    free(got.values);
    free(want.values);
    return status;
}

void check_metrics(const char *dir, const cJSON *cases, check_result *r)
{
    check_precision p;
    lc_graph *g = NULL;
    lc_status ready = check_precision_begin(r->precision, &p);
    if (ready == LC_OK && r->precision) ready = lc_graph_new_with(&g, &p.graph);
    lc_dtype rounded = p.graph.storage ? check_low_type(&p) : 0;
    (void)dir;
    const cJSON *c;
    cJSON_ArrayForEach(c, cases)
    {
        if (ready == LC_OK && run_metric(c, g, rounded) == LC_OK)
            check_pass(r);
        else
            check_fail(r, "metrics", json_text(c, "name", "?"), "%s", lc_error_message());
    }
    lc_graph_free(g);
    check_precision_end(&p);
}
