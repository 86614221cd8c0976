/* SPDX-License-Identifier: Apache-2.0 */
/* Plots and grids of pictures, for programs around a run: lines with error bars, histograms, a batch as it was read.
 *
 *     lc_plot_series s = {.name = "4 workers", .n = 5, .x = sizes, .y = means, .error = deviations};
 *     LC_TRY(lc_plot_lines(1, &s, &plot, .x_label = "batch", .y_label = "samples a second"));
 *     LC_TRY(lc_plot_save(plot, "speed.png"));                            or speed.svg
 *     LC_TRY(lc_plot_text(plot, &text, .color = true));                   for a terminal
 *     fputs(text, stdout);
 *     free(text);
 *     lc_plot_free(plot);
 *
 * A plot copies the arrays, texts and tensors that it is made from: they are borrowed for the call. No function prints.
 * A plot does not change, so threads may use one at the same time. */
#ifndef LIGHTC_PLOT_H
#define LIGHTC_PLOT_H

#include <lightc/args.h>
#include <lightc/tensor.h>

typedef struct lc_plot lc_plot;

/* A line through n points. Values that are not finite, or beyond 1e300, leave gaps. */
typedef struct lc_plot_series {
    const char *name; /* in the legend; NULL: not in it */
    int64_t n;
    const double *x;     /* [n]; NULL: 0, 1, 2, ... */
    const double *y;     /* [n] */
    const double *error; /* [n], bars from y - error to y + error; NULL: none */
    void *reserved[2];
} lc_plot_series;

typedef struct lc_plot_lines_args {
    size_t size;
    const char *title, *x_label, *y_label; /* NULL: none */
    bool from_zero;                        /* the y axis contains 0 */
    int64_t width, height;                 /* of SVG and PNG, in pixels: 160 to 8192 */
} lc_plot_lines_args;
LC_DEFAULTS(lc_plot_lines, lc_plot_lines_args, .width = 640, .height = 400)

typedef struct lc_plot_histogram_args {
    size_t size;
    const char *title, *x_label, *y_label; /* NULL: none */
    int64_t bins;                          /* of equal width, from the smallest value to the largest */
    int64_t width, height;                 /* of SVG and PNG, in pixels: 160 to 8192 */
} lc_plot_histogram_args;
LC_DEFAULTS(lc_plot_histogram, lc_plot_histogram_args, .bins = 10, .width = 640, .height = 400)

typedef struct lc_plot_pictures_args {
    size_t size;
    const char *title;         /* NULL: none */
    const char *const *labels; /* [N], below the pictures; NULL: none */
    int64_t columns;           /* pictures in a row */
    double low, high;          /* the values of black and white; by default 0 and 1, of u8 0 and 255 */
} lc_plot_pictures_args;
LC_DEFAULTS(lc_plot_pictures, lc_plot_pictures_args, .columns = 8, .low = LC_NOT_GIVEN, .high = LC_NOT_GIVEN)

/* How pictures and plots appear in a terminal. */
typedef enum lc_plot_graphics {
    LC_PLOT_BLOCKS = 0, /* characters, each with two pixels, one above the other: every terminal with UTF-8 */
    LC_PLOT_KITTY,      /* kitty's graphics protocol: the PNG itself */
    LC_PLOT_SIXEL,      /* sixel graphics, in 216 colors */
} lc_plot_graphics;

typedef struct lc_plot_text_args {
    size_t size;
    lc_plot_graphics graphics;
    int64_t columns, rows; /* of LC_PLOT_BLOCKS, 20 to 1000 and 8 to 1000; grids of pictures take the rows they need */
    bool color; /* escape sequences for colors of 24 bits, axes in the terminal's own; without them pictures are gray,
                   in five shades */
} lc_plot_text_args;
LC_DEFAULTS(lc_plot_text, lc_plot_text_args, .columns = 80, .rows = 24)

LC_BEGIN_DECLS

/* n lines with axes, ticks and a legend. An error if there is no finite point. (n, series, &plot, options...) */
#define lc_plot_lines(n, series, ...) LC_CALL_NEW_(lc_plot_lines, lc_plot_lines, (n, series, ), __VA_ARGS__, )
LC_API lc_status lc_plot_lines_with(int64_t n, const lc_plot_series *series, lc_plot **out,
                                    const lc_plot_lines_args *args) LC_MUST_USE;
/* How many of n values are in each bin; the last one has its right end too. Values that are not finite, or beyond
 * 1e300, are left out. (n, values, &plot, options...) */
#define lc_plot_histogram(n, values, ...)                                                                              \
    LC_CALL_NEW_(lc_plot_histogram, lc_plot_histogram, (n, values, ), __VA_ARGS__, )
LC_API lc_status lc_plot_histogram_with(int64_t n, const double *values, lc_plot **out,
                                        const lc_plot_histogram_args *args) LC_MUST_USE;
/* A grid of pictures: [N,C,H,W] or one [C,H,W], of 1 or 3 channels, in either layout, u8 or f32. Values beyond low and
 * high are black or white. Pictures of less than 64 pixels are enlarged by a whole number.
 * (pictures, &plot, options...) */
#define lc_plot_pictures(pictures, ...) LC_CALL_NEW_(lc_plot_pictures, lc_plot_pictures, (pictures, ), __VA_ARGS__, )
LC_API lc_status lc_plot_pictures_with(lc_tensor *pictures, lc_plot **out,
                                       const lc_plot_pictures_args *args) LC_MUST_USE;
LC_API void lc_plot_free(lc_plot *p); /* NULL is fine */

/* Writes PATH.svg or PATH.png, by the ending of the path; an existing file is replaced at once. */
LC_API lc_status lc_plot_save(const lc_plot *p, const char *path) LC_MUST_USE;
/* *text, which is freed with free(), is the plot for a terminal, in lines that end with a newline.
 * (plot, &text, options...) */
#define lc_plot_text(p, ...) LC_CALL_NEW_(lc_plot_text, lc_plot_text, (p, ), __VA_ARGS__, )
LC_API lc_status lc_plot_text_with(const lc_plot *p, char **text, const lc_plot_text_args *args) LC_MUST_USE;

LC_END_DECLS

#endif
