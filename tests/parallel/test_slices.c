/* SPDX-License-Identifier: Apache-2.0 */
/* Models that are whole on no rank (gather_parameters=false): evaluated, trained, evaluated, trained again, and read
 * from a checkpoint, with the results of ddp. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

#include "core/hooks/trainer_internal.h"
#include "tensor/tensor_impl.h"

/* With layers of which every rank has a slice: slices begin at multiples of 64 elements. */
enum { RANKS = 4, BROAD = 96 };

/* Each layer is one unit or several. */
static const double small_units = 100.0 / (1 << 20);

typedef struct run_of {
    const char *strategy;
    int64_t shard_size;
    char root[320];
} run_of;

typedef struct numbers {
    float logits[5][VAL][CLASSES];
    double loss[5];
    float weight[BROAD * FEATURES];
} numbers;

typedef struct net {
    small_net base;
    lc_linear in, out;
    lc_tensor *fixed; /* of another type, in no optimizer */
} net;

static lc_tensor *logits(lc_module *self, lc_tensor *x)
{
    net *m = (net *)self;
    lc_tensor *h = lc_linear_forward(&m->out, lc_relu(lc_linear_forward(&m->in, x)));
    return lc_add(logits_of(&m->base, x), h);
}

static lc_tensor *train(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_cross_entropy(logits(self, b->x), b->y);
}

static lc_status score(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return log_scores(self, "val", logits(self, b->x), b->y, ((net *)self)->base.accuracy);
}

static lc_tensor *predict(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return logits(self, b->x);
}

static bool is_trained(void *ctx, const char *path, lc_module *owner, lc_tensor *parameter)
{
    (void)ctx, (void)owner, (void)parameter;
    return strcmp(path, "fixed") != 0;
}

static lc_status train_most(lc_module *self, lc_optimizers *out)
{
    lc_tensor **list;
    int n;
    lc_optimizer *opt = lc_sgd(self, .lr = 0.1, .momentum = 0.9, .no_parameters = true);
    LC_TRY(lc_module_parameters(self, is_trained, NULL, &list, &n));
    int group = opt ? lc_optimizer_add_group(opt, "most", list, n) : -1;
    free(list);
    LC_TRY(lc_optimizers_add(out, opt));
    return group < 0 ? LC_ERR_MEMORY : LC_OK;
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"), .training_step = train,  .validation_step = score,
    .test_step = score,        .predict_step = predict, .configure_optimizers = train_most,
};

static lc_status net_init(net *m, uint64_t seed)
{
    LC_TRY(small_net_init(&m->base, &net_ops, seed));
    lc_linear_init(&m->in, m, "in", FEATURES, BROAD);
    lc_linear_init(&m->out, m, "out", BROAD, CLASSES);
    m->fixed = lc_module_add_parameter(&m->base.base, "fixed", LC_F64, LC_ROW_MAJOR, 1, (int64_t[]){BROAD},
                                       (lc_init){.kind = LC_INIT_CONSTANT, .a = 3});
    lc_tensor_set_requires_grad(m->fixed, false);
    return lc_module_status(&m->base.base);
}

/* Also between runs. */
static lc_status check_slices(const lc_comm *comm, const run_of *r, lc_tensor *t)
{
    float whole[BROAD * FEATURES];
    if (lc_comm_size(comm) == 1) return LC_OK;
    RANK_CHECK(t->is_slice == (strcmp(r->strategy, "ddp") != 0));
    if (!t->is_slice) return LC_OK;
    RANK_CHECK(lc_tensor_read(t, whole, sizeof whole) == LC_ERR_STATE);
    RANK_CHECK(strstr(lc_error_message(), "lc_tensor_gather"));
    return LC_OK;
}

static lc_status evaluate(lc_trainer *t, lc_module *m, const lc_run_args *a, int k, numbers *n)
{
    lc_metrics found;
    LC_TRY(lc_trainer_test_with(t, m, a));
    found = lc_trainer_results(t, 0);
    for (int i = 0; i < found.n; i++)
        if (!strcmp(found.values[i].name, "val_loss")) n->loss[k] = found.values[i].value;
    LC_TRY(lc_trainer_validate_with(t, m, a));
    LC_TRY(lc_trainer_predict_with(t, m, a));
    return read_predictions(t, VAL, n->logits[k]);
}

/* Ranks start with different values: those of rank 0 are used. */
static lc_status evaluate_and_train(lc_comm *comm, const run_of *r, numbers *n)
{
    net m = {0}, other = {0};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    uint64_t seed = 1 + (uint64_t)lc_comm_rank(comm);
    double fixed[BROAD];
    char best[600];
    opt.strategy = r->strategy;
    opt.shard_size = r->shard_size;
    opt.gather_parameters = !strcmp(r->strategy, "ddp");
    opt.bucket_cap_mb = small_units;
    opt.max_epochs = 2;
    opt.default_root_dir = r->root;
    opt.enable_checkpointing = LC_ON;
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(loader_of(0, VAL, 4, false, &val));
    lc_run_args fit = LC_ARGS(lc_run, .train_dataloader = train, .val_dataloader = val);
    lc_run_args rest = LC_ARGS(lc_run, .dataloaders = &val, .n_dataloaders = 1);
    LC_TRY(net_init(&m, seed));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(evaluate(t, &m.base.base, &rest, 0, n));
    LC_TRY(check_slices(comm, r, m.in.weight));
    LC_TRY(lc_trainer_fit_with(t, &m.base.base, &fit));
    LC_TRY(check_slices(comm, r, m.in.weight));
    /* A tensor that was in slices only for an evaluation is not lost. */
    LC_TRY(lc_tensor_gather(m.fixed, fixed, sizeof fixed));
    for (int i = 0; i < BROAD; i++) RANK_CHECK(fixed[i] == 3);
    LC_TRY(evaluate(t, &m.base.base, &rest, 1, n));
    LC_TRY(check_slices(comm, r, m.in.weight));
    rest.ckpt_path = "best";
    LC_TRY(net_init(&other, seed + 7));
    LC_TRY(evaluate(t, &other.base.base, &rest, 2, n));
    LC_TRY(check_slices(comm, r, other.in.weight));
    snprintf(best, sizeof best, "%s", t->ckpt_path);
    LC_TRY(lc_tensor_gather(other.in.weight, n->weight, sizeof n->weight));
    lc_trainer_free(t);
    /* The slices of the first model were freed when the trainer took another model, and those of that one with the
     * trainer. A given checkpoint restores them, however the module is stored. */
    rest.ckpt_path = best;
    for (int whole = 0; whole < 2; whole++) {
        opt.gather_parameters = whole || !strcmp(r->strategy, "ddp");
        LC_TRY(lc_trainer_new(&opt, &t));
        LC_TRY(evaluate(t, whole ? &m.base.base : &other.base.base, &rest, 3 + whole, n));
        lc_trainer_free(t);
    }
    lc_dataloader_free(train);
    lc_dataloader_free(val);
    small_net_release(&m.base);
    small_net_release(&other.base);
    return LC_OK;
}

static numbers want[RANKS];

static lc_status by_ddp(lc_comm *comm, void *ctx)
{
    return evaluate_and_train(comm, ctx, &want[lc_comm_rank(comm)]);
}

static lc_status in_slices(lc_comm *comm, void *ctx)
{
    numbers n = {0};
    const numbers *w = &want[lc_comm_rank(comm)];
    LC_TRY(evaluate_and_train(comm, ctx, &n));
    for (int k = 0; k < 5; k++) {
        RANK_CHECK(n.loss[k] == w->loss[k]);
        RANK_CHECK(!memcmp(n.logits[k], w->logits[k], sizeof n.logits[k]));
    }
    RANK_CHECK(n.loss[1] < n.loss[0] && n.loss[2] == n.loss[1] && n.loss[3] == n.loss[1]);
    RANK_CHECK(!memcmp(n.weight, w->weight, sizeof n.weight));
    return LC_OK;
}

TEST(results_are_those_of_ddp)
{
    for (int n = 1; n <= RANKS; n++) {
        run_of r = {.strategy = "ddp"};
        snprintf(r.root, sizeof r.root, "%s", fresh_dir("ddp"));
        memset(want, 0, sizeof want);
        CHECK_RANKS("threads", n, by_ddp, &r);
        r.strategy = "sharded";
        snprintf(r.root, sizeof r.root, "%s", fresh_dir("sharded"));
        CHECK_RANKS("threads", n, in_slices, &r);
        for (r.shard_size = 1, r.strategy = "sharded_hybrid"; n == 4 && r.shard_size <= n; r.shard_size *= 2) {
            snprintf(r.root, sizeof r.root, "%s", fresh_dir("hybrid"));
            CHECK_RANKS("threads", n, in_slices, &r);
        }
    }
}

/* ---- a model that outlives its trainer ---- */

static lc_status outlive(lc_comm *comm, void *ctx)
{
    const char *how = ctx;
    net m = {0};
    lc_dataloader *val;
    float whole[BROAD * FEATURES];
    lc_trainer_options opt = quiet_options(comm);
    lc_trainer *t;
    opt.strategy = "sharded_3";
    opt.gather_parameters = !strcmp(how, "gathered");
    LC_TRY(loader_of(0, VAL, 4, false, &val));
    LC_TRY(net_init(&m, 1));
    lc_run_args rest = LC_ARGS(lc_run, .dataloaders = &val, .n_dataloaders = 1);
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_test_with(t, &m.base.base, &rest));
    lc_trainer_free(t);
    lc_status s = lc_tensor_read(m.in.weight, whole, sizeof whole);
    RANK_CHECK(opt.gather_parameters ? s == LC_OK : s == LC_ERR_STATE);
    LC_TRY(lc_trainer_new(&opt, &t));
    s = lc_trainer_test_with(t, &m.base.base, &rest);
    RANK_CHECK(opt.gather_parameters ? s == LC_OK : s == LC_ERR_STATE || s == LC_ERR_PEER);
    if (s == LC_ERR_STATE) RANK_CHECK(strstr(lc_error_message(), "to a freed trainer; load a checkpoint"));
    lc_trainer_free(t);
    lc_dataloader_free(val);
    small_net_release(&m.base);
    return LC_OK;
}

TEST(slices_are_freed_with_their_trainer)
{
    CHECK_RANKS("threads", 2, outlive, (void *)(uintptr_t) "in slices");
    CHECK_RANKS("threads", 2, outlive, (void *)(uintptr_t) "gathered");
}

/* A second trainer, with whole modules, gathers this one for itself; the first one slices it again. */
static lc_status two_trainers(lc_comm *comm, void *ctx)
{
    const char *strategy = ctx;
    net m = {0};
    lc_dataloader *val;
    float whole[BROAD * FEATURES];
    lc_trainer_options opt = quiet_options(comm);
    lc_trainer *cuts, *other;
    opt.strategy = "sharded_3";
    opt.gather_parameters = false;
    LC_TRY(loader_of(0, VAL, 4, false, &val));
    LC_TRY(net_init(&m, 1));
    lc_run_args rest = LC_ARGS(lc_run, .dataloaders = &val, .n_dataloaders = 1);
    LC_TRY(lc_trainer_new(&opt, &cuts));
    opt.gather_parameters = true;
    opt.strategy = strategy;
    LC_TRY(lc_trainer_new(&opt, &other));
    for (int i = 0; i < 2; i++) {
        LC_TRY(lc_trainer_test_with(cuts, &m.base.base, &rest));
        double loss = lc_trainer_results(cuts, 0).values[0].value;
        RANK_CHECK(lc_tensor_read(m.in.weight, whole, sizeof whole) == LC_ERR_STATE);
        LC_TRY(lc_trainer_test_with(other, &m.base.base, &rest));
        RANK_CHECK(lc_trainer_results(other, 0).values[0].value == loss);
        LC_TRY(lc_tensor_read(m.in.weight, whole, sizeof whole));
    }
    lc_trainer_free(cuts);
    lc_trainer_free(other);
    lc_dataloader_free(val);
    small_net_release(&m.base);
    return LC_OK;
}

TEST(two_trainers_of_a_module)
{
    CHECK_RANKS("threads", 2, two_trainers, (void *)(uintptr_t) "sharded_3");
    CHECK_RANKS("threads", 3, two_trainers, (void *)(uintptr_t) "ddp");
}

/* ---- loaders of the ranks' own ---- */

static lc_status differ_in_length(lc_comm *comm, void *ctx)
{
    net m = {0};
    lc_dataloader *val;
    lc_trainer_options opt = quiet_options(comm);
    lc_trainer *t;
    (void)ctx;
    opt.strategy = "sharded_3";
    opt.gather_parameters = opt.use_distributed_sampler = false;
    LC_TRY(loader_of(0, 8 + 4 * lc_comm_rank(comm), 4, false, &val));
    LC_TRY(net_init(&m, 1));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_test(t, &m.base.base, .dataloaders = &val, .n_dataloaders = 1);
    RANK_CHECK(s == LC_ERR_CONFIG || s == LC_ERR_PEER);
    RANK_CHECK(s == LC_ERR_PEER ||
               strstr(lc_error_message(), "2 to 4 batches: with parameters in slices (--strategy sharded_3)"));
    lc_trainer_free(t);
    lc_dataloader_free(val);
    small_net_release(&m.base);
    return LC_OK;
}

TEST(loaders_of_different_lengths_are_refused)
{
    CHECK_RANKS("threads", 3, differ_in_length, NULL);
}

TEST_MAIN
