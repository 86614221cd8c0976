/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of an older lightc (f7ac780) load, and their trainings end as they did there. That version saved the
 * training below inside an accumulation window of its second epoch: fixtures/window.ckpt as one process,
 * fixtures/parts.ckpt as two ranks under `sharded`. It then continued from them; its final weights are
 * fixtures/end.safetensors, and its final metrics are in read_older_end. Other differences than rounding are errors.
 *
 * The checkpoints contain counters, the place in an epoch, an optimizer and a schedule, weight averages, the state of
 * early stopping, gradients of a window, and values logged over an epoch with each kind of argument. When the format
 * changes, add fixtures; these stay. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net_results.h"
#include "sources.h"

#include <lightc/weights.h>

enum { TRAIN = 41, BATCH = 6, EPOCHS = 3 };

typedef struct job {
    const char *ckpt;
    const char *strategy; /* NULL: one process */
    char root[320];
    small_net_results end[2]; /* of each rank */
    atomic_bool logged;       /* a value that was not to be */
} job;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = lc_cross_entropy(logits_of((small_net *)self, b->x), b->y);
    (void)i;
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON, .prog_bar = true);
    lc_log(self, "unlogged", loss, .on_epoch = LC_ON, .logger = false);
    lc_log_value(self, "samples", (double)b->size, .on_step = LC_OFF, .on_epoch = LC_ON, .reduce_fx = LC_LOG_SUM,
                 .sync_dist = true, .add_dataloader_idx = false);
    return loss;
}

static lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    lc_optimizer *opt = lc_adamw(self, .lr = 0.02, .eps = 1e-3, .weight_decay = 0.05);
    LC_TRY(lc_optimizers_add(out, opt));
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_cosine_annealing_lr(opt, .T_max = 8), .interval = LC_INTERVAL_STEP});
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .validation_step = small_net_validation_step,
    .configure_optimizers = configure_optimizers,
};

enum { ROOM = PATH_MAX + 100 };

static const char *fixture(const char *name, char path[ROOM])
{
    snprintf(path, ROOM, "%s/tests/core/resume/fixtures/%s", source_root(), name);
    return path;
}

/* The final weights and metrics of the older version. */
static void read_older_end(small_net_results *out)
{
    small_net m = {0};
    char path[ROOM];
    *out = (small_net_results){.train_loss = 0.954180118514,
                               .val_loss = 1.05117287346,
                               .val_acc = 20.0 / VAL,
                               .samples = TRAIN,
                               .steps = 9,
                               .epochs = EPOCHS};
    CHECK_OK(small_net_init(&m, &net_ops, 77));
    CHECK_OK(lc_module_load_weights(&m.base, fixture("end.safetensors", path), NULL));
    CHECK_OK(lc_tensor_read(m.l1.weight, out->weight, sizeof out->weight));
    CHECK_OK(lc_tensor_read(m.l2.weight, out->head, sizeof out->head));
    small_net_release(&m);
}

static lc_status continue_training(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    char path[ROOM];
    small_net m = {0};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    lc_callback callbacks[2];
    LC_TRY(lc_ema_weight_averaging(&callbacks[0], .decay = 0.8));
    LC_TRY(lc_early_stopping(&callbacks[1], .monitor = "val_loss", .patience = 9));
    opt.callbacks = callbacks;
    opt.n_callbacks = 2;
    opt.strategy = j->strategy;
    opt.max_epochs = EPOCHS;
    opt.accumulate_grad_batches = 3;
    opt.gradient_clip_val = 0.5;
    opt.default_root_dir = j->root;
    opt.ckpt_path = fixture(j->ckpt, path);
    LC_TRY(loader_of(0, TRAIN, BATCH / n, true, &train));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, BATCH / n, false, &val));
    LC_TRY(small_net_init(&m, &net_ops, (uint64_t)(1 + rank)));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base, .train_dataloader = train, .val_dataloader = val);
    s = small_net_read(s, t, &m, "train_loss_epoch", &j->end[rank]);
    for (int i = 0; i < lc_trainer_metric_count(t, LC_LOGGED_METRICS); i++)
        if (!strncmp(lc_trainer_metric_at(t, LC_LOGGED_METRICS, i).name, "unlogged", 8)) j->logged = true;
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m);
    return s;
}

static void check(const char *ckpt, const char *strategy, int ranks)
{
    job j = {.ckpt = ckpt, .strategy = strategy};
    small_net_results older;
    snprintf(j.root, sizeof j.root, "%s", fresh_dir("run"));
    read_older_end(&older);
    if (ranks > 1)
        CHECK_RANKS("threads", ranks, continue_training, &j);
    else
        CHECK_OK(continue_training(NULL, &j));
    for (int i = 0; i < ranks; i++) small_net_near(&j.end[i], &older);
    CHECK(!j.logged);
}

TEST(of_one_process)
{
    check("window.ckpt", NULL, 1);
}

TEST(of_one_process_by_two_ranks)
{
    check("window.ckpt", "ddp", 2);
}

TEST(in_parts)
{
    check("parts.ckpt", "sharded", 2);
}

TEST(in_parts_by_one_process)
{
    check("parts.ckpt", NULL, 1);
}

TEST_MAIN
