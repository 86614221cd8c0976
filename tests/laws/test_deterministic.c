/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2, bit for bit: with `deterministic` N ranks with batch B end with the bits of one rank with batch N * B, and so
 * do N devices of one process. */
#include "deterministic_run.h"

TEST(ranks_are_one_bit_for_bit)
{
    for (int k = 0; k < KINDS; k++) {
        job j = job_of("plain", (net_kind)k, 32, 0);
        check(&j, "plain", 8);
    }
}

TEST(three_ranks)
{
    job j = job_of("three", MLP, 36, 3);
    run_alone(&j);
    check_on(&j, "three", 3);
    j.kind = CNN;
    run_alone(&j);
    check_on(&j, "three-cnn", 3);
}

TEST(clipping_schedules_and_momentum)
{
    for (int k = 0; k < KINDS; k += takes_all() ? 1 : 2) {
        job j = job_of("clip", (net_kind)k, 40, 0);
        j.clip = 0.4;
        j.schedule = j.compares_state = true;
        check(&j, "clip", 4);
        j.optimizer = ADAM;
        check(&j, "clip-adam", 2);
        j.optimizer = ADAMW;
        j.clip_value = true;
        j.clip = 0.01;
        check(&j, "clip-adamw", 2);
    }
}

/* The scale of the loss is part of what must be equal: it decides which updates are skipped. Each network in one of the
 * types. */
TEST(mixed_precision)
{
    static const char *const names[] = {"bf16-mixed", "16-mixed"};
    for (int p = 0; p < 2; p++)
        for (int k = p; k < KINDS; k += takes_all() ? 2 : KINDS) {
            job j = job_of("mixed", (net_kind)k, 32, 0);
            j.precision = names[p];
            j.accumulate = 1 + k % 2;
            j.clip = 0.5;
            j.compares_state = true;
            check(&j, names[p], 4);
        }
}

/* A step that reads values is executed in parts. */
TEST(steps_that_read_values)
{
    for (int k = takes_all() ? 0 : 1; k < KINDS; k += takes_all() ? 1 : 2) {
        job j = job_of("reads", (net_kind)k, 32, 0);
        j.reads = true;
        run_alone(&j);
        for (int n = 1; n <= 4; n *= 2) check_on(&j, "reads", n);
    }
}

/* The place where a step is executed decides which operators are fused, and so the last bits of results. */
TEST(values_read_before_the_update)
{
    job j = job_of("hook", NORM, 32, 0);
    j.hook_reads = true;
    check(&j, "hook", 4);
}

TEST(optimizers_with_step_functions)
{
    job j = job_of("two", NORM, 32, 0);
    j.two_steps = true;
    check(&j, "two", 4);
    j.spikes = true; /* each step has a loss to judge, also for the rank without samples */
    run_alone(&j);
    check_on(&j, "spikes", 4);
}

/* Statistics of batch norm for averaged weights come from a pass without gradients. */
TEST(statistics_of_averaged_weights)
{
    job j = job_of("averages", NORM, 32, 4);
    j.averages = true;
    check(&j, "averages", 4);
}

/* In the last batch of an epoch some ranks have fewer chunks or none, and in stage 3 each chunk gathers parameters. */
TEST(ranks_with_fewer_chunks)
{
    job j = job_of("fewer", DEEP, 64, 4);
    for (j.accumulate = 1; j.accumulate <= 2; j.accumulate++) {
        check(&j, "fewer", 4);
        j.chunk = 2, j.reads = true;
    }
}

/* ---- refused configurations ---- */

static void expect(job *j, int n, const char *a, const char *b)
{
    memset(&ranks, 0, sizeof ranks);
    ranks.j = j;
    world *w = world_run("threads", n, run_rank, &ranks);
    bool said = false;
    for (int i = 0; i < n; i++) {
        CHECK(w->ranks[i].status < 0);
        said |= strstr(w->ranks[i].message, a) && strstr(w->ranks[i].message, b);
    }
    if (!said) TEST_FAIL("%s", w->ranks[0].message);
    world_free(w);
}

TEST(chunks_that_ranks_cannot_share)
{
    job j = job_of("share", MLP, 36, 0); /* 8 chunks of 5: 3 ranks */
    expect(&j, 3, "cut into 8 chunks of 5, which 3 ranks cannot divide", "deterministic_chunk of 12, 6, 3 (");
    j.chunk = 12;
    run_alone(&j);
    check_on(&j, "share", 3);
    j.batch = j.chunk = 2;
    expect(&j, 2, "2 ranks cannot divide", "a deterministic_chunk of 1 (");
}

/* In an evaluation and in an epoch: some ranks log nothing in the first batch, or never. */
TEST(fewer_chunks_than_ranks)
{
    job j = job_of("few", MLP, 64, 8);
    run_alone(&j);
    check_on(&j, "few", 8);
    j.chunk = 4, j.samples = 22;
    run_alone(&j);
    check_on(&j, "few", 4);
}

/* Chunks of three ranks and three ranks do not form subtrees. */
TEST(copies_that_are_no_subtrees)
{
    job j = job_of("copies", MLP, 36, 6);
    j.strategy = "sharded_hybrid";
    expect(&j, 6, "must be a power of two, with consecutive numbers", "--strategy sharded");
}

TEST(unsupported_combinations_are_refused)
{
    job j = job_of("refused", MLP, 32, 0);
    j.counts = true;
    run_alone(&j);
    expect(&j, 2, "training_step cannot change a persistent tensor", "deterministic_run.h");
    j.devices = "2", j.strategy = "data_parallel";
    CHECK(run(&j, NULL, &one) < 0);
    CHECK_CONTAINS(lc_error_message(), "training_step cannot change a persistent tensor");
    j.devices = NULL, j.strategy = "ddp";
    j.counts = false;
    j.optimizer = LBFGS;
    run_alone(&j);
    expect(&j, 2, "LBFGS", "use another optimizer, or one rank");
    j.optimizer = SGD;
    j.sync_batchnorm = true;
    expect(&j, 2, "sync_batchnorm", "use one of the two");
    j.sync_batchnorm = false;
    j.manual = true;
    expect(&j, 2, "must call the backward pass", "net optimizes manually");
}

/* The mean is clipped. */
TEST(lbfgs_divides_sums_over_chunks)
{
    static outcome whole;
    job j = job_of("lbfgs", MLP, 32, 32);
    j.optimizer = LBFGS;
    j.samples = 32;
    j.clip = 0.05;
    j.clip_value = j.no_dropout = true;
    CHECK_OK(run(&j, NULL, &whole));
    j.chunk = 4;
    run_alone(&j);
    CHECK_EQ(one.bytes, whole.bytes);
    for (size_t i = 0; i < one.bytes; i += sizeof(float)) {
        float a, b;
        memcpy(&a, one.parameters + i, sizeof a);
        memcpy(&b, whole.parameters + i, sizeof b);
        CHECK_NEAR(a, b, 1e-5);
    }
}

TEST_MAIN
