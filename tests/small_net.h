/* SPDX-License-Identifier: Apache-2.0 */
/* A network that is trained in an instant, with its data: what tests of ranks and devices train. */
#ifndef LC_TESTS_SMALL_NET_H
#define LC_TESTS_SMALL_NET_H

enum { SAMPLES = 100, VAL = 37, WIDTH = 8 };

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
    return lc_metric_new("Accuracy", &(lc_metric_options){.num_classes = CLASSES}, &m->accuracy);
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
    lc_tensor *logits = logits_of(m, b->x);
    (void)i, (void)loader;
    lc_log(self, "val_loss", lc_cross_entropy(logits, b->y));
    LC_TRY(lc_metric_update_tensor(m->accuracy, logits, b->y));
    lc_log_metric(self, "val_acc", m->accuracy);
    return LC_OK;
}

static inline lc_tensor *small_net_predict_step(lc_module *self, const lc_batch *b, int64_t i, int loader)
{
    (void)i, (void)loader;
    return logits_of((small_net *)self, b->x);
}

#endif
