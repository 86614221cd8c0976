/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes and failures of one rank end the run of all. */
#include "ddp_run.h"

TEST(one_rank_stops_all)
{
    for (int n = 2; n <= 3; n++) {
        static ranks_job r;
        job j = job_of("stop");
        j.stop_rank = n - 1;
        j.at_batch = 3;
        memset(&r, 0, sizeof r);
        r.j = &j;
        CHECK_RANKS("threads", n, run_rank, &r);
        for (int i = 0; i < n; i++) CHECK_EQ(r.o[i].steps, 4);
    }
}

/* Rank 1 of n. */
static void check_failure(job *j, int n)
{
    static ranks_job r;
    j->fail_rank = 1;
    j->at_batch = 2;
    memset(&r, 0, sizeof r);
    r.j = j;
    world *w = world_run("threads", n, run_rank, &r);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(r.o[i].status, i == 1 ? LC_ERR_USER : LC_ERR_PEER);
        if (!strstr(w->ranks[i].message, "the sensor of this rank is unplugged"))
            TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
        if (i != 1 && !strstr(w->ranks[i].message, "rank 1")) TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    }
    world_free(w);
}

TEST(one_rank_fails_all_with_its_reason)
{
    job j = job_of("fail");
    check_failure(&j, 3);
    for (int size = 1; size <= 4; size *= 2) { /* which group of ranks is waited in */
        j = job_of("fail_copies");
        j.strategy = "sharded_hybrid";
        j.shard_size = size;
        j.bucket_cap_mb = small_buckets;
        check_failure(&j, 4);
    }
}

/* No waiting for a rank that has gone on to something else: both calls are named. */
TEST(a_rank_that_leaves_the_epoch_alone_is_named)
{
    for (int strategy = 0; strategy < 2; strategy++) {
        static ranks_job r;
        job j = job_of("leave");
        j.strategy = strategy ? "sharded" : "ddp";
        j.fail_rank = 1;
        j.leaves = true;
        j.at_batch = 2;
        memset(&r, 0, sizeof r);
        r.j = &j;
        world *w = world_run("threads", 2, run_rank, &r);
        for (int i = 0; i < 2; i++) {
            CHECK(w->ranks[i].status < 0);
            CHECK_CONTAINS(w->ranks[i].message, "the ranks make different calls");
            CHECK_CONTAINS(w->ranks[i].message, "on rank 0");
            CHECK_CONTAINS(w->ranks[i].message, "on rank 1");
            CHECK_EQ(r.o[i].steps, 2);
        }
        world_free(w);
    }
}

TEST_MAIN
