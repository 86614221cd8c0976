/* SPDX-License-Identifier: Apache-2.0 */
/* The stream logger: its lines; files on a disk that fills up; FIFOs and commands whose readers come late, stop
 * reading, die and come back; and the bridges in tools/bridge/. */
#define _GNU_SOURCE
#include "test.h"
#include "base/base64.h"
#include "base/io.h"
#include "log_everything.h"
#include "peer_python.h"
#include "scratch.h"
#include <lightc/state.h>
#include "loggers/stream_format.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

/* `target` may name %s: the directory. */
static lc_logger start(const char *dir, const char *target)
{
    char name[1024] = "stream:";
    lc_logger l;
    static const lc_named_text options[] = {{"max_epochs", "5"}, {"strategy", NULL}, {"odd", "a\xff\""}};
    lc_run_info run = {.root_dir = dir,
                       .name = "lightning_logs",
                       .run_dir = dir,
                       .version = 3,
                       .options = options,
                       .n_options = 3,
                       .run_id = "run-1"};
    if (target)
        snprintf(name + 7, sizeof name - 7, target, dir);
    else
        name[6] = 0;
    CHECK_OK(lc_logger_new(name, &l));
    CHECK_OK(l.ops->start(l.self, &run));
    return l;
}

static void finish(lc_logger l)
{
    CHECK_OK(l.ops->finish(l.self, "success"));
    l.ops->free(l.self);
}

static lc_status row(lc_logger l, int64_t step)
{
    lc_metric_value v = {"x", (double)step};
    return l.ops->log_row(l.self, &(lc_log_row){&v, 1, step, 0, EVERYTHING_NS});
}

static char *slurp(const char *dir, const char *name)
{
    static char text[1 << 21];
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    if (!f) return strcpy(text, "");
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}

/* Checks that every line is JSON, and counts those of a type. */
static int count(const char *text, const char *type)
{
    int n = 0;
    for (const char *end; *text; text = end + 1) {
        lc_state *s;
        const char *is;
        end = strchr(text, '\n');
        CHECK(end);
        CHECK_OK(lc_state_parse(text, (size_t)(end - text), &s));
        CHECK_OK(lc_state_get_text(s, "type", &is));
        n += !strcmp(is, type);
        lc_state_free(s);
    }
    return n;
}

/* The same for rows of a file that is being written: its last line may be incomplete. */
static int rows_so_far(const char *text)
{
    int n = 0;
    while ((text = strstr(text, "{\"type\":\"row\""))) n++, text++;
    return n;
}

/* ---- lines ---- */

TEST(lines)
{
    const char *dir = fresh_dir("lines");
    lc_logger l = start(dir, NULL);
    log_everything(l);
    CHECK_OK(l.ops->log_checkpoint(l.self, "/a/b.ckpt", 3, NAN, true));
    CHECK_OK(l.ops->log_checkpoint(l.self, "/a/c.ckpt", 4, 0, false));
    CHECK_OK(l.ops->log_message(l.self, LC_WARNING, "it is \"odd\""));
    CHECK_OK(l.ops->log_status(l.self, "running"));
    finish(l);
    char *text = slurp(dir, "stream.jsonl"), want[1024];
    CHECK_EQ(count(text, "row"), 3);
    snprintf(want, sizeof want,
             ",\"format\":1,\"lightc\":\"%s\",\"run_id\":\"run-1\",\"name\":\"lightning_logs\",\"version\":3,\"root_"
             "dir\":\"%s\",\"run_dir\":\"%s\","
             "\"resumed_step\":null,\"options\":{\"max_epochs\":\"5\",\"strategy\":null,\"odd\":\"a?\\\"\"}}\n",
             lc_version(), dir, dir);
    CHECK(!strncmp(text, "{\"type\":\"start\",\"time\":1", 23));
    CHECK_CONTAINS(text, want);
    CHECK_CONTAINS(text,
                   ",\"values\":{\"bias\":true,\"clip\":null,\"layers\":4,\"lr\":0.001,\"name\":\"r\xc3\xa9snet\"}}\n");
    static const char *const wanted[] = {
        "\n{\"type\":\"row\",\"time\":1700000000.250000000,\"step\":0,\"epoch\":0,\"values\":{\"train_loss\":0.5,\"val/"
        "acc\":1.0}}\n",
        "\n{\"type\":\"row\",\"time\":1700000002.250000000,\"step\":1099511627776,\"values\":{\"train_loss\":\"nan\"}}"
        "\n",
        "\n{\"type\":\"histogram\",\"time\":1700000000.250000000,\"step\":7,\"name\":\"weights\",\"minimum\":-2.0,"
        "\"maximum\":3.0,"
        "\"count\":6.0,\"sum\":4.0,\"sum_squares\":14.5,\"edges\":[-2.0,0.0,1.0,3.0],\"counts\":[1.0,2.0,3.0]}\n",
        "\n{\"type\":\"image\",\"time\":1700000000.250000000,\"step\":8,\"name\":\"gray\",\"width\":2,\"height\":1,"
        "\"channels\":1,"
        "\"png\":\"iVBORw0KGgoAAAANSUhEUgAAAAIAAAABCAAAAAD",
        "\n{\"type\":\"text\",\"time\":1700000000.250000000,\"step\":9,\"name\":\"note\",\"text\":\"**"
        "gr\xc3\xb6\xc3\x9f"
        "er** than\\nthis\"}\n",
        ",\"step\":3,\"path\":\"/a/b.ckpt\",\"score\":\"nan\"}\n",
        ",\"step\":4,\"path\":\"/a/c.ckpt\",\"score\":null}\n",
        ",\"level\":\"warning\",\"text\":\"it is \\\"odd\\\"\"}\n",
        "\n{\"type\":\"status\",\"time\":1",
        ",\"status\":\"running\"}\n",
        ",\"status\":\"success\"}\n",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) CHECK_CONTAINS(text, wanted[i]);
    /* Continued after the last complete line. */
    char path[400];
    snprintf(path, sizeof path, "%s/stream.jsonl", dir);
    size_t before = strlen(text);
    int fd = open(path, O_WRONLY | O_APPEND);
    char half[20000]; /* longer than what follows it */
    memset(half, 'x', sizeof half);
    memcpy(half, "{\"type\":\"ro", 11);
    CHECK(fd >= 0 && write(fd, half, sizeof half) == sizeof half);
    close(fd);
    l = start(dir, "%s/stream.jsonl");
    CHECK_OK(row(l, 5));
    finish(l);
    text = slurp(dir, "stream.jsonl");
    CHECK_EQ(count(text, "row"), 4);
    CHECK(!strncmp(text + before, "{\"type\":\"start\"", 15));
    CHECK(text[strlen(text) - 1] == '\n');
}

TEST(base64)
{
    static const char *const rows[][2] = {{"", ""},        {"Zg==", "f"},        {"Zm8=", "fo"},
                                          {"Zm9v", "foo"}, {"Zm9vYg==", "foob"}, {"/+8=", "\xff\xef"}};
    char *bytes;
    size_t n;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_OK(lc__base64_decode(rows[i][0], &bytes, &n));
        CHECK(n == strlen(rows[i][1]) && !memcmp(bytes, rows[i][1], n));
        free(bytes);
    }
    static const char *const bad[] = {"Zg", "Z===", "Zg=a", "Zm\n9", "===="};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(lc__base64_decode(bad[i], &bytes, &n), LC_ERR_FORMAT);
}

TEST(a_disk_that_is_full)
{
    const char *dir = fresh_dir("full");
    lc_logger l = start(dir, "/dev/full");
    CHECK_OK(row(l, 1));
    CHECK_STATUS(l.ops->flush(l.self), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "cannot write \"/dev/full\"");
    CHECK_STATUS(l.ops->finish(l.self, "success"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "were lost");
    l.ops->free(l.self);
}

/* ---- FIFOs ---- */

/* Reads a FIFO up to a step, then closes it. */
/* Lines go into the file that has the name; its first line says of which run they are. */
TEST(a_file_that_somebody_removes_or_cuts)
{
    const char *dir = fresh_dir("replaced");
    char path[512], other[520];
    lc_logger l = start(dir, NULL);
    snprintf(path, sizeof path, "%s/stream.jsonl", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    CHECK_OK(row(l, 1));
    CHECK_OK(l.ops->flush(l.self));
    CHECK(!unlink(path));
    CHECK_OK(row(l, 2));
    CHECK_OK(l.ops->flush(l.self));
    char *text = slurp(dir, "stream.jsonl");
    CHECK_EQ(count(text, "start"), 1);
    CHECK_EQ(count(text, "row"), 1);
    CHECK(!truncate(path, 0));
    CHECK_OK(row(l, 3));
    CHECK_OK(l.ops->flush(l.self));
    text = slurp(dir, "stream.jsonl");
    CHECK(text[0] == '{');
    CHECK_EQ(count(text, "row"), 1);
    CHECK_OK(lc__create_file(&lc__io_system, other, "mine", 4));
    CHECK(!rename(other, path));
    CHECK_OK(row(l, 4));
    finish(l);
    text = slurp(dir, "stream.jsonl");
    CHECK(!strncmp(text, "mine\n{", 6));
    CHECK_EQ(count(text + 5, "row"), 1);
}

static pid_t reader(const char *fifo, const char *to, int64_t last)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child) return child;
    FILE *f = fopen(fifo, "r"), *out = fopen(to, "w");
    char line[4096], stop[32];
    snprintf(stop, sizeof stop, "\"step\":%lld,", (long long)last);
    while (f && out && fgets(line, sizeof line, f)) {
        fputs(line, out);
        if (strstr(line, stop)) break;
    }
    fclose(out);
    _exit(0);
}

TEST(readers_of_a_fifo_come_and_go)
{
    const char *dir = fresh_dir("fifo");
    char fifo[400], first[400], second[400];
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    snprintf(first, sizeof first, "%s/first", dir);
    snprintf(second, sizeof second, "%s/second", dir);
    CHECK(!mkfifo(fifo, 0666));
    lc_logger l = start(dir, "%s/fifo"); /* without a reader yet */
    CHECK_OK(l.ops->log_hyperparameters(l.self, everything_hparams, 5));
    for (int i = 0; i < 10; i++) CHECK_OK(row(l, i));
    CHECK_STATUS(l.ops->flush(l.self), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "the FIFO");
    pid_t child = reader(fifo, first, 9);
    lc_status status = LC_ERR_IO;
    for (int i = 0; i < 500 && status < 0; i++, pause_ms(20)) status = l.ops->flush(l.self);
    CHECK_OK(status);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_OK(row(l, 10));
    CHECK(l.ops->flush(l.self) < 0); /* the reader has gone */
    child = reader(fifo, second, 11);
    status = LC_ERR_IO;
    for (int i = 0; i < 500 && status < 0; i++, pause_ms(20)) status = l.ops->flush(l.self);
    CHECK_OK(status);
    CHECK_OK(row(l, 11));
    finish(l);
    CHECK(waitpid(child, NULL, 0) == child);
    char *text = slurp(dir, "first");
    CHECK(count(text, "row") == 10 && count(text, "start") == 1 && count(text, "hparams") >= 1);
    text = slurp(dir, "second"); /* gets the start, and the row that was not read */
    CHECK(count(text, "row") == 2 && count(text, "start") == 1 && count(text, "hparams") == 1);
    CHECK_CONTAINS(text, "\"step\":10,");
}

static void wait_until_full(int pipe)
{
    int n = 0;
    for (double until = seconds() + patience(5); n < 60000; pause_ms(1)) {
        CHECK(ioctl(pipe, FIONREAD, &n) == 0);
        if (seconds() > until) TEST_FAIL("the pipe holds only %d bytes", n);
    }
}

/* A reader that opens the FIFO but does not read: rows cost what they always cost, even when the pipe is full. */
TEST(a_reader_that_does_not_read_blocks_nothing)
{
    const char *dir = fresh_dir("still");
    char fifo[400];
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    CHECK(!mkfifo(fifo, 0666));
    int fd = open(fifo, O_RDONLY | O_NONBLOCK);
    lc_logger l = start(dir, "%s/fifo");
    double slowest = 0;
    for (int i = 0; i < 3000; i++) { /* 300 KB; a pipe holds 64 */
        if (i == 1500) wait_until_full(fd);
        double a = seconds();
        CHECK_OK(row(l, i));
        double took = seconds() - a;
        if (took > slowest) slowest = took;
    }
    printf("  slowest row of 3000: %.0f us\n", slowest * 1e6);
    CHECK(slowest < patience(0.5));
    /* It begins to read: nothing is lost. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        static char text[65536];
        char path[400];
        ssize_t n;
        snprintf(path, sizeof path, "%s/got", dir);
        FILE *out = fopen(path, "w");
        if (!out || fcntl(fd, F_SETFL, 0) < 0) _exit(2);
        for (int other = 3; other < 1024; other++) /* with its copy of the writing end it would see no end of file */
            if (other != fd && other != fileno(out)) close(other);
        while ((n = read(fd, text, sizeof text)) > 0 && fwrite(text, 1, (size_t)n, out) == (size_t)n) continue;
        _exit(ferror(out) || fclose(out) ? 3 : n < 0 ? 100 + errno : 0);
    }
    close(fd);
    int how = 0;
    lc_status status = l.ops->finish(l.self, "success");
    if (status < 0) printf("  %s\n", lc_error_message());
    CHECK(waitpid(child, &how, 0) == child);
    CHECK_EQ(how, 0); /* why the reader has ended: see above */
    CHECK_OK(status);
    l.ops->free(l.self);
    CHECK_EQ(count(slurp(dir, "got"), "row"), 3000);
}

/* ---- commands ---- */

TEST(a_command_gets_the_lines)
{
    const char *dir = fresh_dir("command");
    lc_logger l = start(dir, "|cat >'%s/got'");
    log_everything(l);
    finish(l); /* the command has ended when this returns */
    char *text = slurp(dir, "got");
    CHECK(count(text, "row") == 3 && count(text, "image") == 2 && count(text, "finish") == 1);
    CHECK_STATUS(lc_stream_logger_new("| ", &l), LC_ERR_CONFIG);
}

TEST(a_command_that_dies_is_started_again)
{
    const char *dir = fresh_dir("dies");
    /* Reads a line and dies; the second time it reads everything. */
    lc_logger l = start(dir, "|cd '%s'; if [ -e once ]; then cat >got; else head -n 1 >once; fi");
    int warnings = 0, i = 0;
    for (double until = seconds() + 30; seconds() < until && rows_so_far(slurp(dir, "got")) < 20; i++) {
        warnings += row(l, i) < 0;
        pause_ms(20);
        if (i % 10 == 9) warnings += l.ops->flush(l.self) < 0 && !warnings;
    }
    CHECK_EQ(warnings, 1);
    finish(l);
    char *text = slurp(dir, "got");
    CHECK_EQ(count(text, "start"), 1);
    CHECK(count(text, "row") >= 20 && count(text, "row") <= i);
    CHECK_EQ(count(text, "finish"), 1);
}

TEST(a_command_that_fails)
{
    const char *dir = fresh_dir("fails");
    lc_logger l = start(dir, "|cat >'%s/got'; exit 3");
    CHECK_OK(row(l, 1));
    CHECK_STATUS(l.ops->finish(l.self, "success"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "the command exited with status 3");
    l.ops->free(l.self);
    l = start(dir, "|/nonexistent/command");
    CHECK_OK(row(l, 1));
    lc_status status = l.ops->finish(l.self, "success");
    CHECK(status < 0);
    l.ops->free(l.self);
}

/* ---- bridges ---- */

TEST(wandb_has_it)
{
    const char *python = peer_python("wandb, PIL");
    if (!python) SKIP("neither LIGHTC_LOGGERS_PYTHON nor LIGHTC_PEERS_PYTHON names a Python with wandb and pillow");
    const char *dir = fresh_dir("wandb");
    char target[1024], command[2048];
    setenv("WANDB_MODE", "offline", 1);
    setenv("WANDB_SILENT", "true", 1);
    setenv("WANDB_ERROR_REPORTING", "false", 1);
    setenv("WANDB_DIR", dir, 1);
    snprintf(target, sizeof target, "|'%s' '%s/tools/bridge/to_wandb.py' study >'%s/said' 2>&1", python,
             test_source_dir(), dir);
    lc_logger l = start(dir, target);
    log_everything(l);
    lc_status status = l.ops->finish(l.self, "success");
    if (status < 0) printf("  %s\n%s\n", lc_error_message(), slurp(dir, "said"));
    CHECK_OK(status);
    l.ops->free(l.self);
    snprintf(command, sizeof command,
             "'%s' '%s/tests/peers/read_wandb.py' '%s' >'%s/said' 2>&1 || { cat '%s/said'; false; }", python,
             test_source_dir(), dir, dir, dir);
    CHECK_EQ(system(command), 0);
}

/* The other services need accounts, so their packages are replaced by ones that record the calls. */
TEST(comet_and_neptune_are_called)
{
    static const char *const names[] = {"comet", "neptune"};
    static const char *const wanted[][4] = {
        {"call.start(project_name='study')", "log_metrics({'train_loss': 0.25}, step=1, epoch=0)", "step=8)",
         "call.start().end()"},
        {"call.init_run(project='study', custom_run_id='run-1', name='lightning_logs-3')",
         ".append(0.25, step=1, timestamp=1700000001.25)", "hyperparameters/lr', 0.001)", "call.init_run().stop()"}};
    if (system("python3 -c 'import unittest.mock' 2>/dev/null") != 0) SKIP("there is no python3");
    for (int k = 0; k < 2; k++) {
        const char *dir = fresh_dir(names[k]);
        char target[1024];
        snprintf(target, sizeof target,
                 "|python3 '%s/tests/peers/run_with_stubs.py' '%s/tools/bridge/to_%s.py' '%s/calls'", test_source_dir(),
                 test_source_dir(), names[k], dir);
        lc_logger l = start(dir, target);
        log_everything(l);
        finish(l);
        char *calls = slurp(dir, "calls");
        for (int i = 0; i < 4; i++) CHECK_CONTAINS(calls, wanted[k][i]);
    }
}

TEST_MAIN
