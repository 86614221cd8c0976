/* SPDX-License-Identifier: Apache-2.0 */
/* What a training of small_net.h comes to, and whether two come to the same. */
#ifndef LC_TESTS_SMALL_NET_RESULTS_H
#define LC_TESTS_SMALL_NET_RESULTS_H

#include "small_net.h"
#include "test.h"

/* The module logs the loss of epochs under `train_loss`, and samples, as their sum. */
typedef struct small_net_results {
    float weight[WIDTH * FEATURES], head[CLASSES * WIDTH];
    double val_loss, val_acc, train_loss, samples;
    int64_t steps, epochs;
} small_net_results;

/* After a fit that returned `s`, which is returned; after an error only the counters are read. */
static inline lc_status small_net_read(lc_status s, lc_trainer *t, const small_net *m, const char *train_loss,
                                       small_net_results *out)
{
    out->steps = lc_trainer_global_step(t);
    out->epochs = lc_trainer_current_epoch(t);
    if (s < 0) return s;
    LC_TRY(lc_trainer_metric(t, "val_loss", &out->val_loss));
    LC_TRY(lc_trainer_metric(t, "val_acc", &out->val_acc));
    LC_TRY(lc_trainer_metric(t, train_loss, &out->train_loss));
    LC_TRY(lc_trainer_metric(t, "samples", &out->samples));
    LC_TRY(lc_tensor_read(m->l1.weight, out->weight, sizeof out->weight));
    LC_TRY(lc_tensor_read(m->l2.weight, out->head, sizeof out->head));
    return s;
}

static inline void small_net_near(const small_net_results *a, const small_net_results *b)
{
    CHECK_EQ(a->steps, b->steps);
    CHECK_EQ(a->epochs, b->epochs);
    for (size_t i = 0; i < sizeof a->weight / 4; i++) CHECK_NEAR(a->weight[i], b->weight[i], 3e-6);
    for (size_t i = 0; i < sizeof a->head / 4; i++) CHECK_NEAR(a->head[i], b->head[i], 3e-6);
    CHECK_NEAR(a->val_loss, b->val_loss, 1e-5);
    CHECK_NEAR(a->val_acc, b->val_acc, 1e-12);
    CHECK_NEAR(a->train_loss, b->train_loss, 1e-5);
    CHECK_EQ(a->samples, b->samples);
}

static inline bool small_net_same_bits(const small_net_results *a, const small_net_results *b)
{
    return a->steps == b->steps && !memcmp(a->weight, b->weight, sizeof a->weight) &&
           !memcmp(a->head, b->head, sizeof a->head) && a->val_loss == b->val_loss && a->val_acc == b->val_acc &&
           a->train_loss == b->train_loss;
}

#endif
