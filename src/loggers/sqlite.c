/* SPDX-License-Identifier: Apache-2.0 */
/* The run database: one SQLite file per project directory, in which every run stores its options, metrics, checkpoints
 * and events while it trains (docs/run-database.md).
 *
 * The rows of a batch are one transaction. If it fails nothing is stored, and the batch is retried. */
#include "base/owned.h"
#include "loggers/sqlite.h"

#include "base/clock.h"
#include "base/grow.h"
#include "base/handle.h"
#include "base/io.h"
#include "base/json.h"
#include "base/status.h"
#include "loggers/hparams.h"
#include "loggers/sqlite_db.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INTERVAL_MS 500

/* ---- rows ---- */

static void forget_keys(lc__sqlite *l)
{
    for (int i = 0; i < l->n_keys; i++) free(l->keys[i].name);
    l->n_keys = 0;
}

static lc_status key_id(lc__sqlite *l, const char *name, int64_t *id)
{
    int lo = 0, hi = l->n_keys;
    while (lo < hi) {
        int mid = (lo + hi) / 2, order = strcmp(l->keys[mid].name, name);
        if (!order) {
            *id = l->keys[mid].id;
            return LC_OK;
        }
        if (order < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    LC_TRY(lc__grow(&l->keys, &l->keys_capacity, l->n_keys, 1, "names of metrics"));
    sqlite3_reset(l->insert_key);
    sqlite3_bind_text(l->insert_key, 1, name, -1, SQLITE_STATIC);
    int rc = sqlite3_step(l->insert_key);
    sqlite3_reset(l->insert_key);
    if (rc != SQLITE_DONE) return lc__sqlite_fail(l, "write");
    sqlite3_reset(l->find_key);
    sqlite3_bind_text(l->find_key, 1, name, -1, SQLITE_STATIC);
    rc = sqlite3_step(l->find_key);
    *id = rc == SQLITE_ROW ? sqlite3_column_int64(l->find_key, 0) : 0;
    sqlite3_reset(l->find_key);
    if (rc != SQLITE_ROW) return lc__sqlite_fail(l, "read");
    char *copy;
    LC_TRY(lc__format(&copy, "%s", name));
    memmove(&l->keys[lo + 1], &l->keys[lo], (size_t)(l->n_keys - lo) * sizeof *l->keys);
    l->keys[lo] = (lc__sqlite_key){copy, *id};
    l->n_keys++;
    return LC_OK;
}

static lc_status write_row(lc__sqlite *l, lc__log_record *r)
{
    for (int i = 0; i < r->n; i++) {
        const char *name;
        int64_t id;
        double value = lc__log_value(r, &name);
        LC_TRY(key_id(l, name, &id));
        sqlite3_stmt *s = l->insert_metric;
        sqlite3_bind_int64(s, 3, id);
        sqlite3_bind_int64(s, 4, r->step);
        if (r->epoch >= 0)
            sqlite3_bind_int64(s, 5, r->epoch);
        else
            sqlite3_bind_null(s, 5);
        sqlite3_bind_int64(s, 6, r->time_ns);
        /* SQLite has no NaN, and prints infinities badly. The kind distinguishes them. */
        if (isnan(value))
            sqlite3_bind_null(s, 7);
        else
            sqlite3_bind_double(s, 7, value);
        sqlite3_bind_int(s, 8, isnan(value) ? 1 : !isinf(value) ? 0 : value > 0 ? 2 : 3);
        LC_TRY(lc__sqlite_step(l, s));
    }
    return LC_OK;
}

static lc_status write_hparams(lc__sqlite *l, lc__log_record *r)
{
    sqlite3_stmt *s = NULL;
    LC_TRY(lc__sqlite_prepare(l, "INSERT OR REPLACE INTO hyperparameter(run, name, value) VALUES(?1, ?2, ?3)", &s));
    lc_status status = LC_OK;
    for (int i = 0; i < r->n && status >= 0; i++) {
        lc_hparam p = lc__log_hparam(r);
        char number[LC__DOUBLE_SIZE];
        sqlite3_bind_int64(s, 1, l->run);
        sqlite3_bind_text(s, 2, p.name, -1, SQLITE_STATIC);
        const char *value = lc__hparam_text(&p, number);
        sqlite3_bind_text(s, 3, value, -1, SQLITE_STATIC); /* NULL is NULL */
        status = lc__sqlite_step(l, s);
    }
    sqlite3_finalize(s);
    return status;
}

/* Stores the status of the run now: a program may exit without finishing its loggers. */
static lc_status write_status(lc__sqlite *l, const char *status, int64_t now_ns)
{
    sqlite3_stmt *s = NULL;
    LC_TRY(lc__sqlite_prepare(l, "UPDATE run SET status = ?2, ended_ns = ?3 WHERE id = ?1", &s));
    sqlite3_bind_int64(s, 1, l->run);
    sqlite3_bind_text(s, 2, status, -1, SQLITE_STATIC);
    if (strcmp(status, "running") != 0) sqlite3_bind_int64(s, 3, now_ns);
    lc_status done = lc__sqlite_step(l, s);
    sqlite3_finalize(s);
    return done;
}

/* Marks the rows of this path as removed: those of this run, of earlier runs, and of concurrent runs up to the time
 * `until`. */
static lc_status write_removed(lc__sqlite *l, const lc__log_record *r, int64_t until)
{
    sqlite3_stmt *s = l->remove_checkpoint;
    sqlite3_bind_text(s, 1, r->text, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 2, r->time_ns);
    sqlite3_bind_int64(s, 3, until);
    return lc__sqlite_step(l, s);
}

static lc_status write_record(lc__sqlite *l, lc__log_record *r)
{
    sqlite3_stmt *s;
    switch (r->kind) {
    case LC__LOG_ROW:
        return write_row(l, r);
    case LC__LOG_REMOVED:
        return write_removed(l, r, 0); /* another run may have reused the name since */
    case LC__LOG_CHECKPOINT:
        LC_TRY(write_removed(l, r, r->time_ns)); /* the new checkpoint replaces an older one of that name */
        s = l->insert_checkpoint;
        sqlite3_bind_int64(s, 3, r->step);
        sqlite3_bind_text(s, 4, r->text, -1, SQLITE_STATIC);
        if (r->has_score)
            sqlite3_bind_double(s, 5, r->score);
        else
            sqlite3_bind_null(s, 5);
        sqlite3_bind_int64(s, 6, r->time_ns);
        return lc__sqlite_step(l, s);
    case LC__LOG_EVENT:
        if (!strcmp(r->text, "status")) return write_status(l, r->text2, r->time_ns);
        s = l->insert_event;
        sqlite3_bind_int64(s, 2, r->time_ns);
        sqlite3_bind_text(s, 3, r->text, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 4, r->text2, -1, SQLITE_STATIC);
        return lc__sqlite_step(l, s);
    case LC__LOG_HPARAMS:
        return write_hparams(l, r);
    case LC__LOG_HISTOGRAM:
    case LC__LOG_IMAGE:
    case LC__LOG_TEXT:
        break; /* not stored in the database */
    }
    return LC_OK;
}

/* SQLite goes on writing to a database that has lost its name, which nobody can read then. */
static lc_status check_name(lc__sqlite *l)
{
    int moved = 0;
    sqlite3_file_control(l->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    if (!moved) return LC_OK;
    return lc_fail(LC_ERR_IO, "cannot write \"%s\": it was removed or replaced during the run; put it back", l->path);
}

static lc_status transaction(lc__sqlite *l, const lc__log_batch *batch)
{
    int rc = sqlite3_exec(l->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_BUSY) {
        lc__sqlite_fail(l, "write");
        return LC_SKIP;
    }
    if (rc != SQLITE_OK) return lc__sqlite_fail(l, "write");
    lc_status status = LC_OK;
    lc__log_record r;
    for (size_t cursor = 0; status >= 0 && lc__log_next(batch, &cursor, &r);) status = write_record(l, &r);
    if (status >= 0) {
        rc = sqlite3_exec(l->db, "COMMIT", NULL, NULL, NULL);
        if (rc == SQLITE_OK) return LC_OK;
        status = lc__sqlite_fail(l, "write");
        if (rc == SQLITE_BUSY) status = LC_SKIP; /* a reader of a rollback journal */
    }
    sqlite3_exec(l->db, "ROLLBACK", NULL, NULL, NULL);
    forget_keys(l); /* ids from this transaction are no longer valid */
    return status;
}

static lc_status sink(void *self, const lc__log_batch *batch)
{
    lc__sqlite *l = self;
    lc_status status = lc__sqlite_lock(l, 1000);
    if (status != LC_OK) {
        lc_fail(LC_ERR_IO, "cannot write \"%s\": another run holds its lock", l->path);
        return status;
    }
    status = check_name(l);
    if (status >= 0) status = transaction(l, batch);
    lc__sqlite_unlock(l);
    return status;
}

/* ---- the logger ---- */

static lc_status sqlite_start(void *self, const lc_run_info *run)
{
    lc__sqlite *l = self;
    if (l->writer) return lc_fail(LC_ERR_STATE, "the sqlite logger was already started");
    LC_TRY(lc__path_join(run->root_dir, "lightc.db", &l->path));
    lc_status status = lc__sqlite_open(l, run);
    if (status >= 0) status = lc__log_writer_new("sqlite", sink, l, INTERVAL_MS, &l->writer);
    if (status >= 0) lc__log_set_patience(l->writer, l->patience_ms);
    if (status < 0) lc__sqlite_close(l);
    return status;
}

static lc_status insert_event(lc__sqlite *l, const char *level, const char *text)
{
    sqlite3_stmt *s = l->insert_event;
    sqlite3_bind_int64(s, 2, lc__realtime_ns());
    sqlite3_bind_text(s, 3, level, -1, SQLITE_STATIC);
    sqlite3_bind_text(s, 4, text, -1, SQLITE_STATIC);
    return lc__sqlite_step(l, s);
}

/* Stores how the run ended, and what was lost ("": nothing): only with the lock. */
static lc_status write_end(lc__sqlite *l, const char *how, const char *lost)
{
    if (lc__sqlite_lock(l, l->patience_ms) != LC_OK)
        return lc_fail(
            LC_ERR_IO,
            "cannot write \"%s\": another run holds its lock; the end of this run (%s) is not recorded in it", l->path,
            how);
    lc_status status = check_name(l);
    if (status >= 0) status = write_status(l, how, lc__realtime_ns());
    if (status >= 0 && *lost) status = insert_event(l, "error", lost);
    lc__sqlite_unlock(l);
    return status;
}

static lc_status sqlite_finish(void *self, const char *how)
{
    lc__sqlite *l = self;
    if (!l->writer) return LC_OK;
    lc_status status = lc__log_finish(l->writer);
    l->writer = NULL;
    char lost[1024] = "";
    if (status < 0) lc__copy_message(lost, sizeof lost);
    lc_status ended = write_end(l, how, lost);
    lc__sqlite_close(l);
    if (status >= 0) return ended;
    return ended < 0 ? lc_fail_context(status, "%.500s; and", lost) : lc_fail(status, "%s", lost);
}

static void sqlite_release(void *self)
{
    lc__sqlite *l = self;
    if (sqlite_finish(l, "interrupted") < 0) {
    } /* callers that need the result call finish */
    lc__sqlite_close(l);
    forget_keys(l);
    free(l->keys);
    free(l->path);
}

static const lc_logger_ops sqlite_ops = {
    LC_LOGGER_OPS_INIT,
    .name = "sqlite",
    .start = sqlite_start,
    .log_row = lc__slot_row,
    .log_hyperparameters = lc__slot_hparams,
    .log_checkpoint = lc__slot_checkpoint,
    .log_checkpoint_removed = lc__slot_removed,
    .log_message = lc__slot_message,
    .log_status = lc__slot_status,
    .flush = lc__slot_flush,
    .finish = sqlite_finish,
    .free = lc__owned_free,
};

void lc__sqlite_set_patience(const lc_logger *logger, int ms)
{
    ((lc__sqlite *)logger->self)->patience_ms = ms;
}

lc_status lc_sqlite_logger_new(lc_logger *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc__sqlite *l = lc__owned_new(sizeof *l, sqlite_release);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: the sqlite logger");
    l->lock_fd = -1;
    l->patience_ms = LC__LOG_PATIENCE_MS;
    *out = (lc_logger){&sqlite_ops, l};
    return LC_OK;
}
