/* SPDX-License-Identifier: Apache-2.0 */
/* Law 3 over ranks and strategies: a run saved by any strategy on any number of ranks resumes under any other, on any
 * other number, as if it had not stopped; and every sample is seen once per epoch, by one of the two runs. It is saved
 * inside an epoch or at its end, mostly inside an accumulation window. Strategies that shard save in parts.
 *
 * To add a strategy or a number of ranks: a line in `places`. */
#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net_results.h"

enum { GLOBAL_BATCH = 12, TRAIN = 41, EPOCHS = 3, SAVED_IN = 1 };

typedef struct place {
    const char *strategy; /* NULL: one process */
    int ranks, devices;
    const char *state_dict_type; /* NULL: the strategy's default */
} place;

/* clang-format off */
static const place places[] = {
    {NULL, 1, 1},
    {"ddp", 1, 1}, {"ddp", 2, 1, "sharded"}, {"ddp", 3, 1}, {"ddp", 4, 1, "sharded"},
    {"sharded_1", 1, 1}, {"sharded_1", 2, 1}, {"sharded_1", 3, 1, "full"}, {"sharded_1", 4, 1},
    {"sharded_2", 1, 1}, {"sharded_2", 2, 1, "full"}, {"sharded_2", 3, 1}, {"sharded_2", 4, 1},
    {"sharded_3", 1, 1}, {"sharded_3", 2, 1}, {"sharded_3", 3, 1}, {"sharded_3", 4, 1},
    {"data_parallel", 1, 2}, {"dp", 1, 3}, {"dp", 1, 4},
    {"central_storage", 1, 2}, {"central_storage", 1, 3}, {"central_storage", 1, 4},
    {"sharded_hybrid", 2, 1}, {"sharded_hybrid", 4, 1}, /* two copies */
};
/* clang-format on */
enum { PLACES = sizeof places / sizeof *places, MOST_RANKS = 4 };

typedef struct job {
    place at;
    char root[320], saved[400];
    const char *ckpt_path;
    int64_t accumulate, save_after; /* save after this batch; -1: never */
    int64_t chunk;                  /* samples in a chunk; 0: not deterministic */
} job;

typedef struct outcome {
    small_net_results end;
    int64_t warnings;
    int seen[EPOCHS][TRAIN], before[TRAIN]; /* seen in all; in the epoch that is saved, before the save */
} outcome;

typedef struct net {
    small_net base;
    job *j;
    outcome *o;
} net;

static lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    int64_t epoch = lc_trainer_current_epoch(self->trainer);
    for (int64_t k = 0; k < b->size; k++) {
        m->o->seen[epoch][b->indices[k]]++;
        if (epoch == SAVED_IN && i <= m->j->save_after) m->o->before[b->indices[k]]++;
    }
    lc_tensor *loss = lc_cross_entropy(logits_of(&m->base, b->x), b->y);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON, .on_step = LC_OFF);
    lc_log_value(self, "samples", (double)b->size, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_SUM);
    return loss;
}

static lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    const job *j = ((net *)self)->j;
    (void)o, (void)b;
    if (i != j->save_after || lc_trainer_current_epoch(self->trainer) != SAVED_IN) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->saved, false);
}

static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    (void)t, (void)text;
    *(int64_t *)self += level == LC_WARNING;
}

static const lc_callback_ops hears = {LC_CALLBACK_OPS_INIT("hears"), .on_message = hear};

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
    .on_train_batch_end = on_train_batch_end,
    .validation_step = small_net_validation_step,
    .configure_optimizers = configure_optimizers,
};

static lc_status run(job *j, lc_comm *comm, outcome *o)
{
    int n = comm ? lc_comm_size(comm) : 1, rank = comm ? lc_comm_rank(comm) : 0;
    char devices[8];
    net m = {.j = j, .o = o};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    lc_callback listens = {&hears, &o->warnings};
    memset(o, 0, sizeof *o);
    opt.callbacks = &listens;
    opt.n_callbacks = 1;
    snprintf(devices, sizeof devices, "%d", j->at.devices);
    opt.strategy = j->at.strategy;
    if (opt.strategy && !strcmp(opt.strategy, "sharded_hybrid")) opt.shard_size = n / 2;
    if (j->at.devices > 1) opt.devices = devices;
    opt.max_epochs = EPOCHS;
    opt.accumulate_grad_batches = j->accumulate;
    opt.gradient_clip_val = 0.5;
    opt.bucket_cap_mb = 200.0 / (1 << 20); /* several units */
    opt.deterministic = j->chunk > 0;
    opt.deterministic_chunk = j->chunk;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.state_dict_type = j->at.state_dict_type;
    LC_TRY(loader_of(0, TRAIN, GLOBAL_BATCH / n, true, &train));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, GLOBAL_BATCH / n, false, &val));
    LC_TRY(small_net_init(&m.base, &net_ops, (uint64_t)(1 + rank)));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train, .val_dataloader = val);
    s = small_net_read(s, t, &m.base, "train_loss", &o->end);
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m.base);
    return s;
}

/* ---- the job in its place ---- */

typedef struct ranks_job {
    job j;
    outcome o[MOST_RANKS];
} ranks_job;

static lc_status run_rank(lc_comm *comm, void *ctx)
{
    ranks_job *r = ctx;
    return run(&r->j, comm, &r->o[lc_comm_rank(comm)]);
}

static bool has_ranks(const place *p)
{
    return p->strategy && p->devices == 1;
}

static void run_job(ranks_job *r)
{
    memset(r->o, 0, sizeof r->o);
    if (has_ranks(&r->j.at))
        CHECK_RANKS("threads", r->j.at.ranks, run_rank, r);
    else
        CHECK_OK(run(&r->j, NULL, &r->o[0]));
}

static const char *text_of(const place *p, char text[64])
{
    snprintf(text, 64, "%s of %d", p->strategy ? p->strategy : "one", p->devices > 1 ? p->devices : p->ranks);
    return text;
}

static bool is_near(const small_net_results *a, const small_net_results *b)
{
    double worst = fmax(fabs(a->val_loss - b->val_loss), fabs(a->train_loss - b->train_loss));
    worst = fmax(worst, fabs(a->val_acc - b->val_acc));
    for (size_t i = 0; i < sizeof a->weight / 4; i++) worst = fmax(worst, fabsf(a->weight[i] - b->weight[i]));
    for (size_t i = 0; i < sizeof a->head / 4; i++) worst = fmax(worst, fabsf(a->head[i] - b->head[i]));
    return worst <= 1e-5;
}

/* `from` has saved and continued; `to` resumes from there and ends like `whole`. */
static void check(const ranks_job *from, const ranks_job *to, const small_net_results *whole, bool bits)
{
    char a[64], b[64];
    for (int i = 0; i < to->j.at.ranks; i++) {
        const outcome *o = &to->o[i];
        bool counts = o->end.steps == whole->steps && o->end.epochs == EPOCHS && o->end.samples == TRAIN;
        if (o->warnings)
            TEST_FAIL("%s, resumed from %s, rank %d: a warning", text_of(&to->j.at, b), text_of(&from->j.at, a), i);
        if (!counts || !is_near(whole, &o->end) || (bits && !small_net_same_bits(whole, &o->end)))
            TEST_FAIL("%s, resumed from %s, rank %d: %d steps, %d epochs, loss %.9g, wanted %.9g",
                      text_of(&to->j.at, b), text_of(&from->j.at, a), i, (int)o->end.steps, (int)o->end.epochs,
                      o->end.train_loss, whole->train_loss);
    }
    for (int e = 0; e < EPOCHS; e++)
        for (int k = 0; k < TRAIN; k++) {
            int seen = 0;
            for (int i = 0; i < from->j.at.ranks; i++)
                seen += e < SAVED_IN ? from->o[i].seen[e][k] : e == SAVED_IN ? from->o[i].before[k] : 0;
            for (int i = 0; i < to->j.at.ranks; i++) seen += to->o[i].seen[e][k];
            if (seen != 1)
                TEST_FAIL("%s, resumed from %s: sample %d is seen %d times in epoch %d", text_of(&to->j.at, b),
                          text_of(&from->j.at, a), k, seen, e);
        }
}

/* Checks every pair of the places that `in` accepts. */
static void check_all(bool (*in)(const place *p), int64_t accumulate, int64_t chunk)
{
    static ranks_job from[PLACES], to;
    bool deterministic = chunk > 0;
    int first = -1;
    for (int i = 0; i < PLACES; i++) {
        char dir[24], a[64];
        ranks_job *r = &from[i];
        if (!in(&places[i])) continue;
        snprintf(dir, sizeof dir, "from-%d", i);
        /* 41 samples are 4 batches, a window and the last batch. */
        r->j = (job){.at = places[i], .accumulate = accumulate, .save_after = (i + 2) % 4, .chunk = chunk};
        const char *root = fresh_dir(dir);
        snprintf(r->j.root, sizeof r->j.root, "%s", root);
        snprintf(r->j.saved, sizeof r->j.saved, "%s/inside.ckpt", root);
        run_job(r);
        if (first < 0) first = i;
        for (int k = 0; k < r->j.at.ranks; k++) /* saving changes no result */
            if (deterministic ? !small_net_same_bits(&from[first].o[0].end, &r->o[k].end)
                              : !is_near(&from[first].o[0].end, &r->o[k].end))
                TEST_FAIL("%s, rank %d: loss %.9g, wanted %.9g", text_of(&places[i], a), k, r->o[k].end.train_loss,
                          from[first].o[0].end.train_loss);
    }
    for (int i = 0; i < PLACES; i++)
        for (int k = 0; k < PLACES; k++) {
            if (!in(&places[i]) || !in(&places[k])) continue;
            to.j = (job){.at = places[k], .accumulate = accumulate, .save_after = -1, .chunk = chunk};
            snprintf(to.j.root, sizeof to.j.root, "%s", fresh_dir("to"));
            to.j.ckpt_path = from[i].j.saved;
            run_job(&to);
            check(&from[i], &to, &from[k].o[0].end, deterministic || i == k);
        }
}

static bool any(const place *p)
{
    (void)p;
    return true;
}

TEST(from_any_strategy_and_number_of_ranks_to_any)
{
    check_all(any, 3, 0);
}

/* Devices do not compute in chunks; three ranks cannot share four chunks of 3 samples. */
static bool shares_chunks(const place *p)
{
    return p->devices == 1 && p->ranks != 3;
}

TEST(bit_for_bit_with_deterministic)
{
    check_all(shares_chunks, 3, 3);
}

static bool ddp_of_one_or_two(const place *p)
{
    return p->strategy && !strcmp(p->strategy, "ddp") && p->ranks <= 2;
}

/* Three chunks: the first of two ranks computes two of them. */
TEST(a_last_rank_with_fewer_chunks)
{
    check_all(ddp_of_one_or_two, 3, 4);
}

TEST_MAIN
