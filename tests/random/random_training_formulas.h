/* SPDX-License-Identifier: Apache-2.0 */
/* Judges optimizers without PyTorch: what a step makes of the parameters before it and the gradients that it was given,
 * by the formulas of PyTorch's documentation, in f64, one number at a time. Code of its own: none of the library's. */
#ifndef LC_TESTS_RANDOM_TRAINING_FORMULAS_H
#define LC_TESTS_RANDOM_TRAINING_FORMULAS_H

#include "random_training_run.h"

typedef struct element {
    double p, s[3]; /* the parameter; momentum, squares and what else there is */
} element;

static inline double flag(const training *t, const char *name)
{
    const lc_named_number *v = option_of(&t->options, name);
    return v ? v->value : 0;
}

/* Step n (from 1) of an optimizer with numbers h, for a gradient g. */
static inline void formula(const training *t, const double *h, double n, double g, element *e)
{
    const char *name = t->optimizer;
    double *s = e->s, lr = h[H_lr], decay = h[H_weight_decay], b1 = h[H_beta1], b2 = h[H_beta2], eps = h[H_eps];
    double d = flag(t, "maximize") != 0 ? -g : g;
    if (!strcmp(name, "AdamW") || flag(t, "decoupled_weight_decay") != 0)
        e->p -= lr * decay * e->p;
    else
        d += decay * e->p;
    if (!strcmp(name, "SGD")) {
        double momentum = h[H_momentum];
        if (momentum != 0) {
            s[0] = n == 1 ? d : momentum * s[0] + (1 - h[H_dampening]) * d;
            d = flag(t, "nesterov") != 0 ? d + momentum * s[0] : s[0];
        }
        e->p -= lr * d;
    } else if (!strcmp(name, "Adam") || !strcmp(name, "AdamW")) {
        s[0] = b1 * s[0] + (1 - b1) * d;
        s[1] = b2 * s[1] + (1 - b2) * d * d;
        s[2] = flag(t, "amsgrad") != 0 ? fmax(s[2], s[1]) : s[1];
        double mean = s[0] / (1 - pow(b1, n)), square = s[2] / (1 - pow(b2, n));
        e->p -= lr * mean / (sqrt(square) + eps);
    } else if (!strcmp(name, "RMSprop")) {
        double alpha = h[H_alpha];
        s[0] = alpha * s[0] + (1 - alpha) * d * d;
        s[1] = alpha * s[1] + (1 - alpha) * d;
        d /= sqrt(flag(t, "centered") != 0 ? s[0] - s[1] * s[1] : s[0]) + eps;
        s[2] = h[H_momentum] * s[2] + d;
        e->p -= lr * s[2];
    } else if (!strcmp(name, "Adagrad")) {
        s[0] = (n == 1 ? h[H_initial_accumulator_value] : s[0]) + d * d;
        e->p -= lr / (1 + (n - 1) * h[H_lr_decay]) * d / (sqrt(s[0]) + eps);
    } else if (!strcmp(name, "Adadelta")) {
        double rho = h[H_rho];
        s[0] = rho * s[0] + (1 - rho) * d * d;
        double change = sqrt(s[1] + eps) / sqrt(s[0] + eps) * d;
        s[1] = rho * s[1] + (1 - rho) * change * change;
        e->p -= lr * change;
    } else if (!strcmp(name, "Adamax")) {
        s[0] = b1 * s[0] + (1 - b1) * d;
        s[1] = fmax(b2 * s[1], fabs(d) + eps);
        e->p -= lr / (1 - pow(b1, n)) * s[0] / s[1];
    } else if (!strcmp(name, "NAdam")) {
        double mu = b1 * (1 - 0.5 * pow(0.96, n * h[H_momentum_decay]));
        double next = b1 * (1 - 0.5 * pow(0.96, (n + 1) * h[H_momentum_decay]));
        s[2] = (n == 1 ? 1 : s[2]) * mu; /* the product of all mu */
        s[0] = b1 * s[0] + (1 - b1) * d;
        s[1] = b2 * s[1] + (1 - b2) * d * d;
        double mean = next * s[0] / (1 - s[2] * next) + (1 - mu) * d / (1 - s[2]);
        e->p -= lr * mean / (sqrt(s[1] / (1 - pow(b2, n))) + eps);
    } else if (!strcmp(name, "RAdam")) {
        double limit = 2 / (1 - b2) - 1, rho = limit - 2 * n * pow(b2, n) / (1 - pow(b2, n));
        s[0] = b1 * s[0] + (1 - b1) * d;
        s[1] = b2 * s[1] + (1 - b2) * d * d;
        double mean = s[0] / (1 - pow(b1, n));
        double r = sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho));
        e->p -= rho > 5 ? lr * mean * r * sqrt(1 - pow(b2, n)) / (sqrt(s[1]) + eps) : lr * mean;
    } else { /* Rprop */
        double turn = d * s[0], size = n == 1 ? lr : s[1];
        s[1] = size * (turn > 0 ? h[H_eta_plus] : turn < 0 ? h[H_eta_minus] : 1);
        s[1] = fmin(fmax(s[1], h[H_step_size_min]), h[H_step_size_max]);
        s[0] = turn < 0 ? 0 : d;
        e->p -= s[0] > 0 ? s[1] : s[0] < 0 ? -s[1] : 0;
    }
}

/* What clipping multiplies the gradients of step s by. */
static inline double clip_factor(const training *t, const trace *r, int s)
{
    double sum = 0;
    if (!t->clip || strcmp(t->clip, "norm")) return 1;
    for (int64_t i = 0; i < r->n_state; i++)
        if (!isnan(r->gradients[s][i])) sum += r->gradients[s][i] * r->gradients[s][i];
    return fmin(1, t->clip_at / (sqrt(sum) + 1e-6));
}

/* Whether every step of a trace in f64, with gradients, is what the formulas say. */
static inline bool formulas_agree(const training *t, const trace *r, char *verdict, size_t size)
{
    static element e[MAX_STATE];
    if (!strcmp(t->optimizer, "LBFGS")) return true;
    memset(e, 0, sizeof e);
    for (int s = 0; s < r->n_steps; s++) {
        double factor = clip_factor(t, r, s);
        const double *before = s ? r->states[s - 1] : r->start;
        int64_t at = 0;
        for (int k = 0; k < r->n_tensors; k++)
            for (int64_t i = at, end = at += type_numel(&r->types[k]); i < end; i++) {
                double g = r->gradients[s][i] * factor, is = r->states[s][i];
                if (isnan(g) || r->group_of[k] < 0) continue; /* not trained */
                if (t->clip && !strcmp(t->clip, "value")) g = fmin(fmax(g, -t->clip_at), t->clip_at);
                e[i].p = before[i];
                formula(t, r->hypers[s][r->group_of[k]], s + 1, g, &e[i]);
                double bound = 1e-8 * fabs(e[i].p - before[i]) + 1e-14 * (fabs(before[i]) + 0.01);
                if (fabs(is - e[i].p) <= bound || (isnan(is) && isnan(e[i].p))) continue;
                snprintf(verdict, size, "differs: %s made %.12g of %s[%lld] in step %d, by its formula it is %.12g",
                         t->optimizer, is, r->names[k], (long long)(i - (end - type_numel(&r->types[k]))), s, e[i].p);
                return false;
            }
    }
    return true;
}

#endif
