/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples a rank gets: evaluation of every one once, in the order of the data; loaders of the ranks' own; and too
 * few for all. */
#include "ddp_run.h"

static lc_status run_rank_that_fails(lc_comm *comm, void *ctx)
{
    (void)!run_rank(comm, ctx);
    return LC_OK;
}

static void check_refused(job *j)
{
    static ranks_job r;
    int saw = 0; /* who sees it first ends the others, which may be a call behind */
    memset(&r, 0, sizeof r);
    r.j = j;
    CHECK_RANKS("threads", 3, run_rank_that_fails, &r);
    for (int i = 0; i < 3; i++) {
        CHECK(r.o[i].status == LC_ERR_CONFIG || r.o[i].status == LC_ERR_PEER);
        saw += r.o[i].status == LC_ERR_CONFIG;
    }
    CHECK(saw > 0);
}

/* A batch with fewer samples than ranks, where the module says how often they meet. */
TEST(manual_optimisation_needs_samples_on_every_rank)
{
    job j = job_of("manual_empty");
    manually(&j);
    j.samples = GLOBAL_BATCH + 2;
    check_refused(&j);
}

TEST(evaluation_needs_samples_on_every_rank)
{
    job j = job_of("few");
    j.val = 2;
    check_refused(&j);
}

TEST(logging_needs_samples_on_every_rank_at_first)
{
    job j = job_of("few_at_first");
    j.samples = 2;
    check_refused(&j);
}

/* ---- evaluation: every sample once, in the order of the data ---- */

typedef struct predictions {
    float v[VAL][CLASSES];
    double loss;
} predictions;

static lc_status evaluate(lc_comm *comm, bool own_loaders, predictions *out)
{
    int n = comm ? lc_comm_size(comm) : 1;
    small_net m = {0};
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.use_distributed_sampler = !own_loaders;
    opt.strategy = comm ? "ddp" : NULL;
    /* Other seeds: parameters are rank 0's all the same. */
    LC_TRY(small_net_init(&m, &small_net_ops, comm ? 1 + (uint64_t)lc_comm_rank(comm) : 1));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, GLOBAL_BATCH / n, false, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_validate(t, &m.base, &(lc_run_args){.val_dataloader = l}));
    LC_TRY(lc_trainer_metric(t, "val_loss", &out->loss));
    LC_TRY(lc_trainer_predict(t, &m.base, &(lc_run_args){.dataloaders = &l, .n_dataloaders = 1}));
    LC_TRY(read_predictions(t, VAL, out->v));
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m);
    return LC_OK;
}

static lc_status evaluate_rank(lc_comm *comm, void *ctx)
{
    const predictions *one = ctx;
    predictions mine;
    /* Shared, and each rank with a loader of its own, which are the same here. */
    for (int own = 0; own < 2; own++) {
        LC_TRY(evaluate(comm, own, &mine));
        RANK_CHECK(fabs(mine.loss - one->loss) < 1e-6);
        for (int i = 0; i < VAL; i++)
            for (int k = 0; k < CLASSES; k++) RANK_CHECK(fabsf(mine.v[i][k] - one->v[i][k]) < 1e-5f);
    }
    return LC_OK;
}

TEST(ranks_evaluate_every_sample_once_and_in_order)
{
    static predictions one;
    CHECK_OK(evaluate(NULL, false, &one));
    for (int n = 1; n <= 4; n++) CHECK_RANKS("threads", n, evaluate_rank, &one);
}

/* ---- several loaders ---- */

enum { LOADERS = 2 };

typedef struct scores {
    double loss[LOADERS], accuracy[LOADERS];
} scores;

typedef struct scored_net {
    small_net base;
    lc_metric *second;
} scored_net;

static lc_status score(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    scored_net *m = (scored_net *)self;
    (void)i;
    return log_scores(self, "val", logits_of(&m->base, b->x), b->y, loader ? m->second : m->base.accuracy);
}

static const lc_module_ops two_loaders_ops = {LC_MODULE_OPS_INIT("net"), .validation_step = score};

static lc_status score_two(lc_comm *comm, scores *out)
{
    int n = comm ? lc_comm_size(comm) : 1;
    scored_net m = {0};
    lc_dataloader *l[LOADERS];
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? "ddp" : NULL;
    LC_TRY(small_net_init(&m.base, &two_loaders_ops, 1));
    LC_TRY(lc_metric_new("Accuracy", &(lc_metric_options){.num_classes = CLASSES}, &m.second));
    for (int i = 0; i < LOADERS; i++) LC_TRY(loader_of(20 * i, 29 - 12 * i, GLOBAL_BATCH / n, false, &l[i]));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_validate(t, &m.base.base, &(lc_run_args){.dataloaders = l, .n_dataloaders = LOADERS}));
    for (int i = 0; i < LOADERS; i++) {
        char name[64];
        snprintf(name, sizeof name, "val_loss/dataloader_idx_%d", i);
        LC_TRY(lc_trainer_metric(t, name, &out->loss[i]));
        snprintf(name, sizeof name, "val_acc/dataloader_idx_%d", i);
        LC_TRY(lc_trainer_metric(t, name, &out->accuracy[i]));
    }
    lc_trainer_free(t);
    for (int i = 0; i < LOADERS; i++) lc_dataloader_free(l[i]);
    small_net_release(&m.base);
    lc_metric_free(m.second);
    return LC_OK;
}

static lc_status score_two_of_rank(lc_comm *comm, void *ctx)
{
    const scores *one = ctx;
    scores mine;
    LC_TRY(score_two(comm, &mine));
    for (int i = 0; i < LOADERS; i++) {
        RANK_CHECK(fabs(mine.loss[i] - one->loss[i]) < 1e-6);
        RANK_CHECK(fabs(mine.accuracy[i] - one->accuracy[i]) < 1e-9);
    }
    return LC_OK;
}

TEST(metrics_of_each_loader_are_those_of_all_ranks)
{
    static scores one;
    CHECK_OK(score_two(NULL, &one));
    for (int n = 2; n <= 4; n++) CHECK_RANKS("threads", n, score_two_of_rank, &one);
}

/* ---- loaders of the ranks' own ---- */

static lc_status own_data(lc_comm *comm, void *ctx)
{
    int me = lc_comm_rank(comm);
    small_net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    (void)ctx;
    opt.strategy = "ddp";
    opt.max_epochs = 2;
    opt.use_distributed_sampler = false;
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    LC_TRY(loader_of(0, 20 + 8 * me, 4, false, &train)); /* 5, 7, 9 batches */
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, &(lc_run_args){.train_dataloader = train}));
    RANK_CHECK(lc_trainer_global_step(t) == 10);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return LC_OK;
}

TEST(ranks_with_data_of_their_own_train_on_as_many_batches)
{
    CHECK_RANKS("threads", 3, own_data, NULL);
}

TEST_MAIN
