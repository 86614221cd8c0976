/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpoint that a failed run on several ranks leaves behind: rank 0 saves it by itself, so it exists only if rank
 * 0 has all of the state. A fit that resumes from it ends like one that did not fail. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

enum { RANKS = 2, GLOBAL_BATCH = 12, EPOCHS = 2, NOBODY = -1 };

typedef struct job {
    char root[320];
    int fail_rank;
    int64_t epoch, batch; /* where the run fails */
    int64_t accumulate;   /* 0 is taken as 1 */
    bool logs, counts, has_state;
    bool after_step, own_dir;                       /* it fails after its step; each rank has a directory of its own */
    bool in_teardown;                               /* it fails there, when the training is over on all ranks */
    enum { LEAVES, SAVES, SAVES_WEIGHTS } callback; /* OnExceptionCheckpoint, ModelCheckpoint */
    const char *ckpt_path;
    atomic_int after_batch; /* rank 0 has finished that batch */
    char warning[1024];     /* rank 0's last warning */
    float weight[RANKS][WIDTH * FEATURES];
} job;

typedef struct net {
    small_net base;
    job *j;
} net;

static lc_status fail_at(lc_module *self, int64_t i)
{
    const job *j = ((net *)self)->j;
    bool here = lc_trainer_global_rank(self->trainer) == j->fail_rank && i == j->batch &&
                lc_trainer_current_epoch(self->trainer) == j->epoch;
    return here && !j->in_teardown ? lc_fail(LC_ERR_USER, "the sensor of this rank is unplugged") : LC_OK;
}

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    const job *j = m->j;
    lc_tensor *loss = small_net_training_step(self, b, i);
    if (!j->after_step && fail_at(self, i) < 0) return NULL;
    if (j->logs) lc_log(self, "loss", loss, .on_epoch = LC_ON);
    if (j->counts) {
        if (lc_metric_update_labels(m->base.accuracy, b->size, labels, labels) < 0) return NULL;
        lc_log_metric(self, "count", m->base.accuracy);
    }
    return loss;
}

/* Waits until rank 0 has finished the batch, too. */
static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    job *j = ((net *)self)->j;
    lc_status s = j->after_step ? fail_at(self, i) : LC_OK;
    (void)o, (void)b;
    if (i == j->batch && lc_trainer_global_rank(self->trainer) == 0) atomic_store(&j->after_batch, 1);
    while (s < 0 && !atomic_load(&j->after_batch)) sched_yield();
    return s;
}

static lc_status teardown(lc_module *self, lc_stage stage)
{
    const job *j = ((net *)self)->j;
    bool here = j->in_teardown && lc_trainer_global_rank(self->trainer) == j->fail_rank;
    (void)stage;
    return here ? lc_fail(LC_ERR_USER, "the sensor of this rank is unplugged") : LC_OK;
}

static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"), .training_step = training_step,
                                      .on_train_batch_end = on_train_batch_end, .configure_optimizers = small_net_sgd,
                                      .teardown = teardown};

static void hear(void *context, lc_trainer *t, lc_level level, const char *text)
{
    job *j = context;
    if (lc_trainer_global_rank(t) == 0 && level == LC_WARNING) snprintf(j->warning, sizeof j->warning, "%s", text);
}

/* The path of the saved checkpoint. */
static void file_of(const job *j, char out[400])
{
    snprintf(out, 400, "%s/%s.ckpt", j->root, j->callback == LEAVES ? "on_exception" : "saved");
}

static lc_status add_callbacks(job *j, lc_trainer *t)
{
    char dir[400];
    lc_callback saves, hears;
    int n = snprintf(dir, sizeof dir, "%s", j->root);
    if (j->own_dir) snprintf(dir + n, sizeof dir - (size_t)n, "/rank-%d", lc_trainer_global_rank(t));
    lc_status s =
        j->callback == LEAVES
            ? lc_on_exception_checkpoint(&saves, .dirpath = dir)
            : lc_model_checkpoint(&saves, .dirpath = j->root, .filename = "saved", .save_on_exception = true,
                                  .save_weights_only = j->callback == SAVES_WEIGHTS, .every_n_epochs = EPOCHS + 1);
    LC_TRY(s);
    LC_TRY(lc_trainer_add_callback(t, saves));
    LC_TRY(lc_lambda_callback(&hears, .context = j, .on_message = hear));
    return lc_trainer_add_callback(t, hears);
}

/* 40 samples: four batches per epoch. */
static lc_status loader_with(bool has_state, lc_dataloader **out)
{
    lc_dataloader *parts[2];
    if (!has_state) return loader_of(0, 40, GLOBAL_BATCH / RANKS, true, out);
    for (int i = 0; i < 2; i++) LC_TRY(loader_of(24 * i, 24, GLOBAL_BATCH / RANKS, true, &parts[i]));
    return lc_combined_loader_new(LC_SEQUENTIAL, 2, parts, out);
}

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    net m = {.j = j};
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "ddp";
    opt.max_epochs = EPOCHS;
    opt.accumulate_grad_batches = j->accumulate ? j->accumulate : 1;
    opt.enable_checkpointing = LC_AUTO;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    LC_TRY(loader_with(j->has_state, &train));
    LC_TRY(small_net_init(&m.base, &net_ops, 1));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(add_callbacks(j, t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train);
    if (s >= 0) s = lc_tensor_read(m.base.l1.weight, j->weight[lc_comm_rank(comm)], sizeof j->weight[0]);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return s;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static job begin(const job *like)
{
    job j = *like;
    snprintf(j.root, sizeof j.root, "%s", fresh_dir("run"));
    return j;
}

static void fail(job *j)
{
    world *w = world_run("threads", RANKS, run_rank, j);
    for (int r = 0; r < RANKS; r++) CHECK_CONTAINS(w->ranks[r].message, "unplugged");
    world_free(w);
}

static void check_left(job like)
{
    char path[400];
    job whole = begin(&like);
    whole.fail_rank = NOBODY;
    CHECK_RANKS("threads", RANKS, run_rank, &whole);
    job j = begin(&like);
    file_of(&j, path);
    fail(&j);
    if (!exists(path)) TEST_FAIL("%s is not there: %s", path, j.warning);
    j.fail_rank = NOBODY;
    if (j.callback != LEAVES) j.ckpt_path = path;
    CHECK_RANKS("threads", RANKS, run_rank, &j);
    CHECK(!memcmp(j.weight, whole.weight, sizeof j.weight));
    CHECK_EQ(exists(path), j.callback != LEAVES);
}

TEST(a_fit_resumes_if_rank_0_has_all_of_the_state)
{
    check_left((job){.epoch = 1, .batch = 1});
    check_left((job){.epoch = 1, .batch = 1, .callback = SAVES});
    check_left((job){.epoch = 1, .logs = true, .counts = true}); /* nothing of that epoch has been logged yet */
    check_left((job){.epoch = 1, .batch = 2, .accumulate = 2});  /* between two windows */
    /* Rank 0 learns of it when the ranks meet at the end of the epoch, before it counts as ended. */
    check_left((job){.fail_rank = 1, .batch = 3, .after_step = true});
}

static void check_nothing_left(job like, const char *why)
{
    char path[400];
    job j = begin(&like);
    file_of(&j, path);
    fail(&j);
    if (exists(path)) TEST_FAIL("a checkpoint without the %s exists", why);
    CHECK_CONTAINS(j.warning, why);
    CHECK_CONTAINS(j.warning, "continue from an earlier checkpoint");
}

TEST(nothing_is_saved_if_other_ranks_have_part_of_the_state)
{
    for (int callback = LEAVES; callback <= SAVES; callback++) {
        check_nothing_left((job){.callback = callback, .epoch = 1, .batch = 1, .logs = true}, "logged values");
        check_nothing_left((job){.callback = callback, .epoch = 1, .batch = 1, .counts = true}, "logged values");
        check_nothing_left((job){.callback = callback, .epoch = 1, .batch = 1, .accumulate = 3}, "gradients");
        check_nothing_left((job){.callback = callback, .epoch = 1, .batch = 1, .has_state = true}, "train loader");
        check_nothing_left((job){.callback = callback, .epoch = 1, .batch = 1, .fail_rank = 1}, "had partly run");
    }
}

/* The other rank may have ended its fit by then. */
TEST(a_teardown_that_fails_on_one_rank)
{
    for (int rank = 0; rank < RANKS; rank++) {
        char path[400];
        job j = begin(&(job){.in_teardown = true, .fail_rank = rank});
        file_of(&j, path);
        world *w = world_run("threads", RANKS, run_rank, &j);
        CHECK_EQ(w->ranks[rank].status, LC_ERR_USER);
        CHECK_CONTAINS(w->ranks[rank].message, "unplugged");
        CHECK(w->ranks[!rank].status == LC_OK || w->ranks[!rank].status == LC_ERR_PEER);
        world_free(w);
        CHECK(exists(path) || rank != 0);
    }
}

/* Weights are the same on all ranks. */
TEST(weights_only_checkpoints_are_saved)
{
    char path[400];
    job j = begin(&(job){.callback = SAVES_WEIGHTS, .epoch = 1, .batch = 1, .logs = true, .accumulate = 3});
    file_of(&j, path);
    fail(&j);
    CHECK(exists(path));
}

/* Rank 0 is the one that writes and removes files. */
TEST(only_rank_0_removes_what_was_left)
{
    char command[400], path[400];
    job j = begin(&(job){.epoch = 1, .batch = 1});
    fail(&j);
    snprintf(command, sizeof command, "cd %s && mkdir rank-1 && mv on_exception.ckpt rank-1", j.root);
    CHECK_EQ(system(command), 0);
    j.fail_rank = NOBODY;
    j.own_dir = true;
    CHECK_RANKS("threads", RANKS, run_rank, &j);
    snprintf(path, sizeof path, "%s/rank-1/on_exception.ckpt", j.root);
    CHECK(exists(path));
}

TEST_MAIN
