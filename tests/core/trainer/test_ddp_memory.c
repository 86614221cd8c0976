/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a rank follows the strategies' formula, and can be limited. */
#include "comm_world.h"
#include "quiet_options.h"

enum { SAMPLES = 100 };

#include "small_data.h"

enum { WIDE = 512 };

typedef struct wide {
    lc_module base;
    lc_linear layers[4];
    int n;
    lc_device_memory memory;
} wide;

static lc_tensor *wide_step(lc_module *self, const lc_batch *b, int64_t i)
{
    wide *m = (wide *)self;
    (void)i;
    lc_tensor *x = lc_pad(b->x, 0, WIDE - FEATURES);
    for (int k = 0; k < m->n; k++) x = lc_linear_forward(&m->layers[k], k ? lc_relu(x) : x);
    return lc_mean(lc_square(x));
}

static lc_status wide_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    return lc_trainer_memory(self->trainer, &((wide *)self)->memory);
}

static lc_status wide_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-3));
}

static const lc_module_ops wide_ops = {LC_MODULE_OPS_INIT("wide"), .training_step = wide_step,
                                       .on_train_batch_end = wide_batch_end, .configure_optimizers = wide_optimizers};

typedef struct memory_job {
    const char *strategy, *limit;
    int stage;
    const char *refused; /* expected message */
    int64_t shard_size;
    bool stays; /* parameters stay in slices */
    int layers; /* 0 is taken as 2 */
} memory_job;

static bool close_to(int64_t got, double want)
{
    return fabs((double)got - want) <= 0.01 * want;
}

static lc_status hold(lc_comm *comm, void *ctx)
{
    const memory_job *j = ctx;
    int n = j->shard_size ? (int)j->shard_size : lc_comm_size(comm);
    wide m = {.n = j->layers ? j->layers : 2};
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.max_steps = 2;
    opt.strategy = j->strategy;
    opt.shard_size = j->shard_size;
    opt.memory_limit = j->limit;
    opt.gather_parameters = !j->stays;
    opt.bucket_cap_mb = 0.5;
    LC_TRY(loader_of(0, SAMPLES, 4, false, &l));
    lc_module_init(&m.base, &wide_ops, 1);
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int k = 0; k < m.n; k++) lc_linear_init(&m.layers[k], &m, names[k], WIDE, WIDE);
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = l);
    char why[1024];
    snprintf(why, sizeof why, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(l);
    lc_module_release(&m.base);
    if (j->refused) {
        if ((s == LC_ERR_MEMORY || s == LC_ERR_PEER) && strstr(why, j->refused)) return LC_OK;
        return lc_fail(LC_ERR_INTERNAL, "%d: %s", (int)s, why);
    }
    LC_TRY(s);
    double p = 4.0 * m.n * (WIDE * WIDE + WIDE);
    RANK_CHECK(close_to(m.memory.parameters, j->stage >= 3 ? p / n : p));
    RANK_CHECK(close_to(m.memory.gradients, j->stage >= 2 ? p / n : p));
    RANK_CHECK(close_to(m.memory.optimizer_state, j->stage >= 1 ? 2 * p / n : 2 * p));
    /* Gathered units count as intermediate results, as do units of gradients. */
    RANK_CHECK(m.memory.activations < (j->stage >= 2 ? 3 * p : p));
    return LC_OK;
}

TEST(memory_of_ranks_follows_the_formula)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    for (int stage = 0; stage < 4; stage++)
        for (int n = 1; n <= 4; n *= 2) {
            memory_job j = {.strategy = strategies[stage], .stage = stage};
            CHECK_RANKS("threads", n, hold, &j);
        }
}

TEST(memory_of_ranks_of_a_copy_follows_the_formula)
{
    static const int nodes[][2] = {{2, 1}, {2, 2}, {4, 2},
                                   {4, 1}, {8, 4}, {8, 2}}; /* ranks in all, and ranks of a copy */
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        memory_job j = {.strategy = "sharded_hybrid", .stage = 3, .shard_size = nodes[i][1]};
        CHECK_RANKS("threads", nodes[i][0], hold, &j);
    }
}

/* 16 bytes per parameter are 8 MiB. */
TEST(a_limit_refuses_ddp_but_not_sharded)
{
    const char *needs = "a rank needs 8.02 MiB (parameters and buffers 2.00, gradients 2.00, optimizer state 4.01) "
                        "and memory for its steps; memory_limit is 7.00 MiB. --strategy sharded";
    const char *alone_needs = "a rank needs 10.02 MiB (parameters and buffers 2.00, gradients 2.00, optimizer state "
                              "4.01, and whole parameters, when the run ends, 2.00); memory_limit is 7.00 MiB. More";
    memory_job alone = {.strategy = "sharded_hybrid", .limit = "7MiB", .refused = alone_needs, .shard_size = 1};
    memory_job copies = {.strategy = "sharded_hybrid", .limit = "7MiB", .stage = 3, .shard_size = 2};
    CHECK_RANKS("threads", 2, hold, &alone);
    CHECK_RANKS("threads", 4, hold, &copies);
    memory_job ddp = {.strategy = "ddp", .limit = "7MiB", .refused = needs};
    memory_job sharded = {.strategy = "sharded", .limit = "7MiB", .stage = 3};
    CHECK_RANKS("threads", 2, hold, &ddp);
    CHECK_RANKS("threads", 2, hold, &sharded);
}

/* With 2 MiB of parameters each of 4 ranks has 2 MiB of slices, including gradients and optimizer state. At the end it
 * has all of the parameters as well, unless they stay in slices. */
TEST(a_limit_counts_parameters_gathered_at_the_end)
{
    memory_job enough = {.strategy = "sharded", .limit = "5MiB", .stage = 3};
    memory_job less = {.strategy = "sharded",
                       .limit = "3.5MiB",
                       .refused = "a rank needs 4.01 MiB (parameters and buffers 0.50, gradients 0.50, optimizer "
                                  "state 1.00, and whole parameters, when the run ends, 2.00); memory_limit is 3.50 "
                                  "MiB. --gather_parameters false leaves them in slices"};
    memory_job whole = {.strategy = "sharded", .limit = "7.5MiB", .refused = "a rank needs 8.0", .layers = 4};
    memory_job slices = {.strategy = "sharded", .limit = "7.5MiB", .stage = 3, .stays = true, .layers = 4};
    memory_job few = {.strategy = "sharded", .limit = "1.5MiB", .refused = "More ranks would have smaller slices"};
    memory_job still = {.strategy = "sharded",
                        .limit = "1.5MiB",
                        .refused = "a rank needs 2.00 MiB (parameters and buffers 0.50, gradients 0.50, optimizer "
                                   "state 1.00) and memory for its steps; memory_limit is 1.50 MiB. More ranks",
                        .stays = true};
    CHECK_RANKS("threads", 4, hold, &enough);
    CHECK_RANKS("threads", 4, hold, &less);
    CHECK_RANKS("threads", 4, hold, &whole);
    CHECK_RANKS("threads", 4, hold, &slices);
    CHECK_RANKS("threads", 4, hold, &few);
    CHECK_RANKS("threads", 4, hold, &still);
}

TEST_MAIN
