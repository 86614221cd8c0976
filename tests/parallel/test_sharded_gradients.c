/* SPDX-License-Identifier: Apache-2.0 */
/* lc_gradient when every rank has a part of the gradients: it equals ddp's bit for bit, as does what is computed from
 * it; it is an error before there is a sum over ranks. */
#include "ddp_run.h"

enum { RANKS = 4, STEPS = 24, PARAMETERS = 4, MOST = 8 * FEATURES };

/* Every parameter's gradient, as each rank read it before every step. */
typedef struct seen {
    int n;
    float gradients[STEPS][PARAMETERS][MOST];
} seen;
static seen all_seen[RANKS];

static lc_status look(void *self, lc_trainer *t, lc_optimizer *opt)
{
    seen *s = &all_seen[lc_trainer_global_rank(t)];
    const lc_param_group *group = &opt->groups[0];
    (void)self;
    RANK_CHECK(s->n < STEPS && group->n_parameters == PARAMETERS);
    for (int k = 0; k < PARAMETERS; k++) {
        lc_tensor *p = group->parameters[k];
        size_t bytes = (size_t)lc_tensor_numel(p) * sizeof(float);
        RANK_CHECK(bytes <= sizeof s->gradients[0][0]);
        if (!lc_tensor_requires_grad(p)) continue;
        LC_TRY(lc_tensor_read(lc_gradient(p), s->gradients[s->n][k], bytes));
    }
    s->n++;
    return LC_OK;
}

static const lc_callback_ops look_ops = {LC_CALLBACK_OPS_INIT("Look"), .on_before_optimizer_step = look};

static lc_status make_look(lc_callback *out)
{
    *out = (lc_callback){&look_ops, NULL};
    return LC_OK;
}

static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3", "sharded_hybrid"};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static job job_under(const char *strategy, int ranks, void (*change)(job *j))
{
    job j = job_of("gradients");
    if (change) change(&j);
    j.bucket_cap_mb = small_buckets;
    j.max_epochs = 2;
    j.callback = make_look;
    j.strategy = strategy;
    j.shard_size = strcmp(strategy, "sharded_hybrid") ? 0 : ranks / 2;
    return j;
}

/* Over a window, stages 2 and 3 add in a different order. */
static void check_gradients(void (*change)(job *j), double tolerance)
{
    static seen want;
    static const int counts[] = {2, 3, 4};
    for (int c = 0; c < 3; c++) {
        for (int s = 0; s < STRATEGIES; s++) {
            static ranks_job run;
            int n = counts[c];
            job j = job_under(strategies[s], n, change);
            if (n % 2 && (j.shard_size || j.deterministic_chunk)) continue;
            run.j = &j;
            memset(all_seen, 0, sizeof all_seen);
            CHECK_RANKS("threads", n, run_rank, &run);
            CHECK(all_seen[0].n >= 3);
            if (!s) want = all_seen[0];
            for (int r = 0; r < n; r++) {
                const float *a = &want.gradients[0][0][0], *b = &all_seen[r].gradients[0][0][0];
                double norm = 0;
                CHECK_EQ(all_seen[r].n, want.n);
                for (int i = 0; i < STEPS * PARAMETERS * MOST; i++) {
                    norm += (double)a[i] * a[i];
                    CHECK_NEAR(a[i], b[i], tolerance);
                }
                CHECK(norm > 0);
            }
        }
    }
}

TEST(gradients_are_those_of_ddp)
{
    check_gradients(NULL, 0);
}

TEST(gradients_are_those_of_ddp_over_a_window)
{
    check_gradients(accumulating, 1e-6);
}

/* A rank without samples takes part. */
TEST(gradients_are_those_of_ddp_if_ranks_have_no_sample)
{
    check_gradients(lonely, 1e-6);
}

static void on_a_tree(job *j)
{
    j->deterministic_chunk = GLOBAL_BATCH / 4;
    j->samples = 4 * GLOBAL_BATCH;
    j->accumulate = 2;
}

TEST(gradients_are_those_of_ddp_on_a_tree)
{
    check_gradients(on_a_tree, 0);
}

/* In one epoch a layer is frozen. */
TEST(gradients_are_those_of_ddp_with_frozen_layers)
{
    check_gradients(thawing, 1e-6);
}

/* ---- before there is a sum ---- */

static lc_status look_early(void *self, lc_trainer *t)
{
    float x[MOST];
    lc_tensor *p = lc_trainer_optimizer(t, 0)->groups[0].parameters[0];
    (void)self;
    return lc_tensor_read(lc_gradient(p), x, (size_t)lc_tensor_numel(p) * sizeof *x);
}

static const lc_callback_ops early_ops = {LC_CALLBACK_OPS_INIT("LookEarly"), .on_after_backward = look_early};

static lc_status make_early(lc_callback *out)
{
    *out = (lc_callback){&early_ops, NULL};
    return LC_OK;
}

static lc_status read_early(lc_comm *comm, void *ctx)
{
    outcome o = {0};
    (void)!run(ctx, comm, &o);
    RANK_CHECK(o.status < 0 && strstr(lc_error_message(), "read them in on_before_optimizer_step"));
    return LC_OK;
}

TEST(gradients_are_refused_before_there_is_a_sum)
{
    job j = job_under("sharded_1", 2, accumulating);
    j.callback = make_early;
    CHECK_RANKS("threads", 2, read_early, &j);
}

/* From stage 2 on ranks sum after every batch. */
TEST(gradients_are_summed_in_slices_after_each_batch)
{
    for (int s = 2; s < STRATEGIES; s++) {
        static ranks_job run;
        job j = job_under(strategies[s], 2, accumulating);
        j.callback = make_early;
        run.j = &j;
        CHECK_RANKS("threads", 2, run_rank, &run);
        for (int r = 0; r < 2; r++) CHECK_OK(run.o[r].status);
    }
}

TEST_MAIN
