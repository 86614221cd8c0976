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
    CHECK_OK(run(&j, NULL, &one));
    check_on(&j, "three", 3);
    j.kind = CNN;
    CHECK_OK(run(&j, NULL, &one));
    check_on(&j, "three-cnn", 3);
}

TEST(clipping_schedules_and_momentum)
{
    for (int k = 0; k < KINDS; k++) {
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

/* Saved inside an epoch and a window. */
TEST(a_run_in_mixed_precision_resumes_on_other_ranks)
{
    static const char *const names[] = {"bf16-mixed", "16-mixed"};
    for (int p = 0; p < 2; p++)
        for (int k = p; k < KINDS; k += takes_all() ? 2 : KINDS) {
            job j = job_of("resume", (net_kind)k, 16, 0);
            j.precision = names[p];
            j.accumulate = 4;
            CHECK_OK(run(&j, NULL, &one));
            for (int s = k % 2; s < STRATEGIES; s += 2) {
                snprintf(j.root, sizeof j.root, "%s", fresh_dir("part"));
                j.ckpt_path = NULL;
                j.strategy = strategies[s];
                j.save_after = 1 + s % 3;
                snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
                run_on(&j, "a run that saves", 2);
                j.save_after = -1;
                j.ckpt_path = j.saved;
                run_on(&j, "a run that goes on", k % 2 ? 4 : 1);
            }
        }
}

/* A step that reads values is executed in parts. */
TEST(steps_that_read_values)
{
    for (int k = 0; k < KINDS; k++) {
        job j = job_of("reads", (net_kind)k, 32, 0);
        j.reads = true;
        CHECK_OK(run(&j, NULL, &one));
        for (int n = 1; n <= 4; n *= 2) check_on(&j, "reads", n);
    }
}

TEST(accumulation)
{
    for (int k = 0; k < KINDS; k++) {
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
    CHECK_OK(run(&j, NULL, &one));
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

/* Some chunks have no loss; for a whole batch, one rank or all ranks may have none. */
TEST(chunks_without_a_loss)
{
    for (int every = 2; every <= 3; every++) {
        job j = job_of("skip", MLP, 8, 2);
        j.skip_every = every;
        for (j.accumulate = 1; j.accumulate <= 3; j.accumulate += 2) {
            CHECK_OK(run(&j, NULL, &one));
            for (int n = 2; n <= 4; n += 2) check_on(&j, "skip", n);
        }
    }
}

/* Partial sums over windows are slices if gradients are; those of a rank's chunks are whole. */
TEST(memory_is_counted)
{
    job j = job_of("held", DEEP, 8, 4); /* a chunk on each of two ranks */
    j.accumulate = 4;                   /* levels 0 and 1 */
    CHECK_OK(run(&j, NULL, &one));
    run_on(&j, "held", 2);
    int64_t whole = ranks.o[0].gradients / 3;
    CHECK_EQ(ranks.o[0].gradients, 3 * whole);
    j.chunk = 2;
    CHECK_OK(run(&j, NULL, &one));
    run_on(&j, "held", 2);
    CHECK_EQ(ranks.o[0].gradients, 4 * whole);
    for (int s = 1; s < STRATEGIES; s++) {
        static const int halves[][2] = {
            {6, 8}, {4, 6}, {3, 5}, {3, 5}, {6, 8}}; /* with one chunk per rank, and with two */
        for (j.chunk = 4; j.chunk >= 2; j.chunk /= 2) {
            j.strategy = strategies[s];
            CHECK_OK(run(&j, NULL, &one));
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
    for (int k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof windows / sizeof *windows && k != NORM; i++) {
            outcome *windowed = &ranks.o[0];
            job j = job_of("window", (net_kind)k, 4 * windows[i], 2);
            j.no_dropout = true;
            j.clip = 0.5;
            j.limit = 24 / windows[i];
            CHECK_OK(run(&j, NULL, &one));
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

/* Saved by `from` ranks inside an epoch and an accumulation window, in one file or in parts, and resumed under any
 * strategy. */
TEST(a_run_resumes_on_other_ranks)
{
    int n = 0;
    for (int from = 1; from <= 4; from *= 2)
        for (int to = 1; to <= 4; to *= 2)
            for (int64_t accumulate = 1; accumulate <= 4; accumulate += 3) {
                job whole = job_of("whole", (net_kind)((from + to) % KINDS), 16, 0), j = whole;
                whole.accumulate = j.accumulate = accumulate;
                CHECK_OK(run(&whole, NULL, &one));
                for (int s = n / 2 % 2; s < STRATEGIES; s += 2, n++) {
                    snprintf(j.root, sizeof j.root, "%s", fresh_dir("part"));
                    j.ckpt_path = NULL;
                    j.strategy = strategies[s];
                    j.state_dict_type = (n + n / 8) % 2 ? "sharded" : "full";
                    j.save_after = (from + to) % 3 + (to > 1); /* after 1 to 3 batches of a window, or after none */
                    snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
                    run_on(&j, "a run that saves", from);
                    j.save_after = -1;
                    j.ckpt_path = j.saved;
                    j.strategy = strategies[(s + n / 4) % STRATEGIES];
                    run_on(&j, "a run that goes on", to);
                }
            }
}

TEST(a_run_resumes_on_devices)
{
    job j = job_of("devices", NORM, 16, 0);
    j.accumulate = 4;
    CHECK_OK(run(&j, NULL, &one));
    snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
    for (int back = 0; back < 2; back++) {
        j.ckpt_path = NULL;
        for (int part = 0; part < 2; part++) {
            j.save_after = part ? -1 : 2; /* after three batches of a window */
            j.devices = part == back ? NULL : "2";
            j.strategy = j.devices ? "data_parallel" : "sharded_2";
            memset(&ranks, 0, sizeof ranks);
            if (j.devices) {
                CHECK_OK(run(&j, NULL, &ranks.o[0]));
                compare(&one, &ranks.o[0], "two devices");
            } else {
                run_on(&j, "two ranks", 2);
            }
            j.ckpt_path = j.saved;
        }
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
    CHECK_OK(run(&j, NULL, &one));
    check_on(&j, "share", 3);
    j.batch = j.chunk = 2;
    expect(&j, 2, "2 ranks cannot divide", "a deterministic_chunk of 1 (");
}

/* In an evaluation and in an epoch: some ranks log nothing in the first batch, or never. */
TEST(fewer_chunks_than_ranks)
{
    job j = job_of("few", MLP, 64, 8);
    CHECK_OK(run(&j, NULL, &one));
    check_on(&j, "few", 8);
    j.chunk = 4, j.samples = 22;
    CHECK_OK(run(&j, NULL, &one));
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
    CHECK_OK(run(&j, NULL, &one));
    expect(&j, 2, "training_step cannot change a persistent tensor", "deterministic_run.h");
    j.devices = "2", j.strategy = "data_parallel";
    CHECK(run(&j, NULL, &one) < 0);
    CHECK_CONTAINS(lc_error_message(), "training_step cannot change a persistent tensor");
    j.devices = NULL, j.strategy = "ddp";
    j.counts = false;
    j.optimizer = LBFGS;
    CHECK_OK(run(&j, NULL, &one));
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
    CHECK_OK(run(&j, NULL, &one));
    CHECK_EQ(one.bytes, whole.bytes);
    for (size_t i = 0; i < one.bytes; i += sizeof(float)) {
        float a, b;
        memcpy(&a, one.parameters + i, sizeof a);
        memcpy(&b, whole.parameters + i, sizeof b);
        CHECK_NEAR(a, b, 1e-5);
    }
}

TEST_MAIN
