/* SPDX-License-Identifier: Apache-2.0 */
/* Loggers under failures: errors that are reported once, full disks, no memory, no place to write; and the cost of a
 * row. test_csv.c, test_sqlite.c, test_tensorboard.c, test_mlflow.c and test_stream.c test what they write. */
#include "logger_run.h"
#include "fail_malloc.h"

#include <sys/syscall.h>
#include <unistd.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

typedef struct shaky {
    pthread_mutex_t lock;
    int fail; /* attempts that fail */
    int busy; /* then attempts that are postponed */
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
    int errors = 0, rows = 0;
    for (; rows < 100 || (!errors && rows < 20000); rows++) { /* another thread fails, and a row reports it */
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
    if (status < 0) status = lc__log_flush(w); /* the second failure */
    CHECK_OK(status);
    CHECK_OK(lc__log_finish(w));
    CHECK_EQ(s.rows, rows);
}

/* Each attempt takes 100 ms; the first one fails. */
typedef struct slow_failure {
    _Atomic int begun;
    int rows;
} slow_failure;

static lc_status slow_failure_sink(void *self, const lc__log_batch *batch)
{
    slow_failure *s = self;
    bool fails = s->begun++ == 0;
    struct timespec pause = {0, 100000000};
    nanosleep(&pause, NULL);
    if (fails) return lc_fail(LC_ERR_IO, "the disk was full");
    s->rows += (int)batch->n;
    return LC_OK;
}

/* An attempt that began before flush or finish was called may have failed for what is mended by now. */
TEST(an_attempt_that_began_before_is_not_the_last)
{
    for (int flush = 0; flush < 2; flush++) {
        slow_failure s = {0};
        lc__log_writer *w;
        CHECK_OK(lc__log_writer_new("slow", slow_failure_sink, &s, 1, &w));
        lc_metric_value v = {"a name", 1.5};
        CHECK_OK(lc__log_row(w, &(lc_log_row){&v, 1, 1, 0, 0}));
        while (!s.begun) sched_yield();
        if (flush) CHECK_OK(lc__log_flush(w));
        CHECK_OK(lc__log_finish(w));
        CHECK_EQ(s.begun, 2);
        CHECK_EQ(s.rows, 1);
    }
}

TEST(lost_rows_are_counted)
{
    shaky s = {.lock = PTHREAD_MUTEX_INITIALIZER, .fail = 1 << 30};
    lc__log_writer *w;
    CHECK_OK(lc__log_writer_new("shaky", shaky_sink, &s, 5, &w));
    static lc_metric_value v[1000];
    for (int i = 0; i < 1000; i++) v[i] = (lc_metric_value){"a name", 1.5};
    lc_log_row r = {v, 1000, 1, 0, 0};
    int errors = 0;
    for (int i = 0; i < 4000; i++) errors += lc__log_row(w, &r) < 0; /* 100 MB: more than the logger keeps */
    CHECK_EQ(errors, 1);
    CHECK(lc__log_flush(w) < 0);
    CHECK_STATUS(lc__log_finish(w), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "(4000 records were lost)");
}

static int with_limit(const char *dir, const char *name)
{
    /* 64 KiB per file, as on a disk that fills up; the signal keeps its default action. */
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
    limit.rlim_cur = RLIM_INFINITY; /* space was freed */
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
            /* The next attempt makes up for one failure in the thread. */
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
        if (k == 2) /* its file is created in any case, and it tries until the end */
            CHECK(ended < 0);
        else
            CHECK_OK(ended);
        l.ops->free(l.self);
    }
}

/* Several loggers write hparams.yaml of one run, each on a thread of its own. */
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

/* Threads of two containers may have the same number. */
TEST(replacing_a_file_leaves_files_of_others)
{
    char path[512], theirs[600];
    snprintf(path, sizeof path, "%s/hparams.yaml", fresh_dir("replace"));
    snprintf(theirs, sizeof theirs, "%.*s/.tmp-hparams.yaml-%ld", (int)(strrchr(path, '/') - path), path,
             (long)syscall(SYS_gettid));
    CHECK_OK(lc__create_file(&lc__io_system, theirs, "half", 4));
    CHECK_OK(lc__replace_file(&lc__io_system, path, "whole", 5));
    CHECK(!access(path, F_OK) && !access(theirs, F_OK));
}

/* The cost of a row on the training thread. */
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
