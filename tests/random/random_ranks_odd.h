/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of odd sizes for the network of random_ranks_net.h: as many numbers as a piece of a flat buffer, one more
 * or one less, one, or none; trained in every batch, in some batches, or on the ranks that have certain samples. */
#ifndef TEST_RANDOM_RANKS_ODD_H
#define TEST_RANDOM_RANKS_ODD_H

#include "random_ranks_config.h"
#include "small_data.h"

typedef struct odd {
    lc_module base;
    lc_tensor *parameter[MOST_ODD], *mix[MOST_ODD];
} odd;

static inline void odd_init(odd *o, void *parent, const config *c)
{
    lc_module_init_child(&o->base, parent, "odd", "Odd");
    for (int i = 0; i < c->n_odd; i++) {
        char name[16];
        int64_t n = c->odd[i].size, shape[] = {n < 0 ? 1 : n, CLASSES};
        snprintf(name, sizeof name, "p%d", i);
        o->parameter[i] = lc_module_add_parameter(&o->base, name, c->f64 ? LC_F64 : LC_F32, LC_ROW_MAJOR, n < 0 ? 0 : 1,
                                                  shape, (lc_init){.kind = LC_INIT_NORMAL, .b = 1});
        if (c->odd[i].tied) lc_module_share_parameter(&o->base, i ? "tied1" : "tied0", o->parameter[i]);
        snprintf(name, sizeof name, "mix%d", i);
        o->mix[i] =
            lc_module_add_buffer(&o->base, name, LC_F32, 2, shape, (lc_init){.kind = LC_INIT_NORMAL, .b = 0.5}, true);
    }
}

/* Whether a sample of the batch has a positive feature i; only these samples use a parameter that is used for some. */
static inline bool any_sample(const lc_batch *b, int i)
{
    float x[64][FEATURES];
    int64_t n = lc_tensor_dim(b->x, 0);
    if (n > 64 || lc_tensor_read(b->x, x, (size_t)n * sizeof *x) < 0) return true;
    for (int64_t k = 0; k < n; k++)
        if (x[k][i] > 0.8f) return true;
    return false;
}

static inline bool odd_is_used(const config *c, int i, const lc_batch *b, int64_t batch)
{
    if (!b || c->odd[i].use == ALWAYS) return true;
    return c->odd[i].use == SOME_BATCHES ? batch % 2 == 0 : any_sample(b, i);
}

/* Adds tanh(x_i p) mix to the logits; b: the batch, whose parameters used for some samples only may be left out. */
static inline lc_tensor *odd_forward(odd *o, const config *c, lc_tensor *x, lc_tensor *logits, const lc_batch *b,
                                     int64_t batch)
{
    for (int i = 0; i < c->n_odd; i++) {
        if (!odd_is_used(c, i, b, batch)) continue;
        lc_tensor *row = lc_reshape(lc_cast(o->parameter[i], LC_F32), 1, -1);
        if (c->odd[i].size == 0) row = lc_reshape(lc_cast(o->parameter[i], LC_F32), 1, 0);
        lc_tensor *h = lc_tanh(lc_mul(lc_slice(x, 1, i, 1), row));
        if (c->odd[i].tied) h = lc_add(h, lc_sin(lc_mul(lc_slice(x, 1, i + 1, 1), row)));
        h = lc_matmul(h, o->mix[i]);
        if (c->odd[i].use == SOME_SAMPLES)
            h = lc_mul(h, lc_cast(lc_gt(lc_slice(x, 1, i, 1), lc_full(0.8, LC_F32, 1)), LC_F32));
        logits = logits ? lc_add(logits, h) : h;
    }
    return logits;
}

#endif
