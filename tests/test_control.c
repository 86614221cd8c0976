/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel: ranks are processes made by fork, the coordinator a thread of the test (or of a rank). They
 * meet, and then something happens to one of them; the others must say what, and which, in time. */
#define _GNU_SOURCE
#include "test.h"

#include "comm/control.h"
#include "comm/control_wire.h"
#include "comm/socket.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECRET "0123456789abcdef0123456789abcdef"
enum { RANKS = 4 };

/* ---- a run ---- */

typedef struct run run;
typedef lc_status rank_fn(run *r, lc__control *c, int rank);

struct run { /* in memory that all processes share */
    int size;
    rank_fn *fn;
    lc__control_times times;
    const char *secrets[RANKS]; /* NULL: the right one */
    atomic_int port, here, go;
    struct {
        pid_t pid;
        lc_status status;
        char message[LC__END_TEXT], said[512];
        double took; /* seconds until fn returned, or the start failed */
    } ranks[RANKS];
};

static void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

/* Until *what is at least n; false after 20 s. */
static bool await(atomic_int *what, int n)
{
    for (int i = 0; i < 20000; i++) {
        if (atomic_load(what) >= n) return true;
        nap(0.001);
    }
    return false;
}

static run *run_new(int size, rank_fn *fn, lc__control_times times)
{
    run *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    r->size = size;
    r->fn = fn;
    r->times = times;
    return r;
}

static void note_said(void *ctx, const char *text)
{
    snprintf(ctx, sizeof((run *)0)->ranks[0].said, "%s", text);
}

static lc_status be_rank(run *r, int rank)
{
    lc__control *c = NULL;
    await(&r->port, 1);
    lc__control_options o = {.rank = rank,
                             .size = r->size,
                             .address = "127.0.0.1",
                             .port = atomic_load(&r->port),
                             .secret = r->secrets[rank] ? r->secrets[rank] : SECRET,
                             .times = r->times,
                             .say = note_said,
                             .ctx = r->ranks[rank].said};
    LC_TRY(lc__control_open(&o, &c));
    atomic_fetch_add(&r->here, 1);
    lc_status s = r->fn(r, c, rank);
    lc__control_close(c);
    return s;
}

/* Processes are made before there are threads. */
static void run_fork(run *r, int rank)
{
    fflush(NULL);
    r->ranks[rank].status = LC_ERR_INTERNAL;
    pid_t pid = fork();
    if (pid) {
        r->ranks[rank].pid = pid;
        return;
    }
    double start = lc__seconds();
    lc_status s = be_rank(r, rank);
    r->ranks[rank].took = lc__seconds() - start;
    snprintf(r->ranks[rank].message, sizeof r->ranks[rank].message, "%s", s < 0 ? lc_error_message() : "");
    r->ranks[rank].status = s;
    _exit(0);
}

static lc__coordinator *run_coordinate(run *r)
{
    lc__coordinator *c = NULL;
    int port = 0;
    if (lc__coordinator_start(NULL, &port, r->size, SECRET, &r->times, &c) < 0) return NULL;
    atomic_store(&r->port, port);
    return c;
}

static lc__coordinator *run_start(run *r)
{
    for (int i = 0; i < r->size; i++) run_fork(r, i);
    return run_coordinate(r);
}

/* How it ended, as waitpid says. */
static int run_reap(run *r, int rank)
{
    int how = -1;
    if (r->ranks[rank].pid > 0) waitpid(r->ranks[rank].pid, &how, 0);
    return how;
}

static void run_signal(run *r, int rank, int signal)
{
    if (r->ranks[rank].pid > 0) kill(r->ranks[rank].pid, signal);
}

static void run_free(run *r)
{
    munmap(r, sizeof *r);
}

static const char *host(void)
{
    static char name[80], text[100];
    gethostname(name, sizeof name - 1);
    name[LC__HOST_TEXT - 1] = 0;
    snprintf(text, sizeof text, "(host %s)", name);
    return text;
}

#define CHECK_ENDED(r, rank, text)                                                                                     \
    do {                                                                                                               \
        if ((r)->ranks[rank].status != LC_ERR_PEER)                                                                    \
            TEST_FAIL("rank %d: status %d, \"%s\"", rank, (int)(r)->ranks[rank].status, (r)->ranks[rank].message);     \
        CHECK_CONTAINS((r)->ranks[rank].message, text);                                                                \
    } while (0)

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
    o.secret = "short";
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_CONFIG);
    o.secret = SECRET, o.rank = 2;
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_ARGUMENT);
}

TEST(another_secret_is_turned_away)
{
    run *r = run_new(2, meet, (lc__control_times){.start = 20});
    r->secrets[1] = "0123456789abcdef0123456789abcdeF";
    lc__coordinator *c = run_start(r);
    run_reap(r, 1);
    CHECK_EQ(r->ranks[1].status, LC_ERR_CONFIG);
    CHECK_CONTAINS(r->ranks[1].message, "refused rank 1: its secret is that of another run");
    /* and does no harm: the right one comes */
    lc__control *right = NULL;
    char all[8];
    lc__control_options o = {
        .rank = 1, .size = 2, .address = "127.0.0.1", .port = atomic_load(&r->port), .secret = SECRET};
    lc__control_options twice = o, other = o;
    CHECK_OK(lc__control_open(&o, &right));
    CHECK_STATUS(lc__control_open(&twice, &(lc__control *){NULL}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "rank 1 has come before (host ");
    other.size = 3;
    CHECK_STATUS(lc__control_open(&other, &(lc__control *){NULL}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "the run has 2 ranks, and this is rank 1 of 3");
    CHECK_OK(lc__control_all_gather(right, "bbbb", all, 4));
    CHECK(!memcmp(all, "aaaabbbb", 8));
    lc__control_close(right);
    run_signal(r, 0, SIGKILL);
    run_reap(r, 0);
    lc__coordinator_stop(c);
    run_free(r);
}

/* ---- losing one ---- */

/* Waits for what rank 2 will never give. */
static lc_status hang(run *r, lc__control *c, int rank)
{
    char mine[8] = "", all[8 * RANKS];
    lc__control_progress(c, 7, "epoch 1, training");
    if (rank == 2) {
        nap(0.3); /* the beat tells where it is */
        atomic_store(&r->go, 1);
        for (;;) pause();
    }
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

TEST(a_killed_rank_is_named_in_time)
{
    for (int explained = 0; explained < 2; explained++) {
        run *r = run_new(3, hang, (lc__control_times){.heartbeat = 0.1});
        lc__coordinator *c = run_start(r);
        char want[200], message[LC__END_TEXT];
        CHECK(await(&r->go, 1));
        double start = lc__seconds();
        run_signal(r, 2, SIGKILL);
        run_reap(r, 2);
        if (explained) lc__coordinator_rank_ended(c, 2, "killed by signal 9 (Killed)");
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
            lc__control_progress(c, step, "fit");
            nap(0.2);
        }
        atomic_store(&r->go, 1);
        for (;;) pause();
    }
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

/* Heartbeats are far apart, and steps are not. */
TEST(the_step_of_a_killed_rank_is_known)
{
    run *r = run_new(2, walk, (lc__control_times){.heartbeat = 2});
    lc__coordinator *c = run_start(r);
    char want[200];
    CHECK(await(&r->go, 1));
    run_signal(r, 1, SIGKILL);
    run_reap(r, 1), run_reap(r, 0);
    snprintf(want, sizeof want, "rank 1 %s, step 3, fit: its process ended", host());
    CHECK_ENDED(r, 0, want);
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(a_rank_that_ends_before_it_comes_ends_the_start)
{
    run *r = run_new(2, meet, (lc__control_times){0});
    run_fork(r, 0);
    lc__coordinator *c = run_coordinate(r);
    nap(0.2);
    lc__coordinator_rank_ended(c, 1, "exit status 127");
    run_reap(r, 0);
    CHECK(r->ranks[0].took < patience(3));
    CHECK_ENDED(r, 0, "rank 1: exit status 127");
    lc__coordinator_stop(c);
    run_free(r);
}

TEST(a_stopped_rank_is_noticed)
{
    run *r = run_new(3, hang, (lc__control_times){.heartbeat = 0.1, .silence = patience(0.8)});
    lc__coordinator *c = run_start(r);
    char want[200];
    CHECK(await(&r->go, 1));
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
    run_reap(r, 0), run_reap(r, 1);
    CHECK_CONTAINS(r->ranks[0].message, "no progress for");
    CHECK_CONTAINS(r->ranks[0].message, "step 7, epoch 1, training");
    run_signal(r, 2, SIGKILL);
    run_reap(r, 2);
    lc__coordinator_stop(c);
    run_free(r);
}

/* ---- giving up ---- */

static lc_status wait_for_end(run *r, lc__control *c, int rank)
{
    (void)r, (void)rank;
    char text[LC__END_TEXT];
    for (int i = 0; i < 5000; i++) {
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
    static const lc_comm_ops ops = {LC_COMM_OPS_INIT("test"), .start = never, .free = leave, .abort = remember};
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
    int first = atomic_load(&r->go);
    if (rank == first) lc__control_fail(c, "the cause");
    if (rank == 3 - first) nap(0.02), lc__control_fail(c, "a consequence");
    return lc__control_all_gather(c, mine, all, sizeof mine);
}

TEST(the_first_cause_is_told)
{
    for (int first = 1; first <= 2; first++) {
        run *r = run_new(3, fail_in_turn, (lc__control_times){0});
        char want[200];
        atomic_store(&r->go, first);
        lc__coordinator *c = run_start(r);
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
        atomic_store(&r->go, 1);
    }
    if (rank == 2) {
        while (!atomic_load(&r->go)) continue;
        kill(getpid(), SIGKILL); /* which takes no time, whatever sanitizer there is */
    }
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

/* ---- those who do not belong here ---- */

static uint64_t random_number(uint64_t *state)
{
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    return *state;
}

/* A message as bytes. */
static size_t message_of(lc__frame_kind kind, const void *data, size_t n, uint8_t *out)
{
    lc__wire w = {.fd = -1};
    lc__wire_put(&w, kind, NULL, 0, data, n);
    size_t k = w.out.n;
    memcpy(out, w.out.data, k);
    lc__wire_release(&w);
    return k;
}

static lc_status visited(run *r, lc__control *c, int rank)
{
    char all[RANKS];
    await(&r->go, 1);
    (void)rank;
    return lc__control_all_gather(c, "z", all, 1);
}

TEST(garbage_does_no_harm)
{
    run *r = run_new(2, visited, (lc__control_times){0});
    lc__coordinator *c = run_start(r);
    uint64_t seed = 88172645463325252u;
    CHECK(await(&r->here, 2));
    for (int k = 0; k < 120; k++) {
        int fd = -1;
        uint8_t bytes[4096];
        size_t n = 1 + random_number(&seed) % sizeof bytes;
        for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)random_number(&seed);
        if (k % 4 == 1) n = message_of(LC__FRAME_HELLO, bytes, n % 200, bytes);         /* strangers */
        if (k % 4 == 2) n = message_of(LC__FRAME_FAIL, "I give up", 9, bytes);          /* without a hello */
        if (k % 4 == 3) lc__put_u32(bytes + 8, 0xffffffff), n = LC__FRAME_HEAD, k += 0; /* no magic, huge */
        if (k % 8 == 7) {
            message_of(LC__FRAME_HELLO, "", 0, bytes);
            lc__put_u32(bytes + 8, 0x7fffffff); /* announces 2 GiB */
            n = LC__FRAME_HEAD;
        }
        CHECK_OK(lc__socket_connect("127.0.0.1", atomic_load(&r->port), lc__seconds() + 5, &fd));
        CHECK(send(fd, bytes, n, MSG_NOSIGNAL) > 0);
        char answer[16];
        /* it is turned away, with a word at most (or, if that was the beginning of a message, waited for) */
        ssize_t got = 1, all = 0;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        while (n >= LC__FRAME_HEAD && k % 4 && got > 0) {
            if (poll(&p, 1, 3000) != 1) TEST_FAIL("visitor %d with %zu bytes is kept waiting", k, n);
            got = recv(fd, answer, sizeof answer, 0);
            if (got > 0) all += got;
        }
        CHECK(all < 100);
        close(fd);
    }
    atomic_store(&r->go, 1);
    for (int i = 0; i < 2; i++) run_reap(r, i);
    for (int i = 0; i < 2; i++)
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    lc__coordinator_stop(c);
    run_free(r);
}

/* What has come is a message as it was sent, too little, or refused; never more than is there. */
TEST(any_bytes_are_parsed_safely)
{
    uint64_t seed = 1234567;
    int messages = 0, refused = 0, short_ones = 0;
    for (int k = 0; k < 200000; k++) {
        uint8_t data[64], bytes[128];
        size_t n = random_number(&seed) % sizeof data;
        for (size_t i = 0; i < n; i++) data[i] = (uint8_t)random_number(&seed);
        size_t all = message_of((lc__frame_kind)(1 + random_number(&seed) % (LC__FRAME_KINDS - 1)), data, n, bytes);
        bool intact = random_number(&seed) % 2;
        if (!intact) bytes[random_number(&seed) % all] ^= (uint8_t)(1 + random_number(&seed) % 255);
        size_t given = random_number(&seed) % 3 ? all : random_number(&seed) % (all + 1);
        uint8_t *copy = malloc(given + 1); /* exactly as much as a sanitizer can watch */
        uint8_t *exact = copy + 1;
        memcpy(exact, bytes, given);
        lc__frame f = {0};
        int64_t got = lc__frame_parse(exact, given, sizeof data, &f);
        messages += got > 0, refused += got < 0, short_ones += got == 0;
        CHECK(got <= (int64_t)given);
        if (got > 0) {
            CHECK(f.data == exact + LC__FRAME_HEAD && f.n == (size_t)got - LC__FRAME_HEAD);
            char text[40];
            lc__frame_text(f.data, f.n, text, sizeof text);
            CHECK(strlen(text) < sizeof text);
        }
        if (intact && given == all) CHECK(got == (int64_t)all && (!n || !memcmp(f.data, data, n)));
        if (intact && given < all) CHECK(got == 0);
        free(copy);
    }
    CHECK(messages > 1000 && refused > 1000 && short_ones > 1000);
    /* one byte more than is allowed: refused as soon as that is announced, and when all of it is there */
    uint8_t data[65] = {0}, bytes[LC__FRAME_HEAD + 65];
    lc__frame f;
    size_t all = message_of(LC__FRAME_FAIL, data, sizeof data, bytes);
    CHECK_EQ(lc__frame_parse(bytes, LC__FRAME_HEAD, 64, &f), -1);
    CHECK_EQ(lc__frame_parse(bytes, all, 64, &f), -1);
    CHECK_EQ(lc__frame_parse(bytes, all, 65, &f), all);
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
    CHECK_EQ(entries("/proc/self/task"), threads);
}

TEST_MAIN
