/* SPDX-License-Identifier: Apache-2.0 */
/* How images are cut into the tiles of Winograd's algorithm (winograd.h), and the transforms of one tile. */
#ifndef LC_BACKENDS_CPU_ISA_WINOGRAD_TILES_H
#define LC_BACKENDS_CPU_ISA_WINOGRAD_TILES_H

#include "backends/cpu/isa/stored.h"
#include "backends/cpu/isa/winograd.h"

/* Images, channels-last. */
typedef struct images {
    void *data;
    lc_dtype type;
    int64_t n, h, w, c;
} images;

static inline images images_of(const lc_view *v)
{
    return (images){v->data, v->dtype, v->shape[0], v->shape[2], v->shape[3], v->shape[1]};
}

/* How the result's images are cut into tiles. */
typedef struct tiling {
    int64_t padding; /* of the images */
    int64_t rows, columns, count;
} tiling;

static inline tiling tiling_of(const images *result, int64_t padding)
{
    tiling t = {padding, (result->h + WG_RESULTS - 1) / WG_RESULTS, (result->w + WG_RESULTS - 1) / WG_RESULTS, 0};
    t.count = result->n * t.rows * t.columns;
    return t;
}

/* One tile: the offset of its first pixel in the images, and which of its rows and columns are inside its image. */
typedef struct tile {
    int64_t at;
    int64_t row0, row1, column0, column1;
} tile;

static inline int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Tile `index`, `size` pixels wide, beginning `padding` before the results. */
static inline tile tile_at(const images *x, const tiling *t, int64_t index, int64_t size, int64_t padding)
{
    int64_t image = index / (t->rows * t->columns), rest = index % (t->rows * t->columns);
    int64_t top = rest / t->columns * WG_RESULTS - padding, left = rest % t->columns * WG_RESULTS - padding;
    return (tile){((image * x->h + top) * x->w + left) * x->c, clamp(-top, 0, size), clamp(x->h - top, 0, size),
                  clamp(-left, 0, size), clamp(x->w - left, 0, size)};
}

/* ---- transforms ---- */
/* A range of channels. */
typedef struct span {
    int64_t first, count;
} span;

static inline span all_of(const images *x)
{
    return (span){0, x->c};
}

/* Transformed values are stored as [point][row][channel]; points are this many numbers apart, a vector more than
 * necessary, so that they do not all use the same cache lines. */
static inline int64_t point_step(int64_t rows, int64_t channels)
{
    return rows * channels + VW;
}

/* Addresses are advanced by hand: a compiler that sees through them computes all of them first, more than there are
 * registers. */
LC_INLINE const char *advanced(const char *p, int64_t bytes)
{
    p += bytes;
    __asm__("" : "+r"(p));
    return p;
}

/* A tile's pixels of VW channels: those of the first pixel are at p. */
typedef struct window {
    const char *p;
    int64_t row, pixel; /* bytes from one to the next */
} window;

/* Pixels [first, end) of the row that begins at p. */
LC_INLINE void load_row(const lc_dtype type, const char *p, int64_t pixel, const int first, const int end, vf *row)
{
    const char *right = advanced(p, 3 * pixel);
#pragma GCC unroll 8
    for (int j = first; j < end; j++) row[j] = vget(type, j < 3 ? p + j * pixel : right + (j - 3) * pixel, 0);
}

/* The pixels that the next tile of the row adds. */
LC_INLINE void fetch_row(const char *p, int64_t pixel, const int size)
{
    p = advanced(p, size * pixel);
#pragma GCC unroll 4
    for (int j = 0; j < WG_RESULTS; j++) __builtin_prefetch(p + j * pixel);
}

/* Writes points of all rows and of column j, from the column's pixels, transformed along rows. */
LC_INLINE void store_points(wg_transform *transform, const vf *column, int j, float *to, int64_t step)
{
    vf out[WG_POINTS];
    const char *p = advanced((const char *)(to + j * step), 0);
    transform(column, out);
#pragma GCC unroll 8
    for (int i = 0; i < WG_POINTS; i++) {
        vstore((float *)p, out[i]);
        p = advanced(p, WG_POINTS * step * (int64_t)sizeof(float));
    }
}

/* Points of 6 x 6 pixels, in halves: three columns of them, and what they are made from, stay in registers. */
LC_INLINE void points_of_pixels(const lc_dtype type, const bool fetch, window x, float *to, int64_t step)
{
#pragma GCC unroll 2
    for (int right = 0; right < 2; right++) {
        vf columns[3][WG_POINTS], in[WG_POINTS], out[3];
        const char *p = x.p;
#pragma GCC unroll 8
        for (int i = 0; i < WG_POINTS; i++) {
            load_row(type, p, x.pixel, right, 5 + right, in);
            if (fetch && !right) fetch_row(p, x.pixel, WG_POINTS);
            if (right)
                wg_right_pixels(in, out);
            else
                wg_left_pixels(in, out);
            for (int j = 0; j < 3; j++) columns[j][i] = out[j];
            p = advanced(p, x.row);
        }
#pragma GCC unroll 3
        for (int j = 0; j < 3; j++) store_points(wg_pixels, columns[j], 3 * right + j, to, step);
    }
}

/* Points of 4 x 4 pixels of a gradient. */
LC_INLINE void points_of_gradient(const lc_dtype type, const bool fetch, window x, float *to, int64_t step)
{
    vf columns[WG_POINTS][WG_RESULTS], in[WG_RESULTS], out[WG_POINTS];
    const char *p = x.p;
#pragma GCC unroll 4
    for (int i = 0; i < WG_RESULTS; i++) {
        load_row(type, p, x.pixel, 0, WG_RESULTS, in);
        if (fetch) fetch_row(p, x.pixel, WG_RESULTS);
        wg_kernel4(in, out);
#pragma GCC unroll 8
        for (int j = 0; j < WG_POINTS; j++) columns[j][i] = out[j];
        p = advanced(p, x.row);
    }
#pragma GCC unroll 8
    for (int j = 0; j < WG_POINTS; j++) store_points(wg_kernel4, columns[j], j, to, step);
}

typedef void points_of(const lc_dtype type, const bool fetch, window x, float *to, int64_t step);

/* A tile that is partly outside of its image is copied first, with zeros around it. */
LC_INLINE void transform_part(const lc_dtype type, points_of *points, const tile *t, const images *x, span channels,
                              float *to, int64_t step)
{
    float copy[WG_POINTS][WG_POINTS][VW] __attribute__((aligned(64)));
    const window copied = {(const char *)copy, (int64_t)sizeof copy[0], (int64_t)sizeof copy[0][0]};
    memset(copy, 0, sizeof copy);
    for (int64_t c = 0; c < channels.count; c += VW, to += VW) {
        for (int64_t i = t->row0; i < t->row1; i++) {
            for (int64_t j = t->column0; j < t->column1; j++)
                vstore(copy[i][j], vget(type, x->data, t->at + channels.first + c + (i * x->w + j) * x->c));
        }
        points(LC_F32, false, copied, to, step);
    }
}

LC_INLINE void transform_whole(const lc_dtype type, points_of *points, const tile *t, const images *x, span channels,
                               float *to, int64_t step)
{
    const int64_t size = (int64_t)stored_size(type);
    window of = {stored_at(type, x->data, t->at + channels.first), x->w * x->c * size, x->c * size};
    for (int64_t c = 0; c < channels.count; c += VW, of.p += VW * size, to += VW) points(type, true, of, to, step);
}

static inline bool is_whole(const tile *t, int64_t size)
{
    return t->row0 == 0 && t->column0 == 0 && t->row1 == size && t->column1 == size;
}

static inline void pixels_to_points(const images *x, span channels, const tiling *t, int64_t index, float *to,
                                    int64_t step)
{
    tile at = tile_at(x, t, index, WG_POINTS, t->padding);
    if (is_whole(&at, WG_POINTS))
        STORED(x->type, transform_whole, points_of_pixels, &at, x, channels, to, step);
    else
        STORED(x->type, transform_part, points_of_pixels, &at, x, channels, to, step);
}

static inline void gradient_to_points(const images *dy, span channels, const tiling *t, int64_t index, float *to,
                                      int64_t step)
{
    tile at = tile_at(dy, t, index, WG_RESULTS, 0);
    if (is_whole(&at, WG_RESULTS))
        STORED(dy->type, transform_whole, points_of_gradient, &at, dy, channels, to, step);
    else
        STORED(dy->type, transform_part, points_of_gradient, &at, dy, channels, to, step);
}

/* Fetches memory that will be written to. */
static inline void fetch_to_write(const char *p, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += 64) vfetch_to_write(p + b);
}

/* The same, of a tile's results. */
static inline void fetch_results(const images *y, const tiling *t, int64_t index)
{
    const tile at = tile_at(y, t, index, WG_RESULTS, 0);
    const int64_t bytes = at.column1 * y->c * (int64_t)stored_size(y->type);
    for (int64_t i = 0; i < at.row1; i++) fetch_to_write(stored_at(y->type, y->data, at.at + i * y->w * y->c), bytes);
}

/* Four results of a row of points, which begins at p; the next is `step` bytes away. */
LC_INLINE void results_of_row(const char *p, int64_t step, vf *y)
{
    const char *right = advanced(p, 3 * step);
    const vf m[WG_POINTS] = {
        vload((const float *)p),     vload((const float *)(p + step)),     vload((const float *)(p + 2 * step)),
        vload((const float *)right), vload((const float *)(right + step)), vload((const float *)(right + 2 * step))};
    wg_results4(m, y);
}

/* The results of a tile, in registers: each row of points adds to them. */
LC_INLINE void results_of_points(const float *from, int64_t step, vf y[WG_RESULTS][WG_RESULTS])
{
    const int64_t bytes = step * (int64_t)sizeof(float);
    const char *p = (const char *)from;
    vf plus[WG_RESULTS], minus[WG_RESULTS];
    results_of_row(p, bytes, y[0]);
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; pair++) {
        p = advanced(p, WG_POINTS * bytes);
        results_of_row(p, bytes, plus);
        p = advanced(p, WG_POINTS * bytes);
        results_of_row(p, bytes, minus);
#pragma GCC unroll 4
        for (int j = 0; j < WG_RESULTS; j++) {
            const vf sum = plus[j] + minus[j], difference = (pair ? wg_b : wg_a) * (plus[j] - minus[j]);
            y[0][j] += sum;
            y[1][j] = pair ? y[1][j] + difference : difference;
            y[2][j] = pair ? y[2][j] + 2.f * sum : .5f * sum;
            y[3][j] = pair ? y[3][j] + 2.f * difference : .5f * difference;
        }
    }
    p = advanced(p, WG_POINTS * bytes);
    results_of_row(p, bytes, plus);
#pragma GCC unroll 4
    for (int j = 0; j < WG_RESULTS; j++) y[3][j] += plus[j];
}

LC_INLINE void results_of_type(const lc_dtype type, const bool whole, const tile *at, const float *from, int64_t step,
                               span channels, const float *bias, bool relu, const images *y)
{
    const int64_t pixel = y->c * (int64_t)stored_size(type), row = y->w * pixel;
    char *first = stored_at(type, y->data, at->at + channels.first);
    for (int64_t k = 0; k < channels.count; k += VW, first += VW * stored_size(type)) {
        vf results[WG_RESULTS][WG_RESULTS];
        const vf b = bias ? vload(bias + channels.first + k) : vzero();
        results_of_points(from + k, step, results);
        char *to = first;
#pragma GCC unroll 4
        for (int i = 0; i < WG_RESULTS; i++) {
            if (!whole && i >= at->row1) break;
            char *p = to;
#pragma GCC unroll 4
            for (int j = 0; j < WG_RESULTS; j++) {
                if (!whole && j >= at->column1) break;
                vf value = results[i][j] + b;
                if (relu) value = vselect(value <= vzero(), vzero(), value);
                vput(type, p, 0, value);
                p = (char *)advanced(p, pixel);
            }
            to = (char *)advanced(to, row);
        }
    }
}

static inline void points_to_results(const float *from, int64_t step, span channels, const float *bias, bool relu,
                                     const images *y, const tiling *t, int64_t index)
{
    const tile at = tile_at(y, t, index, WG_RESULTS, 0);
    if (is_whole(&at, WG_RESULTS))
        STORED(y->type, results_of_type, true, &at, from, step, channels, bias, relu, y);
    else
        STORED(y->type, results_of_type, false, &at, from, step, channels, bias, relu, y);
}

/* ---- the transpose of points_of_pixels ---- */
/* Three pixels of a row, of the left or the right half, from its points: the first at p, others `step` bytes apart. */
LC_INLINE void pixels_of_row(const bool right, const char *p, int64_t step, vf *d)
{
    const char *q = advanced(p, 3 * step);
    const vf m[WG_POINTS] = {
        vload((const float *)p), vload((const float *)(p + step)), vload((const float *)(p + 2 * step)),
        vload((const float *)q), vload((const float *)(q + step)), vload((const float *)(q + 2 * step))};
    if (right)
        wg_right_pixels_back(m, d);
    else
        wg_left_pixels_back(m, d);
}

/* Adds the 6 x 6 pixels of a tile, of VW channels, to a band; numbers between its rows and pixels: row, pixel. */
LC_INLINE void add_pixels_of_points(const float *from, int64_t step, float *band, int64_t row, int64_t pixel)
{
    const int64_t bytes = step * (int64_t)sizeof(float);
#pragma GCC unroll 2
    for (int right = 0; right < 2; right++) {
        vf columns[3][WG_POINTS], pixels[3], out[WG_POINTS];
        const char *p = (const char *)from;
#pragma GCC unroll 8
        for (int i = 0; i < WG_POINTS; i++) {
            pixels_of_row(right, p, bytes, pixels);
            for (int j = 0; j < 3; j++) columns[j][i] = pixels[j];
            p = advanced(p, WG_POINTS * bytes);
        }
#pragma GCC unroll 3
        for (int j = 0; j < 3; j++) {
            char *to = (char *)advanced((const char *)(band + (3 * right + j) * pixel), 0);
            wg_pixels_back(columns[j], out);
#pragma GCC unroll 8
            for (int i = 0; i < WG_POINTS; i++) {
                vstore((float *)to, vload((const float *)to) + out[i]);
                to = (char *)advanced(to, row * (int64_t)sizeof(float));
            }
        }
    }
}

#endif
