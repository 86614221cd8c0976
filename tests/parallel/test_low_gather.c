/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters in slices, in mixed precision: what is only read rounded travels in 16 bits, vectors that are read in f32
 * by themselves, and a unit with a matrix that is read in f32 as it is; with the results of ddp. */
#include "comm_world.h"
#include "quiet_options.h"
#include "small_net.h"

#include "core/hooks/trainer_internal.h"
#include "parallel/reduce/reducer_impl.h"
#include "record/graph_impl.h"

/* Slices begin at multiples of 64 elements, so vectors of BROAD and more are on several ranks. */
enum { RANKS = 4, BROAD = 200, MIDDLE = 96, BATCH_OF_RANK = 4, WEIGHTS = BROAD * MIDDLE };

typedef struct net {
    lc_module base;
    lc_linear in, middle, out;
    lc_layer_norm norm;
    lc_tensor *scale; /* [1,FEATURES], of no product */
} net;

typedef struct run_of {
    const char *strategy, *precision;
    double unit_mb;
    int64_t shard_size, samples;
} run_of;

/* How often units are gathered in each way, in all plans. */
typedef struct outcome {
    float weights[WEIGHTS];
    int f32, low, vectors;
} outcome;

static outcome results[2][RANKS]; /* of ddp, and of another strategy */

static lc_tensor *train(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *h = lc_linear_forward(&m->in, lc_mul(b->x, m->scale));
    h = lc_linear_forward(&m->middle, lc_relu(lc_layer_norm_forward(&m->norm, h)));
    return lc_cross_entropy(lc_linear_forward(&m->out, lc_tanh(h)), b->y);
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = train,
                                      .configure_optimizers = small_net_sgd};

static lc_status net_init(net *m)
{
    lc_module_init(&m->base, &net_ops, 3);
    m->scale = lc_module_add_parameter(&m->base, "scale", LC_F32, LC_ROW_MAJOR, 2, (int64_t[]){1, FEATURES},
                                       (lc_init){.kind = LC_INIT_ONES});
    lc_linear_init(&m->in, m, "in", FEATURES, BROAD);
    lc_layer_norm_init(&m->norm, m, "norm", BROAD);
    lc_linear_init(&m->middle, m, "middle", BROAD, MIDDLE);
    lc_linear_init(&m->out, m, "out", MIDDLE, CLASSES);
    return lc_module_status(&m->base);
}

static void count_gathers(const lc_graph *g, outcome *o)
{
    for (int p = 0; p < g->n_plans; p++)
        for (int i = 0; i < g->plans[p]->n_calls; i++) {
            const lc_call *c = &g->plans[p]->calls[i].call;
            o->vectors += c->op == &lc__op_gather_vectors;
            if (c->op == &lc__op_gather_unit) *(c->in[0].dtype == LC_F32 ? &o->f32 : &o->low) += 1;
        }
}

static lc_status trains(lc_comm *comm, const run_of *r, outcome *out)
{
    net m = {0};
    lc_dataloader *loader;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = r->strategy;
    opt.precision = r->precision;
    opt.shard_size = r->shard_size;
    opt.bucket_cap_mb = r->unit_mb;
    opt.max_epochs = 2;
    LC_TRY(loader_of(0, r->samples, BATCH_OF_RANK, false, &loader));
    LC_TRY(net_init(&m));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = loader));
    LC_TRY(lc_tensor_read(m.middle.weight, out->weights, sizeof out->weights));
    count_gathers(t->graph, out);
    lc_trainer_free(t);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return LC_OK;
}

static lc_status by_ddp(lc_comm *comm, void *ctx)
{
    return trains(comm, ctx, &results[0][lc_comm_rank(comm)]);
}

static lc_status in_slices(lc_comm *comm, void *ctx)
{
    return trains(comm, ctx, &results[1][lc_comm_rank(comm)]);
}

static void compare(run_of r, int ranks, double tolerance)
{
    memset(results, 0, sizeof results);
    const run_of ddp = {.strategy = "ddp", .precision = r.precision, .unit_mb = r.unit_mb, .samples = r.samples};
    CHECK_RANKS("threads", ranks, by_ddp, (void *)&ddp);
    CHECK_RANKS("threads", ranks, in_slices, &r);
    for (int rank = 0; rank < ranks; rank++)
        for (int i = 0; i < WEIGHTS; i++) CHECK_NEAR(results[0][0].weights[i], results[1][rank].weights[i], tolerance);
}

/* All except `scale`, which comes last, in one unit; each parameter in its own; all in one. */
static const double large_unit = 80000.0 / (1 << 20), small_units = 100.0 / (1 << 20), one_unit = 100;

TEST(what_is_rounded_travels_in_16_bits)
{
    static const char *const precisions[] = {"bf16-mixed", "16-mixed"};
    for (int p = 0; p < 2; p++)
        for (int n = 2; n <= RANKS; n++) {
            run_of r = {.strategy = "sharded", .precision = precisions[p], .unit_mb = large_unit, .samples = 12 * n};
            compare(r, n, 0);
            for (int rank = 0; rank < n; rank++) {
                const outcome *o = &results[1][rank];
                CHECK(o->low > 0 && o->vectors > 0);
                CHECK(o->f32 > 0); /* of `scale` */
            }
            if (n == 4) {
                r.strategy = "sharded_hybrid", r.shard_size = 2;
                compare(r, n, 1e-6);
                CHECK(results[1][0].low > 0);
            }
        }
}

TEST(each_parameter_travels_by_itself)
{
    compare((run_of){.strategy = "sharded", .precision = "bf16-mixed", .unit_mb = small_units, .samples = 24}, 2, 0);
    CHECK(results[1][0].f32 > 0 && results[1][0].low > 0 && !results[1][0].vectors);
}

TEST(a_unit_with_a_matrix_of_f32_travels_as_it_is)
{
    compare((run_of){.strategy = "sharded", .precision = "bf16-mixed", .unit_mb = one_unit, .samples = 24}, 2, 0);
    CHECK(results[1][0].f32 > 0 && !results[1][0].low && !results[1][0].vectors);
}

TEST(full_precision_gathers_f32)
{
    compare((run_of){.strategy = "sharded", .precision = "32-true", .unit_mb = small_units, .samples = 24}, 2, 0);
    CHECK(results[1][0].f32 > 0 && !results[1][0].low && !results[1][0].vectors);
}

/* In the last batch of an epoch only rank 0 has a sample: the others gather for it. */
TEST(ranks_without_samples_gather_for_others)
{
    for (int n = 2; n <= RANKS; n++) {
        run_of r = {.strategy = "sharded", .precision = "bf16-mixed", .unit_mb = large_unit, .samples = 8 * n + 1};
        compare(r, n, 1e-6);
        CHECK(results[1][0].low > 0 && results[1][0].vectors > 0);
    }
}

TEST_MAIN
