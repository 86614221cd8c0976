/* SPDX-License-Identifier: Apache-2.0 */
/* A value that only one rank has, or a request or failure of one rank, reaches all of them or ends all of them with its
 * reason: no rank waits for the others, and ranks do not train on with different states. */
#include "comm_world.h"
#include "core/hooks/trainer_internal.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net.h"

enum { RANKS = 3, BATCH = 4, ODD = 1 };

typedef struct job {
    const char *strategy;
    lc_callback (*callback)(void *ctx);
    bool plateau;
    bool saves; /* saves in batch 2, and continues whatever the result */
    enum { NEITHER, STOPS, SKIPS, OVERFLOWS } wants;
    int who; /* the rank that wants it in batch 2; RANKS: all ranks */
    const char *save_path;
    int64_t steps; /* the result, the same on all ranks */
    int ranks;
} job;

typedef struct net {
    small_net base;
    job *j;
    int rank;
    lc_status saved;
    char message[1024];
} net;

static lc_status optimizers(lc_module *self, lc_optimizers *out)
{
    net *m = (net *)self;
    LC_TRY(small_net_sgd(self, out));
    if (!m->j->plateau) return LC_OK;
    lc_optimizer *o = out->optimizers[0].optimizer;
    return lc_optimizers_add_scheduler(
        out, (lc_scheduler_config){.scheduler = lc_reduce_lr_on_plateau(o, .patience = 0, .factor = 0.5),
                                   .interval = LC_INTERVAL_STEP,
                                   .monitor = "of_rank_0",
                                   .not_strict = true});
}

static lc_status wants(const net *m, int64_t i, lc_status what)
{
    return i == 2 && (m->j->who == RANKS || m->j->who == m->rank) ? what : LC_OK;
}

static lc_status before_step(lc_module *self, lc_optimizer *o)
{
    const net *m = (net *)self;
    (void)o;
    return m->j->wants == SKIPS ? wants(m, lc_trainer_batch_idx(self->trainer), LC_SKIP) : LC_OK;
}

/* A precision's hook, which finds that gradients have overflowed. */
static lc_status look_for_overflow(void *self, lc_optimizer *o)
{
    const net *m = self;
    (void)o;
    return wants(m, lc_trainer_batch_idx(m->base.base.trainer), LC_SKIP);
}

static const lc_precision_ops overflows = {LC_PRECISION_OPS_INIT("overflows"),
                                           .before_optimizer_step = look_for_overflow};

static const lc_module_ops quiet_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = small_net_training_step,
    .configure_optimizers = optimizers,
};

static lc_status end_of_batch(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b;
    if (m->j->wants == STOPS) return wants(m, i, LC_STOP);
    if (!m->j->saves || i != 2) return LC_OK;
    m->saved = lc_trainer_save_checkpoint(self->trainer, m->j->save_path, false);
    snprintf(m->message, sizeof m->message, "%s", lc_error_message());
    return LC_OK;
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = small_net_training_step,
    .on_before_optimizer_step = before_step,
    .on_train_batch_end = end_of_batch,
    .configure_optimizers = optimizers,
};

static lc_status fit(job *j, lc_comm *comm, net *m, float *weight)
{
    lc_dataloader *train;
    lc_trainer *t;
    lc_trainer_options opt = quiet_options(comm);
    lc_callback callbacks[3];
    char message[1024];
    *m = (net){.j = j, .rank = comm ? lc_comm_rank(comm) : 0};
    opt.max_epochs = 2;
    opt.strategy = comm ? j->strategy : NULL;
    opt.callbacks = callbacks;
    if (j->callback) callbacks[opt.n_callbacks++] = j->callback(m);
    LC_TRY(loader_of(0, 60, BATCH * RANKS / (comm ? lc_comm_size(comm) : 1), false, &train));
    LC_TRY(small_net_init(&m->base, j->wants == OVERFLOWS ? &quiet_ops : &net_ops, 1));
    LC_TRY(lc_trainer_new(&opt, &t));
    if (j->wants == OVERFLOWS) t->precision = overflows, t->precision_self = m;
    lc_status s = lc_trainer_fit(t, &m->base.base, .train_dataloader = train);
    if (m->rank == 0) j->steps = lc_trainer_global_step(t);
    if (s >= 0 && weight) s = lc_tensor_read(m->base.l1.weight, weight, sizeof(float) * WIDTH * FEATURES);
    snprintf(message, sizeof message, "%s", lc_error_message());
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m->base);
    return s < 0 ? lc_fail(s, "%s", message) : LC_OK;
}

/* ---- a number that only rank 0 has logged ---- */

static lc_status log_on_rank_0(void *self, lc_trainer *t, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = self;
    (void)t, (void)o, (void)b;
    lc_log_value(&m->base.base, "of_rank_0", (double)i, .rank_zero_only = true);
    return LC_OK;
}

static const lc_callback_ops log_ops = {LC_CALLBACK_OPS_INIT("OfRank0"), .ranks = LC_RANK_ZERO,
                                        .on_train_batch_end = log_on_rank_0};

static lc_status monitors(lc_comm *comm, void *ctx)
{
    net m = {.j = ctx, .rank = lc_comm_rank(comm)};
    lc_dataloader *train;
    lc_trainer *t;
    lc_callback callbacks[3] = {{&log_ops, &m}};
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = 3;
    opt.strategy = "ddp";
    opt.enable_checkpointing = LC_ON;
    opt.default_root_dir = m.j->save_path;
    opt.callbacks = callbacks;
    opt.n_callbacks = 3;
    LC_TRY(lc_early_stopping(&callbacks[1], .monitor = "of_rank_0", .patience = 5, .check_on_train_epoch_end = LC_ON,
                             .strict = LC_OFF));
    LC_TRY(lc_model_checkpoint(&callbacks[2], .monitor = "of_rank_0", .every_n_train_steps = 2, .save_top_k = 1));
    LC_TRY(loader_of(0, 60, BATCH, false, &train));
    LC_TRY(small_net_init(&m.base, &net_ops, 1));
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(lc_trainer_fit(t, &m.base.base, .train_dataloader = train));
    double lr, mine;
    LC_TRY(lc_optimizer_get(lc_trainer_optimizer(t, 0), 0, "lr", &lr));
    mine = lr;
    LC_TRY(lc_comm_broadcast(comm, &lr, 1, LC_F64, 0, NULL));
    RANK_CHECK(mine == lr && lr < 0.1);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return LC_OK;
}

TEST(monitors_use_values_that_only_rank_0_has)
{
    job j = {.plateau = true, .save_path = fresh_dir("apart")};
    CHECK_RANKS("threads", RANKS, monitors, &j);
}

/* ---- a checkpoint of which one rank cannot save its part ---- */

static lc_status save_nothing(void *self, lc_trainer *t, lc_state *out)
{
    (void)self, (void)out;
    return lc_trainer_global_rank(t) == ODD ? lc_fail(LC_ERR_USER, "the state of this rank is gone") : LC_OK;
}

static const lc_callback_ops full_ops = {LC_CALLBACK_OPS_INIT("Full"), .save_state = save_nothing};

static lc_callback full(void *ctx)
{
    return (lc_callback){&full_ops, ctx};
}

static lc_status save_and_continue(lc_comm *comm, void *ctx)
{
    job *j = ctx;
    net m;
    LC_TRY(fit(j, comm, &m, NULL));
    RANK_CHECK(m.saved == LC_ERR_USER);
    RANK_CHECK(strstr(m.message, "the state of this rank is gone"));
    RANK_CHECK(m.rank == ODD || strstr(m.message, "rank 1: "));
    return LC_OK;
}

TEST(no_rank_waits_for_one_that_cannot_save)
{
    static const char *const strategies[] = {"ddp", "sharded_1", "sharded_3"};
    char path[400];
    snprintf(path, sizeof path, "%s/a.ckpt", fresh_dir("apart"));
    for (int i = 0; i < 3; i++) {
        job j = {.strategy = strategies[i], .callback = full, .saves = true, .save_path = path};
        CHECK_RANKS("threads", RANKS, save_and_continue, &j);
        CHECK_EQ(j.steps, 10);
    }
}

/* ---- requests of one rank to the loop ---- */

typedef struct one_process {
    job j;
    float weight[WIDTH * FEATURES];
    int64_t steps;
} one_process;

static lc_status as_one_process(lc_comm *comm, void *ctx)
{
    one_process *one = ctx;
    net m;
    float weight[WIDTH * FEATURES];
    LC_TRY(fit(&one->j, comm, &m, weight));
    RANK_CHECK(m.rank || one->j.steps == one->steps);
    for (int i = 0; i < WIDTH * FEATURES; i++) RANK_CHECK(fabsf(weight[i] - one->weight[i]) < 3e-6F);
    return LC_OK;
}

static void check_request(int what, int64_t steps)
{
    static const char *const strategies[] = {"ddp", "sharded_3"};
    one_process one = {.j = {.wants = what == OVERFLOWS ? SKIPS : what, .who = RANKS}};
    net m;
    CHECK_OK(fit(&one.j, NULL, &m, one.weight));
    one.j.wants = what;
    one.steps = one.j.steps;
    CHECK_EQ(one.steps, steps);
    for (int i = 0; i < 2; i++)
        for (int who = 0; who <= RANKS; who += who ? RANKS - 1 : 1) {
            one.j.strategy = strategies[i];
            one.j.who = who;
            CHECK_RANKS("threads", RANKS, as_one_process, &one);
        }
}

TEST(a_stop_at_the_end_of_a_batch_stops_all_ranks)
{
    check_request(STOPS, 3);
}

TEST(an_update_is_skipped_on_all_ranks_or_on_none)
{
    check_request(SKIPS, 10);
    check_request(OVERFLOWS, 10);
}

/* ---- messages about changed results and contradictory options ---- */

typedef struct messages {
    char text[2048];
} messages;

static void hear(void *self, lc_trainer *t, lc_level level, const char *text)
{
    messages *h = self;
    size_t n = strlen(h->text);
    (void)t, (void)level;
    snprintf(h->text + n, sizeof h->text - n, "%s\n", text);
}

static const lc_callback_ops heard_ops = {LC_CALLBACK_OPS_INIT("Heard"), .on_message = hear};

typedef struct norm_net {
    small_net base;
    lc_batch_norm_layer norm;
} norm_net;

static lc_tensor *norm_step(lc_module *self, const lc_batch *b, int64_t i)
{
    norm_net *m = (norm_net *)self;
    (void)i;
    lc_tensor *h = lc_batch_norm1d_forward(&m->norm, lc_linear_forward(&m->base.l1, b->x));
    return lc_cross_entropy(lc_linear_forward(&m->base.l2, lc_relu(h)), b->y);
}

static const lc_module_ops norm_ops = {
    LC_MODULE_OPS_INIT("norms"),
    .training_step = norm_step,
    .configure_optimizers = small_net_sgd,
};

static lc_status listen(const char *strategy, const char *devices, int64_t max_epochs, messages *h)
{
    norm_net m = {0};
    lc_dataloader *train;
    lc_trainer *t;
    lc_callback callbacks[] = {{&heard_ops, h}};
    lc_trainer_options opt = quiet_options(NULL);
    opt.strategy = strategy;
    opt.devices = devices;
    opt.max_epochs = max_epochs;
    opt.callbacks = callbacks;
    opt.n_callbacks = 1;
    h->text[0] = 0;
    LC_TRY(small_net_init(&m.base, &norm_ops, 1));
    lc_batch_norm1d_init(&m.norm, &m, "norm", WIDTH);
    LC_TRY(loader_of(0, 60, 12, false, &train));
    LC_TRY(lc_trainer_new(&opt, &t));
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return s;
}

TEST(batch_norm_of_parts_is_reported)
{
    messages h;
    CHECK_OK(listen("data_parallel", "2", 1, &h));
    CHECK_CONTAINS(h.text, "batch norm: each device normalizes its own part of a batch");
    CHECK_OK(listen(NULL, NULL, 1, &h));
    CHECK(!strstr(h.text, "batch norm"));
}

TEST(a_fit_of_no_epochs_says_why_it_stopped)
{
    messages h;
    CHECK_OK(listen(NULL, NULL, 0, &h));
    CHECK_CONTAINS(h.text, "max_epochs=0 reached");
    CHECK(!strstr(h.text, "no training batches"));
}

TEST(whole_parameters_cannot_stay_in_slices)
{
    static const char *const strategies[] = {NULL, "sharded_1", "data_parallel"};
    for (int i = 0; i < 3; i++) {
        lc_trainer *t;
        lc_trainer_options opt = quiet_options(NULL);
        opt.strategy = strategies[i];
        opt.gather_parameters = false;
        CHECK_STATUS(lc_trainer_new(&opt, &t), LC_ERR_CONFIG);
        CHECK_CONTAINS(lc_error_message(), "use --strategy sharded or sharded_hybrid");
    }
}

TEST_MAIN
