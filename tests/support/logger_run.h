/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of loggers share: a run, its hyperparameters, rows, and the contents of its files. */
#ifndef LC_TESTS_LOGGER_RUN_H
#define LC_TESTS_LOGGER_RUN_H

#include "scratch.h"
#include <lightc/logger.h>
#include "base/clock.h"
#include "loggers/writer.h"

#include <dirent.h>
#include <sqlite3.h>
#include <stdint.h>

static inline lc_run_info run_info(const char *dir)
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

static inline lc_status row(lc_logger *l, int64_t step, int64_t epoch, int n, const lc_metric_value *values)
{
    lc_log_row r = {values, n, step, epoch, lc__realtime_ns()};
    return l->ops->log_row(l->self, &r);
}

#define ROW(l, step, epoch, ...)                                                                                       \
    CHECK_OK(row(l, step, epoch, (int)(sizeof((lc_metric_value[]){__VA_ARGS__}) / sizeof(lc_metric_value)),            \
                 (lc_metric_value[]){__VA_ARGS__}))

static inline char *slurp(const char *dir, const char *name)
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

/* The result of a query to the run database. */
static inline int64_t query_int(const char *dir, const char *sql)
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

/* Records of the event file. */
static inline int count_events(const char *dir)
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

#endif
