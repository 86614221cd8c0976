/* SPDX-License-Identifier: Apache-2.0 */
/* Judges optimizers without PyTorch: computes each update from the parameters and gradients before it, by the formulas
 * of PyTorch's documentation, in f64, one number at a time. It shares no code with the library. */
#ifndef LC_TESTS_RANDOM_TRAINING_FORMULAS_H
#define LC_TESTS_RANDOM_TRAINING_FORMULAS_H

#include "random_training_run.h"

typedef struct element {
    double p, s[3]; /* the parameter; momentum, squares and further state */
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

/* The factor by which clipping multiplies the gradients of step s. */
static inline double clip_factor(const training *t, const trace *r, int s)
{
    double sum = 0;
    if (!t->clip || strcmp(t->clip, "norm")) return 1;
    for (int64_t i = 0; i < r->n_state; i++)
        if (!isnan(r->gradients[s][i])) sum += r->gradients[s][i] * r->gradients[s][i];
    return fmin(1, t->clip_at / (sqrt(sum) + 1e-6));
}

/* ---- LBFGS, with steps of lr ----
 *
 * From the gradients at all points evaluated so far, the formula gives the next point, and when to stop. */

typedef double vector[MAX_STATE];

typedef struct quasi_newton {
    const trace *r;
    const evaluations *e;
    int next, step; /* number of the evaluation; training step */
    bool wrong;
    int iterations, n_pairs;
    double h, t;
    vector x, g, d, last, y[100], s[100];
} quasi_newton;

static inline double product(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static inline double maximum(const double *a, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(a[i]));
    return most;
}

/* Whether q has arrived at these numbers; parameters that are not trained have NaN as gradients. */
static inline bool is_there(const quasi_newton *q, const double *x, const double *gradient)
{
    for (int64_t i = 0; i < q->r->n_state; i++)
        if (!isnan(gradient[i]) && !(fabs(x[i] - q->x[i]) <= 1e-7 * fabs(q->t * q->d[i]) + 1e-11 * (1 + fabs(x[i]))))
            return false;
    return true;
}

/* The loss at the current point; its gradient goes to q->g. */
static inline double evaluated_at(quasi_newton *q)
{
    const evaluations *e = q->e;
    int k = q->next++;
    q->wrong |= k >= e->n || e->of[k].step != q->step || !is_there(q, e->of[k].x, e->of[k].gradient);
    if (q->wrong) return 0;
    for (int64_t i = 0; i < q->r->n_state; i++) q->g[i] = isnan(e->of[k].gradient[i]) ? 0 : e->of[k].gradient[i];
    return e->of[k].loss;
}

static inline void remember(quasi_newton *q, int history)
{
    int64_t n = q->r->n_state;
    vector y, s;
    for (int64_t i = 0; i < n; i++) y[i] = q->g[i] - q->last[i], s[i] = q->t * q->d[i];
    if (product(y, s, n) <= 1e-10) return;
    if (q->n_pairs == history) {
        memmove(q->y, q->y + 1, (size_t)--q->n_pairs * sizeof *q->y);
        memmove(q->s, q->s + 1, (size_t)q->n_pairs * sizeof *q->s);
    }
    memcpy(q->y[q->n_pairs], y, sizeof y);
    memcpy(q->s[q->n_pairs++], s, sizeof s);
    q->h = product(y, s, n) / product(y, y, n);
}

/* d = -H g, where H is built from the pairs (two loops). */
static inline void turn(quasi_newton *q)
{
    int64_t n = q->r->n_state;
    double alpha[100];
    for (int64_t i = 0; i < n; i++) q->d[i] = -q->g[i];
    for (int k = q->n_pairs - 1; k >= 0; k--) {
        alpha[k] = product(q->s[k], q->d, n) / product(q->y[k], q->s[k], n);
        for (int64_t i = 0; i < n; i++) q->d[i] -= alpha[k] * q->y[k][i];
    }
    for (int64_t i = 0; i < n; i++) q->d[i] *= q->h;
    for (int k = 0; k < q->n_pairs; k++) {
        double beta = product(q->y[k], q->d, n) / product(q->y[k], q->s[k], n);
        for (int64_t i = 0; i < n; i++) q->d[i] += (alpha[k] - beta) * q->s[k][i];
    }
}

static inline void newton_step(quasi_newton *q, double lr, int most, int history)
{
    int64_t n = q->r->n_state;
    double loss = evaluated_at(q);
    for (int k = 1, calls = 1; k <= most && !q->wrong && maximum(q->g, n) > 1e-7; k++) {
        if (q->iterations++) remember(q, history);
        turn(q);
        memcpy(q->last, q->g, sizeof q->g);
        double sum = 0, before = loss;
        for (int64_t i = 0; i < n; i++) sum += fabs(q->g[i]);
        q->t = q->iterations == 1 ? fmin(1, 1 / sum) * lr : lr;
        if (product(q->g, q->d, n) > -1e-9) return;
        for (int64_t i = 0; i < n; i++) q->x[i] += q->t * q->d[i];
        if (k == most) return;
        loss = evaluated_at(q);
        if (++calls >= most * 5 / 4 || q->t * maximum(q->d, n) <= 1e-9 || fabs(loss - before) < 1e-9) return;
    }
}

static inline bool lbfgs_agrees(const training *t, const trace *r, const evaluations *e, char *verdict, size_t size)
{
    static quasi_newton q;
    const lc_named_number *history = option_of(&t->options, "history_size");
    const lc_named_number *most = option_of(&t->options, "max_iter");
    memset(&q, 0, sizeof q);
    q.r = r, q.e = e, q.h = 1;
    for (q.step = 0; q.step < r->n_steps; q.step++) {
        memcpy(q.x, q.step ? r->states[q.step - 1] : r->start, sizeof q.x);
        newton_step(&q, r->hypers[q.step][0][H_lr], most ? (int)most->value : 20, history ? (int)history->value : 100);
        if (!q.wrong && is_there(&q, r->states[q.step], r->gradients[q.step])) continue;
        snprintf(verdict, size, "differs: LBFGS has left the path of its formula in step %d, evaluation %d of %d",
                 q.step, q.next, e->n);
        return false;
    }
    return true;
}

/* Whether every step of an f64 trace with gradients follows the formulas; a line search may end anywhere. */
static inline bool formulas_agree(const training *t, const trace *r, const evaluations *evaluated, char *verdict,
                                  size_t size)
{
    static element e[MAX_STATE];
    if (!strcmp(t->optimizer, "LBFGS"))
        return flag(t, "strong_wolfe") != 0 || lbfgs_agrees(t, r, evaluated, verdict, size);
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
                snprintf(verdict, size, "differs: %s computed %.12g for %s[%lld] in step %d, its formula gives %.12g",
                         t->optimizer, is, r->names[k], (long long)(i - (end - type_numel(&r->types[k]))), s, e[i].p);
                return false;
            }
    }
    return true;
}

#endif
