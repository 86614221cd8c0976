/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples a rank gets: an evaluation sees each sample once and in the order of the data; ranks may have loaders
 * of their own; and there may be fewer samples than ranks. */
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
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train));
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

/* A loader of the program's own over one of lightc's. */
static lc_status inner_begin(void *self, int64_t epoch, int64_t start)
{
    return lc_dataloader_begin(self, epoch, start);
}

static lc_status inner_next(void *self, lc_batch **out)
{
    return lc_dataloader_next(self, out);
}

static int64_t inner_length(void *self, int64_t epoch)
{
    return lc_dataloader_length(self, epoch);
}

static void inner_free(void *self)
{
    lc_dataloader_free(self);
}

static const lc_dataloader_ops per_rank_ops = {LC_DATALOADER_OPS_INIT, .name = "sensor",       .begin = inner_begin,
                                               .next = inner_next,     .length = inner_length, .free = inner_free,
                                               .per_rank = true};

static lc_tensor *count_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_log_value(self, "trained", (double)b->size, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_SUM);
    return small_net_training_step(self, b, i);
}

static lc_status count_validation(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log_value(self, "validated", (double)b->size, .reduce_fx = LC_LOG_SUM);
    return LC_OK;
}

static const lc_module_ops count_ops = {LC_MODULE_OPS_INIT("net"), .training_step = count_step,
                                        .validation_step = count_validation, .configure_optimizers = small_net_sgd};

static lc_status one_own_loader(lc_comm *comm, void *ctx)
{
    small_net m = {0};
    lc_dataloader *sensor, *train, *val;
    lc_trainer *t;
    double trained, validated;
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = 1;
    opt.strategy = ctx;
    LC_TRY(small_net_init(&m, &count_ops, 1));
    LC_TRY(loader_of(20 * lc_comm_rank(comm), 20, 4, false, &sensor));
    LC_TRY(lc_dataloader_from_ops(&per_rank_ops, sensor, &train));
    LC_TRY(loader_of(0, VAL, 4, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val));
    LC_TRY(lc_trainer_metric(t, "trained", &trained));
    LC_TRY(lc_trainer_metric(t, "validated", &validated));
    RANK_CHECK(trained == 20 * lc_comm_size(comm) && validated == VAL);
    RANK_CHECK(lc_trainer_global_step(t) == 5);
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m);
    return LC_OK;
}

TEST(a_loader_of_each_ranks_own_leaves_other_loaders_shared)
{
    CHECK_RANKS("threads", 3, one_own_loader, "ddp");
    CHECK_RANKS("threads", 2, one_own_loader, "sharded_3");
}

/* The batches of one process, split in a way that the trainer does not. */
typedef struct parts {
    bool by_hand; /* the program has sharded the loader; otherwise each rank has a dataset of its own */
    bool shared;  /* use_distributed_sampler */
    float weight[WIDTH * FEATURES];
} parts;

/* Only the rank's samples of each global batch. */
static lc_status own_dataset(int rank, int ranks, lc_dataset *all, lc_dataset **out)
{
    int64_t mine[SAMPLES], n = 0, each = GLOBAL_BATCH / ranks;
    for (int64_t i = 0; i < SAMPLES / GLOBAL_BATCH * GLOBAL_BATCH; i++)
        if (i % GLOBAL_BATCH / each == rank) mine[n++] = i;
    return lc_dataset_subset(all, mine, n, out);
}

static lc_status loader_of_part(lc_comm *comm, const parts *p, lc_dataloader **out)
{
    int rank = comm ? lc_comm_rank(comm) : 0, ranks = comm ? lc_comm_size(comm) : 1;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    lc_dataset *all, *mine = NULL;
    LC_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &all));
    if (!p->by_hand) LC_TRY(own_dataset(rank, ranks, all, &mine));
    lc_status s = lc_dataloader_new(out, .dataset = mine ? mine : all, .batch_size = GLOBAL_BATCH / ranks);
    lc_dataset_unref(mine);
    lc_dataset_unref(all);
    if (s < 0 || !p->by_hand || !comm) return s;
    return lc_dataloader_shard(*out, &(lc_shard){.rank = rank, .size = ranks});
}

static lc_status train_on_part(lc_comm *comm, const parts *p, const char *strategy, float *weight)
{
    small_net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = comm ? strategy : NULL;
    opt.max_epochs = 2;
    opt.use_distributed_sampler = p->shared;
    LC_TRY(small_net_init(&m, &small_net_ops, 1));
    LC_TRY(loader_of_part(comm, p, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train));
    LC_TRY(lc_tensor_read(m.l1.weight, weight, sizeof p->weight));
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m);
    return LC_OK;
}

static lc_status train_rank_on_part(lc_comm *comm, void *ctx)
{
    const parts *p = ctx;
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_3"};
    float weight[WIDTH * FEATURES];
    for (int s = 0; s < 3; s++) {
        LC_TRY(train_on_part(comm, p, strategies[s], weight));
        for (int i = 0; i < WIDTH * FEATURES; i++) RANK_CHECK(fabsf(weight[i] - p->weight[i]) < 3e-6f);
    }
    return LC_OK;
}

TEST(gradients_of_loaders_of_the_ranks_own_are_averaged)
{
    for (int kind = 0; kind < 3; kind++) {
        parts p = {.by_hand = kind > 0, .shared = kind == 2};
        CHECK_OK(train_on_part(NULL, &p, NULL, p.weight));
        for (int n = 2; n <= 3; n++) CHECK_RANKS("threads", n, train_rank_on_part, &p);
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

/* ---- loaders of the ranks' own that have a state ---- */

enum { STREAM_BATCHES = 3, STREAM_EPOCHS = 3, AT_MOST = STREAM_BATCHES * STREAM_EPOCHS };

/* Continues where it stopped, whatever the epoch. */
typedef struct stream {
    int64_t at, step, length, done;
    lc_batch batch;
} stream;

static lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    (void)epoch;
    ((stream *)self)->done = start;
    return LC_OK;
}
static lc_status stream_next(void *self, lc_batch **out)
{
    stream *s = self;
    *out = NULL;
    if (s->done++ >= STREAM_BATCHES) return LC_OK;
    lc_input_set(s->batch.x, inputs[s->at % SAMPLES], 1);
    lc_input_set(s->batch.y, &labels[s->at % SAMPLES], 1);
    s->batch.first = s->at;
    s->at += s->step;
    *out = &s->batch;
    return LC_OK;
}
static int64_t stream_length(void *self, int64_t epoch)
{
    (void)epoch;
    return ((stream *)self)->length;
}
static lc_status stream_save(void *self, void *data, size_t *size)
{
    const stream *s = self;
    if (s->at == 0) *size = 0; /* a different size from other states */
    if (data && s->at) memcpy(data, &s->at, sizeof s->at);
    if (s->at) *size = sizeof s->at;
    return LC_OK;
}
static lc_status stream_load(void *self, const void *data, size_t size)
{
    if (size != sizeof(int64_t)) return lc_fail(LC_ERR_FORMAT, "not a stream's state");
    memcpy(&((stream *)self)->at, data, size);
    return LC_OK;
}
/* A rank's part begins at an offset from the current place. */
static lc_status stream_shard(void *self, const lc_shard *shard)
{
    ((stream *)self)->at += 7 * shard->rank;
    ((stream *)self)->batch.global_size = shard->size;
    return LC_OK;
}
static void stream_free(void *self)
{
    lc_tensor_unref(((stream *)self)->batch.x);
    lc_tensor_unref(((stream *)self)->batch.y);
    free(self);
}
static const lc_dataloader_ops stream_ops = {
    LC_DATALOADER_OPS_INIT, .name = "stream",    .begin = stream_begin, .next = stream_next,   .length = stream_length,
    .save = stream_save,    .load = stream_load, .free = stream_free,   .shard = stream_shard,
};

static lc_status stream_new(int64_t step, int64_t length, lc_dataloader **out)
{
    stream *s = calloc(1, sizeof *s);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory");
    *s = (stream){.step = step, .length = length, .batch = {.n = 2, .names = {"x", "y"}, .size = 1}};
    lc_batch *b = &s->batch;
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){1, FEATURES}, LC_ROW_MAJOR, inputs[0], &b->x));
    LC_TRY(lc_input_new(LC_I64, 1, (int64_t[]){1}, LC_ROW_MAJOR, labels, &b->y));
    b->tensors[0] = b->x;
    b->tensors[1] = b->y;
    return lc_dataloader_from_ops(&stream_ops, s, out);
}

typedef struct streams {
    char root[320], saved[400];
    const char *ckpt_path;
    bool shared, uneven, sized; /* cut by the trainer; ranks are at different places; the length is known */
    int64_t save_after;         /* save after this many batches; 0: never */
    int64_t n[WORLD_RANKS], seen[WORLD_RANKS][AT_MOST];
} streams;

typedef struct stream_net {
    small_net base;
    streams *j;
} stream_net;

static lc_tensor *read_step(lc_module *self, const lc_batch *b, int64_t i)
{
    streams *j = ((stream_net *)self)->j;
    int rank = lc_trainer_global_rank(self->trainer);
    if (j->n[rank] < AT_MOST) j->seen[rank][j->n[rank]++] = b->first;
    return small_net_training_step(self, b, i);
}

static lc_status save_stream(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    streams *j = ((stream_net *)self)->j;
    (void)o, (void)b, (void)i;
    if (j->n[lc_trainer_global_rank(self->trainer)] != j->save_after) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->saved, false);
}

static const lc_module_ops stream_net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = read_step,
                                             .on_train_batch_end = save_stream, .configure_optimizers = small_net_sgd};

static lc_status read_streams(lc_comm *comm, void *ctx)
{
    streams *j = ctx;
    stream_net m = {.j = j};
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "ddp";
    opt.max_epochs = STREAM_EPOCHS;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.use_distributed_sampler = j->shared;
    LC_TRY(small_net_init(&m.base, &stream_net_ops, 1));
    LC_TRY(stream_new(j->uneven ? lc_comm_rank(comm) : 1, j->sized ? STREAM_BATCHES : -1, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = l);
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m.base);
    return s;
}

static streams streams_of(const streams *like, const char *name)
{
    streams j = *like;
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
    memset(j.n, 0, sizeof j.n);
    return j;
}

/* After each batch: every rank continues where it was. */
static void check_streams(streams kind)
{
    enum { RANKS = 3 };
    for (kind.save_after = 1; kind.save_after < AT_MOST; kind.save_after++) {
        streams whole = streams_of(&kind, "whole");
        CHECK_RANKS("threads", RANKS, read_streams, &whole);
        streams rest = streams_of(&kind, "rest");
        rest.save_after = 0;
        rest.ckpt_path = whole.saved;
        CHECK_RANKS("threads", RANKS, read_streams, &rest);
        for (int r = 0; r < RANKS; r++) {
            CHECK_EQ(rest.n[r], AT_MOST - kind.save_after);
            for (int64_t i = 0; i < rest.n[r]; i++) CHECK_EQ(rest.seen[r][i], whole.seen[r][kind.save_after + i]);
        }
    }
}

TEST(every_rank_resumes_its_own_loader_state)
{
    for (int sized = 0; sized < 2; sized++) {
        check_streams((streams){.sized = sized});
        check_streams((streams){.sized = sized, .uneven = true});
    }
    check_streams((streams){.sized = true, .shared = true});
}

/* why: the expected error; NULL: none. */
static void resume_with(streams *j, int ranks, const char *why)
{
    streams rest = streams_of(j, "rest");
    rest.save_after = 0;
    rest.ckpt_path = j->saved;
    world *w = world_run("threads", ranks, read_streams, &rest);
    for (int r = 0; r < ranks; r++) {
        CHECK_EQ(w->ranks[r].status < 0, why != NULL);
        if (why) CHECK_CONTAINS(w->ranks[r].message, why);
    }
    world_free(w);
}

/* A state that all ranks have in common suits any number of them. */
TEST(different_loader_states_need_the_same_number_of_ranks)
{
    for (int uneven = 0; uneven < 2; uneven++) {
        streams j = streams_of(&(streams){.uneven = uneven, .sized = true, .save_after = 4}, "whole");
        CHECK_RANKS("threads", 2, read_streams, &j);
        for (int ranks = 1; ranks <= 3; ranks += 2) resume_with(&j, ranks, uneven ? "continue with 2 ranks" : NULL);
    }
}

TEST_MAIN
