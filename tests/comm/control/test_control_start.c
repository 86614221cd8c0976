/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel at the start: ranks meet, and ranks that do not come or are not the right ones are named. */
#define _GNU_SOURCE
#include "control_run.h"
#include "free_port.h"

#include "comm/control/control_internal.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

/* ---- meeting ---- */

TEST(ranks_meet_and_say_goodbye)
{
    for (int n = 1; n <= RANKS; n++) {
        run *r = run_new(n, meet, (lc__control_times){0});
        lc__coordinator *c = run_start(r);
        CHECK(c);
        char message[100];
        for (int i = 0; i < n; i++) CHECK_EQ(run_reap(r, i), 0);
        nap(0.3); /* a loss would have been noticed */
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
    CHECK_ENDED(r, 0, "ranks 0 and 1 send different data (4 and 3 bytes)");
    CHECK_ENDED(r, 1, "ranks 0 and 1 send different data");
    run_free(r);
}

/* ---- starting ---- */

TEST(ranks_that_do_not_come_are_named)
{
    const double start = patience(2.6); /* the line is printed after 2 s, or later on a busy machine */
    char want[64];
    run *r = run_new(4, meet, (lc__control_times){.start = start});
    run_fork(r, 0);
    run_fork(r, 1);
    lc__coordinator *c = run_coordinate(r);
    for (int i = 0; i < 2; i++) run_reap(r, i);
    lc__coordinator_stop(c);
    snprintf(want, sizeof want, "ranks 2, 3 of 4 did not join within %.3g s", start);
    CHECK_ENDED(r, 0, want);
    CHECK_ENDED(r, 1, want);
    CHECK_CONTAINS(r->ranks[0].said, "waiting for ranks 2, 3 of 4 at 127.0.0.1");
    run_free(r);
}

/* Waiting ranks are notified at once, since it may be the rank they wait for. */
TEST(a_rank_that_was_turned_away_is_named)
{
    const double start = patience(6);
    char want[80];
    run *r = run_new(3, meet, (lc__control_times){.start = start});
    r->secrets[2] = "another secret, of 32 characters";
    r->late[2] = true;
    run_fork(r, 0);
    run_fork(r, 2);
    lc__coordinator *c = run_coordinate(r);
    while (!lc__coordinator_has_met(c, 0)) nap(0.01);
    atomic_store(&r->go, 1);
    run_reap(r, 2);
    CHECK_CONTAINS(r->ranks[2].message, "refused rank 2: it has the secret of another run");
    CHECK_CONTAINS(r->ranks[2].message, "MASTER_ADDR and MASTER_PORT, must be the same for all ranks)");
    /* The first line, or on a busy machine the second. */
    for (int i = 0; i < (int)(100 * start) && !strstr(r->ranks[0].said, "rejected"); i++) nap(0.01);
    CHECK_CONTAINS(r->ranks[0].said, "waiting for ranks 1, 2 of 3 at 127.0.0.1");
    CHECK_CONTAINS(r->ranks[0].said, "; a rank 2 (host ");
    CHECK_CONTAINS(r->ranks[0].said, ") was rejected: it has the secret of another run");
    run_reap(r, 0);
    lc__coordinator_stop(c);
    snprintf(want, sizeof want, "ranks 1, 2 of 3 did not join within %.3g s; a rank 2 (host ", start);
    CHECK_ENDED(r, 0, want);
    run_free(r);
}

/* It knows the secret, so it belongs to this run, which can never be complete. */
TEST(a_rank_with_another_size_ends_the_start)
{
    run *r = run_new(3, meet, (lc__control_times){.start = patience(20)});
    lc__control *none;
    run_fork(r, 0);
    lc__coordinator *c = run_coordinate(r);
    while (!lc__coordinator_has_met(c, 0)) nap(0.01);
    lc__control_args o = {
        .rank = 2, .size = 4, .address = "127.0.0.1", .port = r->port, .secret = SECRET, .times = r->times};
    CHECK_STATUS(lc__control_open(&o, &none), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "refused rank 2: the run has 3 ranks, but this is rank 2 of 4; start all ");
    run_reap(r, 0);
    lc__coordinator_stop(c);
    CHECK_ENDED(r, 0, ") was rejected: the run has 3 ranks, but this is rank 2 of 4; start all ");
    CHECK(r->ranks[0].took < patience(5));
    run_free(r);
}

/* 192.0.2.1 belongs to no host. */
TEST(unusable_addresses_and_ports_are_explained)
{
    static const char elsewhere[] = "192.0.2.1";
    int port = 0, fd = -1;
    bool everywhere;
    lc__coordinator *c;
    CHECK_OK(lc__socket_listen(NULL, &port, &fd));
    CHECK_STATUS(lc__coordinator_start_as("127.0.0.1", true, &port, 2, SECRET, NULL, &everywhere, &c), LC_ERR_STATE);
    CHECK_CONTAINS(lc_error_message(), "another run may be using the port; set MASTER_PORT to a different one");
    close(fd);
    port = 0;
    CHECK_STATUS(lc__coordinator_start_as(elsewhere, false, &port, 2, SECRET, NULL, &everywhere, &c), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "MASTER_ADDR must be an address of the host of rank 0");
    lc_status s = lc__coordinator_start_as(elsewhere, true, &port, 2, SECRET, NULL, &everywhere, &c);
    CHECK(everywhere && (s == LC_OK || s == LC_ERR_UNSUPPORTED)); /* without OpenSSL it must not listen there */
    lc__coordinator_stop(c);
}

TEST(a_coordinator_that_is_not_there_is_named)
{
    int port = 0, fd = -1;
    lc__control *c = NULL;
    CHECK_OK(lc__socket_listen(NULL, &port, &fd));
    close(fd);
    lc__control_args o = {
        .rank = 1, .size = 2, .address = "127.0.0.1", .port = port, .secret = SECRET, .times = {.start = 0.3}};
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "rank 1 did not reach the coordinator of the run within 0.3 s");
    CHECK_STATUS(lc__watch_open(&o, "node 1", 1, &(lc__watch *){NULL}), LC_ERR_IO);
    CHECK_CONTAINS(lc_error_message(), "node 1 did not reach the coordinator of the run within 0.3 s");
    o.secret = "short";
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_CONFIG);
    o.secret = SECRET, o.rank = 2;
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_ARGUMENT);
}

static void note(void *text, const char *said)
{
    snprintf(text, 512, "%s", said);
}

/* A server that waits for its clients to speak first, as most do; and one that speaks first, in another protocol. */
TEST(a_listener_that_is_no_coordinator_is_named)
{
    static const char greeting[] = "220 welcome to another protocol\r\n";
    int port = 0, fd = -1;
    char said[512] = "";
    lc__control *c = NULL;
    CHECK_OK(lc__socket_listen(NULL, &port, &fd));
    lc__control_args o = {.rank = 1,
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
    CHECK_CONTAINS(lc_error_message(), "rank 1 did not reach the coordinator of the run within 2.4 s: 127.0.0.1:");
    CHECK_CONTAINS(lc_error_message(), "accepted the connection but did not answer");
    CHECK_CONTAINS(said, "rank 1 waits for the coordinator of the run: 127.0.0.1:");
    CHECK_CONTAINS(said, "accepts connections but does not answer");
    o.times.start = 20;
    pid_t server = fork();
    if (server == 0) {
        for (int n = 0, other; n < 3;)
            if ((other = lc__socket_accept(fd, NULL)) >= 0 && n++) /* the first is the one that has given up */
                (void)!write(other, greeting, sizeof greeting - 1);
        pause();
    }
    begun = lc__seconds();
    CHECK_STATUS(lc__watch_open(&o, "node 1", 1, &(lc__watch *){NULL}), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "does not coordinate the run of node 1: it sent an invalid message");
    CHECK_STATUS(lc__control_open(&o, &c), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "does not coordinate the run of rank 1: it sent an invalid message");
    CHECK(lc__seconds() - begun < patience(2));
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    close(fd);
}

/* As a kernel that forgets a connection whose listener closes while it is being made: the other end is not informed.
 * False: not permitted here. */
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
    while ((fd = lc__socket_accept(listener, NULL)) < 0) nap(0.01);
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

TEST_MAIN
