/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks are lost in a training that may restart: it continues with the remaining ranks and the global batches of
 * before, and ends with the numbers of one undisturbed process. Real processes of tests/programs/fault_program.c. */
#include "file_text.h"
#include "scratch.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/wait.h>

/* A global batch has 12 samples, in pieces that 1 to 4 ranks can share. */
#define DETERMINISTIC "--deterministic true --deterministic_chunk 3"
enum { ALL = 12, MAX_LIVES = 32 };

typedef struct run {
    char dir[300], err[1 << 15];
    pid_t pid;
} run;

static char lightc[PATH_MAX + 32], program[PATH_MAX + 32];

__attribute__((constructor)) static void find_programs(void)
{
    char dir[PATH_MAX];
    const char *bin = getenv("LIGHTC_TEST_BIN");
    if (!realpath(bin ? bin : "build/bin", dir)) abort();
    snprintf(lightc, sizeof lightc, "%s/lightc", dir);
    snprintf(program, sizeof program, "%s/fault_program", dir);
}

/* "LAUNCHER PROGRAM ...", with the options common to all runs; in a directory of its own. */
static void start(run *r, const char *format, ...) LC_PRINTF(2, 3);
static void start(run *r, const char *format, ...)
{
    char line[9000];
    va_list args;
    snprintf(r->dir, sizeof r->dir, "%s", fresh_dir("elastic"));
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    n += snprintf(line + n, sizeof line - (size_t)n,
                  " --dir . --default_root_dir . --dirpath ckpt --every_n_train_steps 2 --save_top_k -1 --max_epochs 6 "
                  "--threads 1 >out 2>err");
    CHECK(n > 0 && (size_t)n < sizeof line);
    fflush(stdout);
    r->pid = fork();
    CHECK(r->pid >= 0);
    if (r->pid == 0) {
        if (chdir(r->dir) == 0) execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(126);
    }
}

static int finish(run *r)
{
    int status;
    CHECK(waitpid(r->pid, &status, 0) == r->pid);
    file_text(r->dir, "err", r->err, sizeof r->err);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Processes of the ranks in [first, end), after a checkpoint was saved. */
static int lives_of(const run *r, int first, int end, pid_t *pids)
{
    int n = 0, pid, rank, length;
    char path[700];
    snprintf(path, sizeof path, "%s/ckpt/epoch=0-step=4.ckpt", r->dir);
    for (double until = seconds() + patience(20); access(path, F_OK) != 0; pause_ms(10))
        if (seconds() > until) TEST_FAIL("there is no checkpoint");
    DIR *d = opendir(r->dir);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (sscanf(e->d_name, "life-%d%n", &pid, &length) != 1 || e->d_name[length]) continue;
        snprintf(path, sizeof path, "%s/%s", r->dir, e->d_name);
        FILE *f = fopen(path, "r");
        if (f && fscanf(f, "%*f %d", &rank) == 1 && rank >= first && rank < end && n < MAX_LIVES) pids[n++] = pid;
        if (f) fclose(f);
    }
    closedir(d);
    return n;
}

static void lose(const run *r, int first, int end)
{
    pid_t pids[MAX_LIVES];
    int n = lives_of(r, first, end, pids);
    CHECK_EQ(n, end - first);
    for (int i = 0; i < n; i++) CHECK(kill(pids[i], SIGKILL) == 0);
}

static const char *undisturbed(void)
{
    static char result[128];
    run r;
    if (!*result) {
        start(&r, "%s --batch %d " DETERMINISTIC, program, ALL);
        CHECK_EQ(finish(&r), 0);
        file_text(r.dir, "result", result, sizeof result);
        CHECK_CONTAINS(result, "steps=48 hash=");
    }
    return result;
}

static void check_end(run *r, const char *said, const char *place)
{
    char text[128];
    int status = finish(r);
    if (status) TEST_FAIL("status %d: %s", status, r->err);
    CHECK_CONTAINS(r->err, said);
    file_text(r->dir, "place-0", text, sizeof text);
    CHECK_CONTAINS(text, place);
}

static void check_bits(const run *r)
{
    char text[128];
    file_text(r->dir, "result", text, sizeof text);
    CHECK_STR(text, undisturbed());
}

TEST(ranks_of_a_host_are_lost_one_after_the_other)
{
    run r;
    static const char *const strategies[] = {"ddp", "sharded_2", "sharded"};
    for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
        start(&r, "%s --devices 4 --batch 3 --strategy %s " DETERMINISTIC " --max_restarts 3", program, strategies[k]);
        lose(&r, (int)k, (int)k + 1);                           /* including rank 0 */
        check_end(&r, "with 2 of 4 ranks (1 of 3)", "size=2 "); /* three cannot share a batch bit for bit */
        check_bits(&r);
    }
}

/* Without deterministic, any number of ranks can continue; sums of three ranks and of four differ by rounding. */
TEST(three_of_four_go_on)
{
    run r;
    double sum, want;
    char text[128];
    static const char *const strategies[] = {"ddp", "sharded"};
    const char *at = strstr(undisturbed(), "sum=");
    CHECK(at && sscanf(at, "sum=%lf", &want) == 1);
    for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
        start(&r, "%s --devices 4 --batch 3 --strategy %s --max_restarts 3", program, strategies[k]);
        lose(&r, 1, 2);
        check_end(&r, "with 3 of 4 ranks (1 of 3)", "size=3 ");
        file_text(r.dir, "result", text, sizeof text);
        CHECK_CONTAINS(text, "steps=48 ");
        CHECK(sscanf(strstr(text, "sum="), "sum=%lf", &sum) == 1);
        if (!(fabs(sum - want) < 1e-3)) TEST_FAIL("%s: %.9g, undisturbed %.9g", strategies[k], sum, want);
    }
}

TEST(a_host_is_lost)
{
    run r;
    static const char *const strategies[] = {"ddp", "sharded"};
    for (size_t k = 0; k < sizeof strategies / sizeof *strategies; k++) {
        start(&r, "%s launch -H local:2,local:2 --max_restarts 3 %s --batch 3 --strategy %s " DETERMINISTIC, lightc,
              program, strategies[k]);
        lose(&r, k ? 0 : 2, k ? 2 : 4); /* both ranks of the second host, or of the first */
        check_end(&r, "with 2 of 4 ranks (1 of 3)", "size=2 local=0 node=0 nodes=1");
        check_bits(&r);
    }
}

/* One rank remains, and restarts by itself when it is lost too. */
TEST(one_is_left)
{
    run r;
    pid_t pids[MAX_LIVES];
    start(&r, "%s --devices 2 --batch 6 " DETERMINISTIC " --max_restarts 3", program);
    lose(&r, 1, 2);
    for (double until = seconds() + patience(20); lives_of(&r, 0, 1, pids) < 2; pause_ms(10))
        if (seconds() > until) TEST_FAIL("no rank continues");
    pause_ms(100);
    int n = lives_of(&r, 0, 1, pids);
    for (int i = 0; i < n; i++) kill(pids[i], SIGKILL); /* one of them has already ended */
    check_end(&r, "with 1 of 2 ranks (1 of 3)", "size=1 ");
    CHECK_CONTAINS(r.err, "restarting from the last checkpoint (2 of 3)");
    check_bits(&r);
}

/* A rank with its own data cannot be left out. */
TEST(ranks_with_data_of_their_own_start_again)
{
    run r;
    start(&r, "%s --devices 2 --batch 6 --use_distributed_sampler false --max_restarts 1", program);
    lose(&r, 1, 2);
    check_end(&r, "restarting from the last checkpoint (1 of 1)", "size=2 ");
}

/* A rank is lost in the second fit: the first is neither trained again, nor continued from what the second has
 * saved. */
TEST(each_fit_goes_on_from_its_own)
{
    run want, r;
    char first[128], second[128], text[128], path[700];
    start(&want, "%s --fits 2 --batch %d " DETERMINISTIC, program, ALL);
    CHECK_EQ(finish(&want), 0);
    file_text(want.dir, "result", first, sizeof first);
    file_text(want.dir, "result-1", second, sizeof second);
    CHECK(*first && *second && strcmp(first, second) != 0);
    start(&r, "%s --fits 2 --devices 2 --batch 6 " DETERMINISTIC " --max_restarts 1", program);
    snprintf(path, sizeof path, "%s/ckpt/epoch=0-step=4-v1.ckpt", r.dir);
    for (double until = seconds() + patience(20); access(path, F_OK) != 0; pause_ms(10))
        if (seconds() > until) TEST_FAIL("there is no checkpoint of the second fit");
    snprintf(path, sizeof path, "%s/result", r.dir);
    CHECK(unlink(path) == 0);
    lose(&r, 1, 2);
    check_end(&r, "with 1 of 2 ranks (1 of 1)", "size=1 ");
    file_text(r.dir, "result", text, sizeof text);
    CHECK_STR(text, first);
    file_text(r.dir, "result-1", text, sizeof text);
    CHECK_STR(text, second);
}

/* `lightc launch` does not read the program's options: ranks report them. */
TEST(ranks_report_the_options_that_allow_a_restart)
{
    run r;
    start(&r, "%s launch -np 4 --max_restarts 1 %s --batch 3 --strategy ddp " DETERMINISTIC, lightc, program);
    lose(&r, 1, 2);
    check_end(&r, "with 2 of 4 ranks (1 of 1)", "size=2 ");
    check_bits(&r);
    start(&r, "%s launch -np 2 --max_restarts 1 %s --batch 6 --strategy ddp --use_distributed_sampler false", lightc,
          program);
    lose(&r, 1, 2);
    check_end(&r, "restarting from the last checkpoint (1 of 1)", "size=2 ");
}

/* Processes of the ranks that have started. */
static int count_lives(const run *r)
{
    int n = 0;
    DIR *d = opendir(r->dir);
    CHECK(d);
    for (struct dirent *e; (e = readdir(d));) n += strncmp(e->d_name, "life-", 5) == 0;
    closedir(d);
    return n;
}

/* All batches are trained, and there is no checkpoint to continue from, because none could be written. */
TEST(a_training_that_missed_its_last_checkpoint_has_ended)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        run r;
        start(&r, "trap '' XFSZ; ulimit -f 100; %s --devices %d --batch %d --on_save_error continue --max_restarts 1",
              program, ranks, ALL / ranks);
        CHECK_EQ(finish(&r), 1);
        CHECK_CONTAINS(r.err, "File too large");
        if (count_lives(&r) != ranks) TEST_FAIL("%d ranks have begun %d times: %s", ranks, count_lives(&r), r.err);
    }
}

/* Its second fit fails, although the first one has ended. */
TEST(a_training_that_began_after_another_starts_again)
{
    for (int ranks = 1; ranks <= 2; ranks++) {
        run r;
        start(&r,
              "trap '' XFSZ; ulimit -f 100; %s --devices %d --batch %d --on_save_error continue --max_restarts 1 "
              "--fits 2 --keep_going true --fault exit --phase init --at 2 --on 0 --in_fit 1",
              program, ranks, ALL / ranks);
        CHECK_EQ(finish(&r), 1);
        if (count_lives(&r) != ranks + 1) /* one of two ranks is lost */
            TEST_FAIL("%d ranks have begun %d times: %s", ranks, count_lives(&r), r.err);
        CHECK_CONTAINS(r.err, "exited with status 7; restarting from the last checkpoint");
    }
}

TEST_MAIN
