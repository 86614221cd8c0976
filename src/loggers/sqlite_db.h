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
    lc__sqlite_key *keys; /* sorted by name; the database's ids of metrics */
    int n_keys, keys_capacity;
} lc__sqlite;

/* Opens the database at l->path, and stores the run. Call lc__sqlite_close afterwards, even on failure. */
lc_status lc__sqlite_open(lc__sqlite *l, const lc_run_info *run) LC_MUST_USE;
void lc__sqlite_close(lc__sqlite *l);

/* Takes the writers' lock; LC_SKIP if others hold it for `ms`. Never blocks for longer, as a stopped process could hold
 * the lock forever. */
lc_status lc__sqlite_lock(lc__sqlite *l, int ms) LC_MUST_USE;
void lc__sqlite_unlock(lc__sqlite *l);

/* Compiles a statement, which the caller finalizes; runs a statement that returns no rows. */
lc_status lc__sqlite_prepare(lc__sqlite *l, const char *sql, sqlite3_stmt **out) LC_MUST_USE;
lc_status lc__sqlite_step(lc__sqlite *l, sqlite3_stmt *s) LC_MUST_USE;

/* Sets the message "cannot WHAT the database" with SQLite's reason, and returns the status. */
lc_status lc__sqlite_fail(lc__sqlite *l, const char *what);

#endif
