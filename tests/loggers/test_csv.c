/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.csv and hparams.yaml: Lightning's text, complete at every moment, and readable by other programs. */
#include "logger_run.h"
#include "peer_python.h"

#include <fcntl.h>

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
        /* The next run continues it in the same place, with a new column, after half a row of a killed process. */
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

/* Rows go into the file that has the name, as Lightning's do, whatever became of the one that was written before. */
TEST(a_table_that_somebody_removes_or_cuts)
{
    const char *dir = fresh_dir("replaced");
    lc_run_info run = run_info(dir);
    lc_logger l;
    char path[512], other[520];
    snprintf(path, sizeof path, "%s/metrics.csv", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    CHECK_OK(lc_csv_logger_new(&l));
    CHECK_OK(l.ops->start(l.self, &run));
    for (int i = 0; i < 3; i++) { /* the first makes the file, the second opens it */
        ROW(&l, i, -1, {"a", 1});
        CHECK_OK(l.ops->flush(l.self));
    }
    CHECK(!unlink(path));
    ROW(&l, 3, -1, {"a", 3});
    CHECK_OK(l.ops->flush(l.self));
    CHECK_STR(slurp(dir, "metrics.csv"), "a,step\n3.0,3\n");
    CHECK(!truncate(path, 0));
    ROW(&l, 4, -1, {"b", 4});
    CHECK_OK(l.ops->flush(l.self));
    CHECK_STR(slurp(dir, "metrics.csv"), "b,step\n4.0,4\n");
    /* An editor writes a new file. */
    CHECK_OK(lc__create_file(&lc__io_system, other, "a,b,step\n,4.5,4\n", 16));
    CHECK(!rename(other, path));
    ROW(&l, 5, -1, {"b", 5});
    CHECK_OK(l.ops->flush(l.self));
    CHECK_STR(slurp(dir, "metrics.csv"), "a,b,step\n,4.5,4\n,5.0,5\n");
    /* Something else: it stays, and the rows wait until it is gone. */
    CHECK_OK(lc__create_file(&lc__io_system, other, "mine\n", 5));
    CHECK(!unlink(path));
    CHECK(!symlink("other", path));
    for (int i = 6; i < 8; i++) {
        ROW(&l, i, -1, {"b", i});
        CHECK_STATUS(l.ops->flush(l.self), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), "it has no column \"step\"");
        CHECK_STR(slurp(dir, "other"), "mine\n");
    }
    CHECK(!unlink(path));
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
    CHECK_STR(slurp(dir, "metrics.csv"), "b,step\n6.0,6\n7.0,7\n");
}

/* At every moment the file is a table: a header, and complete rows with as many cells. */
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
    const char *python = peer_python("pandas");
    char command[2048];
    if (!python) SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with pandas");
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

TEST_MAIN
