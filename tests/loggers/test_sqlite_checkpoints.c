/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints in the run database: those that exist, those that were removed or replaced, and a database from before
 * these were distinguished. */
#include "logger_run.h"

static void start(lc_logger *l, const char *dir, const char *id)
{
    lc_run_info run = run_info(dir);
    run.run_id = id;
    CHECK_OK(lc_sqlite_logger_new(l));
    CHECK_OK(l->ops->start(l->self, &run));
}

static void finish(lc_logger *l)
{
    CHECK_OK(l->ops->finish(l->self, "success"));
    l->ops->free(l->self);
}

TEST(removed_and_replaced_checkpoints_are_marked)
{
    const char *dir = fresh_dir("marked");
    lc_logger l;
    start(&l, dir, "run-1");
    CHECK_OK(l.ops->log_checkpoint(l.self, "a.ckpt", 1, 0.5, true));
    CHECK_OK(l.ops->log_checkpoint(l.self, "last.ckpt", 1, 0, false));
    CHECK_OK(l.ops->log_checkpoint(l.self, "b.ckpt", 2, 0.25, true));
    CHECK_OK(l.ops->log_checkpoint_removed(l.self, "a.ckpt"));
    CHECK_OK(l.ops->log_checkpoint_removed(l.self, "never.ckpt"));
    CHECK_OK(l.ops->log_checkpoint(l.self, "last.ckpt", 2, 0, false));
    finish(&l);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM checkpoint"), 4);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_checkpoint"), 2);
    CHECK_EQ(query_int(dir, "SELECT step FROM v_checkpoint WHERE path = 'last.ckpt'"), 2);
    CHECK_EQ(query_int(dir, "SELECT score * 100 FROM v_checkpoint WHERE path = 'b.ckpt'"), 25);
    CHECK_EQ(query_int(dir, "SELECT removed_ns >= wall_ns FROM checkpoint WHERE path = 'a.ckpt'"), 1);
    /* A resumed run removes a checkpoint that the previous one has saved. */
    start(&l, dir, "run-2");
    CHECK_OK(l.ops->log_checkpoint_removed(l.self, "b.ckpt"));
    finish(&l);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_checkpoint WHERE path = 'b.ckpt'"), 0);
}

/* Two runs with one directory for checkpoints: a name that one frees is used by the other. */
TEST(a_newer_checkpoint_of_another_run_stays)
{
    const char *dir = fresh_dir("names");
    lc_logger first, second;
    start(&first, dir, "run-1");
    CHECK_OK(first.ops->log_checkpoint(first.self, "a.ckpt", 1, 0, false));
    CHECK_OK(first.ops->log_checkpoint(first.self, "b.ckpt", 1, 0, false));
    CHECK_OK(first.ops->flush(first.self));
    start(&second, dir, "run-2");
    CHECK_OK(second.ops->log_checkpoint(second.self, "a.ckpt", 2, 0, false));
    CHECK_OK(second.ops->flush(second.self));
    CHECK_OK(first.ops->log_checkpoint_removed(first.self, "a.ckpt"));
    CHECK_OK(second.ops->log_checkpoint_removed(second.self, "b.ckpt"));
    finish(&first);
    finish(&second);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_checkpoint"), 1);
    CHECK_EQ(query_int(dir, "SELECT step FROM v_checkpoint WHERE path = 'a.ckpt'"), 2);
}

/* The row of the older one may be written later. */
TEST(a_checkpoint_logged_later_stays)
{
    const char *dir = fresh_dir("later");
    char path[512];
    lc_logger first, second;
    sqlite3 *db;
    start(&first, dir, "run-1");
    start(&second, dir, "run-2");
    CHECK_OK(second.ops->log_checkpoint(second.self, "a.ckpt", 1, 0, false));
    finish(&second);
    snprintf(path, sizeof path, "%s/lightc.db", dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "UPDATE checkpoint SET wall_ns = wall_ns + 3600 * 1000000000", NULL, NULL, NULL) ==
          SQLITE_OK);
    sqlite3_close(db);
    CHECK_OK(first.ops->log_checkpoint(first.self, "a.ckpt", 2, 0, false));
    finish(&first);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_checkpoint WHERE step = 1"), 1);
}

TEST(an_older_database_is_brought_up_to_date)
{
    const char *dir = fresh_dir("older");
    char path[512];
    lc_logger l;
    sqlite3 *db;
    start(&l, dir, "run-1");
    CHECK_OK(l.ops->log_checkpoint(l.self, "a.ckpt", 1, 0.5, true));
    finish(&l);
    snprintf(path, sizeof path, "%s/lightc.db", dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db,
                       "DROP VIEW v_checkpoint; DROP INDEX checkpoint_by_path;"
                       "ALTER TABLE checkpoint DROP COLUMN removed_ns; PRAGMA user_version = 1",
                       NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    start(&l, dir, "run-2");
    CHECK_OK(l.ops->log_checkpoint(l.self, "b.ckpt", 1, 0.5, true));
    CHECK_OK(l.ops->log_checkpoint_removed(l.self, "a.ckpt"));
    finish(&l);
    CHECK_EQ(query_int(dir, "PRAGMA user_version"), 2);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM checkpoint"), 2);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_checkpoint WHERE path = 'b.ckpt'"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_checkpoint"), 1);
}

TEST_MAIN
