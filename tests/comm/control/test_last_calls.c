/* SPDX-License-Identifier: Apache-2.0 */
/* The message that ends a run comes with the last calls of every rank, over any transport: real processes
 * (tests/programs/last_calls_program.c) make calls, and then one of them ends, is stopped, or makes another call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define LAUNCHED "last_calls_program"
#include "free_port.h"
#include "launched.h"
#include "open_mpi.h"

#include "comm/history.h"

/* ---- of one rank ---- */

static void add(lc__history *h, uint64_t number, int64_t count, bool done)
{
    lc__history_begin(h, number,
                      &(lc_comm_call){.op = LC_COMM_ALL_REDUCE, .dtype = LC_F32, .peer = -1, .count = count});
    if (done) lc__history_done(h, number);
}

TEST(the_newest_calls_and_the_one_that_hangs)
{
    static lc__history world, group;
    lc__last_calls l = {0};
    char text[640], small[40];
    lc__last_calls_add(&l, &world, "");
    lc__last_calls_text(&l, text, sizeof text);
    CHECK_STR(text, "");
    for (int i = 1; i <= 100; i++) add(&world, (uint64_t)i, i, i != 90);
    add(&group, 1, 7, true);
    for (int i = 101; i <= 102; i++) add(&world, (uint64_t)i, i, i != 102);
    lc__last_calls_add(&l, &world, "");
    lc__last_calls_add(&l, &group, "1.0");
    lc__last_calls_text(&l, text, sizeof text);
    CHECK_STR(text, "     >  90 all_reduce of 90 f32, sum\n"
                    "         1 all_reduce of 7 f32, sum, in group 1.0\n"
                    "       101 all_reduce of 101 f32, sum\n"
                    "     > 102 all_reduce of 102 f32, sum\n");
    lc__last_calls_text(&l, small, sizeof small); /* a part of the text, which is terminated */
    CHECK(strlen(small) == sizeof small - 1);
    /* calls that have left the ring are forgotten */
    for (int i = 103; i <= 140; i++) add(&world, (uint64_t)i, i, true);
    l = (lc__last_calls){0};
    lc__last_calls_add(&l, &world, "");
    lc__last_calls_text(&l, text, sizeof text);
    CHECK(!strstr(text, "90") && !strchr(text, '>'));
    CHECK_CONTAINS(text, "       140 all_reduce of 140 f32, sum\n");
}

/* ---- of all ---- */

#define TITLE   "the last calls of each rank (> has not finished):\n"
#define CALLS   "        40 all_reduce of 42 f32, sum\n"
#define THEN    "         1 broadcast of 7 f32 from rank 0, in group 1.0\n        41 barrier\n"
#define WAITING "     >   2 all_reduce of 11 f32, max, in group 1.0\n"

static const struct {
    const char *name, *hosts; /* %s: this one */
} ways[] = {{"shm", "local:3"}, {"tcp", "local:3"}, {"shm+tcp", "local:2,local:1"}, {"mpi", "%s:3"}};

enum { WAYS = sizeof ways / sizeof *ways };

static bool is_there(int way)
{
    setenv("OMPI_MCA_btl", "vader,self", 1);
    return strcmp(ways[way].name, "mpi") != 0 || has_mpirun();
}

/* Open MPI that is not finalized makes LeakSanitizer report more than a test reads. */
static void leaks_count(bool yes)
{
    setenv("ASAN_OPTIONS", yes ? "detect_leaks=1" : "detect_leaks=0", 1);
}

static void begin(run *r, int way, const char *act, const char *options)
{
    char host[65] = "", hosts[100];
    gethostname(host, sizeof host - 1);
    snprintf(hosts, sizeof hosts, ways[way].hosts, host);
    setenv("LIGHTC_COMM", ways[way].name, 1);
    leaks_count(strcmp(ways[way].name, "mpi") != 0);
    snprintf(r->dir, sizeof r->dir, "%s", fresh_dir(ways[way].name));
    again(r, "%s launch -H %s %s %s --act %s --on 1", lightc, hosts, options, program, act);
    leaks_count(true);
}

/* What the run of three ranks printed at the end; checks that it was printed once. */
static const char *printed(run *r, int way, const char *act)
{
    CHECK(finish(r) != 0);
    const char *at = strstr(r->err, TITLE);
    if (!at) TEST_FAIL("%s, %s: there are no last calls in: %s", ways[way].name, act, r->err);
    CHECK(!strstr(at + 1, TITLE));
    return at;
}

/* Whether a waiting rank was too late to answer, as on a busy machine. */
static bool is_late(const char *at)
{
    return strstr(at, "rank 0, as reported") || strstr(at, "rank 2, as reported") || strstr(at, "0, 2, as reported");
}

/* Runs all transports at once, since most of the time is spent waiting. */
typedef void checked(run *r, int way, const char *at);

static void every_way(const char *act, const char *options, checked *check)
{
    static run runs[WAYS];
    for (int k = 0; k < WAYS; k++)
        if (is_there(k)) begin(&runs[k], k, act, options);
    for (int k = 0; k < WAYS; k++)
        if (is_there(k)) {
            const char *at = printed(&runs[k], k, act);
            for (int i = 0; i < 4 && is_late(at); i++) {
                begin(&runs[k], k, act, options);
                at = printed(&runs[k], k, act);
            }
            check(&runs[k], k, at);
        }
}

#define CHECK_BEGINS(text, part)                                                                                       \
    do {                                                                                                               \
        if (strncmp(text, part, strlen(part)) != 0) TEST_FAIL("\"%s\" does not begin with \"%s\"", text, part);        \
    } while (0)

static void check_killed(run *r, int way, const char *at)
{
    /* A rank that notices the loss by itself may have left before it is asked. */
    CHECK_BEGINS(at, TITLE "  ranks 0, 2");
    CHECK_CONTAINS(at, CALLS THEN WAITING "  rank 1, as reported ");
    at = strstr(strstr(at, "  rank 1, "), " s before the end:\n");
    if (!at || !strstr(at, CALLS THEN "error: rank 1 (host ")) TEST_FAIL("%s: %s", ways[way].name, r->err);
    CHECK(!strchr(strstr(at, CALLS), '>'));
}

/* The waiting ranks are asked, and the calls of the killed one are known from its heartbeats. */
TEST(a_rank_that_is_killed)
{
    every_way("kill", "", check_killed);
}

static void check_stopped(run *r, int way, const char *at)
{
    (void)way;
    CHECK_BEGINS(at, TITLE "  ranks 0, 2:\n" CALLS THEN WAITING "  rank 1, as reported ");
    CHECK_CONTAINS(at, "error: rank 1 (host ");
    CHECK_CONTAINS(at, "no heartbeat from it for ");
    check_clean(r, 3);
}

TEST(a_rank_that_is_stopped)
{
    char option[40];
    snprintf(option, sizeof option, "--silence_timeout %g", patience(1));
    every_way("stop", option, check_stopped);
}

static void check_hung(run *r, int way, const char *at)
{
    (void)way;
    CHECK_BEGINS(at, TITLE "  ranks 0, 2:\n" CALLS THEN WAITING "  rank 1:\n");
    CHECK_CONTAINS(at, CALLS THEN "error: rank 1 (host ");
    CHECK_CONTAINS(at, "no progress for ");
    check_clean(r, 3);
}

/* The ranks that wait for it make no progress either. */
TEST(a_rank_that_hangs)
{
    char option[40];
    snprintf(option, sizeof option, "--progress_timeout %g", patience(2.5));
    every_way("hang", option, check_hung);
}

static void check_left(run *r, int way, const char *at)
{
    (void)way;
    CHECK_CONTAINS(at, "     >  42 barrier\n");
    CHECK_CONTAINS(at, "error: rank ");
    CHECK_CONTAINS(at, "has left the group while rank ");
    CHECK(r->took < patience(5));
}

TEST(a_rank_that_leaves)
{
    every_way("leave", "", check_left);
}

TEST(a_rank_that_ends_well_without_leaving)
{
    every_way("end", "", check_left);
}

static void check_forgotten(run *r, const char *way)
{
    int status = finish(r);
    if (status || r->err[0]) TEST_FAIL("%s: status %d: %s", way, status, r->err);
}

/* Ranks that exit with 0 while no rank waits for them have left properly, whatever started them. */
TEST(no_calls_if_all_forget_to_leave)
{
    static run runs[WAYS], other, by_hand[2];
    for (int k = 0; k < WAYS; k++)
        if (is_there(k)) begin(&runs[k], k, "forget", "");
    for (int k = 0; k < WAYS; k++)
        if (is_there(k)) check_forgotten(&runs[k], ways[k].name);
    unsetenv("LIGHTC_COMM");
    if (is_there(WAYS - 1)) {
        start(&other, "/usr/bin/env mpirun -np 2 %s --act forget --on 1", program);
        check_forgotten(&other, "mpirun");
    }
    for (int first = 0; first < 2; first++) { /* rank 0 coordinates the run */
        int port = free_port();
        for (int i = 0; i < 2; i++) {
            snprintf(by_hand[i].dir, sizeof by_hand[i].dir, "%s", fresh_dir(i ? "rank-1" : "rank-0"));
            again(&by_hand[i],
                  "/usr/bin/env WORLD_SIZE=2 RANK=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d %s --act forget --on %d", i,
                  port, program, first);
        }
        for (int i = 0; i < 2; i++) check_forgotten(&by_hand[i], "by hand");
    }
}

/* As a rank whose data set is on a disk that does not answer: it has made no call yet. */
TEST(a_rank_that_hangs_before_its_first_call)
{
    char option[40];
    run r;
    snprintf(option, sizeof option, "--progress_timeout %g", patience(1.5));
    begin(&r, 0, "idle", option);
    const char *at = printed(&r, 0, "idle");
    CHECK_BEGINS(at, TITLE "  ranks 0, 2:\n     >   1 all_reduce of 3 f32, sum\n  rank 1:\nerror: rank 1 (host ");
    CHECK_CONTAINS(at, "no progress for ");
}

static void check_waiting(run *r, int way, const char *at)
{
    (void)way;
    CHECK_BEGINS(at, TITLE "  ranks 0, 2:\n" CALLS THEN WAITING "  rank 1:\n" CALLS THEN
                           "     >  42 broadcast of 5 f32 from rank 0\n"
                           "error: no progress for ");
    CHECK_CONTAINS(
        at, ": it waits for others, as do all ranks that make no progress; compare the last calls of each rank\n");
    check_clean(r, 3);
}

/* Each rank waits for another one: the last lines show what each does. */
TEST(ranks_that_wait_for_each_other)
{
    char option[40];
    snprintf(option, sizeof option, "--progress_timeout %g", patience(1.5));
    every_way("differ", option, check_waiting);
}

static void check_roots(run *r, int way, const char *at)
{
    CHECK_CONTAINS(at, "the ranks make different calls: ");
    CHECK_CONTAINS(at, "gather of 4 f32 to rank 0");
    CHECK_CONTAINS(at, "gather of 4 f32 to rank 1");
    if (strcmp(ways[way].name, "mpi") != 0) CHECK_CONTAINS(at, " is in call 42, gather of 4 f32 to rank ");
    check_clean(r, 3);
}

/* Nothing is sent, so no rank notices that the others do something else. */
TEST(ranks_that_gather_to_different_roots)
{
    every_way("roots", "", check_roots);
}

static void begin_with_silence(run *r, int way, const char *act, double silence)
{
    char options[80], acts[80];
    snprintf(options, sizeof options, "--silence_timeout %g", silence);
    snprintf(acts, sizeof acts, "%s --seconds %g", act, 2 * silence + 3);
    begin(r, way, acts, options);
}

TEST(ranks_that_receive_from_each_other)
{
    static run runs[WAYS];
    for (int k = 0; k < WAYS - 1; k++) begin_with_silence(&runs[k], k, "receives", patience(1));
    for (int k = 0; k < WAYS - 1; k++) {
        const char *at = printed(&runs[k], k, "receives");
        CHECK_CONTAINS(at, "error: the ranks wait for each other without progress for ");
        CHECK_CONTAINS(at, " s: rank 0 (host ");
        CHECK_CONTAINS(at, ") in call 42, recv of 4 f32 from rank 1, and rank 1 (host ");
        CHECK_CONTAINS(at, ") in call 42, recv of 4 f32 from rank 2\n");
        check_clean(&runs[k], 3);
    }
}

/* A user who interrupts the ranks sees their calls. */
TEST(ranks_that_are_interrupted_in_a_call)
{
    run r;
    char log[4096];
    begin(&r, 0, "receives", "");
    for (int i = 0; i < 3; i++) (void)report(&r, i);
    pause_ms((int)patience(2500));
    CHECK(!kill(r.pid, SIGINT));
    const char *at = printed(&r, 0, "receives");
    CHECK_CONTAINS(at, "     >  42 recv of 4 f32 from rank 1\n");
    CHECK_CONTAINS(at, "error: stopped by signal 2 (Interrupt)\n");
    file_text(r.dir, "failure.log", log, sizeof log);
    CHECK_CONTAINS(log, "     >  42 recv of 4 f32 from rank 1\n");
}

/* Neither ranks that compute while a call runs nor ranks that wait for one that computes count as waiting for each
 * other. */
TEST(ranks_that_compute_do_not_wait)
{
    static run runs[WAYS];
    for (int k = 0; k < WAYS - 1; k++) begin_with_silence(&runs[k], k, "compute", patience(1));
    for (int k = 0; k < WAYS - 1; k++)
        if (finish(&runs[k]) != 0) TEST_FAIL("%s: %s", ways[k].name, runs[k].err);
}

/* A program without a trainer reports no steps. */
TEST(calls_are_progress)
{
    char options[80], acts[80];
    run r;
    snprintf(options, sizeof options, "--progress_timeout %g", patience(1.5));
    snprintf(acts, sizeof acts, "call --seconds %g", patience(3));
    begin(&r, 0, acts, options);
    if (finish(&r) != 0) TEST_FAIL("%s", r.err);
}

/* Without a supervisor rank 0 shows them, before others end, since mpirun then kills rank 0. */
TEST(without_a_supervisor)
{
    run r;
    if (!is_there(WAYS - 1)) SKIP("there is no Open MPI");
    unsetenv("LIGHTC_COMM");
    leaks_count(false);
    setenv("SLOW_ERRORS", "1", 1);
    start(&r, "/usr/bin/env mpirun -np 3 %s --act kill --on 1", program);
    unsetenv("SLOW_ERRORS");
    CHECK(finish(&r) != 0);
    const char *at = strstr(r.err, TITLE);
    if (!at || strstr(at + 1, TITLE)) TEST_FAIL("not the last calls, once, but: %s", r.err);
    CHECK_CONTAINS(at, CALLS THEN WAITING "  rank 1, as reported ");
}

/* ---- children of ranks ---- */

/* Nothing that a child does counts as done by the rank. */
TEST(a_child_of_a_rank_is_not_a_rank)
{
    static run runs[WAYS];
    for (int k = 0; k < WAYS; k++)
        if (is_there(k)) begin(&runs[k], k, "child", "");
    for (int k = 0; k < WAYS; k++)
        if (is_there(k) && finish(&runs[k]) != 0) TEST_FAIL("%s: %s", ways[k].name, runs[k].err);
}

/* A rank's connections close when it ends, even if a child has copies of them. */
TEST(a_rank_that_leaves_a_child_is_missed_at_once)
{
    static run runs[WAYS];
    for (int k = 0; k < WAYS; k++)
        if (is_there(k)) begin(&runs[k], k, "orphan", "--silence_timeout 50");
    for (int k = 0; k < WAYS; k++) {
        if (!is_there(k)) continue;
        CHECK(finish(&runs[k]) != 0);
        CHECK(runs[k].took < 45);
        CHECK_CONTAINS(runs[k].err, "error: rank 1 (host ");
        if (strstr(runs[k].err, "no heartbeat")) TEST_FAIL("%s: %s", ways[k].name, runs[k].err);
    }
}

TEST_MAIN
