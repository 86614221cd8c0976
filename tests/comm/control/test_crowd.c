/* SPDX-License-Identifier: Apache-2.0 */
/* Many silent connections to the coordinator of a run while it starts: ranks that prove the secret do not wait for
 * them, and descriptors are left for ranks. */
#define _GNU_SOURCE
#include "control_run.h"
#include "crowd.h"

#include "comm/net/guests.h"
#include "base/descriptors.h"

#include <sys/resource.h>

/* Seconds until two ranks have met, after so many strangers, in a process that has descriptors for them. */
static double start_among(int strangers, int descriptors)
{
    static int fds[MOST];
    int ready[2], stop[2];
    char byte = 0;
    run *r = run_new(2, meet, (lc__control_times){.start = patience(20)});
    r->late[0] = r->late[1] = true;
    for (int i = 0; i < 2; i++) run_fork(r, i);
    CHECK(pipe(ready) == 0 && pipe(stop) == 0);
    pid_t others = fork();
    if (!others) {
        lc__descriptors_allow(MOST);
        close(stop[1]);
        await(&r->port, 1);
        crowd(r->port, strangers, fds);
        (void)!write(ready[1], &byte, 1);
        (void)!read(stop[0], &byte, 1);
        _exit(0);
    }
    const struct rlimit limit = {(rlim_t)descriptors, (rlim_t)descriptors};
    if (descriptors) CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    lc__coordinator *c = run_coordinate(r);
    CHECK(c && read(ready[0], &byte, 1) == 1);
    double begun = lc__seconds();
    atomic_store(&r->go, 1);
    CHECK(await(&r->here, 2));
    double took = lc__seconds() - begun;
    for (int i = 0; i < 2; i++) run_reap(r, i);
    for (int i = 0; i < 2; i++)
        if (r->ranks[i].status < 0) TEST_FAIL("rank %d: %s", i, r->ranks[i].message);
    close(stop[1]), close(stop[0]), close(ready[0]), close(ready[1]);
    waitpid(others, NULL, 0);
    lc__coordinator_stop(c);
    run_free(r);
    return took;
}

/* A busy machine may delay a start once: strangers, who are given 5 s, would delay each. */
enum { STARTS = 5, TOO_LONG = 4, LATE = 9 };

TEST(silent_strangers_do_not_delay_a_start)
{
    static const int crowds[] = {64, MOST};
    double alone = start_among(0, 0);
    for (size_t k = 0; k < sizeof crowds / sizeof *crowds; k++) {
        double took = start_among(crowds[k], 0);
        for (int i = 1; i < STARTS && took >= alone + 1; i++) took = fmin(took, start_among(crowds[k], 0));
        printf("%d strangers: %.3f s, none: %.3f s\n", crowds[k], took, alone);
        CHECK(took < alone + patience(1));
        CHECK(took < TOO_LONG);
    }
}

/* There are fewer descriptors than strangers. Each start in a process of its own, since a lowered limit cannot be
 * raised again. */
TEST(silent_strangers_leave_descriptors)
{
    int status = 1;
    for (int i = 0; i < STARTS && status; i++) {
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
            double took = start_among(MOST, 80);
            printf("%d strangers, 80 descriptors: %.3f s\n", MOST, took);
            fflush(stdout);
            _exit(took < TOO_LONG ? 0 : LATE);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK(!status || WEXITSTATUS(status) == LATE);
    }
    CHECK_EQ(status, 0);
}

/* ---- which connection is closed ---- */

TEST(the_oldest_of_the_largest_crowd_is_put_out)
{
    lc__guest guests[8];
    double until;
    for (int i = 0; i < 8; i++) guests[i] = (lc__guest){.since = 10 + i * 0.01, .from = i < 3 ? 7 : (uint64_t)i % 2};
    guests[3].since = 0; /* an empty place */
    guests[5].from = 1, guests[4].from = 1, guests[6].from = 1, guests[7].from = 1;
    CHECK_EQ(lc__guest_to_leave(guests, sizeof *guests, 8, 11, &until), 4);
    CHECK_EQ(lc__guest_to_leave(guests, sizeof *guests, 8, 10.08, &until), -1); /* has not had its time */
    CHECK(until > 10.04 + LC__GUEST_FIRST - 1e-9 && until < 10.04 + LC__GUEST_FIRST + 1e-9);
    CHECK_EQ(lc__guest_to_leave(guests, sizeof *guests, 3, 11, &until), 0);
}

TEST_MAIN
