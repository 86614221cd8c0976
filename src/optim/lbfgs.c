/* SPDX-License-Identifier: Apache-2.0 */
/* torch.optim.LBFGS: quasi-Newton steps along directions from the last changes of parameters and gradients (two-loop
 * recursion: J. Nocedal, "Updating quasi-Newton matrices with limited storage", 1980), with steps of lr or, as
 * "strong_wolfe", a line search with cubic interpolation (line_search.h).
 *
 * It evaluates the loss several times a step, so it has no update operator: it runs on the host, on vectors of doubles
 * over all of the optimizer's parameters, between evaluations that the graph runs. It makes PyTorch's tests in
 * PyTorch's order, so that both take the same path. */
#include "base/float_traps.h"
#include "base/number.h"
#include "record/graph_impl.h"
#include "optim/line_search.h"
#include "optim/master.h"
#include "optim/optim_internal.h"
#include "optim/state_buffers.h"
#include "optim/vector.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { H_MAX_ITER = 2, H_MAX_EVAL, H_TOLERANCE_GRAD, H_TOLERANCE_CHANGE, H_HISTORY, H_STRONG_WOLFE };

/* State for checkpoints in addition to the vectors, as one tensor of doubles. */
typedef struct numbers {
    double n_iter, func_evals, t, h_diag, prev_loss, n_pairs;
} numbers;

typedef struct vector {
    lc_tensor *tensor;
    double *at; /* on the host, while a step runs */
} vector;

typedef struct pair {
    vector y, s; /* change of the gradient, and of the parameters */
} pair;

typedef struct lbfgs {
    int64_t n;        /* number of all parameters' elements */
    numbers x;        /* while a step runs; `saved` between steps */
    lc_tensor *saved; /* numbers */
    vector d, prev_gradient;
    pair *pairs; /* [history], the oldest first; n_pairs are in use, but the memory of all that ever were is kept */
    int history;
    /* State of the running step. */
    lc_optimizer *opt;
    lc_evaluate_fn *evaluate;
    void *ctx;
    double *gradient, *start, *scratch; /* gradient; parameters before the line search; */
    double *alpha;                      /* [history] */
    double *bracket_gradients[2], *last_gradient;
    bool overflow; /* the last evaluation's gradient is not finite, which a scaled loss may cause */
} lbfgs;

static double hyper(const lc_optimizer *opt, int i)
{
    return opt->groups[0].hyper[i];
}

/* ---- vectors ---- */

static lc_status make(vector *v, int64_t n)
{
    return v->tensor ? LC_OK : lc_tensor_new(LC_F64, 1, &n, &v->tensor);
}

/* Allocates the vector if necessary, and maps it on the host until the end of the step. */
static lc_status begin(vector *v, int64_t n)
{
    lc_view view;
    if (v->at) return LC_OK;
    LC_TRY(make(v, n));
    LC_TRY(lc__tensor_map(v->tensor, LC__READ_WRITE, &view));
    v->at = view.data;
    return LC_OK;
}

static void end(vector *v)
{
    if (v->at) lc__tensor_unmap(v->tensor, LC__READ_WRITE);
    v->at = NULL;
}

/* ---- parameters and gradients ---- */

/* One parameter's memory; master weights and gradient may be NULL. */
typedef struct place {
    void *parameter;
    float *master;
    const void *gradient;
    lc_dtype dtype, of_gradient;
    int64_t n;
} place;
typedef void each_fn(const place *at, double *v, double scale);

static void read_parameters(const place *at, double *v, double scale)
{
    (void)scale;
    for (int64_t i = 0; i < at->n; i++)
        v[i] = at->master ? (double)lc__master_of(at->parameter, at->dtype, i, at->master)
                          : lc__number_at(at->parameter, at->dtype, i);
}
static void write_parameters(const place *at, double *v, double scale)
{
    (void)scale;
    for (int64_t i = 0; i < at->n; i++)
        if (at->master)
            lc__master_store(at->parameter, at->dtype, i, at->master, (float)v[i]);
        else
            lc__set_number(at->parameter, at->dtype, i, v[i]);
}
static void read_gradients(const place *at, double *v, double scale)
{
    for (int64_t i = 0; i < at->n; i++)
        v[i] = !at->gradient ? 0 : scale * lc__number_at(at->gradient, at->of_gradient, i);
}

/* Master weights and gradients have the layout of their parameters, so all are walked in memory order. */
static lc_status each(const lbfgs *l, each_fn *fn, lc__access access, double *v, double scale)
{
    const lc_param_group *group = &l->opt->groups[0];
    for (int i = 0; i < group->n_parameters; i++) {
        lc_tensor *p = group->parameters[i], *gradient = p->flat->gradients[p->flat_index];
        lc_tensor *master = lc__optimizer_range(l->opt, p->flat)->master;
        bool has = p->flat->has_gradient[p->flat_index];
        lc_view at, g = {.data = NULL}, m = {.data = NULL};
        LC_TRY(lc__tensor_map(p, access, &at));
        lc_status status = has ? lc__tensor_map(gradient, LC__READ, &g) : LC_OK;
        if (status >= 0 && master) status = lc__tensor_map(master, LC__READ | access, &m);
        place x = {at.data, NULL, g.data, at.dtype, g.dtype, lc_tensor_numel(p)};
        if (m.data) x.master = (float *)m.data + p->flat->offset[p->flat_index];
        if (status >= 0) fn(&x, v, scale);
        if (m.data) lc__tensor_unmap(master, LC__READ | access);
        if (g.data) lc__tensor_unmap(gradient, LC__READ);
        lc__tensor_unmap(p, access);
        LC_TRY(status);
        v += x.n;
    }
    return LC_OK;
}

/* The loss and its gradient (clipped as requested for this evaluation) at the present parameters. LC_SKIP: there is no
 * loss, or the loss is scaled and the gradient is not finite (overflow). */
static lc_status evaluate(lbfgs *l, double *loss)
{
    lc_optimizer *opt = l->opt;
    l->overflow = false;
    lc_status status = l->evaluate(l->ctx, loss);
    if (status != LC_OK) return status;
    lc_graph *g = lc_current_graph();
    if (g) LC_TRY(lc__peers_settle(g));
    double scale;
    LC_TRY(lc__gradient_factor_now(g, &scale));
    if (opt->clip_factor) LC_TRY(lc_item(opt->clip_factor, &scale)); /* this factor includes it */
    opt->clip_factor = NULL;
    LC_TRY(each(l, read_gradients, LC__READ, l->gradient, scale));
    l->overflow = g && g->unscale && !isfinite(lc__largest(l->gradient, l->n));
    if (opt->clip_by_value) {
        double bound = hyper(opt, LC_HYPER_CLIP_VALUE);
        for (int64_t i = 0; i < l->n; i++) l->gradient[i] = lc__within(l->gradient[i], -bound, bound);
    }
    opt->clip_by_value = false;
    return l->overflow ? LC_SKIP : LC_OK;
}

/* Moves the parameters to start + t d. */
static lc_status move(lbfgs *l, double t)
{
    const double *d = l->d.at;
    for (int64_t i = 0; i < l->n; i++) l->scratch[i] = l->start[i] + t * d[i];
    LC_TRY(each(l, write_parameters, LC__WRITE, l->scratch, 1));
    return lc__optimizer_updated(l->opt); /* the loss at this point is that of masked parameters */
}

/* The same, and evaluates the loss there. LC_ERR_NUMERIC without a message: an overflow, which step_closure handles. */
static lc_status evaluate_at(void *self, double t, double *loss)
{
    lbfgs *l = self;
    LC_TRY(move(l, t));
    lc_status status = evaluate(l, loss);
    if (status != LC_SKIP) return status;
    if (l->overflow) return LC_ERR_NUMERIC;
    return lc_fail(LC_ERR_USER,
                   "LBFGS: the closure returned a loss at first, but none after the parameters had changed");
}

/* ---- a step ---- */

/* Computes d from the pairs and the gradient. */
static lc_status direction(lbfgs *l)
{
    double *d = l->d.at, *prev = l->prev_gradient.at;
    const double *g = l->gradient;
    int64_t n = l->n;
    int have = (int)l->x.n_pairs;
    if (l->x.n_iter == 1) {
        for (int64_t i = 0; i < n; i++) d[i] = -g[i];
        l->x.n_pairs = 0;
        l->x.h_diag = 1;
        return LC_OK;
    }
    double ys = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) {
        double y = g[i] - prev[i];
        ys += y * d[i] * l->x.t;
        yy += y * y;
    }
    if (ys > 1e-10) {
        if (have == l->history) {
            pair oldest = l->pairs[0];
            memmove(l->pairs, l->pairs + 1, (size_t)(have - 1) * sizeof *l->pairs);
            l->pairs[--have] = oldest;
        }
        pair *p = &l->pairs[have++];
        LC_TRY(begin(&p->y, n));
        LC_TRY(begin(&p->s, n));
        for (int64_t i = 0; i < n; i++) {
            p->y.at[i] = g[i] - prev[i];
            p->s.at[i] = d[i] * l->x.t;
        }
        l->x.h_diag = ys / yy;
        l->x.n_pairs = have;
    }
    for (int64_t i = 0; i < n; i++) d[i] = -g[i];
    for (int k = have - 1; k >= 0; k--) {
        const double *y = l->pairs[k].y.at, *s = l->pairs[k].s.at;
        l->alpha[k] = lc__dot(s, d, n) / lc__dot(y, s, n);
        for (int64_t i = 0; i < n; i++) d[i] -= l->alpha[k] * y[i];
    }
    for (int64_t i = 0; i < n; i++) d[i] *= l->x.h_diag;
    for (int k = 0; k < have; k++) {
        const double *y = l->pairs[k].y.at, *s = l->pairs[k].s.at;
        double beta = lc__dot(y, d, n) / lc__dot(y, s, n);
        for (int64_t i = 0; i < n; i++) d[i] += s[i] * (l->alpha[k] - beta);
    }
    return LC_OK;
}

static lc__line line_of(lbfgs *l, double slope)
{
    return (lc__line){.n = l->n,
                      .d = l->d.at,
                      .slope = slope,
                      .gradient = l->gradient,
                      .ends = {l->bracket_gradients[0], l->bracket_gradients[1]},
                      .last = l->last_gradient,
                      .evaluate = evaluate_at,
                      .ctx = l};
}

static lc_status iterate(lbfgs *l, double loss)
{
    const lc_optimizer *opt = l->opt;
    const double lr = hyper(opt, LC_H_LR), tolerance_grad = hyper(opt, H_TOLERANCE_GRAD);
    const double tolerance_change = hyper(opt, H_TOLERANCE_CHANGE);
    const int max_iter = (int)hyper(opt, H_MAX_ITER);
    const int max_eval = hyper(opt, H_MAX_EVAL) > 0 ? (int)hyper(opt, H_MAX_EVAL) : max_iter * 5 / 4;
    int evaluations = 1;
    bool flat = lc__largest(l->gradient, l->n) <= tolerance_grad;
    if (flat) return LC_OK;
    for (int i = 1; i <= max_iter; i++) {
        l->x.n_iter++;
        LC_TRY(direction(l));
        memcpy(l->prev_gradient.at, l->gradient, (size_t)l->n * sizeof *l->gradient);
        l->x.prev_loss = loss;
        const double *d = l->d.at;
        double sum = 0, slope = lc__dot(l->gradient, d, l->n), t = lr;
        for (int64_t k = 0; k < l->n; k++) sum += fabs(l->gradient[k]);
        if (l->x.n_iter == 1) t = fmin(1, 1 / sum) * lr;
        l->x.t = t;
        if (slope > -tolerance_change) break;
        int more = 0;
        LC_TRY(each(l, read_parameters, LC__READ, l->start, 1));
        if (hyper(opt, H_STRONG_WOLFE) != 0) {
            const lc__line line = line_of(l, slope);
            LC_TRY(lc__strong_wolfe(&line, max_eval - evaluations, &t, &loss, &more));
            LC_TRY(move(l, t));
            flat = lc__largest(l->gradient, l->n) <= tolerance_grad;
        } else if (i < max_iter) {
            LC_TRY(evaluate_at(l, t, &loss));
            flat = lc__largest(l->gradient, l->n) <= tolerance_grad;
            more = 1;
        } else {
            LC_TRY(move(l, t));
        }
        l->x.t = t;
        evaluations += more;
        l->x.func_evals += more;
        if (evaluations >= max_eval || flat) break;
        if (fabs(t) * lc__largest(d, l->n) <= tolerance_change) break;
        if (fabs(loss - l->x.prev_loss) < tolerance_change) break;
    }
    return LC_OK;
}

static void release(lc_optimizer *opt)
{
    lbfgs *l = opt->own;
    if (!l) return;
    for (int i = 0; i < l->history; i++) {
        lc_tensor_unref(l->pairs[i].y.tensor);
        lc_tensor_unref(l->pairs[i].s.tensor);
    }
    lc_tensor_unref(l->saved);
    lc_tensor_unref(l->d.tensor);
    lc_tensor_unref(l->prev_gradient.tensor);
    free(l->pairs);
    free(l->gradient); /* the other vectors are in the same allocation */
    free(l);
    opt->own = NULL;
}

static lc_status prepare(lc_optimizer *opt)
{
    lc_status status = LC_OK;
    if (opt->n_groups != 1) return lc_fail(LC_ERR_CONFIG, "LBFGS takes one group of parameters, not %d", opt->n_groups);
    LC_TRY(lc__optimizer_prepare(opt));
    if (opt->own) return LC_OK;
    lbfgs *l = opt->own = calloc(1, sizeof *l);
    if (!l) return lc_fail(LC_ERR_MEMORY, "out of memory: LBFGS");
    l->opt = opt;
    int history = (int)hyper(opt, H_HISTORY);
    for (int i = 0; i < opt->groups[0].n_parameters; i++) l->n += lc_tensor_numel(opt->groups[0].parameters[i]);
    int64_t n_numbers = sizeof(numbers) / sizeof(double);
    l->pairs = calloc((size_t)history, sizeof *l->pairs);
    l->gradient = calloc(6 * (size_t)l->n + (size_t)history, sizeof(double));
    if (!l->pairs || !l->gradient) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: LBFGS of %lld parameters", (long long)l->n);
        goto done;
    }
    l->history = history;
    double **parts[] = {&l->start, &l->scratch, &l->last_gradient, &l->bracket_gradients[0], &l->bracket_gradients[1],
                        &l->alpha};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) *parts[i] = l->gradient + (int64_t)(i + 1) * l->n;
    LC_TRY_GOTO(status, done, lc_tensor_new(LC_F64, 1, &n_numbers, &l->saved));
    LC_TRY_GOTO(status, done, make(&l->d, l->n));
    LC_TRY_GOTO(status, done, make(&l->prev_gradient, l->n));
done:
    if (status < 0) release(opt);
    return status;
}

static lc_status begin_all(lbfgs *l)
{
    LC_TRY(begin(&l->d, l->n));
    LC_TRY(begin(&l->prev_gradient, l->n));
    for (int i = 0; i < (int)l->x.n_pairs; i++) {
        LC_TRY(begin(&l->pairs[i].y, l->n));
        LC_TRY(begin(&l->pairs[i].s, l->n));
    }
    return LC_OK;
}

static void end_all(lbfgs *l)
{
    end(&l->d);
    end(&l->prev_gradient);
    for (int i = 0; i < l->history; i++) {
        end(&l->pairs[i].y);
        end(&l->pairs[i].s);
    }
}

static lc_status count_step(lc_optimizer *opt)
{
    lc_view steps;
    LC_TRY(lc__tensor_map(opt->steps, LC__READ_WRITE, &steps));
    for (int64_t i = 0; i < opt->groups[0].n_parameters; i++) ((double *)steps.data)[i] += 1;
    lc__tensor_unmap(opt->steps, LC__READ_WRITE);
    return LC_OK;
}

/* After an overflow during a line search: back to where it began, as if it had not. */
static lc_status take_back(lbfgs *l)
{
    l->x.n_iter--;
    l->x.t = 0;
    return each(l, write_parameters, LC__WRITE, l->start, 1);
}

static lc_status step_closure(lc_optimizer *opt, lc_evaluate_fn *fn, void *ctx)
{
    LC__WITHOUT_TRAPS();
    double loss;
    LC_TRY(prepare(opt));
    lbfgs *l = opt->own;
    l->evaluate = fn;
    l->ctx = ctx;
    LC_TRY(lc_tensor_read(l->saved, &l->x, sizeof l->x));
    lc_status status = evaluate(l, &loss);
    if (status == LC_SKIP) return LC_OK;
    LC_TRY(status);
    l->x.func_evals++;
    status = begin_all(l);
    if (status >= 0) status = iterate(l, loss);
    end_all(l);
    bool overflow = status < 0 && l->overflow;
    if (overflow) status = take_back(l);
    LC_TRY(lc_tensor_write(l->saved, &l->x, sizeof l->x));
    return status >= 0 && !overflow ? count_step(opt) : status;
}

static lc_status visit_own(lc_optimizer *opt, bool load, lc_status (*fn)(void *, const char *, lc_tensor *), void *ctx)
{
    char name[32];
    if (!opt->own && !load) return LC_OK;
    LC_TRY(prepare(opt));
    lbfgs *l = opt->own;
    LC_TRY(fn(ctx, "numbers", l->saved));
    LC_TRY(fn(ctx, "d", l->d.tensor));
    LC_TRY(fn(ctx, "prev_flat_grad", l->prev_gradient.tensor));
    numbers x;
    LC_TRY(lc_tensor_read(l->saved, &x, sizeof x));
    double n = x.n_pairs;
    if (!(n >= 0 && n <= l->history))
        return lc_fail(LC_ERR_FORMAT, "LBFGS: the state has %g pairs, but history_size is %d", n, l->history);
    for (int i = 0; i < (int)n; i++) {
        LC_TRY(make(&l->pairs[i].y, l->n));
        LC_TRY(make(&l->pairs[i].s, l->n));
        snprintf(name, sizeof name, "old_dirs.%d", i);
        LC_TRY(fn(ctx, name, l->pairs[i].y.tensor));
        snprintf(name, sizeof name, "old_stps.%d", i);
        LC_TRY(fn(ctx, name, l->pairs[i].s.tensor));
    }
    return LC_OK;
}

static lc_status update(lc_optimizer *opt, const lc_update *u)
{
    (void)opt, (void)u;
    return lc_fail(LC_ERR_STATE, "a step needs a closure: use lc_optimizer_step_closure (lc_manual_step_closure in a "
                                 "module that optimizes manually)");
}

static lc_status check(const lc_optimizer *opt)
{
    static const char *const whole[] = {"max_iter", "max_eval", "history_size"};
    double weight_decay, number;
    LC_TRY(lc__check_at_least(opt, "lr", 0));
    LC_TRY(lc__check_at_least(opt, "tolerance_grad", 0));
    LC_TRY(lc__check_at_least(opt, "tolerance_change", 0));
    LC_TRY(lc__check_below(opt, "max_iter", 1, 1e8));
    LC_TRY(lc__check_below(opt, "max_eval", 0, 1e8));
    LC_TRY(lc__check_below(opt, "history_size", 1, 1e6));
    for (int i = 0; i < LC_COUNT_OF(whole); i++) {
        LC_TRY(lc_optimizer_get(opt, -1, whole[i], &number));
        if (number != floor(number))
            return lc_fail(LC_ERR_ARGUMENT, "LBFGS: %s is %g, but must be a whole number", whole[i], number);
    }
    if (opt->flags & LC_OPT_STOCHASTIC_ROUNDING)
        return lc_fail(LC_ERR_ARGUMENT, "LBFGS has no stochastic_rounding: its search needs the loss at the point that "
                                        "it has chosen; use master_weights");
    if (opt->flags & LC_OPT_MAXIMIZE) return lc_fail(LC_ERR_ARGUMENT, "LBFGS has no maximize; negate the loss");
    LC_TRY(lc_optimizer_get(opt, -1, "weight_decay", &weight_decay));
    return weight_decay == 0 ? LC_OK : lc_fail(LC_ERR_ARGUMENT, "LBFGS has no weight_decay; add it to the loss");
}

static const char *const hyper_names[] = {"lr",           "weight_decay",   "max_iter",
                                          "max_eval",     "tolerance_grad", "tolerance_change",
                                          "history_size", "strong_wolfe",   NULL};
static const double hyper_defaults[] = {1, 0, 20, 0, 1e-7, 1e-9, 100, 0};
static const char *const no_state[] = {NULL};

static const lc_optimizer_ops lbfgs_ops = {
    LC_OPTIMIZER_OPS_INIT,
    .name = "LBFGS",
    .hyper_names = hyper_names,
    .hyper_defaults = hyper_defaults,
    .state_names = no_state,
    .update = update,
    .check = check,
    .step_closure = step_closure,
    .visit_own = visit_own,
    .release = release,
};

static const lc_optimizer_ops *variant(const double *h, unsigned flags)
{
    (void)h, (void)flags;
    return &lbfgs_ops;
}

const lc__optimizer_class lc__class_lbfgs = {
    .name = "LBFGS",
    .hyper_names = hyper_names,
    .defaults = hyper_defaults,
    .variant = variant,
};

lc_optimizer *lc_lbfgs_with(const lc_lbfgs_args *args)
{
    LC__TAKE(a, lc_lbfgs, lc_lbfgs_args, args, NULL);
    const double given[] = {a.max_iter,         a.max_eval,     a.tolerance_grad,
                            a.tolerance_change, a.history_size, a.strong_wolfe};
    return lc__optimizer_construct(&lc__class_lbfgs, LC_OPTIMIZER_COMMON(a), given, LC_COUNT_OF(given), 0);
}
