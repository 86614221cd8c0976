/* SPDX-License-Identifier: Apache-2.0 */
/* Batch norm over ranks: N ranks with parts of a batch have the results, gradients and running statistics of one
 * process with all of it, however the samples are distributed. */
#include "comm_world.h"
#include "quiet_options.h"

#include <lightc/lightc.h>
#include <math.h>
#include <stdlib.h>

enum { C = 3, MOST_SAMPLES = 24, PIXELS = 6, STEPS = 3 };

typedef struct layer_job {
    int ndim; /* of x: 2 for [N,C], or 4 for [N,C,2,3] */
    bool affine;
    double offset;    /* the mean of x */
    double deviation; /* of x, about; 0: 1 */
    double tolerance;
    int64_t share[4]; /* samples of each rank; all 0: as equal as can be */
    int64_t samples;
    lc_dtype dtype;
    lc_dtype storage; /* of the graph; 0: f32 */
    /* of one process */
    double y[MOST_SAMPLES * C * PIXELS], dx[MOST_SAMPLES * C * PIXELS];
    double dw[2 * C], running[2 * C];
} layer_job;

static double pixel(int step, int64_t i)
{
    return lc_random_normal(50 + (uint64_t)step, (uint64_t)i);
}

static lc_status put(lc_tensor *t, const double *v, int64_t n)
{
    if (lc_tensor_dtype(t) == LC_F64) return lc_tensor_write(t, v, (size_t)n * 8);
    float few[MOST_SAMPLES * C * PIXELS];
    for (int64_t i = 0; i < n; i++) few[i] = (float)v[i];
    return lc_tensor_write(t, few, (size_t)n * 4);
}

static lc_status get(lc_tensor *t, double *v, int64_t n)
{
    if (lc_tensor_dtype(t) == LC_F64) return lc_tensor_read(t, v, (size_t)n * 8);
    float few[MOST_SAMPLES * C * PIXELS];
    LC_TRY(lc_tensor_read(t, few, (size_t)n * 4));
    for (int64_t i = 0; i < n; i++) v[i] = few[i];
    return LC_OK;
}

/* Samples [begin, end) through one layer for STEPS steps; results of the last step. */
static lc_status normalize(const layer_job *j, lc_comm *comm, int64_t begin, int64_t end, layer_job *out)
{
    int64_t L = j->ndim == 4 ? PIXELS : 1, count = (end - begin) * C * L;
    int64_t shape[4] = {end - begin, C, 2, 3};
    double x[MOST_SAMPLES * C * PIXELS], weights[MOST_SAMPLES * C * PIXELS];
    lc_batch_norm2d l;
    lc_module root;
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("root")};
    lc_graph *g;
    lc_tensor *in, *w;
    lc_module_init(&root, &ops, 1);
    LC_BATCH_NORM_INIT(&l, j->ndim == 4 ? 2 : 1, &root, "bn", C, .no_affine = !j->affine, .dtype = j->dtype);
    LC_TRY(lc_module_status(&root));
    RANK_CHECK(lc_sync_batch_norm(&root, comm) == 1);
    lc_module_train(&root, true);
    LC_TRY(lc_graph_new(&g, .threads = 1, .storage = j->storage));
    LC_TRY(lc_tensor_new(j->dtype, j->ndim, shape, &in));
    LC_TRY(lc_tensor_new(j->dtype, j->ndim, shape, &w));
    lc_tensor_set_requires_grad(in, true);
    if (j->affine) LC_TRY(put(l.weight, (double[]){0.5, 1.5, -2}, C));
    if (j->affine) LC_TRY(put(l.bias, (double[]){0.1, -0.2, 0.3}, C));
    for (int s = 0; s < STEPS; s++) {
        for (int64_t i = 0; i < count; i++) {
            int64_t at = begin * C * L + i;
            x[i] = j->offset * (double)(1 + i / L % C) + (j->deviation > 0 ? j->deviation : 1) * pixel(s, at);
            weights[i] = pixel(100, at);
        }
        LC_TRY(put(in, x, count));
        LC_TRY(put(w, weights, count));
        LC_TRY(lc_step_begin(g, (uint64_t)s, 0));
        lc_zero_grad(g);
        lc_tensor *y = lc_keep(lc_batch_norm2d_forward(&l, in));
        lc_backward(lc_sum(lc_mul(w, lc_tanh(y))));
        lc_tensor *dx = lc_keep(lc_gradient(in));
        lc_tensor *dw = j->affine ? lc_keep(lc_gradient(l.weight)) : NULL;
        lc_tensor *db = j->affine ? lc_keep(lc_gradient(l.bias)) : NULL;
        LC_TRY(lc_step_run(g));
        LC_TRY(get(y, out->y, count));
        LC_TRY(get(dx, out->dx, count));
        if (dw) LC_TRY(get(dw, out->dw, C));
        if (db) LC_TRY(get(db, out->dw + C, C));
        LC_TRY(lc_step_end(g));
    }
    LC_TRY(get(l.running_mean, out->running, C));
    LC_TRY(get(l.running_var, out->running + C, C));
    lc_tensor_unref(in), lc_tensor_unref(w);
    lc_graph_free(g);
    lc_module_release(&root);
    return LC_OK;
}

static lc_status near(const char *what, const double *got, const double *want, int64_t n, double tolerance)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * largest))
            return lc_fail(LC_ERR_INTERNAL, "%s: element %d is %.9g, not %.9g (largest %g)", what, (int)i, got[i],
                           want[i], largest);
    return LC_OK;
}

static lc_status layer_share(lc_comm *comm, void *ctx)
{
    const layer_job *j = ctx;
    int n = lc_comm_size(comm), me = lc_comm_rank(comm);
    int64_t begin = 0, end, L = j->ndim == 4 ? PIXELS : 1;
    layer_job mine;
    double first[2 * C];
    if (j->share[0]) {
        for (int r = 0; r < me; r++) begin += j->share[r];
        end = begin + j->share[me];
    } else {
        begin = j->samples * me / n, end = j->samples * (me + 1) / n;
    }
    LC_TRY(normalize(j, comm, begin, end, &mine));
    LC_TRY(near("y", mine.y, j->y + begin * C * L, (end - begin) * C * L, j->tolerance));
    LC_TRY(near("dx", mine.dx, j->dx + begin * C * L, (end - begin) * C * L, 20 * j->tolerance));
    if (j->affine) LC_TRY(lc_comm_all_reduce(comm, mine.dw, mine.dw, 2 * C, LC_F64, LC_COMM_SUM, NULL));
    if (j->affine) LC_TRY(near("dw, db", mine.dw, j->dw, 2 * C, 4 * j->tolerance));
    LC_TRY(near("running statistics", mine.running, j->running, 2 * C, j->tolerance));
    memcpy(first, mine.running, sizeof first);
    LC_TRY(lc_comm_broadcast(comm, first, 2 * C, LC_F64, 0, NULL));
    RANK_CHECK(!memcmp(first, mine.running, sizeof first)); /* to the last bit */
    return LC_OK;
}

static void check_layer(layer_job job, int ranks)
{
    static layer_job j;
    j = job;
    CHECK_OK(normalize(&job, NULL, 0, job.samples, &j));
    j.ndim = job.ndim; /* `out` has results only */
    for (int n = ranks ? ranks : 1; n <= (ranks ? ranks : 4); n++) CHECK_RANKS("threads", n, layer_share, &j);
    CHECK_RANKS("shm", ranks ? ranks : 2, layer_share, &j);
}

TEST(ranks_are_one_process)
{
    check_layer((layer_job){.ndim = 4, .affine = true, .samples = 12, .tolerance = 2e-6}, 0);
    check_layer((layer_job){.ndim = 2, .affine = true, .samples = 12, .tolerance = 2e-6}, 0);
    check_layer((layer_job){.ndim = 4, .samples = 12, .tolerance = 2e-6}, 0);
    check_layer((layer_job){.ndim = 4, .affine = true, .samples = 12, .tolerance = 1e-13, .dtype = LC_F64}, 0);
}
/* One sample of [N,C] is a single value per channel, which has no statistics by itself. */
TEST(uneven_shares)
{
    check_layer((layer_job){.ndim = 4, .affine = true, .samples = 13, .tolerance = 2e-6}, 0);
    check_layer((layer_job){.ndim = 2, .affine = true, .samples = 9, .tolerance = 2e-6, .share = {1, 5, 3}}, 3);
    check_layer(
        (layer_job){.ndim = 2, .affine = true, .samples = 2, .tolerance = 1e-9, .share = {1, 1}, .dtype = LC_F64}, 2);
    check_layer((layer_job){.ndim = 4, .samples = 20, .tolerance = 1e-13, .share = {1, 17, 1, 1}, .dtype = LC_F64}, 4);
}
/* E[x^2] - E[x]^2 would have no correct digit left. */
TEST(means_much_larger_than_the_deviation)
{
    check_layer((layer_job){.ndim = 4, .affine = true, .samples = 12, .offset = 3000, .tolerance = 2e-3}, 0);
    check_layer((layer_job){.ndim = 4, .samples = 12, .offset = 1e7, .tolerance = 1e-7, .dtype = LC_F64}, 0);
}
/* Statistics are f32, also if everything else is stored in 16 bits: those of f16 would be infinite here, and in bf16
 * the means would be off by a tenth of the deviation. */
TEST(statistics_of_sixteen_bits)
{
    check_layer(
        (layer_job){.ndim = 4, .affine = true, .samples = 12, .deviation = 100, .tolerance = 2e-3, .storage = LC_F16},
        0);
    check_layer(
        (layer_job){.ndim = 4, .affine = true, .samples = 12, .offset = 30, .tolerance = 1e-2, .storage = LC_BF16}, 0);
    check_layer(
        (layer_job){.ndim = 4, .affine = true, .samples = 12, .deviation = 100, .tolerance = 2e-7, .storage = LC_F64},
        0);
}

/* ---- in the trainer ---- */

enum { SIDE = 6, CLASSES = 3, MOST = 32 };

typedef struct fit_job {
    int64_t samples, batch; /* of all ranks together */
    int64_t accumulate;
    bool vectors;         /* the last layer normalizes [N,C] */
    bool two_steps;       /* two optimizers, each with a step function */
    const char *strategy; /* NULL: ddp */
    bool sync;            /* otherwise without any batch norm */
    int no_loss_rank;     /* returns no loss in batch 1; -1: none */
} fit_job;

typedef struct cnn {
    lc_module base;
    lc_conv2d conv1, conv2;
    lc_batch_norm2d bn1, bn2;
    lc_linear head;
    lc_batch_norm1d bn3;
    const fit_job *j;
} cnn;

static float images[MOST][SIDE * SIDE];
static int64_t labels[MOST];

__attribute__((constructor)) static void make_images(void)
{
    for (int i = 0; i < MOST; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < SIDE * SIDE; k++)
            images[i][k] = (float)(pixel(7, i * SIDE * SIDE + k) + (k % CLASSES == labels[i] ? 1 : 0));
    }
}

static lc_tensor *normalize_if(cnn *m, lc_batch_norm2d *l, lc_tensor *h)
{
    return m->j->sync ? lc_batch_norm2d_forward(l, h) : h;
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    cnn *m = (cnn *)self;
    lc_tensor *h = lc_relu(normalize_if(m, &m->bn1, lc_conv2d_forward(&m->conv1, b->x)));
    h = lc_max_pool2d(h, 2);
    h = lc_relu(normalize_if(m, &m->bn2, lc_conv2d_forward(&m->conv2, h)));
    lc_tensor *logits = lc_linear_forward(&m->head, lc_flatten(h, 1));
    lc_tensor *loss = lc_cross_entropy(m->j->vectors ? lc_batch_norm1d_forward(&m->bn3, logits) : logits, b->y);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON);
    return lc_trainer_global_rank(self->trainer) == m->j->no_loss_rank && i == 1 ? NULL : loss;
}

static lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    cnn *m = (cnn *)self;
    (void)i;
    return lc_mean(lc_square(normalize_if(m, &m->bn1, lc_conv2d_forward(&m->conv1, b->x))));
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    if (((cnn *)self)->j->two_steps) {
        LC_TRY(lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.05, .momentum = 0.9), training_step));
        return lc_optimizers_add_step(out, lc_sgd(self, .lr = 0.01), second_step);
    }
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.05, .momentum = 0.9));
}

static const lc_module_ops cnn_ops = {LC_MODULE_OPS_INIT("cnn"), .training_step = training_step,
                                      .configure_optimizers = configure_optimizers};

typedef struct state {
    double v[2000];
    int64_t n;
} state;

static lc_status copy_state(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    state *s = ctx;
    int64_t n = lc_tensor_numel(mt->tensor);
    (void)path, (void)owner;
    RANK_CHECK(s->n + n <= 2000);
    if (lc_tensor_dtype(mt->tensor) == LC_I64) {
        int64_t steps;
        LC_TRY(lc_tensor_read(mt->tensor, &steps, 8));
        s->v[s->n] = (double)steps;
    } else {
        LC_TRY(get(mt->tensor, s->v + s->n, n));
    }
    s->n += n;
    return LC_OK;
}

static lc_status fit(const fit_job *j, lc_comm *comm, state *out, double *loss)
{
    int n = comm ? lc_comm_size(comm) : 1;
    cnn m = {.j = j};
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 3, .shape = {1, SIDE, SIDE}}, .data = images},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    lc_dataset *d;
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    out->n = 0;
    opt.max_epochs = 3;
    opt.accumulate_grad_batches = j->accumulate;
    if (comm) opt.strategy = j->strategy ? j->strategy : "ddp";
    opt.sync_batchnorm = j->sync;
    LC_TRY(lc_array_dataset_new(j->samples, 2, arrays, &d));
    LC_TRY(lc_dataloader_new(&l, .dataset = d, .batch_size = j->batch / n, .shuffle = true, .seed = 4));
    lc_dataset_unref(d);
    lc_module_init(&m.base, &cnn_ops, (uint64_t)(comm ? 1 + lc_comm_rank(comm) : 1));
    lc_conv2d_init(&m.conv1, &m, "conv1", 1, 4, 3, .padding = 1);
    lc_batch_norm2d_init(&m.bn1, &m, "bn1", 4);
    lc_conv2d_init(&m.conv2, &m, "conv2", 4, 6, 3, .padding = 1);
    lc_batch_norm2d_init(&m.bn2, &m, "bn2", 6);
    lc_linear_init(&m.head, &m, "head", 6 * SIDE * SIDE / 4, CLASSES);
    if (j->vectors) lc_batch_norm1d_init(&m.bn3, &m, "bn3", CLASSES);
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = l);
    if (s >= 0) s = lc_trainer_metric(t, "train_loss_epoch", loss);
    if (s >= 0) s = lc_module_visit(&m.base, copy_state, out);
    RANK_CHECK(!m.bn1.comm && !m.bn2.comm);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(l);
    lc_module_release(&m.base);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

typedef struct fit_want {
    const fit_job *j;
    state one;
    double loss;
} fit_want;

static lc_status fit_rank(lc_comm *comm, void *ctx)
{
    const fit_want *w = ctx;
    state mine, first;
    double loss;
    LC_TRY(fit(w->j, comm, &mine, &loss));
    RANK_CHECK(mine.n == w->one.n);
    first = mine;
    LC_TRY(lc_comm_broadcast(comm, first.v, first.n, LC_F64, 0, NULL));
    RANK_CHECK(!memcmp(first.v, mine.v, (size_t)mine.n * 8)); /* running statistics too */
    for (int64_t i = 0; i < mine.n; i++)
        if (!(fabs(mine.v[i] - w->one.v[i]) < 3e-5 * (1 + fabs(w->one.v[i]))))
            return lc_fail(LC_ERR_INTERNAL, "number %d of the model is %.9g, not %.9g", (int)i, mine.v[i], w->one.v[i]);
    if (!(fabs(loss - w->loss) < 1e-4 * w->loss))
        return lc_fail(LC_ERR_INTERNAL, "the loss is %g, not %g", loss, w->loss);
    return LC_OK;
}

static void check_fit(fit_job j)
{
    static fit_want w;
    w = (fit_want){.j = &j};
    j.no_loss_rank = -1;
    CHECK_OK(fit(&j, NULL, &w.one, &w.loss));
    for (int n = 2; n <= 4; n++) CHECK_RANKS("threads", n, fit_rank, &w);
    CHECK_RANKS("shm", 2, fit_rank, &w);
}

TEST(a_cnn_trains_as_in_one_process)
{
    check_fit((fit_job){.samples = 24, .batch = 12, .accumulate = 1, .sync = true});
}
TEST(a_cnn_trains_as_in_one_process_with_uneven_batches)
{
    check_fit((fit_job){.samples = 31, .batch = 12, .accumulate = 1, .sync = true});
}
/* The last batch has fewer samples than there are ranks. */
TEST(ranks_without_samples_take_part)
{
    check_fit((fit_job){.samples = 25, .batch = 12, .accumulate = 1, .sync = true});
    check_fit((fit_job){.samples = 26, .batch = 12, .accumulate = 2, .sync = true});
}
/* The update of the first optimizer, which gathers parameters from all ranks, runs together with the second step. */
TEST(ranks_without_samples_take_part_in_each_step)
{
    check_fit((fit_job){.samples = 25, .batch = 12, .accumulate = 1, .two_steps = true, .sync = true});
    check_fit((fit_job){
        .samples = 26, .batch = 12, .accumulate = 1, .two_steps = true, .strategy = "sharded_1", .sync = true});
}
TEST(ranks_without_samples_train_without_batch_norm)
{
    check_fit((fit_job){.samples = 25, .batch = 12, .accumulate = 1});
    check_fit((fit_job){.samples = 26, .batch = 12, .accumulate = 2});
}

static lc_status without_loss(lc_comm *comm, void *ctx)
{
    state mine, first;
    double loss;
    LC_TRY(fit(ctx, comm, &mine, &loss));
    first = mine;
    LC_TRY(lc_comm_broadcast(comm, first.v, first.n, LC_F64, 0, NULL));
    RANK_CHECK(!memcmp(first.v, mine.v, (size_t)mine.n * 8));
    return LC_OK;
}

TEST(a_rank_without_a_loss_stays_with_the_others)
{
    for (int64_t accumulate = 1; accumulate <= 2; accumulate++) {
        fit_job j = {.samples = 24, .batch = 6, .accumulate = accumulate, .no_loss_rank = 1};
        CHECK_RANKS("threads", 3, without_loss, &j);
    }
}
/* The backward passes of the others would wait for that rank's. */
TEST(with_batch_norm_over_ranks_every_rank_has_a_loss)
{
    fit_job j = {.samples = 24, .batch = 6, .accumulate = 1, .sync = true, .no_loss_rank = 1};
    world *w = world_run("threads", 3, without_loss, &j);
    for (int i = 0; i < 3; i++)
        if (w->ranks[i].status >= 0 || !strstr(w->ranks[i].message, "training_step returned no loss"))
            TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    world_free(w);
}
/* One value per channel has no statistics, also if other ranks take part. */
TEST(a_single_value_is_an_error)
{
    fit_job j = {.samples = 25, .batch = 12, .accumulate = 1, .vectors = true, .sync = true, .no_loss_rank = -1};
    state one;
    double loss;
    CHECK_STATUS(fit(&j, NULL, &one, &loss), LC_ERR_SHAPE);
    for (int n = 2; n <= 3; n++) {
        world *w = world_run("threads", n, without_loss, &j);
        for (int i = 0; i < n; i++)
            if (w->ranks[i].status >= 0 || !strstr(w->ranks[i].message, "need more than one value per channel"))
                TEST_FAIL("rank %d of %d: %s", i, n, w->ranks[i].message);
        world_free(w);
    }
}

TEST_MAIN
