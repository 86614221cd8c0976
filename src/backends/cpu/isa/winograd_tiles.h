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

static images images_of(const lc_view *v)
{
    return (images){v->data, v->dtype, v->shape[0], v->shape[2], v->shape[3], v->shape[1]};
}

/* How the result's images are cut into tiles. */
typedef struct tiling {
    int64_t padding; /* of the images */
    int64_t rows, columns, count;
} tiling;

static tiling tiling_of(const images *result, int64_t padding)
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
static tile tile_at(const images *x, const tiling *t, int64_t index, int64_t size, int64_t padding)
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

static span all_of(const images *x)
{
    return (span){0, x->c};
}

/* Transformed values are stored as [point][row][channel]; points are this many numbers apart, a vector more than
 * necessary, so that they do not all use the same cache lines. */
static int64_t point_step(int64_t rows, int64_t channels)
{
    return rows * channels + VW;
}

/* The pixels that the next tile of the row adds are fetched meanwhile. */
LC_INLINE void transform_tile(const lc_dtype type, wg_transform *transform, const int size, const bool whole,
                              const tile *t, const images *x, span channels, float *to, int64_t step)
{
    const int64_t from = t->at + channels.first;
    for (int64_t c = 0; c < channels.count; c += VW) {
        vf half[WG_POINTS][WG_POINTS], in[WG_POINTS], out[WG_POINTS];
#pragma GCC unroll 8
        for (int j = 0; j < size; j++) {
            const bool column = whole || (j >= t->column0 && j < t->column1);
#pragma GCC unroll 8
            for (int i = 0; i < size; i++) {
                const bool there = whole || (column && i >= t->row0 && i < t->row1);
                const int64_t at = from + (i * x->w + j) * x->c + c;
                in[i] = there ? vget(type, x->data, at) : vzero();
                if (j >= size - WG_RESULTS) __builtin_prefetch(stored_at(type, x->data, at + WG_RESULTS * x->c));
            }
            transform(in, out);
#pragma GCC unroll 8
            for (int i = 0; i < WG_POINTS; i++) half[i][j] = out[i];
        }
#pragma GCC unroll 8
        for (int i = 0; i < WG_POINTS; i++) {
            transform(half[i], out);
#pragma GCC unroll 8
            for (int j = 0; j < WG_POINTS; j++) vstore(to + (i * WG_POINTS + j) * step + c, out[j]);
        }
    }
}

static bool is_whole(const tile *t, int64_t size)
{
    return t->row0 == 0 && t->column0 == 0 && t->row1 == size && t->column1 == size;
}

static void pixels_to_points(const images *x, span channels, const tiling *t, int64_t index, float *to, int64_t step)
{
    tile at = tile_at(x, t, index, WG_POINTS, t->padding);
    if (is_whole(&at, WG_POINTS))
        STORED(x->type, transform_tile, wg_pixels, WG_POINTS, true, &at, x, channels, to, step);
    else
        STORED(x->type, transform_tile, wg_pixels, WG_POINTS, false, &at, x, channels, to, step);
}

static void gradient_to_points(const images *dy, span channels, const tiling *t, int64_t index, float *to, int64_t step)
{
    tile at = tile_at(dy, t, index, WG_RESULTS, 0);
    if (is_whole(&at, WG_RESULTS))
        STORED(dy->type, transform_tile, wg_kernel4, WG_RESULTS, true, &at, dy, channels, to, step);
    else
        STORED(dy->type, transform_tile, wg_kernel4, WG_RESULTS, false, &at, dy, channels, to, step);
}

LC_INLINE void results_of_type(const lc_dtype type, const bool whole, const tile *at, const float *from, int64_t step,
                               span channels, const float *bias, bool relu, const images *y)
{
    const int64_t rows = whole ? WG_RESULTS : at->row1, columns = whole ? WG_RESULTS : at->column1;
    for (int64_t k = 0, c = channels.first; k < channels.count; k += VW, c += VW) {
        vf half[WG_RESULTS * WG_POINTS], results[WG_RESULTS];
        const vf b = bias ? vload(bias + c) : vzero();
#pragma GCC unroll 8
        for (int j = 0; j < WG_POINTS; j++) {
            vf column[WG_POINTS];
#pragma GCC unroll 8
            for (int i = 0; i < WG_POINTS; i++) column[i] = vload(from + (i * WG_POINTS + j) * step + k);
            wg_results4(column, results);
#pragma GCC unroll 8
            for (int i = 0; i < WG_RESULTS; i++) half[i * WG_POINTS + j] = results[i];
        }
        for (int64_t i = 0; i < rows; i++) {
            wg_results4(half + i * WG_POINTS, results);
#pragma GCC unroll 4
            for (int64_t j = 0; j < columns; j++) {
                vf value = results[j] + b;
                if (relu) value = vselect(value <= vzero(), vzero(), value);
                vput(type, y->data, at->at + (i * y->w + j) * y->c + c, value);
            }
        }
    }
}

static void points_to_results(const float *from, int64_t step, span channels, const float *bias, bool relu,
                              const images *y, const tiling *t, int64_t index)
{
    const tile at = tile_at(y, t, index, WG_RESULTS, 0);
    if (is_whole(&at, WG_RESULTS))
        STORED(y->type, results_of_type, true, &at, from, step, channels, bias, relu, y);
    else
        STORED(y->type, results_of_type, false, &at, from, step, channels, bias, relu, y);
}

#endif
