/* SPDX-License-Identifier: Apache-2.0 */
/* One measurement: a small convolutional network, with a clock in its hooks. */
#include "bench_devices.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SIDE = 28, CLASSES = 10, WARM_BATCHES = 3 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct network {
    lc_module base;
    lc_conv2d conv1, conv2;
    lc_max_pool2d pool;
    lc_linear fc;
    lc_comm *ranks;
    double seconds;                    /* least duration of a measurement of training */
    double waited;                     /* seconds spent waiting for other ranks, up to the last mark */
    double begun, mark, spent[PLACES]; /* times of the current measurement */
    int64_t samples, batches;
    bool warm;
} network;

/* Seconds this rank has waited for others so far. */
static double waited_for_ranks(const network *m)
{
    lc_comm_stats stats;
    lc_comm_get_stats(m->ranks, &stats);
    return 1e-9 * (double)stats.waited_ns;
}

/* Counts the time since the last mark for `place`, except the time spent waiting for other ranks. */
static void spend(network *m, int place)
{
    double t = now(), all = waited_for_ranks(m), waited = all - m->waited;
    m->spent[place] += t - m->mark - waited;
    m->spent[WAIT] += waited;
    m->waited = all;
    m->mark = t;
}

static void begin_measurement(network *m)
{
    memset(m->spent, 0, sizeof m->spent);
    m->samples = m->batches = 0;
    m->waited = waited_for_ranks(m);
    m->begun = m->mark = now();
}

static void count(network *m, const lc_batch *batch)
{
    m->samples += batch->global_size > 0 ? batch->global_size : batch->size; /* of all ranks */
    m->batches++;
}

static lc_tensor *forward(network *m, lc_tensor *x) /* x [B,1,28,28] */
{
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv1, x))); /* [B,16,14,14] */
    x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv2, x))); /* [B,32,7,7] */
    return lc_linear_forward(&m->fc, lc_flatten(x, 1));                            /* [B,10] */
}

/* ---- training: ranks run in lockstep, so the time of rank 0 is that of all ---- */

static lc_status on_train_batch_start(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch, (void)batch_idx;
    spend((network *)self, DATA);
    return LC_OK;
}

/* Called once for each part; the time between two calls counts as recording. */
static lc_tensor *training_step(lc_module *self, const lc_batch *batch, int64_t batch_idx)
{
    (void)batch_idx;
    lc_tensor *loss = lc_cross_entropy(forward((network *)self, batch->x), batch->y);
    spend((network *)self, RECORD);
    return loss;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *outputs, const lc_batch *batch,
                                    int64_t batch_idx)
{
    network *m = (network *)self;
    (void)outputs, (void)batch_idx;
    spend(m, COMPUTE);
    count(m, batch);
    bool done = m->warm && m->mark - m->begun >= m->seconds;
    if (!m->warm && m->batches >= WARM_BATCHES && m->mark - m->begun >= m->seconds / 3) {
        m->warm = true;
        begin_measurement(m);
    }
    if (done && lc_trainer_is_global_zero(self->trainer)) lc_trainer_stop(self->trainer);
    return LC_OK;
}

/* ---- inference: ranks never synchronize ---- */

static lc_status on_predict_epoch_start(lc_module *self)
{
    begin_measurement((network *)self);
    return LC_OK;
}

static lc_status on_predict_batch_start(lc_module *self, const lc_batch *batch, int64_t batch_idx, int loader)
{
    (void)loader;
    return on_train_batch_start(self, batch, batch_idx);
}

static lc_tensor *predict_step(lc_module *self, const lc_batch *batch, int64_t batch_idx, int dataloader_idx)
{
    (void)batch_idx, (void)dataloader_idx;
    lc_tensor *logits = forward((network *)self, batch->x);
    spend((network *)self, RECORD);
    return logits;
}

static lc_status on_predict_batch_end(lc_module *self, const lc_outputs *outputs, const lc_batch *batch,
                                      int64_t batch_idx, int dataloader_idx)
{
    network *m = (network *)self;
    (void)outputs, (void)batch_idx, (void)dataloader_idx;
    spend(m, COMPUTE);
    count(m, batch);
    return LC_OK;
}

/* The time of a pass over the data runs from the start of the first rank to the end of the last one. What the
 * ranks do in that time is their mean, so that waiting is counted whichever rank is the slow one. */
static lc_status predict(network *m, lc_trainer *trainer, lc_dataloader *loader)
{
    LC_TRY(lc_comm_barrier(m->ranks, NULL));
    LC_TRY(
        lc_trainer_predict(trainer, &m->base, .dataloaders = &loader, .n_dataloaders = 1, .discard_predictions = true));
    double ends[2] = {-m->begun, m->mark}; /* comparable, since ranks are processes of one machine */
    LC_TRY(lc_comm_all_reduce(m->ranks, ends, ends, 2, LC_F64, LC_COMM_MAX, NULL));
    m->spent[WAIT] += (m->begun + ends[0]) + (ends[1] - m->mark);
    m->begun = -ends[0], m->mark = ends[1];
    LC_TRY(lc_comm_all_reduce(m->ranks, m->spent, m->spent, PLACES, LC_F64, LC_COMM_SUM, NULL));
    for (int p = 0; p < PLACES; p++) m->spent[p] /= lc_comm_size(m->ranks);
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.01));
}

static const lc_module_ops network_ops = {
    LC_MODULE_OPS_INIT("network"),
    .training_step = training_step,
    .predict_step = predict_step,
    .configure_optimizers = configure_optimizers,
    .on_train_batch_start = on_train_batch_start,
    .on_train_batch_end = on_train_batch_end,
    .on_predict_epoch_start = on_predict_epoch_start,
    .on_predict_batch_start = on_predict_batch_start,
    .on_predict_batch_end = on_predict_batch_end,
};

static lc_status make_loader(int64_t batch_size, lc_dataloader **out)
{
    static float images[SAMPLES][SIDE * SIDE];
    static int64_t labels[SAMPLES];
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 3, .shape = {1, SIDE, SIDE}}, .data = images},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    lc_dataset *data;
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < SIDE * SIDE; k++)
            images[i][k] = (float)lc_random_normal(1, (uint64_t)(i * SIDE * SIDE + k)) + (float)(k % 10 == i % 10);
    }
    LC_TRY(lc_array_dataset_new(SAMPLES, 2, arrays, &data));
    lc_status s = lc_dataloader_new(out, .dataset = data, .batch_size = batch_size, .drop_last = true);
    lc_dataset_unref(data);
    return s;
}

lc_status measure(lc_trainer_options *opt, const arguments *a, int kind)
{
    network m = {.seconds = a->seconds};
    lc_dataloader *loader;
    lc_trainer *trainer;
    opt->barebones = true;
    opt->max_epochs = -1;
    LC_TRY(make_loader(a->batch_size, &loader));
    lc_module_init(&m.base, &network_ops, 1);
    lc_conv2d_init(&m.conv1, &m, "conv1", 1, 16, 5, .padding = 2);
    lc_conv2d_init(&m.conv2, &m, "conv2", 16, 32, 5, .padding = 2);
    lc_max_pool2d_init(&m.pool, &m, "pool", 2);
    lc_linear_init(&m.fc, &m, "fc", 32 * 7 * 7, CLASSES);
    LC_TRY(lc_trainer_new(opt, &trainer));
    LC_TRY(lc_comm_world(&m.ranks)); /* the ranks of ddp; otherwise only this process */
    begin_measurement(&m);
    if (kind == TRAINING) LC_TRY(lc_trainer_fit(trainer, &m.base, .train_dataloader = loader));
    for (int pass = 0; kind == INFERENCE && pass < 2; pass++) /* the first pass makes plans */
        LC_TRY(predict(&m, trainer, loader));
    if (lc_trainer_is_global_zero(trainer)) {
        printf("speed %.6g\n", (double)m.samples / (m.mark - m.begun));
        for (int p = 0; p < PLACES; p++) printf("place %d %.9g\n", p, m.spent[p] / (double)m.batches);
    }
    lc_comm_free(m.ranks);
    lc_trainer_free(trainer);
    lc_dataloader_free(loader);
    lc_module_release(&m.base);
    return LC_OK;
}
