/* SPDX-License-Identifier: Apache-2.0 */
/* Making plots: arguments are checked, and what they point to is copied. Writing them. */
#include "plot/plot_internal.h"
#include "base/args.h"
#include "base/float_traps.h"
#include "base/io.h"
#include "tensor/tensor_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- copies ---- */

static lc_status copy_label(const char *from, char **to)
{
    lc__str text = {0};
    if (!from) return LC_OK;
    lc__str_add_printable(&text, from, false);
    lc__str_add_bytes(&text, "", 0);
    *to = text.s;
    return text.failed ? lc_fail(LC_ERR_MEMORY, "out of memory: a plot's texts") : LC_OK;
}

/* n values, or 0, 1, 2, ... */
static lc_status copy_values(int64_t n, const double *from, double **to)
{
    *to = calloc((size_t)n + 1, sizeof **to);
    if (!*to) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld points", (long long)n);
    for (int64_t i = 0; i < n; i++) (*to)[i] = from ? from[i] : (double)i;
    return LC_OK;
}

static lc_status copy_line(const lc_plot_series *from, lc__plot_line *to)
{
    to->n = from->n;
    LC_TRY(copy_label(from->name, &to->name));
    LC_TRY(copy_values(from->n, from->x, &to->x));
    LC_TRY(copy_values(from->n, from->y, &to->y));
    return from->error ? copy_values(from->n, from->error, &to->error) : LC_OK;
}

/* ---- making ---- */

static lc_status new_plot(lc__plot_kind kind, const char *title, const char *x_label, const char *y_label,
                          lc_plot **out)
{
    lc_plot *p = calloc(1, sizeof *p);
    if (!p) return lc_fail(LC_ERR_MEMORY, "out of memory: a plot");
    p->kind = kind;
    p->mark = LC__MARK_OF(PLOT);
    lc_status s = copy_label(title, &p->title);
    if (s >= 0) s = copy_label(x_label, &p->x_label);
    if (s >= 0) s = copy_label(y_label, &p->y_label);
    if (s < 0) lc_plot_free(p);
    if (s >= 0) *out = p;
    return s;
}

void lc_plot_free(lc_plot *p)
{
    LC__IS_OR_NULL(p, PLOT, );
    if (!p) return;
    lc__mark_clear(&p->mark);
    for (int64_t i = 0; p->lines && i < p->n_lines; i++) {
        free(p->lines[i].name);
        free(p->lines[i].x);
        free(p->lines[i].y);
        free(p->lines[i].error);
    }
    for (int64_t i = 0; p->labels && i < p->n; i++) free(p->labels[i]);
    free(p->lines);
    free(p->labels);
    free(p->pixels);
    free(p->title);
    free(p->x_label);
    free(p->y_label);
    free(p);
}

static lc_status set_size(lc_plot *p, int64_t width, int64_t height)
{
    if (width < 160 || width > 8192 || height < 160 || height > 8192)
        return lc_fail(LC_ERR_ARGUMENT, "a plot of %lld x %lld pixels: width and height must be from 160 to 8192",
                       (long long)width, (long long)height);
    p->width = width;
    p->height = height;
    return LC_OK;
}

static lc_status new_lines(lc_plot *p, int64_t n)
{
    p->lines = calloc((size_t)n, sizeof *p->lines);
    if (!p->lines) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld lines", (long long)n);
    p->n_lines = n;
    return LC_OK;
}

static bool has_point(const lc__plot_line *l)
{
    for (int64_t i = 0; i < l->n; i++)
        if (lc__plot_shows(l->x[i]) && lc__plot_shows(l->y[i])) return true;
    return false;
}

static lc_status copy_series(lc_plot *p, int64_t n, const lc_plot_series *series)
{
    bool any = false;
    LC_TRY(new_lines(p, n));
    for (int64_t i = 0; i < n; i++) {
        LC_TRY(lc__reserved_check(series[i].reserved, "lc_plot_series"));
        if (series[i].n < 0 || (series[i].n && !series[i].y))
            return lc_fail(LC_ERR_ARGUMENT, "series %lld has %lld points and %s y", (long long)i,
                           (long long)series[i].n, series[i].y ? "a" : "no");
        LC_TRY(copy_line(&series[i], &p->lines[i]));
        any |= has_point(&p->lines[i]);
    }
    return any ? LC_OK : lc_fail(LC_ERR_ARGUMENT, "there is nothing to plot: no point has finite x and y");
}

lc_status lc_plot_lines_with(int64_t n, const lc_plot_series *series, lc_plot **out, const lc_plot_lines_args *args)
{
    LC__WITHOUT_TRAPS();
    LC__NEEDS(series, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_plot_lines, lc_plot_lines_args, args);
    lc_plot *p;
    if (n < 1) return lc_fail(LC_ERR_ARGUMENT, "%lld series: there must be at least 1", (long long)n);
    LC_TRY(new_plot(LC__PLOT_LINES, a.title, a.x_label, a.y_label, &p));
    p->from_zero = a.from_zero;
    lc_status s = set_size(p, a.width, a.height);
    if (s >= 0) s = copy_series(p, n, series);
    if (s < 0) lc_plot_free(p);
    if (s >= 0) *out = p;
    return s;
}

static lc_status count_values(lc_plot *p, int64_t n, const double *values, int64_t bins)
{
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        if (!lc__plot_shows(values[i])) continue;
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    if (!(low <= high)) return lc_fail(LC_ERR_ARGUMENT, "there is nothing to plot: none of the values is finite");
    const double largest = fmax(fabs(low), fabs(high));
    if (!(high - low > fmax(1e-12 * largest, 1e-300))) { /* bins need some width */
        low -= fmax(0.5, 1e-9 * largest);
        high += fmax(0.5, 1e-9 * largest);
    }
    LC_TRY(new_lines(p, 1));
    lc__plot_line *l = p->lines;
    l->n = bins;
    LC_TRY(copy_values(bins + 1, NULL, &l->x));
    l->y = calloc((size_t)bins, sizeof *l->y);
    if (!l->y) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld bins", (long long)bins);
    for (int64_t i = 0; i <= bins; i++) l->x[i] = low + (high - low) * ((double)i / (double)bins);
    for (int64_t i = 0; i < n; i++) {
        if (!lc__plot_shows(values[i])) continue;
        int64_t bin = (int64_t)((values[i] - low) / (high - low) * (double)bins);
        l->y[bin < bins ? bin : bins - 1]++;
    }
    return LC_OK;
}

lc_status lc_plot_histogram_with(int64_t n, const double *values, lc_plot **out, const lc_plot_histogram_args *args)
{
    LC__WITHOUT_TRAPS();
    LC__NEEDS(values, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_plot_histogram, lc_plot_histogram_args, args);
    lc_plot *p;
    if (a.bins < 1 || a.bins > 10000)
        return lc_fail(LC_ERR_ARGUMENT, "bins %lld must be from 1 to 10000", (long long)a.bins);
    LC_TRY(new_plot(LC__PLOT_HISTOGRAM, a.title, a.x_label, a.y_label, &p));
    lc_status s = set_size(p, a.width, a.height);
    if (s >= 0) s = count_values(p, n, values, a.bins);
    if (s < 0) lc_plot_free(p);
    if (s >= 0) *out = p;
    return s;
}

/* ---- pictures ---- */

static lc_status check_pictures(lc_tensor *t)
{
    const int nd = lc_tensor_ndim(t);
    const int64_t *s = lc_tensor_shape(t);
    lc_dtype dtype = lc_tensor_dtype(t);
    bool right = (nd == 3 || nd == 4) && lc_tensor_numel(t) > 0 && (s[nd - 3] == 1 || s[nd - 3] == 3);
    if (right && (dtype == LC_U8 || dtype == LC_F32)) return LC_OK;
    lc_type type = {.dtype = dtype, .ndim = nd};
    char shape[200];
    for (int i = 0; i < nd; i++) type.shape[i] = s[i];
    return lc_fail(LC_ERR_SHAPE, "pictures must be u8 or f32, [N,C,H,W] or [C,H,W] with 1 or 3 channels, not %s%s",
                   lc_dtype_name(dtype), lc__shape_text(&type, shape, sizeof shape));
}

static uint8_t byte_of(double v, double low, double high)
{
    double part = (v - low) / (high - low);
    return part > 0 ? (uint8_t)lrint(255 * fmin(part, 1)) : 0; /* NaN is black */
}

static lc_status read_pictures(lc_plot *p, lc_tensor *t, double low, double high)
{
    const int nd = lc_tensor_ndim(t);
    const int64_t *s = lc_tensor_shape(t), channels = s[nd - 3], plane = s[nd - 2] * s[nd - 1];
    const size_t size = lc_dtype_size(lc_tensor_dtype(t)), count = (size_t)lc_tensor_numel(t);
    p->n = nd == 4 ? s[0] : 1;
    p->picture_height = s[nd - 2];
    p->picture_width = s[nd - 1];
    p->pixels = malloc((size_t)(3 * p->n * plane));
    uint8_t *values = malloc(count * size);
    lc_status status = p->pixels && values ? lc_tensor_read(t, values, count * size)
                                           : lc_fail(LC_ERR_MEMORY, "out of memory: %zu pixels", count);
    for (int64_t i = 0; status >= 0 && i < p->n * plane; i++)
        for (int64_t k = 0; k < 3; k++) {
            int64_t from = (i / plane * channels + (channels == 3 ? k : 0)) * plane + i % plane;
            double v = size == 1 ? values[from] : (double)((const float *)(const void *)values)[from];
            p->pixels[3 * i + k] = byte_of(v, low, high);
        }
    free(values);
    return status;
}

static lc_status copy_labels(lc_plot *p, const char *const *labels)
{
    if (!labels) return LC_OK;
    p->labels = calloc((size_t)p->n, sizeof *p->labels);
    if (!p->labels) return lc_fail(LC_ERR_MEMORY, "out of memory: %lld labels", (long long)p->n);
    for (int64_t i = 0; i < p->n; i++) LC_TRY(copy_label(labels[i] ? labels[i] : "", &p->labels[i]));
    return LC_OK;
}

lc_status lc_plot_pictures_with(lc_tensor *pictures, lc_plot **out, const lc_plot_pictures_args *args)
{
    LC__WITHOUT_TRAPS();
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_plot_pictures, lc_plot_pictures_args, args);
    if (!pictures || lc_tensor_ndim(pictures) < 0) return lc__is_null(__func__, "pictures");
    LC_TRY(check_pictures(pictures));
    double low = isnan(a.low) ? 0 : a.low;
    double high = !isnan(a.high) ? a.high : lc_tensor_dtype(pictures) == LC_U8 ? 255 : 1;
    if (!(low < high) || a.columns < 1)
        return lc_fail(LC_ERR_ARGUMENT, "columns %lld must be positive, and low %g less than high %g",
                       (long long)a.columns, low, high);
    lc_plot *p;
    LC_TRY(new_plot(LC__PLOT_PICTURES, a.title, NULL, NULL, &p));
    p->columns = a.columns;
    lc_status s = read_pictures(p, pictures, low, high);
    if (s >= 0) s = copy_labels(p, a.labels);
    if (s < 0) lc_plot_free(p);
    if (s >= 0) *out = p;
    return s;
}

/* ---- writing ---- */

lc_status lc_plot_save(const lc_plot *p, const char *path)
{
    LC__WITHOUT_TRAPS();
    LC__IS(p, PLOT, LC_ERR_ARGUMENT);
    LC__NEEDS(path, LC_ERR_ARGUMENT);
    const char *ending = strrchr(path, '.');
    bool svg = ending && !strcasecmp(ending, ".svg");
    if (!svg && !(ending && !strcasecmp(ending, ".png")))
        return lc_fail(LC_ERR_ARGUMENT, "the plot's file \"%s\" must end in .svg or .png", path);
    lc__str file = {0};
    lc_status s = svg ? lc__plot_svg(p, &file) : lc__plot_png(p, &file);
    if (s >= 0) s = lc__replace_file(&lc__io_system, path, file.s, file.n);
    lc__str_free(&file);
    return s;
}

lc_status lc_plot_text_with(const lc_plot *p, char **text, const lc_plot_text_args *args)
{
    LC__WITHOUT_TRAPS();
    LC__IS(p, PLOT, LC_ERR_ARGUMENT);
    LC__NEEDS(text, LC_ERR_ARGUMENT);
    LC__TAKE_IF_GIVEN(a, lc_plot_text, lc_plot_text_args, args);
    if (a.columns < 20 || a.columns > 1000 || a.rows < 8 || a.rows > 1000)
        return lc_fail(LC_ERR_ARGUMENT, "columns %lld must be from 20 to 1000, and rows %lld from 8 to 1000",
                       (long long)a.columns, (long long)a.rows);
    if ((unsigned)a.graphics > LC_PLOT_SIXEL)
        return lc_fail(LC_ERR_ARGUMENT, "graphics is %d; it must be an lc_plot_graphics", (int)a.graphics);
    lc__str out = {0};
    lc_status s = a.graphics == LC_PLOT_KITTY   ? lc__plot_kitty(p, &out)
                  : a.graphics == LC_PLOT_SIXEL ? lc__plot_sixel(p, &out)
                                                : lc__plot_blocks(p, a.columns, a.rows, a.color, &out);
    if (s >= 0 && out.failed) s = lc_fail(LC_ERR_MEMORY, "out of memory: a plot as text");
    if (s < 0) lc__str_free(&out);
    if (s >= 0) *text = out.s;
    return s;
}
