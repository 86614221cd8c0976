/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2, bit for bit, where a window of several batches makes an update, or a part of the batches has no loss. */
#include "deterministic_run.h"

TEST(accumulation)
{
    for (int k = takes_all() ? 0 : 1; k < KINDS; k += takes_all() ? 1 : 2) {
        job j = job_of("accumulate", (net_kind)k, 16, 0);
        j.accumulate = 4; /* the last window of an epoch is shorter, as is its last batch */
        j.clip = 0.5;
        j.optimizer = k == CNN ? ADAM : SGD;
        j.compares_state = true;
        check(&j, "accumulate", k == MLP ? 8 : 2);
    }
}

/* The windows of the first epoch add up fewer gradients. */
TEST(parameters_that_are_trained_later)
{
    job j = job_of("thaws", MLP, 16, 2);
    j.thaws_in = 1;
    for (j.accumulate = 1; j.accumulate <= 4; j.accumulate += 3) check(&j, "thaws", 4);
}

TEST(parameters_are_not_frozen_or_thawed_inside_a_window)
{
    job j = job_of("inside", MLP, 16, 2);
    j.thaws_at = 1;
    run_alone(&j);
    for (j.accumulate = 2; j.accumulate <= 3; j.accumulate++) {
        CHECK_STATUS(run(&j, NULL, &one), LC_ERR_UNSUPPORTED);
        CHECK_CONTAINS(lc_error_message(), "frozen or thawed inside an accumulation window");
    }
}

TEST(windows_of_changing_length)
{
    job j = job_of("windows", MLP, 16, 0);
    j.other_windows = true;
    check(&j, "windows", 2);
    CHECK_EQ(one.steps, 6 * j.max_epochs);
    for (j.save_after = 1; j.save_after <= 3; j.save_after++) {
        j.ckpt_path = NULL;
        snprintf(j.saved, sizeof j.saved, "%s/inside-%d.ckpt", j.root, (int)j.save_after);
        run_on(&j, "a run that saves", 2);
        job rest = j;
        rest.save_after = -1;
        rest.ckpt_path = j.saved;
        run_on(&rest, "a run that goes on", 1);
    }
}

/* Spikes are found in the loss of the whole batch, however its chunks are distributed. */
TEST(updates_skipped_for_spikes)
{
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        job j = job_of("spikes", MLP, 16, 2);
        j.spikes = true;
        j.accumulate = accumulate;
        check(&j, "spikes", 4);
        CHECK_CONTAINS(one.spikes, ",");
    }
}

/* Some chunks have no loss; for a whole batch, one rank or all ranks may have none. */
TEST(chunks_without_a_loss)
{
    for (int every = 2; every <= 3; every++) {
        job j = job_of("skip", MLP, 8, 2);
        j.skip_every = every;
        for (j.accumulate = 1; j.accumulate <= 3; j.accumulate += 2) {
            run_alone(&j);
            for (int n = 2; n <= 4; n += 2) check_on(&j, "skip", n);
        }
    }
}

/* Partial sums over windows are slices if gradients are; those of a rank's chunks are whole. */
TEST(memory_is_counted)
{
    job j = job_of("held", DEEP, 8, 4); /* a chunk on each of two ranks */
    j.accumulate = 4;                   /* levels 0 and 1 */
    run_alone(&j);
    run_on(&j, "held", 2);
    int64_t whole = ranks.o[0].gradients / 3;
    CHECK_EQ(ranks.o[0].gradients, 3 * whole);
    j.chunk = 2;
    run_alone(&j);
    run_on(&j, "held", 2);
    CHECK_EQ(ranks.o[0].gradients, 4 * whole);
    for (int s = 1; s < STRATEGIES; s++) {
        static const int halves[][2] = {
            {6, 8}, {4, 6}, {3, 5}, {3, 5}, {6, 8}}; /* with one chunk per rank, and with two */
        for (j.chunk = 4; j.chunk >= 2; j.chunk /= 2) {
            j.strategy = strategies[s];
            run_alone(&j);
            run_on(&j, "held", 2);
            double is = 2. * (double)ranks.o[0].gradients / (double)whole, want = halves[s][j.chunk == 2];
            if (is < want || is > want * 1.2) /* units are padded */
                TEST_FAIL("%s, chunks of %d: %g halves of the gradients", strategies[s], (int)j.chunk, is);
        }
    }
}

/* A batch of k times the size equals k batches of a window; but random numbers differ, and batch norm updates its
 * statistics once per batch. */
TEST(a_window_is_one_large_batch)
{
    static const int64_t windows[] = {2, 3, 4, 6, 8};
    for (int k = takes_all() ? 0 : 1; k < KINDS; k += takes_all() ? 1 : 2)
        for (size_t i = 0; i < sizeof windows / sizeof *windows && k != NORM; i++) {
            outcome *windowed = &ranks.o[0];
            job j = job_of("window", (net_kind)k, 4 * windows[i], 2);
            j.no_dropout = true;
            j.clip = 0.5;
            j.limit = 24 / windows[i];
            run_alone(&j);
            j.batch = 4;
            j.accumulate = windows[i];
            j.limit = 24;
            memset(&ranks, 0, sizeof ranks);
            CHECK_OK(run(&j, NULL, windowed));
            CHECK_EQ(one.steps, windowed->steps);
            CHECK_EQ(one.steps, 24 / windows[i] * j.max_epochs);
            if (memcmp(one.parameters, windowed->parameters, one.bytes) != 0)
                TEST_FAIL("net %d: %d batches in a window are not one", k, (int)windows[i]);
        }
}

TEST_MAIN
