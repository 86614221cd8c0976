/* SPDX-License-Identifier: Apache-2.0 */
/* Whether two runs of one training of random_training.h agree. */
#ifndef LC_TESTS_RANDOM_TRAINING_COMPARE_H
#define LC_TESTS_RANDOM_TRAINING_COMPARE_H

#include "random_training_net.h"

/* Whether two traces agree within the rounding errors of a few steps. If these grew more, the judge decides whether
 * they may. */
static inline bool close_to(const trace *a, const trace *b, bool single)
{
    double unit = single ? 2e-7 : 1e-13;
    if (a->n_steps != b->n_steps || a->n_losses != b->n_losses || a->n_state != b->n_state) return false;
    for (int s = 0; s < a->n_steps; s++) {
        int64_t at = 0;
        for (int k = 0; k < a->n_tensors; k++) {
            int64_t n = type_numel(&a->types[k]);
            double scale = 0;
            for (int64_t i = at; i < at + n; i++) scale = fmax(scale, fabs(b->states[s][i]));
            for (int64_t i = at; i < at + n; i++)
                if (a->states[s][i] != b->states[s][i] &&
                    !(fabs(a->states[s][i] - b->states[s][i]) <= unit * (3 + s) * (scale + 0.05)))
                    return false;
            at += n;
        }
    }
    return true;
}

static inline bool same_bits(const trace *a, const trace *b)
{
    if (a->n_steps != b->n_steps) return false;
    for (int s = 0; s < a->n_steps; s++)
        if (memcmp(a->states[s], b->states[s], (size_t)a->n_state * sizeof(double))) return false;
    return true;
}

static inline bool same_masks(const trace *a, const trace *b)
{
    for (int i = 0, j = 0; i < a->n_draws && j < b->n_draws;) {
        const char *of_a = a->masks + a->draws[i].at, *of_b = b->masks + b->draws[j].at;
        if (a->draws[i].batch != b->draws[j].batch) { /* rounding may change how often LBFGS evaluates a loss */
            a->draws[i].batch < b->draws[j].batch ? i++ : j++;
            continue;
        }
        if (memcmp(a->draws[i].numel, b->draws[j].numel, sizeof a->draws[i].numel)) return false;
        int64_t n = 0;
        for (int k = 0; k < MAX_DROPOUTS; k++) n += a->draws[i].numel[k];
        if (memcmp(of_a, of_b, (size_t)n)) return false;
        i++, j++;
    }
    return true;
}

/* Whether a batch is the sum of its samples, so that it may be split: no statistics over a batch, a mean over samples.
 */
static inline bool can_be_cut(const training *t)
{
    return !has_layer(t, L_batch_norm) && !t->sum && !t->ignore && !(t->weighted && has_classes(t)) &&
           strcmp(t->optimizer, "LBFGS");
}

#endif
