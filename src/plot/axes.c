/* SPDX-License-Identifier: Apache-2.0 */
/* Where everything is in a plot: axes with ticks, lines with error bars, bins, the legend. */
#include "base/c_locale.h"
#include "plot/plot_internal.h"

#include <math.h>
#include <stdio.h>

static const uint32_t colors[] = {0x1F77B4, 0xD62728, 0x2CA02C, 0xFF7F0E, 0x9467BD, 0x8C564B, 0xE377C2, 0x17BECF};

/* An axis: values from `from` to `to` are between `begin` and `end` of the canvas. */
typedef struct axis {
    double from, to, begin, end, step;
} axis;

typedef struct frame {
    const lc_plot *p;
    lc__canvas *c;
    axis x, y;
} frame;

static uint32_t color_of(int64_t i)
{
    return colors[(size_t)i % (sizeof colors / sizeof *colors)];
}

static double at(const axis *a, double v)
{
    return a->begin + (v - a->from) / (a->to - a->from) * (a->end - a->begin);
}

/* 1, 2 or 5 times a power of ten, so that there are about `ticks` steps in the range. */
static double step_of(double range, double ticks)
{
    double power = pow(10, floor(log10(range / ticks))), part = range / ticks / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void include(axis *a, double v)
{
    a->from = fmin(a->from, v);
    a->to = fmax(a->to, v);
}

static void find_ranges(frame *f)
{
    f->x = f->y = (axis){.from = INFINITY, .to = -INFINITY};
    for (int64_t k = 0; k < f->p->n_lines; k++) {
        const lc__plot_line *l = &f->p->lines[k];
        for (int64_t i = 0; i < l->n; i++) {
            double error = l->error && lc__plot_shows(l->error[i]) ? fabs(l->error[i]) : 0;
            if (!lc__plot_shows(l->x[i]) || !lc__plot_shows(l->y[i])) continue;
            include(&f->x, l->x[i]);
            include(&f->y, l->y[i] - error);
            include(&f->y, l->y[i] + error);
        }
        if (f->p->kind == LC__PLOT_HISTOGRAM) include(&f->x, l->x[l->n]);
    }
    if (f->p->from_zero || f->p->kind == LC__PLOT_HISTOGRAM) include(&f->y, 0);
}

/* Gives a range of one value some width, and ends it at steps (`round`). */
static void set_scale(axis *a, double ticks, bool round)
{
    const double largest = fmax(fabs(a->from), fabs(a->to));
    if (!(a->to - a->from > fmax(1e-12 * largest, 1e-300))) {
        double half = largest > 1e-290 ? largest / 2 : 0.5;
        a->from -= half;
        a->to += half;
    }
    a->step = step_of(a->to - a->from, ticks);
    if (!round) return;
    a->from = floor(a->from / a->step + 1e-9) * a->step;
    a->to = ceil(a->to / a->step - 1e-9) * a->step;
}

/* With six digits, or as many as neighbors need to differ, and then as a whole number if it is one. */
static void tick_text(const axis *a, double v, char text[32])
{
    const double largest = fmax(fabs(a->from), fabs(a->to)), digits = 1 + ceil(log10(largest / a->step));
    const double whole = fmin(1 + floor(log10(largest)), 15);
    lc__snprintf(text, 32, "%.*g", digits > 6 ? (int)fmax(digits, whole) : 6, fabs(v) < a->step / 2 ? 0.0 : v);
}

static double first_tick(const axis *a)
{
    return ceil(a->from / a->step - 1e-9) * a->step;
}

static double widest_tick(const axis *a)
{
    double most = 1;
    char text[32];
    for (double v = first_tick(a); v <= a->to + a->step * 1e-9; v += a->step) {
        tick_text(a, v, text);
        most = fmax(most, (double)lc__plot_letters(text));
    }
    return most;
}

static double legend_letters(const lc_plot *p)
{
    double most = 0;
    for (int64_t k = 0; k < p->n_lines; k++)
        if (p->lines[k].name) most = fmax(most, 4 + (double)lc__plot_letters(p->lines[k].name));
    return fmin(most, 40);
}

static void place_axes(frame *f)
{
    const lc_plot *p = f->p;
    lc__canvas *c = f->c;
    const double top = (p->title ? c->row : 0) + (p->y_label ? c->row : 0) + c->row / 2;
    const double bottom = c->height - c->row * (p->x_label ? 2.5 : 1.5);
    const double right = c->width - c->letter * (3 + fmin(legend_letters(p), c->width / c->letter / 3));
    find_ranges(f);
    set_scale(&f->y, fmax((bottom - top) / (2.5 * c->row), 1), true);
    f->y.begin = bottom;
    f->y.end = top;
    f->x.begin = c->letter * (2 + widest_tick(&f->y));
    f->x.end = fmax(right, f->x.begin + c->letter);
    const double letters = (f->x.end - f->x.begin) / c->letter;
    set_scale(&f->x, fmax(letters / 10, 1), false);
    if (widest_tick(&f->x) > 8) set_scale(&f->x, fmax(letters / (widest_tick(&f->x) + 2), 1), false);
    if (p->kind == LC__PLOT_HISTOGRAM) return;
    double margin = 0.03 * (f->x.to - f->x.from);
    f->x.from -= margin;
    f->x.to += margin;
}

static void draw_ticks(const frame *f)
{
    lc__canvas *c = f->c;
    char text[32];
    for (double v = first_tick(&f->y); v <= f->y.to + f->y.step / 2; v += f->y.step) {
        tick_text(&f->y, v, text);
        c->line(c, f->x.begin, at(&f->y, v), f->x.end, at(&f->y, v), LC__PALE, 1);
        c->text(c, f->x.begin - c->letter, at(&f->y, v), 1, LC__INK, text);
    }
    for (double v = first_tick(&f->x); v <= f->x.to; v += f->x.step) {
        tick_text(&f->x, v, text);
        c->line(c, at(&f->x, v), f->y.begin, at(&f->x, v), f->y.begin + c->row / 4, LC__INK, 1);
        c->text(c, at(&f->x, v), f->y.begin + c->row, 0, LC__INK, text);
    }
    c->line(c, f->x.begin, f->y.begin, f->x.begin, f->y.end, LC__INK, 1);
    c->line(c, f->x.begin, f->y.begin, f->x.end, f->y.begin, LC__INK, 1);
}

/* With its middle at x, or, if it is too long for that, with its beginning at the left. */
static void draw_centered(lc__canvas *c, double x, double y, const char *text)
{
    const bool fits = (double)lc__plot_letters(text) * c->letter / 2 <= x;
    c->text(c, fits ? x : 0, y, fits ? 0 : -1, LC__INK, text);
}

static void draw_labels(const frame *f)
{
    lc__canvas *c = f->c;
    const lc_plot *p = f->p;
    double y = c->row / 2;
    if (p->title) {
        draw_centered(c, c->width / 2, y, p->title);
        y += c->row;
    }
    if (p->y_label) c->text(c, c->letter, y, -1, LC__INK, p->y_label);
    if (p->x_label) draw_centered(c, (f->x.begin + f->x.end) / 2, c->height - c->row / 2, p->x_label);
    y = f->y.end + c->row / 2;
    for (int64_t k = 0; k < p->n_lines; k++) {
        if (!p->lines[k].name) continue;
        c->line(c, f->x.end + c->letter, y, f->x.end + 2.5 * c->letter, y, color_of(k), 2);
        c->text(c, f->x.end + 4 * c->letter, y, -1, LC__INK, p->lines[k].name);
        y += c->row;
    }
}

static void draw_line(const frame *f, int64_t k)
{
    const lc__plot_line *l = &f->p->lines[k];
    lc__canvas *c = f->c;
    const double cap = c->letter / 2;
    double last_x = NAN, last_y = NAN;
    for (int64_t i = 0; i < l->n; i++) {
        double x = at(&f->x, l->x[i]), y = at(&f->y, l->y[i]);
        bool here = lc__plot_shows(l->x[i]) && lc__plot_shows(l->y[i]);
        if (here && isfinite(last_x)) c->line(c, last_x, last_y, x, y, color_of(k), 2);
        if (here && !isfinite(last_x)) c->line(c, x, y, x, y, color_of(k), 2); /* a point, if no line follows */
        last_x = here ? x : NAN;
        last_y = y;
        if (!here || !l->error || !lc__plot_shows(l->error[i])) continue;
        double low = at(&f->y, l->y[i] - fabs(l->error[i])), high = at(&f->y, l->y[i] + fabs(l->error[i]));
        c->line(c, x, low, x, high, color_of(k), 1);
        c->line(c, x - cap, low, x + cap, low, color_of(k), 1);
        c->line(c, x - cap, high, x + cap, high, color_of(k), 1);
    }
}

static void draw_bins(const frame *f)
{
    const lc__plot_line *l = &f->p->lines[0];
    for (int64_t i = 0; i < l->n; i++)
        if (l->y[i] > 0)
            f->c->box(f->c, at(&f->x, l->x[i]), at(&f->y, l->y[i]), at(&f->x, l->x[i + 1]), at(&f->y, 0), colors[0]);
}

void lc__plot_draw(const lc_plot *p, lc__canvas *c)
{
    frame f = {.p = p, .c = c};
    place_axes(&f);
    draw_ticks(&f);
    draw_labels(&f);
    if (p->kind == LC__PLOT_HISTOGRAM)
        draw_bins(&f);
    else
        for (int64_t k = 0; k < p->n_lines; k++) draw_line(&f, k);
}
