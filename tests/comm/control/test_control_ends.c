/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel when its coordinator or a launcher is gone, or a rank ignores the end; and that it leaves
 * nothing. */
#define _GNU_SOURCE
#include "control_run.h"

#include "comm/control/control_internal.h"

#include <dirent.h>

/* ---- without the coordinator ---- */

/* Rank 0 coordinates, and ends in a given way. */
static void fork_coordinating_rank(run *r)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid) {
        r->ranks[0].pid = pid;
        return;
    }
    lc__coordinator *c = run_coordinate(r);
    be_rank(r, 0);
    lc__coordinator_stop(c);
    _exit(0);
}

TEST(a_coordinator_that_is_gone_ends_the_run)
{
    for (int stop = 0; stop < 2; stop++) {
        run *r = run_new(3, wait_for_end, (lc__control_times){.heartbeat = 0.1, .silence = patience(0.8)});
        char want[200];
        run_fork(r, 1);
        run_fork(r, 2);
        fork_coordinating_rank(r);
        CHECK(await(&r->here, 3));
        run_signal(r, 0, stop ? SIGSTOP : SIGKILL);
        run_reap(r, 1), run_reap(r, 2);
        snprintf(want, sizeof want, "rank 0 %s, which coordinates the run, is gone: %s", host(),
                 stop ? "no heartbeat from it for" : "the connection is closed");
        CHECK_ENDED(r, 1, want);
        CHECK_ENDED(r, 2, want);
        CHECK(r->ranks[1].took < patience(4));
        run_signal(r, 0, SIGKILL);
        run_reap(r, 0);
        run_free(r);
    }
}

/* One trainer after another: all ranks leave, and join again; some are faster than others. */
static lc_status come_back(run *r, lc__control *c, int rank)
{
    char mine = (char)('a' + rank), all[RANKS];
    for (int i = 0; i < r->size; i++) {
        LC_TRY(lc__control_all_gather(c, &mine, all, 1));
        if (all[r->size - 1] != 'a' + r->size - 1) return lc_fail(LC_ERR_INTERNAL, "%.4s", all);
    }
    nap(rank * 0.03);
    return LC_OK;
}

static lc_status come_back_often(run *r, int rank, bool coordinate)
{
    atomic_int *port = &r->port;
    for (int k = 0; k < 5; k++) {
        lc__coordinator *c = NULL;
        int p = atomic_load(port);
        if (coordinate) LC_TRY(lc__coordinator_start(NULL, &p, r->size, SECRET, &r->times, &c));
        atomic_store(port, p);
        lc_status s = be_rank(r, rank);
        lc__coordinator_stop(c);
        LC_TRY(s);
    }
    return LC_OK;
}

TEST(ranks_may_begin_again)
{
    for (int inside = 0; inside < 2; inside++) { /* the coordinator: in the test; in rank 0, a new one each time */
        run *r = run_new(3, come_back, (lc__control_times){.heartbeat = 0.1, .start = 10});
        fflush(NULL);
        for (int rank = 0; rank < 3; rank++) {
            pid_t pid = fork();
            if (pid) {
                r->ranks[rank].pid = pid;
                continue;
            }
            bool coordinate = inside && rank == 0;
            lc_status s = await(&r->port, coordinate ? 0 : 1) ? come_back_often(r, rank, coordinate) : LC_ERR_INTERNAL;
            snprintf(r->ranks[rank].message, sizeof r->ranks[rank].message, "%s", s < 0 ? lc_error_message() : "");
            _exit(s < 0);
        }
        lc__coordinator *c = inside ? NULL : run_coordinate(r);
        for (int rank = 0; rank < 3; rank++)
            if (run_reap(r, rank) != 0) TEST_FAIL("%d: rank %d: %s", inside, rank, r->ranks[rank].message);
        lc__coordinator_stop(c);
        run_free(r);
    }
}

TEST(a_coordinator_that_leaves_lets_the_others_go_on)
{
    run *r = run_new(2, leave_early, (lc__control_times){.heartbeat = 0.1, .silence = patience(0.3)});
    run_fork(r, 1);
    fork_coordinating_rank(r);
    CHECK_EQ(run_reap(r, 0), 0);
    CHECK_EQ(run_reap(r, 1), 0);
    if (r->ranks[1].status < 0) TEST_FAIL("%s", r->ranks[1].message);
    run_free(r);
}

static lc_status ignore_end(run *r, lc__control *c, int rank)
{
    lc__control_last_resort(c, true);
    if (rank == 0) return wait_for_end(r, c, rank);
    if (rank == 1) lc__control_fail(c, "nothing works");
    for (;;) pause();
}

/* Rank 1 is ended by its own thread. */
static void check_ignored_end(void (*say)(void *said, const char *text))
{
    run *r = run_new(2, ignore_end, (lc__control_times){.heartbeat = 0.1, .grace = 0.3});
    if (say) r->say = say;
    lc__coordinator *c = run_start(r);
    CHECK_EQ(run_reap(r, 0), 0);
    int how = run_reap(r, 1);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 1);
    CHECK_CONTAINS(r->ranks[1].said, "nothing works");
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(a_rank_that_ignores_the_end_is_ended)
{
    check_ignored_end(NULL);
}

static void never_said(void *said, const char *text)
{
    note_said(said, text);
    for (;;) pause();
}

/* As on a terminal whose output is stopped. */
TEST(a_blocked_terminal_keeps_no_rank_from_its_end)
{
    check_ignored_end(never_said);
}

/* ---- without a launcher ---- */

/* Rank 1 is the child of another process, as of mpirun. */
static pid_t fork_launcher(run *r)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid) return pid;
    run_fork(r, 1);
    for (;;) pause();
}

TEST(ranks_of_a_launcher_that_is_killed_end)
{
    run *r = run_new(2, wait_for_end, (lc__control_times){.heartbeat = 0.1});
    r->launcher = "mpirun";
    pid_t launcher = fork_launcher(r);
    run_fork(r, 0);
    lc__coordinator *c = run_coordinate(r);
    CHECK(await(&r->here, 2));
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    run_reap(r, 0);
    lc__coordinator_stop(c);
    CHECK_ENDED(r, 0, "rank 1 (host ");
    CHECK_ENDED(r, 0, "): the process that started it (mpirun) has exited");
    CHECK(r->ranks[0].took < patience(5));
    run_free(r);
}

/* ---- nothing is left ---- */

static int entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

TEST(nothing_is_left)
{
    int files = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int k = 0; k < 3; k++) {
        lc__coordinator *coordinator = NULL;
        lc__control *c = NULL;
        int port = 0;
        char local[64];
        CHECK_OK(lc__coordinator_start(NULL, &port, 1, SECRET, NULL, &coordinator));
        lc__control_args o = {.size = 1, .address = "127.0.0.1", .port = port, .secret = SECRET};
        CHECK_OK(lc__control_open(&o, &c));
        lc__control_local_address(c, local, sizeof local);
        CHECK_STR(local, "127.0.0.1");
        CHECK(entries("/proc/self/fd") > files && entries("/proc/self/task") > threads);
        if (k % 2) {
            lc__coordinator_stop(coordinator);
            lc__control_close(c);
        } else {
            lc__control_close(c);
            lc__coordinator_stop(coordinator);
        }
    }
    CHECK_EQ(entries("/proc/self/fd"), files);
    for (int i = 0; i < 20000 && entries("/proc/self/task") != threads; i++)
        nap(0.001); /* a thread that has been joined may still be listed */
    CHECK_EQ(entries("/proc/self/task"), threads);
}

/* `lightc launch --grace_period 30` applies to programs whose options do not set it. */
TEST(times_are_those_of_the_launcher)
{
    setenv("LIGHTC_START_TIMEOUT", "7", 1);
    setenv("LIGHTC_GRACE_PERIOD", "30", 1);
    lc__control_times t = lc__control_default_times(&(lc__control_times){.start = 3});
    unsetenv("LIGHTC_START_TIMEOUT");
    unsetenv("LIGHTC_GRACE_PERIOD");
    CHECK(t.start == 3 && t.silence == 10 && t.progress == 0 && t.grace == 30);
    setenv("LIGHTC_PROGRESS_TIMEOUT", "-1", 1);
    CHECK(lc__control_default_times(NULL).progress == -1);
    CHECK(lc__control_default_times(&(lc__control_times){.progress = 7}).progress == 7);
    unsetenv("LIGHTC_PROGRESS_TIMEOUT");
}

TEST_MAIN
