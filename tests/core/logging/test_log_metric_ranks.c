/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics that ranks log in training survive a resume inside an epoch on any number of ranks, some or all of which may
 * have no samples left. At the end of the epoch each rank gets the values that one process computes. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

enum { GLOBAL_BATCH = 12, BATCHES = 3, TRAIN = 2 * GLOBAL_BATCH + 1, MOST_RANKS = 3 };

/* "mse" and "again" are metrics of one kind, "again" also logged by ranks without samples; another keeps every sample.
 */
static const char *const names[] = {"mse", "again", "late", "rank"};
enum { NAMES = sizeof names / sizeof *names };

typedef struct job {
    char root[320], saved[400];
    const char *strategy, *ckpt_path;
    int64_t save_after; /* save after this batch of the first epoch; -1: never */
    double v[MOST_RANKS][NAMES], score[MOST_RANKS];
} job;

typedef struct net {
    small_net base;
    job *j;
    lc_metric *mse, *rank;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    float x[GLOBAL_BATCH], y[GLOBAL_BATCH];
    (void)i;
    for (int64_t k = 0; k < b->size; k++) {
        x[k] = (float)b->indices[k];
        y[k] = sinf(x[k]) * 9;
    }
    if (lc_metric_update_values(m->mse, b->size, x, y) < 0 || lc_metric_update_values(m->rank, b->size, x, y) < 0)
        return NULL;
    lc_log_metric(self, "mse", m->mse);
    lc_log_metric(self, "again", m->mse);
    lc_log_metric(self, "rank", m->rank);
    return lc_cross_entropy(logits_of(&m->base, b->x), b->y);
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b;
    lc_log_metric(self, "late", m->mse);
    if (i != m->j->save_after || lc_trainer_current_epoch(self->trainer) > 0) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, m->j->saved, false);
}

static lc_status on_train_epoch_end(lc_module *self)
{
    job *j = ((net *)self)->j;
    for (int k = 0; k < NAMES && lc_trainer_current_epoch(self->trainer) == 0; k++)
        LC_TRY(lc_trainer_metric(self->trainer, names[k], &j->v[lc_trainer_global_rank(self->trainer)][k]));
    return LC_OK;
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .on_train_epoch_end = on_train_epoch_end,
    .configure_optimizers = small_net_sgd,
};

static lc_status fit(job *j, net *m, lc_trainer *t, lc_dataloader *train, const lc_callback *saves)
{
    lc_model_checkpoint_info info;
    LC_TRY(lc_trainer_fit(t, &m->base.base, .train_dataloader = train));
    LC_TRY(lc_model_checkpoint_get(saves, &info));
    j->score[lc_trainer_global_rank(t)] = info.best_model_score;
    return LC_OK;
}

static lc_status run(job *j, lc_comm *comm)
{
    net m = {.j = j};
    lc_dataloader *train;
    lc_trainer *t;
    lc_callback saves, stops;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? j->strategy : NULL;
    opt.max_epochs = 2;
    opt.enable_checkpointing = LC_ON;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    LC_TRY(loader_of(0, TRAIN, GLOBAL_BATCH / (comm ? lc_comm_size(comm) : 1), true, &train));
    LC_TRY(small_net_init(&m.base, &net_ops, 1));
    LC_TRY(lc_metric_new("MeanSquaredError", &m.mse));
    LC_TRY(lc_metric_new("SpearmanCorrCoef", &m.rank));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_model_checkpoint(&saves, .monitor = "mse"));
    LC_TRY(lc_trainer_add_callback(t, saves));
    LC_TRY(lc_early_stopping(&stops, .monitor = "rank"));
    LC_TRY(lc_trainer_add_callback(t, stops));
    lc_status s = fit(j, &m, t, train, &saves);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    lc_metric_free(m.mse);
    lc_metric_free(m.rank);
    return s;
}

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    return run(ctx, comm);
}

static job job_of(const char *strategy, const char *ckpt_path, int64_t save_after)
{
    job j = {.strategy = strategy, .ckpt_path = ckpt_path, .save_after = save_after};
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(ckpt_path ? save_after < 0 ? "last" : "next" : "first"));
    snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
    return j;
}

static void check(const job *whole, job *j, int ranks, const char *what)
{
    CHECK_RANKS("threads", ranks, run_rank, j);
    for (int r = 0; r < ranks; r++) {
        for (int k = 0; k < NAMES; k++)
            if (!(fabs(j->v[r][k] - whole->v[0][k]) <= 1e-9 * fabs(whole->v[0][k])))
                TEST_FAIL("%s, %s of %d ranks: %s of rank %d is %.12g, wanted %.12g", what, j->strategy, ranks,
                          names[k], r, j->v[r][k], whole->v[0][k]);
        CHECK_NEAR(j->score[r], whole->score[0], 1e-9 * whole->score[0]);
    }
}

/* After each batch, the last of which leaves ranks without samples; then after the end of the epoch. */
TEST(a_resumed_epoch_keeps_its_metrics)
{
    static const char *const strategies[] = {"ddp", "sharded_2"};
    job whole = job_of(NULL, NULL, -1);
    CHECK_OK(run(&whole, NULL));
    for (int from = 1; from <= MOST_RANKS; from++)
        for (int to = 1; to <= MOST_RANKS; to++)
            for (int64_t batch = 0; batch < BATCHES; batch++) {
                job first = job_of(strategies[(from + to) % 2], NULL, batch);
                check(&whole, &first, from, "at first");
                job next = job_of(strategies[from % 2], first.saved, BATCHES - 1);
                check(&whole, &next, to, "gone on");
                if (batch == BATCHES - 1) continue; /* that batch is done */
                job last = job_of(strategies[to % 2], next.saved, -1);
                check(&whole, &last, from, "gone on twice");
            }
}

TEST_MAIN
