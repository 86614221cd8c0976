/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks whose memory the host cannot reach (backends/sim/sim.h) train to the bits that they come to on the CPU. */
#define _GNU_SOURCE
#include "ddp_run.h"
#include "sim_device.h"

static const char *const devices[][2] = {{"sim", "lazy"}, {"sim:1", "eager"}, {"sim:2", "random:7"}};

static void check(job j, int n)
{
    static ranks_job want, got;
    find_plugin();
    want.j = got.j = &j;
    use(NULL, NULL);
    CHECK_RANKS("threads", n, run_rank, &want);
    for (int d = 0; d < 3; d++) {
        use(devices[d][0], devices[d][1]);
        CHECK_RANKS("threads", n, run_rank, &got);
        for (int i = 0; i < n; i++) same(&want.o[i], &got.o[i]);
    }
    use(NULL, NULL);
}

static job sharding(const char *strategy)
{
    job j = job_of(strategy);
    j.strategy = strategy;
    j.optimizer = "AdamW";
    j.clip = 0.5;
    j.bucket_cap_mb = small_buckets;
    return j;
}

TEST(ddp)
{
    check(sharding("ddp"), 3);
}
TEST(ddp_over_accumulation)
{
    job j = sharding("ddp");
    j.accumulate = 3;
    check(j, 2);
}
TEST(ddp_with_frozen_parameters_and_ranks_without_samples)
{
    job j = job_of("ddp_thawing");
    thawing(&j);
    check(j, 4);
}
TEST(ddp_with_several_backward_passes)
{
    job j = job_of("ddp_manual");
    manually_accumulating(&j);
    check(j, 2);
}
TEST(ddp_deterministic)
{
    job j = sharding("ddp");
    j.deterministic_chunk = 3;
    j.accumulate = 2;
    check(j, 2);
}
TEST(sharded_1)
{
    check(sharding("sharded_1"), 3);
}
TEST(sharded_1_with_several_backward_passes)
{
    job j = sharding("sharded_1");
    manually_accumulating(&j);
    j.clip = 0;
    check(j, 2);
}
TEST(sharded_2_over_accumulation)
{
    job j = sharding("sharded_2");
    j.accumulate = 3;
    check(j, 2);
}
TEST(sharded_3)
{
    check(sharding("sharded_3"), 3);
}
TEST(sharded_3_with_ranks_without_samples)
{
    job j = sharding("sharded_3");
    lonely(&j);
    check(j, 4);
}
TEST(sharded_3_deterministic)
{
    job j = sharding("sharded_3");
    j.deterministic_chunk = 3;
    j.accumulate = 2;
    check(j, 2);
}
TEST(sharded_hybrid)
{
    job j = sharding("sharded_hybrid");
    j.shard_size = 2;
    check(j, 4);
}

TEST_MAIN
