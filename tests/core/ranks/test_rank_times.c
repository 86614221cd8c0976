/* SPDX-License-Identifier: Apache-2.0 */
/* What a fit on several ranks reports at its end: which rank the others waited for, and how much communication time was
 * not hidden by computation. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"

#include "core/ranks/rank_times.h"

#include <lightc/lightc.h>

/* ---- the evaluation of times ---- */

enum { STEP_US = 10000 };

static lc__rank_record *records(int n, int64_t steps)
{
    lc__rank_record *all = calloc((size_t)n, sizeof *all);
    for (int r = 0; r < n; r++) {
        all[r].steps = steps;
        for (int64_t i = 0; i < LC__RANK_TIMES_KEPT; i++) all[r].of[i] = (lc__rank_step){.all_us = STEP_US};
    }
    return all;
}

TEST(the_rank_that_waits_least_is_the_slowest)
{
    enum { N = 4, STEPS = 3000 }; /* more steps than are kept */
    lc__rank_verdict v;
    lc__rank_record *all = records(N, STEPS);
    for (int r = 0; r < N; r++) {
        all[r].sent = (STEPS - LC__RANK_TIMES_SKIPPED) * (int64_t)(r + 1);
        for (int i = 0; i < LC__RANK_TIMES_KEPT; i++) {
            int last = i % 10 ? 2 : 1; /* rank 2 in nine of ten steps */
            all[r].of[i].waited_us = r == last ? 500 : i % 10 ? 2500 : 9500;
            all[r].of[i].loading_us = r == 2 ? 1900 : 100;
        }
    }
    CHECK_OK(lc__rank_times_judge(all, N, &v));
    CHECK_EQ(v.steps, LC__RANK_TIMES_KEPT);
    CHECK_EQ(v.slowest, 2);
    CHECK_EQ(v.slowest_steps, 921);
    CHECK_NEAR(v.slowest_late, 2e-3, 1e-9);
    CHECK_NEAR(v.slowest_loading, 1.8e-3, 1e-9);
    CHECK_NEAR(v.step, 10e-3, 1e-9);
    CHECK_NEAR(v.exposed, 0.5e-3, 1e-9);
    CHECK_NEAR(v.exposed_all, 0.05, 1e-9);
    CHECK_NEAR(v.late, 2e-3, 1e-9);
    CHECK_NEAR(v.late_p95, 9e-3, 1e-9);
    CHECK_NEAR(v.late_all, (921 * 0.2 + 103 * 0.9) / 1024, 1e-9);
    CHECK_EQ(v.sent, 2); /* (1 + 2 + 3 + 4) / 4 */
    free(all);
}

TEST(no_rank_is_named_for_chance_differences)
{
    enum { N = 3, STEPS = 40 };
    lc__rank_verdict v;
    lc__rank_record *all = records(N, STEPS);
    for (int r = 0; r < N; r++)
        for (int i = 0; i < STEPS; i++) all[r].of[i].waited_us = r == i % N ? 100 : 5000;
    /* The first steps, in which plans are made, do not count. */
    for (int i = 0; i < LC__RANK_TIMES_SKIPPED; i++) all[0].of[i] = (lc__rank_step){1000000, 0, 900000};
    CHECK_OK(lc__rank_times_judge(all, N, &v));
    CHECK_EQ(v.steps, STEPS - LC__RANK_TIMES_SKIPPED);
    CHECK_EQ(v.slowest, -1);
    CHECK_NEAR(v.late_all, 0.49, 1e-9);
    CHECK_NEAR(v.exposed_all, 0.01, 1e-9);
    for (int r = 0; r < N; r++) all[r].steps = 1;
    CHECK_OK(lc__rank_times_judge(all, N, &v));
    CHECK_EQ(v.steps, 0);
    free(all);
}

/* ---- fits ---- */

enum { RANKS = 3, SAMPLES = 120, FEATURES = 4, SHORT_US = 6000, LONG_US = 200000 };

typedef struct job {
    int slow_rank, pause_us;
    bool in_loader; /* otherwise in training_step */
    char messages[4000];
    char root[320];
} job;

typedef struct net {
    lc_module base;
    lc_linear l;
    int pause_us;
} net;

typedef struct samples {
    int pause_us;
} samples;

static int64_t length(void *self)
{
    (void)self;
    return SAMPLES;
}

static lc_status describe(void *self, lc_sample_spec *spec)
{
    (void)self;
    spec->n = 2;
    spec->fields[0] = (lc_field){.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}};
    spec->fields[1] = (lc_field){.name = "y", .dtype = LC_F32, .ndim = 1, .shape = {1}};
    return LC_OK;
}

static lc_status get(void *self, int64_t index, uint64_t key, void *const *out, void *scratch)
{
    float x[FEATURES], y = (float)(index % 7);
    (void)key, (void)scratch;
    for (int i = 0; i < FEATURES; i++) x[i] = (float)((index + i) % 5);
    memcpy(out[0], x, sizeof x);
    memcpy(out[1], &y, sizeof y);
    if (((samples *)self)->pause_us) usleep((unsigned)((samples *)self)->pause_us);
    return LC_OK;
}

static const lc_dataset_ops samples_ops = {LC_DATASET_OPS_INIT, .name = "samples", .length = length,
                                           .describe = describe, .get = get};

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    if (m->pause_us) usleep((unsigned)m->pause_us);
    return lc_mse_loss(lc_linear_forward(&m->l, b->x), b->y);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.001));
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .configure_optimizers = configure_optimizers};

static void note(void *context, lc_trainer *t, lc_level level, const char *text)
{
    job *j = context;
    size_t n = strlen(j->messages);
    (void)t;
    snprintf(j->messages + n, sizeof j->messages - n, "%s: %s\n", lc_level_name(level), text);
}

static lc_status fit(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    lc_comm_stats before, after;
    int rank = lc_comm_rank(comm), pause = rank == j->slow_rank ? j->pause_us : 0;
    samples data = {j->in_loader ? pause : 0};
    net m = {.pause_us = j->in_loader ? 0 : pause};
    lc_dataset *d;
    lc_dataloader *train;
    lc_callback cb;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = 1;
    opt.default_root_dir = j->root;
    opt.strategy = "ddp";
    if (rank == 0) {
        LC_TRY(lc_lambda_callback(&cb, .context = j, .on_message = note));
        opt.callbacks = &cb;
        opt.n_callbacks = 1;
    }
    LC_TRY(lc_dataset_new(&samples_ops, &data, &d));
    LC_TRY(lc_dataloader_new(&train, .dataset = d, .batch_size = 1));
    lc_dataset_unref(d);
    lc_module_init(&m.base, &net_ops, 1);
    lc_linear_init(&m.l, &m, "l", FEATURES, 1);
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_comm_get_stats(comm, &before);
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train));
    lc_comm_get_stats(comm, &after);
    /* A single gather, at the end. */
    RANK_CHECK(after.calls[LC_COMM_GATHER] - before.calls[LC_COMM_GATHER] == 1);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    lc_module_release(&m.base);
    return LC_OK;
}

/* Other programs delay ranks too: where its pause is lost among their delays, the rank is named for a longer one. */
static void check_named(int slow_rank, bool in_loader)
{
    char want[100];
    bool named = false;
    snprintf(want, sizeof want, "warning: rank %d (host ", slow_rank);
    for (int pause = SHORT_US; !named; pause *= 4) {
        job j = {.slow_rank = slow_rank, .pause_us = pause, .in_loader = in_loader};
        snprintf(j.root, sizeof j.root, "%s", fresh_dir("slow"));
        CHECK_RANKS("threads", RANKS, fit, &j);
        named = strstr(j.messages, want) && (strstr(j.messages, "its loader takes") != NULL) == in_loader;
        if (!named && pause > LONG_US) TEST_FAIL("rank %d is not named: %s", slow_rank, j.messages);
        CHECK(strstr(j.messages, "% of the training for communication (median "));
    }
}

TEST(a_rank_with_a_slow_step_is_named)
{
    check_named(1, false);
}

TEST(a_rank_with_a_slow_loader_is_named_with_it)
{
    check_named(2, true);
}

TEST(rank_zero_may_be_the_slow_one)
{
    check_named(0, false);
}

TEST_MAIN
