/* SPDX-License-Identifier: Apache-2.0 */
/* The network and the loaders of a configuration of random_ranks_config.h. */
#ifndef TEST_RANDOM_RANKS_NET_H
#define TEST_RANDOM_RANKS_NET_H

#include "log_scores.h"
#include "random_ranks_odd.h"

enum { WIDTH = 8 };

/* ---- the network ---- */

typedef struct net {
    lc_module base, backbone;
    lc_linear in, mid, frozen, unused, side, out;
    odd odd;
    lc_metric *accuracy[2];
    const config *c;
    int64_t batch, left; /* number of batches before it saves and fails; negative: never */
} net;

/* mid is used twice; side, if there are branches, in every other batch. */
static inline lc_tensor *forward_for(net *m, lc_tensor *x, bool side, const lc_batch *b, int64_t i)
{
    if (m->c->bare) return odd_forward(&m->odd, m->c, x, NULL, b, i);
    lc_tensor *h = lc_relu(lc_linear_forward(&m->in, x)); /* [B,WIDTH] */
    h = lc_relu(lc_add(lc_linear_forward(&m->mid, h), lc_linear_forward(&m->frozen, h)));
    h = lc_linear_forward(&m->mid, h);
    if (side) h = lc_add(h, lc_linear_forward(&m->side, x));
    return odd_forward(&m->odd, m->c, x, lc_linear_forward(&m->out, lc_tanh(h)), b, i);
}

/* With all parameters. */
static inline lc_tensor *forward(net *m, lc_tensor *x, bool side)
{
    return forward_for(m, x, side, NULL, 0);
}

static inline lc_tensor *loss_of(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    const lc_batch *first = b->n_parts ? b->parts[0] : b;
    lc_tensor *loss = lc_cross_entropy(forward_for(m, first->x, !m->c->branch || i % 2, first, i), first->y);
    if (b->n_parts > 1)
        loss = lc_add(loss, lc_mul_scalar(lc_cross_entropy(forward(m, b->parts[1]->x, true), b->parts[1]->y), 0.5));
    return loss;
}

static inline lc_tensor *training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    lc_tensor *loss = loss_of(self, b, i);
    lc_log(self, "train_loss", loss, .on_step = LC_OFF, .on_epoch = LC_ON);
    lc_log(self, "step_loss", loss, .on_step = LC_ON, .on_epoch = LC_ON, .sync_dist = true);
    lc_log_value(self, "samples", (double)b->size, .on_step = LC_OFF, .on_epoch = LC_ON, .reduce_fx = LC_LOG_SUM);
    return loss;
}

static inline lc_tensor *second_step(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    const lc_batch *first = b->n_parts ? b->parts[0] : b;
    (void)i;
    return lc_mean(lc_square(forward(m, first->x, true)));
}

static inline lc_status update(lc_module *self, int which, lc_tensor *loss)
{
    bool toggles = ((net *)self)->c->mode == TOGGLED;
    lc_optimizer *opt = lc_manual_optimizer(self, which);
    LC_TRY(lc_manual_zero_grad(self, opt));
    LC_TRY(lc_manual_backward(self, loss));
    lc_clip_grad_norm(opt, 0.5);
    LC_TRY(lc_manual_step(self, opt));
    return toggles ? lc_untoggle_optimizer(self) : LC_OK;
}

static inline lc_tensor *manual_step(lc_module *self, const lc_batch *b, int64_t i)
{
    bool toggles = ((net *)self)->c->mode == TOGGLED;
    if (toggles && lc_toggle_optimizer(self, lc_manual_optimizer(self, 0)) < 0) return NULL;
    if (update(self, 0, training_step(self, b, i)) < 0) return NULL;
    if (toggles && lc_toggle_optimizer(self, lc_manual_optimizer(self, 1)) < 0) return NULL;
    if (update(self, 1, second_step(self, b, i)) < 0) return NULL;
    return NULL;
}

/* Frozen in some batches, and so inside windows. */
static inline lc_status on_train_batch_start(lc_module *self, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    (void)b;
    if (!m->c->thaws) return LC_OK;
    bool trained = i % 3 != 1;
    if (!m->c->bare) lc_tensor_set_requires_grad(m->mid.weight, trained);
    if (m->c->n_odd) lc_tensor_set_requires_grad(m->odd.parameter[0], trained || m->c->n_odd == 1);
    return LC_OK;
}

static inline lc_status on_train_batch_end(lc_module *self, const lc_outputs *o, const lc_batch *b, int64_t i)
{
    net *m = (net *)self;
    char path[400];
    (void)o, (void)b, (void)i;
    if (m->left < 0 || m->left-- > 0) return LC_OK;
    snprintf(path, sizeof path, "%s/inside.ckpt", m->c->root);
    LC_TRY(lc_trainer_save_checkpoint(self->trainer, path, false));
    return lc_fail(LC_ERR_USER, "as if the machine had died");
}

static inline lc_status validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    net *m = (net *)self;
    (void)i;
    return log_scores(self, "val", forward(m, b->x, true), b->y, m->accuracy[loader]);
}

static inline lc_tensor *predict_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return forward((net *)self, b->x, true);
}

static inline lc_status make_optimizer(net *m, lc_tensor *const *list, int n, lc_optimizer **out)
{
    *out = optimizers[m->c->optimizer].make(&m->base, m->c->master, m->c->stochastic);
    if (!*out) return LC_ERR_INTERNAL;
    int group = lc_optimizer_add_group(*out, "first", list, n);
    if (group < 0) return (lc_status)group;
    return m->c->decays ? lc_optimizer_set(*out, group, "weight_decay", 0.1) : LC_OK;
}

static inline lc_status add_schedule(const net *m, lc_optimizer *opt, lc_optimizers *out)
{
    if (!strcmp(m->c->schedule, "step"))
        return lc_optimizers_add_scheduler(
            out, (lc_scheduler_config){.scheduler = lc_step_lr(opt, .step_size = 2, .gamma = 0.5),
                                       .interval = LC_INTERVAL_STEP});
    if (!strcmp(m->c->schedule, "plateau"))
        return lc_optimizers_add_scheduler(
            out, (lc_scheduler_config){.scheduler = lc_reduce_lr_on_plateau(opt, .patience = 0, .threshold = 0.1),
                                       .monitor = "val_loss",
                                       .not_strict = true});
    if (!strcmp(m->c->schedule, "one cycle"))
        return lc_optimizers_add_scheduler(
            out, (lc_scheduler_config){.scheduler = lc_one_cycle_lr(opt, .max_lr = 0.05, .total_steps = 1000),
                                       .interval = LC_INTERVAL_STEP});
    return LC_OK;
}

/* With two optimizers both have the tail. */
static inline lc_status configure_optimizers(lc_module *self, lc_optimizers *out)
{
    net *m = (net *)self;
    lc_tensor *all[11 + MOST_ODD] = {m->in.weight,   m->in.bias,   m->mid.weight,    m->mid.bias,
                                     m->side.weight, m->side.bias, m->unused.weight, m->unused.bias,
                                     m->out.weight,  m->out.bias,  m->frozen.weight};
    lc_tensor **tail = all + 2;
    lc_optimizer *first, *second;
    int N = 11;
    if (m->c->bare) N = 0;
    for (int i = 0; i < m->c->n_odd; i++) all[N++] = m->odd.parameter[i];
    mode how = m->c->mode;
    LC_TRY(make_optimizer(m, all, how == ONE ? N : 2, &first));
    if (how == GROUPS) {
        int g = lc_optimizer_add_group(first, "tail", tail, N - 2);
        if (g < 0) return LC_ERR_INTERNAL;
        LC_TRY(lc_optimizer_set(first, g, "lr", 0.006));
    }
    if (how == TWO_STEPS)
        LC_TRY(lc_optimizers_add_step(out, first, training_step));
    else
        LC_TRY(lc_optimizers_add(out, first));
    LC_TRY(add_schedule(m, first, out));
    if (how < TWO_STEPS) return LC_OK;
    LC_TRY(make_optimizer(m, tail, N - 2, &second));
    return how == TWO_STEPS ? lc_optimizers_add_step(out, second, second_step) : lc_optimizers_add(out, second);
}

/* ---- data ---- */

/* Samples with replacement. */
typedef struct weighted {
    int64_t n;
} weighted;

static inline int64_t weighted_length(void *self, int64_t epoch)
{
    return ((weighted *)self)->n + epoch;
}
static inline lc_status weighted_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    for (int64_t i = 0; i < n; i++)
        indices[i] = (int64_t)lc_random_below(77 + (uint64_t)epoch, (uint64_t)i, (uint64_t)((weighted *)self)->n);
    return LC_OK;
}
static const lc_sampler_ops weighted_ops = {LC_SAMPLER_OPS_INIT, .name = "weighted", .length = weighted_length,
                                            .order = weighted_order, .free = free};

static inline lc_status one_loader(const net *m, int64_t first, int64_t n, bool train, lc_dataloader **out)
{
    const config *c = m->c;
    lc_array arrays[] = {
        {.field = {.name = "x", .dtype = LC_F32, .ndim = 1, .shape = {FEATURES}}, .data = inputs[first]},
        {.field = {.name = "y", .dtype = LC_I64}, .data = labels + first}};
    lc_dataset *d;
    lc_sampler s = {&weighted_ops, NULL};
    lc_dataloader_args o = LC_ARGS(lc_dataloader, .batch_size = m->batch, .seed = 4);
    LC_TRY(lc_array_dataset_new(n, 2, arrays, &d));
    o.dataset = d;
    o.drop_last = train && c->drop_last;
    if (train && c->weighted) {
        s.self = malloc(sizeof(weighted));
        ((weighted *)s.self)->n = n;
        o.sampler = &s;
    } else {
        o.shuffle = train && c->shuffle;
    }
    lc_status status = lc_dataloader_new_with(out, &o);
    lc_dataset_unref(d);
    return status;
}

/* A loader of the program's own that does not know its number of batches. */
static inline lc_status stream_begin(void *self, int64_t epoch, int64_t start)
{
    return lc_dataloader_begin(self, epoch, start);
}
static inline lc_status stream_next(void *self, lc_batch **out)
{
    return lc_dataloader_next(self, out);
}
static inline void stream_end(void *self)
{
    lc_dataloader_end(self);
}
static inline lc_status stream_share(void *self, const lc_share *share)
{
    return lc_dataloader_share(self, share);
}
static inline void stream_free(void *self)
{
    lc_dataloader_free(self);
}
static const lc_dataloader_ops stream_ops = {LC_DATALOADER_OPS_INIT, .name = "stream",  .begin = stream_begin,
                                             .next = stream_next,    .end = stream_end, .share = stream_share,
                                             .free = stream_free};

static inline lc_status train_loader(const net *m, lc_dataloader **out)
{
    lc_dataloader *list[2];
    if (!m->c->combined) {
        LC_TRY(one_loader(m, 0, m->c->samples, true, out));
        return m->c->streamed ? lc_dataloader_from_ops(&stream_ops, *out, out) : LC_OK;
    }
    LC_TRY(one_loader(m, 0, 36, true, &list[0]));
    LC_TRY(one_loader(m, 36, 20, true, &list[1]));
    return lc_combined_loader_new(LC_MAX_SIZE_CYCLE, 2, list, out);
}

static inline lc_status val_loader(const net *m, int i, lc_dataloader **out)
{
    return one_loader(m, SAMPLES - VAL, i ? 12 : m->c->val, false, out);
}

static inline lc_status train_dataloader(lc_module *self, lc_loaders *out)
{
    lc_dataloader *l;
    LC_TRY(train_loader((net *)self, &l));
    return lc_loaders_add(out, l);
}

static inline lc_status val_dataloader(lc_module *self, lc_loaders *out)
{
    const net *m = (net *)self;
    for (int i = 0; i <= m->c->two_vals; i++) {
        lc_dataloader *l;
        LC_TRY(val_loader(m, i, &l));
        LC_TRY(lc_loaders_add(out, l));
    }
    return LC_OK;
}

#define NET_OPS(step, ...)                                                                                             \
    {                                                                                                                  \
        LC_MODULE_OPS_INIT("net"), .training_step = step, .on_train_batch_start = on_train_batch_start,                \
                                   .on_train_batch_end = on_train_batch_end, .validation_step = validation_step,       \
                                   .predict_step = predict_step, .configure_optimizers = configure_optimizers,         \
                                   .train_dataloader = train_dataloader, .val_dataloader = val_dataloader, __VA_ARGS__ \
    }
static const lc_module_ops automatic_ops = NET_OPS(training_step, .manual_optimization = false);
static const lc_module_ops manual_ops = NET_OPS(manual_step, .manual_optimization = true);

static inline lc_status net_init(net *m, uint64_t seed)
{
    lc_module_init(&m->base, m->c->mode >= MANUAL ? &manual_ops : &automatic_ops, seed);
    if (m->c->bare) {
        odd_init(&m->odd, m, m->c);
        for (int i = 0; i < 2; i++) LC_TRY(lc_metric_new("Accuracy", &m->accuracy[i], .num_classes = CLASSES));
        return lc_module_status(&m->base);
    }
    lc_module_init_child(&m->backbone, m, "backbone", "Backbone");
    lc_linear_init(&m->in, &m->backbone, "in", FEATURES, WIDTH);
    lc_linear_init(&m->mid, m, "mid", WIDTH, WIDTH);
    lc_linear_init(&m->frozen, m, "frozen", WIDTH, WIDTH);
    lc_linear_init(&m->unused, m, "unused", 3, 2);
    lc_linear_init(&m->side, m, "side", FEATURES, WIDTH);
    lc_linear_init(&m->out, m, "out", WIDTH, CLASSES);
    odd_init(&m->odd, m, m->c);
    lc_module_requires_grad(&m->frozen.base, false);
    for (int i = 0; i < 2; i++) LC_TRY(lc_metric_new("Accuracy", &m->accuracy[i], .num_classes = CLASSES));
    return lc_module_status(&m->base);
}

#endif
