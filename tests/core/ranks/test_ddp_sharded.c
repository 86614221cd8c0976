/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies that shard train what ddp trains, bit for bit if sums are added in the same order. */
#include "core/ranks/ranks.h"
#include "core/hooks/trainer_internal.h"
#include "ddp_run.h"

static const char *const stages[] = {"sharded_1", "sharded_2", "sharded_3"};

/* The bits of ddp, except if a window has several backward passes: from stage 2 on these are added in another order. */
static void check_stages(const char *name, void (*change)(job *j))
{
    for (int n = 1; n <= 4; n += takes_all() ? 1 : 2) {
        static ranks_job want, got;
        job j = job_of(name);
        change(&j);
        j.bucket_cap_mb = small_buckets;
        want.j = got.j = &j;
        CHECK_RANKS("threads", n, run_rank, &want);
        for (int stage = 0; stage < 3; stage++) {
            j.strategy = stages[stage];
            CHECK_RANKS("threads", n, run_rank, &got);
            for (int i = 0; i < n; i++) {
                compare(&want.o[i], &got.o[i]);
                if (j.accumulate == 1 || stage == 0) same(&want.o[i], &got.o[i]);
            }
        }
        j.strategy = NULL;
    }
}

TEST(sharded_trains_as_ddp)
{
    check_stages("sharded", clipping);
}
TEST(sharded_trains_as_ddp_over_accumulation)
{
    check_stages("sharded_accumulate", accumulating);
}
TEST(sharded_trains_as_ddp_while_parameters_are_frozen)
{
    check_stages("sharded_thawing", thawing);
}
TEST(sharded_stops_early_as_ddp)
{
    check_stages("sharded_early", stopping_early);
}

/* A slice may begin inside a parameter, and a rank may have no part of one. */
TEST(sharded_trains_as_ddp_with_every_elementwise_optimizer)
{
    static const char *const names[] = {"SGD",      "Adam",   "AdamW", "RMSprop", "Adagrad",
                                        "Adadelta", "Adamax", "NAdam", "RAdam",   "Rprop"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k += takes_all() ? 1 : 3) {
        static ranks_job want, got;
        job j = job_of("optimizers");
        clipping(&j);
        j.optimizer = names[k];
        want.j = got.j = &j;
        CHECK_RANKS("threads", 3, run_rank, &want);
        for (int stage = 0; stage < 3; stage++) {
            j.strategy = stages[stage];
            CHECK_RANKS("threads", 3, run_rank, &got);
            for (int i = 0; i < 3; i++) same(&want.o[i], &got.o[i]);
        }
    }
}

/* NAdam's one number per parameter is in a checkpoint once, however the rest is sharded; a parameter without elements,
 * of which no rank has a slice, is there too. */
TEST(a_number_for_each_parameter_resumes_under_any_strategy)
{
    static const char *const ways[][2] = {
        {"ddp", "sharded_3"}, {"sharded_3", "ddp"}, {"sharded_2", "sharded_1"}, {"sharded_3", "sharded_hybrid"}};
    static ranks_job want, before, got;
    job j = job_of("number");
    j.optimizer = "NAdam";
    j.has_empty = true;
    want.j = before.j = got.j = &j;
    CHECK_RANKS("threads", 2, run_rank, &want);
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        j = job_of("number_saved");
        j.optimizer = "NAdam";
        j.has_empty = true;
        j.strategy = ways[k][0];
        j.save_after = 3;
        snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
        CHECK_RANKS("threads", 3, run_rank, &before);
        j.save_after = -1;
        j.strategy = ways[k][1];
        j.ckpt_path = j.saved;
        CHECK_RANKS("threads", 2, run_rank, &got);
        for (int i = 0; i < 2; i++) compare(&want.o[0], &got.o[i]);
    }
}

TEST(sharded_with_several_backward_passes_for_a_step)
{
    for (int stage = 0; stage < 3; stage++) {
        static ranks_job want, got;
        job j = job_of("manual_sharded");
        manually_accumulating(&j);
        want.j = got.j = &j;
        CHECK_RANKS("threads", 3, run_rank, &want);
        j.strategy = stages[stage];
        CHECK_RANKS("threads", 3, run_rank, &got);
        for (int i = 0; i < 3; i++) compare(&want.o[i], &got.o[i]);
    }
}

/* ---- copies, each sharded among the ranks of a node ---- */

static const int nodes[][2] = {{2, 1}, {2, 2}, {4, 2}, {4, 1}, {8, 4}, {8, 2}}; /* ranks in all, and ranks of a copy */

/* The bits of ddp; over a window the bits of stage 3 on all ranks, which adds in the same order. */
static void check_copies(const char *name, void (*change)(job *j))
{
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i += takes_all() ? 1 : 2) {
        static ranks_job want, got;
        job j = job_of(name);
        change(&j);
        j.bucket_cap_mb = small_buckets;
        j.strategy = j.accumulate == 1 && !j.manual ? "ddp" : "sharded_3";
        want.j = got.j = &j;
        CHECK_RANKS("threads", nodes[i][0], run_rank, &want);
        j.strategy = "sharded_hybrid";
        j.shard_size = nodes[i][1];
        CHECK_RANKS("threads", nodes[i][0], run_rank, &got);
        for (int k = 0; k < nodes[i][0]; k++) same(&want.o[k], &got.o[k]);
    }
}

TEST(hybrid_trains_as_ddp)
{
    check_copies("hybrid", clipping);
}
TEST(hybrid_trains_as_sharded_over_accumulation)
{
    check_copies("hybrid_accumulate", accumulating);
}
TEST(hybrid_stops_early_as_ddp)
{
    check_copies("hybrid_early", stopping_early);
}
TEST(hybrid_trains_as_ddp_with_nodes_without_samples)
{
    check_copies("hybrid_lonely", lonely);
}
static void manually_with_samples_everywhere(job *j)
{
    manually_accumulating(j);
    j->samples = 96;
}

TEST(hybrid_with_several_backward_passes_for_a_step)
{
    check_copies("hybrid_manual", manually_with_samples_everywhere);
}

/* Threads of a process are on one node. */
TEST(hybrid_on_one_node_is_sharded)
{
    static ranks_job want, got;
    job j = job_of("one_node");
    j.strategy = "sharded_3";
    want.j = got.j = &j;
    CHECK_RANKS("threads", 4, run_rank, &want);
    j.strategy = "sharded_hybrid";
    CHECK_RANKS("threads", 4, run_rank, &got);
    for (int k = 0; k < 4; k++) same(&want.o[k], &got.o[k]);
}

/* ---- the module after a run that did not end ---- */

static lc_tensor *failing_step(lc_module *self, const lc_batch *b, int64_t i)
{
    if (i < 2) return small_net_training_step(self, b, i);
    lc_fail(LC_ERR_USER, "the disk with the data is gone");
    return NULL;
}
static const lc_module_ops failing_ops = {LC_MODULE_OPS_INIT("failing"), .training_step = failing_step,
                                          .configure_optimizers = small_net_sgd};

static lc_tensor *signalled_step(lc_module *self, const lc_batch *b, int64_t i)
{
    if (i == 2) atomic_store(&self->trainer->ranks->signal, SIGTERM);
    return small_net_training_step(self, b, i);
}
static const lc_module_ops signalled_ops = {LC_MODULE_OPS_INIT("signalled"), .training_step = signalled_step,
                                            .configure_optimizers = small_net_sgd};

static lc_status leave_a_run(lc_comm *comm, const lc_module_ops *ops, small_net *m, lc_status expected)
{
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "sharded_3";
    opt.max_epochs = 1;
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(small_net_init(m, ops, 1));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m->base, .train_dataloader = train);
    RANK_CHECK(s == expected || s == LC_ERR_PEER);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    return LC_OK;
}

/* Each rank has slices that nobody can put together; a rank that writes a parameter has all of it. */
static lc_status written_again(lc_comm *comm, void *ctx)
{
    float value[WIDTH * FEATURES], back[WIDTH * FEATURES];
    small_net m = {0};
    (void)ctx;
    LC_TRY(leave_a_run(comm, &failing_ops, &m, LC_ERR_USER));
    RANK_CHECK(lc_tensor_read(m.l1.weight, back, sizeof back) == LC_ERR_STATE);
    for (int i = 0; i < WIDTH * FEATURES; i++) value[i] = (float)i;
    LC_TRY(lc_tensor_write(m.l1.weight, value, sizeof value));
    LC_TRY(lc_tensor_read(m.l1.weight, back, sizeof back));
    RANK_CHECK(!memcmp(value, back, sizeof back));
    RANK_CHECK(lc_tensor_read(m.l2.weight, back, CLASSES * WIDTH * sizeof *back) == LC_ERR_STATE);
    LC_TRY(lc_tensor_write(m.l2.weight, value, CLASSES * WIDTH * sizeof *value));
    LC_TRY(lc_tensor_read(m.l1.weight, back, sizeof back));
    RANK_CHECK(!memcmp(value, back, sizeof back));
    small_net_release(&m);
    return LC_OK;
}

TEST(a_failed_run_leaves_parameters_that_can_be_written)
{
    CHECK_RANKS("threads", 3, written_again, NULL);
}

static lc_status whole_again(lc_comm *comm, void *ctx)
{
    float value[WIDTH * FEATURES], first[WIDTH * FEATURES];
    small_net m = {0};
    (void)ctx;
    LC_TRY(leave_a_run(comm, &signalled_ops, &m, LC_ERR_INTERRUPTED));
    LC_TRY(lc_tensor_read(m.l1.weight, value, sizeof value));
    memcpy(first, value, sizeof first);
    LC_TRY(lc_comm_broadcast(comm, first, WIDTH * FEATURES, LC_F32, 0, NULL));
    RANK_CHECK(!memcmp(first, value, sizeof value));
    small_net_release(&m);
    return LC_OK;
}

TEST(an_interrupted_run_leaves_the_module_whole)
{
    CHECK_RANKS("threads", 3, whole_again, NULL);
}

static const lc_module_ops fabric_ops = {LC_MODULE_OPS_INIT("net")};

static lc_status train_by_fabric(lc_comm *comm, const char *strategy, int64_t shard_size, float *head, size_t bytes)
{
    enum { BATCH = 5 };
    int rank = lc_comm_rank(comm);
    small_net m = {0};
    lc_fabric *f;
    lc_tensor *x, *y;
    LC_TRY(small_net_init(&m, &fabric_ops, (uint64_t)(1 + rank)));
    lc_optimizer *opt = lc_adam(&m.base, .lr = 0.05, .eps = 1e-3);
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){BATCH, FEATURES}, LC_ROW_MAJOR, inputs[0], &x));
    LC_TRY(lc_input_new(LC_I64, 1, (int64_t[]){BATCH}, LC_ROW_MAJOR, labels, &y));
    LC_TRY(lc_fabric_new(&f, .strategy = strategy, .shard_size = shard_size, .comm = comm, .threads = 1));
    LC_TRY(lc_fabric_setup(f, &m.base, &opt, 1));
    for (int step = 0; step < 3; step++) {
        int first = BATCH * (step * lc_comm_size(comm) + rank);
        lc_input_set(x, inputs[first], BATCH), lc_input_set(y, labels + first, BATCH);
        LC_TRY(lc_fabric_begin(f));
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, lc_cross_entropy(logits_of(&m, x), y));
        lc_fabric_step(f, opt);
        LC_TRY(lc_fabric_end(f));
    }
    LC_TRY(lc_tensor_gather(m.l2.weight, head, bytes));
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    small_net_release(&m);
    lc_tensor_unref(x), lc_tensor_unref(y);
    return LC_OK;
}

static lc_status fabric_as_ddp(lc_comm *comm, void *ctx)
{
    float want[CLASSES * WIDTH], got[CLASSES * WIDTH];
    (void)ctx;
    LC_TRY(train_by_fabric(comm, "ddp", 0, want, sizeof want));
    LC_TRY(train_by_fabric(comm, "sharded_hybrid", 2, got, sizeof got));
    RANK_CHECK(!memcmp(want, got, sizeof want));
    return LC_OK;
}

TEST(a_fabric_trains_copies_as_ddp)
{
    CHECK_RANKS("threads", 4, fabric_as_ddp, NULL);
}

static lc_status refuses(lc_comm *comm, void *ctx)
{
    const lc_trainer_options *o = ctx;
    lc_trainer_options opt = *o;
    lc_trainer *t;
    opt.comm = comm;
    return lc_trainer_new(&opt, &t);
}

TEST(impossible_sizes_of_copies_are_refused)
{
    static const struct {
        const char *strategy;
        int64_t shard_size;
        const char *message;
    } cases[] = {
        {"sharded_hybrid", 3, "shard_size=3 does not divide the number of ranks, 4; use one that does"},
        {"sharded_hybrid", 8, "shard_size=8 does not divide the number of ranks, 4"},
        {"sharded", 2, "with the strategy sharded ranks do not share copies; use --strategy sharded_hybrid"},
        {"ddp", 1, "use --strategy sharded_hybrid"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
        opt.strategy = cases[k].strategy;
        opt.shard_size = cases[k].shard_size;
        opt.barebones = true;
        opt.handle_signals = false;
        world *w = world_run("threads", 4, refuses, &opt);
        for (int i = 0; i < 4; i++)
            if (w->ranks[i].status != LC_ERR_CONFIG || !strstr(w->ranks[i].message, cases[k].message))
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
        world_free(w);
    }
}

TEST_MAIN
