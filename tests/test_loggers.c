/* SPDX-License-Identifier: Apache-2.0 */
/* Loggers: what is in metrics.csv and in the run database, with several runs at once, readers, full disks. */
#include "test.h"
#include <lightc/logger.h>
#include "core/io.h"
#include "loggers/writer.h"
#include "fail_malloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char root[256];
static pid_t owner;

__attribute__((constructor)) static void make_dir(void)
{
    snprintf(root, sizeof root, "/tmp/lightc-test-log-XXXXXX");
    if (!mkdtemp(root)) abort();
    owner = getpid();
}

__attribute__((destructor)) static void remove_dir(void)
{
    if (getpid() == owner && lc__remove_tree(&lc__io_system, root) < 0) fprintf(stderr, "%s is left behind\n", root);
}

static const char *fresh_dir(const char *name)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", root, name);
    CHECK_OK(lc__remove_tree(&lc__io_system, path));
    CHECK(!mkdir(path, 0777));
    return path;
}

static lc_run_info run_info(const char *dir)
{
    static const lc_named_text options[] = {{"max_epochs", "5"}, {"strategy", NULL}};
    return (lc_run_info){.root_dir = dir,
                         .name = "lightning_logs",
                         .run_dir = dir,
                         .options = options,
                         .n_options = 2,
                         .run_id = "run-1"};
}

static const lc_hparam hparams[] = {
    {"optimizer/lr", LC_HPARAM_FLOAT, .number = 1e-5},
    {"depth", LC_HPARAM_INT, .integer = -3},
    {"bias", LC_HPARAM_BOOL, .integer = 1},
    {"clip", LC_HPARAM_NONE},
    {"note", LC_HPARAM_TEXT, .text = "a: \"b\"\n"},
    {"name", LC_HPARAM_TEXT, .text = "resnet-18"},
    {"switch", LC_HPARAM_TEXT, .text = "Off"},
    {"limit", LC_HPARAM_FLOAT, .number = -INFINITY},
    {"broken", LC_HPARAM_TEXT, .text = "\xff?"},
};
#define N_HPARAMS ((int)(sizeof hparams / sizeof *hparams))
static const char yaml[] = "bias: true\nbroken: \"??\"\nclip: null\ndepth: 4\nlimit: -.inf\nname: resnet-18\n"
                           "note: \"a: \\\"b\\\"\\n\"\noptimizer/lr: 1.0e-05\nswitch: \"Off\"\n";

static lc_status row(lc_logger *l, int64_t step, int64_t epoch, int n, const lc_metric_value *values)
{
    lc_log_row r = {values, n, step, epoch, lc__wall_ns()};
    return l->ops->log_row(l->self, &r);
}

#define ROW(l, step, epoch, ...)                                                                                       \
    CHECK_OK(row(l, step, epoch, (int)(sizeof((lc_metric_value[]){__VA_ARGS__}) / sizeof(lc_metric_value)),            \
                 (lc_metric_value[]){__VA_ARGS__}))

static char *slurp(const char *dir, const char *name)
{
    static char text[1 << 20];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    CHECK(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

/* ---- csv ---- */

TEST(csv_is_lightnings)
{
    for (int flush = 0; flush < 2; flush++) { /* all columns known at once, or a new file for every new one */
        const char *dir = fresh_dir("csv");
        lc_run_info run = run_info(dir);
        lc_logger l;
        CHECK_OK(lc_logger_new("csv", &l));
        CHECK_OK(l.ops->start(l.self, &run));
        CHECK_OK(l.ops->log_hyperparameters(l.self, hparams, N_HPARAMS));
        if (flush) CHECK_OK(l.ops->flush(l.self));
        CHECK_OK(l.ops->log_hyperparameters(l.self, &(lc_hparam){"depth", LC_HPARAM_INT, .integer = 4}, 1));
        ROW(&l, 1, 0, {"a", 1}, {"b_step", 1}, {"c", 1});
        if (flush) CHECK_OK(l.ops->flush(l.self));
        ROW(&l, 3, 0, {"a", 3}, {"b_step", 3}, {"c", 0.1});
        ROW(&l, 0, -1, {"vb_step", 0});
        if (flush) CHECK_OK(l.ops->flush(l.self));
        ROW(&l, 4, 0, {"v", 1}, {"vb_epoch", NAN});
        if (flush) CHECK_OK(l.ops->flush(l.self));
        ROW(&l, 4, 0, {"b_epoch", 2.0 / 3}, {"c", INFINITY});
        CHECK_OK(l.ops->finish(l.self, "success"));
        l.ops->free(l.self);
        CHECK_STR(slurp(dir, "metrics.csv"), "a,b_epoch,b_step,c,epoch,step,v,vb_epoch,vb_step\n"
                                             "1.0,,1.0,1.0,0,1,,,\n"
                                             "3.0,,3.0,0.1,0,3,,,\n"
                                             ",,,,,0,,,0.0\n"
                                             ",,,,0,4,1.0,nan,\n"
                                             ",0.6666666666666666,,inf,0,4,,,\n");
        CHECK_STR(slurp(dir, "hparams.yaml"), yaml);
        if (!flush) continue;
        /* Continued by the next run in the same place, with a new column, after half a row of a killed process. */
        char path[512];
        snprintf(path, sizeof path, "%s/metrics.csv", dir);
        int fd = open(path, O_WRONLY | O_APPEND);
        CHECK(fd >= 0 && write(fd, "5.0,,", 5) == 5);
        close(fd);
        CHECK_OK(lc_logger_new("csv", &l));
        CHECK_OK(l.ops->start(l.self, &run));
        ROW(&l, 5, 1, {"a", 5});
        CHECK_OK(l.ops->flush(l.self));
        ROW(&l, 6, 1, {"a,\"x\"", 6});
        CHECK_OK(l.ops->flush(l.self));
        ROW(&l, 7, 1, {"epoch", 1.5});
        CHECK_OK(l.ops->finish(l.self, "success"));
        l.ops->free(l.self);
        CHECK_STR(slurp(dir, "metrics.csv"), "a,\"a,\"\"x\"\"\",b_epoch,b_step,c,epoch,step,v,vb_epoch,vb_step\n"
                                             "1.0,,,1.0,1.0,0,1,,,\n"
                                             "3.0,,,3.0,0.1,0,3,,,\n"
                                             ",,,,,,0,,,0.0\n"
                                             ",,,,,0,4,1.0,nan,\n"
                                             ",,0.6666666666666666,,inf,0,4,,,\n"
                                             "5.0,,,,,1,5,,,\n"
                                             ",6.0,,,,1,6,,,\n"
                                             ",,,,,1.5,7,,,\n");
        CHECK_OK(lc_logger_new("csv", &l));
        CHECK_OK(l.ops->start(l.self, &run));
        ROW(&l, 8, 1, {"a,\"x\"", 8});
        CHECK_OK(l.ops->finish(l.self, "success"));
        l.ops->free(l.self);
        CHECK_CONTAINS(slurp(dir, "metrics.csv"), "\n,8.0,,,,1,8,,,\n");
    }
}

/* At every moment the file is a table: a header and whole rows with as many cells. */
TEST(csv_is_whole_at_every_moment)
{
    const char *dir = fresh_dir("whole");
    lc_run_info run = run_info(dir);
    lc_logger l;
    CHECK_OK(lc_csv_logger_new(&l));
    CHECK_OK(l.ops->start(l.self, &run));
    char path[512], name[32];
    snprintf(path, sizeof path, "%s/metrics.csv", dir);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "m%03d", i * 7 % 40);
        ROW(&l, i, 0, {name, i});
        if (i % 10 == 0) CHECK_OK(l.ops->flush(l.self));
        if (!i) continue;
        char *text, *p;
        size_t n, cells = 0, commas = 0;
        CHECK_OK(lc__io_read_file(&lc__io_system, path, 1 << 24, &text, &n));
        CHECK(n && text[n - 1] == '\n');
        for (p = text; *p != '\n'; p++) cells += *p == ',';
        for (p++; *p; p++) {
            commas += *p == ',';
            if (*p != '\n') continue;
            CHECK_EQ(commas, cells);
            commas = 0;
        }
        free(text);
    }
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    char *text = slurp(dir, "metrics.csv");
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    CHECK_EQ(lines, 301);
}

TEST(pandas_reads_it)
{
    const char *python = getenv("LIGHTC_PEERS_PYTHON");
    if (!python || access(python, X_OK) < 0) SKIP("LIGHTC_PEERS_PYTHON does not name a Python with pandas");
    char command[2048];
    snprintf(command, sizeof command, "%s -c 'import pandas' 2>/dev/null", python);
    if (system(command) != 0) SKIP("the Python of LIGHTC_PEERS_PYTHON has no pandas");
    const char *dir = fresh_dir("pandas");
    lc_run_info run = run_info(dir);
    lc_logger l;
    CHECK_OK(lc_csv_logger_new(&l));
    CHECK_OK(l.ops->start(l.self, &run));
    ROW(&l, 1, 0, {"loss", 0.25});
    CHECK_OK(l.ops->flush(l.self));
    ROW(&l, 2, 0, {"loss", INFINITY}, {"acc, top 5", 0.5});
    CHECK_OK(l.ops->flush(l.self)); /* still open */
    snprintf(
        command, sizeof command,
        "%s -c \"import pandas, math; d = pandas.read_csv('%s/metrics.csv'); assert list(d.columns) == ['acc, top 5', "
        "'epoch', 'loss', 'step'], d.columns; assert d.loss[0] == 0.25 and math.isinf(d.loss[1]); assert d.step.dtype "
        "== "
        "'int64'; assert math.isnan(d['acc, top 5'][0])\"",
        python, dir);
    CHECK_EQ(system(command), 0);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
}

/* ---- sqlite ---- */

static int64_t query_int(const char *dir, const char *sql)
{
    char path[512];
    sqlite3 *db;
    sqlite3_stmt *s;
    snprintf(path, sizeof path, "%s/lightc.db", dir);
    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK) TEST_FAIL("%s: %s", sql, sqlite3_errmsg(db));
    int rc = sqlite3_step(s);
    if (rc != SQLITE_ROW) TEST_FAIL("%s: %s", sql, sqlite3_errmsg(db));
    int64_t value = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return value;
}

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
    CHECK_OK(l.ops->log_event(l.self, "warning", "it's odd"));
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
            "SELECT count(*) FROM run WHERE status = 'running' AND run_id = 'run-1' AND command LIKE '%test_loggers%'"),
        1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM option WHERE name = 'max_epochs' AND value = '5'"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM option WHERE value IS NULL"), 1);
    CHECK_EQ(query_int(dir, "SELECT value IS NULL FROM hyperparameter WHERE name = 'clip'"), 1);
    CHECK_EQ(query_int(dir, "SELECT value = '1e-05' FROM hyperparameter WHERE name = 'optimizer/lr'"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM hyperparameter"), N_HPARAMS);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM v_run WHERE seconds >= 0"), 1);
    /* How a run stands is known without finish. */
    CHECK_OK(l.ops->log_event(l.self, "status", "interrupted"));
    CHECK_OK(l.ops->flush(l.self));
    CHECK_EQ(query_int(dir, "SELECT status = 'interrupted' AND ended_ns >= started_ns FROM run"), 1);
    CHECK_OK(l.ops->log_event(l.self, "status", "running"));
    CHECK_OK(l.ops->flush(l.self));
    CHECK_EQ(query_int(dir, "SELECT status = 'running' AND ended_ns IS NULL FROM run"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM event"), 1);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    CHECK_EQ(query_int(dir, "SELECT status = 'success' AND ended_ns >= started_ns FROM run"), 1);
    /* Resumed at step 1: later rows of the first segment are not shown any more, but they are there. */
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

TEST(sqlite_refuses_what_is_not_its_own)
{
    const char *dir = fresh_dir("foreign");
    lc_run_info run = run_info(dir);
    char path[512];
    lc_logger l;
    snprintf(path, sizeof path, "%s/lightc.db", dir);
    CHECK_OK(lc__create_file(&lc__io_system, path, "this is not a database, but it is long enough to look at", 56));
    CHECK_OK(lc_sqlite_logger_new(&l));
    CHECK(l.ops->start(l.self, &run) < 0);
    CHECK_CONTAINS(lc_error_message(), "lightc.db");
    CHECK_OK(row(&l, 1, 0, 0, NULL)); /* not started: quiet */
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
    CHECK_CONTAINS(lc_error_message(), "known are: csv, sqlite, tensorboard");
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
    /* A reader in between, as somebody with the sqlite3 program would be. */
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
    struct timespec pause = {0, 150000000};
    nanosleep(&pause, NULL);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how));
    int last = -1;
    while (read(fds[0], &last, sizeof last) == sizeof last) {
    }
    close(fds[0]);
    CHECK(query_int(dir, "SELECT count(*) FROM metric") >= last + 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"), 1);
}

/* ---- tensorboard: what is in its files is the matter of test_tensorboard.c ---- */

static int count_events(const char *dir)
{
    int n = 0;
    uint64_t length;
    FILE *f = NULL;
    DIR *d = opendir(dir);
    CHECK(d);
    for (struct dirent *e; !f && (e = readdir(d));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (!strncmp(e->d_name, "events.out.tfevents.", 20)) f = fopen(path, "rb");
    }
    closedir(d);
    CHECK(f);
    while (fread(&length, 1, 8, f) == 8) {
        CHECK(length < 1000 && !fseek(f, 4 + (long)length + 4, SEEK_CUR));
        n++;
    }
    CHECK(feof(f));
    fclose(f);
    return n;
}

/* ---- trouble ---- */

typedef struct shaky {
    pthread_mutex_t lock;
    int fail; /* attempts that fail */
    int busy; /* then attempts that are put off */
    int64_t rows, calls;
} shaky;

static lc_status shaky_sink(void *self, const lc__log_batch *batch)
{
    shaky *s = self;
    lc_status status = LC_OK;
    pthread_mutex_lock(&s->lock);
    s->calls++;
    if (s->fail > 0)
        s->fail--, status = lc_fail(LC_ERR_IO, "the disk is full");
    else if (s->busy > 0)
        s->busy--, status = LC_SKIP;
    lc__log_record r;
    int64_t n = 0;
    for (size_t cursor = 0; status == LC_OK && lc__log_next(batch, &cursor, &r);) {
        const char *name;
        n++;
        for (int i = 0; i < r.n; i++) s->rows += lc__log_value(&r, &name) == 1.5 && !strcmp(name, "a name");
    }
    if (status == LC_OK && n != batch->n) abort();
    pthread_mutex_unlock(&s->lock);
    return status;
}

TEST(a_failure_is_reported_once_and_nothing_is_lost)
{
    shaky s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fail = 2, .busy = 2};
    lc__log_writer *w;
    CHECK_OK(lc__log_writer_new("shaky", shaky_sink, &s, 5, &w));
    lc_metric_value v = {"a name", 1.5};
    lc_log_row r = {&v, 1, 1, 0, 0};
    int errors = 0;
    for (int i = 0; i < 100; i++) {
        lc_status status = lc__log_row(w, &r);
        if (status < 0) {
            errors++;
            CHECK_STR(lc_error_message(), "logger shaky: the disk is full");
        }
        struct timespec pause = {0, 500000};
        nanosleep(&pause, NULL);
    }
    CHECK_EQ(errors, 1);
    lc_status status = lc__log_flush(w);
    if (status < 0) status = lc__log_flush(w);
    CHECK_OK(status);
    CHECK_OK(lc__log_finish(w));
    CHECK_EQ(s.rows, 100);
}

TEST(what_is_lost_is_counted)
{
    shaky s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fail = 1 << 30};
    lc__log_writer *w;
    CHECK_OK(lc__log_writer_new("shaky", shaky_sink, &s, 5, &w));
    static lc_metric_value v[1000];
    for (int i = 0; i < 1000; i++) v[i] = (lc_metric_value){"a name", 1.5};
    lc_log_row r = {v, 1000, 1, 0, 0};
    int errors = 0;
    for (int i = 0; i < 4000; i++) errors += lc__log_row(w, &r) < 0; /* 100 MB: more than it keeps */
    CHECK_EQ(errors, 1);
    CHECK(lc__log_flush(w) < 0);
    CHECK_STATUS(lc__log_finish(w), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "(4000 records were lost)");
}

static int with_limit(const char *dir, const char *name)
{
    /* 64 KiB a file: a disk that fills up; the signal keeps its default action. */
    lc_run_info run = run_info(dir);
    lc_logger l;
    if (lc_logger_new(name, &l) < 0 || l.ops->start(l.self, &run) < 0) return 1;
    struct rlimit limit = {65536, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) < 0) return 2;
    int errors = 0;
    for (int i = 0; i < 20000; i++) {
        lc_metric_value values[] = {{"loss", i + 0.1}};
        lc_status status = row(&l, i, 0, 1, values);
        if (status < 0 && !strstr(lc_error_message(), name)) return 3;
        errors += status < 0;
    }
    lc_status status = l.ops->flush(l.self);
    errors += status < 0;
    if (!errors || (status < 0 && !strstr(lc_error_message(), "cannot write \""))) return 4;
    limit.rlim_cur = RLIM_INFINITY; /* somebody made room */
    if (setrlimit(RLIMIT_FSIZE, &limit) < 0) return 5;
    if (l.ops->finish(l.self, "success") < 0) {
        fprintf(stderr, "%s\n", lc_error_message());
        return 6;
    }
    l.ops->free(l.self);
    return 0;
}

TEST(a_disk_that_was_full)
{
    static const char *const names[] = {"csv", "sqlite", "tensorboard"};
    for (int k = 0; k < 3; k++) {
        const char *dir = fresh_dir("full");
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) _exit(with_limit(dir, names[k]));
        int how;
        CHECK(waitpid(child, &how, 0) == child);
        if (!WIFEXITED(how) || WEXITSTATUS(how)) TEST_FAIL("%s: ended with %d", names[k], how);
        if (k == 2) {
            CHECK_EQ(count_events(dir), 1 + 2 * 20000); /* the version; loss and epoch */
        } else if (k) {
            CHECK_EQ(query_int(dir, "SELECT count(DISTINCT step) FROM metric"), 20000);
        } else {
            char *text = slurp(dir, "metrics.csv");
            int lines = 0;
            for (char *p = text; *p; p++) lines += *p == '\n';
            CHECK_EQ(lines, 20001);
            CHECK_CONTAINS(text, "\n0,19999.1,19999\n");
        }
    }
}

TEST(no_memory_at_many_calls)
{
#ifdef SANITIZED
    SKIP("sanitizers have an allocator of their own");
#else
    static const char *const names[] = {"csv", "sqlite", "tensorboard", "stream"};
    for (int k = 0; k < 4; k++) {
        bool done = false;
        int failed = 0;
        for (long n = 1; !done; n += 1 + n / 16) {
            const char *dir = fresh_dir("memory");
            lc_run_info run = run_info(dir);
            lc_logger l = {0};
            bool logged = false;
            atomic_store(&mallocs, 0);
            atomic_store(&malloc_fail_at, n);
            lc_status status = lc_logger_new(names[k], &l), ended = LC_OK;
            if (status >= 0) status = l.ops->start(l.self, &run);
            if (status >= 0) {
                logged = true;
                for (int i = 0; i < 3; i++) {
                    lc_metric_value values[] = {{"a", i}, {"b", i}};
                    lc_status one = row(&l, i, 0, 2, values);
                    if (one < 0) status = one;
                }
                lc_status one = l.ops->flush(l.self);
                if (one < 0) status = one;
                ended = l.ops->finish(l.self, "success");
            }
            done = atomic_load(&mallocs) < n;
            atomic_store(&malloc_fail_at, 0);
            failed += status < 0;
            if (status < 0 || ended < 0) CHECK(*lc_error_message());
            /* One failure in the thread is made good by the next attempt. */
            if (logged && ended >= 0 && k == 3) {
                int lines = 0;
                for (char *p = slurp(dir, "stream.jsonl"); *p; p++) lines += *p == '\n';
                CHECK_EQ(lines, 1 + 3 + 1); /* start, rows, finish */
            }
            if (logged && ended >= 0 && k == 2) CHECK_EQ(count_events(dir), 1 + 3 * 3);
            if (logged && ended >= 0 && k == 1) CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 6);
            if (logged && ended >= 0 && !k)
                CHECK_STR(slurp(dir, "metrics.csv"), "a,b,epoch,step\n0.0,0.0,0,0\n1.0,1.0,0,1\n2.0,2.0,0,2\n");
            if (l.self) l.ops->free(l.self);
            CHECK(n < 100000);
        }
        CHECK(failed > 5);
    }
#endif
}

TEST(no_place_to_write)
{
    lc_run_info run = run_info("/nonexistent");
    static const char *const names[] = {"csv", "sqlite", "tensorboard"};
    for (int k = 0; k < 3; k++) {
        lc_logger l;
        CHECK_OK(lc_logger_new(names[k], &l));
        CHECK(l.ops->start(l.self, &run) < 0);
        CHECK_CONTAINS(lc_error_message(), "/nonexistent");
        lc_status ended = l.ops->finish(l.self, "failed");
        if (k == 2) /* its file exists in any case, and it tries to the end */
            CHECK(ended < 0);
        else
            CHECK_OK(ended);
        l.ops->free(l.self);
    }
}

/* Several loggers write hparams.yaml of one run, each on its own thread. */
static void *replace(void *path)
{
    char text[2000];
    memset(text, 'x', sizeof text);
    for (int i = 0; i < 200; i++)
        if (lc__replace_file(&lc__io_system, path, text, sizeof text) < 0) return "failed";
    return NULL;
}

TEST(threads_replace_the_same_file)
{
    char path[512], *data;
    size_t n;
    pthread_t threads[4];
    bool failed = false;
    snprintf(path, sizeof path, "%s/hparams.yaml", fresh_dir("replace"));
    for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, replace, path));
    for (int i = 0; i < 4; i++) {
        void *said;
        pthread_join(threads[i], &said);
        failed |= said != NULL;
    }
    CHECK(!failed);
    CHECK_OK(lc__io_read_file(&lc__io_system, path, 4000, &data, &n));
    CHECK_EQ(n, 2000);
    free(data);
}

/* The price of a row on the training thread. */
TEST(a_row_is_cheap)
{
    const char *dir = fresh_dir("cheap");
    lc_run_info run = run_info(dir);
    lc_logger l;
    CHECK_OK(lc_sqlite_logger_new(&l));
    CHECK_OK(l.ops->start(l.self, &run));
    lc_metric_value values[] = {{"epoch_time", 1}, {"loss", 2}};
    struct timespec a, b;
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int i = 0; i < 1000; i++) CHECK_OK(row(&l, i, 0, 2, values));
        clock_gettime(CLOCK_MONOTONIC, &b);
        double ns = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 1000;
        if (ns < best) best = ns;
    }
    printf("  a row of two values: %.0f ns\n", best);
    CHECK(best < 100000);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 40000);
}

TEST_MAIN
