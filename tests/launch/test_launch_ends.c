/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a run end (lost, stopped, failed, signaled), and what is reported. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "rank_program"
#include "free_port.h"
#include "full_pipe.h"
#include "launched.h"
#include "no_file.h"

#include "launch/launch.h"

#include <sys/syscall.h>
#include <termios.h>

TEST(the_exit_status_is_the_run_s)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act exit --on 0", lightc, program), 3);
    CHECK_CONTAINS(r.err, "rank 0 of 2 (host ");
    CHECK_CONTAINS(r.err, "exited with status 3");
    check_clean(&r, 2);
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act exit --on 1", lightc, program), 3);
    CHECK_CONTAINS(r.err, "rank 1 of 2 (host ");
    check_clean(&r, 2);
}

TEST(a_rank_that_is_killed_ends_all)
{
    run r;
    for (int victim = 0; victim < 3; victim++) {
        char want[64];
        start(&r, "%s launch -np 3 %s --act hang", lightc, program);
        for (int i = 0; i < 3; i++) pid_of(&r, i); /* and ignores SIGTERM */
        double killed = seconds();
        CHECK(!kill(pid_of(&r, victim), SIGKILL));
        CHECK_EQ(finish(&r), 137);
        CHECK(seconds() - killed < patience(3));
        snprintf(want, sizeof want, "rank %d of 3 (host ", victim);
        CHECK_CONTAINS(r.err, want);
        CHECK_CONTAINS(r.err, "killed by signal 9 (");
        check_clean(&r, 3);
    }
}

/* In programs whose ranks do not communicate, only the rank that fails is named. */
TEST(a_rank_that_ends_well_is_not_to_blame)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 3 %s --act tardy --on 1", lightc, program), 3);
    CHECK_CONTAINS(r.err, "error: rank 1 of 3 (host ");
    CHECK_CONTAINS(r.err, "): exited with status 3\n");
    check_clean(&r, 3);
    /* Until a rank waits for it. */
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act absent --on 1", lightc, program), 1);
    CHECK_CONTAINS(r.err, "error: rank 1 of 2 (host ");
    CHECK_CONTAINS(r.err, "): exited with status 0 while others wait for it\n");
    check_clean(&r, 2);
}

/* Only the ranks notice this, not their supervisor. */
TEST(a_rank_that_misses_another_names_it)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act leave --on 1", lightc, next_to("last_calls_program")), 1);
    CHECK_CONTAINS(r.err, "error: rank 0 (host ");
    CHECK_CONTAINS(r.err, "): rank 1 has left the group while rank 0 still waits for it\n");
    CHECK(!strstr(r.err, "exited with status"));
    CHECK(r.took < patience(4));
    check_clean(&r, 2);
}

/* Ranks that have met learn at once why the run ends. */
/* The coordinator, a thread of the supervisor, ends the run before the supervisor looks at its processes again. */
TEST(a_supervisor_that_is_late_says_how_a_rank_ended)
{
    run r;
    start(&r, "%s launch -np 2 %s --act meet", lightc, program);
    wait_for(&r, "out", "rank 0 has met 2\n");
    pid_t rank = pid_of(&r, 1);
    bool held = hold(&r);
    CHECK(!kill(rank, SIGKILL));
    if (held) {
        wait_for(&r, "err", "rank 0 hears: ");
        detach(&r);
    }
    CHECK(finish(&r) != 0);
    check_clean(&r, 2);
    if (!held) SKIP("processes cannot be traced");
    CHECK_CONTAINS(r.err, "error: rank 1 (host ");
    CHECK_CONTAINS(strstr(r.err, "error: rank 1"), "killed by signal 9");
}

/* The coordinator, the launcher's second thread, ends the run when all ranks are gone. */
TEST(a_coordinator_that_is_late_says_where_a_rank_ended)
{
    run r;
    start(&r, "%s launch -np 2 %s --act meet", lightc, program);
    wait_for(&r, "out", "rank 0 has met 2\n");
    pid_t rank = pid_of(&r, 1), coordinator = thread_of(r.pid, 1);
    bool held = hold_thread(coordinator);
    CHECK(!kill(rank, SIGKILL));
    if (held) {
        CHECK(all_gone(&r, 2, (int)(1000 * patience(10))));
        pause_ms(1500);
        CHECK(ptrace(PTRACE_DETACH, coordinator, NULL, NULL) == 0);
    }
    CHECK_EQ(finish(&r), 137);
    check_clean(&r, 2);
    if (!held) SKIP("processes cannot be traced");
    CHECK_CONTAINS(r.err, "error: rank 1 (host ");
    CHECK_CONTAINS(r.err, ", step 7, the middle: killed by signal 9");
}

TEST(ranks_are_notified_of_a_loss)
{
    run r;
    double killed;
    char want[64];
    for (int victim = 0; victim < 2; victim++) {
        start(&r, "%s launch -np 3 %s --act meet", lightc, program);
        wait_for(&r, "out", "rank 0 has met 3\n");
        killed = seconds();
        CHECK(!kill(pid_of(&r, victim), SIGKILL));
        CHECK_EQ(finish(&r), 137);
        CHECK(seconds() - killed < patience(1.5));
        snprintf(want, sizeof want, "rank %d (host ", victim);
        CHECK_CONTAINS(r.err, want);
        CHECK_CONTAINS(r.err, ", step 7, the middle: killed by signal 9 (");
        if (victim) CHECK_CONTAINS(r.err, "rank 0 hears: rank 1 (host ");
        check_clean(&r, 3);
    }
    start(&r, "%s launch -np 3 --silence_timeout %g %s --act meet", lightc, patience(1), program);
    wait_for(&r, "out", "rank 0 has met 3\n");
    killed = seconds();
    CHECK(!kill(pid_of(&r, 2), SIGSTOP));
    CHECK(finish(&r) != 0);
    CHECK(seconds() - killed < patience(1 + 3));
    CHECK_CONTAINS(r.err, "error: rank 2 (host ");
    CHECK_CONTAINS(r.err, "no heartbeat");
    check_clean(&r, 3);
}

/* A stopped rank gets no grace period, and ranks that ignore the end are not left running. */
TEST(stopped_ranks_are_not_waited_for)
{
    for (int all = 0; all < 2; all++) {
        run r;
        start(&r, "%s launch -np 2 --silence_timeout %g --grace_period %g %s --act meet", lightc, patience(1),
              all ? 1 : 10 * patience(1), program);
        wait_for(&r, "out", "rank 0 has met 2\n");
        double stopped = seconds();
        for (int i = !all; i < 2; i++) CHECK(!kill(pid_of(&r, i), SIGSTOP));
        CHECK(finish(&r) != 0);
        CHECK(seconds() - stopped < patience(1 + 3));
        CHECK_CONTAINS(r.err, all ? "error: rank " : "error: rank 1 (host ");
        CHECK_CONTAINS(r.err, "no heartbeat");
        check_clean(&r, 2);
    }
}

/* The coordinator, which knows where the rank was stopped, is late: it is held from 4.5 s to 7.6 s, which is less than
 * the other rank waits for it. */
TEST(a_late_coordinator_says_which_rank_is_stopped)
{
    run r;
    start(&r, "%s launch -np 2 --silence_timeout 6 %s --act meet", lightc, program);
    wait_for(&r, "out", "rank 0 has met 2\n");
    pid_t coordinator = thread_of(r.pid, 1);
    CHECK(!kill(pid_of(&r, 1), SIGSTOP));
    pause_ms(4500);
    bool held = hold_thread(coordinator);
    if (held) {
        pause_ms(3100);
        CHECK(ptrace(PTRACE_DETACH, coordinator, NULL, NULL) == 0);
    }
    CHECK(finish(&r) != 0);
    check_clean(&r, 2);
    if (!held) SKIP("processes cannot be traced");
    CHECK_CONTAINS(r.err, "error: rank 1 (host ");
    CHECK_CONTAINS(r.err, ", step 7, the middle: no heartbeat");
}

/* Even after the goodbye, when the others have ended and only it is still working. */
TEST(a_rank_that_is_stopped_when_it_has_left_is_ended)
{
    run r;
    start(&r, "%s launch -np 2 --silence_timeout %g %s --act hang", lightc, patience(0.5), program);
    for (int i = 0; i < 2; i++) (void)pid_of(&r, i);
    CHECK(!kill(pid_of(&r, 1), SIGSTOP));
    CHECK_EQ(finish(&r), 137);
    CHECK_CONTAINS(r.err, "error: rank 1 of 2 (host ");
    CHECK_CONTAINS(r.err, "): its process was stopped for ");
    check_clean(&r, 2);
}

/* Longer than the silence timeout. */
TEST(ranks_stop_and_go_on_with_their_supervisor)
{
    run r;
    double silence = patience(1);
    start(&r, "%s launch -np 2 --silence_timeout %g %s --act meet", lightc, silence, program);
    wait_for(&r, "out", "rank 0 has met 2\n");
    CHECK(!kill(r.pid, SIGTSTP));
    bool all = false;
    for (int ms = 0; ms < patience(2000) && !all; ms += 10) {
        all = state_of(r.pid) == 'T' && state_of(pid_of(&r, 0)) == 'T' && state_of(pid_of(&r, 1)) == 'T';
        pause_ms(10);
    }
    CHECK(all);
    pause_ms((int)(1500 * silence));
    CHECK(!kill(r.pid, SIGCONT));
    pause_ms((int)(1500 * silence));
    CHECK(!is_gone(pid_of(&r, 0)) && !is_gone(pid_of(&r, 1)) && state_of(pid_of(&r, 1)) != 'T');
    CHECK(!kill(pid_of(&r, 1), SIGKILL));
    CHECK_EQ(finish(&r), 137);
    CHECK_CONTAINS(r.err, "killed by signal 9");
    check_clean(&r, 2);
}

/* The master of a pseudo-terminal, and its name; -1: not available. */
static int open_terminal(char *name, size_t size)
{
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0) return -1;
    snprintf(name, size, "%s", ptsname(terminal));
    return terminal;
}

/* In a child that will run a program on this terminal. */
static int take_terminal(const char *name)
{
    setsid();
    int here = open(name, O_RDWR); /* it is the terminal of this session now */
    for (int fd = 0; fd < 3; fd++) dup2(here, fd);
    return here;
}

/* As when a window is closed or a connection is lost: the kernel signals it more than once, and ranks can no longer
 * write. */
TEST(a_terminal_that_is_closed_ends_the_run_with_a_checkpoint)
{
    const char *dir = fresh_dir("run");
    char name[256], path[600];
    int terminal = open_terminal(name, sizeof name), status;
    if (terminal < 0) SKIP("there are no pseudo-terminals");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        take_terminal(name);
        execl(program, program, "--act", "slow", "--devices", "2", "--use_distributed_sampler", "false", "--dir", dir,
              "--default_root_dir", dir, NULL);
        _exit(126);
    }
    char text[4096] = "";
    for (size_t n = 0; n + 1 < sizeof text && !strstr(text, "a step");) {
        ssize_t k = read(terminal, text + n, sizeof text - 1 - n);
        CHECK(k > 0);
        n += (size_t)k;
    }
    close(terminal);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 128 + SIGHUP);
    snprintf(path, sizeof path, "%s/lightning_logs/version_0/checkpoints/interrupted.ckpt", dir);
    CHECK(access(path, F_OK) == 0);
}

/* stty tostop: a background process, as ranks are, is stopped when it prints. */
TEST(a_terminal_stops_no_rank_that_prints)
{
    const char *dir = fresh_dir("run");
    char text[4096] = "", name[256];
    size_t n = 0;
    int terminal = open_terminal(name, sizeof name), status;
    if (terminal < 0) SKIP("there are no pseudo-terminals");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct termios t;
        int here = take_terminal(name);
        tcgetattr(here, &t);
        t.c_lflag |= TOSTOP;
        tcsetattr(here, TCSANOW, &t);
        execl(lightc, "lightc", "launch", "-np", "2", "--start_timeout", "20", program, "--dir", dir, NULL);
        _exit(126);
    }
    for (ssize_t k; n + 1 < sizeof text && (k = read(terminal, text + n, sizeof text - 1 - n)) > 0;) n += (size_t)k;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    close(terminal);
    if (WEXITSTATUS(status) != 0) TEST_FAIL("%s", text);
    CHECK_CONTAINS(text, "rank 0 speaks");
}

/* Its ranks give up, and when it continues it does not take them for the cause. */
TEST(a_supervisor_that_was_stopped_says_so)
{
    run r;
    start(&r, "%s launch -np 2 --silence_timeout %g %s --act meet", lightc, patience(1), program);
    wait_for(&r, "out", "rank 0 has met 2\n");
    CHECK(!kill(r.pid, SIGSTOP));
    for (int i = 0; i < 2; i++)
        for (int ms = 0; ms < patience(8000) && !is_gone(pid_of(&r, i)); ms += 10) pause_ms(10);
    CHECK(!kill(r.pid, SIGCONT));
    CHECK_EQ(finish(&r), 1);
    CHECK_CONTAINS(r.err, ": exited with status 1; the coordinator was stopped for ");
    check_clean(&r, 2);
}

TEST(a_rank_that_never_comes_is_named)
{
    run r;
    char want[80];
    CHECK(launch(&r, "%s launch -np 3 --start_timeout %g %s --act late --on 2", lightc, patience(1), program) != 0);
    snprintf(want, sizeof want, "error: rank 2 of 3 did not join within %g s", patience(1));
    CHECK_CONTAINS(r.err, want);
    check_clean(&r, 3);
}

/* The waiting ranks are not visible, but the supervisor is. */
TEST(a_start_that_waits_for_rank_0_says_so)
{
    run r;
    start(&r, "%s launch -np 2 %s --act late --on 0", lightc, program);
    wait_for(&r, "err", "waiting for rank 0 of 2 at 127.0.0.1:");
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 128 + SIGTERM);
}

TEST(output_is_kept_and_shown)
{
    run r;
    char all[8192];
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act print --on 1", lightc, program), 1);
    CHECK_CONTAINS(r.err, "line 60 of the output\n");
    CHECK_CONTAINS(r.err, "line 41 of the output\n");
    CHECK(!strstr(r.err, "line 40 of the output"));
    CHECK_CONTAINS(r.err, "rank-1.log");
    file_text(r.dir, "rank-1.log", all, sizeof all);
    CHECK_CONTAINS(all, "rank 1 speaks\nline 1 of the output\n");
    CHECK_CONTAINS(all, "line 60 of the output\n");
    check_clean(&r, 2);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part)) n++;
    return n;
}

TEST(the_last_calls_are_kept)
{
    run r;
    char kept[4096];
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act kill --on 1", lightc, next_to("last_calls_program")), 137);
    const char *shown = strstr(r.err, "the last calls of each rank");
    CHECK(shown);
    file_text(r.dir, "failure.log", kept, sizeof kept);
    CHECK_STR(kept, shown);
}

/* If something else is in the place of a report, it is refused at once with an error. */
TEST(reports_are_written_only_to_files)
{
    static const struct {
        const char *file, *program, *args;
    } rows[] = {{"rank-1.log", "rank_program", "--act print"}, {"failure.log", "last_calls_program", "--act kill"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int kind = 0; kind < NO_FILES; kind++) {
            run r;
            char path[400];
            snprintf(r.dir, sizeof r.dir, "%s", fresh_dir("run"));
            snprintf(path, sizeof path, "%s/%s", r.dir, rows[i].file);
            make_no_file(kind, path);
            again(&r, "%s launch -np 2 %s %s --on 1", lightc, next_to(rows[i].program), rows[i].args);
            siginfo_t ended = {0};
            for (double until = seconds() + patience(10); !ended.si_pid && seconds() < until; pause_ms(10))
                CHECK(waitid(P_PID, (id_t)r.pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0);
            if (!ended.si_pid) kill(r.pid, SIGKILL); /* it waits for a reader */
            int status = finish(&r);
            if (status != 1 && status != 137) TEST_FAIL("%s of kind %d: %d", rows[i].file, kind, status);
            CHECK_CONTAINS(r.err, rows[i].file);
            if (!strstr(r.err, "not a file") && !strstr(r.err, "directory"))
                TEST_FAIL("%s of kind %d: %s", rows[i].file, kind, r.err);
        }
}

/* Whatever happens to any number of ranks, one message reports it. */
TEST(a_failure_is_reported_once)
{
    static const struct {
        const char *options, *said;
    } cases[] = {{"--fault error --phase forward --on 0 --at 3", "the sensor of rank 0 is unplugged"},
                 {"--fault error --phase forward --on 1 --at 3", "the sensor of rank 1 is unplugged"},
                 {"--fault kill --phase forward --on 0 --at 12", "killed by signal 9"},
                 {"--fault kill --phase forward --on 1 --at 12", "killed by signal 9"},
                 {"--fault abort --phase forward --on 1 --at 3", "the training was called off"},
                 {"--memory_limit 1000", "memory_limit"},
                 {"--ckpt_path /nowhere/at.ckpt", "/nowhere/at.ckpt"},
                 {"--max_epocs 3", "max_epochs"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        CHECK_EQ(launch(&r, "%s --devices 2 --strategy ddp %s", next_to("fault_program"), cases[k].options), 1);
        if (count(r.err, "error: ") != 1 || count(r.err, cases[k].said) != 1)
            TEST_FAIL("%s: %s", cases[k].options, r.err);
    }
    /* Ranks that fail alike before they meet: only what rank 0 printed is shown. */
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 3 %s --act print", lightc, program), 1);
    CHECK_EQ(count(r.err, "line 60 of the output\n"), 1);
    CHECK_EQ(count(r.err, "error: "), 1);
    CHECK_CONTAINS(r.err, "error: rank 0 of 3 (host ");
    /* All report the same error. It is attributed to all, unless one rank was so much faster that it was taken for the
     * cause. */
    bool of_all = false;
    for (int i = 0; i < 10 && !of_all; i++) {
        CHECK_EQ(launch(&r, "%s launch -np 3 %s --act fail", lightc, program), 1);
        CHECK_CONTAINS(r.err, ": the disk of a rank is gone\n");
        CHECK_EQ(count(r.err, "error: "), 1);
        of_all = !strcmp(r.err, "error: all 3 ranks: the disk of a rank is gone\n");
    }
    CHECK(of_all);
    /* It may be attributed to one rank, whichever it is. */
    for (int rank = 0; rank < 2; rank++) {
        CHECK_EQ(launch(&r, "%s launch -np 3 %s --act fail --on %d", lightc, program, rank), 1);
        CHECK_CONTAINS(r.err, rank ? "error: rank 1 (host " : "error: rank 0 (host ");
        CHECK_CONTAINS(r.err, "): the disk of a rank is gone\n");
        CHECK_EQ(count(r.err, "error: "), 1);
    }
    /* Also if all have met, in a program without a trainer. */
    CHECK_EQ(launch(&r, "%s launch -np 3 %s --act fail --on -1", lightc, next_to("last_calls_program")), 1);
    CHECK_CONTAINS(r.err, ": the disk of a rank is gone\n");
    CHECK_EQ(count(r.err, "error: "), 1);
    CHECK_EQ(launch(&r, "%s launch -np 3 %s --act fail --on 1", lightc, next_to("last_calls_program")), 1);
    CHECK_CONTAINS(r.err, "): the disk of a rank is gone\n");
    CHECK_EQ(count(r.err, "error: "), 1);
    /* The calls in which the others wait are not related to it, nor to a mistake of the program. */
    CHECK(!strstr(r.err, "the last calls"));
    CHECK_EQ(launch(&r, "%s launch -np 3 %s --act mistake --on 1", lightc, next_to("last_calls_program")), 1);
    CHECK_CONTAINS(r.err, "): lr is -1, must be at least 0\n");
    CHECK(!strstr(r.err, "the last calls"));
}

/* The coordinator may be late, as on a busy machine: ranks that fail wait for it, before they have met and after. */
TEST(a_failure_is_reported_once_by_a_late_launcher)
{
    static const char *const programs[] = {LAUNCHED, "last_calls_program"};
    for (int k = 0; k < 2; k++)
        for (int on = -1; on < 1; on++) {
            run r;
            char go[400];
            start(&r, "%s launch -np 2 %s --act go --on %d", lightc, next_to(programs[k]), on);
            for (int i = 0; i < 2; i++) pid_of(&r, i);
            CHECK(!kill(r.pid, SIGSTOP));
            snprintf(go, sizeof go, "%s/go", r.dir);
            FILE *f = fopen(go, "w");
            CHECK(f && fclose(f) == 0);
            pause_ms(2500);
            CHECK(!kill(r.pid, SIGCONT));
            CHECK_EQ(finish(&r), 1);
            CHECK_CONTAINS(r.err, ": the disk of a rank is gone\n");
            if (count(r.err, "error: ") != 1) TEST_FAIL("%s on %d: %s", programs[k], on, r.err);
            check_clean(&r, 2);
        }
}

/* If rank 0 coordinates, it reports what has ended the run, and exits only after the others are notified. */
TEST(a_failure_is_reported_once_by_rank_0)
{
    for (int on = -1; on < 2; on++) {
        run r[2];
        int port = free_port();
        for (int i = 0; i < 2; i++) {
            snprintf(r[i].dir, sizeof r[i].dir, "%s", fresh_dir(i ? "run-1" : "run-0"));
            again(&r[i],
                  "/usr/bin/env RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
                  "LIGHTC_SECRET=0123456789abcdef %s --act fail --on %d",
                  i, port, next_to("last_calls_program"), on);
        }
        for (int i = 0; i < 2; i++) CHECK_EQ(finish(&r[i]), 1);
        CHECK_CONTAINS(r[0].err, ": the disk of a rank is gone\n");
        CHECK_EQ(count(r[0].err, "error: "), 1);
        CHECK_STR(r[1].err, "");
    }
}

/* A script that runs its arguments with standard error redirected to fd. */
static const char *into(int fd)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/into.sh", fresh_dir("script"));
    FILE *f = fopen(path, "w");
    CHECK(f);
    fprintf(f, "exec \"$@\" 2>/proc/%d/fd/%d\n", (int)getpid(), fd);
    fclose(f);
    return path;
}

/* As some daemons start programs: no other file may get the numbers of the closed descriptors. */
TEST(without_standard_descriptors)
{
    run r;
    char script[PATH_MAX];
    snprintf(script, sizeof script, "%s/closed.sh", fresh_dir("script"));
    FILE *f = fopen(script, "w");
    CHECK(f);
    fprintf(f, "exec \"$@\" <&- >&- 2>&-\n");
    fclose(f);
    CHECK_EQ(launch(&r, "/bin/sh %s %s launch -np 2 %s --act exit --on 1", script, lightc, program), 3);
    check_clean(&r, 2);
}

/* Rank 0 waits until its message is read, and no other rank waits for rank 0. */
TEST(a_failure_that_rank_0_cannot_show_yet_ends_the_others)
{
    run r[3];
    char text[4096];
    int port = free_port(), ends[2];
    CHECK(full_pipe(ends));
    const char *script = into(ends[1]);
    for (int i = 0; i < 3; i++) {
        snprintf(r[i].dir, sizeof r[i].dir, "%s", fresh_dir(i == 2 ? "run-2" : i ? "run-1" : "run-0"));
        again(&r[i],
              "%s%s /usr/bin/env RANK=%d WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
              "LIGHTC_SECRET=0123456789abcdef %s --act kill --on 2",
              i ? "/usr/bin/env" : "/bin/sh ", i ? "" : script, i, port, next_to("last_calls_program"));
    }
    CHECK_EQ(finish(&r[2]), 137);
    double killed = seconds();
    CHECK_EQ(finish(&r[1]), 1);
    CHECK(seconds() - killed < patience(3));
    CHECK_STR(r[1].err, "");
    CHECK_EQ(waitpid(r[0].pid, NULL, WNOHANG), 0);
    full_pipe_drain(ends, text, sizeof text);
    CHECK_EQ(finish(&r[0]), 1);
    CHECK_CONTAINS(text, "error: rank 2 (host ");
    CHECK_EQ(count(text, "error: "), 1);
}

TEST(the_end_of_an_output)
{
    int fd;
    bool more;
    lc__str text = {0};
    CHECK_OK(lc__output_open(scratch_root, &fd));
    lc__output_tail(fd, 3, &text, &more);
    CHECK(text.n == 0 && !more);
    dprintf(fd, "a\nb\nc\n");
    lc__output_tail(fd, 3, &text, &more);
    CHECK_STR(text.s, "a\nb\nc\n");
    CHECK(!more);
    lc__str_clear(&text);
    dprintf(fd, "\nd");
    lc__output_tail(fd, 3, &text, &more);
    CHECK_STR(text.s, "c\n\nd\n");
    CHECK(more);
    lc__str_clear(&text);
    for (int i = 0; i < 100000; i++) CHECK(write(fd, "x", 1) == 1); /* a line longer than what is searched */
    lc__output_tail(fd, 3, &text, &more);
    CHECK(text.n > 60000 && text.n < 100000 && more);
    lc__str_free(&text);
    close(fd);
}

TEST(signals_are_passed_on)
{
    run r;
    start(&r, "%s launch -np 2 %s --act term", lightc, program);
    for (int i = 0; i < 2; i++) pid_of(&r, i);
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 0); /* they had time to end, and exited with 0 */
    CHECK_STR(r.err, "rank 0 was told to end\n");
    check_clean(&r, 2);

    start(&r, "%s launch -np 2 %s --act exit --on 7", lightc, program);
    for (int i = 0; i < 2; i++) pid_of(&r, i);
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 128 + SIGTERM);
    CHECK_CONTAINS(r.err, "stopped by signal 15");
    check_clean(&r, 2);
}

/* As after Ctrl-C, or a batch system's signal: ranks save, and the status shows why the run ended. */
TEST(an_interrupted_training_says_so)
{
    static const struct {
        int signal;
        const char *said;
    } cases[] = {{SIGINT, "stopped by SIGINT after step "},
                 {SIGTERM, "stopped by SIGTERM after step "},
                 {SIGHUP, "stopped by SIGHUP after step "}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        start(&r, "%s --act slow --devices 2 --use_distributed_sampler false", program);
        wait_for(&r, "out", "a step\n");
        CHECK(!kill(r.pid, cases[k].signal));
        CHECK_EQ(finish(&r), 128 + cases[k].signal);
        CHECK_CONTAINS(r.err, cases[k].said);
        CHECK_CONTAINS(r.err, "continue with --ckpt_path ");
        CHECK_EQ(count(r.err, "stopped by "), 1);
        check_clean(&r, 2);
    }
}

/* If the other ranks' output is not kept, as under srun. */
TEST(an_interrupted_training_says_so_once)
{
    run r[2];
    int port = free_port();
    for (int i = 0; i < 2; i++) {
        snprintf(r[i].dir, sizeof r[i].dir, "%s", fresh_dir(i ? "run-1" : "run-0"));
        again(&r[i],
              "/usr/bin/env RANK=%d WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d LIGHTC_SECRET=0123456789abcdef "
              "%s --act slow --use_distributed_sampler false",
              i, port, program);
    }
    for (int i = 0; i < 2; i++) wait_for(&r[i], "out", "a step\n");
    for (int i = 0; i < 2; i++) CHECK(!kill(r[i].pid, SIGTERM));
    for (int i = 0; i < 2; i++) CHECK_EQ(finish(&r[i]), 128 + SIGTERM);
    CHECK_CONTAINS(r[0].err, "error: stopped by SIGTERM after step ");
    CHECK(!strstr(r[1].err, "stopped by "));
}

/* ---- processes that may have ended when they get a signal: another program may have their number by then ---- */

static int hold_process(pid_t pid)
{
    int held = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(held >= 0);
    return held;
}

/* false, with errno ESRCH: it has ended. */
static bool signal_held(int held, int sig)
{
    return syscall(SYS_pidfd_send_signal, held, sig, NULL, 0) == 0;
}

static void drop_processes(const int *held, int n)
{
    for (int i = 0; i < n; i++) close(held[i]);
}

/* As scancel, systemctl stop and pkill do: all processes of a run get the signal, and ranks get it twice, because their
 * supervisor passes it on, before or after the signal that they get directly. */
TEST(a_signal_to_all_processes_counts_once)
{
    static const struct {
        int order[3]; /* 0: the supervisor; else a rank */
        int between_ms;
    } cases[] = {{{0, 1, 2}, 0}, {{1, 2, 0}, 0}, {{2, 0, 1}, 0}, {{0, 1, 2}, 20}, {{1, 0, 2}, 5}};
    for (size_t k = 0; k < 2 * sizeof cases / sizeof *cases; k++) {
        int sig = k % 2 ? SIGINT : SIGTERM;
        run r;
        start(&r, "%s --act slow --devices 2 --use_distributed_sampler false", program);
        wait_for(&r, "out", "a step\n");
        int held[] = {hold_process(r.pid), hold_process(pid_of(&r, 0)), hold_process(pid_of(&r, 1))};
        for (int i = 0; i < 3; i++) {
            if (i) pause_ms(cases[k / 2].between_ms);
            CHECK(signal_held(held[cases[k / 2].order[i]], sig) || errno == ESRCH); /* it may have ended by then */
        }
        drop_processes(held, 3);
        CHECK_EQ(finish(&r), 128 + sig);
        CHECK_CONTAINS(r.err, "interrupted.ckpt");
        CHECK_EQ(count(r.err, "stopped by "), 1);
        check_clean(&r, 2);
    }
}

/* Ctrl-C, and again 0.3 s later; and pkill, twice. */
TEST(a_second_signal_ends_a_launched_run_at_once)
{
    static const struct {
        int signal, processes; /* only the supervisor is signaled, or also the ranks */
    } cases[] = {{SIGINT, 1}, {SIGTERM, 1}, {SIGTERM, 3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        run r;
        start(&r, "%s --act stuck --devices 2 --use_distributed_sampler false", program);
        wait_for(&r, "out", "a step\n");
        pid_t pids[] = {r.pid, pid_of(&r, 0), pid_of(&r, 1)};
        int held[] = {hold_process(pids[0]), hold_process(pids[1]), hold_process(pids[2])};
        double sent = seconds();
        for (int i = 0; i < cases[k].processes; i++) CHECK(signal_held(held[i], cases[k].signal));
        pause_ms(300);
        CHECK(!is_gone(pids[1]) && !is_gone(pids[2]));
        for (int i = 0; i < cases[k].processes; i++) CHECK(signal_held(held[i], cases[k].signal) || errno == ESRCH);
        drop_processes(held, 3);
        CHECK_EQ(finish(&r), 128 + cases[k].signal);
        CHECK(seconds() - sent < patience(5));
        CHECK(!strstr(r.err, "interrupted.ckpt"));
        CHECK_EQ(count(r.err, "stopped by "), 1);
        check_clean(&r, 2);
    }
}

/* Whether a signal waits to be read; of signal 0: whether all threads are stopped. */
static bool is_held(pid_t pid, int sig)
{
    char path[64], line[256], state;
    unsigned long long pending = 0;
    bool stopped = true;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)pid, e->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line, "State: %c", &state) == 1) stopped = stopped && state == 'T';
            (void)!sscanf(line, "ShdPnd: %llx", &pending);
        }
        if (f) fclose(f);
    }
    if (d) closedir(d);
    return sig ? pending >> (sig - 1) & 1 : stopped;
}

static void wait_until_held(const pid_t *pids, int n, int sig, bool wanted)
{
    for (int i = 0; i < n; i++)
        for (double until = seconds() + patience(20); is_held(pids[i], sig) != wanted; pause_ms(10))
            if (seconds() > until) TEST_FAIL("signal %d %s", sig, wanted ? "does not arrive" : "is not read");
}

static void signal_each(const pid_t *pids, int n, int sig)
{
    for (int i = 0; i < n; i++) CHECK(!kill(pids[i], sig));
    if (sig == SIGSTOP) wait_until_held(pids, n, 0, true);
}

/* The kernel keeps one of several equal signals until it is read. A rank that is late reads its supervisor's of the
 * first request, and its own of the second, which look like the same request. */
TEST(a_second_signal_ends_a_rank_that_reads_late)
{
    run r;
    start(&r, "%s --act stuck --devices 2 --use_distributed_sampler false", program);
    wait_for(&r, "out", "a step\n");
    pid_t ranks[] = {pid_of(&r, 0), pid_of(&r, 1)};
    signal_each(ranks, 2, SIGSTOP);
    CHECK(!kill(r.pid, SIGTERM));
    wait_until_held(ranks, 2, SIGTERM, true);
    signal_each(ranks, 2, SIGTERM);
    signal_each(ranks, 2, SIGCONT);
    wait_until_held(ranks, 2, SIGTERM, false);
    pause_ms(100); /* threads pass it on to the one that reads it */
    signal_each(ranks, 2, SIGSTOP);
    signal_each(ranks, 2, SIGTERM);
    CHECK(!kill(r.pid, SIGTERM));
    wait_until_held(&r.pid, 1, SIGTERM, false);
    pause_ms(100); /* until it is passed on */
    double sent = seconds();
    signal_each(ranks, 2, SIGCONT);
    CHECK_EQ(finish(&r), 128 + SIGTERM);
    CHECK(seconds() - sent < patience(5));
    CHECK(!strstr(r.err, "interrupted.ckpt"));
    check_clean(&r, 2);
}

/* All stop in good order together with the rank that got the signal, and none of them has failed. */
TEST(a_signal_to_one_rank_stops_the_run)
{
    for (int rank = 0; rank < 2; rank++) {
        run r;
        start(&r, "%s --act slow --devices 2 --use_distributed_sampler false", program);
        wait_for(&r, "out", "a step\n");
        int sig = rank ? SIGHUP : SIGTERM;
        CHECK(!kill(pid_of(&r, rank), sig));
        CHECK_EQ(finish(&r), 128 + sig);
        CHECK_EQ(count(r.err, "error: "), 1);
        CHECK_CONTAINS(r.err, rank ? "error: stopped by SIGHUP after step " : "error: stopped by SIGTERM after step ");
        CHECK(!strstr(r.err, "the last calls"));
        check_clean(&r, 2);
    }
}

/* Processes of a run get a signal at different times: a rank may get it when it has stopped because of another's. */
TEST(a_signal_that_comes_after_the_stop_changes_nothing)
{
    for (int rank = 0; rank < 2; rank++) {
        run r;
        start(&r, "%s --act after --on %d --devices 2 --use_distributed_sampler false", program, rank);
        wait_for(&r, "out", "a step\n");
        CHECK(!kill(pid_of(&r, !rank), SIGTERM));
        CHECK_EQ(finish(&r), 128 + SIGTERM);
        CHECK_EQ(count(r.err, "error: "), 1);
        CHECK_CONTAINS(r.err, "error: stopped by SIGTERM after step ");
        check_clean(&r, 2);
    }
}

TEST(ranks_do_not_outlive_their_supervisor)
{
    run r;
    start(&r, "%s launch -np 3 %s --act hang", lightc, program);
    for (int i = 0; i < 3; i++) pid_of(&r, i);
    CHECK(!kill(r.pid, SIGKILL));
    CHECK_EQ(finish(&r), 137);
    CHECK(all_gone(&r, 3, (int)patience(2000)));
    check_clean(&r, 3);
}

TEST_MAIN
