/* SPDX-License-Identifier: Apache-2.0 */
/* A network that trains in an instant, with its data: most tests of ranks and devices train it. */
#ifndef LC_TESTS_SMALL_NET_H
#define LC_TESTS_SMALL_NET_H

enum { SAMPLES = 100, VAL = 37, WIDTH = 8 };

#include "log_scores.h"
#include "small_data.h"

/* The first member of a test's own module. */
typedef struct small_net {
    lc_module base;
    lc_linear l1, l2;
    lc_metric *accuracy;
    double dropout;
} small_net;

static inline lc_status small_net_init(small_net *m, const lc_module_ops *ops, uint64_t seed)
{
    lc_module_init(&m->base, ops, seed);
    lc_linear_init(&m->l1, m, "l1", FEATURES, WIDTH);
    lc_linear_init(&m->l2, m, "l2", WIDTH, CLASSES);
    return lc_metric_new("Accuracy", &m->accuracy, .num_classes = CLASSES);
}

static inline void small_net_release(small_net *m)
{
    lc_module_release(&m->base);
    lc_metric_free(m->accuracy);
}

static inline lc_tensor *logits_of(small_net *m, lc_tensor *x)
{
    x = lc_relu(lc_linear_forward(&m->l1, x));
    if (m->dropout > 0 && m->base.training) x = lc_dropout(x, m->dropout);
    return lc_linear_forward(&m->l2, x);
}

static inline lc_status small_net_validation_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    small_net *m = (small_net *)self;
    (void)i, (void)loader;
    return log_scores(self, "val", logits_of(m, b->x), b->y, m->accuracy);
}

static inline lc_tensor *small_net_predict_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return logits_of((small_net *)self, b->x);
}

static inline lc_tensor *small_net_training_step(lc_module *self, const lc_batch *b, int64_t i)
{
    (void)i;
    return lc_cross_entropy(logits_of((small_net *)self, b->x), b->y);
}

static inline lc_status small_net_sgd(lc_module *self, lc_optimizers *out)
{
    return lc_optimizers_add(out, lc_sgd(self, .lr = 0.1, .momentum = 0.9));
}

/* For tests that only need a training. */
static const lc_module_ops small_net_ops = {
    LC_MODULE_OPS_INIT("net"),
    .training_step = small_net_training_step,
    .validation_step = small_net_validation_step,
    .predict_step = small_net_predict_step,
    .configure_optimizers = small_net_sgd,
};

/* The n predictions of the first loader, logits. */
static inline lc_status read_predictions(lc_trainer *t, int64_t n, float (*out)[CLASSES])
{
    int64_t at = 0;
    for (int64_t i = 0; i < lc_trainer_prediction_count(t, 0); i++) {
        lc_tensor *p = lc_trainer_prediction(t, 0, i);
        int64_t more = lc_tensor_dim(p, 0);
        if (at + more > n) return lc_fail(LC_ERR_INTERNAL, "more than %lld predictions", (long long)n);
        LC_TRY(lc_tensor_read(p, out[at], (size_t)lc_tensor_numel(p) * sizeof(float)));
        at += more;
    }
    return at == n ? LC_OK : lc_fail(LC_ERR_INTERNAL, "%lld predictions in place of %lld", (long long)at, (long long)n);
}

#endif
