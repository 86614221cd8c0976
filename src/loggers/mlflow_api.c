/* SPDX-License-Identifier: Apache-2.0 */
/* How each line is sent:
 *
 *   start       the run with the tag lightc.run_id = its id; made, with its experiment, if there is none
 *   hparams     parameters, as text of at most 250 characters (as Lightning's MLFlowLogger)
 *   row         metrics, and "epoch"; up to 1000 of several rows in one request
 *   status      the run's status        finish   the same, with the time of its end
 *   checkpoint  the tag lightc.checkpoint = its path; with log_model its files as artifacts
 *   image, text, histogram               artifacts images/NAME/STEP.png, texts/NAME/STEP.txt, histograms/NAME/STEP.json
 *   message     nothing
 *
 * A line can be sent twice (when an answer was lost), so every request here may be repeated. Requests that the server
 * refuses (mlflow_request.c) are dropped and counted. */
#define _GNU_SOURCE
#include "loggers/mlflow_api.h"
#include "base/base64.h"

#include "base/io.h"
#include "base/json.h"
#include "loggers/mlflow_request.h"
#include "loggers/stream_format.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARTIFACTS    "/api/2.0/mlflow-artifacts/artifacts/"
#define MOST_METRICS 900 /* of 1000 that a request may hold, so that a row is seldom split between two */
#define MOST_VALUE   250
#define MOST_PARAMS  100

/* ---- metrics and parameters ---- */

static lc_status flush_metrics(lc__mlflow *m)
{
    if (!m->n_metrics) return LC_OK;
    LC_TRY(lc__mlflow_post_or_leave(m, LC__MLFLOW_API "runs/log-batch", &m->batch));
    m->n_metrics = 0;
    return LC_OK;
}

static void drop_metrics(lc__mlflow *m)
{
    cJSON_Delete(m->batch.root);
    m->batch = (lc__mlflow_body){0};
    m->n_metrics = 0;
}

static void add_metric(lc__mlflow *m, const char *name, double value, int64_t step, int64_t ms)
{
    char number[LC__DOUBLE_SIZE];
    lc__print_double(number, value);
    if (!m->n_metrics++) {
        m->batch = lc__mlflow_begin(m);
        m->metrics = lc__mlflow_add_list(&m->batch, m->batch.root, "metrics");
    }
    cJSON *metric = lc__mlflow_append(&m->batch, m->metrics);
    lc__mlflow_add_key(&m->batch, metric, name);
    if (isfinite(value))
        lc__mlflow_add_number(&m->batch, metric, "value", number);
    else
        lc__mlflow_add_text(&m->batch, metric, "value", isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    lc__mlflow_add_int(&m->batch, metric, "timestamp", ms);
    lc__mlflow_add_int(&m->batch, metric, "step", step);
}

static lc_status row(lc__mlflow *m, const lc_state *line)
{
    const lc_state *values;
    int64_t step = 0, epoch, ms = lc__mlflow_time(line);
    double value;
    if (lc_state_get_object(line, "values", &values) < 0) return LC_OK;
    if (lc_state_get_int(line, "step", &step) < 0) step = 0;
    for (int64_t i = 0; i < lc_state_length(values); i++) {
        if (lc_state_get_double(lc_state_at(values, i), NULL, &value) < 0) continue;
        add_metric(m, lc_state_key_at(values, i), value, step, ms);
        if (m->n_metrics >= MOST_METRICS) LC_TRY(flush_metrics(m));
    }
    if (lc_state_get_int(line, "epoch", &epoch) >= 0 && !lc_state_find(values, "epoch"))
        add_metric(m, "epoch", (double)epoch, step, ms);
    return LC_OK;
}

/* The text that Python's str() gives. */
static void add_param(lc__mlflow_body *body, cJSON *params, const lc_state *values, int64_t i)
{
    char text[4 * MOST_VALUE + 1] = "None";
    const lc_state *v = lc_state_at(values, i);
    const char *content;
    bool yes;
    int64_t integer;
    double number;
    if (lc_state_get_bool(v, NULL, &yes) >= 0)
        snprintf(text, sizeof text, "%s", yes ? "True" : "False");
    else if (lc_state_get_int(v, NULL, &integer) >= 0)
        snprintf(text, sizeof text, "%" PRId64, integer);
    else if (lc_state_get_text(v, NULL, &content) >= 0)
        snprintf(text, sizeof text, "%s", content);
    else if (lc_state_get_double(v, NULL, &number) >= 0)
        lc__print_double(text, number);
    size_t characters = 0, at = 0;
    while (text[at] && characters < MOST_VALUE) {
        at++, characters++;
        while (((unsigned char)text[at] & 0xc0) == 0x80) at++;
    }
    text[at] = 0;
    lc__utf8_repair(text, strlen(text)); /* the last character may be cut in two by the size of `text` */
    cJSON *param = lc__mlflow_append(body, params);
    lc__mlflow_add_key(body, param, lc_state_key_at(values, i));
    lc__mlflow_add_text(body, param, "value", text);
}

/* Sends parameters [from, to). A server that refuses to change an existing parameter rejects the whole request: the two
 * halves are then tried separately until that parameter is isolated. */
static lc_status params(lc__mlflow *m, const lc_state *values, int64_t from, int64_t to)
{
    lc__mlflow_answer answer;
    if (from >= to) return LC_OK;
    if (to - from <= MOST_PARAMS) {
        lc__mlflow_body body = lc__mlflow_begin(m);
        cJSON *list = lc__mlflow_add_list(&body, body.root, "params");
        for (int64_t i = from; i < to; i++) add_param(&body, list, values, i);
        LC_TRY(lc__mlflow_post(m, LC__MLFLOW_API "runs/log-batch", &body, &answer));
        m->refused += answer == LC__MLFLOW_REFUSED && to - from == 1;
        if (answer == LC__MLFLOW_ACCEPTED || to - from == 1) return LC_OK;
    }
    LC_TRY(params(m, values, from, (from + to) / 2));
    return params(m, values, (from + to) / 2, to);
}

/* ---- artifacts ---- */

static lc_status put(lc__mlflow *m, const char *name, const char *body, size_t n, const char *file)
{
    lc__str path = {0};
    lc__mlflow_answer answer;
    if (!m->artifacts) {
        snprintf(m->refusal, sizeof m->refusal,
                 "the MLflow server does not accept files (it was not started with --serve-artifacts)");
        m->refused++;
        return LC_OK;
    }
    lc__str_add(&path, ARTIFACTS "%s/", m->artifacts);
    lc__mlflow_percent(&path, name, "-_.~/");
    lc_status status = lc__mlflow_request(m, "PUT", &path, body, n, file, &answer);
    lc__str_free(&path);
    if (status >= 0) m->refused += answer == LC__MLFLOW_REFUSED;
    return status;
}

/* FOLDER/NAME/STEP.ENDING; characters that could leave the folder are replaced. */
static lc_status put_value(lc__mlflow *m, const lc_state *line, const char *folder, const char *ending,
                           const char *body, size_t n)
{
    char path[512];
    const char *name = "";
    int64_t step = 0;
    if (lc_state_get_text(line, "name", &name) < 0) name = "unnamed";
    if (lc_state_get_int(line, "step", &step) < 0) step = 0;
    size_t begin = strlen(folder) + 1;
    snprintf(path, sizeof path, "%s/%.*s", folder, LC__MLFLOW_MOST_KEY, name);
    for (char *p = path + begin; *p; p++)
        if ((unsigned char)*p < 0x20 || strchr("\\:*?\"<>|#%", *p) || (*p == '.' && (p[1] == '.' || p[-1] == '/')))
            *p = '_';
    size_t length = strlen(path);
    lc__utf8_repair(path, length); /* the name may have been cut */
    snprintf(path + length, sizeof path - length, "/%" PRId64 ".%s", step, ending);
    return put(m, path, body, n, NULL);
}

static lc_status image(lc__mlflow *m, const lc_state *line)
{
    const char *text;
    char *png;
    size_t n;
    if (lc_state_get_text(line, "png", &text) < 0) return LC_OK;
    lc_status status = lc__base64_decode(text, &png, &n);
    if (status == LC_ERR_FORMAT) return LC_OK;
    LC_TRY(status);
    status = put_value(m, line, "images", "png", png, n);
    free(png);
    return status;
}

static lc_status checkpoint(lc__mlflow *m, const lc_state *line)
{
    const char *path;
    if (lc_state_get_text(line, "path", &path) < 0) return LC_OK;
    lc__mlflow_body body = lc__mlflow_begin(m);
    lc__mlflow_add_text(&body, body.root, "key", "lightc.checkpoint");
    lc__mlflow_add_text(&body, body.root, "value", path);
    LC_TRY(lc__mlflow_post_or_leave(m, LC__MLFLOW_API "runs/set-tag", &body));
    DIR *d = m->log_model ? opendir(path) : NULL;
    if (!d) return LC_OK; /* already removed: there are better ones */
    lc_status status = LC_OK;
    for (struct dirent *e; status >= 0 && (e = readdir(d));) {
        char *file = NULL, *name = NULL;
        if (*e->d_name == '.') continue;
        status = lc__path_join(path, e->d_name, &file);
        if (status >= 0) status = lc__format(&name, "checkpoints/%s/%s", lc__path_base(path), e->d_name);
        if (status >= 0) status = put(m, name, NULL, 0, file);
        if (status == LC_ERR_NOT_FOUND) status = LC_OK;
        free(file);
        free(name);
    }
    closedir(d);
    return status;
}

/* ---- lines ---- */

static lc_status other_line(lc__mlflow *m, const char *type, const lc_state *line, const char *text, size_t n)
{
    const lc_state *values;
    const char *content;
    if (!strcmp(type, "hparams"))
        return lc_state_get_object(line, "values", &values) < 0 ? LC_OK : params(m, values, 0, lc_state_length(values));
    if (!strcmp(type, "status")) return lc__mlflow_status_line(m, line, false);
    if (!strcmp(type, "finish")) return lc__mlflow_status_line(m, line, true);
    if (!strcmp(type, "checkpoint")) return checkpoint(m, line);
    if (!strcmp(type, "image")) return image(m, line);
    if (!strcmp(type, "histogram")) return put_value(m, line, "histograms", "json", text, n);
    if (!strcmp(type, "text"))
        return lc_state_get_text(line, "text", &content) < 0
                   ? LC_OK
                   : put_value(m, line, "texts", "txt", content, strlen(content));
    return LC_OK; /* a message, or a type that a later version added */
}

static lc_status send_line(lc__mlflow *m, const char *text, size_t n)
{
    lc_state *line;
    const char *type = "";
    lc_status status = lc_state_parse(text, n, &line);
    if (status == LC_ERR_MEMORY) return status;
    if (status < 0) {
        snprintf(m->refusal, sizeof m->refusal, "invalid line: %.300s", lc_error_message());
        m->refused++;
        return LC_OK;
    }
    if (lc_state_get_text(line, "type", &type) < 0) type = "";
    if (!strcmp(type, "start"))
        status = lc__mlflow_start(m, line);
    else if (m->run)
        status = !strcmp(type, "row") ? row(m, line) : other_line(m, type, line, text, n);
    lc_state_free(line);
    return status;
}

static bool is_row(const char *text, size_t n)
{
    static const char begin[] = "{\"type\":\"row\"";
    return n >= sizeof begin && !memcmp(text, begin, sizeof begin - 1);
}

lc_status lc__mlflow_send(lc__mlflow *m, const char *lines, size_t n, size_t *done)
{
    lc_status status = LC_OK;
    size_t at = 0;
    *done = 0;
    drop_metrics(m);
    while (at < n && status >= 0) {
        const char *end = memchr(lines + at, '\n', n - at);
        size_t length = (end ? (size_t)(end - lines) : n) - at;
        if (!is_row(lines + at, length)) {
            status = flush_metrics(m); /* in order */
            if (status < 0) break;
            *done = at;
        }
        status = send_line(m, lines + at, length);
        if (status < 0) break;
        at += end ? length + 1 : length;
        if (!m->n_metrics) *done = at;
    }
    if (status >= 0) status = flush_metrics(m);
    if (status >= 0) *done = n;
    return status;
}

void lc__mlflow_release(lc__mlflow *m)
{
    lc__mlflow_forget(m);
    drop_metrics(m);
    lc__str_free(&m->answer);
}
