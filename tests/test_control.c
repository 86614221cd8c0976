/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel: ranks meet, and then something happens to one of them; the others must say what, and which, in
 * time. */
#define _GNU_SOURCE
#include "control_run.h"
#include "free_port.h"
#include "full_pipe.h"

#include "comm/control_internal.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* ---- meeting ---- */

static lc_status meet(run *r, lc__control *c, int rank)
{
    static const size_t sizes[] = {4, 0, 1, 1000, LC__MEETING_BYTES};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        unsigned char *mine = malloc(n + 1), *all = malloc(n * (size_t)r->size + 1);
        memset(mine, 'a' + rank, n);
        LC_TRY(lc__control_all_gather(c, mine, all, n));
        for (size_t i = 0; i < n * (size_t)r->size; i++)
            if (all[i] != 'a' + i / n) return lc_fail(LC_ERR_INTERNAL, "byte %zu of %zu", i, n);
        free(mine), free(all);
    }
    if (lc__control_all_gather(c, NULL, NULL, LC__MEETING_BYTES + 1) != LC_ERR_ARGUMENT)
        return lc_fail(LC_ERR_INTERNAL, "too much is taken");
    return LC_OK;
}

TEST(ranks_meet_and_say_goodbye)
{
    for (int n = 1; n <= RANKS; n++) {
        run *r = run_new(n, meet, (lc__control_times){0});
        lc__coordinator *c = run_start(r);
        CHECK(c);
        char message[100];
        for (int i = 0; i < n; i++) CHECK_EQ(run_reap(r, i), 0);
        nap(0.3); /* a loss would have been seen */
        lc__coordinator_message(c, message, sizeof message);
        CHECK_STR(message, "");
        lc__coordinator_stop(c);
        for (int i = 0; i < n; i++)
            if (r->ranks[i].status < 0) TEST_FAIL("%d ranks, rank %d: %s", n, i, r->ranks[i].message);
        run_free(r);
    }
}

static lc_status different(run *r, lc__control *c, int rank)
{
    (void)r;
    char mine[16] = "", all[64];
    return lc__control_all_gather(c, mine, all, rank == 1 ? 3 : 4);
}

TEST(a_meeting_of_different_programs_ends)
{
    run *r = run_new(2, different, (lc__control_times){0});
    lc__coordinator *c = run_start(r);
    for (int i = 0; i < 2; i++) run_reap(r, i);
    lc__coordinator_stop(c);
    CHECK_ENDED(r, 0, "ranks 0 and 1 tell each other different things (4 and 3 bytes)");
    CHECK_ENDED(r, 1, "ranks 0 and 1 tell each other different things");
    run_free(r);
}

/* ---- starting ---- */

TEST(ranks_that_do_not_come_are_named)
{
    run *r = run_new(4, meet, (lc__control_times){.start = 2.6});
    run_fork(r, 0);
    run_fork(r, 1);
    lc__coordinator *c = run_coordinate(r);
    for (int i = 0; i < 2; i++) run_reap(r, i);
    lc__coordinator_stop(c);
    CHECK_ENDED(r, 0, "ranks 2, 3 of 4 did not come within 2.6 s");
    CHECK_ENDED(r, 1, "ranks 2, 3 of 4 did not come within 2.6 s");
    CHECK_CONTAINS(r->ranks[0].said, "waiting for ranks 2, 3 of 4 at 127.0.0.1");
    run_free(r);
}

/* Those who wait learn it at once: it may be the one they wait for. */
TEST(who_was_turned_away_is_named)
{
    run *r = run_new(3, meet, (lc__control_times){.start = 6});
    r->secrets[2] = "another secret, of 32 characters";
    r->late[2] = true;
    run_fork(r, 0);
    run_fork(r, 2);
    lc__coordinator *c = run_coordinate(r);
    while (!lc__coordinator_has_met(c, 0)) nap(0.01);
    atomic_store(&r->go, 1);
    run_reap(r, 2);
    CHECK_CONTAINS(r->ranks[2].message, "refused rank 2: its secret is that of another run");
    for (int i = 0; i < 500 && !r->ranks[0].said[0]; i++) nap(0.01);
    CHECK_CONTAINS(r->ranks[0].said, "waiting for ranks 1, 2 of 3 at 127.0.0.1");
    CHECK_CONTAINS(r->ranks[0].said, "; a rank 2 (host ");
    CHECK_CONTAINS(r->ranks[0].said, ") was turned away: its secret is that of another run");
    run_reap(r, 0);
    lc__coordinator_stop(c);
    CHECK_ENDED(r, 0, "ranks 1, 2 of 3 did not come within 6 s; a rank 2 (host ");
    run_free(r);
}

/* It knows the secret, so it belongs to this run, which will never be complete. */
TEST(who_takes_the_run_for_another_size_ends_the_start)
{
    run *r = run_new(3, meet, (lc__control_times){.start = patience(20)});
    lc__control *none;
    run_fork(r, 0);
    lc__coordinator *c = run_coordinate(r);
    while (!lc__coordinator_has_met(c, 0)) nap(0.01);
    lc__control_options o = {
        .rank = 2, .size = 4, .address = "127.0.0.1", .port = r->port, .secret = SECRET, .times = r->times};
    CHECK_STATUS(lc__control_open(&o, &none), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "refused rank 2: the run has 3 ranks, and this is rank 2 of 4; start all ");
    run_reap(r, 0);
    lc__coordinator_stop(c);
    CHECK_ENDED(r, 0, ") was turned away: the run has 3 ranks, and this is rank 2 of 4; start all ");
    CHECK(r->ranks[0].took < patience(5));
    run_free(r);
}

/* 192.0.2.1 is nobody's. */
TEST(addresses_and_ports_that_cannot_be_had_are_explained)
{
    static const char elsewhere[] = "192.0.2.1";
    int port = 0, fd = -1;
    bool everywhere;
    lc__coordinator *c;
    CHECK_OK(lc__socket_listen(NULL, &port, &fd));
    CHECK_STATUS(lc__coordinator_start_as("127.0.0.1", true, &port, 2, SECRET, NULL, &everywhere, &c), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "another run may use the port; MASTER_PORT chooses another");
    close(fd);
    port = 0;
    CHECK_STATUS(lc__coordinator_start_as(elsewhere, false, &port, 2, SECRET, NULL, &everywhere, &c), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "MASTER_ADDR has to be an address of the host of rank 0");
    lc_status s = lc__coordinator_start_as(elsewhere, true, &port, 2, SECRET, NULL, &everywhere, &c);
    CHECK(everywhere && (s == LC_OK || s == LC_ERR_UNSUPPORTED)); /* without OpenSSL it is not to listen there */
    lc__coordinator_stop(c);
}

TEST(a_coordinator_that_is_not_there_is_named)
{
    int port = 0, fd = -1;
    lc__control *c = NULL;
    CHECK_OK(lc__socket_listen(NULL, &port, &fd));
    close(fd);
    lc__control_options o = {
        .rank = 1, .size = 2, .address = "127.0.0.1", .port = port, .secret = SECRET, .times = {.start = 0.3}};
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "rank 1 did not reach the process that coordinates the run within 0.3 s");
    CHECK_STATUS(lc__control_knock(&o, "node 1"), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "node 1 did not reach the process that coordinates the run within 0.3 s");
    o.secret = "short";
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_CONFIG);
    o.secret = SECRET, o.rank = 2;
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_ARGUMENT);
}

static void note(void *text, const char *said)
{
    snprintf(text, 512, "%s", said);
}

/* A server that waits for its clients to speak first, as most do; and one that speaks, but something else. */
TEST(who_listens_and_coordinates_nothing_is_named)
{
    static const char greeting[] = "220 welcome to another protocol\r\n";
    int port = 0, fd = -1;
    char said[512] = "";
    lc__control *c = NULL;
    CHECK_OK(lc__socket_listen(NULL, &port, &fd));
    lc__control_options o = {.rank = 1,
                             .size = 2,
                             .address = "127.0.0.1",
                             .port = port,
                             .secret = SECRET,
                             .times = {.start = 2.4},
                             .say = note,
                             .ctx = said};
    double begun = lc__seconds();
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_IO);
    CHECK(lc__seconds() - begun < 2.4 + patience(0.5));
    CHECK_CONTAINS(lc_error_message(),
                   "rank 1 did not reach the process that coordinates the run within 2.4 s: whoever");
    CHECK_CONTAINS(lc_error_message(), "has not said a word");
    CHECK_CONTAINS(said, "rank 1 waits for the process that coordinates the run: whoever listens at 127.0.0.1, port ");
    CHECK_CONTAINS(said, "does not say a word");
    o.times.start = 20;
    pid_t server = fork();
    if (server == 0) {
        for (int n = 0, other; n < 3;)
            if ((other = lc__socket_accept(fd)) >= 0 && n++) /* the first is that which has given up */
                (void)!write(other, greeting, sizeof greeting - 1);
        pause();
    }
    begun = lc__seconds();
    CHECK_STATUS(lc__control_knock(&o, "node 1"), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "coordinates no run: what it sends is not understood");
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "does not coordinate the run of rank 1: what it sends is not understood");
    CHECK(lc__seconds() - begun < patience(2));
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    close(fd);
}

/* As a kernel that forgets a connection whose listener closes while it comes to be: no word of it to the other end.
 * False: it may not be done here. */
static bool forget(int fd)
{
    int on = 1;
    bool may = setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) == 0;
    close(fd);
    return may;
}

TEST(a_connection_that_only_one_end_knows_is_made_again)
{
    run *r = run_new(1, meet, (lc__control_times){.start = 20});
    int listener = -1, port = free_port(), fd;
    run_fork(r, 0);
    CHECK_OK(lc__socket_listen(NULL, &port, &listener));
    atomic_store(&r->port, port);
    while ((fd = lc__socket_accept(listener)) < 0) nap(0.01);
    bool may = forget(fd);
    close(listener);
    double start = lc__seconds();
    lc__coordinator *c = run_coordinate(r);
    CHECK_EQ(run_reap(r, 0), 0);
    lc__coordinator_stop(c);
    if (!may) SKIP("connections cannot be forgotten here (TCP_REPAIR)");
    CHECK_OK(r->ranks[0].status);
    CHECK(lc__seconds() - start < patience(3));
    run_free(r);
}

/* ---- losing one ---- */

/* Waits for what rank 2 will never give. */
static lc_status hang(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    lc__control_progress(c, 7, "epoch 1, training");
    (void)r;
    if (rank == 2)
        for (;;) pause();
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

/* Who watches its process says how it has ended: in the coordinator's process, or elsewhere. */
static void tell(run *r, lc__coordinator *c, int rank, const char *how, bool elsewhere)
{
    if (elsewhere)
        lc__control_rank_ended(
            &(lc__control_options){
                .rank = rank, .size = r->size, .address = "127.0.0.1", .port = r->port, .secret = SECRET},
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
        if (explained) tell(r, c, 2, "killed by signal 9 (Killed)", explained == 2);
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

/* Heartbeats are far apart, and steps are not. */
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

/* It hosts rank 0, which hears of it last; nobody else waits for a person. */
TEST(an_end_that_cannot_be_shown_yet_is_told)
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
        tell(r, c, 1, "exit status 127", elsewhere);
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
    snprintf(want, sizeof want, "rank 2 %s, step 7, epoch 1, training: nothing was heard from it for", host());
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
    CHECK_ENDED(r, 0, want); /* who waits to meet it makes none either */
    CHECK_ENDED(r, 1, want);
    run_signal(r, 2, SIGKILL);
    run_reap(r, 2);
    lc__coordinator_stop(c);
    run_free(r);
}

/* Rank 1 goes on for a while when rank 2 does not any more. */
static lc_status hang_in_turn(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    if (rank == 0) return lc__control_all_gather(c, mine, all, sizeof mine);
    if (rank == 1) await(&r->go, 1);
    lc__control_progress(c, rank, NULL);
    for (;;) pause();
}

TEST(who_hangs_for_longest_is_named)
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

static lc_status wait_for_end(run *r, lc__control *c, int rank)
{
    (void)r, (void)rank;
    char text[LC__END_TEXT];
    for (int i = 0; i < 20000; i++) {
        if (lc__control_ended(c, text, sizeof text)) return lc_fail(LC_ERR_PEER, "%s", text);
        nap(0.001);
    }
    return LC_OK;
}

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
    snprintf(want, sizeof want, "rank 1 %s, step 12: the disk is full?", host());
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

TEST(last_words_are_heard_of_a_process_that_is_gone)
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

/* Says it only when it counts as dead already. */
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
    for (int k = 0; k < 5 && !heard; k++) { /* they have a tenth of a second, which may be too short here */
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

/* Ranks 1 and 2 fail one behind the other, in both orders. */
static lc_status fail_in_turn(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    if (r->late[rank]) await(&r->go, 2);
    if (rank > 0) lc__control_fail(c, r->late[rank] ? "a consequence" : "the cause");
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

TEST(the_first_cause_is_told)
{
    for (int first = 1; first <= 2; first++) {
        run *r = run_new(3, fail_in_turn, (lc__control_times){0});
        char want[200];
        r->late[3 - first] = true;
        atomic_store(&r->go, 1); /* it comes with the others */
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

TEST(who_leaves_before_a_meeting_is_named)
{
    run *r = run_new(3, skip_a_meeting, (lc__control_times){.heartbeat = 0.1});
    lc__coordinator *c = run_start(r);
    for (int i = 0; i < 3; i++) run_reap(r, i);
    CHECK_CONTAINS(r->ranks[2].message, ": it has left the run, and others still wait for it");
    CHECK_ENDED(r, 1, "rank 0 ");
    lc__coordinator_stop(c);
    run_free(r);
}

static lc_status leave_early(run *r, lc__control *c, int rank)
{
    char text[LC__END_TEXT];
    if (rank == 0) return LC_OK;
    nap(0.6);
    (void)r;
    return lc__control_ended(c, text, sizeof text) ? lc_fail(LC_ERR_INTERNAL, "%s", text) : LC_OK;
}

/* Rank 1 complains of rank 2, which ends only then: as when a collective has noticed it first. */
static lc_status complain(run *r, lc__control *c, int rank)
{
    if (rank == 1) {
        lc__control_fail(c, "rank 2 is lost");
        run_signal(r, 2, SIGKILL); /* which takes no time, whatever sanitizer there is */
    }
    if (rank == 2)
        for (;;) pause();
    return wait_for_end(r, c, rank);
}

TEST(a_complaint_gives_way_to_its_cause)
{
    int causes = 0;
    for (int k = 0; k < 5; k++) { /* on a busy machine the end may be late */
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

TEST(a_failure_is_not_forgotten_over_the_goodbye)
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
    lc__coordinator_rank_ended(c, 0, "exit status 1"); /* what comes after the goodbye concerns nobody */
    for (int i = 1; i < 3; i++) run_reap(r, i);
    for (int i = 0; i < 3; i++)
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    lc__coordinator_message(c, message, sizeof message);
    CHECK_STR(message, "");
    lc__coordinator_stop(c);
    run_free(r);
}

/* ---- without the coordinator ---- */

/* Rank 0 coordinates, and ends in a way. */
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
                 stop ? "nothing was heard from it for" : "the connection is gone");
        CHECK_ENDED(r, 1, want);
        CHECK_ENDED(r, 2, want);
        CHECK(r->ranks[1].took < patience(4));
        run_signal(r, 0, SIGKILL);
        run_reap(r, 0);
        run_free(r);
    }
}

/* One trainer after another: all leave, and begin again; some are faster than others. */
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
    for (int inside = 0; inside < 2; inside++) { /* where the coordinator is: in the test; in rank 0, anew each time */
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

static lc_status heedless(run *r, lc__control *c, int rank)
{
    lc__control_last_resort(c, true);
    if (rank == 0) return wait_for_end(r, c, rank);
    if (rank == 1) lc__control_fail(c, "nothing works");
    for (;;) pause();
}

TEST(a_rank_that_does_not_heed_the_end_is_ended)
{
    run *r = run_new(2, heedless, (lc__control_times){.heartbeat = 0.1, .grace = 0.3});
    lc__coordinator *c = run_start(r);
    CHECK_EQ(run_reap(r, 0), 0);
    int how = run_reap(r, 1);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 1);
    CHECK_CONTAINS(r->ranks[1].said, "nothing works");
    lc__coordinator_stop(c);
    run_free(r);
}

static void never_said(void *said, const char *text)
{
    note_said(said, text);
    for (;;) pause();
}

/* As on a terminal that is stopped. */
TEST(who_cannot_be_told_keeps_no_rank_from_its_end)
{
    run *r = run_new(2, heedless, (lc__control_times){.heartbeat = 0.1, .grace = 0.3});
    r->say = never_said;
    lc__coordinator *c = run_start(r);
    CHECK_EQ(run_reap(r, 0), 0);
    int how = run_reap(r, 1);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 1);
    CHECK_CONTAINS(r->ranks[1].said, "nothing works");
    lc__coordinator_stop(c);
    run_free(r);
}

/* ---- without a launcher ---- */

/* Rank 1 is a process of another one, as of mpirun. */
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
    CHECK_ENDED(r, 0, "): the process that started it (mpirun) is gone");
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
        lc__control_options o = {.size = 1, .address = "127.0.0.1", .port = port, .secret = SECRET};
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
        nap(0.001); /* one that is joined may show */
    CHECK_EQ(entries("/proc/self/task"), threads);
}

/* What `lightc launch --grace_period 30` says counts for programs whose options do not say it. */
TEST(times_are_those_of_the_launcher)
{
    setenv("LIGHTC_START_TIMEOUT", "7", 1);
    setenv("LIGHTC_GRACE_PERIOD", "30", 1);
    lc__control_times t = lc__control_default_times(&(lc__control_times){.start = 3});
    unsetenv("LIGHTC_START_TIMEOUT");
    unsetenv("LIGHTC_GRACE_PERIOD");
    CHECK(t.start == 3 && t.silence == 10 && t.progress == 0 && t.grace == 30);
}

TEST_MAIN
