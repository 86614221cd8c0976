/* SPDX-License-Identifier: Apache-2.0 */
/* Plots and grids as pixels. Lines are smooth: a pixel has as much of their color as it is covered. */
#include "plot/plot_internal.h"
#include "base/png.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LETTER = 7, ROW = 18, GAP = 4, SMALL = 64 }; /* pixels; between pictures; sides that are enlarged */

/* White pixels. */
static lc_status raster_init(lc__raster *r, int64_t width, int64_t height)
{
    if (width > 32768 || height > 32768)
        return lc_fail(LC_ERR_ARGUMENT, "a picture of %lld x %lld pixels is too large: 32768 is the most",
                       (long long)width, (long long)height);
    r->w = width;
    r->h = height;
    r->pixels = malloc((size_t)(3 * width * height));
    if (!r->pixels) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld pixels", (long long)(width * height));
    memset(r->pixels, 255, (size_t)(3 * width * height));
    return LC_OK;
}

static void blend(lc__raster *r, int64_t x, int64_t y, uint32_t color, double part)
{
    if (x < 0 || y < 0 || x >= r->w || y >= r->h || part <= 0) return;
    uint8_t *to = r->pixels + 3 * (y * r->w + x);
    for (int k = 0; k < 3; k++) {
        double c = color >> (16 - 8 * k) & 255;
        to[k] = (uint8_t)lrint(to[k] + (c - to[k]) * fmin(part, 1));
    }
}

static void draw_line(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color, double thickness)
{
    lc__raster *r = (lc__raster *)c;
    const double dx = x1 - x0, dy = y1 - y0, square = dx * dx + dy * dy, reach = thickness / 2 + 1;
    int64_t left = (int64_t)fmax(floor(fmin(x0, x1) - reach), 0), top = (int64_t)fmax(floor(fmin(y0, y1) - reach), 0);
    int64_t right = (int64_t)fmin(ceil(fmax(x0, x1) + reach), (double)r->w);
    int64_t bottom = (int64_t)fmin(ceil(fmax(y0, y1) + reach), (double)r->h);
    for (int64_t y = top; y < bottom; y++)
        for (int64_t x = left; x < right; x++) {
            double px = (double)x + 0.5 - x0, py = (double)y + 0.5 - y0;
            double t = square > 0 ? fmax(0, fmin(1, (px * dx + py * dy) / square)) : 0;
            blend(r, x, y, color, 0.5 + thickness / 2 - hypot(px - t * dx, py - t * dy));
        }
}

static void draw_box(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color)
{
    for (int64_t y = lrint(fmin(y0, y1)); y < lrint(fmax(y0, y1)); y++)
        for (int64_t x = lrint(fmin(x0, x1)); x < lrint(fmax(x0, x1)) - 1; x++) /* a gap between bins */
            blend((lc__raster *)c, x, y, color, 1);
}

static void draw_letter(lc__canvas *c, double x, double y, uint32_t color, const char *strokes)
{
    for (const char *s = strokes; *s;) {
        double last_x = NAN, last_y = NAN;
        for (; *s && *s != ' '; s += 2) {
            double px = x + 1.2 * (s[0] - '0'), py = y + 1.4 * (s[1] - '0');
            draw_line(c, isnan(last_x) ? px : last_x, isnan(last_y) ? py : last_y, px, py, color, 1);
            last_x = px;
            last_y = py;
        }
        s += *s == ' ';
    }
}

static void draw_text(lc__canvas *c, double x, double y, int anchor, uint32_t color, const char *text)
{
    x -= (anchor + 1) / 2.0 * LETTER * (double)lc__plot_letters(text);
    for (; *text; x += LETTER) draw_letter(c, x + 1, y - 4.2, color, lc__plot_letter(lc__plot_next_letter(&text)));
}

/* As many letters of a label as its picture is wide. */
static void draw_label(lc__raster *r, int64_t x, int64_t y, int64_t width, const char *label)
{
    for (int64_t k = 0; *label && (k + 1) * LETTER <= width; k++)
        draw_letter(&r->canvas, (double)(x + k * LETTER) + 1, (double)y, 0x333333,
                    lc__plot_letter(lc__plot_next_letter(&label)));
}

static lc_status draw_pictures(const lc_plot *p, lc__raster *r)
{
    const int64_t h = p->picture_height, w = p->picture_width, longer = h > w ? h : w;
    const int64_t scale = longer < SMALL ? (SMALL + longer - 1) / longer : 1,
                  columns = p->n < p->columns ? p->n : p->columns;
    const int64_t wide = w * scale + GAP, high = h * scale + GAP + (p->labels ? ROW : 0), top = p->title ? ROW : 0;
    LC_TRY(raster_init(r, columns * wide + GAP, top + (p->n + columns - 1) / columns * high + GAP));
    if (p->title) draw_label(r, GAP, 4, r->w - GAP, p->title);
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t x0 = GAP + i % columns * wide, y0 = top + GAP + i / columns * high;
        for (int64_t y = 0; y < h * scale; y++)
            for (int64_t x = 0; x < w * scale; x++)
                memcpy(r->pixels + 3 * ((y0 + y) * r->w + x0 + x),
                       p->pixels + 3 * ((i * h + y / scale) * w + x / scale), 3);
        if (p->labels) draw_label(r, x0, y0 + h * scale + 4, w * scale, p->labels[i]);
    }
    return LC_OK;
}

lc_status lc__plot_raster(const lc_plot *p, lc__raster *r)
{
    r->canvas = (lc__canvas){(double)p->width, (double)p->height, LETTER, ROW, draw_line, draw_box, draw_text};
    if (p->kind == LC__PLOT_PICTURES) return draw_pictures(p, r);
    LC_TRY(raster_init(r, p->width, p->height));
    lc__plot_draw(p, &r->canvas);
    return LC_OK;
}

lc_status lc__plot_png(const lc_plot *p, lc__str *out)
{
    lc__raster r;
    LC_TRY(lc__plot_raster(p, &r));
    lc_status s = lc__png_add(out, r.pixels, (int)r.w, (int)r.h, 3);
    free(r.pixels);
    return s;
}
