/* SPDX-License-Identifier: Apache-2.0 */
/* A training of small_net.h that ranks share, and its results: for the tests of law 2 in the trainer (N ranks with
 * batch B train as one rank with batch N * B). job_of, then CHECK_RANKS(..., run_rank, &ranks_job), then compare or
 * same. */
#ifndef LC_TESTS_DDP_RUN_H
#define LC_TESTS_DDP_RUN_H

#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net_results.h"

#include <pthread.h>

enum { GLOBAL_BATCH = 12 };

/* Makes several buckets, and several units if sharded: the weights of one layer have 192 bytes. */
static const double small_buckets = 200.0 / (1 << 20);

typedef struct job {
    char root[320];
    int64_t max_epochs, accumulate, log_every; /* log_every 0: every step */
    double clip, bucket_cap_mb;                /* 0: the default */
    bool shuffle, early, manual;
    enum { IN_TIME, LATE, LATE_BY_NORM, LATE_BY_LOOK } late; /* and how gradients are clipped */
    bool thaws;                                              /* the first layer is trained only in every other epoch */
    int64_t samples, val, accumulate_manually;               /* samples, val 0: all */
    const char *ckpt_path;
    const char *strategy;  /* NULL: ddp, or none with one process */
    const char *optimizer; /* NULL: SGD with momentum */
    enum { NO_LBFGS, LBFGS, LBFGS_STRONG_WOLFE } lbfgs;
    lc_status (*callback)(lc_callback *out);
    bool has_empty;                          /* a parameter without elements */
    int64_t shard_size, deterministic_chunk; /* 0: sums have no defined order */
    int stop_rank, fail_rank;                /* -1: none */
    bool leaves;                             /* fail_rank ends its epoch instead */
    int64_t at_batch;
    int64_t save_after; /* this batch of epoch 1; -1: never */
    char saved[400];
    const char *state_dict_type;
    bool seen[SAMPLES]; /* of the last epoch */
    pthread_mutex_t lock;
} job;

typedef struct outcome {
    small_net_results end;
    double smallest;
    int64_t all_reduces;
    lc_status status;
} outcome;

typedef struct net {
    small_net base;
    job *j;
    int rank;
} net;

static inline lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
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

/* Two backward passes for each step, and a step for several batches; only one of the losses uses the first layer. */
static inline lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
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

static inline lc_tensor *closure_of_step(void *ctx, lc_status *s)
{
    void **step = ctx;
    lc_tensor *loss = training_step(step[0], step[1], *(const int64_t *)step[2]);
    *s = lc_manual_zero_grad(step[0], NULL);
    if (*s >= 0) *s = lc_manual_backward(step[0], loss);
    return loss;
}

static inline lc_tensor *closure_step(lc_module *self, const lc_batch *b, int64_t i)
{
    void *step[] = {self, (void *)(uintptr_t)b, &i};
    lc_tensor *loss = NULL;
    lc_status s = lc_manual_step_closure(self, lc_manual_optimizer(self, 0), closure_of_step, step, &loss);
    return s < 0 ? NULL : loss;
}

/* Clips to half of the largest element of the first layer's gradient. */
static inline lc_status clip_by_look(net *m, lc_optimizer *opt)
{
    float g[8 * FEATURES], most = 0;
    LC_TRY(lc_tensor_read(lc_gradient(m->base.l1.weight), g, sizeof g));
    for (int i = 0; i < 8 * FEATURES; i++) most = fmaxf(most, fabsf(g[i]));
    lc_clip_grad_value(opt, most / 2);
    return LC_OK;
}

static inline lc_status clip_late(net *m, lc_optimizer *opt)
{
    if (m->j->late == LATE) return lc_clip_gradients(&m->base.base, opt, 0.5, "norm");
    if (m->j->late == LATE_BY_LOOK) return clip_by_look(m, opt);
    lc_clip_grad_norm(opt, 0.5);
    return LC_OK;
}

/* A backward pass in one batch, and its step in the next. */
static inline lc_tensor *late_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_optimizer *opt = lc_manual_optimizer(self, 0);
    lc_tensor *loss = training_step(self, b, i);
    lc_status s = i % 2 ? LC_OK : lc_manual_zero_grad(self, NULL);
    if (s >= 0 && i % 2 == 0) s = lc_manual_backward(self, loss);
    if (s >= 0 && i % 2) s = clip_late((net *)self, opt);
    if (s >= 0 && i % 2) s = lc_manual_step(self, opt);
    return s < 0 ? NULL : loss;
}

static inline lc_status on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b;
    if (m->j->thaws) lc_module_requires_grad(&m->base.l1.base, lc_trainer_current_epoch(self->trainer) % 2);
    return m->j->leaves && m->rank == m->j->fail_rank && i == m->j->at_batch ? LC_SKIP : LC_OK;
}

static inline lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    const job *j = ((net *)self)->j;
    const char *name = j->optimizer;
    lc_optimizer *opt;
    if (j->lbfgs == LBFGS_STRONG_WOLFE)
        return lc_optimizers_add(out, lc_lbfgs(self, .lr = 3, .max_iter = 3, .strong_wolfe = true));
    if (j->lbfgs) return lc_optimizers_add(out, lc_lbfgs(self, .lr = 0.1, .max_iter = 10, .tolerance_change = 0.02));
    if (!name) return small_net_sgd(self, out);
    LC_TRY(lc_optimizer_by_name(name, self, NULL, 0, &opt));
    return lc_optimizers_add(out, opt);
}

/* Between two steps of the optimizer, when each rank has its own gradients and sums. */
static inline lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    job *j = ((net *)self)->j;
    (void)o, (void)b;
    if (i != j->save_after || lc_trainer_current_epoch(self->trainer) != 1) return LC_OK;
    return lc_trainer_save_checkpoint(self->trainer, j->saved, false);
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .on_train_batch_start = on_train_batch_start,
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = small_net_validation_step,
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

static const lc_module_ops late_ops = {
    LC_MODULE_OPS_INIT("late_net"),
    .training_step = late_step,
    .on_train_batch_end = on_train_batch_end,
    .validation_step = small_net_validation_step,
    .configure_optimizers = configure_optimizers,
    .manual_optimization = true,
};

static const lc_module_ops closure_ops = {
    LC_MODULE_OPS_INIT("closure_net"),
    .training_step = closure_step,
    .validation_step = small_net_validation_step,
    .configure_optimizers = configure_optimizers,
    .manual_optimization = true,
};

static inline const lc_module_ops *ops_of(const job *j)
{
    if (j->late) return &late_ops;
    if (!j->manual) return &net_ops;
    return j->lbfgs ? &closure_ops : &manual_ops;
}

static inline lc_status run(job *j, lc_comm *comm, outcome *o)
{
    int n = comm ? lc_comm_size(comm) : 1;
    net m = {.j = j, .rank = comm ? lc_comm_rank(comm) : 0};
    lc_dataloader *train, *val;
    lc_trainer *t = NULL;
    lc_callback callbacks[3];
    lc_trainer_options opt = quiet_options(comm);
    opt.max_epochs = j->max_epochs;
    opt.accumulate_grad_batches = j->accumulate;
    if (j->clip > 0) opt.gradient_clip_val = j->clip;
    if (j->bucket_cap_mb > 0) opt.bucket_cap_mb = j->bucket_cap_mb;
    opt.default_root_dir = j->root;
    opt.ckpt_path = j->ckpt_path;
    opt.state_dict_type = j->state_dict_type;
    opt.strategy = !comm ? NULL : j->strategy ? j->strategy : "ddp";
    opt.shard_size = comm ? j->shard_size : 0;
    opt.deterministic = j->deterministic_chunk > 0;
    opt.deterministic_chunk = j->deterministic_chunk;
    opt.log_every_n_steps = j->log_every ? j->log_every : 1;
    opt.logger = "csv";
    opt.enable_checkpointing = LC_ON;
    LC_TRY(lc_model_checkpoint(&callbacks[0], .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON));
    if (j->early) LC_TRY(lc_early_stopping(&callbacks[1], .monitor = "val_loss", .patience = 1, .min_delta = 0.1));
    opt.callbacks = callbacks;
    opt.n_callbacks = j->early ? 2 : 1;
    if (j->callback) LC_TRY(j->callback(&callbacks[opt.n_callbacks++]));
    LC_TRY(loader_of(0, j->samples ? j->samples : SAMPLES, GLOBAL_BATCH / n, j->shuffle, &train));
    LC_TRY(loader_of(SAMPLES - VAL, j->val ? j->val : VAL, GLOBAL_BATCH / n, false, &val));
    /* Another seed on each rank: parameters come from rank 0 all the same. */
    LC_TRY(small_net_init(&m.base, ops_of(j), (uint64_t)(1 + m.rank)));
    if (j->has_empty)
        lc_module_add_parameter(&m.base.base, "empty", LC_F32, LC_ROW_MAJOR, 1, (int64_t[]){0}, (lc_init){0});
    LC_TRY(lc_trainer_new(&opt, &t));
    o->status = lc_trainer_fit(t, &m.base.base, .train_dataloader = train, .val_dataloader = val);
    lc_status s = small_net_read(o->status, t, &m.base, "train_loss_epoch", &o->end);
    if (s >= 0) s = lc_trainer_metric(t, "smallest", &o->smallest);
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

#include "ranks_job.h"

static inline job job_of(const char *name)
{
    job j = {.max_epochs = 3, .accumulate = 1, .stop_rank = -1, .fail_rank = -1, .save_after = -1, .shuffle = true};
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    pthread_mutex_init(&j.lock, NULL);
    return j;
}

static inline void compare(const outcome *a, const outcome *b)
{
    small_net_near(&a->end, &b->end);
}

/* Equal bit for bit. */
static inline void same(const outcome *a, const outcome *b)
{
    CHECK(small_net_same_bits(&a->end, &b->end));
}

/* ---- kinds of jobs ---- */

static inline void accumulating(job *j)
{
    j->accumulate = 4;
    j->clip = 0.5;
}

static inline void stopping_early(job *j)
{
    j->early = true;
    j->max_epochs = 20;
}

static inline void manually(job *j)
{
    j->manual = true;
    j->accumulate_manually = 1;
}

static inline void manually_accumulating(job *j)
{
    j->manual = true;
    j->accumulate_manually = 3;
}

/* The last batch of an epoch has one sample: most ranks have none, and even whole nodes. */
static inline void lonely(job *j)
{
    j->samples = 2 * GLOBAL_BATCH + 1;
    j->clip = 0.5;
}

static inline void thawing(job *j)
{
    lonely(j);
    j->thaws = true;
    j->max_epochs = 4;
    j->bucket_cap_mb = small_buckets;
}

/* One batch per epoch, of which ranks have 7, or 4 and 3, or 3, 2 and 2, or 2, 2, 2 and 1 samples. */
static inline void unevenly(job *j)
{
    j->samples = 7;
}

static inline void clipping(job *j)
{
    j->clip = 0.5;
}

#endif
