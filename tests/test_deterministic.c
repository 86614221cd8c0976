/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2, bit for bit: with `deterministic` N ranks with batch B end where one rank with batch N * B ends. */
#include "comm_world.h"
#include "core/exact_sum.h"
#include "scratch.h"

#include <lightc/lightc.h>

enum { SAMPLES = 150, VAL = 53, FEATURES = 64, CLASSES = 4, TOKENS = 10, WORDS = 12, WIDTH = 16 };

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

typedef enum net_kind { MLP, CNN, GPT, KINDS } net_kind;

typedef struct job {
    char root[320];
    net_kind kind;
    int64_t batch, chunk, max_epochs, accumulate; /* batch: of all ranks */
    double clip;
    bool adam, schedule, drop_last, no_dropout;
    const char *ckpt_path;
    int64_t save_after; /* this batch of epoch 1; -1: never */
    char saved[400];
    int skip_every; /* chunks without a loss */
} job;

enum { MOST_BYTES = 1 << 16 };
typedef struct outcome {
    size_t bytes;
    unsigned char parameters[MOST_BYTES];
    double val_loss, val_acc, train_loss, step_loss, smallest, samples;
    int64_t steps;
} outcome;

typedef struct net {
    lc_module base;
    job *j;
    lc_linear l1, l2;
    lc_conv2d conv;
    lc_max_pool2d pool;
    lc_embedding embedding;
    lc_layer_norm norm;
    lc_multihead_attention attention;
    lc_linear unused;
    lc_metric *accuracy;
} net;

static lc_tensor *drop(const net *m, lc_tensor *x)
{
    return m->j->no_dropout || !m->base.training ? x : lc_dropout(x, 0.3);
}

static lc_tensor *logits_of(net *m, lc_tensor *x)
{
    if (m->j->kind == MLP) return lc_linear_forward(&m->l2, drop(m, lc_relu(lc_linear_forward(&m->l1, x))));
    if (m->j->kind == CNN) {
        x = lc_reshape(x, lc_tensor_dim(x, 0), 1, 8, 8);
        x = lc_max_pool2d_forward(&m->pool, lc_relu(lc_conv2d_forward(&m->conv, x)));
        return lc_linear_forward(&m->l2, drop(m, lc_flatten(x, 1)));
    }
    x = lc_embedding_forward(&m->embedding, x); /* [B,T,W] */
    x = lc_add(
        x, lc_multihead_attention_forward(&m->attention, lc_layer_norm_forward(&m->norm, drop(m, x)), .causal = true));
    return lc_linear_forward(&m->l2, lc_mean(x, .dims = LC_DIMS(1)));
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    int64_t chunk = b->first / (b->size ? b->size : 1);
    if (m->j->skip_every && b->indices[0] % m->j->skip_every == 0) return NULL;
    (void)chunk;
    lc_tensor *loss = lc_cross_entropy(logits_of(m, b->x), b->y);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON, .on_step = LC_ON, .sync_dist = true);
    lc_log_value(self, "samples", (double)b->size, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_SUM);
    lc_log(self, "smallest", loss, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_MIN);
    return loss;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    job *j = ((net *)self)->j;
    (void)o, (void)b;
    if (i != j->save_after || lc_trainer_current_epoch(self->trainer) != 1) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->saved, false);
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    lc_tensor *logits = logits_of(m, b->x);
    (void)i, (void)loader;
    lc_log(self, "val_loss", lc_cross_entropy(logits, b->y));
    LC_TRY(lc_metric_update_tensor(m->accuracy, logits, b->y));
    lc_log_metric(self, "val_acc", m->accuracy);
    return LC_OK;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const job *j = ((net *)self)->j;
    lc_optimizer *opt = j->adam ? lc_adam(self, .lr = 0.01) : lc_sgd(self, .lr = 0.1, .momentum = 0.9);
    LC_TRY(lc_optimizers_add(out, opt));
    if (!j->schedule) return LC_OK;
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_cosine_annealing_lr(opt, .T_max = 20),
                                                                  .interval = LC_INTERVAL_STEP});
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = validation_step,
    .configure_optimizers = configure_optimizers,
};

static lc_status loader_of(const job *j, int64_t first, int64_t n, int64_t batch, bool train, lc_dataloader **out)
{
    lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs[first]},
        {.field = {.name = "y", .dtype = LC_I64}, .data = labels + first}};
    if (j->kind == GPT)
        arrays[0] =
            (lc_array){.field = {.name = "x", .dtype = LC_I64, .ndim = 1, .shape = {TOKENS}}, .data = tokens[first]};
    lc_dataset *d;
    LC_TRY(lc_array_dataset_new(n, 2, arrays, &d));
    lc_status s = lc_dataloader_new(
        &(lc_dataloader_options){
            .dataset = d, .batch_size = batch, .shuffle = train, .drop_last = train && j->drop_last, .seed = 4},
        out);
    lc_dataset_unref(d);
    return s;
}

static void build(net *m, uint64_t seed)
{
    lc_module_init(&m->base, &net_ops, seed);
    if (m->j->kind == MLP) lc_linear_init(&m->l1, m, "l1", FEATURES, 16);
    if (m->j->kind == CNN) {
        lc_conv2d_init(&m->conv, m, "conv", 1, 8, 3, .padding = 1);
        lc_max_pool2d_init(&m->pool, m, "pool", 2);
    }
    if (m->j->kind == GPT) {
        lc_embedding_init(&m->embedding, m, "embedding", WORDS, WIDTH);
        lc_layer_norm_init(&m->norm, m, "norm", WIDTH);
        lc_multihead_attention_init(&m->attention, m, "attention", WIDTH, 2, .dropout = m->j->no_dropout ? 0 : 0.2);
    }
    lc_linear_init(&m->unused, m, "unused", 3, 2); /* never has a gradient */
    lc_linear_init(&m->l2, m, "l2", m->j->kind == CNN ? 8 * 4 * 4 : 16, CLASSES);
}

static lc_status collect(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    outcome *o = ctx;
    size_t n = (size_t)lc_tensor_numel(t->tensor) * lc_dtype_size(lc_tensor_dtype(t->tensor));
    (void)path, (void)owner;
    if (o->bytes + n > MOST_BYTES) return lc_fail(LC_ERR_INTERNAL, "a larger model than the test has room for");
    LC_TRY(lc_tensor_read(t->tensor, o->parameters + o->bytes, n));
    o->bytes += n;
    return LC_OK;
}

static lc_status fit(net *m, lc_trainer *t, lc_dataloader *train, lc_dataloader *val, outcome *o)
{
    LC_TRY(lc_trainer_fit(t, &m->base, &(lc_run_args){.train_dataloader = train, .val_dataloader = val}));
    LC_TRY(lc_trainer_metric(t, "val_loss", &o->val_loss));
    LC_TRY(lc_trainer_metric(t, "val_acc", &o->val_acc));
    LC_TRY(lc_trainer_metric(t, "train_loss_epoch", &o->train_loss));
    LC_TRY(lc_trainer_metric(t, "train_loss_step", &o->step_loss));
    LC_TRY(lc_trainer_metric(t, "smallest", &o->smallest));
    LC_TRY(lc_trainer_metric(t, "samples", &o->samples));
    o->steps = lc_trainer_global_step(t);
    o->bytes = 0;
    return lc_module_visit(&m->base, collect, o);
}

static lc_status run(job *j, lc_comm *comm, outcome *o)
{
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    net m = {.j = j};
    lc_dataloader *train, *val;
    lc_trainer *t = NULL;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = j->max_epochs;
    opt.accumulate_grad_batches = j->accumulate;
    if (j->clip > 0) opt.gradient_clip_val = j->clip;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.strategy = comm ? "ddp" : NULL;
    opt.comm = comm;
    opt.deterministic = true;
    opt.deterministic_chunk = j->chunk;
    opt.threads = 1;
    opt.logger = "none";
    opt.enable_progress_bar = opt.enable_model_summary = opt.enable_checkpointing = LC_OFF;
    opt.handle_signals = false;
    LC_TRY(loader_of(j, 0, SAMPLES, j->batch / n, true, &train));
    LC_TRY(loader_of(j, SAMPLES - VAL, VAL, j->batch / n, false, &val));
    build(&m, (uint64_t)(1 + rank)); /* parameters come from rank 0 all the same */
    LC_TRY(lc_metric_new("Accuracy", &(lc_metric_options){.num_classes = CLASSES}, &m.accuracy));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = fit(&m, t, train, val, o);
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    lc_module_release(&m.base);
    lc_metric_free(m.accuracy);
    return s;
}

typedef struct ranks_job {
    job *j;
    outcome o[WORLD_RANKS];
} ranks_job;

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    ranks_job *r = ctx;
    return run(r->j, comm, &r->o[lc_comm_rank(comm)]);
}

static job job_of(const char *name, net_kind kind, int64_t batch, int64_t chunk)
{
    job j = {.kind = kind, .batch = batch, .chunk = chunk, .max_epochs = 3, .accumulate = 1, .save_after = -1};
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    return j;
}

static bool same_bits(double a, double b)
{
    return !memcmp(&a, &b, sizeof a);
}

static void compare(const outcome *a, const outcome *b, const char *what)
{
    CHECK_EQ(a->steps, b->steps);
    CHECK_EQ(a->bytes, b->bytes);
    size_t differ = 0;
    for (size_t i = 0; i < a->bytes; i += 4) differ += memcmp(a->parameters + i, b->parameters + i, 4) != 0;
    if (differ) TEST_FAIL("%s: %zu of %zu numbers of the model differ", what, differ, a->bytes / 4);
    if (!same_bits(a->train_loss, b->train_loss) || !same_bits(a->step_loss, b->step_loss) ||
        !same_bits(a->val_loss, b->val_loss) || !same_bits(a->val_acc, b->val_acc) ||
        !same_bits(a->smallest, b->smallest) || !same_bits(a->samples, b->samples))
        TEST_FAIL("%s: logged values differ: train %a %a, step %a %a, val %a %a, acc %a %a, min %a %a", what,
                  a->train_loss, b->train_loss, a->step_loss, b->step_loss, a->val_loss, b->val_loss, a->val_acc,
                  b->val_acc, a->smallest, b->smallest);
}

static outcome one;
static ranks_job ranks;

static void check_on(const job *like, const char *name, int n)
{
    char what[128];
    job j = *like;
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    memset(&ranks, 0, sizeof ranks);
    ranks.j = &j;
    CHECK_RANKS("threads", n, run_rank, &ranks);
    for (int i = 0; i < n; i++) {
        snprintf(what, sizeof what, "%s, rank %d of %d", name, i, n);
        compare(&one, &ranks.o[i], what);
    }
}

static void check(const job *like, const char *name, int most)
{
    job single = *like;
    CHECK_OK(run(&single, NULL, &one));
    CHECK(one.train_loss > 0 && one.train_loss < 1.6);
    CHECK_EQ(one.samples, like->drop_last ? SAMPLES / like->batch * like->batch : SAMPLES);
    for (int n = 1; n <= most; n *= 2) check_on(like, name, n);
}

TEST(ranks_are_one_bit_for_bit)
{
    for (int k = 0; k < KINDS; k++) {
        job j = job_of("plain", (net_kind)k, 32, 0);
        check(&j, "plain", 8);
    }
}

TEST(three_ranks)
{
    job j = job_of("three", MLP, 36, 3);
    CHECK_OK(run(&j, NULL, &one));
    check_on(&j, "three", 3);
    j.kind = CNN;
    CHECK_OK(run(&j, NULL, &one));
    check_on(&j, "three-cnn", 3);
}

TEST(clipping_schedules_and_momentum)
{
    for (int k = 0; k < KINDS; k++) {
        job j = job_of("clip", (net_kind)k, 40, 0);
        j.clip = 0.4;
        j.schedule = true;
        check(&j, "clip", 4);
        j.adam = true;
        check(&j, "clip-adam", 2);
    }
}

TEST_MAIN
