/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/line_search.h"

#include "base/status.h"
#include "optim/vector.h"

#include <string.h>

/* A narrower range is not searched: PyTorch's number, whatever the optimizer's tolerance_change. */
#define NARROWEST 1e-9

/* The minimum of the cubic through two values and slopes, within bounds. */
static double cubic(double x1, double f1, double g1, double x2, double f2, double g2, double low, double high)
{
    double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2), square = d1 * d1 - g1 * g2;
    if (!(square >= 0)) return (low + high) / 2;
    double d2 = sqrt(square);
    double at = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                         : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
    return lc__within(at, low, high);
}

typedef struct point {
    double t, f, slope;
    int gradient; /* which of `ends` */
} point;

static void keep_gradient(const lc__line *l, int which, const double *g)
{
    memcpy(l->ends[which], g, (size_t)l->n * sizeof *g);
}

/* A search along d, from the start. */
typedef struct search {
    const lc__line *l;
    double f; /* at the start */
    int most, tries, evaluations;
    point b[2]; /* two points between which the step is */
    int low;    /* which of them has the smaller loss */
} search;

static lc_status try_step(search *s, double t, point *out)
{
    LC_TRY(s->l->evaluate(s->l->ctx, t, &out->f));
    s->evaluations++;
    out->t = t;
    out->slope = lc__dot(s->l->gradient, s->l->d, s->l->n);
    return LC_OK;
}

/* The two conditions of Wolfe: the loss falls enough, and the slope has become flat. */
static bool falls_too_little(const search *s, const point *p)
{
    const double c1 = 1e-4;
    return p->f > s->f + c1 * p->t * s->l->slope;
}

static bool is_flat(const search *s, const point *p)
{
    const double c2 = 0.9;
    return fabs(p->slope) <= -c2 * s->l->slope;
}

static void find_low(search *s)
{
    s->low = s->b[0].f <= s->b[1].f ? 0 : 1;
}

/* Takes larger and larger steps until one is too large. *done: until one is good enough, which both ends then are. */
static lc_status bracket(search *s, double first, bool *done)
{
    const lc__line *l = s->l;
    point before = {0, s->f, s->l->slope, 0}, now = {.gradient = 1};
    s->b[0] = before;
    keep_gradient(l, 0, l->gradient);
    memcpy(l->last, l->gradient, (size_t)l->n * sizeof *l->gradient);
    LC_TRY(try_step(s, first, &now));
    for (; s->tries < s->most; s->tries++) {
        bool worse = falls_too_little(s, &now) || (s->tries > 1 && now.f >= before.f);
        if (!worse && is_flat(s, &now)) {
            s->b[0] = s->b[1] = now;
            keep_gradient(l, 1, l->gradient);
            *done = true;
            return LC_OK;
        }
        if (worse || now.slope >= 0) {
            s->b[0] = before;
            s->b[0].gradient = 0;
            s->b[1] = now;
            keep_gradient(l, 0, l->last);
            keep_gradient(l, 1, l->gradient);
            return LC_OK;
        }
        double low = now.t + 0.01 * (now.t - before.t), high = now.t * 10;
        double next = cubic(before.t, before.f, before.slope, now.t, now.f, now.slope, low, high);
        before = now;
        memcpy(l->last, l->gradient, (size_t)l->n * sizeof *l->gradient);
        LC_TRY(try_step(s, next, &now));
    }
    /* l->ends[0] is still the gradient at the start. */
    s->b[1] = now;
    keep_gradient(l, 1, l->gradient);
    return LC_OK;
}

/* The next step to try between the ends. *stuck: the last one was close to an end. */
static double step_between(const search *s, bool *stuck)
{
    const point *b = s->b;
    double first = fmin(b[0].t, b[1].t), last = fmax(b[0].t, b[1].t);
    double t = cubic(b[0].t, b[0].f, b[0].slope, b[1].t, b[1].f, b[1].slope, first, last);
    /* Too close to an end twice in a row: move a tenth of the bracket away from it. */
    double margin = 0.1 * (last - first);
    bool close = fmin(last - t, t - first) < margin, moves = close && (*stuck || t >= last || t <= first);
    *stuck = close && !moves;
    if (!moves) return t;
    return fabs(t - last) < fabs(t - first) ? last - margin : first + margin;
}

/* Puts a point between the ends in the place of one of them. Returns whether it is good enough. */
static bool narrow(search *s, point now)
{
    point *b = s->b;
    int low = s->low, high = !low;
    if (falls_too_little(s, &now) || now.f >= b[low].f) {
        now.gradient = b[high].gradient;
        b[high] = now;
        keep_gradient(s->l, now.gradient, s->l->gradient);
        find_low(s);
        return false;
    }
    bool done = is_flat(s, &now);
    if (!done && now.slope * (b[high].t - b[low].t) >= 0) {
        int free_one = b[high].gradient;
        b[high] = b[low];
        b[low].gradient = free_one;
    }
    now.gradient = b[low].gradient;
    b[low] = now;
    keep_gradient(s->l, now.gradient, s->l->gradient);
    return done;
}

lc_status lc__strong_wolfe(const lc__line *l, int most, double *t, double *loss, int *evaluations)
{
    const double norm = lc__largest(l->d, l->n);
    search s = {.l = l, .f = *loss, .most = most};
    bool done = false, stuck = false;
    LC_TRY(bracket(&s, *t, &done));
    find_low(&s);
    for (; !done && s.tries < most; s.tries++) {
        point now = {0};
        if ((fmax(s.b[0].t, s.b[1].t) - fmin(s.b[0].t, s.b[1].t)) * norm < NARROWEST) break;
        LC_TRY(try_step(&s, step_between(&s, &stuck), &now));
        done = narrow(&s, now);
    }
    const point *best = &s.b[s.low];
    *evaluations = s.evaluations;
    *t = best->t;
    *loss = best->f;
    memcpy(l->gradient, l->ends[best->gradient], (size_t)l->n * sizeof *l->gradient);
    return LC_OK;
}
