/* SPDX-License-Identifier: Apache-2.0 */
/* Values logged by ranks, in any hook, are those of all ranks: every rank ends with the numbers of one process. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

/* The last batch has one sample, which leaves other ranks with none. */
enum { GLOBAL_BATCH = 12, TRAIN = 3 * GLOBAL_BATCH + 1, LOADERS = 2, MOST_NAMES = 32 };

enum { TRAINING, EVALUATION, KINDS };

typedef struct job {
    const lc_module_ops *ops;
    const char *const *names; /* the logged names; the last is NULL */
    const char *monitor[KINDS];
    char root[320], saved[400], kept[400]; /* kept: the folder of monitors, whose best scores a resume takes over */
    const char *ckpt_path;
    bool saves, deterministic; /* saves: at the end of the last epoch, in `saved` */
    double v[MOST_NAMES];      /* the values of one process */
} job;

typedef struct net {
    small_net base;
    const job *j;
    lc_metric *total[KINDS];
    double seen[KINDS], sum[KINDS], most[KINDS]; /* of the running epoch */
} net;

static lc_status compare(const job *j, const char *name, double v)
{
    for (int i = 0; j->names[i]; i++)
        if (!strcmp(name, j->names[i]) && !(fabs(v - j->v[i]) <= 1e-6 * fmax(1, fabs(j->v[i]))))
            return lc_fail(LC_ERR_INTERNAL, "%s is %.12g, wanted %.12g", name, v, j->v[i]);
    return LC_OK;
}

/* The value that callbacks get. Values for loggers only, such as those of evaluation steps, are what rank 0 last sent
 * to loggers; other ranks have none. */
static bool find(lc_trainer *t, const char *name, double *v)
{
    if (lc_trainer_metric(t, name, v) >= 0) return true;
    for (int i = 0; i < lc_trainer_metric_count(t, LC_LOGGED_METRICS); i++) {
        lc_metric_value row = lc_trainer_metric_at(t, LC_LOGGED_METRICS, i);
        *v = row.value;
        if (!strcmp(row.name, name)) return true;
    }
    return false;
}

/* Compares what callbacks, loggers, monitors and programs get. */
static lc_status compare_all(const job *j, lc_trainer *t)
{
    double v;
    for (int i = 0; j->names[i]; i++) {
        if (find(t, j->names[i], &v))
            LC_TRY(compare(j, j->names[i], v));
        else
            RANK_CHECK(lc_trainer_global_rank(t) > 0 && strstr(j->names[i], "_step/"));
    }
    for (int i = 0; i < lc_trainer_metric_count(t, LC_LOGGED_METRICS); i++) {
        lc_metric_value row = lc_trainer_metric_at(t, LC_LOGGED_METRICS, i);
        LC_TRY(compare(j, row.name, row.value));
    }
    for (int k = 0; k < KINDS && j->monitor[k]; k++) {
        lc_model_checkpoint_info info;
        lc_callback saves = lc_trainer_callback_named(t, "ModelCheckpoint", k);
        LC_TRY(lc_model_checkpoint_get(&saves, &info));
        LC_TRY(compare(j, j->monitor[k], info.best_model_score));
    }
    return LC_OK;
}

static lc_status compare_results(const job *j, lc_trainer *t)
{
    lc_metrics results = lc_trainer_results(t, 0);
    RANK_CHECK(results.n > 0);
    for (int i = 0; i < results.n; i++) LC_TRY(compare(j, results.values[i].name, results.values[i].value));
    return LC_OK;
}

static lc_status fit_and_test(job *j, lc_comm *comm, lc_trainer *t, net *m, const lc_run_args *args)
{
    LC_TRY(lc_trainer_fit_with(t, &m->base.base, args));
    for (int i = 0; j->names[i] && !comm && !j->ckpt_path; i++) RANK_CHECK(find(t, j->names[i], &j->v[i]));
    LC_TRY(compare_all(j, t));
    if (!j->ops->test_step) return LC_OK;
    LC_TRY(lc_trainer_test(t, &m->base.base, .dataloaders = args->dataloaders, .n_dataloaders = LOADERS));
    return compare_results(j, t);
}

/* comm NULL: in one process, whose numbers are the expected ones. */
static lc_status run(job *j, lc_comm *comm)
{
    int n = comm ? lc_comm_size(comm) : 1;
    net m = {.j = j};
    lc_dataloader *train, *val[LOADERS];
    lc_callback saves[KINDS];
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? "ddp" : NULL;
    opt.max_epochs = 2;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.logger = "csv";
    opt.log_every_n_steps = 1;
    opt.deterministic = j->deterministic;
    opt.deterministic_chunk = j->deterministic ? GLOBAL_BATCH / 4 : 0;
    opt.enable_checkpointing = j->monitor[0] ? LC_ON : LC_OFF;
    opt.callbacks = saves;
    for (int k = 0; k < KINDS && j->monitor[k]; k++)
        LC_TRY(lc_model_checkpoint(&saves[opt.n_callbacks++], .monitor = j->monitor[k], .dirpath = j->kept));
    LC_TRY(small_net_init(&m.base, j->ops, 1));
    for (int k = 0; k < KINDS; k++) LC_TRY(lc_metric_new("SumMetric", &m.total[k]));
    LC_TRY(loader_of(0, TRAIN, GLOBAL_BATCH / n, false, &train));
    for (int i = 0; i < LOADERS; i++) LC_TRY(loader_of(40 + i, TRAIN, GLOBAL_BATCH / n, false, &val[i]));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_run_args args = LC_ARGS(lc_run, .train_dataloader = train, .dataloaders = val, .n_dataloaders = LOADERS);
    LC_TRY(fit_and_test(j, comm, t, &m, &args));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    for (int i = 0; i < LOADERS; i++) lc_dataloader_free(val[i]);
    small_net_release(&m.base);
    for (int k = 0; k < KINDS; k++) lc_metric_free(m.total[k]);
    return LC_OK;
}

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    return run(ctx, comm);
}

static void check(job j)
{
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        j.deterministic = deterministic;
        snprintf(j.root, sizeof j.root, "%s", fresh_dir("log"));
        snprintf(j.saved, sizeof j.saved, "%s/end.ckpt", j.root);
        snprintf(j.kept, sizeof j.kept, "%s/kept", j.root);
        CHECK_OK(run(&j, NULL));
        for (int n = 2; n <= 4; n++) {
            if (n == 3 && deterministic) continue;
            CHECK_RANKS("threads", n, run_rank, &j);
            if (!j.saves) continue;
            job rest = j; /* what remains is the row of the epoch */
            rest.saves = false;
            rest.ckpt_path = j.saved;
            CHECK_OK(run(&rest, NULL));
        }
    }
}

/* ---- hooks of a batch of which a rank has no sample ---- */

static double mean_index(const lc_batch *b)
{
    double sum = 0;
    for (int64_t k = 0; k < b->size; k++) sum += (double)b->indices[k];
    return sum / (double)b->size; /* not a number if there are none */
}

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
    lc_log_value(self, "train_end", mean_index(b), .on_epoch = LC_ON, .on_step = LC_ON, .sync_dist = true);
    lc_log_value(self, "train_end_size", (double)b->size, .sync_dist = true, .reduce_fx = LC_LOG_SUM);
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

static lc_status log_val(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log(self, "val_loss", lc_cross_entropy(logits_of((small_net *)self, b->x), b->y));
    return LC_OK;
}

static lc_status log_val_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i, int loader)
{
    (void)o, (void)i, (void)loader;
    lc_log_value(self, "end", mean_index(b), .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    return LC_OK;
}

TEST(a_rank_without_samples_adds_nothing)
{
    static const lc_module_ops ops = {
        LC_MODULE_OPS_INIT("net"),
        .training_step = small_net_training_step,
        .on_train_batch_start = log_train_start,
        .on_train_batch_end = log_train_end,
        .validation_step = log_val,
        .on_validation_batch_start = log_val_start,
        .on_validation_batch_end = log_val_end,
        .configure_optimizers = small_net_sgd,
    };
    static const char *const names[] = {"train_start_epoch",
                                        "train_start_step",
                                        "train_tensor",
                                        "train_size_epoch",
                                        "train_end_epoch",
                                        "train_end_step",
                                        "train_end_size",
                                        "start/dataloader_idx_0",
                                        "start/dataloader_idx_1",
                                        "tensor/dataloader_idx_0",
                                        "tensor/dataloader_idx_1",
                                        "size/dataloader_idx_0",
                                        "end_epoch/dataloader_idx_1",
                                        "end_step/dataloader_idx_1",
                                        NULL};
    check((job){.ops = &ops, .names = names});
}

/* ---- a resume inside of an epoch ---- */

typedef struct halves {
    char path[300];
    bool resumes;
    double mean[2][2][8]; /* of an epoch that was interrupted or not, on each rank */
} halves;

static halves *current;
static const char *const means[8] = {"m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7"};

/* Numbers whose sum is rounded, to something else in another order. */
static lc_status log_rounded(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)b;
    for (int k = 0; k < 8; k++)
        lc_log_value(self, means[k], sin((double)(k + 3 * i + lc_trainer_global_rank(self->trainer))),
                     .on_step = LC_OFF, .on_epoch = LC_ON);
    return LC_OK;
}

static lc_status save_in_the_middle(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b;
    return i == 5 && !current->resumes ? lc_trainer_save_checkpoint(self->trainer, current->path, false) : LC_OK;
}

static lc_status fit_halves(lc_comm *comm, void *ctx)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = small_net_training_step,
                                      .on_train_batch_start = log_rounded, .on_train_batch_end = save_in_the_middle,
                                      .configure_optimizers = small_net_sgd};
    halves *h = ctx;
    small_net m;
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "ddp";
    opt.max_epochs = 1;
    opt.enable_checkpointing = LC_OFF;
    opt.ckpt_path = h->resumes ? h->path : NULL;
    LC_TRY(small_net_init(&m, &ops, 1));
    LC_TRY(loader_of(0, 48, 2, false, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train));
    for (int k = 0; k < 8; k++) LC_TRY(lc_trainer_metric(t, means[k], &h->mean[h->resumes][lc_comm_rank(comm)][k]));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return LC_OK;
}

TEST(a_mean_over_an_interrupted_epoch_has_its_bits)
{
    static halves h;
    current = &h;
    snprintf(h.path, sizeof h.path, "%s/middle.ckpt", fresh_dir("halves"));
    CHECK_RANKS("threads", 2, fit_halves, &h);
    h.resumes = true;
    CHECK_RANKS("threads", 2, fit_halves, &h);
    for (int rank = 0; rank < 2; rank++)
        for (int k = 0; k < 8; k++) CHECK(h.mean[1][rank][k] == h.mean[0][0][k]);
}

/* ---- hooks at the end of an epoch ---- */

static lc_status see(net *m, int kind, const lc_batch *b)
{
    for (int64_t k = 0; k < b->size; k++) {
        float v = (float)b->indices[k];
        m->seen[kind]++;
        m->sum[kind] += v;
        m->most[kind] = fmax(m->most[kind], v);
        LC_TRY(lc_metric_update_values(m->total[kind], 1, &v, NULL));
    }
    return LC_OK;
}

static lc_tensor *see_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    if (see(m, TRAINING, b) < 0) return NULL;
    /* The trainer knows it only once the end of an epoch has logged it under another name. */
    if (lc_trainer_current_epoch(self->trainer)) lc_log_metric(self, "again", m->total[TRAINING]);
    return small_net_training_step(self, b, i);
}

static lc_status see_evaluation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return see((net *)self, EVALUATION, b);
}

static const char *const at_end[KINDS][5] = {
    {"train_mean", "train_sum", "train_most", "train_total", "train_own"},
    {"val_mean", "val_sum", "val_most", "val_total", "val_own"},
};

static lc_status log_at_end(net *m, int kind)
{
    lc_module *self = &m->base.base;
    const char *const *name = at_end[kind];
    lc_log_value(self, name[0], m->sum[kind] / m->seen[kind], .sync_dist = true, .batch_size = (int64_t)m->seen[kind]);
    lc_log_value(self, name[1], m->sum[kind], .sync_dist = true, .reduce_fx = LC_LOG_SUM);
    lc_log_value(self, name[2], m->most[kind], .reduce_fx = LC_LOG_MAX);
    lc_log_metric(self, name[3], m->total[kind]);
    lc_log_value(self, name[4], lc_trainer_global_rank(self->trainer), .rank_zero_only = true);
    m->seen[kind] = m->sum[kind] = m->most[kind] = 0;
    return LC_OK;
}

static lc_status log_train_epoch_end(lc_module *self)
{
    net *m = (net *)self;
    LC_TRY(log_at_end(m, TRAINING));
    if (!m->j->saves || lc_trainer_current_epoch(self->trainer) == 0) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, m->j->saved, false);
}

static lc_status log_val_epoch_end(lc_module *self)
{
    return log_at_end((net *)self, EVALUATION);
}

TEST(values_logged_at_the_end_of_an_epoch_are_those_of_all_ranks)
{
    static const lc_module_ops ops = {
        LC_MODULE_OPS_INIT("net"),
        .training_step = see_training_step,
        .on_train_epoch_end = log_train_epoch_end,
        .validation_step = see_evaluation_step,
        .on_validation_epoch_end = log_val_epoch_end,
        .test_step = see_evaluation_step,
        .on_test_epoch_end = log_val_epoch_end,
        .configure_optimizers = small_net_sgd,
    };
    static const char *const names[] = {"train_mean", "train_sum", "train_most", "train_total", "again",
                                        "val_mean",   "val_sum",   "val_most",   "val_total",   NULL};
    job j = {.ops = &ops, .names = names, .monitor = {"train_sum", "val_sum"}};
    check(j);
    j.saves = true;
    check(j);
}

/* ---- pictures and histograms of results of a step ---- */

static lc_status log_results(lc_module *self)
{
    lc_graph *g = lc_trainer_graph(self->trainer);
    LC_TRY(lc_step_begin(g, UINT64_MAX, 0));
    lc_no_grad_begin();
    lc_status s =
        lc_trainer_log_image(self->trainer, "scores", logits_of((small_net *)self, lc_ones(LC_F32, 4, FEATURES)), -1);
    if (s >= 0)
        s = lc_trainer_log_histogram(self->trainer, "counts",
                                     logits_of((small_net *)self, lc_zeros(LC_F32, 4, FEATURES)), -1);
    lc_no_grad_end();
    lc_status ended = lc_step_end(g);
    return s < 0 ? s : ended;
}

static lc_status fit_with_pictures(lc_comm *comm, void *ctx)
{
    static const lc_module_ops ops = {
        LC_MODULE_OPS_INIT("net"),
        .training_step = small_net_training_step,
        .on_train_epoch_end = log_results,
        .configure_optimizers = small_net_sgd,
    };
    small_net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "sharded";
    opt.max_epochs = 2;
    opt.default_root_dir = ctx;
    opt.logger = "tensorboard";
    LC_TRY(small_net_init(&m, &ops, 1));
    LC_TRY(loader_of(0, SAMPLES, 8, false, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return LC_OK;
}

/* Only rank 0 has loggers, but the step gathers parameters, which all ranks must do. */
TEST(results_of_a_step_are_logged_with_all_ranks)
{
    char root[320];
    snprintf(root, sizeof root, "%s", fresh_dir("pictures"));
    CHECK_RANKS("threads", 2, fit_with_pictures, root);
}

TEST_MAIN
