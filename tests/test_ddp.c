/* SPDX-License-Identifier: Apache-2.0 */
/* Law 2 in the trainer: N ranks with batch B train as one rank with batch N * B, and everything around the step (logged
 * values, checkpoints, early stopping, resuming, wishes to stop, failures) is one run's. */
#include "comm_world.h"
#include "scratch.h"
#include "small_net.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>

enum { GLOBAL_BATCH = 12 };

typedef struct job {
    char root[320];
    int64_t max_epochs, accumulate;
    double clip, bucket_cap_mb; /* 0: the default */
    bool shuffle, early, manual;
    int64_t samples, val, accumulate_manually; /* samples, val 0: all */
    const char *ckpt_path;
    const char *strategy; /* NULL: ddp, or with one process none */
    int64_t shard_size;
    int stop_rank, fail_rank; /* -1: none */
    bool leaves;              /* fail_rank ends its epoch instead */
    int64_t at_batch;
    int64_t save_after; /* this batch of epoch 1; -1: never */
    char saved[400];
    const char *state_dict_type;
    bool seen[SAMPLES]; /* of the last epoch */
    pthread_mutex_t lock;
} job;

typedef struct outcome {
    float weight[8 * FEATURES], head[8 * CLASSES];
    double val_loss, val_acc, train_loss, smallest, samples;
    int64_t steps, epochs, all_reduces;
    lc_status status;
} outcome;

typedef struct net {
    small_net base;
    job *j;
    int rank;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    job *j = m->j;
    if (m->rank == j->fail_rank && i == j->at_batch && !j->leaves) {
        lc_fail(LC_ERR_USER, "the sensor of this rank is unplugged");
        return NULL;
    }
    if (m->rank == j->stop_rank && i == j->at_batch) lc_trainer_stop(self->trainer);
    pthread_mutex_lock(&j->lock);
    for (int64_t k = 0; k < b->size; k++) j->seen[b->indices[k]] = true;
    pthread_mutex_unlock(&j->lock);
    lc_tensor *loss = lc_cross_entropy(logits_of(&m->base, b->x), b->y);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON, .on_step = LC_ON);
    lc_log_value(self, "samples", (double)b->size, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_SUM);
    lc_log(self, "smallest", loss, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_MIN);
    return loss;
}

/* Two backward passes for a step, and a step for several batches; only one of the losses needs the first layer. */
static lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    int64_t window = m->j->accumulate_manually;
    lc_tensor *loss = training_step(self, b, i);
    lc_status s =
        i % window ? LC_OK : lc_manual_zero_grad(self, i % (2 * window) ? lc_manual_optimizer(self, 0) : NULL);
    if (s >= 0) s = lc_manual_backward(self, loss);
    lc_tensor *rest =
        lc_mean(lc_square(lc_linear_forward(&m->base.l2, lc_detach(lc_relu(lc_linear_forward(&m->base.l1, b->x))))));
    if (s >= 0) s = lc_manual_backward(self, rest);
    if (s >= 0 && (i + 1) % window == 0) s = lc_manual_step(self, lc_manual_optimizer(self, 0));
    return s < 0 ? NULL : loss;
}

static lc_status on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    const net *m = (net *)self;
    (void)b;
    return m->j->leaves && m->rank == m->j->fail_rank && i == m->j->at_batch ? LC_SKIP : LC_OK;
}

/* Between two steps of the optimizer, where gradients and sums of ranks are their own. */
static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    job *j = ((net *)self)->j;
    (void)o, (void)b;
    if (i != j->save_after || lc_trainer_current_epoch(self->trainer) != 1) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->saved, false);
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1, .momentum = 0.9));
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .on_train_batch_start = on_train_batch_start,
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = small_net_validation_step,
    .predict_step = small_net_predict_step,
    .configure_optimizers = configure_optimizers,
};

static const lc_module_ops manual_ops = {
    LC_MODULE_OPS_INIT("manual_net"),
    .training_step = manual_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = small_net_validation_step,
    .configure_optimizers = configure_optimizers,
    .manual_optimization = true,
};

static lc_status run(job *j, lc_comm *comm, outcome *o)
{
    int n = comm ? lc_comm_size(comm) : 1;
    net m = {.j = j, .rank = comm ? lc_comm_rank(comm) : 0};
    lc_dataloader *train, *val;
    lc_trainer *t = NULL;
    lc_callback callbacks[2];
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_epochs = j->max_epochs;
    opt.accumulate_grad_batches = j->accumulate;
    if (j->clip > 0) opt.gradient_clip_val = j->clip;
    if (j->bucket_cap_mb > 0) opt.bucket_cap_mb = j->bucket_cap_mb;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.state_dict_type = j->state_dict_type;
    opt.strategy = !comm ? NULL : j->strategy ? j->strategy : "ddp";
    opt.shard_size = comm ? j->shard_size : 0;
    opt.comm = comm;
    opt.threads = 1;
    opt.log_every_n_steps = 1;
    opt.logger = "csv";
    opt.enable_progress_bar = opt.enable_model_summary = LC_OFF;
    opt.handle_signals = false;
    LC_TRY(lc_model_checkpoint_new(
        &(lc_model_checkpoint_args){.monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON}, &callbacks[0]));
    if (j->early)
        LC_TRY(lc_early_stopping_new(&(lc_early_stopping_args){.monitor = "val_loss", .patience = 1, .min_delta = 0.1},
                                     &callbacks[1]));
    opt.callbacks = callbacks;
    opt.n_callbacks = j->early ? 2 : 1;
    LC_TRY(loader_of(0, j->samples ? j->samples : SAMPLES, GLOBAL_BATCH / n, j->shuffle, &train));
    LC_TRY(loader_of(SAMPLES - VAL, j->val ? j->val : VAL, GLOBAL_BATCH / n, false, &val));
    /* Other seeds: parameters come from rank 0 all the same. */
    LC_TRY(small_net_init(&m.base, j->manual ? &manual_ops : &net_ops, (uint64_t)(1 + m.rank)));
    LC_TRY(lc_trainer_new(&opt, &t));
    o->status = lc_trainer_fit(t, &m.base.base, &(lc_run_args){.train_dataloader = train, .val_dataloader = val});
    lc_status s = o->status;
    if (s >= 0) {
        if (s >= 0) s = lc_trainer_metric(t, "val_loss", &o->val_loss);
        if (s >= 0) s = lc_trainer_metric(t, "val_acc", &o->val_acc);
        if (s >= 0) s = lc_trainer_metric(t, "train_loss_epoch", &o->train_loss);
        if (s >= 0) s = lc_trainer_metric(t, "smallest", &o->smallest);
        if (s >= 0) s = lc_trainer_metric(t, "samples", &o->samples);
        if (s >= 0) s = lc_tensor_read(m.base.l1.weight, o->weight, sizeof o->weight);
        if (s >= 0) s = lc_tensor_read(m.base.l2.weight, o->head, sizeof o->head);
    }
    o->steps = lc_trainer_global_step(t);
    o->epochs = lc_trainer_current_epoch(t);
    if (comm) {
        lc_comm_stats stats;
        lc_comm_get_stats(comm, &stats);
        o->all_reduces = stats.calls[LC_COMM_ALL_REDUCE];
    }
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m.base);
    return s;
}

/* ---- the job on N ranks ---- */

typedef struct ranks_job {
    job *j;
    outcome o[WORLD_RANKS];
} ranks_job;

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    ranks_job *r = ctx;
    return run(r->j, comm, &r->o[lc_comm_rank(comm)]);
}

static lc_status run_rank_that_fails(lc_comm *comm, void *ctx)
{
    (void)!run_rank(comm, ctx);
    return LC_OK;
}

static job job_of(const char *name)
{
    job j = {.max_epochs = 3, .accumulate = 1, .stop_rank = -1, .fail_rank = -1, .save_after = -1, .shuffle = true};
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    pthread_mutex_init(&j.lock, NULL);
    return j;
}

static int count_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void compare(const outcome *a, const outcome *b)
{
    CHECK_EQ(a->steps, b->steps);
    CHECK_EQ(a->epochs, b->epochs);
    for (size_t i = 0; i < sizeof a->weight / 4; i++) CHECK_NEAR(a->weight[i], b->weight[i], 3e-6);
    for (size_t i = 0; i < sizeof a->head / 4; i++) CHECK_NEAR(a->head[i], b->head[i], 3e-6);
    CHECK_NEAR(a->val_loss, b->val_loss, 1e-5);
    CHECK_NEAR(a->val_acc, b->val_acc, 1e-12);
    CHECK_NEAR(a->train_loss, b->train_loss, 1e-5);
    CHECK_EQ(a->samples, SAMPLES);
    CHECK_EQ(b->samples, SAMPLES);
}

/* `change` is applied to every job. */
static void check(const char *name, void (*change)(job *j))
{
    outcome one;
    job single = job_of(name);
    change(&single);
    CHECK_OK(run(&single, NULL, &one));
    for (int n = 1; n <= 4; n++) {
        static ranks_job r;
        char dir[64];
        snprintf(dir, sizeof dir, "%s-%d", name, n);
        job j = job_of(dir);
        change(&j);
        memset(&r, 0, sizeof r);
        r.j = &j;
        CHECK_RANKS("threads", n, run_rank, &r);
        for (int i = 0; i < n; i++) {
            compare(&one, &r.o[i]);
            CHECK(!memcmp(r.o[0].weight, r.o[i].weight, sizeof r.o[0].weight));
            CHECK(r.o[0].val_loss == r.o[i].val_loss && r.o[0].smallest == r.o[i].smallest);
        }
        for (int i = 0; i < SAMPLES; i++) CHECK(j.seen[i]);
        /* One run, one set of checkpoints, the same names. */
        char a[512], b[512];
        snprintf(a, sizeof a, "%s/lightning_logs", j.root);
        CHECK_EQ(count_entries(a), 1);
        snprintf(a, sizeof a, "%s/lightning_logs/version_0/checkpoints", j.root);
        snprintf(b, sizeof b, "%s/lightning_logs/version_0/checkpoints", single.root);
        CHECK_EQ(count_entries(a), count_entries(b));
    }
}

static void plain(job *j)
{
    (void)j;
}
static void accumulating(job *j)
{
    j->accumulate = 4;
    j->clip = 0.5;
}
static void stopping_early(job *j)
{
    j->early = true;
    j->max_epochs = 20;
}

TEST(ranks_train_as_one)
{
    check("plain", plain);
}
TEST(ranks_train_as_one_over_accumulation_and_clipping)
{
    check("accumulate", accumulating);
}
TEST(ranks_stop_early_together)
{
    check("early", stopping_early);
}

/* ---- going on (from any to any: test_resume_ranks.c) ---- */

static void check_same(const outcome *a, const outcome *b)
{
    compare(a, b);
    CHECK(!memcmp(a->weight, b->weight, sizeof a->weight) && !memcmp(a->head, b->head, sizeof a->head));
    CHECK(a->val_loss == b->val_loss && a->train_loss == b->train_loss);
}

/* Each rank writes a part; what goes on is the run that would have gone on from a whole checkpoint, or without a stop,
 * bit for bit with the same ranks. */
TEST(a_run_goes_on_from_sharded_checkpoints)
{
    static ranks_job whole[5], r;
    job all[5];
    for (int n = 1; n <= 4; n++) {
        all[n] = job_of("whole");
        all[n].accumulate = 3;
        whole[n].j = &all[n];
        CHECK_RANKS("threads", n, run_rank, &whole[n]);
    }
    for (int from = 1; from <= 4; from++)
        for (int to = 1; to <= 4; to++) {
            char ckpt[512], part[700];
            job j = job_of("part");
            j.accumulate = 3;
            j.state_dict_type = "sharded";
            bool inside = (from + to) % 2; /* an epoch and an accumulation window */
            if (inside) j.save_after = (from + to) % 3 + 2;
            snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
            if (!inside) j.max_epochs = 2;
            memset(&r, 0, sizeof r);
            r.j = &j;
            CHECK_RANKS("threads", from, run_rank, &r);
            snprintf(ckpt, sizeof ckpt, "%s/lightning_logs/version_0/checkpoints/last.ckpt", j.root);
            if (inside) snprintf(ckpt, sizeof ckpt, "%s", j.saved);
            snprintf(part, sizeof part, "%s/model-%05d-of-%05d.safetensors", ckpt, from, from);
            CHECK(!access(part, F_OK));
            j.save_after = -1;
            j.max_epochs = 3;
            j.ckpt_path = ckpt;
            j.state_dict_type = to % 2 ? "full" : "sharded";
            CHECK_RANKS("threads", to, run_rank, &r);
            for (int i = 0; i < to; i++) {
                if (from == to)
                    check_same(&whole[to].o[i], &r.o[i]);
                else
                    compare(&whole[to].o[i], &r.o[i]);
            }
            /* As many are kept as of whole ones, and nothing unfinished. */
            snprintf(ckpt, sizeof ckpt, "%s/lightning_logs/version_0/checkpoints", j.root);
            int n = 0;
            DIR *d = opendir(ckpt);
            CHECK(d);
            for (struct dirent *e; (e = readdir(d));) {
                if (e->d_name[0] == '.') CHECK(!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."));
                n += e->d_name[0] != '.';
            }
            closedir(d);
            CHECK(n <= 3);
        }
}

/* ---- options ---- */

/* Smaller buckets are more calls, and the same numbers. */
TEST(bucket_cap_mb_says_how_much_goes_with_one_call)
{
    static ranks_job r[2];
    for (int small = 0; small < 2; small++) {
        job j = job_of("buckets");
        j.max_epochs = 1;
        if (small) j.bucket_cap_mb = 200.0 / (1 << 20); /* the weights of one layer have 192 bytes */
        memset(&r[small], 0, sizeof r[small]);
        r[small].j = &j;
        CHECK_RANKS("threads", 2, run_rank, &r[small]);
    }
    int64_t more = r[1].o[0].all_reduces - r[0].o[0].all_reduces;
    CHECK(more >= r[0].o[0].steps);
    CHECK_EQ(more % r[0].o[0].steps, 0);
    CHECK(!memcmp(r[0].o[0].weight, r[1].o[0].weight, sizeof r[0].o[0].weight));
}

static const char *const stages[] = {"sharded_1", "sharded_2", "sharded_3"};

/* ---- manual optimisation ---- */

static void manually(job *j)
{
    j->manual = true;
    j->accumulate_manually = 1;
}

static void manually_accumulating(job *j)
{
    j->manual = true;
    j->accumulate_manually = 3;
}

TEST(several_backward_passes_for_a_step)
{
    check("manual", manually);
    check("manual_accumulate", manually_accumulating);
    for (int stage = 0; stage < 3; stage++) {
        static ranks_job want, got;
        job j = job_of("manual_sharded");
        manually_accumulating(&j);
        want.j = got.j = &j;
        CHECK_RANKS("threads", 3, run_rank, &want);
        j.strategy = stages[stage];
        CHECK_RANKS("threads", 3, run_rank, &got);
        for (int i = 0; i < 3; i++) compare(&want.o[i], &got.o[i]);
    }
}

/* Inside of a window, between two syncs of it; on other ranks, too. */
TEST(a_manual_window_goes_on_from_a_checkpoint)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "ddp"};
    for (int from = 1; from <= 3; from++) {
        static ranks_job r;
        outcome whole;
        job all = job_of("manual_whole"), j = job_of("manual_part");
        manually_accumulating(&all), manually_accumulating(&j);
        j.save_after = 4;
        j.strategy = strategies[from - 1];
        snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
        CHECK_OK(run(&all, NULL, &whole));
        r.j = &j;
        CHECK_RANKS("threads", from, run_rank, &r);
        for (int i = 0; i < from; i++) compare(&whole, &r.o[i]); /* saving changes nothing */
        j.save_after = -1;
        j.ckpt_path = j.saved;
        CHECK_RANKS("threads", 4 - from, run_rank, &r);
        for (int i = 0; i < 4 - from; i++) compare(&whole, &r.o[i]);
    }
}

static void check_refused(job *j)
{
    static ranks_job r;
    int saw = 0; /* who sees it first ends the others, which may be a call behind */
    memset(&r, 0, sizeof r);
    r.j = j;
    CHECK_RANKS("threads", 3, run_rank_that_fails, &r);
    for (int i = 0; i < 3; i++) {
        CHECK(r.o[i].status == LC_ERR_CONFIG || r.o[i].status == LC_ERR_PEER);
        saw += r.o[i].status == LC_ERR_CONFIG;
    }
    CHECK(saw > 0);
}

/* A batch with fewer samples than ranks, where the module says how often they meet. */
TEST(manual_optimisation_needs_samples_on_every_rank)
{
    job j = job_of("manual_empty");
    manually(&j);
    j.samples = GLOBAL_BATCH + 2;
    check_refused(&j);
}

TEST(evaluation_needs_samples_on_every_rank)
{
    job j = job_of("few");
    j.val = 2;
    check_refused(&j);
}

TEST(logging_needs_samples_on_every_rank_at_first)
{
    job j = job_of("few_at_first");
    j.samples = 2;
    check_refused(&j);
}

/* ---- sharded ---- */

static void same(const outcome *a, const outcome *b)
{
    CHECK_EQ(a->steps, b->steps);
    CHECK(!memcmp(a->weight, b->weight, sizeof a->weight));
    CHECK(!memcmp(a->head, b->head, sizeof a->head));
    CHECK(a->val_loss == b->val_loss && a->val_acc == b->val_acc && a->train_loss == b->train_loss);
}

/* The bits of ddp; where a window has several backward passes, from stage 2 on, they are added in another order. */
static void check_stages(const char *name, void (*change)(job *j))
{
    for (int n = 1; n <= 4; n++) {
        static ranks_job want, got;
        job j = job_of(name);
        change(&j);
        j.bucket_cap_mb = 200.0 / (1 << 20); /* several units */
        want.j = got.j = &j;
        CHECK_RANKS("threads", n, run_rank, &want);
        for (int stage = 0; stage < 3; stage++) {
            j.strategy = stages[stage];
            CHECK_RANKS("threads", n, run_rank, &got);
            for (int i = 0; i < n; i++) {
                compare(&want.o[i], &got.o[i]);
                if (j.accumulate == 1 || stage == 0) same(&want.o[i], &got.o[i]);
            }
        }
        j.strategy = NULL;
    }
}

static void clipping(job *j)
{
    j->clip = 0.5;
}

TEST(sharded_trains_as_ddp)
{
    check_stages("sharded", clipping);
}
TEST(sharded_trains_as_ddp_over_accumulation)
{
    check_stages("sharded_accumulate", accumulating);
}
TEST(sharded_stops_early_as_ddp)
{
    check_stages("sharded_early", stopping_early);
}

/* ---- copies, each sharded among the ranks of a node ---- */

static const int nodes[][2] = {{2, 1}, {2, 2}, {4, 2}, {4, 1}, {8, 4}, {8, 2}};

/* The bits of ddp; over a window those of stage 3 among all ranks, which adds in the same order. */
static void check_copies(const char *name, void (*change)(job *j))
{
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        static ranks_job want, got;
        job j = job_of(name);
        change(&j);
        j.bucket_cap_mb = 200.0 / (1 << 20);
        j.strategy = j.accumulate == 1 && !j.manual ? "ddp" : "sharded_3";
        want.j = got.j = &j;
        CHECK_RANKS("threads", nodes[i][0], run_rank, &want);
        j.strategy = "sharded_hybrid";
        j.shard_size = nodes[i][1];
        CHECK_RANKS("threads", nodes[i][0], run_rank, &got);
        for (int k = 0; k < nodes[i][0]; k++) same(&want.o[k], &got.o[k]);
    }
}

/* The last batch of an epoch has one sample: the ranks of whole nodes have none. */
static void lonely(job *j)
{
    j->samples = 2 * GLOBAL_BATCH + 1;
    j->clip = 0.5;
}

TEST(hybrid_trains_as_ddp)
{
    check_copies("hybrid", clipping);
}
TEST(hybrid_trains_as_sharded_over_accumulation)
{
    check_copies("hybrid_accumulate", accumulating);
}
TEST(hybrid_stops_early_as_ddp)
{
    check_copies("hybrid_early", stopping_early);
}
TEST(hybrid_trains_as_ddp_with_nodes_without_samples)
{
    check_copies("hybrid_lonely", lonely);
}
static void manually_with_samples_everywhere(job *j)
{
    manually_accumulating(j);
    j->samples = 96;
}

TEST(hybrid_with_several_backward_passes_for_a_step)
{
    check_copies("hybrid_manual", manually_with_samples_everywhere);
}

/* Threads of a process live on one node. */
TEST(hybrid_on_one_node_is_sharded)
{
    static ranks_job want, got;
    job j = job_of("one_node");
    j.strategy = "sharded_3";
    want.j = got.j = &j;
    CHECK_RANKS("threads", 4, run_rank, &want);
    j.strategy = "sharded_hybrid";
    CHECK_RANKS("threads", 4, run_rank, &got);
    for (int k = 0; k < 4; k++) same(&want.o[k], &got.o[k]);
}

static const lc_module_ops fabric_ops = {LC_MODULE_OPS_INIT("net")};

static lc_status train_by_fabric(lc_comm *comm, const char *strategy, int64_t shard_size, float *head, size_t bytes)
{
    enum { BATCH = 5 };
    int rank = lc_comm_rank(comm);
    small_net m = {0};
    lc_fabric *f;
    lc_tensor *x, *y;
    LC_TRY(small_net_init(&m, &fabric_ops, (uint64_t)(1 + rank)));
    lc_optimizer *opt = lc_adam(&m.base, .lr = 0.05, .eps = 1e-3);
    LC_TRY(lc_input_new(LC_F32, 2, (int64_t[]){BATCH, FEATURES}, LC_ROW_MAJOR, inputs[0], &x));
    LC_TRY(lc_input_new(LC_I64, 1, (int64_t[]){BATCH}, LC_ROW_MAJOR, labels, &y));
    LC_TRY(lc_fabric_new(
        &(lc_fabric_options){.strategy = strategy, .shard_size = shard_size, .comm = comm, .threads = 1}, &f));
    LC_TRY(lc_fabric_setup(f, &m.base, &opt, 1));
    for (int step = 0; step < 3; step++) {
        int first = BATCH * (step * lc_comm_size(comm) + rank);
        lc_input_set(x, inputs[first], BATCH), lc_input_set(y, labels + first, BATCH);
        LC_TRY(lc_fabric_begin(f));
        lc_fabric_zero_grad(f);
        lc_fabric_backward(f, lc_cross_entropy(logits_of(&m, x), y));
        lc_fabric_step(f, opt);
        LC_TRY(lc_fabric_end(f));
    }
    LC_TRY(lc_tensor_gather(m.l2.weight, head, bytes));
    lc_fabric_free(f);
    lc_optimizer_free(opt);
    small_net_release(&m);
    lc_tensor_unref(x), lc_tensor_unref(y);
    return LC_OK;
}

static lc_status fabric_as_ddp(lc_comm *comm, void *ctx)
{
    float want[CLASSES * WIDTH], got[CLASSES * WIDTH];
    (void)ctx;
    LC_TRY(train_by_fabric(comm, "ddp", 0, want, sizeof want));
    LC_TRY(train_by_fabric(comm, "sharded_hybrid", 2, got, sizeof got));
    RANK_CHECK(!memcmp(want, got, sizeof want));
    return LC_OK;
}

TEST(a_fabric_trains_copies_as_ddp)
{
    CHECK_RANKS("threads", 4, fabric_as_ddp, NULL);
}

static lc_status refuses(lc_comm *comm, void *ctx)
{
    const lc_trainer_options *o = ctx;
    lc_trainer_options opt = *o;
    lc_trainer *t;
    opt.comm = comm;
    return lc_trainer_new(&opt, &t);
}

TEST(copies_of_a_number_of_ranks_that_cannot_be)
{
    static const struct {
        const char *strategy;
        int64_t shard_size;
        const char *message;
    } cases[] = {
        {"sharded_hybrid", 3, "shard_size=3 does not divide the number of ranks, 4; give one that does"},
        {"sharded_hybrid", 8, "shard_size=8 does not divide the number of ranks, 4"},
        {"sharded", 2, "the strategy sharded has no copies that ranks share; use --strategy sharded_hybrid"},
        {"ddp", 1, "use --strategy sharded_hybrid"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
        opt.strategy = cases[k].strategy;
        opt.shard_size = cases[k].shard_size;
        opt.barebones = true;
        opt.handle_signals = false;
        world *w = world_run("threads", 4, refuses, &opt);
        for (int i = 0; i < 4; i++)
            if (w->ranks[i].status != LC_ERR_CONFIG || !strstr(w->ranks[i].message, cases[k].message))
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
        world_free(w);
    }
}

/* A checkpoint of copies has each slice once, though every rank has written a part: the one of ddp, whether it is in
 * parts or not. */
TEST(checkpoints_of_copies_have_each_slice_once)
{
    static ranks_job r;
    job ddp = job_of("ddp_checkpoint"), j = job_of("hybrid_checkpoint");
    ddp.save_after = j.save_after = 3;
    ddp.bucket_cap_mb = j.bucket_cap_mb = 200.0 / (1 << 20);
    snprintf(ddp.saved, sizeof ddp.saved, "%s/inside.ckpt", ddp.root);
    r.j = &ddp;
    CHECK_RANKS("threads", 4, run_rank, &r);
    j.strategy = "sharded_hybrid";
    for (int full = 0; full < 2; full++) {
        lc_checkpoint *a, *b;
        char part[500];
        snprintf(j.saved, sizeof j.saved, "%s/inside-%d.ckpt", j.root, full);
        j.shard_size = 2 - full;
        j.state_dict_type = full ? "full" : NULL;
        r.j = &j;
        CHECK_RANKS("threads", 4, run_rank, &r);
        for (int i = 0; i < 4; i += 2) { /* the first rank of a node has all of so little; both write some of it */
            snprintf(part, sizeof part, "%s/optimizer-%05d-of-00004.safetensors", j.saved, i + 1);
            CHECK_EQ(access(part, F_OK), full ? -1 : 0);
        }
        CHECK_OK(lc_checkpoint_open(ddp.saved, &a));
        CHECK_OK(lc_checkpoint_open(j.saved, &b));
        for (int k = 0; k < 2; k++) {
            lc_ckpt_part which = k ? LC_CKPT_OPTIMIZER : LC_CKPT_MODEL;
            lc_safetensors *x = lc_checkpoint_part(a, which), *y = lc_checkpoint_part(b, which);
            CHECK_EQ(lc_safetensors_count(x), 4);
            CHECK_EQ(lc_safetensors_count(y), 4);
            for (int64_t i = 0; i < 4; i++) {
                float left[64], right[64];
                const lc_safetensor_info *info = lc_safetensors_info(x, i);
                int64_t at = lc_safetensors_find(y, info->name);
                CHECK(at >= 0 && info->bytes <= sizeof left);
                CHECK_OK(lc_safetensors_read(x, i, left, info->bytes));
                CHECK_OK(lc_safetensors_read(y, at, right, info->bytes));
                CHECK(!memcmp(left, right, info->bytes));
            }
        }
        lc_checkpoint_close(a);
        lc_checkpoint_close(b);
    }
}

/* ---- memory ---- */

enum { WIDE = 512 };

typedef struct wide {
    lc_module base;
    lc_linear a, b;
    lc_device_memory memory;
} wide;

static lc_tensor *wide_step(lc_module *self, const lc_batch *b, int64_t i)
{
    wide *m = (wide *)self;
    (void)i;
    lc_tensor *x = lc_pad(b->x, 0, WIDE - FEATURES);
    return lc_mean(lc_square(lc_linear_forward(&m->b, lc_relu(lc_linear_forward(&m->a, x)))));
}

static lc_status wide_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b, (void)i;
    return lc_trainer_memory(self->trainer, &((wide *)self)->memory);
}

static lc_status wide_optimizers(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_adam(self, .lr = 1e-3));
}

static const lc_module_ops wide_ops = {LC_MODULE_OPS_INIT("wide"), .training_step = wide_step,
                                       .on_train_batch_end = wide_batch_end, .configure_optimizers = wide_optimizers};

typedef struct memory_job {
    const char *strategy, *limit;
    int stage;
    bool refused;
    int64_t shard_size;
} memory_job;

static bool close_to(int64_t got, double want)
{
    return fabs((double)got - want) <= 0.01 * want;
}

static lc_status hold(lc_comm *comm, void *ctx)
{
    const memory_job *j = ctx;
    int n = j->shard_size ? (int)j->shard_size : lc_comm_size(comm);
    wide m = {0};
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.max_steps = 2;
    opt.strategy = j->strategy;
    opt.shard_size = j->shard_size;
    opt.memory_limit = j->limit;
    opt.comm = comm;
    opt.threads = 1;
    opt.bucket_cap_mb = 0.5;
    opt.logger = "none";
    opt.enable_progress_bar = opt.enable_model_summary = opt.enable_checkpointing = LC_OFF;
    opt.handle_signals = false;
    LC_TRY(loader_of(0, SAMPLES, 4, false, &l));
    lc_module_init(&m.base, &wide_ops, 1);
    lc_linear_init(&m.a, &m, "a", WIDE, WIDE);
    lc_linear_init(&m.b, &m, "b", WIDE, WIDE);
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, &(lc_run_args){.train_dataloader = l});
    char why[1024];
    snprintf(why, sizeof why, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(l);
    lc_module_release(&m.base);
    if (j->refused) {
        if ((s == LC_ERR_MEMORY || s == LC_ERR_PEER) && strstr(why, "memory_limit is 7.00 MiB") &&
            strstr(why, "this rank needs 8.0"))
            return LC_OK;
        return lc_fail(LC_ERR_INTERNAL, "%d: %s", (int)s, why);
    }
    LC_TRY(s);
    double p = 4.0 * 2 * (WIDE * WIDE + WIDE);
    RANK_CHECK(close_to(m.memory.parameters, j->stage >= 3 ? p / n : p));
    RANK_CHECK(close_to(m.memory.gradients, j->stage >= 2 ? p / n : p));
    RANK_CHECK(close_to(m.memory.optimizer_state, j->stage >= 1 ? 2 * p / n : 2 * p));
    /* Gathered units are intermediate results, as are units of gradients. */
    RANK_CHECK(m.memory.activations < (j->stage >= 2 ? 3 * p : p));
    return LC_OK;
}

TEST(ranks_hold_what_the_formula_says)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3"};
    for (int stage = 0; stage < 4; stage++)
        for (int n = 1; n <= 4; n *= 2) {
            memory_job j = {.strategy = strategies[stage], .stage = stage};
            CHECK_RANKS("threads", n, hold, &j);
        }
}

TEST(ranks_of_a_copy_hold_what_the_formula_says)
{
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        memory_job j = {.strategy = "sharded_hybrid", .stage = 3, .shard_size = nodes[i][1]};
        CHECK_RANKS("threads", nodes[i][0], hold, &j);
    }
}

/* 16 bytes a parameter are 8 MiB. */
TEST(a_limit_refuses_ddp_what_sharded_can_train)
{
    memory_job alone = {.strategy = "sharded_hybrid", .limit = "7MiB", .refused = true, .shard_size = 1};
    memory_job copies = {.strategy = "sharded_hybrid", .limit = "7MiB", .stage = 3, .shard_size = 2};
    CHECK_RANKS("threads", 2, hold, &alone);
    CHECK_RANKS("threads", 4, hold, &copies);
    memory_job ddp = {.strategy = "ddp", .limit = "7MiB", .refused = true};
    memory_job sharded = {.strategy = "sharded", .limit = "7MiB", .stage = 3};
    CHECK_RANKS("threads", 2, hold, &ddp);
    CHECK_RANKS("threads", 2, hold, &sharded);
}

/* ---- wishes and failures of one rank ---- */

TEST(one_rank_stops_all)
{
    for (int n = 2; n <= 3; n++) {
        static ranks_job r;
        job j = job_of("stop");
        j.stop_rank = n - 1;
        j.at_batch = 3;
        memset(&r, 0, sizeof r);
        r.j = &j;
        CHECK_RANKS("threads", n, run_rank, &r);
        for (int i = 0; i < n; i++) CHECK_EQ(r.o[i].steps, 4);
    }
}

/* Rank 1 of n. */
static void check_failure(job *j, int n)
{
    static ranks_job r;
    j->fail_rank = 1;
    j->at_batch = 2;
    memset(&r, 0, sizeof r);
    r.j = j;
    world *w = world_run("threads", n, run_rank, &r);
    for (int i = 0; i < n; i++) {
        CHECK_EQ(r.o[i].status, i == 1 ? LC_ERR_USER : LC_ERR_PEER);
        if (!strstr(w->ranks[i].message, "the sensor of this rank is unplugged"))
            TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
        if (i != 1 && !strstr(w->ranks[i].message, "rank 1")) TEST_FAIL("rank %d: %s", i, w->ranks[i].message);
    }
    world_free(w);
}

TEST(one_rank_fails_all_with_its_reason)
{
    job j = job_of("fail");
    check_failure(&j, 3);
    for (int size = 1; size <= 4; size *= 2) { /* which group of ranks is waited in */
        j = job_of("fail_copies");
        j.strategy = "sharded_hybrid";
        j.shard_size = size;
        j.bucket_cap_mb = 200.0 / (1 << 20);
        check_failure(&j, 4);
    }
}

/* No waiting for a rank that has gone on to something else: both calls are named. */
TEST(a_rank_that_leaves_the_epoch_alone_is_named)
{
    for (int strategy = 0; strategy < 2; strategy++) {
        static ranks_job r;
        job j = job_of("leave");
        j.strategy = strategy ? "sharded" : "ddp";
        j.fail_rank = 1;
        j.leaves = true;
        j.at_batch = 2;
        memset(&r, 0, sizeof r);
        r.j = &j;
        world *w = world_run("threads", 2, run_rank, &r);
        for (int i = 0; i < 2; i++) {
            CHECK(w->ranks[i].status < 0);
            CHECK_CONTAINS(w->ranks[i].message, "the ranks make different calls");
            CHECK_CONTAINS(w->ranks[i].message, "on rank 0");
            CHECK_CONTAINS(w->ranks[i].message, "on rank 1");
            CHECK_EQ(r.o[i].steps, 2);
        }
        world_free(w);
    }
}

/* ---- evaluation: every sample once, in the order of the data ---- */

typedef struct predictions {
    float v[VAL][CLASSES];
    double loss;
} predictions;

static lc_status evaluate(lc_comm *comm, bool own_loaders, predictions *out)
{
    int n = comm ? lc_comm_size(comm) : 1;
    job j = {.stop_rank = -1, .fail_rank = -1};
    net m = {.j = &j};
    lc_dataloader *l;
    lc_trainer *t;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    int64_t at = 0;
    opt.use_distributed_sampler = !own_loaders;
    opt.strategy = comm ? "ddp" : NULL;
    opt.comm = comm;
    opt.threads = 1;
    opt.logger = "none";
    opt.enable_progress_bar = opt.enable_model_summary = opt.enable_checkpointing = LC_OFF;
    opt.handle_signals = false;
    LC_TRY(small_net_init(&m.base, &net_ops, 1));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, GLOBAL_BATCH / n, false, &l));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_validate(t, &m.base.base, &(lc_run_args){.val_dataloader = l}));
    LC_TRY(lc_trainer_metric(t, "val_loss", &out->loss));
    LC_TRY(lc_trainer_predict(t, &m.base.base, &(lc_run_args){.dataloaders = &l, .n_dataloaders = 1}));
    for (int64_t i = 0; i < lc_trainer_prediction_count(t, 0); i++) {
        lc_tensor *p = lc_trainer_prediction(t, 0, i);
        RANK_CHECK(at + lc_tensor_dim(p, 0) <= VAL);
        LC_TRY(lc_tensor_read(p, out->v[at], (size_t)lc_tensor_numel(p) * sizeof(float)));
        at += lc_tensor_dim(p, 0);
    }
    RANK_CHECK(at == VAL);
    lc_trainer_free(t);
    lc_dataloader_free(l);
    small_net_release(&m.base);
    return LC_OK;
}

static lc_status evaluate_rank(lc_comm *comm, void *ctx)
{
    const predictions *one = ctx;
    predictions mine;
    /* Shared, and each rank with a loader of its own, which are the same here. */
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

/* ---- loaders of the ranks' own ---- */

static lc_status own_data(lc_comm *comm, void *ctx)
{
    int me = lc_comm_rank(comm);
    job j = {.stop_rank = -1, .fail_rank = -1};
    net m = {.j = &j, .rank = me};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    (void)ctx;
    j.save_after = -1;
    pthread_mutex_init(&j.lock, NULL);
    opt.strategy = "ddp";
    opt.comm = comm;
    opt.max_epochs = 2;
    opt.use_distributed_sampler = false;
    opt.barebones = true;
    opt.handle_signals = false;
    LC_TRY(small_net_init(&m.base, &net_ops, 1));
    LC_TRY(loader_of(0, 20 + 8 * me, 4, false, &train)); /* 5, 7, 9 batches */
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base.base, &(lc_run_args){.train_dataloader = train}));
    RANK_CHECK(lc_trainer_global_step(t) == 10);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return LC_OK;
}

TEST(ranks_with_data_of_their_own_train_on_as_many_batches)
{
    CHECK_RANKS("threads", 3, own_data, NULL);
}

/* ---- what does not fit ---- */

typedef enum difference { SHAPE, NAME, MORE, FEWER, FROZEN, DTYPE, DIFFERENCES } difference;

typedef struct odd_model {
    difference how;
    const char *strategy;
} odd_model;

static lc_status another_model(lc_comm *comm, void *ctx)
{
    const odd_model *odd = ctx;
    net m = {.rank = lc_comm_rank(comm)};
    job j = {.stop_rank = -1, .fail_rank = -1};
    lc_linear more;
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    difference how = m.rank ? odd->how : DIFFERENCES;
    int64_t width = 8 + (how == SHAPE);
    m.j = &j;
    opt.strategy = odd->strategy;
    opt.comm = comm;
    opt.barebones = true;
    opt.handle_signals = false;
    lc_module_init(&m.base.base, &net_ops, 1);
    lc_linear_init(&m.base.l1, &m, how == NAME ? "first" : "l1", FEATURES, width, .no_bias = how == FEWER);
    lc_linear_init(&m.base.l2, &m, "l2", width, CLASSES, .dtype = how == DTYPE ? LC_F64 : LC_F32);
    if (how == MORE) lc_linear_init(&more, &m, "l3", 2, 2);
    if (how == FROZEN) lc_module_requires_grad(&m.base.l2.base, false);
    LC_TRY(loader_of(0, SAMPLES, 4, false, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, &(lc_run_args){.train_dataloader = train});
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return lc_fail(s, "%s", message);
}

TEST(different_models_are_named)
{
    static const char *const differ[DIFFERENCES] = {
        [SHAPE] = "rank 1 has l1.weight f32 [9,6] where rank 0 has l1.weight f32 [8,6]",
        [NAME] = "rank 1 has first.weight f32 [8,6] where rank 0 has l1.weight f32 [8,6]",
        [MORE] = "rank 1 has l3.weight f32 [2,2] where rank 0 has end",
        [FEWER] = "rank 1 has l2.weight f32 [3,8] where rank 0 has l1.bias f32 [8]",
        [FROZEN] = "rank 1 has l2.weight f32 [3,8] frozen where rank 0 has l2.weight f32 [3,8]",
        [DTYPE] = "rank 1 has l2.weight f64 [3,8] where rank 0 has l2.weight f32 [3,8]",
    };
    for (int how = 0; how < DIFFERENCES; how++)
        for (int sharded = 0; sharded < 2; sharded++) {
            odd_model odd = {(difference)how, sharded ? "sharded" : "ddp"};
            world *w = world_run("threads", 2, another_model, &odd);
            for (int i = 0; i < 2; i++)
                if (w->ranks[i].status >= 0 || !strstr(w->ranks[i].message, differ[how]))
                    TEST_FAIL("%s, rank %d: %s", odd.strategy, i, w->ranks[i].message);
            world_free(w);
        }
}

/* One rank is started with something else. */
typedef struct odd {
    int64_t max_epochs, samples, batch;
    uint64_t seed;
    const char *root;
    bool validates;
    const char *option; /* in the command line */
} odd;

static lc_status another_run(lc_comm *comm, void *ctx)
{
    bool is_odd = lc_comm_rank(comm) == 2;
    odd usual = {.max_epochs = 1, .samples = 60, .batch = 4, .seed = 4}, mine = is_odd ? *(odd *)ctx : usual;
    job j = {.stop_rank = -1, .fail_rank = -1, .save_after = -1};
    net m = {.j = &j, .rank = lc_comm_rank(comm)};
    lc_dataloader *train, *val;
    lc_dataset *d;
    lc_trainer *t;
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs},
                         {.field = {.name = "y", .dtype = LC_I64}, .data = labels}};
    pthread_mutex_init(&j.lock, NULL);
    opt.strategy = "ddp";
    opt.comm = comm;
    opt.barebones = true;
    opt.handle_signals = false;
    opt.max_epochs = mine.max_epochs;
    opt.default_root_dir = mine.root;
    opt.threads = is_odd ? 1 : 2;
    char option[64], *argv[] = {(char *)"test", option};
    snprintf(option, sizeof option, "%s", mine.option ? mine.option : "");
    if (mine.option) LC_TRY(lc_trainer_options_parse(&opt, 2, argv));
    LC_TRY(small_net_init(&m.base, &net_ops, 1));
    LC_TRY(lc_array_dataset_new(mine.samples, 2, arrays, &d));
    LC_TRY(lc_dataloader_new(
        &(lc_dataloader_options){.dataset = d, .batch_size = mine.batch, .shuffle = true, .seed = mine.seed}, &train));
    lc_dataset_unref(d);
    LC_TRY(loader_of(SAMPLES - VAL, VAL, 4, false, &val));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_run_args args = {.train_dataloader = train, .val_dataloader = mine.validates ? val : NULL};
    lc_status s = lc_trainer_fit(t, &m.base.base, &args);
    char message[1024];
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m.base);
    pthread_mutex_destroy(&j.lock);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

#define OPTION(text)                                                                                                   \
    {                                                                                                                  \
        .max_epochs = 1, .samples = 60, .batch = 4, .seed = 4, .option = (text)                                        \
    }

TEST(different_options_and_data_are_named)
{
    static const struct {
        odd odd;
        const char *message; /* "": that may differ */
    } cases[] = {
        {{1, 60, 4, 4, "/elsewhere", false}, ""},
        {{2, 60, 4, 4, NULL, false}, "rank 2 has --max_epochs 2 where rank 0 has --max_epochs 1"},
        {{1, 60, 4, 4, NULL, true}, "rank 2 has a validation where rank 0 has no validation"},
        {{1, 59, 4, 4, NULL, false}, "rank 2 has train loader 0: 5 batches: 59 samples of "},
        {{1, 60, 5, 4, NULL, false}, "rank 2 has train loader 0: 4 batches: "},
        {{1, 60, 4, 5, NULL, false}, "random (seed 5) where rank 0 has train loader 0: "},
        {.odd = OPTION("--bucket_cap_mb=3"), "rank 2 has --bucket_cap_mb 3 where rank 0 has --bucket_cap_mb 1"},
        {.odd = OPTION("--max_steps=3"), "rank 2 has --max_steps 3 where rank 0 has --max_steps "},
        {.odd = OPTION("--limit_train_batches=2"), "rank 2 has --limit_train_batches 2 where rank 0 has "},
        {.odd = OPTION("--accumulate_grad_batches=2"), "rank 2 has --accumulate_grad_batches 2 where rank 0 has "},
        {.odd = OPTION("--gradient_clip_val=0.5"), "rank 2 has --gradient_clip_val 0.5 where rank 0 has "},
        {.odd = OPTION("--seed=7"), "rank 2 has --seed 7 where rank 0 has --seed "},
        {.odd = OPTION("--strategy=sharded"), "rank 2 has --strategy sharded where rank 0 has --strategy ddp"},
        {.odd = OPTION("--deterministic=true"), "rank 2 has --deterministic true where rank 0 has "},
        {.odd = OPTION("--sync_batchnorm=true"), "rank 2 has --sync_batchnorm true where rank 0 has "},
        {.odd = OPTION("--state_dict_type=sharded"), "rank 2 has --state_dict_type sharded where rank 0 has "},
        {.odd = OPTION("--threads=3"), ""},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        odd o = cases[k].odd;
        world *w = world_run("threads", 3, another_run, &o);
        for (int i = 0; i < 3; i++) {
            if (*cases[k].message ? w->ranks[i].status >= 0 : w->ranks[i].status < 0)
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
            if (!strstr(w->ranks[i].message, cases[k].message))
                TEST_FAIL("case %zu, rank %d: %s", k, i, w->ranks[i].message);
        }
        world_free(w);
    }
}

TEST_MAIN
