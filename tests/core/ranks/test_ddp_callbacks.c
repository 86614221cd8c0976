/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks that change weights give the same bits under sharding strategies as under ddp, and resume from a checkpoint
 * of any other strategy. */
#include "ddp_run.h"

static lc_status make_mean(lc_callback *out)
{
    return lc_weight_averaging_new(NULL, out);
}
static lc_status make_ema(lc_callback *out)
{
    return lc_ema_weight_averaging(out, .decay = 0.7);
}
static lc_status make_swa(lc_callback *out)
{
    static const double lr = 0.05;
    return lc_stochastic_weight_averaging(out, .swa_lrs = &lr, .n_swa_lrs = 1, .swa_epoch_start = LC_EPOCHS(1));
}

static lc_status make_pruning(lc_callback *out)
{
    return lc_model_pruning(out, .pruning_fn = "l1_unstructured", .amount = 0.2);
}
static lc_status make_structured_pruning(lc_callback *out)
{
    static const char *const path = "l1.weight";
    return lc_model_pruning(out, .pruning_fn = "ln_structured", .pruning_norm = 2, .amount = 0.2,
                            .parameters_to_prune = &path, .n_parameters_to_prune = 1,
                            .use_lottery_ticket_hypothesis = LC_OFF);
}

static lc_status (*const makers[])(lc_callback *out) = {make_mean, make_ema, make_swa, make_pruning,
                                                        make_structured_pruning};
enum { MAKERS = sizeof makers / sizeof *makers };

static const char *const strategies[] = {"ddp", "sharded_1", "sharded_2", "sharded_3", "sharded_hybrid"};
enum { STRATEGIES = sizeof strategies / sizeof *strategies, RANKS = 4 };

static job job_with(const char *dir, int k, const char *strategy)
{
    job j = job_of(dir);
    clipping(&j);
    j.bucket_cap_mb = small_buckets;
    j.max_epochs = 4;
    j.callback = makers[k];
    j.strategy = strategy;
    j.shard_size = strcmp(strategy, "sharded_hybrid") ? 0 : 2;
    return j;
}

TEST(sharded_callbacks_compute_the_bits_of_ddp)
{
    for (int k = 0; k < MAKERS; k += takes_all() ? 1 : 2) {
        static ranks_job want, got, plain;
        job j = job_with("averaged", k, "ddp");
        want.j = got.j = plain.j = &j;
        CHECK_RANKS("threads", RANKS, run_rank, &want);
        j.callback = NULL;
        CHECK_RANKS("threads", RANKS, run_rank, &plain);
        CHECK(memcmp(plain.o[0].end.weight, want.o[0].end.weight, sizeof want.o[0].end.weight) != 0);
        for (int s = 1; s < STRATEGIES; s++) {
            j = job_with("averaged", k, strategies[s]);
            CHECK_RANKS("threads", RANKS, run_rank, &got);
            for (int i = 0; i < RANKS; i++) same(&want.o[i], &got.o[i]);
        }
    }
}

TEST(sharded_callbacks_resume_under_other_strategies)
{
    static const int ranks[] = {4, 2, 3};
    for (int k = 0; k < MAKERS; k += takes_all() ? 1 : 2) {
        static ranks_job want, before, got;
        job j = job_with("averaged", k, "ddp");
        want.j = before.j = got.j = &j;
        CHECK_RANKS("threads", RANKS, run_rank, &want);
        for (int s = 0; s < STRATEGIES; s++) {
            int n = ranks[(s + k) % 3];
            j = job_with("averaged", k, strategies[s]);
            j.save_after = 3;
            j.state_dict_type = s % 2 ? "full" : "sharded";
            snprintf(j.saved, sizeof j.saved, "%s/inside.ckpt", j.root);
            CHECK_RANKS("threads", RANKS, run_rank, &before);
            job next = job_with("next", k, strategies[(s + 2) % STRATEGIES]);
            next.ckpt_path = j.saved;
            if (next.shard_size) n = RANKS;
            got.j = &next;
            CHECK_RANKS("threads", n, run_rank, &got);
            for (int i = 0; i < n; i++) compare(&want.o[0], &got.o[i]);
        }
    }
}

static lc_status make_histograms(lc_callback *out)
{
    return lc_weight_histogram(out, .every_n_train_steps = 2);
}

TEST(histograms_are_of_whole_weights)
{
    static ranks_job want, got;
    job j = job_with("histograms", 0, "ddp");
    j.callback = make_histograms;
    want.j = got.j = &j;
    CHECK_RANKS("threads", RANKS, run_rank, &want);
    j.strategy = "sharded_3";
    CHECK_RANKS("threads", RANKS, run_rank, &got);
    for (int i = 0; i < RANKS; i++) same(&want.o[i], &got.o[i]);
}

/* ---- the pass for batch norms after the last epoch ---- */

typedef struct normed_net {
    small_net base;
    lc_batch_norm1d norm;
} normed_net;

static lc_tensor *normed_step(lc_module *self, const lc_batch *b, int64_t i)
{
    normed_net *m = (normed_net *)self;
    lc_tensor *h = lc_batch_norm1d_forward(&m->norm, lc_linear_forward(&m->base.l1, b->x)); /* [B,WIDTH] */
    static const char *const names[] = {"h0", "h1", "h2"}; /* so many that the values of all batches do not fit */
    (void)i;
    for (int k = 0; k < 3; k++) lc_output(self, names[k], h);
    if (b->size == 0) lc_fail(LC_ERR_INTERNAL, "training_step without a sample");
    return b->size ? lc_cross_entropy(lc_linear_forward(&m->base.l2, lc_relu(h)), b->y) : NULL;
}

static const lc_module_ops normed_ops = {LC_MODULE_OPS_INIT("normed"), .training_step = normed_step,
                                         .configure_optimizers = small_net_sgd};

static lc_status average_normed(lc_comm *comm, void *ctx)
{
    normed_net m = {0};
    float mean[WIDTH];
    lc_dataloader *train;
    lc_trainer *t;
    lc_callback swa;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = ctx;
    opt.max_epochs = 3;
    opt.sync_batchnorm = true;
    LC_TRY(loader_of(0, 26, 4, false, &train)); /* the last batch has two samples */
    LC_TRY(small_net_init(&m.base, &normed_ops, 1));
    lc_batch_norm1d_init(&m.norm, &m, "norm", WIDTH);
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(make_swa(&swa));
    LC_TRY(lc_trainer_add_callback(t, swa));
    LC_TRY(lc_trainer_fit(t, &m.base.base, .train_dataloader = train));
    LC_TRY(lc_tensor_read(lc_module_find(&m.base.base, "norm.running_mean"), mean, sizeof mean));
    for (int i = 0; i < WIDTH; i++) RANK_CHECK(isfinite(mean[i]) && mean[i] != 0);
    lc_trainer_free(t);
    lc_dataloader_free(train);
    small_net_release(&m.base);
    return LC_OK;
}

TEST(batch_norms_are_computed_if_ranks_have_no_sample)
{
    CHECK_RANKS("threads", 3, average_normed, "ddp");
    CHECK_RANKS("threads", 3, average_normed, "sharded_1");
}

/* ---- averages of statistics that each rank has of its own ---- */

typedef struct averaged_job {
    const char *state_dict_type;
    char path[400];
    float seen[3][2 * WIDTH],
        left[3][2 * WIDTH]; /* running_mean and running_var: seen by validation, left after the fit */
    float saved[2 * WIDTH];
} averaged_job;

typedef struct averaged_net {
    normed_net net;
    averaged_job *j;
    int rank;
} averaged_net;

static lc_status read_statistics(lc_module *m, float out[2 * WIDTH])
{
    LC_TRY(lc_tensor_read(lc_module_find(m, "norm.running_mean"), out, WIDTH * sizeof *out));
    return lc_tensor_read(lc_module_find(m, "norm.running_var"), out + WIDTH, WIDTH * sizeof *out);
}

static lc_status look_and_validate(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    averaged_net *m = (averaged_net *)self;
    (void)b, (void)i, (void)loader;
    return read_statistics(self, m->j->seen[m->rank]);
}

static lc_status save_inside(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    (void)o, (void)b;
    if (i != 2 || lc_trainer_current_epoch(self->trainer) != 1) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, ((averaged_net *)self)->j->path, false);
}

static const lc_module_ops averaged_ops = {
    LC_MODULE_OPS_INIT("averaged"),       .training_step = normed_step,          .on_train_batch_end = save_inside,
    .validation_step = look_and_validate, .configure_optimizers = small_net_sgd,
};

static lc_status read_saved(const char *path, float out[2 * WIDTH])
{
    normed_net m = {0};
    LC_TRY(small_net_init(&m.base, &averaged_ops, 1));
    lc_batch_norm1d_init(&m.norm, &m, "norm", WIDTH);
    lc_status s = lc_module_load_checkpoint(&m.base.base, path, true);
    if (s >= 0) s = read_statistics(&m.base.base, out);
    small_net_release(&m.base);
    return s;
}

static lc_status average_statistics(lc_comm *comm, void *ctx)
{
    averaged_net m = {.j = ctx, .rank = lc_comm_rank(comm)};
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_callback ema;
    lc_trainer_options opt = quiet_options(comm);
    opt.strategy = "sharded_1";
    opt.state_dict_type = m.j->state_dict_type;
    opt.max_epochs = 3;
    opt.check_val_every_n_epoch = 2;
    LC_TRY(loader_of(0, 48, 4, false, &train));
    LC_TRY(loader_of(48, 24, 4, false, &val));
    LC_TRY(small_net_init(&m.net.base, &averaged_ops, 1));
    lc_batch_norm1d_init(&m.net.norm, &m, "norm", WIDTH);
    LC_TRY(lc_trainer_new(&opt, &t));
    LC_TRY(make_ema(&ema));
    LC_TRY(lc_trainer_add_callback(t, ema));
    LC_TRY(lc_trainer_fit(t, &m.net.base.base, .train_dataloader = train, .val_dataloader = val));
    LC_TRY(read_statistics(&m.net.base.base, m.j->left[m.rank]));
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m.net.base);
    return LC_OK;
}

/* Every rank validates with rank 0's statistics and ends with them, and a checkpoint in parts holds what rank 0 would
 * have written by itself. */
TEST(averaged_statistics_are_those_of_rank_0)
{
    static averaged_job jobs[2] = {{.state_dict_type = "full"}, {.state_dict_type = "sharded"}};
    for (int k = 0; k < 2; k++) {
        averaged_job *j = &jobs[k];
        const char *root = fresh_dir(j->state_dict_type);
        snprintf(j->path, sizeof j->path, "%s/inside.ckpt", root);
        CHECK_RANKS("threads", 3, average_statistics, j);
        for (int i = 1; i < 3; i++) {
            CHECK(!memcmp(j->seen[0], j->seen[i], sizeof j->seen[0]));
            CHECK(!memcmp(j->left[0], j->left[i], sizeof j->left[0]));
        }
        CHECK_OK(read_saved(j->path, j->saved));
    }
    CHECK(!memcmp(jobs[0].saved, jobs[1].saved, sizeof jobs[0].saved));
}

/* ---- a callback whose state differs between ranks: a checkpoint of any kind has rank 0's, numbers and tensors ---- */

typedef struct counter {
    lc_tensor *tensors[3]; /* more than ranks, so that each rank could write one */
    int64_t rank;
    bool loaded, wrong;
} counter;

static lc_status counter_start(void *self, lc_trainer *t)
{
    counter *c = self;
    const float mine = (float)lc_trainer_global_rank(t);
    if (c->loaded) {
        c->wrong = c->rank != 0;
        for (int k = 0; k < 3; k++) {
            double v;
            LC_TRY(lc_item(c->tensors[k], &v));
            c->wrong |= v != 0;
        }
    }
    c->rank = lc_trainer_global_rank(t);
    for (int k = 0; k < 3; k++) LC_TRY(lc_tensor_write(c->tensors[k], &mine, sizeof mine));
    return LC_OK;
}

static lc_status counter_save(void *self, lc_trainer *t, lc_state *state)
{
    (void)t;
    return lc_state_set_int(state, "rank", ((counter *)self)->rank);
}

static lc_status counter_load(void *self, lc_trainer *t, const lc_state *state)
{
    (void)t;
    ((counter *)self)->loaded = true;
    return lc_state_get_int(state, "rank", &((counter *)self)->rank);
}

static lc_status counter_tensors(void *self, lc_trainer *t, lc_callback_tensor_fn *fn, void *ctx)
{
    static const char *const names[] = {"a", "b", "c"};
    (void)t;
    for (int k = 0; k < 3; k++) LC_TRY(fn(ctx, names[k], ((counter *)self)->tensors[k]));
    return LC_OK;
}

static const lc_callback_ops counter_ops = {
    LC_CALLBACK_OPS_INIT("Counter"), .on_train_start = counter_start,  .save_state = counter_save,
    .load_state = counter_load,      .visit_tensors = counter_tensors,
};

typedef struct count_job {
    const char *strategy, *state_dict_type;
    char root[320];
} count_job;

static lc_status count(lc_comm *comm, void *ctx)
{
    static const lc_module_ops ops = {LC_MODULE_OPS_INIT("net"), .training_step = small_net_training_step,
                                      .configure_optimizers = small_net_sgd};
    const count_job *j = ctx;
    char path[400];
    counter c = {.loaded = false};
    lc_callback cb = {&counter_ops, &c};
    for (int k = 0; k < 3; k++) LC_TRY(lc_tensor_new(LC_F32, 1, (const int64_t[]){1}, &c.tensors[k]));
    snprintf(path, sizeof path, "%s/saved.ckpt", j->root);
    for (int again = 0; again < 2; again++) {
        small_net m = {.dropout = 0};
        lc_dataloader *train;
        lc_trainer *t;
        lc_trainer_options opt = quiet_options(comm);
        opt.strategy = j->strategy;
        opt.state_dict_type = j->state_dict_type;
        opt.default_root_dir = j->root;
        opt.max_epochs = 1 + again;
        opt.callbacks = &cb;
        opt.n_callbacks = 1;
        LC_TRY(small_net_init(&m, &ops, 1));
        LC_TRY(loader_of(0, SAMPLES, 10, false, &train));
        LC_TRY(lc_trainer_new(&opt, &t));
        LC_TRY(lc_trainer_fit(t, &m.base, .train_dataloader = train, .ckpt_path = again ? path : NULL));
        if (!again) LC_TRY(lc_trainer_save_checkpoint(t, path, false));
        lc_trainer_free(t);
        lc_dataloader_free(train);
        small_net_release(&m);
    }
    for (int k = 0; k < 3; k++) lc_tensor_unref(c.tensors[k]);
    RANK_CHECK(c.loaded && !c.wrong);
    return LC_OK;
}

TEST(the_state_of_a_callback_is_rank_zeros)
{
    static const char *const types[] = {"full", "sharded"};
    for (int k = 0; k < STRATEGIES - 1; k++)
        for (int type = 0; type < 2; type++) {
            count_job j = {strategies[k], types[type], ""};
            snprintf(j.root, sizeof j.root, "%s", fresh_dir("count"));
            CHECK_RANKS("threads", 2, count, &j);
        }
}

TEST_MAIN
