/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients over ranks, in the engine: N ranks with batch B equal one rank with batch N * B, whatever the bucket size,
 * with accumulation, clipping and the state of several optimizers. */
#include "comm_world.h"
#include "model_values.h"
#include "wire_bytes.h"

#include "bench/models.h"
#include "parallel/reduce/reducer.h"

typedef struct job {
    const char *model;
    int64_t batch, per_rank; /* of all ranks together; uneven ranks are weighted by their number of samples */
    int accumulate, steps;
    double clip;
    int stage;    /* the stage of sharding */
    int per_node; /* ranks that share a copy; 0: all of them */
    size_t bucket;
    bool uneven;
    bool looks;  /* reads the gradients of every step, which become values too */
    bool again;  /* the loss is computed again after the update, in the same step */
    float *want; /* one rank's result */
    int64_t n;
    double *want_loss;
} job;

enum { CLASSES = 11, CONTEXT = 8, PIXELS = 784 };

/* Samples [begin, end) of the global batch of a micro-batch. */
static void fill(bool tokens, uint64_t key, int64_t begin, int64_t end, void *x, int64_t *y)
{
    int64_t nx = tokens ? CONTEXT : PIXELS, ny = tokens ? CONTEXT : 1;
    for (int64_t i = begin * nx; i < end * nx; i++) {
        if (tokens)
            ((int64_t *)x)[i - begin * nx] = (int64_t)lc_random_below(key, (uint64_t)i, CLASSES);
        else
            ((float *)x)[i - begin * nx] = (float)lc_random_normal(key, (uint64_t)i);
    }
    for (int64_t i = begin * ny; i < end * ny; i++)
        y[i - begin * ny] = (int64_t)lc_random_below(key + 1000, (uint64_t)i, tokens ? CLASSES : 10);
}

/* The ranks that share a copy with this one, and those of other copies with the same slice. */
typedef struct copies {
    lc_comm *slices, *replicas;
} copies;

static lc_status make_copies(lc_comm *comm, int per_node, lc__reducer *r, copies *out)
{
    int me = lc_comm_rank(comm);
    *out = (copies){0};
    if (!per_node) return LC_OK;
    LC_TRY(lc_comm_split(comm, me / per_node, me, &out->slices));
    LC_TRY(lc_comm_split(comm, me % per_node, me, &out->replicas));
    lc__reducer_replicate(r, out->slices, out->replicas);
    return LC_OK;
}

static void free_copies(copies *c)
{
    lc_comm_free(c->slices);
    lc_comm_free(c->replicas);
}

enum { PARAMETERS = 64 };

static lc_status keep_gradients(const lc_optimizer *opt, lc_tensor *kept[PARAMETERS])
{
    const lc_param_group *group = &opt->groups[0];
    RANK_CHECK(opt->n_groups == 1 && group->n_parameters <= PARAMETERS);
    for (int k = 0; k < group->n_parameters; k++) kept[k] = lc_keep(lc_gradient(group->parameters[k]));
    return LC_OK;
}

static lc_status copy_gradients(const lc_optimizer *opt, lc_tensor *kept[PARAMETERS], values *out)
{
    for (int k = 0; k < opt->groups[0].n_parameters; k++)
        LC_TRY(copy_out(out, "", NULL, &(lc_module_tensor){.tensor = kept[k]}));
    return LC_OK;
}

/* One rank's training; comm NULL: the only one. */
static lc_status train(const job *j, lc_comm *comm, values *out, double *losses)
{
    int n = comm ? lc_comm_size(comm) : 1, me = comm ? lc_comm_rank(comm) : 0;
    bool tokens = !strcmp(j->model, "gpt_small");
    int64_t begin = j->batch * me / n, end = j->batch * (me + 1) / n;
    if (j->uneven && n > 1) begin = me ? j->batch / n + me - 1 : 0, end = me == n - 1 ? j->batch : j->batch / n + me;
    int64_t count = end - begin;
    lc_graph *g;
    lc__reducer *r = NULL;
    copies parts = {0};
    LC_TRY(lc_graph_new(&g, .threads = 1, .seed = 5));
    model *m = model_new(j->model, NULL, 7);
    RANK_CHECK(m != NULL);
    lc_module_train(&m->base, true);
    lc_optimizer *opt = lc_sgd(m, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3);
    RANK_CHECK(opt != NULL);
    if (comm) {
        LC_TRY(lc__reducer_new(g, comm, j->bucket, &r));
        lc__reducer_shard(r, j->stage);
        LC_TRY(make_copies(comm, j->stage ? j->per_node : 0, r, &parts));
        LC_TRY(lc__reducer_add(r, opt));
        lc__reducer_set_weight(r, (double)count * n / (double)j->batch);
    }
    void *xs = malloc((size_t)(count * (tokens ? CONTEXT : PIXELS)) * 8);
    int64_t *ys = malloc((size_t)(count * CONTEXT) * 8);
    lc_tensor *x, *y;
    LC_TRY(tokens ? lc_input_new(LC_I64, 2, (int64_t[]){count, CONTEXT}, LC_ROW_MAJOR, xs, &x)
                  : lc_input_new(LC_F32, 4, (int64_t[]){count, 1, 28, 28}, LC_ROW_MAJOR, xs, &x));
    LC_TRY(lc_input_new(LC_I64, tokens ? 2 : 1, (int64_t[]){count, CONTEXT}, LC_ROW_MAJOR, ys, &y));
    for (int s = 0; s < j->steps; s++)
        for (int micro = 0; micro < j->accumulate; micro++) {
            double loss;
            lc_tensor *gradients[PARAMETERS];
            fill(tokens, (uint64_t)(100 + s * j->accumulate + micro), begin, end, xs, ys);
            LC_TRY(lc_step_begin(g, (uint64_t)s, (uint64_t)micro));
            lc_tensor *l = lc_keep(model_loss(m, x, y));
            if (micro == 0) lc_zero_grad(g);
            lc_backward(l);
            bool last = micro == j->accumulate - 1;
            if (r && (last || j->stage >= 2)) {
                uint8_t flags[LC__SYNC_FLAGS] = {[3] = (uint8_t)(me + s)};
                LC_TRY(lc__reducer_sync(r, flags));
                RANK_CHECK(flags[3] == n - 1 + s);
            }
            if (last && j->looks) LC_TRY(keep_gradients(opt, gradients));
            if (last && j->clip > 0) lc_clip_grad_norm(opt, j->clip);
            if (last) lc_optimizer_step(opt);
            if (last && j->again) l = lc_keep(model_loss(m, x, y));
            LC_TRY(lc_step_run(g));
            LC_TRY(lc_item(l, &loss));
            if (last && j->looks) LC_TRY(copy_gradients(opt, gradients, out));
            LC_TRY(lc_step_end(g));
            losses[s] = loss * (double)count / (double)j->batch;
        }
    LC_TRY(lc_module_visit(&m->base, copy_out, out));
    if (r) {
        lc__reducer_stats stats;
        lc__reducer_get_stats(r, &stats);
        RANK_CHECK(stats.syncs == j->steps * (j->stage >= 2 ? j->accumulate : 1));
        RANK_CHECK(j->bucket == 0 || stats.buckets >= 2 * stats.syncs);
    }
    if (r && j->looks && j->accumulate == 1) { /* reading splits no plan: one up to the sync, one after it */
        lc_graph_stats stats;
        lc_graph_get_stats(g, &stats);
        RANK_CHECK(stats.hits + stats.misses == 2 * j->steps);
    }
    lc__reducer_free(r);
    free_copies(&parts);
    lc_optimizer_free(opt);
    model_free(m);
    lc_tensor_unref(x), lc_tensor_unref(y);
    free(xs), free(ys);
    lc_graph_free(g);
    return LC_OK;
}

static lc_status as_one(lc_comm *comm, void *ctx)
{
    const job *j = ctx;
    values got = {0};
    double loss[8];
    float *first;
    LC_TRY(train(j, comm, &got, loss));
    RANK_CHECK(got.n == j->n);
    LC_TRY(lc_comm_all_reduce(comm, loss, loss, j->steps, LC_F64, LC_COMM_SUM, NULL));
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < got.n; i++) {
        worst = fmax(worst, fabs((double)got.v[i] - j->want[i]));
        largest = fmax(largest, fabs(j->want[i]));
        RANK_CHECK(isfinite(got.v[i]));
    }
    if (!(worst <= 2e-6 * largest))
        return lc_fail(LC_ERR_INTERNAL, "%s: parameters differ by %g of %g", j->model, worst, largest);
    for (int s = 0; s < j->steps; s++) RANK_CHECK(fabs(loss[s] - j->want_loss[s]) < 1e-5 * (1 + j->want_loss[s]));
    /* all ranks are the same to the last bit */
    first = malloc((size_t)got.n * sizeof *first);
    memcpy(first, got.v, (size_t)got.n * sizeof *first);
    LC_TRY(lc_comm_broadcast(comm, first, got.n, LC_F32, 0, NULL));
    RANK_CHECK(!memcmp(first, got.v, (size_t)got.n * sizeof *first));
    free(first);
    free(got.v);
    return LC_OK;
}

static void check(job j)
{
    values one = {0};
    double loss[8];
    j.steps = takes_all() ? j.steps : 2; /* one step that plans, and one that finds the plan */
    CHECK_OK(train(&j, NULL, &one, loss));
    j.want = one.v;
    j.n = one.n;
    j.want_loss = loss;
    for (int n = 1; n <= 4; n++) {
        CHECK_RANKS("threads", n, as_one, &j);
        if (n == 2) CHECK_RANKS("shm", n, as_one, &j);
    }
    free(one.v);
}

TEST(ranks_are_one_rank_mlp)
{
    check((job){.model = "mlp", .batch = 12, .accumulate = 1, .steps = 4, .bucket = 4096});
}
TEST(ranks_are_one_rank_with_one_bucket)
{
    check((job){.model = "mlp", .batch = 12, .accumulate = 1, .steps = 4});
}
TEST(ranks_are_one_rank_gpt)
{
    check((job){.model = "gpt_small", .batch = 12, .accumulate = 1, .steps = 4, .bucket = 4096, .clip = 0.5});
}
TEST(ranks_are_one_rank_over_accumulation)
{
    check((job){.model = "gpt_small", .batch = 12, .accumulate = 3, .steps = 3, .bucket = 10000, .clip = 0.3});
}
TEST(ranks_are_one_rank_with_uneven_batches)
{
    check((job){.model = "mlp", .batch = 13, .accumulate = 2, .steps = 3, .bucket = 4096, .uneven = true});
}

/* ---- sharded is ddp, to the last bit ---- */

static lc_status as_ddp(lc_comm *comm, void *ctx)
{
    job j = *(const job *)ctx;
    values want = {0}, got = {0};
    double loss[8], want_loss[8];
    int stage = j.stage;
    j.stage = 0;
    LC_TRY(train(&j, comm, &want, want_loss));
    j.stage = stage;
    LC_TRY(train(&j, comm, &got, loss));
    RANK_CHECK(got.n == want.n);
    /* Over a window, stages 2 and 3 add sums over ranks, where ddp adds the passes first. */
    bool bits = j.accumulate == 1 || stage == 1;
    for (int64_t i = 0; i < got.n; i++) {
        double d = fabs((double)got.v[i] - want.v[i]);
        if (bits ? got.v[i] != want.v[i] : !(d <= 2e-6))
            return lc_fail(LC_ERR_INTERNAL, "stage %d: value %lld is %.9g, not %.9g", stage, (long long)i, got.v[i],
                           want.v[i]);
    }
    for (int s = 0; s < j.steps; s++) RANK_CHECK(bits ? loss[s] == want_loss[s] : fabs(loss[s] - want_loss[s]) < 1e-5);
    free(got.v);
    free(want.v);
    return LC_OK;
}

static void check_sharded_on(job j, int first, int step)
{
    j.steps = takes_all() ? j.steps : 2;
    for (j.stage = 1; j.stage <= 3; j.stage++)
        for (int n = first; n <= 4; n += step) {
            CHECK_RANKS("threads", n, as_ddp, &j);
            if (n == 2 && !RACES_ALONE) CHECK_RANKS("shm", n, as_ddp, &j);
        }
}

static void check_sharded(job j)
{
    check_sharded_on(j, RACES_ALONE ? 2 : 1, RACES_ALONE ? 2 : 1);
}

TEST(sharded_is_ddp_mlp)
{
    check_sharded((job){.model = "mlp", .batch = 12, .accumulate = 1, .steps = 4, .bucket = 4096});
}
TEST(sharded_is_ddp_with_one_unit)
{
    check_sharded((job){.model = "mlp", .batch = 12, .accumulate = 1, .steps = 3});
}
TEST(sharded_is_ddp_gpt)
{
    check_sharded((job){.model = "gpt_small", .batch = 12, .accumulate = 1, .steps = 4, .bucket = 4096, .clip = 0.5});
}
TEST(sharded_is_ddp_over_accumulation)
{
    check_sharded((job){.model = "gpt_small", .batch = 12, .accumulate = 3, .steps = 3, .bucket = 10000, .clip = 0.3});
}
TEST(sharded_is_ddp_with_uneven_batches)
{
    check_sharded((job){.model = "mlp", .batch = 13, .accumulate = 1, .steps = 3, .bucket = 4096, .uneven = true});
}

TEST(sharded_has_the_gradients_of_ddp)
{
    /* A large one, which has no other races: otherwise only with the number of ranks that share it unevenly. */
    if (!RACES_ALONE)
        check_sharded_on(
            (job){.model = "fashion", .batch = 4, .accumulate = 1, .steps = 2, .bucket = 4096, .looks = true},
            takes_all() ? 1 : 3, takes_all() ? 1 : 2);
    check_sharded((job){
        .model = "gpt_small", .batch = 12, .accumulate = 1, .steps = 2, .bucket = 4096, .clip = 0.5, .looks = true});
    check_sharded((job){.model = "gpt_small", .batch = 12, .accumulate = 2, .steps = 2, .looks = true});
}

TEST(sharded_is_ddp_after_the_update)
{
    check_sharded((job){
        .model = "gpt_small", .batch = 12, .accumulate = 1, .steps = 3, .bucket = 4096, .clip = 0.5, .again = true});
}

/* Copies of the whole, each in slices on the ranks of a node: these are a subtree of the tree that sums follow if their
 * number is a power of two; otherwise sums are added in a different order. */
static const int nodes[][2] = {{2, 1}, {2, 2}, {4, 2}, {4, 1}, {8, 4}, {8, 2}};

static void check_hybrid(job j)
{
    j.stage = 3;
    j.steps = takes_all() ? j.steps : 2;
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i += RACES_ALONE ? 2 : 1) {
        j.per_node = nodes[i][1];
        CHECK_RANKS("threads", nodes[i][0], as_ddp, &j);
        if (nodes[i][0] == 4 && !RACES_ALONE) CHECK_RANKS("shm", 4, as_ddp, &j);
    }
}

TEST(hybrid_is_ddp_mlp)
{
    check_hybrid((job){.model = "mlp", .batch = 16, .accumulate = 1, .steps = 4, .bucket = 4096});
}
TEST(hybrid_is_ddp_with_one_unit)
{
    check_hybrid((job){.model = "mlp", .batch = 16, .accumulate = 1, .steps = 3});
}
TEST(hybrid_is_ddp_gpt)
{
    check_hybrid((job){.model = "gpt_small", .batch = 16, .accumulate = 1, .steps = 3, .bucket = 4096, .clip = 0.5});
}
TEST(hybrid_is_ddp_over_accumulation)
{
    check_hybrid((job){.model = "gpt_small", .batch = 16, .accumulate = 3, .steps = 2, .bucket = 10000, .clip = 0.3});
}
TEST(hybrid_is_ddp_with_uneven_batches)
{
    check_hybrid((job){.model = "mlp", .batch = 29, .accumulate = 1, .steps = 3, .bucket = 4096, .uneven = true});
}
TEST(hybrid_has_the_gradients_of_ddp)
{
    check_hybrid((job){
        .model = "gpt_small", .batch = 16, .accumulate = 1, .steps = 2, .bucket = 4096, .clip = 0.5, .looks = true});
}
TEST(hybrid_is_ddp_between_hosts)
{
    job j = {.model = "gpt_small", .batch = 16, .accumulate = 1, .steps = 3, .bucket = 4096, .stage = 3, .per_node = 2};
    CHECK_RANKS("tcp", 4, as_ddp, &j);
    CHECK_RANKS("shm+tcp/2", 4, as_ddp, &j);
}
TEST(hybrid_with_three_ranks_a_node_is_one_rank)
{
    job j = {.model = "mlp", .batch = 12, .accumulate = 1, .steps = 3, .bucket = 4096, .stage = 3, .per_node = 3};
    values one = {0};
    double loss[8];
    CHECK_OK(train(&j, NULL, &one, loss));
    j.want = one.v, j.n = one.n, j.want_loss = loss;
    CHECK_RANKS("threads", 6, as_one, &j);
    free(one.v);
}

/* ---- bytes on the wire (over MPI: test_comm_mpi.c) ---- */

TEST(bytes_on_the_wire_follow_the_formula)
{
    static const char *const backends[] = {"threads", "shm", "tcp"};
    for (int b = 0; b < (takes_all() ? 3 : 1); b++)
        for (int n = 2; n <= (RACES_ALONE ? 2 : 4); n += takes_all() ? 1 : 2)
            CHECK_RANKS(backends[b], n, wire_bytes, NULL);
    if (takes_all()) CHECK_RANKS("shm+tcp/2", 4, wire_bytes, NULL);
}

static int64_t sent_by(const lc_comm *comm)
{
    lc_comm_stats stats;
    lc_comm_get_stats(comm, &stats);
    return stats.sent;
}

/* Bytes of a step of wire_bytes.h in stage 3, within a node and to other nodes. */
static lc_status bytes_of_copies(lc_comm *comm, void *ctx)
{
    int n = *(const int *)ctx, hosts = lc_comm_size(comm) / n;
    copies parts;
    deep m;
    lc_graph *g;
    lc__reducer *r;
    lc_tensor *x;
    float data[BROAD] = {1};
    uint8_t flags[LC__SYNC_FLAGS] = {0};
    lc_module_init(&m.base, &deep_ops, 3);
    for (int i = 0; i < DEEP; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        lc_linear_init(&m.l[i], &m, name, BROAD, BROAD);
    }
    LC_TRY(lc_module_status(&m.base));
    LC_TRY(lc_graph_new(&g, .threads = 1));
    lc_optimizer *opt = lc_adam(&m.base, .lr = 1e-3);
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, BROAD}, LC_ROW_MAJOR, data, &x));
    LC_TRY(lc__reducer_new(g, comm, 0, &r));
    lc__reducer_shard(r, 3);
    LC_TRY(make_copies(comm, n, r, &parts));
    LC_TRY(lc__reducer_add(r, opt));
    int64_t before = sent_by(comm), begun = sent_by(parts.replicas);
    LC_TRY(lc_step_begin(g, 0, 0));
    lc_tensor *y = x;
    for (int i = 0; i < DEEP; i++) y = lc_linear_forward(&m.l[i], y);
    lc_zero_grad(g);
    lc_backward(lc_mean(y));
    LC_TRY(lc__reducer_sync(r, flags));
    lc_optimizer_step(opt);
    LC_TRY(lc_step_run(g));
    LC_TRY(lc_step_end(g));
    double p = 4.0 * DEEP * (BROAD * BROAD + BROAD), all = (double)(sent_by(comm) - before);
    double within = (double)sent_by(parts.slices), want_within = (3 - 3.0 / DEEP) * p * (n - 1) / n;
    double between = (double)(sent_by(parts.replicas) - begun), want_between = 2 * p / n * (hosts - 1) / hosts;
    RANK_CHECK(all < 1e-4 * p); /* flags only */
    if (!(fabs(within - want_within) <= 0.02 * want_within) || !(fabs(between - want_between) <= 0.02 * want_between))
        return lc_fail(LC_ERR_INTERNAL,
                       "with %d of %d ranks a node %.0f bytes stay there and %.0f leave, not %.0f, %.0f", n,
                       lc_comm_size(comm), within, between, want_within, want_between);
    lc__reducer_free(r);
    free_copies(&parts);
    lc_optimizer_free(opt);
    lc_tensor_unref(x);
    lc_graph_free(g);
    lc_module_release(&m.base);
    return LC_OK;
}

/* Within a node 3P(n-1)/n, and to other nodes 2(P/n)(H-1)/H. */
TEST(bytes_on_the_wire_with_copies_follow_the_formula)
{
    for (size_t i = 0; i < (RACES_ALONE ? 1 : sizeof nodes / sizeof *nodes); i++)
        CHECK_RANKS("threads", nodes[i][0], bytes_of_copies, (void *)(uintptr_t)&nodes[i][1]);
}

TEST_MAIN
