/* SPDX-License-Identifier: Apache-2.0 */
/* Speed against batch size as SVG: a panel for training, one for inference, and a legend next to them. */
#include "bench_devices.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 440, HEIGHT = 360, LEFT = 80, RIGHT = 20, TOP = 40, BOTTOM = 56, LEGEND = 170 };
enum { LABEL = 34, SHIFT = 4 }; /* between labels of the batch axis; between the error bars of setups */

/* A color per number of devices; dashes for data_parallel. */
static const char *const colors[] = {"#444444", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"};

static const char *color_of(const results *all, int i)
{
    int rank = 0; /* index among the numbers of devices, in the order of setups */
    for (int s = 1; s <= i; s++) rank += all->setups[s].devices != all->setups[s - 1].devices;
    return colors[(size_t)rank % (sizeof colors / sizeof *colors)];
}

static const char *dashes_of(const results *all, int i)
{
    return !strcmp(all->setups[i].strategy, "data_parallel") ? " stroke-dasharray=\"6 4\"" : "";
}

/* 1, 2 or 5 times a power of ten, so that about five steps make `most`. */
static double step_of(double most)
{
    double power = pow(10, floor(log10(most / 5))), steps = most / 5 / power;
    return power * (steps <= 1 ? 1 : steps <= 2 ? 2 : steps <= 5 ? 5 : 10);
}

typedef struct panel {
    const results *all;
    int kind;
    double step, top; /* of the speed axis, which starts at 0 */
} panel;

static double across(const panel *p, int j)
{
    double a = log2((double)p->all->sizes[0]), b = log2((double)p->all->sizes[p->all->n_sizes - 1]);
    double room = WIDTH - LEFT - RIGHT - 2 * LABEL;
    return LEFT + LABEL + (b > a ? (log2((double)p->all->sizes[j]) - a) / (b - a) : 0.5) * room;
}

static double down(const panel *p, double speed)
{
    return HEIGHT - BOTTOM - fmax(speed, 0) / p->top * (HEIGHT - TOP - BOTTOM);
}

static void scale(panel *p)
{
    double most = 1;
    for (int i = 0; i < p->all->n_setups; i++)
        for (int j = 0; j < p->all->n_sizes; j++) {
            const result *r = &p->all->of[p->kind][i][j];
            if (r->n) most = fmax(most, r->mean + r->deviation);
        }
    p->step = step_of(most);
    p->top = p->step * ceil(most / p->step);
}

static void draw_axes(FILE *f, const panel *p)
{
    const int middle = (LEFT + WIDTH - RIGHT) / 2, bottom = HEIGHT - BOTTOM;
    fprintf(f, "<text x=\"%d\" y=\"22\" text-anchor=\"middle\" font-size=\"15\">%s</text>\n", middle,
            p->kind == TRAINING ? "training" : "inference");
    for (double v = 0; v <= p->top + p->step / 2; v += p->step)
        fprintf(f,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.12g</text>\n",
                LEFT, WIDTH - RIGHT, down(p, v), down(p, v), LEFT - 6, down(p, v) + 4, v);
    double last = -LABEL;
    for (int j = 0; j < p->all->n_sizes; j++) {
        double x = across(p, j);
        fprintf(f, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#444\"/>\n", x, x, bottom, bottom + 5);
        if (x - last < LABEL) continue; /* no room for its number */
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>\n", x, bottom + 19,
                (long long)p->all->sizes[j]);
        last = x;
    }
    fprintf(f, "<path fill=\"none\" stroke=\"#444\" d=\"M%d %d V%d H%d\"/>\n", LEFT, TOP, bottom, WIDTH - RIGHT);
    fprintf(f,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">batch of all devices, samples</text>\n"
            "<text transform=\"translate(18 %d) rotate(-90)\" text-anchor=\"middle\">samples a second</text>\n",
            middle, HEIGHT - 14, (TOP + bottom) / 2);
}

static void draw_setup(FILE *f, const panel *p, int i)
{
    const char *color = color_of(p->all, i);
    double shift = (i - (p->all->n_setups - 1) / 2.0) * SHIFT; /* error bars side by side */
    fprintf(f, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\"%s points=\"", color, dashes_of(p->all, i));
    for (int j = 0; j < p->all->n_sizes; j++)
        if (p->all->of[p->kind][i][j].n)
            fprintf(f, "%.1f,%.1f ", across(p, j) + shift, down(p, p->all->of[p->kind][i][j].mean));
    fprintf(f, "\"/>\n");
    for (int j = 0; j < p->all->n_sizes; j++) {
        const result *r = &p->all->of[p->kind][i][j];
        if (!r->n) continue;
        double x = across(p, j) + shift, high = down(p, r->mean + r->deviation), low = down(p, r->mean - r->deviation);
        fprintf(f,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>"
                "<path stroke=\"%s\" d=\"M%.1f %.1f V%.1f M%.1f %.1f h6 M%.1f %.1f h6\"/>\n",
                x, down(p, r->mean), color, color, x, low, high, x - 3, low, x - 3, high);
    }
}

static void draw_legend(FILE *f, const results *all)
{
    for (int i = 0; i < all->n_setups; i++) {
        int y = TOP + 10 + 20 * i;
        fprintf(f,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\" stroke-width=\"2\" stroke=\"%s\"%s/>"
                "<text x=\"%d\" y=\"%d\">%s, %d</text>\n",
                2 * WIDTH, 2 * WIDTH + 28, y, y, color_of(all, i), dashes_of(all, i), 2 * WIDTH + 36, y + 4,
                all->setups[i].strategy, all->setups[i].devices);
    }
    fprintf(f, "<text x=\"%d\" y=\"%d\" fill=\"#666\">bars: standard deviation</text>\n", 2 * WIDTH,
            TOP + 20 + 20 * all->n_setups);
}

lc_status draw_plot(const results *all, const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) return lc_fail(LC_ERR_IO, "the plot %s cannot be written: %s", path, strerror(errno));
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            2 * WIDTH + LEGEND, HEIGHT, 2 * WIDTH + LEGEND, HEIGHT);
    for (int k = 0; k < KINDS; k++) {
        panel p = {.all = all, .kind = k};
        scale(&p);
        fprintf(f, "<g transform=\"translate(%d 0)\">\n", k * WIDTH);
        draw_axes(f, &p);
        for (int i = 0; i < all->n_setups; i++) draw_setup(f, &p, i);
        fprintf(f, "</g>\n");
    }
    draw_legend(f, all);
    fprintf(f, "</svg>\n");
    bool lost = ferror(f) != 0;
    if (fclose(f) == 0 && !lost) return LC_OK;
    return lc_fail(LC_ERR_IO, "the plot %s could not be written: %s", path, strerror(errno));
}
