/* SPDX-License-Identifier: Apache-2.0 */
/* The MLflow logger. Every record is a line of the stream (stream_format.h) and goes into a spool first,
 * <root_dir>/mlflow-spool/<run_id>.jsonl, from which it is sent (mlflow_api.h). So nothing is lost while the server is
 * down: sending is retried after 1 s, 2 s, ... 60 s, at the end, and by the next run that uses this logger with the
 * same server. When everything has been sent the spool is emptied, and at the end of the run removed.
 *
 * The writer's thread does all of this; a server that does not answer costs it TIMEOUT_S, and the training nothing. */
#define _GNU_SOURCE
#include "base/owned.h"
#include "base/args.h"
#include "base/clock.h"
#include "base/http.h"
#include "base/io.h"
#include "loggers/loggers.h"
#include "loggers/mlflow_api.h"
#include "loggers/spool.h"
#include "loggers/stream_format.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_MS 500
#define TIMEOUT_S   10
#define FIRST_PAUSE 1000
#define LAST_PAUSE  60000

typedef struct mlflow_logger {
    lc__log_writer *writer; /* first: lc__slot_* */
    lc__http *http;
    char *uri, *experiment, *run_name, *user;
    const char *token;
    bool insecure;
    char *dir; /* of the spools */
    /* Used by the writer's thread, once it runs. */
    lc__spool spool;
    lc__mlflow client, other; /* for this run; for an earlier run that left its spool */
    lc__text head;            /* the first lines of the spool: its owner, and the line `start` */
    lc__text lines, chunk;    /* lines of a batch; lines read from the spool */
    lc__str url;
    bool adopted;      /* the spools of other runs have been checked */
    int64_t refused;   /* refused requests, of all runs */
    char refusal[512]; /* the last one */
    int64_t pause_ms, failed_ms;
    bool failed;
    atomic_bool finishing;
} mlflow_logger;

/* ---- sending ---- */

static lc_status call(void *ctx, const char *method, const char *path, const char *body, size_t n,
                      const char *body_file, int *code, lc__str *answer)
{
    mlflow_logger *l = ctx;
    lc__str_clear(&l->url);
    lc__str_add(&l->url, "%s%s", l->uri, path);
    if (l->url.failed) return lc_fail(LC_ERR_MEMORY, "out of memory: a request to %s", l->uri);
    lc__http_request r = {.method = method,
                          .url = l->url.s,
                          .content_type = strcmp(method, "POST") ? "application/octet-stream" : "application/json",
                          .body = body,
                          .body_bytes = n,
                          .body_file = body_file,
                          .bearer = l->token,
                          .user = l->user,
                          .insecure = l->insecure,
                          .timeout_s = TIMEOUT_S};
    return lc__http_call(l->http, &r, code, answer);
}

static lc_status send_spool(mlflow_logger *l, lc__mlflow *client, lc__spool *s)
{
    size_t done = 0;
    for (;;) {
        LC_TRY(lc__spool_read(s, &l->chunk));
        if (!l->chunk.length) return LC_OK;
        lc_status status = lc__mlflow_send(client, l->chunk.data, l->chunk.length, &done);
        s->sent += done;
        LC_TRY(status);
    }
}

/* Sends the spool of an earlier run. LC_SKIP: it is for another server. */
static lc_status adopt(void *self, lc__spool *s)
{
    mlflow_logger *l = self;
    LC_TRY(lc__spool_read(s, &l->chunk));
    const char *end = l->chunk.length ? memchr(l->chunk.data, '\n', l->chunk.length) : NULL;
    const char *mine = memchr(l->head.data, '\n', l->head.length);
    size_t whose = end ? (size_t)(end + 1 - l->chunk.data) : 0;
    if (!whose) return lc__spool_is_empty(s) ? LC_OK : LC_SKIP; /* the run died before it wrote anything */
    if (whose != (size_t)(mine + 1 - l->head.data) || memcmp(l->chunk.data, l->head.data, whose) != 0) return LC_SKIP;
    lc__mlflow_forget(&l->other);
    LC_TRY(send_spool(l, &l->other, s));
    /* The run died without a `finish` line. */
    return l->other.finished ? LC_OK : lc__mlflow_set_status(&l->other, "KILLED", lc__realtime_ns() / 1000000);
}

static void note_refusals(mlflow_logger *l, lc__mlflow *client)
{
    if (!client->refused) return;
    l->refused += client->refused;
    client->refused = 0;
    snprintf(l->refusal, sizeof l->refusal, "%s", client->refusal);
    lc_fail(LC_ERR_IO, "%s; that request was dropped", l->refusal);
    lc__log_warn(l->writer, LC_ERR_IO);
}

/* Sends everything. */
static lc_status send_all(mlflow_logger *l)
{
    LC_TRY(send_spool(l, &l->client, &l->spool));
    note_refusals(l, &l->client);
    LC_TRY(lc__spool_restart(&l->spool, l->head.data, l->head.length));
    if (l->adopted) return LC_OK;
    LC_TRY(lc__spool_orphans(l->dir, adopt, l));
    note_refusals(l, &l->other);
    l->adopted = true;
    return LC_OK;
}

static lc_status try_to_send(mlflow_logger *l)
{
    if (!atomic_load(&l->finishing) && l->failed && lc__now_ms() - l->failed_ms < l->pause_ms) return LC_OK;
    lc_status status = send_all(l);
    if (status >= 0) {
        l->failed = false;
        return LC_OK;
    }
    l->pause_ms = !l->failed ? FIRST_PAUSE : l->pause_ms * 2 < LAST_PAUSE ? l->pause_ms * 2 : LAST_PAUSE;
    l->failed = true;
    l->failed_ms = lc__now_ms();
    return lc_fail_context(status, "values are kept in %s until it answers", l->dir);
}

static lc_status sink(void *self, const lc__log_batch *batch)
{
    mlflow_logger *l = self;
    lc__log_record r;
    l->lines.length = 0;
    for (size_t cursor = 0; lc__log_next(batch, &cursor, &r);) LC_TRY(lc__stream_add(&l->lines, &r));
    LC_TRY(lc__spool_append(&l->spool, l->lines.data, l->lines.length));
    lc_status status = try_to_send(l);
    if (status < 0) lc__log_warn(l->writer, status); /* the batch is safe in the spool */
    return LC_OK;
}

/* ---- the logger ---- */

/* The owner of the spool, as a line of JSON; then the line `start`. */
static lc_status make_head(mlflow_logger *l, const lc_run_info *run)
{
    l->head.length = 0;
    LC_TRY(lc__text_puts(&l->head, "{\"type\":\"spool\",\"server\":"));
    LC_TRY(lc__text_quoted(&l->head, l->uri));
    LC_TRY(lc__text_puts(&l->head, ",\"experiment\":"));
    LC_TRY(lc__text_quoted(&l->head, l->experiment));
    LC_TRY(lc__text_puts(&l->head, "}\n"));
    return lc__stream_add_start(&l->head, run, lc__realtime_ns());
}

static lc_status mlflow_start(void *self, const lc_run_info *run)
{
    mlflow_logger *l = self;
    char *path = NULL;
    if (l->writer) return lc_fail(LC_ERR_STATE, "the mlflow logger was already started");
    LC_TRY(make_head(l, run));
    LC_TRY(lc__path_join(run->root_dir, "mlflow-spool", &l->dir));
    LC_TRY(lc__make_dirs(&lc__io_system, l->dir));
    LC_TRY(lc__format(&path, "%s/%s.jsonl", l->dir, run->run_id && *run->run_id ? run->run_id : "run"));
    for (char *p = path + strlen(l->dir) + 1; *p; p++)
        if (*p == '/') *p = '_';
    lc_status status = lc__spool_open(&l->spool, path);
    if (status == LC_SKIP)
        status = lc_fail(LC_ERR_STATE, "another process is logging this run: it has locked \"%s\"", path);
    free(path);
    LC_TRY(status);
    /* Lines that an earlier segment of this run left are sent with the rest. */
    LC_TRY(lc__spool_append(&l->spool, l->head.data, l->head.length));
    LC_TRY(lc__log_writer_new("mlflow", sink, l, INTERVAL_MS, &l->writer));
    return lc__log_event(l->writer, "status", "running"); /* so that the run exists before its first row */
}

static lc_status mlflow_finish(void *self, const char *how)
{
    mlflow_logger *l = self;
    lc__log_writer *w = l->writer;
    if (!w) return LC_OK;
    atomic_store(&l->finishing, true); /* one more attempt, however recently the last one failed */
    lc_status logged = lc__log_event(w, "finish", how), ended = lc__log_finish(w);
    l->writer = NULL;
    bool sent = l->spool.sent == l->spool.size;
    lc__spool_close(&l->spool, sent);
    if (ended < 0) return ended;
    if (!sent)
        return lc_fail(LC_ERR_IO, "%s could not be reached; unsent values are kept in %s for the next run", l->uri,
                       l->dir);
    if (l->refused) /* a warning during the run may have been about something else */
        return lc_fail(LC_ERR_IO, "%lld requests were refused and dropped; the last error was %s",
                       (long long)l->refused, l->refusal);
    return logged;
}

static void mlflow_release(void *self)
{
    mlflow_logger *l = self;
    if (mlflow_finish(l, "interrupted") < 0) {
    } /* callers that need the result call finish */
    if (l->spool.path) lc__spool_close(&l->spool, false);
    lc__mlflow_release(&l->client);
    lc__mlflow_release(&l->other);
    lc__http_free(l->http);
    lc__text_release(&l->head);
    lc__text_release(&l->lines);
    lc__text_release(&l->chunk);
    lc__str_free(&l->url);
    free(l->uri);
    free(l->experiment);
    free(l->run_name);
    free(l->user);
    free(l->dir);
}

static const lc_logger_ops mlflow_ops = {
    LC_LOGGER_OPS_INIT,
    .name = "mlflow",
    .start = mlflow_start,
    .log_row = lc__slot_row,
    .log_hyperparameters = lc__slot_hparams,
    .log_histogram = lc__slot_histogram,
    .log_image = lc__slot_image,
    .log_text = lc__slot_text,
    .log_checkpoint = lc__slot_checkpoint,
    .log_message = lc__slot_message,
    .log_status = lc__slot_status,
    .flush = lc__slot_flush,
    .finish = mlflow_finish,
    .free = lc__owned_free,
};

/* The first that is not empty. */
static const char *either(const char *given, const char *variable, const char *otherwise)
{
    const char *value = given && *given ? given : getenv(variable);
    return value && *value ? value : otherwise;
}

lc_status lc_mlflow_logger_new_with(lc_logger *out, const lc_mlflow_args *args)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_mlflow, lc_mlflow_args, args);
    const char *uri = either(a.tracking_uri, "MLFLOW_TRACKING_URI", "");
    const char *name = getenv("MLFLOW_TRACKING_USERNAME"), *password = getenv("MLFLOW_TRACKING_PASSWORD");
    if (strncmp(uri, "http://", 7) != 0 && strncmp(uri, "https://", 8) != 0)
        return lc_fail(LC_ERR_CONFIG,
                       "the mlflow logger needs the address of a server, as http://host:5000, but got \"%s\" "
                       "(--logger mlflow:ADDRESS, or MLFLOW_TRACKING_URI; `mlflow server` starts one)",
                       uri);
    mlflow_logger *l = lc__owned_new(sizeof *l, mlflow_release);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: the mlflow logger");
    l->spool.fd = -1;
    l->token = either(NULL, "MLFLOW_TRACKING_TOKEN", NULL);
    l->insecure = !strcmp(either(NULL, "MLFLOW_TRACKING_INSECURE_TLS", ""), "true");
    lc_status status;
    LC_TRY_GOTO(status, failed, lc__http_new(&l->http));
    LC_TRY_GOTO(status, failed, lc__copy_text(uri, &l->uri));
    for (size_t n = strlen(l->uri); n && l->uri[n - 1] == '/'; n--) l->uri[n - 1] = 0;
    LC_TRY_GOTO(status, failed,
                lc__copy_text(either(a.experiment_name, "MLFLOW_EXPERIMENT_NAME", "lightning_logs"), &l->experiment));
    if (a.run_name && *a.run_name) LC_TRY_GOTO(status, failed, lc__copy_text(a.run_name, &l->run_name));
    if (name && *name) LC_TRY_GOTO(status, failed, lc__format(&l->user, "%s:%s", name, password ? password : ""));
    l->client = l->other = (lc__mlflow){
        .call = call, .ctx = l, .experiment = l->experiment, .run_name = l->run_name, .log_model = a.log_model};
    *out = (lc_logger){&mlflow_ops, l};
    return LC_OK;
failed:
    lc__owned_free(l);
    return status;
}

lc_status lc__mlflow_logger_at(const char *uri, lc_logger *out)
{
    return lc_mlflow_logger_new(out, .tracking_uri = uri);
}
