/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are alive but make no progress: the limit that a run learns, and the warning before it. */
#define _GNU_SOURCE
#include "control_run.h"

#include "comm/control/control_internal.h"

#include <stdatomic.h>

static const char *where_it_begins, *where_it_hangs;
static double step_seconds; /* of the second step */
static bool both_hang;

/* Two steps, then rank 1 hangs; rank 0 continues until the end, or for a while, unless it hangs too. */
static lc_status two_steps(run *r, lc__control *c, int rank)
{
    lc__control_progress(c, 1, where_it_begins);
    nap(step_seconds);
    lc__control_progress(c, 2, where_it_hangs);
    if (rank == 1)
        for (;;) pause();
    char text[LC__END_TEXT];
    while (!atomic_load(&r->go)) {
        if (lc__control_ended(c, text, sizeof text)) return lc_fail(LC_ERR_PEER, "%s", text);
        if (!both_hang) lc__control_progress(c, 2, "training");
        nap(0.02);
    }
    return LC_OK;
}

static run *begin_run(lc__control_times times, lc__coordinator **c)
{
    times.heartbeat = 0.05;
    run *r = run_new(2, two_steps, times);
    *c = run_start(r);
    return r;
}

static run *begin(const char *where, double seconds, lc__control_times times, lc__coordinator **c)
{
    where_it_begins = "training";
    where_it_hangs = where;
    step_seconds = seconds;
    both_hang = false;
    return begin_run(times, c);
}

static void end(run *r, lc__coordinator *c)
{
    run_signal(r, 1, SIGKILL);
    run_reap(r, 1);
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(a_limit_is_learned)
{
    lc__coordinator *c;
    char want[200];
    run *r = begin("training", 0.01, (lc__control_times){.progress_least = 0.8}, &c);
    run_reap(r, 0);
    snprintf(want, sizeof want, "rank 1 %s, step 2, training: no progress for", host());
    CHECK_ENDED(r, 0, want);
    CHECK(r->ranks[0].took > 0.8);
    end(r, c);
}

/* Twenty times the step of 0.2 s, which is how long rank 1 may now make no progress. */
TEST(slow_steps_are_given_more_time)
{
    lc__coordinator *c;
    run *r = begin("training", 0.2, (lc__control_times){.progress_least = 0.3}, &c);
    CHECK(await(&r->here, 2));
    nap(1.5);
    atomic_store(&r->go, 1);
    CHECK_EQ(run_reap(r, 0), 0);
    CHECK_OK(r->ranks[0].status);
    end(r, c);
}

static atomic_int lines;
static char first_line[LC__END_TEXT];

static void take_line(const char *text)
{
    if (atomic_fetch_add(&lines, 1) == 0) snprintf(first_line, sizeof first_line, "%s", text);
}

/* Steps of 0.01 s, so the limit would be 0.3 s. */
TEST(time_outside_of_runs_is_not_limited)
{
    static const struct {
        const char *where;
        double timeout;
        bool line; /* the warning is printed all the same */
    } cases[] = {{NULL, 0, false}, {LC__OWN_LOOP, 0, false}, {"training", -1, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        lc__coordinator *c;
        where_it_begins = "training";
        where_it_hangs = cases[k].where;
        step_seconds = 0.01;
        both_hang = true; /* a rank that continued would teach the run slower steps */
        atomic_store(&lines, 0);
        run *r = begin_run(
            (lc__control_times){.progress = cases[k].timeout, .progress_least = 0.3, .progress_line = 0.3}, &c);
        lc__coordinator_on_stall(c, take_line);
        CHECK(await(&r->here, 2));
        nap(1.5);
        atomic_store(&r->go, 1);
        CHECK_EQ(run_reap(r, 0), 0);
        CHECK_OK(r->ranks[0].status);
        end(r, c);
        CHECK_EQ(atomic_load(&lines) > 0, cases[k].line);
    }
}

/* 1.5 s between two runs, twenty times which is 30 s. */
TEST(time_between_runs_is_not_a_slow_step)
{
    lc__coordinator *c;
    where_it_begins = NULL;
    where_it_hangs = "training";
    step_seconds = 1.5;
    both_hang = true;
    run *r = begin_run((lc__control_times){.progress_least = 0.3}, &c);
    run_reap(r, 0);
    CHECK_ENDED(r, 0, "no progress for");
    CHECK(r->ranks[0].took < 25);
    end(r, c);
}

/* After 0.3, 0.6, 1.2 and 2.4 s, not at every check. */
TEST(a_warning_precedes_the_end)
{
    lc__coordinator *c;
    char want[200];
    atomic_store(&lines, 0);
    run *r = begin("training", 0.01, (lc__control_times){.progress = 30, .progress_line = 0.3}, &c);
    lc__coordinator_on_stall(c, take_line);
    for (int i = 0; i < 2000 && atomic_load(&lines) < 3; i++) nap(0.01);
    atomic_store(&r->go, 1);
    CHECK_EQ(run_reap(r, 0), 0);
    CHECK_OK(r->ranks[0].status); /* a warning does not end the run */
    end(r, c);
    CHECK(atomic_load(&lines) >= 3 && atomic_load(&lines) <= 6);
    CHECK_CONTAINS(first_line, "no progress for ");
    snprintf(want, sizeof want, "rank 1 %s, step 2, training; the run ends after 30 s (--progress_timeout)", host());
    CHECK_CONTAINS(first_line, want);
}

TEST_MAIN
