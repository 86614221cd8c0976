/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and devices that share a combined loader train and evaluate as one process does, even if the last batches of
 * its loaders have different sizes: every rank has the same share of each. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

#include <math.h>
#include <pthread.h>

enum { EPOCHS = 2 };

typedef struct job {
    int64_t n[2], batch; /* samples of each loader; batch: total of all ranks */
    lc_combine mode;
    bool deterministic;
    int64_t chunk;
    const char *strategy, *devices; /* devices: of a single process */
    const char *ckpt_path, *save;   /* save: after batch `save_after` of the last epoch */
    int64_t save_after, begin_epoch;
    const char *root;
    /* the results */
    int seen[SAMPLES][EPOCHS], warnings;
    pthread_mutex_t lock;
} job;

typedef struct outcome {
    float weight[WIDTH * FEATURES], head[CLASSES * WIDTH];
    double val_loss, train_loss;
    int64_t steps;
} outcome;

typedef struct net {
    small_net base;
    job *j;
} net;

static void see(net *m, const lc_batch *b)
{
    int64_t epoch = lc_trainer_current_epoch(m->base.base.trainer);
    pthread_mutex_lock(&m->j->lock);
    for (int64_t i = 0; i < b->size; i++) m->j->seen[b->indices[i]][epoch]++;
    pthread_mutex_unlock(&m->j->lock);
}

/* A mean over each part that exists. */
static lc_tensor *loss_of(net *m, const lc_batch *b, bool train)
{
    lc_tensor *sum = NULL;
    for (int p = 0; p < b->n_parts; p++) {
        const lc_batch *part = b->parts[p];
        if (!part) continue;
        if (train && p == 0) see(m, part);
        lc_tensor *loss = lc_cross_entropy(logits_of(&m->base, part->x), part->y);
        sum = sum ? lc_add(sum, lc_mul_scalar(loss, 0.5)) : loss;
    }
    return sum;
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = loss_of((net *)self, b, true);
    (void)i;
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON, .on_step = LC_OFF);
    return loss;
}

static lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    lc_log(self, "val_loss", loss_of((net *)self, b, false));
    return LC_OK;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    const job *j = ((net *)self)->j;
    (void)o, (void)b;
    if (!j->save || i != j->save_after || lc_trainer_current_epoch(self->trainer) != EPOCHS - 1) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->save, false);
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),          .training_step = training_step,        .on_train_batch_end = on_train_batch_end,
    .validation_step = validation_step, .configure_optimizers = small_net_sgd,
};

static void count_warnings(void *ctx, lc_trainer *t, lc_level level, const char *text)
{
    job *j = ctx;
    (void)t;
    j->warnings += level == LC_WARNING && strstr(text, "drop_last") != NULL;
}

static lc_status combined(const job *j, int64_t batch, bool train, lc_dataloader **out)
{
    lc_dataloader *parts[2];
    LC_TRY(loader_of(0, j->n[0], batch, train, &parts[0]));
    LC_TRY(loader_of(SAMPLES - j->n[1], j->n[1], batch, train, &parts[1]));
    return lc_combined_loader_new(j->mode, 2, parts, out);
}

static lc_status run(job *j, lc_comm *comm, outcome *o)
{
    net m = {.j = j};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_callback callback;
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = EPOCHS;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.strategy = comm || j->devices ? j->strategy : NULL;
    opt.devices = j->devices;
    opt.deterministic = j->deterministic;
    opt.deterministic_chunk = j->chunk;
    LC_TRY(lc_lambda_callback(&callback, .context = j, .on_message = count_warnings));
    opt.callbacks = &callback;
    opt.n_callbacks = 1;
    LC_TRY(small_net_init(&m.base, &net_ops, 3));
    LC_TRY(combined(j, j->batch / (comm ? lc_comm_size(comm) : 1), true, &train));
    LC_TRY(combined(j, j->batch / (comm ? lc_comm_size(comm) : 1), false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train, .val_dataloader = val);
    if (s >= 0) s = lc_tensor_read(m.base.l1.weight, o->weight, sizeof o->weight);
    if (s >= 0) s = lc_tensor_read(m.base.l2.weight, o->head, sizeof o->head);
    if (s >= 0) s = lc_trainer_metric(t, "val_loss", &o->val_loss);
    if (s >= 0) s = lc_trainer_metric(t, "train_loss", &o->train_loss);
    o->steps = lc_trainer_global_step(t);
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m.base);
    return s;
}

#include "ranks_job.h"

static job job_of(int64_t first, int64_t second, int64_t batch)
{
    job j = {.n = {first, second}, .batch = batch, .strategy = "ddp"};
    j.root = fresh_dir("combined");
    pthread_mutex_init(&j.lock, NULL);
    return j;
}

static void clear(job *j)
{
    memset(j->seen, 0, sizeof j->seen);
    j->warnings = 0;
}

static void compare(const job *j, const outcome *want, const outcome *got, const char *what)
{
    double least = j->deterministic ? 0 : 1e-5;
    CHECK_EQ(got->steps, want->steps);
    for (int i = 0; i < WIDTH * FEATURES; i++)
        if (!(fabs(got->weight[i] - want->weight[i]) <= least)) TEST_FAIL("%s: weight %d differs", what, i);
    for (int i = 0; i < CLASSES * WIDTH; i++)
        if (!(fabs(got->head[i] - want->head[i]) <= least)) TEST_FAIL("%s: number %d of the head differs", what, i);
    if (!(fabs(got->val_loss - want->val_loss) <= least) || !(fabs(got->train_loss - want->train_loss) <= least))
        TEST_FAIL("%s: losses differ: %g %g, %g %g", what, want->val_loss, got->val_loss, want->train_loss,
                  got->train_loss);
}

static void check_seen(const job *j)
{
    for (int e = 0; e < EPOCHS && !j->ckpt_path; e++)
        for (int64_t i = 0; i < j->n[0]; i++) CHECK_EQ(j->seen[i][e], 1);
}

static void on_ranks(job *j, const outcome *want, int n, const char *strategy)
{
    static ranks_job r;
    char what[64];
    memset(&r, 0, sizeof r);
    clear(j);
    j->strategy = strategy;
    r.j = j;
    CHECK_RANKS("threads", n, run_rank, &r);
    for (int i = 0; i < n && want; i++) {
        snprintf(what, sizeof what, "%s, rank %d of %d", strategy, i, n);
        compare(j, want, &r.o[i], what);
    }
    check_seen(j);
}

static void on_devices(job *j, const outcome *want, const char *devices, const char *strategy)
{
    outcome o;
    clear(j);
    j->devices = devices;
    j->strategy = strategy;
    CHECK_OK(run(j, NULL, &o));
    if (want) compare(j, want, &o, strategy);
    check_seen(j);
    j->devices = NULL;
}

/* The first loader is longer, so each of its samples comes once. */
TEST(ranks_and_devices_train_as_one)
{
    static const struct {
        int64_t first, second, batch;
        int ranks;
    } cases[] = {
        {60, 20, 12, 2}, /* 8 and 12 */
        {61, 40, 12, 2}, /* 1 and 12, 12 and 4: some ranks get nothing at all */
        {61, 40, 12, 4}, {80, 17, 15, 3}, {63, 20, 15, 5},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int mode = LC_MAX_SIZE_CYCLE; mode <= LC_MAX_SIZE; mode += LC_MAX_SIZE) {
            job j = job_of(cases[k].first, cases[k].second, cases[k].batch);
            outcome one;
            char devices[8];
            j.mode = (lc_combine)mode;
            CHECK_OK(run(&j, NULL, &one));
            check_seen(&j);
            on_ranks(&j, &one, cases[k].ranks, "ddp");
            CHECK_EQ(j.warnings, 0);
            on_ranks(&j, &one, cases[k].ranks, k % 2 ? "sharded_3" : "sharded_1");
            snprintf(devices, sizeof devices, "%d", cases[k].ranks);
            on_devices(&j, &one, devices, k % 2 ? "central_storage" : "data_parallel");
            CHECK_EQ(j.warnings, 0);
        }
}

TEST(deterministic_ranks_and_devices_have_the_bits_of_one)
{
    static const int64_t cases[][4] = {{60, 40, 16, 0}, {61, 37, 16, 4}, {63, 21, 16, 4}}; /* with chunks */
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        job j = job_of(cases[k][0], cases[k][1], cases[k][2]);
        outcome one;
        j.deterministic = true;
        j.chunk = cases[k][3];
        CHECK_OK(run(&j, NULL, &one));
        on_ranks(&j, &one, 2, "ddp");
        on_ranks(&j, &one, 4, k % 2 ? "sharded_2" : "sharded_3");
        on_devices(&j, &one, "3", "data_parallel");
        CHECK_EQ(j.warnings, 0);
    }
}

TEST(a_chunk_needs_samples_of_every_part)
{
    job j = job_of(63, 21, 16); /* 5 of the second, for 8 chunks */
    outcome o;
    j.deterministic = true;
    CHECK_STATUS(run(&j, NULL, &o), LC_ERR_CONFIG);
    CHECK_CONTAINS(lc_error_message(), "deterministic_chunk");
}

/* In the middle of an epoch, and of a cycle of its second loader. */
TEST(a_run_goes_on_with_other_ranks)
{
    for (int64_t at = 1; at < 5; at += 3) {
        job j = job_of(61, 40, 12);
        outcome one;
        char saved[400];
        snprintf(saved, sizeof saved, "%s/saved.ckpt", j.root);
        CHECK_OK(run(&j, NULL, &one));
        j.save = saved;
        j.save_after = at;
        on_ranks(&j, &one, 2, "ddp");
        j.save = NULL;
        j.ckpt_path = saved;
        on_ranks(&j, &one, 2, "ddp");
        for (int64_t i = 0, all = 0; i < j.n[0]; i++) {
            CHECK_EQ(j.seen[i][EPOCHS - 1] & ~1, 0);
            all += j.seen[i][EPOCHS - 1];
            if (i + 1 == j.n[0]) CHECK_EQ(all, j.n[0] - (at + 1) * j.batch);
        }
        on_ranks(&j, &one, 3, "sharded_2");
    }
}

/* 29 and 32 samples have no common share for two ranks: reported once, on one rank. */
TEST(shares_that_cannot_be_equal_are_reported)
{
    job j = job_of(61, 40, 32);
    on_ranks(&j, NULL, 2, "ddp");
    CHECK_EQ(j.warnings, 1);
    on_devices(&j, NULL, "2", "data_parallel");
    CHECK_EQ(j.warnings, 1);
}

TEST_MAIN
