/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a plot, and what it is drawn on: axes and lines are laid out once (axes.c), in the units of a canvas,
 * of which there are three: SVG, pixels, and characters of a terminal. Grids of pictures are pixels from the start. */
#ifndef LC_PLOT_PLOT_INTERNAL_H
#define LC_PLOT_PLOT_INTERNAL_H

#include "base/handle.h"
#include "base/str.h"

#include <lightc/plot.h>

typedef enum lc__plot_kind { LC__PLOT_LINES, LC__PLOT_HISTOGRAM, LC__PLOT_PICTURES } lc__plot_kind;

/* The texts of a plot have no control characters. */
typedef struct lc__plot_line {
    char *name; /* or NULL */
    int64_t n;
    double *x, *y, *error; /* error: or NULL. A histogram has n bins, and n + 1 edges in x */
} lc__plot_line;

struct lc_plot {
    lc__mark mark;
    lc__plot_kind kind;
    char *title, *x_label, *y_label; /* or NULL */
    int64_t width, height;
    bool from_zero;
    int64_t n_lines;
    lc__plot_line *lines;
    /* Pictures: */
    int64_t n, picture_height, picture_width, columns;
    uint8_t *pixels; /* [n,picture_height,picture_width,3] */
    char **labels;   /* [n], or NULL */
};

/* Whether a value has a place in a plot. Beyond that, sums and differences would not be finite. */
static inline bool lc__plot_shows(double v)
{
    return v >= -1e300 && v <= 1e300;
}

/* ---- canvases ---- */

enum { LC__INK = 0x333333, LC__PALE = 0xDDDDDD }; /* of axes and texts, and of the grid */

typedef struct lc__canvas lc__canvas;
struct lc__canvas {
    double width, height;
    double letter, row; /* width of a letter, height of a row of text */
    void (*line)(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color, double thickness);
    void (*box)(lc__canvas *c, double x0, double y0, double x1, double y1, uint32_t color);
    /* In the row around y; anchor -1: begins at x, 0: has its middle there, 1: ends there. */
    void (*text)(lc__canvas *c, double x, double y, int anchor, uint32_t color, const char *text);
};

/* Axes, ticks, lines, bars and legend of anything except pictures. */
void lc__plot_draw(const lc_plot *p, lc__canvas *c);

/* RGB pixels [height,width,3]. */
typedef struct lc__raster {
    lc__canvas canvas; /* first */
    int64_t w, h;
    uint8_t *pixels;
} lc__raster;
/* The plot, or the grid, as pixels, which are freed with free(). */
lc_status lc__plot_raster(const lc_plot *p, lc__raster *r) LC_MUST_USE;
lc_status lc__plot_png(const lc_plot *p, lc__str *out) LC_MUST_USE;
lc_status lc__plot_svg(const lc_plot *p, lc__str *out) LC_MUST_USE;
lc_status lc__plot_blocks(const lc_plot *p, int64_t columns, int64_t rows, bool color, lc__str *out) LC_MUST_USE;
lc_status lc__plot_kitty(const lc_plot *p, lc__str *out) LC_MUST_USE;
lc_status lc__plot_sixel(const lc_plot *p, lc__str *out) LC_MUST_USE;

/* The strokes of a letter, points as pairs of digits (x 0 to 4, y 0 to 8; letters rest on 6), strokes separated by
 * spaces. */
const char *lc__plot_letter(uint32_t code_point);
/* The code point that begins at *text, which then points after it. */
uint32_t lc__plot_next_letter(const char **text);
int64_t lc__plot_letters(const char *text); /* how many there are */

#endif
