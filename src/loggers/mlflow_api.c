/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a line:
 *
 *   start       the run with the tag lightc.run_id = its id; made, with its experiment, if there is none
 *   hparams     parameters, as text of at most 250 characters (as Lightning's MLFlowLogger)
 *   row         metrics, and "epoch"; up to 1000 of several rows in one request
 *   status      the run's status        finish   the same, with the time of its end
 *   checkpoint  the tag lightc.checkpoint = its path; with log_model its files as artifacts
 *   image, text, histogram               artifacts images/NAME/STEP.png, texts/NAME/STEP.txt, histograms/NAME/STEP.json
 *   message     nothing
 *
 * A line can come twice (when an answer was lost): every request here may. A request that the server refuses for what
 * it says (400, 404, 409, 413, 422) would be refused again; it is left out and counted. Everything else (no answer,
 * 401, 403, 429, 5xx) is a matter of time. */
#define _GNU_SOURCE
#include "loggers/mlflow_api.h"

#include "core/io.h"
#include "loggers/stream_format.h"

#include <lightc/state.h>

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API          "/api/2.0/mlflow/"
#define ARTIFACTS    "/api/2.0/mlflow-artifacts/artifacts/"
#define MOST_METRICS 900 /* of 1000 that a request may hold, so that a row seldom ends in another one */
#define MOST_KEY     250
#define MOST_VALUE   250
#define MOST_PARAMS  100

enum answer { ACCEPTED, REFUSED }; /* everything else is an error */

/* ---- requests ---- */

static lc_status judge(lc__mlflow *m, const char *path, int code, enum answer *out)
{
    const char *why = "";
    lc_state *s = NULL;
    *out = ACCEPTED;
    if (code >= 200 && code < 300) return LC_OK;
    *out = REFUSED;
    if (m->answer.s && lc_state_parse(m->answer.s, m->answer.n, &s) >= 0 && lc_state_get_text(s, "message", &why) < 0) {
    } /* then it gave no reason */
    char message[400];
    snprintf(message, sizeof message, "the MLflow server answered %s with %d: %.300s", path, code, why);
    lc_state_free(s);
    if (code == 400 || code == 404 || code == 409 || code == 413 || code == 422) {
        snprintf(m->refusal, sizeof m->refusal, "%s", message);
        return LC_OK;
    }
    return lc_fail(LC_ERR_IO, "%s", message);
}

/* Sends m->body. */
static lc_status post(lc__mlflow *m, const char *path, enum answer *out)
{
    int code = 0;
    LC_TRY(m->call(m->ctx, "POST", path, m->body.data, m->body.length, NULL, &code, &m->answer));
    return judge(m, path, code, out);
}

/* Sends m->body; if it is refused, that is counted. */
static lc_status post_or_leave(lc__mlflow *m, const char *path)
{
    enum answer answer;
    LC_TRY(post(m, path, &answer));
    m->refused += answer == REFUSED;
    return LC_OK;
}

/* The beginning of m->body: {"run_id":"...", or { without a run. */
static lc_status begin_body(lc__mlflow *m)
{
    m->body.length = 0;
    if (!m->run) return lc__text_puts(&m->body, "{");
    LC_TRY(lc__text_puts(&m->body, "{\"run_id\":"));
    return lc__text_quoted(&m->body, m->run);
}

static lc_status add(lc__mlflow *m, const char *text)
{
    return lc__text_puts(&m->body, text);
}

static lc_status add_quoted(lc__mlflow *m, const char *text)
{
    return lc__text_quoted(&m->body, text);
}

static lc_status add_int(lc__text *t, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, v);
    return lc__text_puts(t, text);
}

/* A name as MLflow allows it: letters, digits, and "_-. /:"; the rest becomes "_". */
static lc_status add_name(lc__text *t, const char *name)
{
    char copy[MOST_KEY + 1];
    snprintf(copy, sizeof copy, "%s", name);
    for (char *p = copy; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("_-. /:", *p)))
            *p = '_';
    return lc__text_quoted(t, copy);
}

/* The text of a member of the last answer: of `parent`, or of the whole with NULL. "" if there is none. */
static lc_status answered(lc__mlflow *m, const char *a, const char *b, const char *key, char **out)
{
    lc_state *s = NULL;
    const lc_state *at;
    const char *text = "";
    *out = NULL;
    if (!m->answer.s || lc_state_parse(m->answer.s, m->answer.n, &s) < 0)
        return lc_fail(LC_ERR_IO, "this is no MLflow server: its answer is not JSON");
    at = s;
    if (a) at = lc_state_find(at, a);
    if (at && lc_state_kind_of(at) == LC_STATE_ARRAY) at = lc_state_at(at, 0);
    if (at && b) at = lc_state_find(at, b);
    if (at && lc_state_get_text(at, key, &text) < 0) text = "";
    lc_status status = lc__copy_text(text, out);
    lc_state_free(s);
    return status;
}

/* ---- the run ---- */

static void add_percent(lc__str *t, const char *text, const char *safe)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if ((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr(safe, *p))
            lc__str_add_bytes(t, (const char *)p, 1);
        else
            lc__str_add(t, "%%%02X", *p);
}

/* The experiment's id; *id NULL: there is none. */
static lc_status find_experiment(lc__mlflow *m, char **id)
{
    lc__str path = {0};
    int code = 0;
    enum answer answer;
    *id = NULL;
    lc__str_add(&path, API "experiments/get-by-name?experiment_name=");
    add_percent(&path, m->experiment, "-_.~");
    lc_status status = path.failed ? lc_fail(LC_ERR_MEMORY, "no memory for the name of an experiment")
                                   : m->call(m->ctx, "GET", path.s, NULL, 0, NULL, &code, &m->answer);
    if (status >= 0) status = judge(m, API "experiments/get-by-name", code, &answer);
    lc__str_free(&path);
    if (status < 0 || answer == REFUSED) return status;
    return answered(m, "experiment", NULL, "experiment_id", id);
}

static lc_status get_experiment(lc__mlflow *m, char **id)
{
    enum answer answer;
    LC_TRY(find_experiment(m, id));
    if (*id && **id) return LC_OK;
    free(*id);
    m->body.length = 0;
    LC_TRY(add(m, "{\"name\":"));
    LC_TRY(add_quoted(m, m->experiment));
    LC_TRY(add(m, "}"));
    *id = NULL;
    LC_TRY(post(m, API "experiments/create", &answer));
    if (answer == ACCEPTED)
        LC_TRY(answered(m, NULL, NULL, "experiment_id", id));
    else
        LC_TRY(find_experiment(m, id)); /* another run made it in this moment */
    if (*id && **id) return LC_OK;
    free(*id);
    *id = NULL;
    return lc_fail(LC_ERR_IO, "there is no experiment \"%s\" to be had: %s", m->experiment,
                   *m->refusal ? m->refusal : "this is no MLflow server");
}

static lc_status add_tag(lc__mlflow *m, const char *key, const char *value, const char *before)
{
    LC_TRY(add(m, before));
    LC_TRY(add(m, "{\"key\":"));
    LC_TRY(add_quoted(m, key));
    LC_TRY(add(m, ",\"value\":"));
    LC_TRY(add_quoted(m, value));
    return add(m, "}");
}

/* The artifact_uri of a server that takes files is "mlflow-artifacts:/1/<run>/artifacts", with a host or without. */
static lc_status take_run(lc__mlflow *m, const char *a)
{
    char *id, *uri;
    static const char scheme[] = "mlflow-artifacts:";
    LC_TRY(answered(m, a, "info", "run_id", &id));
    lc_status status = answered(m, a, "info", "artifact_uri", &uri);
    if (status < 0 || !*id) {
        free(id);
        free(uri);
        return status;
    }
    m->run = id;
    if (!strncmp(uri, scheme, sizeof scheme - 1)) {
        const char *path = uri + sizeof scheme - 1;
        if (!strncmp(path, "//", 2)) path = strchr(path + 2, '/');
        while (path && *path == '/') path++;
        if (path && *path) status = lc__copy_text(path, &m->artifacts);
    }
    free(uri);
    return status;
}

static int64_t milliseconds(const lc_state *line)
{
    double time = 0;
    if (lc_state_get_double(line, "time", &time) < 0 || !(time >= 0 && time < 1e14)) return 0;
    return llround(time * 1000);
}

static lc_status find_run(lc__mlflow *m, const char *experiment, const char *run_id)
{
    enum answer answer;
    if (!*run_id || strchr(run_id, '\'')) return LC_OK;
    m->body.length = 0;
    LC_TRY(add(m, "{\"max_results\":1,\"experiment_ids\":["));
    LC_TRY(add_quoted(m, experiment));
    LC_TRY(add(m, "],\"filter\":"));
    lc__str filter = {0};
    lc__str_add(&filter, "tags.`lightc.run_id` = '%s'", run_id);
    lc_status status = filter.failed ? lc_fail(LC_ERR_MEMORY, "no memory for a request") : add_quoted(m, filter.s);
    lc__str_free(&filter);
    LC_TRY(status);
    LC_TRY(add(m, "}"));
    LC_TRY(post(m, API "runs/search", &answer));
    return answer == ACCEPTED ? take_run(m, "runs") : LC_OK;
}

static lc_status make_run(lc__mlflow *m, const char *experiment, const lc_state *line, const char *run_id)
{
    enum answer answer;
    int64_t version = 0;
    const char *run_dir = "";
    char name[64];
    if (lc_state_get_int(line, "version", &version) < 0) version = 0;
    if (lc_state_get_text(line, "run_dir", &run_dir) < 0) run_dir = "";
    snprintf(name, sizeof name, "version_%" PRId64, version);
    m->body.length = 0;
    LC_TRY(add(m, "{\"experiment_id\":"));
    LC_TRY(add_quoted(m, experiment));
    LC_TRY(add(m, ",\"run_name\":"));
    LC_TRY(add_quoted(m, m->run_name ? m->run_name : name));
    LC_TRY(add(m, ",\"start_time\":"));
    LC_TRY(add_int(&m->body, milliseconds(line)));
    LC_TRY(add_tag(m, "lightc.run_id", run_id, ",\"tags\":["));
    LC_TRY(add_tag(m, "lightc.run_dir", run_dir, ","));
    LC_TRY(add(m, "]}"));
    LC_TRY(post(m, API "runs/create", &answer));
    if (answer == ACCEPTED) LC_TRY(take_run(m, "run"));
    return m->run ? LC_OK : lc_fail(LC_ERR_IO, "no run could be made: %s", m->refusal);
}

static lc_status start(lc__mlflow *m, const lc_state *line)
{
    const char *run_id = "";
    char *experiment;
    if (lc_state_get_text(line, "run_id", &run_id) < 0) run_id = "";
    lc__mlflow_forget(m);
    LC_TRY(get_experiment(m, &experiment));
    lc_status status = find_run(m, experiment, run_id);
    if (status >= 0 && !m->run)
        status = make_run(m, experiment, line, run_id);
    else if (status >= 0)
        status = lc__mlflow_set_status(m, "RUNNING", 0);
    free(experiment);
    return status;
}

lc_status lc__mlflow_set_status(lc__mlflow *m, const char *status, int64_t end_ms)
{
    if (!m->run) return LC_OK;
    LC_TRY(begin_body(m));
    LC_TRY(add(m, ",\"status\":"));
    LC_TRY(add_quoted(m, status));
    if (end_ms) {
        LC_TRY(add(m, ",\"end_time\":"));
        LC_TRY(add_int(&m->body, end_ms));
    }
    LC_TRY(add(m, "}"));
    return post_or_leave(m, API "runs/update");
}

static lc_status set_status(lc__mlflow *m, const lc_state *line, bool ended)
{
    const char *how = "";
    if (lc_state_get_text(line, "status", &how) < 0) return LC_OK;
    const char *status = !strcmp(how, "success")       ? "FINISHED"
                         : !strcmp(how, "failed")      ? "FAILED"
                         : !strcmp(how, "interrupted") ? "KILLED"
                                                       : "RUNNING";
    m->finished |= ended;
    return lc__mlflow_set_status(m, status, strcmp(status, "RUNNING") != 0 ? milliseconds(line) : 0);
}

/* ---- metrics and parameters ---- */

static lc_status flush_metrics(lc__mlflow *m)
{
    if (!m->n_metrics) return LC_OK;
    LC_TRY(begin_body(m));
    LC_TRY(add(m, ",\"metrics\":["));
    LC_TRY(lc__text_add(&m->body, m->metrics.data, m->metrics.length));
    LC_TRY(add(m, "]}"));
    LC_TRY(post_or_leave(m, API "runs/log-batch"));
    m->n_metrics = 0, m->metrics.length = 0;
    return LC_OK;
}

static lc_status add_metric(lc__mlflow *m, const char *name, double value, int64_t step, int64_t ms)
{
    char number[LC__DOUBLE_SIZE];
    lc__text *t = &m->metrics;
    lc__print_double(number, value);
    LC_TRY(lc__text_puts(t, m->n_metrics++ ? ",{\"key\":" : "{\"key\":"));
    LC_TRY(add_name(t, name));
    LC_TRY(lc__text_puts(t, ",\"value\":"));
    LC_TRY(lc__text_puts(t, isnan(value)    ? "\"NaN\""
                            : !isinf(value) ? number
                            : value > 0     ? "\"Infinity\""
                                            : "\"-Infinity\""));
    LC_TRY(lc__text_puts(t, ",\"timestamp\":"));
    LC_TRY(add_int(t, ms));
    LC_TRY(lc__text_puts(t, ",\"step\":"));
    LC_TRY(add_int(t, step));
    return lc__text_puts(t, "}");
}

static lc_status row(lc__mlflow *m, const lc_state *line)
{
    const lc_state *values;
    int64_t step = 0, epoch, ms = milliseconds(line);
    double value;
    if (lc_state_get_object(line, "values", &values) < 0) return LC_OK;
    if (lc_state_get_int(line, "step", &step) < 0) step = 0;
    for (int64_t i = 0; i < lc_state_length(values); i++) {
        if (lc_state_get_double(lc_state_at(values, i), NULL, &value) < 0) continue;
        LC_TRY(add_metric(m, lc_state_key_at(values, i), value, step, ms));
        if (m->n_metrics >= MOST_METRICS) LC_TRY(flush_metrics(m));
    }
    if (lc_state_get_int(line, "epoch", &epoch) >= 0 && !lc_state_find(values, "epoch"))
        LC_TRY(add_metric(m, "epoch", (double)epoch, step, ms));
    return LC_OK;
}

/* The text Python's str() gives. */
static lc_status add_param(lc__mlflow *m, const lc_state *values, int64_t i)
{
    char text[4 * MOST_VALUE + 1] = "None";
    const lc_state *v = lc_state_at(values, i);
    const char *said;
    bool yes;
    int64_t integer;
    double number;
    if (lc_state_get_bool(v, NULL, &yes) >= 0)
        snprintf(text, sizeof text, "%s", yes ? "True" : "False");
    else if (lc_state_get_int(v, NULL, &integer) >= 0)
        snprintf(text, sizeof text, "%" PRId64, integer);
    else if (lc_state_get_text(v, NULL, &said) >= 0)
        snprintf(text, sizeof text, "%s", said);
    else if (lc_state_get_double(v, NULL, &number) >= 0)
        lc__print_double(text, number);
    size_t characters = 0, at = 0;
    while (text[at] && characters < MOST_VALUE) {
        at++, characters++;
        while (((unsigned char)text[at] & 0xc0) == 0x80) at++;
    }
    text[at] = 0;
    LC_TRY(add(m, "{\"key\":"));
    LC_TRY(add_name(&m->body, lc_state_key_at(values, i)));
    LC_TRY(add(m, ",\"value\":"));
    lc__utf8_repair(text, strlen(text)); /* the last character may be cut in two by the size of `text` */
    LC_TRY(add_quoted(m, text));
    return add(m, "}");
}

/* Parameters from `from` to before `to`. A server refuses to change one that it has, and all others with it: halves of
 * them are tried then, until it is alone. */
static lc_status params(lc__mlflow *m, const lc_state *values, int64_t from, int64_t to)
{
    enum answer answer;
    if (from >= to) return LC_OK;
    if (to - from <= MOST_PARAMS) {
        LC_TRY(begin_body(m));
        for (int64_t i = from; i < to; i++) {
            LC_TRY(add(m, i == from ? ",\"params\":[" : ","));
            LC_TRY(add_param(m, values, i));
        }
        LC_TRY(add(m, "]}"));
        LC_TRY(post(m, API "runs/log-batch", &answer));
        m->refused += answer == REFUSED && to - from == 1;
        if (answer == ACCEPTED || to - from == 1) return LC_OK;
    }
    LC_TRY(params(m, values, from, (from + to) / 2));
    return params(m, values, (from + to) / 2, to);
}

/* ---- artifacts ---- */

static lc_status put(lc__mlflow *m, const char *name, const char *body, size_t n, const char *file)
{
    lc__str path = {0};
    int code = 0;
    enum answer answer;
    if (!m->artifacts) {
        snprintf(m->refusal, sizeof m->refusal,
                 "the MLflow server takes no files (it was not started with --serve-artifacts)");
        m->refused++;
        return LC_OK;
    }
    lc__str_add(&path, ARTIFACTS "%s/", m->artifacts);
    add_percent(&path, name, "-_.~/");
    lc_status status = path.failed ? lc_fail(LC_ERR_MEMORY, "no memory for the name of a file")
                                   : m->call(m->ctx, "PUT", path.s, body, n, file, &code, &m->answer);
    if (status >= 0) status = judge(m, path.s, code, &answer);
    lc__str_free(&path);
    if (status >= 0) m->refused += answer == REFUSED;
    return status;
}

/* FOLDER/NAME/STEP.ENDING; what could leave the folder is made harmless. */
static lc_status put_value(lc__mlflow *m, const lc_state *line, const char *folder, const char *ending,
                           const char *body, size_t n)
{
    char path[512];
    const char *name = "";
    int64_t step = 0;
    if (lc_state_get_text(line, "name", &name) < 0) name = "unnamed";
    if (lc_state_get_int(line, "step", &step) < 0) step = 0;
    size_t begin = strlen(folder) + 1;
    snprintf(path, sizeof path, "%s/%.*s", folder, MOST_KEY, name);
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
    LC_TRY(begin_body(m));
    LC_TRY(add(m, ",\"key\":\"lightc.checkpoint\",\"value\":"));
    LC_TRY(add_quoted(m, path));
    LC_TRY(add(m, "}"));
    LC_TRY(post_or_leave(m, API "runs/set-tag"));
    DIR *d = m->log_model ? opendir(path) : NULL;
    if (!d) return LC_OK; /* removed by now: there are better ones */
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
    const char *said;
    if (!strcmp(type, "hparams"))
        return lc_state_get_object(line, "values", &values) < 0 ? LC_OK : params(m, values, 0, lc_state_length(values));
    if (!strcmp(type, "status")) return set_status(m, line, false);
    if (!strcmp(type, "finish")) return set_status(m, line, true);
    if (!strcmp(type, "checkpoint")) return checkpoint(m, line);
    if (!strcmp(type, "image")) return image(m, line);
    if (!strcmp(type, "histogram")) return put_value(m, line, "histograms", "json", text, n);
    if (!strcmp(type, "text"))
        return lc_state_get_text(line, "text", &said) < 0 ? LC_OK
                                                          : put_value(m, line, "texts", "txt", said, strlen(said));
    return LC_OK; /* message, and what a later version may add */
}

static lc_status send_line(lc__mlflow *m, const char *text, size_t n)
{
    lc_state *line;
    const char *type = "";
    lc_status status = lc_state_parse(text, n, &line);
    if (status == LC_ERR_MEMORY) return status;
    if (status < 0) {
        snprintf(m->refusal, sizeof m->refusal, "a line that is not of the format: %.300s", lc_error_message());
        m->refused++;
        return LC_OK;
    }
    if (lc_state_get_text(line, "type", &type) < 0) type = "";
    if (!strcmp(type, "start"))
        status = start(m, line);
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
    m->n_metrics = 0, m->metrics.length = 0;
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

void lc__mlflow_forget(lc__mlflow *m)
{
    free(m->run);
    free(m->artifacts);
    m->run = m->artifacts = NULL;
    m->finished = false;
}

void lc__mlflow_release(lc__mlflow *m)
{
    lc__mlflow_forget(m);
    lc__text_release(&m->body);
    lc__text_release(&m->metrics);
    lc__str_free(&m->answer);
}
