/* SPDX-License-Identifier: Apache-2.0 */
/* Trainings with `deterministic`, whose results must be the same to the last bit on any number of ranks or devices. */
#ifndef TEST_DETERMINISTIC_RUN_H
#define TEST_DETERMINISTIC_RUN_H

#include "comm_world.h"
#include "log_scores.h"
#include "quiet_options.h"
#include "scratch.h"

#include <lightc/lightc.h>

enum { SAMPLES = 150, VAL = 53, FEATURES = 64, CLASSES = 4, TOKENS = 10, WORDS = 12, WIDTH = 16, LAYERS = 5 };

static float inputs[SAMPLES][FEATURES];
static int64_t labels[SAMPLES], tokens[SAMPLES][TOKENS];

__attribute__((constructor)) static void make_data(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < FEATURES; k++) inputs[i][k] = (float)lc_random_normal(9, (uint64_t)(i * FEATURES + k));
        labels[i] = (inputs[i][0] + inputs[i][1] > 0) + 2 * (inputs[i][2] > 0.5f);
        for (int k = 0; k < TOKENS; k++) tokens[i][k] = (i * 7 + k * k * (1 + i % 3)) % WORDS;
    }
}

/* NORM: CNN with batch norm; DEEP: MLP with more layers, the first of which is used twice */
typedef enum net_kind { MLP, CNN, NORM, GPT, KINDS, DEEP = KINDS } net_kind;

typedef enum optimizer_kind { SGD, ADAM, ADAMW, LBFGS } optimizer_kind;

typedef struct job {
    char root[320];
    net_kind kind;
    int64_t batch, chunk, max_epochs, accumulate; /* batch: of all ranks */
    double clip;
    optimizer_kind optimizer;
    bool clip_value, schedule, drop_last, no_dropout;
    const char *ckpt_path;
    int64_t save_after; /* save after this batch of epoch 1; -1: never */
    char saved[400];
    int skip_every; /* every nth chunk has no loss; 0: all have one */
    bool spikes;    /* updates of batches whose loss has risen are skipped */
    bool averages;  /* averages weights over the last epochs, and computes their statistics in a pass after the last one
                     */
    int64_t limit, samples; /* batches per epoch, samples; 0: all */
    bool reads, counts, sync_batchnorm, manual;
    bool hook_reads; /* the loss is read between the backward pass and the update */
    bool two_steps;  /* a second optimizer has a step function of its own */
    /* l2's weight is frozen before batch thaws_at of this epoch; 0, 0: never */
    int64_t thaws_in, thaws_at;
    bool other_windows;                     /* windows of 1, 3, 3, 1, 1 and 1 batches */
    bool compares_state;                    /* compares the optimizers' state in the final checkpoint */
    const char *strategy, *state_dict_type; /* used with a communicator */
    const char *devices;                    /* used in one process */
    const char *precision;
} job;

enum { MOST_BYTES = 1 << 16 };
typedef struct outcome {
    size_t bytes;
    unsigned char parameters[MOST_BYTES];
    size_t state_bytes; /* on rank 0 */
    unsigned char state[2 * MOST_BYTES];
    double val_loss, val_acc, train_loss, step_loss, smallest, samples, seldom, seldom_sum;
    int64_t steps, gradients; /* gradients: bytes */
    char spikes[1024];        /* SpikeDetection's list */
} outcome;

typedef struct net {
    lc_module base;
    lc_module_ops ops;
    job *j;
    lc_linear l1, l2, deep[LAYERS];
    lc_conv2d conv;
    lc_batch_norm_layer bn;
    lc_tensor *counter; /* counts steps, in training_step */
    lc_max_pool2d pool;
    lc_embedding embedding;
    lc_layer_norm norm;
    lc_multihead_attention attention;
    lc_linear unused;
    lc_metric *accuracy, *train_accuracy;
    int64_t gradients;
    lc_tensor *loss; /* of the last chunk */
} net;

static inline lc_tensor *drop(const net *m, lc_tensor *x)
{
    return m->j->no_dropout || !m->base.training ? x : lc_dropout(x, 0.3);
}

static inline lc_tensor *logits_of(net *m, lc_tensor *x)
{
    if (m->j->kind == MLP) return lc_linear_forward(&m->l2, drop(m, lc_relu(lc_linear_forward(&m->l1, x))));
    if (m->j->kind == DEEP) {
        x = drop(m, lc_relu(lc_linear_forward(&m->l1, x)));
        for (int i = 0; i <= LAYERS; i++) x = lc_relu(lc_linear_forward(&m->deep[i % LAYERS], x));
        return lc_linear_forward(&m->l2, x);
    }
    if (m->j->kind == CNN || m->j->kind == NORM) {
        x = lc_conv2d_forward(&m->conv, lc_reshape(x, lc_tensor_dim(x, 0), 1, 8, 8));
        if (m->j->kind == NORM) x = lc_batch_norm2d_forward(&m->bn, x);
        x = lc_max_pool2d_forward(&m->pool, lc_relu(x));
        return lc_linear_forward(&m->l2, drop(m, lc_flatten(x, 1)));
    }
    x = lc_embedding_forward(&m->embedding, x); /* [B,T,W] */
    x = lc_add(
        x, lc_multihead_attention_forward(&m->attention, lc_layer_norm_forward(&m->norm, drop(m, x)), .causal = true));
    return lc_linear_forward(&m->l2, lc_mean(x, .dims = LC_DIMS(1)));
}

static inline lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    lc_tensor *logits = logits_of(m, b->x), *loss = lc_cross_entropy(logits, b->y);
    m->loss = loss;
    if (m->j->reads) { /* in the middle of the step */
        if (lc_metric_update_tensor(m->train_accuracy, logits, b->y) < 0) return NULL;
        lc_log_metric(self, "train_acc", m->train_accuracy);
    }
    lc_output(self, "logits", logits);
    lc_output(self, "mean", loss);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON, .on_step = LC_ON, .sync_dist = true);
    lc_log_value(self, "samples", (double)b->size, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_SUM);
    lc_log(self, "smallest", loss, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_MIN);
    if (i % 2 == 0) lc_log(self, "seldom", loss, .sync_dist = true);
    if (i % 2 == 0) lc_log(self, "seldom_sum", loss, .sync_dist = true, .reduce_fx = LC_LOG_SUM);
    if (m->counter) lc_assign(m->counter, lc_add_scalar(m->counter, 1));
    return m->j->skip_every && b->indices[0] % m->j->skip_every == 0 ? NULL : loss;
}

static inline lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_mean(lc_square(logits_of((net *)self, b->x)));
}

static inline lc_status on_before_optimizer_step(lc_module *self, lc_optimizer *optimizer)
{
    net *m = (net *)self;
    double loss;
    (void)optimizer;
    return m->loss ? lc_item(m->loss, &loss) : LC_OK;
}

static inline lc_status on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    int64_t epoch = lc_trainer_current_epoch(self->trainer);
    (void)b;
    m->loss = NULL;
    bool thawed = epoch > m->j->thaws_in || (epoch == m->j->thaws_in && i >= m->j->thaws_at);
    lc_tensor_set_requires_grad(m->l2.weight, thawed);
    return LC_OK;
}

static inline lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    job *j = m->j;
    lc_device_memory memory;
    LC_TRY(lc_trainer_memory(self->trainer, &memory));
    m->gradients = memory.gradients;
    /* Outputs are those of the batch, not of a chunk. */
    if (b->size) {
        double mean, loss;
        RANK_CHECK(o->n == 2 && lc_tensor_dim(o->values[0], 0) == b->size && lc_tensor_dim(o->values[0], 1) == CLASSES);
        LC_TRY(lc_item(o->values[1], &mean));
        if (o->loss) LC_TRY(lc_item(o->loss, &loss));
        RANK_CHECK(j->skip_every || j->two_steps || fabs(mean - loss) < 1e-6);
    }
    if (j->other_windows && i == 0) LC_TRY(lc_trainer_set_accumulate_grad_batches(self->trainer, 3));
    if (j->other_windows && i == 5) LC_TRY(lc_trainer_set_accumulate_grad_batches(self->trainer, 1));
    if (i != j->save_after || lc_trainer_current_epoch(self->trainer) != 1) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->saved, false);
}

static inline lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i, (void)loader;
    return log_scores(self, "val", logits_of(m, b->x), b->y, m->accuracy);
}

static inline lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const job *j = ((net *)self)->j;
    lc_optimizer *opt = j->optimizer == LBFGS   ? lc_lbfgs(self, .lr = 0.1, .max_iter = 3)
                        : j->optimizer == ADAM  ? lc_adam(self, .lr = 0.01)
                        : j->optimizer == ADAMW ? lc_adamw(self, .lr = 0.01, .weight_decay = 0.1)
                                                : lc_sgd(self, .lr = 0.1, .momentum = 0.9);
    if (j->two_steps) {
        LC_TRY(lc_optimizers_add_step(out, opt, training_step));
        return lc_optimizers_add_step(out, lc_adam(self, .lr = 0.001), second_step);
    }
    LC_TRY(lc_optimizers_add(out, opt));
    if (!j->schedule) return LC_OK;
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_cosine_annealing_lr(opt, .T_max = 20),
                                                                  .interval = LC_INTERVAL_STEP});
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_start = on_train_batch_start,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = validation_step,
    .configure_optimizers = configure_optimizers,
};

static inline lc_status loader_of(const job *j, int64_t first, int64_t n, int64_t batch, bool train,
                                  lc_dataloader **out)
{
    lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs[first]},
        {.field = {.name = "y", .dtype = LC_I64}, .data = labels + first}};
    if (j->kind == GPT)
        arrays[0] =
            (lc_array){.field = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {TOKENS}}, .data = tokens[first]};
    lc_dataset *d;
    LC_TRY(lc_array_dataset_new(n, 2, arrays, &d));
    lc_status s = lc_dataloader_new(out, .dataset = d, .batch_size = batch, .shuffle = train,
                                    .drop_last = train && j->drop_last, .seed = 4);
    lc_dataset_unref(d);
    return s;
}

static inline void build(net *m, uint64_t seed)
{
    m->ops = net_ops;
    m->ops.manual_optimization = m->j->manual;
    if (m->j->hook_reads) m->ops.on_before_optimizer_step = on_before_optimizer_step;
    lc_module_init(&m->base, &m->ops, seed);
    if (m->j->kind == MLP || m->j->kind == DEEP) lc_linear_init(&m->l1, m, "l1", FEATURES, 16);
    for (int i = 0; i < LAYERS && m->j->kind == DEEP; i++) {
        char name[16];
        snprintf(name, sizeof name, "deep%d", i);
        lc_linear_init(&m->deep[i], m, name, 16, 16);
    }
    if (m->j->kind == CNN || m->j->kind == NORM) {
        lc_conv2d_init(&m->conv, m, "conv", 1, 8, 3, .padding = 1);
        lc_max_pool2d_init(&m->pool, m, "pool", 2);
        if (m->j->kind == NORM) lc_batch_norm2d_init(&m->bn, m, "bn", 8);
    }
    if (m->j->kind == GPT) {
        lc_embedding_init(&m->embedding, m, "embedding", WORDS, WIDTH);
        lc_layer_norm_init(&m->norm, m, "norm", WIDTH);
        lc_multihead_attention_init(&m->attention, m, "attention", WIDTH, 2, .dropout = m->j->no_dropout ? 0 : 0.2);
    }
    if (m->j->counts)
        m->counter = lc_module_add_buffer(&m->base, "counter", LC_F32, 0, NULL, (lc_init){.kind = LC_INIT_ZEROS}, true);
    lc_linear_init(&m->unused, m, "unused", 3, 2); /* never has a gradient */
    lc_linear_init(&m->l2, m, "l2", m->j->kind == CNN || m->j->kind == NORM ? 8 * 4 * 4 : 16, CLASSES);
}

static inline lc_status collect(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    outcome *o = ctx;
    size_t n = (size_t)lc_tensor_numel(t->tensor) * lc_dtype_size(lc_tensor_dtype(t->tensor));
    (void)path, (void)owner;
    if (o->bytes + n > MOST_BYTES) return lc_fail(LC_ERR_INTERNAL, "a larger model than the test has room for");
    LC_TRY(lc_tensor_read(t->tensor, o->parameters + o->bytes, n));
    o->bytes += n;
    return LC_OK;
}

/* Reads optimizer.safetensors of a whole checkpoint. */
static inline lc_status read_state(lc_trainer *t, const char *root, outcome *o)
{
    char path[400];
    snprintf(path, sizeof path, "%s/end.ckpt", root);
    LC_TRY(lc_trainer_save_checkpoint(t, path, false));
    if (lc_trainer_global_rank(t)) return LC_OK;
    snprintf(path, sizeof path, "%s/end.ckpt/optimizer.safetensors", root);
    FILE *f = fopen(path, "rb");
    RANK_CHECK(f);
    o->state_bytes = fread(o->state, 1, sizeof o->state, f);
    RANK_CHECK(o->state_bytes > 0 && o->state_bytes < sizeof o->state);
    fclose(f);
    return LC_OK;
}

static inline lc_status read_spikes(const char *root, outcome *o)
{
    char path[400];
    snprintf(path, sizeof path, "%s/skip_batches.json", root);
    FILE *f = fopen(path, "rb");
    RANK_CHECK(f);
    o->spikes[fread(o->spikes, 1, sizeof o->spikes - 1, f)] = 0;
    fclose(f);
    return LC_OK;
}

static inline lc_status fit(net *m, lc_trainer *t, lc_dataloader *train, lc_dataloader *val, outcome *o)
{
    LC_TRY(lc_trainer_fit(t, &m->base, .train_dataloader = train, .val_dataloader = val));
    LC_TRY(lc_trainer_metric(t, "val_loss", &o->val_loss));
    LC_TRY(lc_trainer_metric(t, "val_acc", &o->val_acc));
    LC_TRY(lc_trainer_metric(t, "train_loss_epoch", &o->train_loss));
    LC_TRY(lc_trainer_metric(t, "train_loss_step", &o->step_loss));
    LC_TRY(lc_trainer_metric(t, "smallest", &o->smallest));
    LC_TRY(lc_trainer_metric(t, "samples", &o->samples));
    LC_TRY(lc_trainer_metric(t, "seldom", &o->seldom));
    LC_TRY(lc_trainer_metric(t, "seldom_sum", &o->seldom_sum));
    o->steps = lc_trainer_global_step(t);
    o->gradients = m->gradients;
    o->bytes = o->state_bytes = 0;
    o->spikes[0] = 0;
    if (m->j->compares_state) LC_TRY(read_state(t, m->j->root, o));
    if (m->j->spikes) LC_TRY(read_spikes(m->j->root, o));
    return lc_module_visit(&m->base, collect, o);
}

static inline void hush(void *ctx, lc_trainer *t, lc_level level, const char *text)
{
    (void)ctx, (void)t, (void)level, (void)text;
}

static inline lc_status run(job *j, lc_comm *comm, outcome *o)
{
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    net m = {.j = j};
    lc_dataloader *train, *val;
    lc_trainer *t = NULL;
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = j->max_epochs;
    opt.accumulate_grad_batches = j->accumulate;
    if (j->limit) opt.limit_train_batches = LC_BATCHES(j->limit);
    if (j->clip > 0) opt.gradient_clip_val = j->clip;
    if (j->clip_value) opt.gradient_clip_algorithm = "value";
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.strategy = comm || j->devices ? j->strategy : NULL;
    if (opt.strategy && !strcmp(opt.strategy, "sharded_hybrid")) opt.shard_size = n % 2 ? n : n / 2; /* two copies */
    opt.devices = j->devices;
    opt.precision = j->precision;
    opt.state_dict_type = comm ? j->state_dict_type : NULL;
    opt.bucket_cap_mb = 1. / 1024; /* so that there are several buckets and sharded units */
    opt.deterministic = true;
    opt.deterministic_chunk = j->chunk;
    opt.sync_batchnorm = j->sync_batchnorm;
    lc_callback callbacks[2];
    LC_TRY(lc_lambda_callback(&callbacks[0], .on_message = hush));
    if (j->spikes) LC_TRY(lc_spike_detection(&callbacks[1], .skip = true, .window = 3, .rtol = 0.02));
    if (j->averages)
        LC_TRY(lc_stochastic_weight_averaging(&callbacks[1], .swa_lrs = ((double[]){0.05}), .n_swa_lrs = 1,
                                              .swa_epoch_start = LC_EPOCHS(1)));
    opt.callbacks = callbacks;
    opt.n_callbacks = j->spikes || j->averages ? 2 : 1;
    LC_TRY(loader_of(j, 0, j->samples ? j->samples : SAMPLES, j->batch / n, true, &train));
    LC_TRY(loader_of(j, SAMPLES - VAL, VAL, j->batch / n, false, &val));
    build(&m, (uint64_t)(1 + rank)); /* the parameters come from rank 0 all the same */
    LC_TRY(lc_metric_new("Accuracy", &m.accuracy, .num_classes = CLASSES));
    LC_TRY(lc_metric_new("Accuracy", &m.train_accuracy, .num_classes = CLASSES));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = fit(&m, t, train, val, o);
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    lc_module_release(&m.base);
    lc_metric_free(m.accuracy), lc_metric_free(m.train_accuracy);
    return s;
}

#include "ranks_job.h"

static inline job job_of(const char *name, net_kind kind, int64_t batch, int64_t chunk)
{
    job j = {.kind = kind,
             .batch = batch,
             .chunk = chunk,
             .max_epochs = takes_all() ? 3 : 2,
             .accumulate = 1,
             .save_after = -1,
             .strategy = "ddp",
             .state_dict_type = "full"};
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    return j;
}

static inline bool same_bits(double a, double b)
{
    return !memcmp(&a, &b, sizeof a);
}

static inline void compare(const outcome *a, const outcome *b, const char *what)
{
    CHECK_EQ(a->steps, b->steps);
    CHECK_EQ(a->bytes, b->bytes);
    size_t differ = 0;
    for (size_t i = 0; i < a->bytes; i += 4) differ += memcmp(a->parameters + i, b->parameters + i, 4) != 0;
    if (differ) TEST_FAIL("%s: %zu of %zu numbers of the model differ", what, differ, a->bytes / 4);
    if (b->state_bytes && (a->state_bytes != b->state_bytes || memcmp(a->state, b->state, a->state_bytes) != 0))
        TEST_FAIL("%s: the state of the optimizer differs", what);
    if (strcmp(a->spikes, b->spikes) != 0) TEST_FAIL("%s: spikes %s where there are %s", what, b->spikes, a->spikes);
    if (!same_bits(a->train_loss, b->train_loss) || !same_bits(a->step_loss, b->step_loss) ||
        !same_bits(a->val_loss, b->val_loss) || !same_bits(a->val_acc, b->val_acc) ||
        !same_bits(a->smallest, b->smallest) || !same_bits(a->samples, b->samples) ||
        !same_bits(a->seldom, b->seldom) || !same_bits(a->seldom_sum, b->seldom_sum))
        TEST_FAIL("%s: logged values differ: train %a %a, step %a %a, val %a %a, acc %a %a, min %a %a, seldom %a %a",
                  what, a->train_loss, b->train_loss, a->step_loss, b->step_loss, a->val_loss, b->val_loss, a->val_acc,
                  b->val_acc, a->smallest, b->smallest, a->seldom, b->seldom);
}

static outcome one;
static ranks_job ranks;

static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3", "sharded_hybrid"};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

/* The run with which the others are compared: on one rank, and on the CPU, whose bits are those of the simulated
 * device.
 */
static inline void run_alone(job *j)
{
    bool simulated = is_simulated();
    if (simulated) simulate(false);
    lc_status status = run(j, NULL, &one);
    if (simulated) simulate(true);
    CHECK_OK(status);
}

static inline void run_on(job *j, const char *name, int n)
{
    char what[128];
    memset(&ranks, 0, sizeof ranks);
    ranks.j = j;
    CHECK_RANKS("threads", n, run_rank, &ranks);
    for (int i = 0; i < n; i++) {
        snprintf(what, sizeof what, "%s, %s, rank %d of %d", name, j->strategy, i, n);
        compare(&one, &ranks.o[i], what);
    }
}

/* On devices of one process; under a sanitizer with one of the two strategies, by turns. */
static inline void check_devices(const job *like, const char *name, int n)
{
    static const char *const kinds[] = {"data_parallel", "central_storage"};
    static int turn;
    int first = takes_all() ? 0 : turn++ % 2, end = takes_all() ? 2 : first + 1;
    for (int s = first; s < end; s++) {
        char what[128], devices[8];
        job j = *like;
        snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
        snprintf(devices, sizeof devices, "%d", n);
        j.devices = devices;
        j.strategy = kinds[s];
        memset(&ranks, 0, sizeof ranks);
        CHECK_OK(run(&j, NULL, &ranks.o[0]));
        snprintf(what, sizeof what, "%s, %d devices of %s", name, n, j.strategy);
        compare(&one, &ranks.o[0], what);
    }
}

/* Under a sanitizer two of the strategies, by turns. */
static inline void check_on(const job *like, const char *name, int n)
{
    static int turn;
    /* In stage 3 every chunk must use the same parameters. */
    int several = STRATEGIES - (like->skip_every > 0 ? 2 : 0);
    check_devices(like, name, n);
    for (int i = 0; i < (takes_all() ? several : 2); i++) {
        int s = takes_all() ? i : turn++ % several;
        job j = *like;
        snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
        j.strategy = strategies[s];
        run_on(&j, name, n);
    }
}

static inline void check(const job *like, const char *name, int most)
{
    job single = *like;
    run_alone(&single);
    CHECK(one.train_loss > 0 && one.train_loss < 1.6);
    CHECK_EQ(one.samples, like->drop_last ? SAMPLES / like->batch * like->batch : SAMPLES);
    for (int n = 1; n <= most; n *= 2) check_on(like, name, n);
}

#endif
