/* SPDX-License-Identifier: Apache-2.0 */
/* The run database while another program holds its lock: rows and the end of the run wait for it; rows that cannot wait
 * any longer are counted and reported, and nothing is written without the lock. */
#include "logger_run.h"
#include "loggers/sqlite.h"
#include "trainer_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>

/* As another run holds it, through a file description of its own. */
static int take_lock(const char *dir)
{
    char path[512];
    snprintf(path, sizeof path, "%s/lightc.db.lock", dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(flock(fd, LOCK_EX) == 0);
    return fd;
}

static void start(lc_logger *l, const lc_run_info *run, int patience_ms)
{
    CHECK_OK(lc_sqlite_logger_new(l));
    lc__sqlite_set_patience(l, patience_ms);
    CHECK_OK(l->ops->start(l->self, run));
}

TEST(nothing_is_written_without_the_lock)
{
    const char *dir = fresh_dir("held");
    lc_run_info run = run_info(dir);
    lc_logger l;
    start(&l, &run, 300);
    int fd = take_lock(dir);
    for (int i = 0; i < 5; i++) ROW(&l, i, 0, {"loss", 1});
    CHECK_STATUS(l.ops->finish(l.self, "success"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "another run holds its lock");
    CHECK_CONTAINS(lc_error_message(), "5 records were lost");
    CHECK_CONTAINS(lc_error_message(), "(success) is not recorded in it");
    l.ops->free(l.self);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM run WHERE status = 'running' AND ended_ns IS NULL"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 0);
    close(fd);
}

/* SQLite itself says no more than that it cannot open the file. */
TEST(no_descriptor_is_left_for_the_database)
{
    const char *dir = fresh_dir("descriptors");
    lc_run_info run = run_info(dir);
    struct rlimit before, limit;
    lc_logger l;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    CHECK(next >= 0);
    close(next);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before;
    limit.rlim_cur = (rlim_t)next + 1; /* enough for the lock */
    CHECK_OK(lc_sqlite_logger_new(&l));
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    lc_status status = l.ops->start(l.self, &run);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK_STATUS(status, LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "lightc.db\"");
    CHECK_CONTAINS(lc_error_message(), "(ulimit -n)");
    l.ops->free(l.self);
}

/* A database without its name can be written, but nobody will read it. */
TEST(a_database_that_somebody_moves)
{
    for (int comes_back = 0; comes_back < 2; comes_back++) {
        const char *dir = fresh_dir("moved");
        char path[512], away[520];
        lc_run_info run = run_info(dir);
        lc_logger l;
        start(&l, &run, 300);
        snprintf(path, sizeof path, "%s/lightc.db", dir);
        snprintf(away, sizeof away, "%s/away.db", dir);
        ROW(&l, 0, 0, {"loss", 1});
        CHECK_OK(l.ops->flush(l.self));
        CHECK(!rename(path, away));
        ROW(&l, 1, 0, {"loss", 1});
        CHECK_STATUS(l.ops->flush(l.self), LC_ERR_IO);
        CHECK_CONTAINS(lc_error_message(), "was removed or replaced during the run");
        if (comes_back) CHECK(!rename(away, path));
        lc_status status = l.ops->finish(l.self, "success");
        if (comes_back) {
            CHECK_OK(status);
            CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 2);
            CHECK_EQ(query_int(dir, "SELECT count(*) FROM run WHERE status = 'success'"), 1);
        } else {
            CHECK_STATUS(status, LC_ERR_IO);
            CHECK_CONTAINS(lc_error_message(), "1 records were lost");
        }
        l.ops->free(l.self);
    }
}

static void *release_later(void *arg)
{
    nanosleep(&(struct timespec){0, 400000000}, NULL);
    close(*(int *)arg);
    return NULL;
}

TEST(the_lock_is_waited_for)
{
    const char *dir = fresh_dir("late");
    lc_run_info run = run_info(dir);
    lc_logger l;
    pthread_t thread;
    start(&l, &run, LC__LOG_PATIENCE_MS);
    int fd = take_lock(dir);
    for (int i = 0; i < 5; i++) ROW(&l, i, 0, {"loss", 1});
    CHECK(pthread_create(&thread, NULL, release_later, &fd) == 0);
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    pthread_join(thread, NULL);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM run WHERE status = 'success'"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM metric"), 5);
}

/* The rows are lost, but not the end of the run: the database itself records the loss. */
TEST(a_loss_is_recorded_in_the_database)
{
    const char *dir = fresh_dir("partly");
    char path[512];
    lc_run_info run = run_info(dir);
    lc_logger l;
    sqlite3 *db;
    start(&l, &run, 300);
    snprintf(path, sizeof path, "%s/lightc.db", dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "ALTER TABLE metric_key RENAME TO away", NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    for (int i = 0; i < 3; i++) ROW(&l, i, 0, {"loss", 1});
    CHECK_STATUS(l.ops->finish(l.self, "success"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "3 records were lost");
    l.ops->free(l.self);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM run WHERE status = 'success'"), 1);
    CHECK_EQ(query_int(dir, "SELECT count(*) FROM event WHERE level = 'error' AND text LIKE '%3 records were lost%'"),
             1);
}

/* ---- a trainer reports it ---- */

static lc_status ok_start(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}
static lc_status ok_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}
static lc_status failing_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return lc_fail(LC_ERR_IO, "the disk is away");
}
static lc_status wordless_flush(void *self)
{
    (void)self;
    return LC_ERR_IO;
}
static lc_status failing_finish(void *self, const char *status)
{
    (void)self, (void)status;
    return lc_fail(LC_ERR_IO, "17 records were lost");
}
static const lc_logger_ops lossy = {LC_LOGGER_OPS_INIT, .name = "lossy", .start = ok_start, .log_row = failing_row,
                                    .finish = failing_finish};

static char heard[4096];
static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    size_t n = strlen(heard);
    (void)self, (void)t;
    if (level == LC_WARNING) snprintf(heard + n, sizeof heard - n, "%s\n", text);
}
static const lc_callback_ops ears = {LC_CALLBACK_OPS_INIT("Ears"), .on_message = hear};

static void log_it(lc_module *self, lc_tensor *loss)
{
    lc_log(self, "loss", loss);
}

TEST(a_loss_is_reported_whatever_was_reported_before)
{
    char dir[256];
    lc_trainer *t;
    lc_logger logger = {&lossy, NULL};
    lc_callback callback = {&ears, NULL};
    CHECK(world_dir(dir, sizeof dir));
    world w;
    world_init(&w, &world_ops_without_val, 4, 0);
    w.log_train = log_it;
    lc_trainer_options o = world_options(dir);
    o.callbacks = &callback, o.n_callbacks = 1;
    o.loggers = &logger, o.n_loggers = 1;
    o.max_epochs = 1, o.log_every_n_steps = 1, o.enable_checkpointing = LC_OFF;
    CHECK_OK(lc_trainer_new(&o, &t));
    CHECK_OK(lc_trainer_fit(t, &w.base));
    CHECK_CONTAINS(heard, "the disk is away");
    lc_trainer_free(t);
    CHECK_CONTAINS(heard, "17 records were lost");
    world_release(&w);
    world_remove(dir);
}

TEST(a_logger_without_a_message_is_not_reported_with_an_earlier_one)
{
    static const lc_logger_ops wordless = {LC_LOGGER_OPS_INIT, .name = "wordless", .start = ok_start, .log_row = ok_row,
                                           .flush = wordless_flush};
    char dir[256];
    lc_trainer *t;
    lc_logger logger = {&wordless, NULL};
    lc_callback callback = {&ears, NULL};
    world w;
    CHECK(world_dir(dir, sizeof dir));
    world_init(&w, &world_ops_without_val, 4, 0);
    lc_trainer_options o = world_options(dir);
    o.callbacks = &callback, o.n_callbacks = 1;
    o.loggers = &logger, o.n_loggers = 1;
    o.max_epochs = 1, o.enable_checkpointing = LC_OFF;
    *heard = 0;
    CHECK_OK(lc_trainer_new(&o, &t));
    (void)lc_fail(LC_ERR_IO, "another matter");
    CHECK_OK(lc_trainer_fit(t, &w.base));
    CHECK_CONTAINS(heard, "logger wordless could not flush: it returned an error (");
    CHECK(!strstr(heard, "another matter"));
    lc_trainer_free(t);
    world_release(&w);
    world_remove(dir);
}

TEST_MAIN
