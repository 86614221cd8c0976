/* SPDX-License-Identifier: Apache-2.0 */
/* A small network for the tests of callbacks: a backbone (Linear, ReLU, BatchNorm1d, dropout) and a head (Linear),
 * trained on 22 samples of 5 features in batches of 4; and a run of it that can be killed after any batch. */
#ifndef LC_TESTS_CALLBACK_NET_H
#define LC_TESTS_CALLBACK_NET_H

#include "test.h"
#include "trainer_world.h"

enum { NET_SAMPLES = 22, NET_FEATURES = 5, NET_BATCH = 4, NET_BATCHES = 6 };

typedef struct net {
    lc_module base, backbone;
    lc_linear l1, head;
    lc_batch_norm1d norm;
    lc_dataset *data;
    int64_t die_after; /* training batches; -1: never */
    int64_t batches;
    double dropout, lr;
    const char *optimizer; /* "Adam" */
    bool schedule;         /* ExponentialLR, every epoch */
    bool in_order;         /* the samples are not shuffled */
    bool trainable_only;   /* the optimizer gets only parameters that require a gradient */
} net;

static inline lc_tensor *net_forward(net *m, lc_tensor *x)
{
    x = lc_batch_norm1d_forward(&m->norm, lc_relu(lc_linear_forward(&m->l1, x)));
    if (m->base.training && m->dropout > 0) x = lc_dropout(x, m->dropout);
    return lc_flatten(lc_linear_forward(&m->head, x), 0);
}
static inline lc_tensor *net_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = lc_mse_loss(net_forward((net *)self, b->x), b->y);
    (void)i;
    lc_log(self, "train_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON);
    return loss;
}
static inline lc_status net_validation_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)i, (void)d;
    lc_log(self, "val_loss", lc_mse_loss(net_forward((net *)self, b->x), b->y));
    return LC_OK;
}
static inline lc_tensor *net_predict_step(lc_module *self, const lc_batch *b, int64_t i, int d)
{
    (void)i, (void)d;
    return net_forward((net *)self, b->x);
}
static inline bool net_trains(void *ctx, const char *path, lc_module *owner, lc_tensor *p)
{
    (void)ctx, (void)path, (void)owner;
    return lc_tensor_requires_grad(p);
}
static inline lc_status net_configure_optimizers(lc_module *self, lc_optimizers *out)
{
    net *m = (net *)self;
    lc_tensor **list;
    int n;
    LC_TRY(lc_module_parameters(self, m->trainable_only ? net_trains : NULL, NULL, &list, &n));
    double lr = m->lr > 0 ? m->lr : 0.01;
    bool sgd = m->optimizer && !strcmp(m->optimizer, "SGD");
    lc_optimizer *opt = sgd ? lc_sgd(self, .lr = lr, .momentum = 0.9, .parameters = list, .n_parameters = n)
                            : lc_adam(self, .lr = lr, .parameters = list, .n_parameters = n);
    free(list);
    LC_TRY(lc_optimizers_add(out, opt));
    if (!m->schedule) return LC_OK;
    return lc_optimizers_add_scheduler(out, (lc_scheduler_config){.scheduler = lc_exponential_lr(opt, .gamma = 0.9)});
}
static inline lc_status net_loader(lc_module *self, lc_loaders *out, bool shuffle)
{
    lc_dataloader *l;
    LC_TRY(
        lc_dataloader_new(&l, .dataset = ((net *)self)->data, .batch_size = NET_BATCH, .shuffle = shuffle, .seed = 7));
    return lc_loaders_add(out, l);
}
static inline lc_status net_train_dataloader(lc_module *self, lc_loaders *out)
{
    return net_loader(self, out, !((net *)self)->in_order);
}
static inline lc_status net_val_dataloader(lc_module *self, lc_loaders *out)
{
    return net_loader(self, out, false);
}
static inline lc_status net_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)o, (void)b, (void)i;
    return ++m->batches == m->die_after ? world_die(self) : LC_OK;
}
static const lc_module_ops net_ops = {LC_MODULE_OPS_INIT("net"),
                                      .training_step = net_training_step,
                                      .validation_step = net_validation_step,
                                      .predict_step = net_predict_step,
                                      .configure_optimizers = net_configure_optimizers,
                                      .train_dataloader = net_train_dataloader,
                                      .val_dataloader = net_val_dataloader,
                                      .predict_dataloader = net_val_dataloader,
                                      .on_train_batch_end = net_batch_end};

static float net_x[NET_SAMPLES * NET_FEATURES], net_y[NET_SAMPLES];

static inline void net_init(net *m)
{
    float *x = net_x, *y = net_y;
    lc_array arrays[] = {{.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {NET_FEATURES}}, .data = x},
                         {.field = {.name = "y", .dtype = LC_F32}, .data = y}};
    for (int i = 0; i < NET_SAMPLES * NET_FEATURES; i++) x[i] = (float)lc_random_normal(11, (uint64_t)i);
    for (int i = 0; i < NET_SAMPLES; i++) y[i] = x[i * NET_FEATURES] - 2 * x[i * NET_FEATURES + 1];
    *m = (net){.die_after = -1, .dropout = 0.3};
    CHECK_OK(lc_array_dataset_new(NET_SAMPLES, 2, arrays, &m->data));
    lc_module_init(&m->base, &net_ops, 3);
    lc_module_init_child(&m->backbone, m, "backbone", "Backbone");
    lc_linear_init(&m->l1, &m->backbone, "l1", NET_FEATURES, 8);
    lc_batch_norm1d_init(&m->norm, &m->backbone, "norm", 8);
    lc_linear_init(&m->head, m, "head", 8, 1);
}

static inline void net_release(net *m)
{
    lc_module_release(&m->base);
    lc_dataset_unref(m->data);
}

static inline lc_status net_collect(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    float **at = ctx;
    size_t n = (size_t)lc_tensor_numel(t->tensor);
    (void)path, (void)owner;
    if (lc_tensor_dtype(t->tensor) != LC_F32) return LC_OK;
    LC_TRY(lc_tensor_read(t->tensor, *at, n * sizeof(float)));
    *at += n;
    return LC_OK;
}

enum { NET_WEIGHTS = 8 * 5 + 8 + 4 * 8 + 8 + 1 };

/* All parameters and float buffers: l1.weight [8,5], l1.bias, norm.weight, bias, running_mean, running_var, head. */
static inline void net_weights(net *m, float out[NET_WEIGHTS])
{
    float *at = out;
    CHECK_OK(lc_module_visit(&m->base, net_collect, &at));
    CHECK_EQ(at - out, NET_WEIGHTS);
}

#endif
