/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are scripts, which run the program themselves; and supervisors that are started in a poorer environment
 * than usual. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "rank_program"
#include "launched.h"

#include <sys/stat.h>

/* The path of an executable script with these lines. */
static const char *script(const char *format, ...) LC_PRINTF(1, 2);
static const char *script(const char *format, ...)
{
    static char path[500];
    va_list args;
    snprintf(path, sizeof path, "%s/script", fresh_dir("script"));
    FILE *f = fopen(path, "w");
    CHECK(f);
    fputs("#!/bin/sh\n", f);
    va_start(args, format);
    vfprintf(f, format, args);
    va_end(args);
    CHECK(fclose(f) == 0 && chmod(path, 0755) == 0);
    return path;
}

TEST(scripts_end_with_their_programs)
{
    static const int signals[] = {SIGTERM, SIGINT};
    for (int k = 0; k < 2; k++) {
        run r;
        /* Scripts may end before their programs have saved, however long that takes on a busy machine. */
        start(&r, "%s launch -np 2 --grace_period 60 %s --act slow --use_distributed_sampler false", lightc,
              script("%s \"$@\"\necho goes on\n", program));
        for (int i = 0; i < 2; i++) pid_of(&r, i);
        wait_for(&r, "out", "a step");
        CHECK(!kill(r.pid, signals[k]));
        CHECK_EQ(finish(&r), 128 + signals[k]);
        CHECK_CONTAINS(r.err, "interrupted.ckpt"); /* they were not killed */
        check_clean(&r, 2);
    }
}

/* Ctrl-Z: not only the scripts stop, while their programs would keep the cores. */
TEST(scripts_stop_and_go_on_with_their_programs)
{
    run r;
    start(&r, "%s launch -np 2 %s --act meet", lightc, script("%s \"$@\"\nexit $?\n", program));
    wait_for(&r, "out", "rank 0 has met 2\n");
    CHECK(!kill(r.pid, SIGTSTP));
    bool all = false;
    for (int ms = 0; ms < patience(2000) && !all; ms += 10) {
        all = state_of(r.pid) == 'T' && state_of(pid_of(&r, 0)) == 'T' && state_of(pid_of(&r, 1)) == 'T';
        pause_ms(10);
    }
    CHECK(!kill(r.pid, SIGCONT)); /* first, so that nothing stays stopped */
    CHECK(all);
    for (int ms = 0; ms < patience(2000) && state_of(pid_of(&r, 1)) == 'T'; ms += 10) pause_ms(10);
    CHECK(state_of(pid_of(&r, 0)) != 'T' && state_of(pid_of(&r, 1)) != 'T');
    CHECK(!kill(r.pid, SIGTERM));
    CHECK_EQ(finish(&r), 128 + SIGTERM);
    check_clean(&r, 2);
}

/* The script continues, and exits with 0. */
TEST(a_script_hides_no_failure)
{
    run r;
    const char *path = script("%s \"$@\"\nexit 0\n", program);
    CHECK_EQ(launch(&r, "%s launch -np 3 %s --act fail --on 1", lightc, path), 1);
    CHECK_CONTAINS(r.err, "rank 1 (host ");
    CHECK_CONTAINS(r.err, "the disk of a rank is gone");
    check_clean(&r, 3);
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act end", lightc, path), 0);
    CHECK_EQ(launch(&r, "%s launch -np 2 %s --act train --use_distributed_sampler false", lightc, path), 0);
}

/* An error that all ranks report is not one rank's own, so none is left out of the restart. A rank that reports it a
 * fifth of a second later than the first one, as on a busy machine, is not waited for: one attempt of several is in
 * time. */
TEST(a_common_failure_costs_no_rank)
{
    run r;
    bool in_time = false;
    for (int i = 0; i < 5 && !in_time; i++) {
        CHECK(launch(&r, "%s launch -np 2 --max_restarts 1 %s --act fail", lightc, program) != 0);
        CHECK_CONTAINS(r.err, "the disk of a rank is gone");
        in_time = strstr(r.err, "all 2 ranks: ");
    }
    CHECK_CONTAINS(r.err, "restarting from the last checkpoint (1 of 1)");
    check_clean(&r, 2);
}

TEST(a_parent_that_ignores_its_children)
{
    run r;
    if (system("/usr/bin/env --ignore-signal=CHLD true 2>/dev/null")) SKIP("env has no --ignore-signal");
    CHECK_EQ(launch(&r, "/usr/bin/env --ignore-signal=CHLD %s launch -np 2 %s --act end", lightc, program), 0);
    CHECK_EQ(launch(&r, "/usr/bin/env --ignore-signal=CHLD %s launch -np 2 %s --act exit --on 1", lightc, program), 3);
}

/* With fewer descriptors no rank can be started, and with more all of them join; the number depends on the system. No
 * rank joins before all are started, which takes descriptors too. */
TEST(too_few_descriptors_are_named)
{
    bool named = false;
    for (int n = 8; n < 40 && !named; n++) {
        run r;
        const char *path = script(
            "ulimit -n %d\nexec timeout 30 %s launch --start_timeout 4 -np 6 /bin/sh -c 'sleep 2; exec \"$0\" \"$@\"' "
            "%s \"$@\"\n",
            n, lightc, program);
        int status = launch(&r, "%s --act meet", path);
        CHECK(status != 0 && status != 124);
        named = strstr(r.err, "did not join within 4 s; the coordinator has no file descriptors");
    }
    CHECK(named);
}

TEST(ranks_launch_none)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np 2 %s launch -np 2 %s", lightc, lightc, program), 1);
    CHECK_CONTAINS(r.err, "error: this is rank 0 of a launched run, and a rank cannot launch others; ");
    CHECK_EQ(launch(&r,
                    "%s launch -np 1 /usr/bin/env -u LIGHTC_RANK -u LIGHTC_COORDINATED %s launch -np 2 %s --act end",
                    lightc, lightc, program),
             0);
}

TEST(a_mistake_is_named)
{
    run r;
    CHECK_EQ(launch(&r, "%s launch -np2 %s", lightc, program), 2);
    CHECK_CONTAINS(r.err, "error: unknown option -np2\n");
    CHECK_EQ(launch(&r, "%s launch -np 0 %s", lightc, program), 2);
    CHECK_CONTAINS(r.err, "error: -np is \"0\"; it must be ");
    CHECK_EQ(launch(&r, "%s launch -np 2", lightc), 2); /* except for the options that the test adds */
    CHECK_CONTAINS(r.err, "error: unknown option --dir");
}

TEST_MAIN
