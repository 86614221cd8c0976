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

/* ---- bad labels ---- */

static lc_status run_failing_rank(lc_comm *comm, void *ctx)
{
    ranks_job *r = ctx;
    return run(r->j, comm, &r->o[lc_comm_rank(comm)]) < 0 ? LC_OK : LC_ERR_INTERNAL;
}

/* The calls that the rank with the bad label has made when it fails. */
static int64_t calls_before_failure(job *j, const char *device, const char *schedule)
{
    static ranks_job r;
    r.j = j;
    use(device, schedule);
    CHECK_RANKS("threads", 2, run_failing_rank, &r);
    int bad = r.o[0].status == LC_ERR_ARGUMENT ? 0 : 1;
    CHECK_STATUS(r.o[bad].status, LC_ERR_ARGUMENT);
    CHECK(r.o[0].end.steps == 3 && r.o[1].end.steps == 3);
    return r.o[bad].all_reduces;
}

TEST(what_follows_from_a_bad_label_is_not_sent)
{
    enum { AT = 3 * GLOBAL_BATCH + 5 };
    job j = sharding("ddp");
    int64_t right = labels[AT];
    find_plugin();
    j.shuffle = false;
    j.log_every = 100;
    labels[AT] = CLASSES;
    int64_t want = calls_before_failure(&j, NULL, NULL);
    for (int d = 0; d < 3; d++) CHECK_EQ(calls_before_failure(&j, devices[d][0], devices[d][1]), want);
    labels[AT] = right;
    use(NULL, NULL);
}

/* ---- steady steps ---- */

/* A few steps of the second epoch, and the third epoch with its validation. */
enum { RANKS = 2, EPOCHS = 4, PER_EPOCH = 9, STEADY = PER_EPOCH + 2, STEPS = 4 };

static pthread_barrier_t together;
static lc_sim_counters at[EPOCHS * PER_EPOCH];

/* The counters are those of the device that the ranks share, so all ranks stop where they are taken. */
static lc_status count(void *ctx, lc_trainer *t, const lc_batch *b, int64_t i)
{
    (void)ctx, (void)b, (void)i;
    if (pthread_barrier_wait(&together) == PTHREAD_BARRIER_SERIAL_THREAD) at[lc_trainer_global_step(t)] = counters(0);
    pthread_barrier_wait(&together);
    return LC_OK;
}

static lc_status counting(lc_callback *out)
{
    return lc_lambda_callback(out, .on_train_batch_start = count);
}

/* Checks that each step of a rank runs this many programs, waits at most this often, and neither launches a kernel by
 * itself nor allocates. */
static void steady(job j, int programs, int waits)
{
    static ranks_job r;
    find_plugin();
    use("sim", "lazy");
    j.callback = counting;
    j.max_epochs = EPOCHS;
    j.log_every = 100;
    r.j = &j;
    pthread_barrier_init(&together, NULL, RANKS);
    CHECK_RANKS("threads", RANKS, run_rank, &r);
    pthread_barrier_destroy(&together);
    use(NULL, NULL);
    const lc_sim_counters *from = &at[STEADY], *to = &at[STEADY + STEPS];
    CHECK_EQ(to->launches - from->launches, 0);
    CHECK_EQ(to->allocations - from->allocations, 0);
    CHECK(to->waits - from->waits <= STEPS * RANKS * waits);
    CHECK_EQ(to->programs - from->programs, STEPS * RANKS * programs);
    CHECK_EQ(at[3 * PER_EPOCH].launches - at[2 * PER_EPOCH].launches, 0);
}

static job without_clipping(const char *strategy)
{
    job j = sharding(strategy);
    j.clip = 0;
    return j;
}

/* The host's calls: two buckets, of which the second is the last call of its plan. The update is a plan of its own, or
 * waits for one gradient after the other. */
TEST(a_steady_step_of_ddp)
{
    steady(sharding("ddp"), 3, 2);
    steady(without_clipping("ddp"), 7, 2);
}
/* Four units of a parameter each are reduced, two after the first stretch and two after the second; then each is
 * updated and gathered. Clipping over the ranks is a call with operands on the host, which waits twice for each of
 * them. */
TEST(a_steady_step_of_sharded_1)
{
    steady(sharding("sharded_1"), 6, 15);
    steady(without_clipping("sharded_1"), 6, 8);
}
TEST(a_steady_step_of_sharded_2)
{
    steady(sharding("sharded_2"), 6, 15);
    steady(without_clipping("sharded_2"), 6, 8);
}
/* One unit of all parameters: the device runs from the first operator to the last gradient without the host. */
TEST(a_steady_step_of_one_unit)
{
    job j = without_clipping("sharded_2");
    j.bucket_cap_mb = 0;
    steady(j, 2, 3);
}
/* Each is gathered before it is used, and reduced; the update is of slices. */
TEST(a_steady_step_of_sharded_3)
{
    steady(sharding("sharded_3"), 4, 15);
    steady(without_clipping("sharded_3"), 4, 8);
}

TEST_MAIN
