/* SPDX-License-Identifier: Apache-2.0 */
/* Loggers find other people's files in the place of their own: the contents of these stay (docs/checkpoints.md, "What
 * lightc deletes"). */
#include "logger_run.h"
#include "no_file.h"
#include "loggers/spool.h"

#include <fcntl.h>

static void put(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(lc__create_file(&lc__io_system, path, text, strlen(text)));
}

/* A stream continues after the existing text, whether it ends with a newline or not; half a line of its own is
 * removed. */
TEST(a_stream_to_a_foreign_file)
{
    static const char *const notes[] = {"first\nlast", "last", "x", "{\"type\"; no", "first\n"};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        const char *dir = fresh_dir("notes");
        char target[512];
        lc_run_info run = run_info(dir);
        lc_logger l;
        put(dir, "notes.txt", notes[i]);
        snprintf(target, sizeof target, "stream:%s/notes.txt", dir);
        CHECK_OK(lc_logger_new(target, &l));
        CHECK_OK(l.ops->start(l.self, &run));
        ROW(&l, 1, 0, {"a", 1});
        CHECK_OK(l.ops->finish(l.self, "success"));
        l.ops->free(l.self);
        const char *text = slurp(dir, "notes.txt");
        size_t n = strlen(notes[i]);
        CHECK(!strncmp(text, notes[i], n));
        n += notes[i][n - 1] != '\n';
        CHECK(text[n - 1] == '\n');
        CHECK(!strncmp(text + n, "{\"type\":\"start\"", 15));
    }
}

TEST(half_a_line_of_the_stream_is_removed)
{
    static const char *const halves[] = {"{", "{\"type", "{\"type\":\"ro"};
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        const char *dir = fresh_dir("half");
        char target[512];
        lc_run_info run = run_info(dir);
        lc_logger l;
        put(dir, "s.jsonl", halves[i]);
        snprintf(target, sizeof target, "stream:%s/s.jsonl", dir);
        CHECK_OK(lc_logger_new(target, &l));
        CHECK_OK(l.ops->start(l.self, &run));
        CHECK_OK(l.ops->finish(l.self, "success"));
        l.ops->free(l.self);
        CHECK(!strncmp(slurp(dir, "s.jsonl"), "{\"type\":\"start\"", 15));
    }
}

/* A table that no csv logger has written is not continued. */
TEST(a_foreign_table)
{
    static const char *const tables[] = {"my notes", "a,b\n1,2", "name\nresnet\n"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const char *dir = fresh_dir("table");
        lc_run_info run = run_info(dir);
        lc_logger l;
        put(dir, "metrics.csv", tables[i]);
        CHECK_OK(lc_logger_new("csv", &l));
        CHECK_STATUS(l.ops->start(l.self, &run), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "was not written by this logger");
        l.ops->free(l.self);
        CHECK_STR(slurp(dir, "metrics.csv"), tables[i]);
    }
}

/* A special file in the place of a logger's is refused at once. A stream may be a FIFO or a device. */
TEST(files_that_are_no_files)
{
    static const struct {
        const char *target, *file;
        bool streams;
    } rows[] = {{"csv", "metrics.csv", false},
                {"sqlite", "lightc.db", false},
                {"sqlite", "lightc.db.lock", false},
                {"stream:", "s.jsonl", true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int kind = 0; kind < NO_FILES; kind++) {
            const char *dir = fresh_dir("none");
            char target[512], path[512];
            lc_run_info run = run_info(dir);
            lc_logger l;
            if (rows[i].streams && kind != NO_FILE_FOLDER && kind != NO_FILE_SOCKET) continue;
            snprintf(path, sizeof path, "%s/%s", dir, rows[i].file);
            make_no_file(kind, path);
            snprintf(target, sizeof target, "%s%s", rows[i].target, rows[i].streams ? path : "");
            CHECK_OK(lc_logger_new(target, &l));
            double began = seconds();
            alarm(20);
            lc_status status = l.ops->start(l.self, &run);
            if (status >= 0) status = row(&l, 1, 0, 1, (lc_metric_value[]){{"a", 1}});
            if (status >= 0) status = l.ops->flush(l.self);
            if (status < 0) snprintf(target, sizeof target, "%s", lc_error_message());
            l.ops->free(l.self);
            alarm(0);
            if (status >= 0) TEST_FAIL("%s of kind %d", rows[i].file, kind);
            CHECK_CONTAINS(target, path);
            if (!strstr(target, "not a file") && !strstr(target, "directory"))
                TEST_FAIL("%s of kind %d: %s", rows[i].file, kind, target);
            CHECK(seconds() - began < patience(1));
        }
}

static lc_status adopt(void *ctx, lc__spool *s)
{
    (void)s;
    ++*(int *)ctx;
    return LC_OK;
}

/* They are neither opened permanently, nor taken for a dead run's files, which are removed. */
TEST(spools_that_are_no_spools)
{
    for (int kind = 0; kind < NO_FILES; kind++) {
        const char *dir = fresh_dir("spools");
        char path[512];
        struct stat st;
        lc__spool s;
        int adopted = 0;
        snprintf(path, sizeof path, "%s/a.jsonl", dir);
        make_no_file(kind, path);
        alarm(20);
        lc_status status = lc__spool_open(&s, path);
        CHECK_OK(lc__spool_orphans(dir, adopt, &adopted));
        alarm(0);
        if (status >= 0) lc__spool_close(&s, false);
        if (status != LC_ERR_IO || adopted || lstat(path, &st)) TEST_FAIL("kind %d: adopted %d", kind, adopted);
        CHECK_CONTAINS(lc_error_message(), path);
    }
}

TEST_MAIN
