/* SPDX-License-Identifier: Apache-2.0 */
/* A training of small_net on several devices of one process, or on ranks, and its results. */
#ifndef TEST_DEVICE_RUN_H
#define TEST_DEVICE_RUN_H

#include "comm_world.h"
#include "quiet_options.h"
#include "scratch.h"
#include "small_net_results.h"

enum { BATCH = 12 };

/* The options of a run, and its results. */
typedef struct job {
    const char *strategy, *devices; /* NULL: one device */
    lc_comm *comm;
    char root[320];
    int64_t max_epochs, accumulate;
    double clip, dropout;
    bool early, transfers, spikes, freezes, lbfgs;
    bool other_windows; /* windows of 4 batches from the second one on */
    int64_t fail_call;  /* the call of training_step that fails; 0: none */
    const char *memory_limit;
} job;

typedef struct outcome {
    small_net_results end;
    double last_step, output_error, hook_loss_error;
    int64_t calls, befores;
    bool of_ranks;
    lc_device_memory memory[9]; /* of the host, then of the devices */
    lc_device_memory all;
} outcome;

typedef struct net {
    small_net base;
    const job *j;
    outcome *o;
    lc_tensor *before; /* the loss that on_before_backward received */
    double before_value;
} net;

static inline lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)i;
    lc_tensor *loss = lc_cross_entropy(logits_of(&m->base, b->x), b->y);
    lc_log(self, "train_loss", loss, .on_epoch = LC_ON, .on_step = LC_ON);
    lc_log(self, "step_only", loss);
    lc_log_value(self, "samples", (double)b->size, .on_epoch = LC_ON, .on_step = LC_OFF, .reduce_fx = LC_LOG_SUM);
    lc_output(self, "doubled", lc_mul_scalar(b->x, 2));
    lc_output(self, "loss again", loss);
    if (++m->o->calls == m->j->fail_call) {
        lc_fail(LC_ERR_USER, "the sensor of this device is unplugged");
        return NULL;
    }
    return loss;
}

/* Frozen in the first epoch, trained from the second on. */
static inline lc_status on_train_epoch_start(lc_module *self)
{
    net *m = (net *)self;
    if (m->j->freezes) lc_module_requires_grad(&m->base.l1.base, lc_trainer_current_epoch(self->trainer) > 0);
    return LC_OK;
}

static inline lc_status on_before_backward(lc_module *self, lc_tensor *loss)
{
    net *m = (net *)self;
    m->before = loss;
    m->o->befores++;
    return lc_item(loss, &m->before_value);
}

static inline lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    float all[BATCH][FEATURES];
    double again, loss;
    if (m->j->other_windows && i == 0) LC_TRY(lc_trainer_set_accumulate_grad_batches(self->trainer, 4));
    if (m->j->lbfgs) return LC_OK; /* every evaluation passes through here */
    if (o->n != 2 || strcmp(o->names[0], "doubled") != 0) return lc_fail(LC_ERR_INTERNAL, "outputs are missing");
    if (lc_tensor_dim(o->values[0], 0) != b->size) return lc_fail(LC_ERR_INTERNAL, "an output has lost samples");
    LC_TRY(lc_tensor_read(o->values[0], all, (size_t)b->size * sizeof *all));
    for (int64_t k = 0; k < b->size; k++)
        for (int f = 0; f < FEATURES; f++)
            m->o->output_error +=
                fabs((double)all[k][f] - (m->j->transfers ? 1 : 2) * (double)inputs[b->indices[k]][f]);
    LC_TRY(lc_item(o->values[1], &again));
    LC_TRY(lc_item(o->loss, &loss));
    m->o->output_error += fabs(again - loss);
    if (m->before) m->o->hook_loss_error += fabs(m->before_value - loss);
    m->before = NULL;
    return LC_OK;
}

/* The batch becomes results of operators. */
static inline lc_status on_after_batch_transfer(lc_module *self, lc_batch *b, int loader)
{
    const net *m = (const net *)self;
    (void)loader;
    if (m->j->transfers) b->x = b->tensors[0] = lc_mul_scalar(b->x, 0.5);
    return LC_OK;
}

static inline lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    if (self->ops->predict_step && ((net *)self)->j->lbfgs)
        return lc_optimizers_add(out, lc_lbfgs(self, .max_iter = 3));
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1, .momentum = 0.9));
}

static const lc_module_ops net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = training_step,
    .on_train_batch_end = on_train_batch_end,
    .on_train_epoch_start = on_train_epoch_start,
    .on_after_batch_transfer = on_after_batch_transfer,
    .validation_step = small_net_validation_step,
    .predict_step = small_net_predict_step,
    .configure_optimizers = configure_optimizers,
};

static inline lc_status net_init(net *m, const job *j, outcome *o, const lc_module_ops *ops)
{
    *m = (net){.j = j, .o = o, .base.dropout = j->dropout};
    return small_net_init(&m->base, ops, 1);
}

static inline lc_trainer_options options_of(const job *j)
{
    lc_trainer_options opt = LC_TRAINER_OPTIONS_INIT;
    opt.strategy = j->comm ? "ddp" : j->strategy;
    opt.devices = j->devices;
    opt.comm = j->comm;
    opt.max_epochs = j->max_epochs;
    opt.accumulate_grad_batches = j->accumulate;
    if (j->clip > 0) opt.gradient_clip_val = j->clip;
    opt.default_root_dir = j->root;
    opt.memory_limit = j->memory_limit;
    opt.threads = 2;
    opt.log_every_n_steps = 1;
    opt.logger = "csv";
    opt.enable_progress_bar = opt.enable_model_summary = LC_OFF;
    opt.handle_signals = false;
    return opt;
}

static inline lc_status run(const job *j, outcome *o)
{
    int n = j->comm ? lc_comm_size(j->comm) : 1, n_callbacks = 1;
    net m;
    lc_module_ops ops = net_ops;
    lc_dataloader *train, *val;
    lc_trainer *t;
    lc_callback callbacks[3];
    lc_trainer_options opt = options_of(j);
    memset(o, 0, sizeof *o);
    o->of_ranks = n > 1;
    if (j->spikes) ops.on_before_backward = on_before_backward;
    LC_TRY(lc_model_checkpoint(&callbacks[0], .monitor = "val_loss", .save_top_k = 2, .save_last = LC_ON));
    if (j->early)
        LC_TRY(lc_early_stopping(&callbacks[n_callbacks++], .monitor = "val_loss", .patience = 1, .min_delta = 0.1));
    if (j->spikes) LC_TRY(lc_spike_detection(&callbacks[n_callbacks++], .skip = true, .atol = 1e9));
    opt.callbacks = callbacks;
    opt.n_callbacks = n_callbacks;
    LC_TRY(loader_of(0, SAMPLES, BATCH / n, true, &train));
    LC_TRY(loader_of(SAMPLES - VAL, VAL, BATCH / n, false, &val));
    LC_TRY(net_init(&m, j, o, &ops));
    lc_trainer *made;
    LC_TRY(lc_trainer_new(&opt, &made));
    t = made;
    lc_status s = lc_trainer_fit(t, &m.base.base, .train_dataloader = train, .val_dataloader = val);
    s = small_net_read(s, t, &m.base, "train_loss_epoch", &o->end);
    if (s >= 0) s = lc_trainer_metric(t, "step_only", &o->last_step);
    for (int i = -1; s >= 0 && j->devices && i < atoi(j->devices); i++)
        s = lc_trainer_device_memory(t, i, &o->memory[i + 1]);
    if (s >= 0) s = lc_trainer_memory(t, &o->all);
    lc_trainer_free(t);
    lc_dataloader_free(train), lc_dataloader_free(val);
    small_net_release(&m.base);
    return s;
}

static inline job job_of(const char *name)
{
    job j = {.max_epochs = 3, .accumulate = 1};
    snprintf(j.root, sizeof j.root, "%s", fresh_dir(name));
    return j;
}

static inline void compare(const outcome *a, const outcome *b)
{
    small_net_near(&a->end, &b->end);
    if (!b->of_ranks) CHECK_NEAR(a->last_step, b->last_step, 1e-5); /* last_step is rank 0's then */
    CHECK_EQ(a->end.samples, SAMPLES);
    CHECK_NEAR(b->output_error, 0, 1e-4);
    CHECK_NEAR(b->hook_loss_error, 0, 1e-6);
}

static const char *const strategies[] = {"data_parallel", "central_storage"};
static const char *const numbers[] = {"1", "2", "3", "4", "8"};

#endif
