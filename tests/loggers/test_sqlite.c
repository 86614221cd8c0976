/* SPDX-License-Identifier: Apache-2.0 */
/* The run database: its contents, several runs at once, readers, and a run that is killed. */
#include "logger_run.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

TEST(sqlite_rows)
{
    const char *dir = fresh_dir("sqlite");
    lc_run_info run = run_info(dir);
    lc_logger l;
    CHECK_OK(lc_logger_new("sqlite", &l));
    CHECK_OK(l.ops->start(l.self, &run));
    CHECK_OK(l.ops->log_hyperparameters(l.self, hparams, N_HPARAMS));
    ROW(&l, 1, 0, {"loss", 0.5}, {"acc", 1});
    ROW(&l, 2, 0, {"loss", NAN}, {"acc", INFINITY});
    ROW(&l, 3, -1, {"loss", 0.25});
    CHECK_OK(l.ops->log_checkpoint(l.self, "a.ckpt", 3, 0.5, true));
    CHECK_OK(l.ops->log_checkpoint(l.self, "b.ckpt", 4, 0, false));
    CHECK_OK(l.ops->log_message(l.self, LC_WARNING, "it's odd"));
    CHECK_OK(l.ops->flush(l.self));
    /* Read while it is open. */
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 5);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_metric WHERE name = 'loss' AND kind = 1 AND value IS NULL"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_metric WHERE name = 'acc' AND kind = 2 AND value > 1e300"), 1);
    CHECK_EQ(query_int(dir, "SELECT value * 100 FROM v_latest WHERE name = 'loss'"), 25);
    CHECK_EQ(query_int(dir, "SELECT json_extract(metrics, '$.loss') * 100 FROM v_metric_wide WHERE step = 1"), 50);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM checkpoint WHERE score IS NULL"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM event WHERE level = 'warning' AND text = 'it''s odd'"), 1);
    CHECK_EQ(
        query_int(
            dir,
            "SELECT count(*) FROM run WHERE status = 'running' AND run_id = 'run-1' AND command LIKE '%test_sqlite%'"),
        1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM option WHERE name = 'max_epochs' AND value = '5'"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM option WHERE value IS NULL"), 1);
    CHECK_EQ(query_int(dir, "SELECT value IS NULL FROM hyperparameter WHERE name = 'clip'"), 1);
    CHECK_EQ(query_int(dir, "SELECT value = '1e-05' FROM hyperparameter WHERE name = 'optimizer/lr'"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM hyperparameter"), N_HPARAMS);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_run WHERE seconds >= 0"), 1);
    /* The status of a run is known without finish. */
    CHECK_OK(l.ops->log_status(l.self, "interrupted"));
    CHECK_OK(l.ops->flush(l.self));
    CHECK_EQ(query_int(dir, "SELECT status = 'interrupted' AND ended_ns >= started_ns FROM run"), 1);
    CHECK_OK(l.ops->log_status(l.self, "running"));
    CHECK_OK(l.ops->flush(l.self));
    CHECK_EQ(query_int(dir, "SELECT status = 'running' AND ended_ns IS NULL FROM run"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM event"), 1);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    CHECK_EQ(query_int(dir, "SELECT status = 'success' AND ended_ns >= started_ns FROM run"), 1);
    /* Resumed at step 1: later rows of the first segment are no longer shown, but remain in the database. */
    run.resumed = true, run.resumed_step = 1;
    CHECK_OK(lc_sqlite_logger_new(&l));
    CHECK_OK(l.ops->start(l.self, &run));
    ROW(&l, 2, 0, {"loss", 0.125});
    CHECK_OK(l.ops->finish(l.self, "failed"));
    l.ops->free(l.self);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 6);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM run"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_metric"), 3);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_metric WHERE name = 'loss' AND step = 2 AND value = 0.125"), 1);
    CHECK_EQ(query_int(dir, "SELECT status = 'failed' FROM run"), 1);
}

TEST(sqlite_refuses_foreign_files)
{
    const char *dir = fresh_dir("foreign");
    lc_run_info run = run_info(dir);
    char path[512];
    lc_logger l;
    snprintf(path, sizeof path, "%s/lightc.db", dir);
    CHECK_OK(lc__create_file(&lc__io_system, path, "this is not a database, but it is long enough to look at", 56));
    CHECK_OK(lc_sqlite_logger_new(&l));
    CHECK(l.ops->start(l.self, &run) < 0);
    CHECK_CONTAINS(lc_error_message(), "lightc.db\": file is not a database; move it away");
    CHECK_OK(row(&l, 1, 0, 0, NULL)); /* not started: no error */
    CHECK_OK(l.ops->finish(l.self, "failed"));
    l.ops->free(l.self);
    CHECK(!unlink(path));
    sqlite3 *db;
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "CREATE TABLE x(a)", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    CHECK_OK(lc_sqlite_logger_new(&l));
    CHECK_STATUS(l.ops->start(l.self, &run), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "database of another program");
    l.ops->free(l.self);
    CHECK_STATUS(lc_logger_new("sqlit", &l), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "available: csv, sqlite, tensorboard");
}

#define PROCESSES 4
#define ROWS      3000

static int one_run(const char *dir, int number)
{
    char id[32], name[32];
    lc_run_info run = run_info(dir);
    snprintf(id, sizeof id, "run-%d", number);
    snprintf(name, sizeof name, "own_%d", number);
    run.run_id = id, run.version = number;
    lc_logger l;
    if (lc_sqlite_logger_new(&l) < 0) return 1;
    if (l.ops->start(l.self, &run) < 0) {
        fprintf(stderr, "%s\n", lc_error_message());
        return 2;
    }
    for (int i = 0; i < ROWS; i++) {
        lc_metric_value values[] = {{"loss", i}, {name, number}};
        if (row(&l, i, 0, 2, values) < 0) return 3;
        if (i % 500 == number && l.ops->flush(l.self) < 0) return 4;
    }
    if (l.ops->finish(l.self, "success") < 0) {
        fprintf(stderr, "%s\n", lc_error_message());
        return 5;
    }
    l.ops->free(l.self);
    return 0;
}

TEST(sqlite_several_processes)
{
    const char *dir = fresh_dir("several");
    pid_t children[PROCESSES];
    for (int k = 0; k < PROCESSES; k++) {
        children[k] = fork();
        CHECK(children[k] >= 0);
        if (!children[k]) _exit(one_run(dir, k));
    }
    /* A reader in between, such as the sqlite3 program. */
    for (int i = 0; i < 20; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/lightc.db", dir);
        struct timespec pause = {0, 10000000};
        nanosleep(&pause, NULL);
        if (!access(path, F_OK) && i > 5) query_int(dir, "SELECT count(*) FROM sqlite_master");
    }
    for (int k = 0; k < PROCESSES; k++) {
        int how;
        CHECK(waitpid(children[k], &how, 0) == children[k]);
        CHECK(WIFEXITED(how));
        CHECK_EQ(WEXITSTATUS(how), 0);
    }
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM run WHERE status = 'success'"), PROCESSES);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 2 * PROCESSES * ROWS);
    CHECK_EQ(
        query_int(dir, "SELECT count(DISTINCT run * 100000 + step) FROM v_metric WHERE name = 'loss' AND value = step"),
        PROCESSES * ROWS);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_metric m JOIN run r ON r.id = m.run WHERE m.name = 'own_' || "
                            "r.version AND m.value = r.version"),
             PROCESSES * ROWS);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric_key"), 1 + PROCESSES);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
}

TEST(sqlite_killed_run_keeps_what_was_flushed)
{
    const char *dir = fresh_dir("killed");
    int fds[2], how;
    CHECK(!pipe(fds));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        lc_run_info run = run_info(dir);
        lc_logger l;
        if (lc_sqlite_logger_new(&l) < 0 || l.ops->start(l.self, &run) < 0) _exit(1);
        for (int i = 0;; i++) {
            lc_metric_value v = {"x", i};
            if (row(&l, i, 0, 1, &v) < 0) _exit(2);
            if (i % 100 == 99 && (l.ops->flush(l.self) < 0 || write(fds[1], &i, sizeof i) != sizeof i)) _exit(3);
        }
    }
    close(fds[1]);
    int last = -1;
    CHECK(read(fds[0], &last, sizeof last) == sizeof last);
    struct timespec pause = {0, 150000000};
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how));
    while (read(fds[0], &last, sizeof last) == sizeof last) {
    }
    close(fds[0]);
    CHECK(query_int(dir, "SELECT count(*) FROM metric") >= last + 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
}

TEST_MAIN
