/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks log, in whichever hook, is that of all ranks: every rank ends with the numbers of one process. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

/* The last batch has one sample, which leaves other ranks with none. */
enum { GLOBAL_BATCH = 12, TRAIN = 3 * GLOBAL_BATCH + 1, LOADERS = 2, MOST_NAMES = 16 };

typedef struct job {
    const lc_module_ops *ops;
    const char *const *names; /* of what is logged; the last is NULL */
    char root[320];
    bool deterministic;
    double v[MOST_NAMES], step; /* of one process; NULL: the rows of validation have none */
} job;

static double mean_index(const lc_batch *b)
{
    double sum = 0;
    for (int64_t k = 0; k < b->size; k++) sum += (double)b->indices[k];
    return sum / (double)b->size; /* not a number where there are none */
}

static lc_status run(const job *j, lc_comm *comm, double *v, double *step)
{
    int n = comm ? lc_comm_size(comm) : 1;
    small_net m = {0};
    lc_dataloader *train, *val[LOADERS];
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? "ddp" : NULL;
    opt.max_epochs = 2;
    opt.default_root_dir = j->root;
    opt.logger = "csv";
    opt.log_every_n_steps = 1;
    opt.deterministic = j->deterministic;
    opt.deterministic_chunk = j->deterministic ? GLOBAL_BATCH / 4 : 0;
    LC_TRY(small_net_init(&m, j->ops, 1));
    LC_TRY(loader_of(0, TRAIN, GLOBAL_BATCH / n, false, &train));
    for (int i = 0; i < LOADERS; i++) LC_TRY(loader_of(40 + i, TRAIN, GLOBAL_BATCH / n, false, &val[i]));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_run_args args = {.train_dataloader = train, .dataloaders = val, .n_dataloaders = LOADERS};
    LC_TRY(lc_trainer_fit(t, &m.base, &args));
    for (int i = 0; j->names[i]; i++) LC_TRY(lc_trainer_metric(t, j->names[i], &v[i]));
    (void)step;
    lc_trainer_free(t);
    lc_dataloader_free(train);
    for (int i = 0; i < LOADERS; i++) lc_dataloader_free(val[i]);
    small_net_release(&m);
    return LC_OK;
}

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    const job *j = ctx;
    double v[MOST_NAMES], step;
    LC_TRY(run(j, comm, v, &step));
    for (int i = 0; j->names[i]; i++)
        if (!(fabs(v[i] - j->v[i]) <= 1e-6 * fmax(1, fabs(j->v[i]))))
            return lc_fail(LC_ERR_INTERNAL, "%s is %.12g, wanted %.12g", j->names[i], v[i], j->v[i]);
    return LC_OK;
}

static void check(const lc_module_ops *ops, const char *const *names)
{
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        job j = {.ops = ops, .names = names, .deterministic = deterministic};
        snprintf(j.root, sizeof j.root, "%s", fresh_dir("log"));
        CHECK_OK(run(&j, NULL, j.v, &j.step));
        for (int n = 2; n <= 4; n += 2) CHECK_RANKS("threads", n, run_rank, &j);
    }
}

/* ---- hooks of a batch that a rank has no sample of ---- */

static lc_status log_train_start(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    lc_log_value(self, "train_start", mean_index(b), .on_epoch = LC_ON, .sync_dist = true);
    lc_log(self, "train_tensor", lc_mean(b->x), .on_epoch = LC_ON, .on_step = LC_OFF);
    lc_log_value(self, "train_size", (double)b->size, .on_epoch = LC_ON, .reduce_fx = LC_LOG_SUM);
    return LC_OK;
}

static lc_status log_train_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)i;
    lc_log_value(self, "train_end", mean_index(b), .on_epoch = LC_ON, .on_step = LC_OFF);
    return LC_OK;
}

static lc_status log_val_start(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log_value(self, "start", mean_index(b));
    lc_log(self, "tensor", lc_mean(b->x));
    lc_log_value(self, "size", (double)b->size, .reduce_fx = LC_LOG_SUM);
    return LC_OK;
}

static lc_status log_val_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i, int loader)
{
    (void)o, (void)i, (void)loader;
    lc_log_value(self, "end", mean_index(b));
    return LC_OK;
}

TEST(a_rank_without_samples_adds_nothing)
{
    static const lc_module_ops ops = {
        LC_MODULE_OPS_INIT("net"),
        .training_step = small_net_training_step,
        .on_train_batch_start = log_train_start,
        .on_train_batch_end = log_train_end,
        .validation_step = small_net_validation_step,
        .on_validation_batch_start = log_val_start,
        .on_validation_batch_end = log_val_end,
        .configure_optimizers = small_net_sgd,
    };
    static const char *const names[] = {"train_start_epoch",
                                        "train_start_step",
                                        "train_tensor",
                                        "train_size_epoch",
                                        "train_end",
                                        "start/dataloader_idx_0",
                                        "start/dataloader_idx_1",
                                        "tensor/dataloader_idx_0",
                                        "tensor/dataloader_idx_1",
                                        "size/dataloader_idx_0",
                                        "end/dataloader_idx_1",
                                        NULL};
    check(&ops, names);
}

TEST_MAIN
