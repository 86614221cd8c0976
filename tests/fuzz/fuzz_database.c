/* SPDX-License-Identifier: Apache-2.0 */
/* The sqlite logger on a run database that was tampered with: rows, schema and bytes. It logs a run, or every call that
 * fails sets a message. The input lists the changes, CHANGE bytes each. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "scratch.h"

#include <lightc/lightc.h>

#include <fcntl.h>
#include <sqlite3.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

enum { CHANGE = 6 };

static char good[300], bad[300];

static void must(lc_status s)
{
    if (s < 0 && !lc_error_message()[0]) abort(); /* it failed without a message */
}

static void log_run(const char *dir, const char *id)
{
    lc_logger l;
    const lc_named_text options[] = {{"max_epochs", "3"}, {"logger", NULL}};
    lc_run_info run = {.root_dir = dir, .name = "runs", .run_dir = dir, .options = options, .n_options = 2};
    lc_metric_value values[] = {{"loss", 0.5}, {"acc", 1}};
    lc_log_row row = {.step = 1, .epoch = 0, .n = 2, .values = values};
    lc_hparam p = {.name = "lr", .kind = LC_HPARAM_FLOAT, .number = 0.1};
    run.run_id = id;
    if (lc_sqlite_logger_new(&l) < 0) abort();
    lc_status s = l.ops->start(l.self, &run);
    must(s);
    if (s >= 0) {
        must(l.ops->log_hyperparameters(l.self, &p, 1));
        must(l.ops->log_row(l.self, &row));
        must(l.ops->log_checkpoint(l.self, "a.ckpt", 1, 0.5, true));
        must(l.ops->log_checkpoint_removed(l.self, "a.ckpt"));
        must(l.ops->log_message(l.self, LC_WARNING, "text"));
        must(l.ops->finish(l.self, "finished"));
    }
    l.ops->free(l.self);
}

/* ---- changes ---- */

static void change_sql(const uint8_t *c)
{
    static const char *const tables[] = {"run",        "segment", "option",     "hyperparameter",
                                         "metric_key", "metric",  "checkpoint", "event"};
    static const char *const columns[] = {"id", "run", "name", "value", "segment", "status", "key", "path"};
    static const char *const values[] = {"NULL", "-1",      "9223372036854775807", "1e300", "''", "x'ff00'",
                                         "0",    "char(27)"};
    static const char *const forms[] = {
        "DROP TABLE %s",
        "ALTER TABLE %s RENAME COLUMN %s TO other",
        "ALTER TABLE %s DROP COLUMN %s",
        "DELETE FROM %s",
        "UPDATE %s SET %s = %s",
        "CREATE TRIGGER refuse BEFORE INSERT ON %s BEGIN SELECT RAISE(ABORT, %.0s %s); END",
        "CREATE TRIGGER removes AFTER INSERT ON %s BEGIN DELETE FROM run; END",
        "DROP TABLE IF EXISTS %1$s; CREATE TABLE %1$s(%2$s)",
        "DROP TABLE IF EXISTS %1$s; CREATE VIEW %1$s AS SELECT %3$s AS %2$s",
        "DROP VIEW v_checkpoint; DROP INDEX checkpoint_by_path; PRAGMA user_version = 1",
        "PRAGMA user_version = %3$s -- %1$s %2$s",
        "PRAGMA application_id = %3$s -- %1$s %2$s",
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = %3$s WHERE name = '%1$s' -- %2$s",
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = %3$s WHERE name = '%1$s' -- %2$s",
        "PRAGMA journal_mode = DELETE; PRAGMA encoding = 'UTF-16'",
    };
    char *sql;
    const char *table = tables[c[2] % 8], *column = columns[c[3] % 8], *value = values[c[4] % 8];
    sqlite3 *db;
    if (sqlite3_open(bad, &db) == SQLITE_OK) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        if (asprintf(&sql, forms[c[1] % (sizeof forms / sizeof *forms)], table, column, value) < 0) abort();
#pragma GCC diagnostic pop
        sqlite3_exec(db, sql, NULL, NULL, NULL); /* if it fails, nothing is changed */
        free(sql);
    }
    sqlite3_close(db);
}

static void change_bytes(const uint8_t *c)
{
    int fd = open(bad, O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) abort();
    if (st.st_size) {
        off_t at = c[1] % 4 ? (off_t)(c[1] / 4) * 4096 % st.st_size + c[2] % 110 : (c[2] | c[3] << 8) % st.st_size;
        if (c[0] % 4 == 3 ? ftruncate(fd, at) < 0 : pwrite(fd, c + 4, 2, at) != 2) abort();
    }
    close(fd);
}

static void copy(const char *from, const char *to)
{
    char *text = malloc(1 << 20);
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    if (!text || !in || !out) abort();
    size_t n = fread(text, 1, 1 << 20, in);
    if (fwrite(text, 1, n, out) != n) abort();
    fclose(in);
    fclose(out);
    free(text);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    unsigned int random = seed;
    if ((size >= CHANGE && rand_r(&random) % 2) || size + CHANGE > room) return LLVMFuzzerMutate(data, size, room);
    for (int i = 0; i < CHANGE; i++) data[size++] = (uint8_t)(rand_r(&random) >> 8);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char dir[250];
    char other[320];
    static const char *const rest[] = {"-wal", "-shm", "-journal", ".lock"};
    if (!*good) {
        snprintf(dir, sizeof dir, "%s/runs", scratch_root);
        snprintf(bad, sizeof bad, "%s/lightc.db", dir);
        if (mkdir(dir, 0777) < 0) abort();
        log_run(dir, "first");
        snprintf(good, sizeof good, "%s/good.db", scratch_root);
        copy(bad, good);
    }
    for (size_t i = 0; i < 4; i++) {
        snprintf(other, sizeof other, "%s%s", bad, rest[i]);
        unlink(other);
    }
    copy(good, bad);
    for (; size >= CHANGE; data += CHANGE, size -= CHANGE) data[0] % 4 < 2 ? change_sql(data) : change_bytes(data);
    log_run(dir, "first");
    log_run(dir, "second");
    return 0;
}
