/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples a rank gets: an evaluation sees each sample once and in the order of the data; there may be fewer
 * samples than ranks; and buffers that depend on samples are shared. */
#include "ddp_run.h"

static lc_status run_rank_that_fails(lc_comm *comm, void *ctx)
{
    (void)!run_rank(comm, ctx);
    return LC_OK;
}

static void check_refused(job *j)
{
    static ranks_job r;
    int saw = 0; /* the rank that sees the error first ends the others, which may be one call further */
    memset(&r, 0, sizeof r);
    r.j = j;
    CHECK_RANKS("threads", 3, run_rank_that_fails, &r);
    for (int i = 0; i < 3; i++) {
        CHECK(r.o[i].status == LC_ERR_CONFIG || r.o[i].status == LC_ERR_PEER);
        saw += r.o[i].status == LC_ERR_CONFIG;
    }
    CHECK(saw > 0);
}

/* A batch with fewer samples than ranks, when the module decides how often ranks meet. */
TEST(manual_optimization_needs_samples_on_every_rank)
{
    job j = job_of("manual_empty");
    manually(&j);
    j.samples = GLOBAL_BATCH + 2;
    check_refused(&j);
}

/* Ranks that never have a sample get what is logged from those that have. */
static void check_few(int64_t samples, int64_t val)
{
    static const char *const kinds[] = {"ddp", "sharded_1", "sharded_3"};
    static ranks_job r;
    outcome one;
    job j = job_of("few");
    j.samples = samples, j.val = val;
    CHECK_OK(run(&j, NULL, &one));
    for (size_t s = 0; s < sizeof kinds / sizeof *kinds; s++)
        for (int n = 3; n <= 4; n++) {
            job few = job_of("few");
            few.samples = samples, few.val = val, few.strategy = kinds[s];
            memset(&r, 0, sizeof r);
            r.j = &few;
            CHECK_RANKS("threads", n, run_rank, &r);
            for (int i = 0; i < n; i++) compare(&one, &r.o[i]);
        }
}

TEST(an_evaluation_may_have_fewer_samples_than_ranks)
{
    check_few(0, 1);
    check_few(0, 2);
}

TEST(an_epoch_may_have_fewer_samples_than_ranks)
{
    check_few(2, 0);
    check_few(1, 1);
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
    /* Different seeds: the parameters are rank 0's all the same. */
    LC_TRY(small_net_init(&m, &small_net_ops, comm ? 1 + (uint64_t)lc_comm_rank(comm) : 1));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, GLOBAL_BATCH / n, false, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_validate(t, &m.base, .val_dataloader = l));
    LC_TRY(lc_trainer_metric(t, "val_loss", &out->loss));
    LC_TRY(lc_trainer_predict(t, &m.base, .dataloaders = &l, .n_dataloaders = 1));
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
    /* A shared loader, and one of each rank's own; both hold the same samples. */
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

/* ---- predictions in a file ---- */

enum { WRITTEN = GLOBAL_BATCH }; /* the rows of the first batch of four */

static lc_tensor *predict_first_batch(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    return i ? NULL : small_net_predict_step(self, b, i, loader);
}

static const lc_module_ops first_batch_ops = {LC_MODULE_OPS_INIT("net"), .predict_step = predict_first_batch};

/* Twice: the second run overwrites the file. */
static lc_status write_first_batch(lc_comm *comm, void *path)
{
    small_net m = {0};
    lc_callback writer;
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    LC_TRY(lc_prediction_writer(&writer, .path = path));
    opt.callbacks = &writer;
    opt.n_callbacks = 1;
    opt.strategy = comm ? "ddp" : NULL;
    LC_TRY(small_net_init(&m, &first_batch_ops, 1));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, GLOBAL_BATCH / (comm ? lc_comm_size(comm) : 1), false, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    for (int i = 0; i < 2; i++) {
        if (lc_trainer_global_rank(t) == 0) unlink(path);
        LC_TRY(lc_trainer_predict(t, &m.base, .dataloaders = &l, .n_dataloaders = 1));
    }
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m);
    return LC_OK;
}

/* Reads the rows of a .npy file; *n: how many. */
static void read_rows(const char *path, float (*rows)[CLASSES], size_t *n)
{
    unsigned char header[10];
    FILE *f = fopen(path, "rb");
    CHECK(f && fread(header, 1, sizeof header, f) == sizeof header);
    CHECK(fseek(f, header[8] + 256L * header[9], SEEK_CUR) == 0);
    *n = fread(rows, sizeof *rows, VAL, f);
    fclose(f);
}

TEST(each_prediction_is_written_once)
{
    static float want[VAL][CLASSES], got[VAL][CLASSES];
    char path[400];
    size_t n;
    snprintf(path, sizeof path, "%s/out.npy", fresh_dir("predictions"));
    CHECK_OK(write_first_batch(NULL, path));
    read_rows(path, want, &n);
    CHECK_EQ(n, WRITTEN);
    for (int ranks = 1; ranks <= 3; ranks++) {
        CHECK_RANKS("threads", ranks, write_first_batch, path);
        read_rows(path, got, &n);
        CHECK_EQ(n, WRITTEN);
        for (int i = 0; i < WRITTEN; i++)
            for (int k = 0; k < CLASSES; k++) CHECK(fabsf(got[i][k] - want[i][k]) < 1e-5f);
    }
}

/* ---- several loaders ---- */

enum { LOADERS = 2 };

typedef struct scores {
    double loss[LOADERS], accuracy[LOADERS];
    int64_t few;
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

/* few: samples in the second loader. */
static lc_status score_two(lc_comm *comm, int64_t few, scores *out)
{
    int n = comm ? lc_comm_size(comm) : 1;
    scored_net m = {0};
    lc_dataloader *l[LOADERS];
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? "ddp" : NULL;
    LC_TRY(small_net_init(&m.base, &two_loaders_ops, 1));
    LC_TRY(lc_metric_new("Accuracy", &m.second, .num_classes = CLASSES));
    for (int i = 0; i < LOADERS; i++) LC_TRY(loader_of(20 * i, i ? few : 29, GLOBAL_BATCH / n, false, &l[i]));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_validate(t, &m.base.base, .dataloaders = l, .n_dataloaders = LOADERS));
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
    LC_TRY(score_two(comm, one->few, &mine));
    for (int i = 0; i < LOADERS; i++) {
        RANK_CHECK(fabs(mine.loss[i] - one->loss[i]) < 1e-6);
        RANK_CHECK(fabs(mine.accuracy[i] - one->accuracy[i]) < 1e-9);
    }
    return LC_OK;
}

TEST(metrics_of_each_loader_are_those_of_all_ranks)
{
    static scores one;
    for (one.few = 17; one.few > 0; one.few -= 8) {
        CHECK_OK(score_two(NULL, one.few, &one));
        for (int n = 2; n <= 4; n++) CHECK_RANKS("threads", n, score_two_of_rank, &one);
    }
}

/* ---- buffers ---- */

enum { CENTER_STEPS = 6 };

/* Its training step reads a buffer, and moves it towards the rank's samples. */
typedef struct centered {
    lc_module base;
    lc_linear l;
    lc_tensor *center;
    float *seen; /* [step] the buffer before it */
} centered;

static lc_tensor *centered_step(lc_module *self, const lc_batch *b, int64_t i)
{
    centered *m = (centered *)self;
    (void)i;
    lc_tensor *y = lc_linear_forward(&m->l, b->x);
    lc_assign(m->center, lc_add(lc_mul_scalar(m->center, 0.5), lc_mul_scalar(lc_mean(b->x), 0.5)));
    return lc_mean(lc_square(lc_sub(y, lc_detach(m->center))));
}

static lc_status centered_start(lc_module *self, const lc_batch *b, int64_t i)
{
    centered *m = (centered *)self;
    (void)b;
    return i < CENTER_STEPS ? lc_tensor_read(m->center, m->seen + i, sizeof *m->seen) : LC_OK;
}

static lc_status centered_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1));
}

static const lc_module_ops centered_ops = {LC_MODULE_OPS_INIT("centered"), .training_step = centered_step,
                                           .on_train_batch_start = centered_start,
                                           .configure_optimizers = centered_optimizers};

typedef struct centers {
    float of[2][CENTER_STEPS];
    int64_t accumulate;
} centers;

static lc_status train_centered(lc_comm *comm, void *ctx)
{
    static const int64_t one = 1;
    centers *all = ctx;
    int rank = lc_comm_rank(comm);
    centered m = {.seen = all->of[rank]};
    float x[4 * CENTER_STEPS];
    lc_array a = {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {1}}, .data = x};
    lc_trainer_options o = quiet_options(comm);
    lc_trainer *t = NULL;
    lc_dataset *d = NULL;
    lc_dataloader *l = NULL;
    lc_status status;
    for (int k = 0; k < 4 * CENTER_STEPS; k++) x[k] = (float)(k % 7);
    lc_module_init(&m.base, &centered_ops, 1);
    m.center = lc_module_add_buffer(&m.base, "center", LC_F32, 0, &one, (lc_init){0}, true);
    lc_linear_init(&m.l, &m, "l", 1, 1);
    o.strategy = "ddp";
    o.max_epochs = 1;
    o.accumulate_grad_batches = all->accumulate;
    LC_TRY_GOTO(status, done, lc_array_dataset_new(4 * CENTER_STEPS, 1, &a, &d));
    LC_TRY_GOTO(status, done, lc_dataloader_new(&l, .dataset = d, .batch_size = 2));
    LC_TRY_GOTO(status, done, lc_trainer_new(&o, &t));
    status = lc_trainer_fit(t, &m.base, .train_dataloader = l);
done:
    lc_trainer_free(t);
    lc_dataloader_free(l);
    lc_dataset_unref(d);
    lc_module_release(&m.base);
    return status;
}

/* Each window of batches begins with rank 0's buffers; within a window each rank has its own. */
TEST(a_step_reads_the_buffers_of_rank_0)
{
    static centers all;
    for (int64_t window = 1; window <= 2; window++) {
        memset(&all, 0, sizeof all);
        all.accumulate = window;
        CHECK_RANKS("threads", 2, train_centered, &all);
        CHECK(all.of[0][CENTER_STEPS - 1] > 0);
        for (int i = 0; i < CENTER_STEPS; i++) CHECK_EQ(all.of[0][i] == all.of[1][i], i % window == 0);
    }
}

TEST_MAIN
