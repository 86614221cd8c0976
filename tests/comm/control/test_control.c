/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel of ranks that have met (test_control_start.c): something happens to one of them, and the others
 * must report what, and to which rank, in time. */
#define _GNU_SOURCE
#include "control_run.h"
#include "full_pipe.h"
#include "rank_ended.h"

#include "comm/control/control_internal.h"
#include "base/status.h"

/* ---- losing one ---- */

/* Waits for data that rank 2 never sends. */
static lc_status hang(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    lc__control_progress(c, 7, "epoch 1, training");
    (void)r;
    if (rank == 2)
        for (;;) pause();
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

/* The process that watches the rank reports how it ended: in the coordinator's process, or elsewhere. */
static void report_end(run *r, lc__coordinator *c, int rank, const char *how, bool elsewhere)
{
    if (elsewhere)
        report_rank_ended(&(lc__control_args){.rank = rank,
                                              .size = r->size,
                                              .address = "127.0.0.1",
                                              .port = r->port,
                                              .secret = SECRET,
                                              .identity = IDENTITY},
                          how);
    else
        lc__coordinator_rank_ended(c, rank, how);
}

TEST(a_killed_rank_is_named_in_time)
{
    for (int explained = 0; explained < 3; explained++) {
        run *r = run_new(3, hang, (lc__control_times){.heartbeat = 0.1});
        lc__coordinator *c = run_start(r);
        char want[200], message[LC__END_TEXT];
        CHECK(run_hears(c, 2, 7, 20));
        double start = lc__seconds();
        run_signal(r, 2, SIGKILL);
        run_reap(r, 2);
        if (explained) report_end(r, c, 2, "killed by signal 9 (Killed)", explained == 2);
        run_reap(r, 0), run_reap(r, 1);
        CHECK(lc__seconds() - start < patience(3));
        snprintf(want, sizeof want, "rank 2 %s, step 7, epoch 1, training: %s", host(),
                 explained ? "killed by signal 9 (Killed)" : "its process ended");
        CHECK_ENDED(r, 0, want);
        CHECK_ENDED(r, 1, want);
        lc__coordinator_message(c, message, sizeof message);
        CHECK_CONTAINS(message, want);
        lc__coordinator_stop(c);
        run_free(r);
    }
}

static lc_status walk(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    if (rank == 1) {
        for (int step = 1; step <= 3; step++) {
            await(&r->go, step);
            lc__control_progress(c, step, "fit");
        }
        for (;;) pause();
    }
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

/* Heartbeats are far apart, but steps are not. */
TEST(the_step_of_a_killed_rank_is_known)
{
    run *r = run_new(2, walk, (lc__control_times){.heartbeat = patience(5), .silence = patience(60)});
    lc__coordinator *c = run_start(r);
    char want[200];
    CHECK(await(&r->here, 2));
    for (int step = 1; step <= 3; step++) {
        atomic_store(&r->go, step);
        CHECK(run_hears(c, 1, step, patience(1)));
    }
    run_signal(r, 1, SIGKILL);
    run_reap(r, 1), run_reap(r, 0);
    snprintf(want, sizeof want, "rank 1 %s, step 3, fit: its process ended", host());
    CHECK_ENDED(r, 0, want);
    lc__coordinator_stop(c);
    run_free(r);
}

static void show(void *pipe, const char *message, const char *calls)
{
    int *end = pipe;
    (void)calls;
    (void)!lc__show(*end, message, strlen(message));
    close(*end);
}

/* It hosts rank 0, which is notified last; no other rank waits until the message can be shown. */
TEST(an_end_that_cannot_be_shown_yet_reaches_the_others)
{
    run *r = run_new(3, hang, (lc__control_times){.heartbeat = 0.1});
    int ends[2], shown, silent;
    char want[200], text[2048], none[8];
    CHECK(full_pipe(ends) && (shown = dup(ends[1])) >= 0);
    lc__coordinator *c = run_start(r);
    lc__coordinator_on_end(c, show, &shown);
    CHECK(run_hears(c, 2, 7, 20));
    double start = lc__seconds();
    run_signal(r, 2, SIGKILL);
    run_reap(r, 2), run_reap(r, 1);
    CHECK(lc__seconds() - start < patience(3));
    CHECK(lc__coordinator_ended(c, &silent));
    lc__coordinator_message(c, none, sizeof none);
    CHECK_EQ(waitpid(r->ranks[0].pid, NULL, WNOHANG), 0);
    full_pipe_drain(ends, text, sizeof text);
    run_reap(r, 0);
    snprintf(want, sizeof want, "rank 2 %s, step 7, epoch 1, training: its process ended", host());
    for (int i = 0; i < 2; i++) CHECK_ENDED(r, i, want);
    CHECK_CONTAINS(text, want);
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(a_rank_that_ends_before_it_comes_ends_the_start)
{
    for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
        run *r = run_new(2, meet, (lc__control_times){0});
        run_fork(r, 0);
        lc__coordinator *c = run_coordinate(r);
        nap(0.2);
        report_end(r, c, 1, "exit status 127", elsewhere);
        run_reap(r, 0);
        CHECK(r->ranks[0].took < patience(3));
        CHECK_ENDED(r, 0, "rank 1: exit status 127");
        lc__coordinator_stop(c);
        run_free(r);
    }
}

TEST(a_stopped_rank_is_noticed)
{
    run *r = run_new(3, hang, (lc__control_times){.heartbeat = 0.1, .silence = patience(0.8)});
    lc__coordinator *c = run_start(r);
    char want[200];
    CHECK(run_hears(c, 2, 7, 20));
    double start = lc__seconds();
    run_signal(r, 2, SIGSTOP);
    run_reap(r, 0), run_reap(r, 1);
    CHECK(lc__seconds() - start < patience(3));
    CHECK(lc__seconds() - start > 0.5);
    snprintf(want, sizeof want, "rank 2 %s, step 7, epoch 1, training: no heartbeat from it for", host());
    CHECK_ENDED(r, 0, want);
    CHECK_ENDED(r, 1, want);
    run_signal(r, 2, SIGKILL);
    run_reap(r, 2);
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(a_rank_without_progress_is_noticed)
{
    run *r = run_new(3, hang, (lc__control_times){.heartbeat = 0.1, .progress = 0.7});
    lc__coordinator *c = run_start(r);
    char want[200];
    run_reap(r, 0), run_reap(r, 1);
    snprintf(want, sizeof want, "rank 2 %s, step 7, epoch 1, training: no progress for", host());
    CHECK_ENDED(r, 0, want); /* a rank that waits to meet it makes no progress either */
    CHECK_ENDED(r, 1, want);
    run_signal(r, 2, SIGKILL);
    run_reap(r, 2);
    lc__coordinator_stop(c);
    run_free(r);
}

/* Rank 1 continues for a while after rank 2 has stopped. */
static lc_status hang_in_turn(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    if (rank == 0) return lc__control_all_gather(c, mine, all, sizeof mine);
    while (rank == 1 && !atomic_load(&r->go)) {
        lc__control_progress(c, rank, NULL);
        nap(0.01);
    }
    lc__control_progress(c, rank, NULL);
    for (;;) pause();
}

TEST(the_rank_that_hangs_longest_is_named)
{
    run *r = run_new(3, hang_in_turn, (lc__control_times){.heartbeat = 0.05, .progress = 1.5});
    lc__coordinator *c = run_start(r);
    char want[200];
    CHECK(run_hears(c, 2, 2, 20));
    nap(0.3);
    atomic_store(&r->go, 1);
    run_reap(r, 0);
    snprintf(want, sizeof want, "rank 2 %s, step 2: no progress for", host());
    CHECK_ENDED(r, 0, want);
    for (int i = 1; i < 3; i++) run_signal(r, i, SIGKILL), run_reap(r, i);
    lc__coordinator_stop(c);
    run_free(r);
}

/* ---- giving up ---- */

/* A communicator that remembers why it was aborted. */
static lc_status never(void *self, const lc_comm_call *call, void *state)
{
    (void)self, (void)call, (void)state;
    return LC_OK;
}

static lc_status not_yet(void *self, void *state, bool *done)
{
    (void)self, (void)state, (void)done;
    return LC_OK;
}

static void leave(void *self)
{
    (void)self;
}

static void remember(void *self, const char *why)
{
    snprintf(self, LC__END_TEXT, "%s", why);
}

static lc_status give_up(run *r, lc__control *c, int rank)
{
    static const lc_comm_ops ops = {LC_COMM_OPS_INIT("test"), .start = never, .poll = not_yet, .free = leave,
                                    .abort = remember};
    char why[LC__END_TEXT] = "", late[LC__END_TEXT] = "", all[RANKS], text[LC__END_TEXT];
    lc_comm *comm = NULL, *second = NULL, *forgotten = NULL;
    char unwatched[LC__END_TEXT] = "";
    LC_TRY(lc_comm_new(&ops, why, rank, r->size, &comm));
    LC_TRY(lc_comm_new(&ops, late, rank, r->size, &second));
    LC_TRY(lc_comm_new(&ops, unwatched, rank, r->size, &forgotten));
    lc__control_watch(c, comm);
    lc__control_watch(c, forgotten);
    lc__control_unwatch(c, forgotten);
    lc__control_progress(c, 12, NULL);
    if (rank == 1) lc__control_fail(c, "the disk is full\a");
    lc_status s = lc__control_all_gather(c, rank == 1 ? "x" : "y", all, rank == 1 ? 0 : 1);
    char first[LC__END_TEXT];
    snprintf(first, sizeof first, "%s", lc_error_message());
    lc__control_watch(c, second); /* after the end */
    if (!lc__control_ended(c, text, sizeof text) || strcmp(text, why) || strcmp(text, late) || unwatched[0])
        s = lc_fail(LC_ERR_INTERNAL, "ended: \"%s\", aborted: \"%s\", \"%s\", \"%s\"", text, why, late, unwatched);
    else if (s == LC_ERR_PEER)
        s = lc_fail(s, "%s", first);
    lc_comm_free(comm), lc_comm_free(second), lc_comm_free(forgotten);
    return s;
}

TEST(a_rank_that_gives_up_is_heard_everywhere)
{
    run *r = run_new(3, give_up, (lc__control_times){0});
    lc__coordinator *c = run_start(r);
    char want[200];
    for (int i = 0; i < 3; i++) run_reap(r, i);
    snprintf(want, sizeof want, "rank 1 %s, step 12: the disk is full\\x07", host());
    for (int i = 0; i < 3; i++) CHECK_ENDED(r, i, want);
    CHECK(r->ranks[0].took < patience(3));
    lc__coordinator_stop(c);
    run_free(r);
}

static lc_status last_words(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    if (rank == 1) {
        lc__control_fail(c, "no memory");
        _exit(3);
    }
    (void)r;
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

TEST(last_words_of_a_dead_process_are_heard)
{
    for (int k = 0; k < 5; k++) {
        run *r = run_new(2, last_words, (lc__control_times){0});
        lc__coordinator *c = run_start(r);
        CHECK_EQ(WEXITSTATUS(run_reap(r, 1)), 3);
        lc__coordinator_rank_ended(c, 1, "exit status 3");
        run_reap(r, 0);
        CHECK_ENDED(r, 0, ": no memory");
        lc__coordinator_stop(c);
        run_free(r);
    }
}

/* Reports the error only when it already counts as dead. */
static lc_status late_words(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    if (rank == 1) {
        await(&r->go, 1);
        nap(0.02);
        lc__control_fail(c, "no memory");
        _exit(3);
    }
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

TEST(last_words_are_waited_for)
{
    bool heard = false;
    for (int k = 0; k < 5 && !heard; k++) { /* they have a tenth of a second, which may be too short on this machine */
        run *r = run_new(2, late_words, (lc__control_times){0});
        lc__coordinator *c = run_start(r);
        CHECK(await(&r->here, 2));
        lc__coordinator_rank_ended(c, 1, "exit status 3");
        atomic_store(&r->go, 1);
        for (int i = 0; i < 2; i++) run_reap(r, i);
        heard = strstr(r->ranks[0].message, "no memory");
        lc__coordinator_stop(c);
        run_free(r);
    }
    CHECK(heard);
}

/* Ranks 1 and 2 fail one after the other, in both orders. */
static lc_status fail_in_turn(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    if (r->late[rank]) await(&r->go, 2);
    if (rank > 0) lc__control_fail(c, r->late[rank] ? "a consequence" : "the cause");
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

/* Rank 0 learns from rank 2, when ranks agree on a save, that rank 2 has failed, and reports it first. */
static lc_status pass_on_another_s(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    lc_status why = lc_fail(LC_ERR_STATE, rank == 0 ? "rank 2: it is unplugged" : "it is unplugged");
    if (rank == 0) {
        lc__note_rank(2);
        lc_fail_context(why, "checkpoint a");
    }
    if (rank == 2) await(&r->go, 2);
    if (rank == 0 || (rank == 2 && !r->late[2])) {
        char said[LC__END_TEXT];
        lc__copy_message(said, sizeof said);
        lc__control_fail_and_wait(c, said);
        return lc_fail(LC_ERR_PEER, "%s", lc_error_message());
    }
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

TEST(an_error_of_another_rank_is_of_that_rank)
{
    for (int silent = 0; silent <= 1; silent++) { /* rank 2 does not report it in time */
        run *r = run_new(3, pass_on_another_s, (lc__control_times){0});
        char want[200];
        r->late[2] = silent;
        atomic_store(&r->go, 1);
        lc__coordinator *c = run_start(r);
        CHECK(run_hears(c, 0, -1, 20));
        atomic_store(&r->go, 2);
        for (int i = 0; i < 3; i++) run_reap(r, i);
        snprintf(want, sizeof want, "rank 2 %s: %sit is unplugged", host(), silent ? "checkpoint a: rank 2: " : "");
        for (int i = 0; i < 3; i++) CHECK_ENDED(r, i, want);
        for (int i = 0; i < 3; i++) CHECK_EQ(lc__coordinator_lost(c, i), i == 2);
        lc__coordinator_stop(c);
        run_free(r);
    }
}

TEST(the_first_cause_is_reported)
{
    for (int first = 1; first <= 2; first++) {
        run *r = run_new(3, fail_in_turn, (lc__control_times){0});
        char want[200];
        r->late[3 - first] = true;
        atomic_store(&r->go, 1); /* it arrives together with the others */
        lc__coordinator *c = run_start(r);
        CHECK(run_hears(c, first, -1, 20));
        atomic_store(&r->go, 2);
        for (int i = 0; i < 3; i++) run_reap(r, i);
        snprintf(want, sizeof want, "rank %d %s: the cause", first, host());
        for (int i = 0; i < 3; i++) CHECK_ENDED(r, i, want);
        lc__coordinator_stop(c);
        run_free(r);
    }
}

static lc_status skip_a_meeting(run *r, lc__control *c, int rank)
{
    char all[RANKS];
    (void)r;
    return rank == 0 ? LC_OK : lc__control_all_gather(c, "x", all, 1);
}

TEST(a_rank_that_leaves_before_a_meeting_is_named)
{
    run *r = run_new(3, skip_a_meeting, (lc__control_times){.heartbeat = 0.1});
    lc__coordinator *c = run_start(r);
    for (int i = 0; i < 3; i++) run_reap(r, i);
    CHECK_CONTAINS(r->ranks[2].message, ": it has left the run while others still wait for it");
    CHECK_ENDED(r, 1, "rank 0 ");
    lc__coordinator_stop(c);
    run_free(r);
}

/* Rank 1 complains about rank 2, which ends only afterwards, as when a collective notices it first. */
static lc_status complain(run *r, lc__control *c, int rank)
{
    if (rank == 1) {
        lc__control_fail(c, "rank 2 is lost");
        run_signal(r, 2, SIGKILL); /* immediate, whatever the sanitizer */
    }
    if (rank == 2)
        for (;;) pause();
    return wait_for_end(r, c, rank);
}

TEST(a_complaint_gives_way_to_its_cause)
{
    int causes = 0;
    for (int k = 0; k < 5; k++) { /* on a busy machine the end may come late */
        run *r = run_new(3, complain, (lc__control_times){0});
        lc__coordinator *c = run_start(r);
        for (int i = 0; i < 3; i++) run_reap(r, i);
        CHECK_EQ(r->ranks[0].status, LC_ERR_PEER);
        causes += !strncmp(r->ranks[0].message, "rank 2 ", 7);
        lc__coordinator_stop(c);
        run_free(r);
    }
    CHECK(causes >= 3);
}

static lc_status fail_and_leave(run *r, lc__control *c, int rank)
{
    if (rank == 0) return wait_for_end(r, c, rank);
    lc__control_fail(c, "no more");
    return LC_OK;
}

TEST(a_goodbye_does_not_hide_a_failure)
{
    run *r = run_new(2, fail_and_leave, (lc__control_times){0});
    lc__coordinator *c = run_start(r);
    run_reap(r, 0), run_reap(r, 1);
    CHECK_ENDED(r, 0, ": no more");
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(a_goodbye_is_no_loss)
{
    run *r = run_new(3, leave_early, (lc__control_times){.heartbeat = 0.1, .silence = patience(0.4)});
    lc__coordinator *c = run_start(r);
    char message[LC__END_TEXT];
    int how = run_reap(r, 0);
    CHECK_EQ(how, 0);
    lc__coordinator_rank_ended(c, 0, "exit status 1"); /* messages after the goodbye are ignored */
    for (int i = 1; i < 3; i++) run_reap(r, i);
    for (int i = 0; i < 3; i++)
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    lc__coordinator_message(c, message, sizeof message);
    CHECK_STR(message, "");
    lc__coordinator_stop(c);
    run_free(r);
}

TEST_MAIN
