/* SPDX-License-Identifier: Apache-2.0 */
/* The sqlite logger, and what its rows need of the database. */
#ifndef LC_LOGGERS_SQLITE_DB_H
#define LC_LOGGERS_SQLITE_DB_H

#include "loggers/writer.h"

#include <sqlite3.h>

typedef struct lc__sqlite_key {
    char *name;
    int64_t id;
} lc__sqlite_key;

typedef struct lc__sqlite {
    lc__log_writer *writer; /* first: lc__slot_* */
    /* Used by the training thread in start and finish, and between them only by the writer's thread. */
    char *path;
    sqlite3 *db;
    sqlite3_stmt *insert_metric, *insert_key, *find_key, *insert_checkpoint, *remove_checkpoint, *insert_event;
    int lock_fd; /* -1: no lock is used */
    int patience_ms;
    int64_t run, segment;
    lc__sqlite_key *keys; /* sorted by name; what the database calls the metrics */
    int n_keys, keys_capacity;
} lc__sqlite;

/* Opens lightc.db, whose path is known, and stores the run. lc__sqlite_close afterwards, even if it failed. */
lc_status lc__sqlite_open(lc__sqlite *l, const lc_run_info *run) LC_MUST_USE;
void lc__sqlite_close(lc__sqlite *l);

/* Keeps other writers out; LC_SKIP if they do not let us in for `ms`. Never blocks for longer, as a stopped process
 * could hold the lock for ever. */
lc_status lc__sqlite_lock(lc__sqlite *l, int ms) LC_MUST_USE;
void lc__sqlite_unlock(lc__sqlite *l);

/* Compiles a statement, which the caller finalizes; runs one that gives no rows. */
lc_status lc__sqlite_prepare(lc__sqlite *l, const char *sql, sqlite3_stmt **out) LC_MUST_USE;
lc_status lc__sqlite_step(lc__sqlite *l, sqlite3_stmt *s) LC_MUST_USE;

/* "cannot `what`" the database, and why; returns the status of that. */
lc_status lc__sqlite_fail(lc__sqlite *l, const char *what);

#endif
