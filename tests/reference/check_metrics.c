/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics: the value after all batches of every case of metrics.json. Pass: within 1e-5. */
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

static lc_status update(lc_metric *m, const cJSON *json, const cJSON *data)
{
    column preds = {0}, target = {0};
    int64_t n = 0, n_targets = 0, shape[LC_MAX_DIMS] = {0};
    lc_status status;
    bool labels = kind_of(json, "preds")[0] == 'i';
    bool classes = kind_of(json, "target")[0] == 'i' || json_number(json, "long_target", 0) != 0;
    LC_TRY_GOTO(status, done, read_column(cJSON_GetObjectItemCaseSensitive(data, "preds"), &n, &preds));
    lc_metric_batch b = {.n = n, .columns = 1};
    if (json_ints(data, "preds_shape", LC_MAX_DIMS, shape) > 1) {
        b.n = shape[0];
        b.columns = shape[0] ? n / shape[0] : 1;
    }
    if (labels)
        b.labels = preds.whole;
    else
        b.scores = preds.real;
    if (json_has(data, "target")) {
        LC_TRY_GOTO(status, done, read_column(cJSON_GetObjectItemCaseSensitive(data, "target"), &n_targets, &target));
        if (classes)
            b.targets = target.whole;
        else
            b.values = target.real;
    }
    status = lc_metric_update(m, &b);
done:
    free(preds.real);
    free(preds.whole);
    free(target.real);
    free(target.whole);
    return status;
}

static lc_status run_metric(const cJSON *json)
{
    lc_metric_args options = lc_metric_defaults();
    lc_metric *m = NULL;
    double *got = NULL;
    numbers want = {0};
    lc_status status;
    const cJSON *data;
    LC_TRY_GOTO(status, done, read_options(cJSON_GetObjectItemCaseSensitive(json, "args"), &options));
    LC_TRY_GOTO(status, done, lc_metric_new_with(json_text(json, "class", "?"), &m, &options));
    cJSON_ArrayForEach(data, cJSON_GetObjectItemCaseSensitive(json, "data"))
        LC_TRY_GOTO(status, done, update(m, json, data));
    int64_t n = lc_metric_outputs(m);
    if (!flatten(cJSON_GetObjectItemCaseSensitive(json, "value"), &want) ||
        !(got = calloc((size_t)n + 1, sizeof *got))) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory");
        goto done;
    }
    LC_TRY_GOTO(status, done, lc_metric_compute_all(m, got, n));
    if (n != want.n) status = lc_fail(LC_ERR_SHAPE, "%lld values, wanted %lld", (long long)n, (long long)want.n);
    for (int64_t i = 0; status == LC_OK && i < n; i++) {
        double w = want.values[i];
        if (fabs(got[i] - w) <= 1e-5 * fmax(1, fabs(w)) || (got[i] != got[i] && w != w)) continue;
        status = lc_fail(LC_ERR_NUMERIC, "value %lld: got %.9g, wanted %.9g", (long long)i, got[i], w);
    }
done:
    free(got);
    free(want.values);
    lc_metric_free(m);
    return status;
}

void check_metrics(const char *dir, const cJSON *cases, check_result *r)
{
    (void)dir;
    const cJSON *c;
    cJSON_ArrayForEach(c, cases)
    {
        if (run_metric(c) == LC_OK)
            check_pass(r);
        else
            check_fail(r, "metrics", json_text(c, "name", "?"), "%s", lc_error_message());
    }
}
