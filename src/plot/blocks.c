/* SPDX-License-Identifier: Apache-2.0 */
/* Plots and grids as characters of a terminal. A character cell has two pixels, one above the other, which half blocks
 * show; letters take whole cells. */
#include "plot/plot_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NONE = -1, PLAIN = -2 }; /* no color; the one of letters, which a dark terminal has light */

typedef struct cell {
    int32_t upper, lower; /* colors, NONE or PLAIN */
    char letter[5];       /* UTF-8; "": none */
} cell;

typedef struct blocks {
    lc__canvas canvas; /* first; its units are pixels */
    int64_t columns, rows;
    cell *cells;
} blocks;

static lc_status blocks_init(blocks *b, int64_t columns, int64_t rows)
{
    b->columns = columns;
    b->rows = rows;
    b->cells = calloc((size_t)(columns * rows), sizeof *b->cells);
    if (!b->cells) return lc_fail(LC_ERR_MEMORY, "out of memory: a plot of %lld lines", (long long)rows);
    for (int64_t i = 0; i < columns * rows; i++) b->cells[i].upper = b->cells[i].lower = NONE;
    return LC_OK;
}

static void set_pixel(blocks *b, int64_t x, int64_t y, int32_t color)
{
    if (x < 0 || y < 0 || x >= b->columns || y >= 2 * b->rows) return;
    cell *c = &b->cells[y / 2 * b->columns + x];
    *(y % 2 ? &c->lower : &c->upper) = color;
}

/* Pale lines, those of the grid, are left out: they would be as wide as the others. */
static void draw_line(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color, double thickness)
{
    (void)thickness;
    if (color == LC__PALE) return;
    double longer = fmax(fabs(x1 - x0), fabs(y1 - y0));
    const double least = 1e-9; /* a pixel that begins where a point is has it, in spite of rounding */
    int64_t n = longer >= 1 ? (int64_t)ceil(longer) : 1;
    for (int64_t i = 0; i <= n; i++) {
        double t = (double)i / (double)n;
        set_pixel((blocks *)c, (int64_t)floor(x0 + t * (x1 - x0) + least), (int64_t)floor(y0 + t * (y1 - y0) + least),
                  color == LC__INK ? PLAIN : (int32_t)color);
    }
}

static void draw_box(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color)
{
    int64_t left = (int64_t)floor(fmin(x0, x1)), right = (int64_t)floor(fmax(x0, x1));
    for (int64_t y = (int64_t)floor(fmin(y0, y1)); y < (int64_t)floor(fmax(y0, y1)); y++)
        for (int64_t x = left; x < right || x == left; x++) set_pixel((blocks *)c, x, y, (int32_t)color);
}

/* Letters that do not fit are left out. */
static void put_text(blocks *b, int64_t x, int64_t row, int64_t room, const char *text)
{
    if (row < 0 || row >= b->rows) return;
    while (*text && room-- > 0) {
        const char *begin = text;
        lc__plot_next_letter(&text);
        if (x >= 0 && x < b->columns && text - begin <= 4) {
            char *letter = b->cells[row * b->columns + x].letter;
            memcpy(letter, begin, (size_t)(text - begin));
            letter[text - begin] = 0;
        }
        x++;
    }
}

static void draw_text(lc__canvas *c, double x, double y, int anchor, uint32_t color, const char *text)
{
    blocks *b = (blocks *)c;
    (void)color;
    int64_t n = lc__plot_letters(text), shift = anchor < 0 ? 0 : anchor ? n : n / 2;
    put_text(b, (int64_t)floor(x) - shift, (int64_t)floor(y / 2), b->columns, text);
}

/* ---- pictures, each reduced to its place ---- */

static int32_t mean_color(const lc_plot *p, int64_t i, double x0, double y0, double x1, double y1)
{
    int64_t sum[3] = {0}, n = 0;
    for (int64_t y = (int64_t)y0; y < p->picture_height && ((double)y < y1 || y == (int64_t)y0); y++)
        for (int64_t x = (int64_t)x0; x < p->picture_width && ((double)x < x1 || x == (int64_t)x0); x++, n++)
            for (int k = 0; k < 3; k++)
                sum[k] += p->pixels[3 * ((i * p->picture_height + y) * p->picture_width + x) + k];
    return n ? (int32_t)(sum[0] / n << 16 | sum[1] / n << 8 | sum[2] / n) : 0;
}

static lc_status draw_pictures(const lc_plot *p, int64_t columns, blocks *b)
{
    const int64_t in_row = p->n < p->columns ? p->n : p->columns, lines = (p->n + in_row - 1) / in_row;
    int64_t w = columns / in_row - 1;
    if (w < 2)
        return lc_fail(LC_ERR_ARGUMENT, "%lld pictures do not fit next to each other into %lld columns",
                       (long long)in_row, (long long)columns);
    if (w > p->picture_width) w = p->picture_width;
    const double scale = (double)p->picture_width / (double)w;
    int64_t h = llrint((double)p->picture_height / scale);
    if (h < 1) h = 1;
    const int64_t high = (h + 1) / 2 + 1, top = p->title ? 1 : 0; /* rows with the label, or an empty one */
    LC_TRY(blocks_init(b, columns, top + lines * high));
    if (p->title) put_text(b, 0, 0, columns, p->title);
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t x0 = i % in_row * (w + 1), row = top + i / in_row * high;
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++)
                set_pixel(b, x0 + x, 2 * row + y,
                          mean_color(p, i, (double)x * scale, (double)y * scale, (double)(x + 1) * scale,
                                     (double)(y + 1) * scale));
        if (p->labels) put_text(b, x0, row + high - 1, w, p->labels[i]);
    }
    return LC_OK;
}

/* ---- output ---- */

static void add_color(lc__str *out, bool background, int32_t color, int32_t *now)
{
    if (color == PLAIN) color = NONE;
    if (color == *now) return;
    *now = color;
    if (color == NONE)
        lc__str_add(out, "\033[%dm", background ? 49 : 39);
    else
        lc__str_add(out, "\033[%d;2;%d;%d;%dm", background ? 48 : 38, color >> 16 & 255, color >> 8 & 255, color & 255);
}

static void add_colored(lc__str *out, const cell *c, int32_t *fore, int32_t *back)
{
    int32_t upper = c->upper, lower = c->lower;
    const bool two = !*c->letter && upper != NONE && lower != NONE, whole = two && upper == PLAIN && lower == PLAIN;
    const bool below = upper == NONE || (two && lower == PLAIN); /* no background has the color of letters */
    if (*c->letter || upper != NONE || lower != NONE)
        add_color(out, false, *c->letter ? NONE : below ? lower : upper, fore);
    add_color(out, true, !two || whole ? NONE : below ? upper : lower, back);
    lc__str_add(out, "%s", *c->letter ? c->letter : whole ? "█" : !below ? "▀" : lower != NONE ? "▄" : " ");
}

static void add_plain(lc__str *out, const cell *c)
{
    lc__str_add(out, "%s",
                *c->letter         ? c->letter
                : c->upper != NONE ? c->lower != NONE ? "█" : "▀"
                : c->lower != NONE ? "▄"
                                   : " ");
}

static void add_shade(lc__str *out, const cell *c)
{
    static const char *const shades[] = {" ", "░", "▒", "▓", "█"};
    int sum = 0, n = 0;
    for (int k = 0; k < 2; k++) {
        int32_t color = k ? c->lower : c->upper;
        if (color == NONE) continue;
        sum += (299 * (color >> 16 & 255) + 587 * (color >> 8 & 255) + 114 * (color & 255)) / 1000;
        n++;
    }
    lc__str_add(out, "%s", *c->letter ? c->letter : n ? shades[sum / n * 5 / 256] : " ");
}

static void add_row(const lc_plot *p, const blocks *b, int64_t row, bool color, lc__str *out)
{
    const cell *cells = b->cells + row * b->columns;
    int64_t n = b->columns;
    int32_t fore = NONE, back = NONE;
    while (n && !*cells[n - 1].letter && cells[n - 1].upper == NONE && cells[n - 1].lower == NONE) n--;
    for (int64_t x = 0; x < n; x++) {
        if (color)
            add_colored(out, &cells[x], &fore, &back);
        else if (p->kind == LC__PLOT_PICTURES)
            add_shade(out, &cells[x]);
        else
            add_plain(out, &cells[x]);
    }
    lc__str_add(out, fore != NONE || back != NONE ? "\033[0m\n" : "\n");
}

lc_status lc__plot_blocks(const lc_plot *p, int64_t columns, int64_t rows, bool color, lc__str *out)
{
    blocks b = {.canvas = {(double)columns, 2 * (double)rows, 1, 2, draw_line, draw_box, draw_text}};
    if (p->kind == LC__PLOT_PICTURES) {
        LC_TRY(draw_pictures(p, columns, &b));
    } else {
        LC_TRY(blocks_init(&b, columns, rows));
        lc__plot_draw(p, &b.canvas);
    }
    for (int64_t row = 0; row < b.rows; row++) add_row(p, &b, row, color, out);
    free(b.cells);
    return LC_OK;
}
