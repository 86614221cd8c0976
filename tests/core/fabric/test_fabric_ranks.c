/* SPDX-License-Identifier: Apache-2.0 */
/* A hand-written loop on several ranks (lc_fabric) computes under every strategy what one rank computes. Its
 * checkpoints resume under any strategy on any number of ranks, and bit for bit under the same strategy and number. */
#include "comm_world.h"
#include "core/fabric/fabric_internal.h"
#include "scratch.h"
#include "small_net.h"

enum { GLOBAL_BATCH = 12, TRAIN = 96, STEPS = 8, SAVED = 3 };

static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
enum { STRATEGIES = sizeof strategies / sizeof *strategies, MOST_RANKS = 4 };

typedef struct job {
    const char *strategy, *precision, *state_dict_type, *save_to, *resume_from;
    bool accumulates, unsummed;
    double bucket_cap_mb;
    int overflows; /* 1 + the rank with an overflow in its gradients in step SAVED; 0: none, -1: all */
    int64_t calls; /* calls on rank 0 that reduce gradients */
    float weight[MOST_RANKS][WIDTH * FEATURES], head[MOST_RANKS][WIDTH * CLASSES];
} job;

static lc_status step(lc_fabric *f, small_net *m, lc_optimizer *opt, const lc_batch *b, bool first, bool last,
                      bool unsummed)
{
    lc_fabric_no_backward_sync(f, !last || unsummed);
    LC_TRY(lc_fabric_begin(f));
    lc_tensor *loss = lc_cross_entropy(logits_of(m, b->x), b->y);
    if (first) lc_fabric_zero_grad(f);
    lc_fabric_backward(f, loss);
    if (last) lc_fabric_clip_gradients(f, opt, .max_norm = 0.5);
    if (last) lc_fabric_step(f, opt);
    return lc_fabric_end(f);
}

static lc_status loop(job *j, lc_fabric *f, small_net *m, lc_optimizer *opt, lc_dataloader *l)
{
    int64_t begin = 0, mark = 0, window = j->accumulates ? 2 : 1;
    lc_state *state = NULL;
    if (j->resume_from) {
        LC_TRY(lc_fabric_load(f, j->resume_from, &state));
        LC_TRY(lc_state_get_int(state, "mark", &mark));
        lc_state_free(state);
        RANK_CHECK(mark == 17);
        begin = SAVED + 1;
        RANK_CHECK(lc_fabric_steps(f) == begin);
    }
    if (j->unsummed) LC_TRY(lc_fabric_barrier(f)); /* no rank fails before the others are here */
    LC_TRY(lc_dataloader_begin(l, 0, begin));
    for (int64_t i = begin; i < STEPS; i++) {
        lc_batch *b;
        LC_TRY(lc_dataloader_next(l, &b));
        LC_TRY(step(f, m, opt, b, i % window == 0, (i + 1) % window == 0, j->unsummed));
        if (i != SAVED || !j->save_to) continue;
        LC_TRY(lc_state_new(&state));
        LC_TRY(lc_state_set_int(state, "mark", 17));
        LC_TRY(lc_fabric_save(f, j->save_to, state));
    }
    lc_dataloader_end(l);
    int rank = lc_fabric_global_rank(f);
    LC_TRY(lc_tensor_gather(m->l1.weight, j->weight[rank], sizeof j->weight[rank]));
    return lc_tensor_gather(m->l2.weight, j->head[rank], sizeof j->head[rank]);
}

static lc_status look_for_overflow(void *self, lc_optimizer *o)
{
    const lc_fabric *f = self;
    (void)o;
    return lc_fabric_steps(f) == SAVED + 1 ? LC_SKIP : LC_OK;
}

static const lc_precision_ops overflowing = {LC_PRECISION_OPS_INIT("overflowing"),
                                             .before_optimizer_step = look_for_overflow};

static lc_status look_for_none(void *self, lc_optimizer *o)
{
    return (void)self, (void)o, LC_OK;
}

static const lc_precision_ops sound = {LC_PRECISION_OPS_INIT("sound"), .before_optimizer_step = look_for_none};

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net")};

static lc_status run(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    small_net m = {0};
    lc_fabric *f;
    lc_dataloader *l;
    LC_TRY(small_net_init(&m, &net_ops, (uint64_t)(1 + rank)));
    lc_optimizer *opt = lc_adamw(&m.base, .lr = 0.02, .eps = 1e-3);
    LC_TRY(loader_of(0, TRAIN, GLOBAL_BATCH / n, true, &l));
    LC_TRY(lc_fabric_new(&f, .strategy = comm ? j->strategy : NULL, .comm = comm, .precision = j->precision,
                         .state_dict_type = j->state_dict_type,
                         .bucket_cap_mb = j->bucket_cap_mb > 0 ? j->bucket_cap_mb : 0.5, .threads = 1, .seed = 5));
    if (j->overflows)
        f->precision = j->overflows < 0 || j->overflows == rank + 1 ? overflowing : sound, f->precision_self = f;
    LC_TRY(lc_fabric_setup(f, &m.base, &opt, 1));
    LC_TRY(lc_fabric_setup_dataloader(f, l));
    lc_status s = loop(j, f, &m, opt, l);
    if (comm && rank == 0) {
        lc_comm_stats stats;
        lc_comm_get_stats(comm, &stats);
        j->calls = stats.calls[LC_COMM_ALL_REDUCE] + stats.calls[LC_COMM_REDUCE_SCATTER];
    }
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    lc_dataloader_free(l);
    small_net_release(&m);
    return s;
}

static void compare(const job *a, const job *b, int ranks, bool bits)
{
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < WIDTH * FEATURES; i++) CHECK_NEAR(a->weight[0][i], b->weight[r][i], 3e-6);
        for (int i = 0; i < WIDTH * CLASSES; i++) CHECK_NEAR(a->head[0][i], b->head[r][i], 3e-6);
        if (bits)
            CHECK(!memcmp(a->weight[r], b->weight[r], sizeof a->weight[r]) &&
                  !memcmp(a->head[r], b->head[r], sizeof a->head[r]));
    }
}

static void check(bool accumulates)
{
    static job one, from[STRATEGIES][MOST_RANKS + 1], to;
    char paths[STRATEGIES][MOST_RANKS + 1][400];
    one = (job){.accumulates = accumulates};
    CHECK_OK(run(NULL, &one));
    for (int s = 0; s < STRATEGIES; s++)
        for (int n = 1; n <= MOST_RANKS; n++) {
            snprintf(paths[s][n], sizeof paths[s][n], "%s/%s-%d-%d.ckpt", scratch_root, strategies[s], n, accumulates);
            from[s][n] = (job){.strategy = strategies[s],
                               .state_dict_type = n == 3 ? "full" : NULL,
                               .save_to = paths[s][n],
                               .accumulates = accumulates};
            CHECK_RANKS("threads", n, run, &from[s][n]);
            compare(&one, &from[s][n], n, false);
        }
    for (int s = 0; s < STRATEGIES; s++)
        for (int n = 1; n <= MOST_RANKS; n++)
            for (int k = 0; k < STRATEGIES; k++) {
                int ranks = k == s ? n : (n + k) % MOST_RANKS + 1;
                to = (job){.strategy = strategies[k], .resume_from = paths[s][n], .accumulates = accumulates};
                CHECK_RANKS("threads", ranks, run, &to);
                compare(&from[k][ranks], &to, ranks, k == s);
            }
}

TEST(a_loop_on_several_ranks_computes_what_one_computes_and_resumes)
{
    check(false);
}

TEST(a_loop_that_accumulates_computes_what_one_rank_computes)
{
    check(true);
}

/* The optimizer is there before its parameters are stored in another type. */
TEST(converted_parameters_are_accumulated_and_reduced)
{
    static job f32, f64;
    for (int accumulates = 0; accumulates < 2; accumulates++) {
        f32 = (job){.accumulates = accumulates};
        f64 = (job){.accumulates = accumulates, .precision = "64-true"};
        CHECK_OK(run(NULL, &f32));
        CHECK_OK(run(NULL, &f64));
        compare(&f32, &f64, 1, false);
        for (int s = 0; s < STRATEGIES; s++) {
            f64 = (job){.accumulates = accumulates, .precision = "64-true", .strategy = strategies[s]};
            CHECK_RANKS("threads", 2, run, &f64);
            compare(&f32, &f64, 2, false);
        }
    }
}

TEST(an_update_that_one_rank_skips_is_skipped_on_all)
{
    static job none, one = {.overflows = -1}, all;
    CHECK_OK(run(NULL, &none));
    CHECK_OK(run(NULL, &one));
    CHECK(memcmp(none.weight[0], one.weight[0], sizeof one.weight[0]) != 0);
    for (int s = 0; s < STRATEGIES; s++)
        for (int r = 1; r <= 3; r += 2) {
            all = (job){.strategy = strategies[s], .overflows = r};
            CHECK_RANKS("threads", 3, run, &all);
            compare(&one, &all, 3, false);
        }
}

/* Ranks would be updated differently. If each backward pass reduces gradients, nothing is missing. */
TEST(an_update_with_gradients_of_one_rank_is_an_error)
{
    static job j, one;
    one = (job){.unsummed = true};
    CHECK_OK(run(NULL, &one));
    for (int s = 0; s < STRATEGIES; s++) {
        bool reduces = s >= 2;
        j = (job){.strategy = strategies[s], .unsummed = true};
        world *w = world_run("threads", 2, run, &j);
        int first = w->ranks[0].status == LC_ERR_PEER; /* the other one was quicker */
        CHECK_STATUS(w->ranks[first].status, reduces ? LC_OK : LC_ERR_STATE);
        if (!reduces) CHECK_CONTAINS(w->ranks[first].message, "have not been reduced over ranks");
        CHECK((w->ranks[!first].status < 0) == !reduces);
        world_free(w);
        if (reduces) compare(&one, &j, 2, false);
    }
}

/* Smaller buckets make more calls and give the same numbers. */
TEST(bucket_cap_mb_limits_what_one_call_reduces)
{
    static job j[2];
    for (int s = 0; s < STRATEGIES; s++) {
        for (int small = 0; small < 2; small++) {
            j[small] = (job){.strategy = strategies[s], .bucket_cap_mb = small ? 16. / (1 << 20) : 0};
            CHECK_RANKS("threads", 2, run, &j[small]);
        }
        compare(&j[0], &j[1], 2, true);
        CHECK(j[1].calls >= j[0].calls + STEPS);
    }
}

TEST_MAIN
