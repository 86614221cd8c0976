/* SPDX-License-Identifier: Apache-2.0 */
/* Floats are cut to bytes, and not rounded, where torchvision does so. */
#include "image/color.h"

#include <math.h>
#include <string.h>

static uint8_t cut(float v)
{
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* ---- pixels by their color ---- */

typedef struct rgb {
    float r, g, b;
} rgb;

/* x + v * by, rounded once, as PyTorch adds: with a byte v the product and nearly every sum are exact in double. */
static float added(float x, float v, float by)
{
    return (float)((double)x + (double)v * (double)by);
}

static float gray_of(rgb c)
{
    return added(added(c.r * 0.2989f, c.g, 0.587f), c.b, 0.114f);
}

typedef rgb pixel_fn(rgb color, double number);

static void map_colors(const lc__pixels *from, pixel_fn *fn, double number, const lc__pixels *to)
{
    const size_t step = lc__pixel_step(from), to_step = lc__pixel_step(to), pixel = lc__pixel_bytes(from),
                 to_pixel = lc__pixel_bytes(to);
    for (int64_t y = 0; y < from->height; y++) {
        const uint8_t *s = lc__pixel_row(from, y);
        uint8_t *d = lc__pixel_row(to, y);
        for (int64_t x = 0; x < from->width; x++, s += pixel, d += to_pixel) {
            const rgb c = fn((rgb){s[0], s[step], s[2 * step]}, number);
            d[0] = cut(c.r);
            if (to->channels < 3) continue;
            d[to_step] = cut(c.g);
            d[2 * to_step] = cut(c.b);
        }
    }
}

static rgb saturated(rgb c, double ratio)
{
    const float gray = floorf(gray_of(c)), of_color = (float)ratio, of_gray = (float)(1 - ratio);
    return (rgb){added(c.r * of_color, gray, of_gray), added(c.g * of_color, gray, of_gray),
                 added(c.b * of_color, gray, of_gray)};
}

static rgb grayed(rgb c, double unused)
{
    (void)unused;
    const float gray = gray_of(c);
    return (rgb){gray, gray, gray};
}

static float between_0_and_1(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

/* Through hue, saturation and value. */
static rgb turned(rgb c, double turn)
{
    const float r = c.r / 255, g = c.g / 255, b = c.b / 255;
    const float most = fmaxf(r, fmaxf(g, b)), least = fminf(r, fminf(g, b)), range = most - least;
    const bool gray = most == least;
    const float divisor = gray ? 1 : range, s = range / (gray ? 1 : most);
    const float rc = (most - r) / divisor, gc = (most - g) / divisor, bc = (most - b) / divisor;
    float h = most == r ? bc - gc : most == g ? rc + 2 - bc : gc + 4 - rc;
    h = fmodf(h * (1.0f / 6) + 1, 1) + (float)turn;
    h -= floorf(h);
    const float h6 = h * 6, i = floorf(h6), f = h6 - i;
    const float p = between_0_and_1((1 - s) * most), q = between_0_and_1((1 - s * f) * most);
    const float t = between_0_and_1((s * f + (1 - s)) * most), v = most;
    const rgb sextants[6] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
    const rgb out = sextants[(int)i % 6];
    return (rgb){out.r * 255.999f, out.g * 255.999f, out.b * 255.999f};
}

static void same(const lc__pixels *from, const lc__pixels *to)
{
    for (int p = 0; p < lc__pixel_planes(from); p++) {
        const lc__pixels source = lc__pixel_plane(from, p), target = lc__pixel_plane(to, p);
        for (int64_t y = 0; y < from->height && source.at != target.at; y++)
            memcpy(lc__pixel_row(&target, y), lc__pixel_row(&source, y), lc__pixel_bytes(from) * (size_t)from->width);
    }
}

void lc__saturation(const lc__pixels *from, double factor, const lc__pixels *to)
{
    if (from->channels < 3)
        same(from, to);
    else
        map_colors(from, saturated, factor, to);
}

void lc__hue(const lc__pixels *from, double turn, const lc__pixels *to)
{
    if (from->channels < 3)
        same(from, to);
    else
        map_colors(from, turned, turn, to);
}

/* One channel becomes `to`'s three, or stays. */
static void repeat(const lc__pixels *from, const lc__pixels *to)
{
    const size_t step = lc__pixel_step(to), pixel = lc__pixel_bytes(to);
    for (int64_t y = 0; y < from->height; y++) {
        const uint8_t *s = lc__pixel_row(from, y);
        uint8_t *d = lc__pixel_row(to, y);
        for (int64_t x = 0; x < from->width; x++, d += pixel)
            for (int c = 0; c < to->channels; c++) d[(size_t)c * step] = s[x];
    }
}

void lc__gray(const lc__pixels *from, const lc__pixels *to)
{
    if (from->channels < 3)
        repeat(from, to);
    else
        map_colors(from, grayed, 0, to);
}

/* ---- bytes by a table ---- */

void lc__bytes_mapped(const lc__byte_table *t, const lc__pixels *from, const lc__pixels *to)
{
    for (int c = 0; c < from->channels; c++) {
        const size_t at = (size_t)c * lc__pixel_step(from), to_at = (size_t)c * lc__pixel_step(to);
        const size_t pixel = lc__pixel_bytes(from), to_pixel = lc__pixel_bytes(to);
        const uint8_t *table = t->of[c];
        for (int64_t y = 0; y < from->height; y++) {
            const uint8_t *s = lc__pixel_row(from, y) + at;
            uint8_t *d = lc__pixel_row(to, y) + to_at;
            for (int64_t x = 0; x < from->width; x++, s += pixel, d += to_pixel) *d = table[*s];
        }
    }
}

/* The same for all channels. */
static void spread(lc__byte_table *t)
{
    for (int c = 1; c < 3; c++) memcpy(t->of[c], t->of[0], sizeof t->of[0]);
}

void lc__table_brightness(lc__byte_table *t, double factor)
{
    for (int v = 0; v < 256; v++) t->of[0][v] = cut((float)v * (float)factor);
    spread(t);
}

/* The mean of gray values, each a whole number in a picture with colors. */
static double mean_gray(const lc__pixels *p)
{
    const size_t step = lc__pixel_step(p), pixel = lc__pixel_bytes(p);
    int64_t sum = 0;
    for (int64_t y = 0; y < p->height; y++) {
        const uint8_t *s = lc__pixel_row(p, y);
        for (int64_t x = 0; x < p->width; x++, s += pixel)
            sum += p->channels < 3 ? s[0] : (int64_t)gray_of((rgb){s[0], s[step], s[2 * step]});
    }
    return (double)sum / (double)(p->height * p->width);
}

void lc__table_contrast(lc__byte_table *t, const lc__pixels *picture, double factor)
{
    const float ratio = (float)factor, mean = (float)mean_gray(picture);
    for (int v = 0; v < 256; v++) t->of[0][v] = cut(fmaf(mean, (float)(1 - factor), (float)v * ratio));
    spread(t);
}

void lc__table_posterize(lc__byte_table *t, int bits)
{
    const int mask = bits >= 8 ? 255 : ((1 << bits) - 1) << (8 - bits);
    for (int v = 0; v < 256; v++) t->of[0][v] = (uint8_t)(v & mask);
    spread(t);
}

void lc__table_solarize(lc__byte_table *t, double threshold)
{
    for (int v = 0; v < 256; v++) t->of[0][v] = (uint8_t)((float)v >= (float)threshold ? 255 - v : v);
    spread(t);
}

void lc__table_invert(lc__byte_table *t)
{
    lc__table_solarize(t, 0);
}

static void histogram(const lc__pixels *p, int c, int64_t counts[256])
{
    const size_t pixel = lc__pixel_bytes(p);
    memset(counts, 0, 256 * sizeof *counts);
    for (int64_t y = 0; y < p->height; y++) {
        const uint8_t *s = lc__pixel_row(p, y) + (size_t)c * lc__pixel_step(p);
        for (int64_t x = 0; x < p->width; x++, s += pixel) counts[*s]++;
    }
}

void lc__table_autocontrast(lc__byte_table *t, const lc__pixels *picture)
{
    int64_t counts[256];
    for (int c = 0; c < picture->channels; c++) {
        int low = 0, high = 255;
        histogram(picture, c, counts);
        while (!counts[low]) low++;
        while (!counts[high]) high--;
        if (low == high) low = 0, high = 255;
        const float scale = (float)(high - low) * (1.0f / 255);
        for (int v = 0; v < 256; v++) t->of[c][v] = cut((float)(v - low) / scale);
    }
}

void lc__table_equalize(lc__byte_table *t, const lc__pixels *picture)
{
    int64_t counts[256];
    for (int c = 0; c < picture->channels; c++) {
        int high = 255;
        histogram(picture, c, counts);
        while (!counts[high]) high--;
        const int64_t step = (picture->height * picture->width - counts[high]) / 255;
        int64_t sum = step / 2;
        for (int v = 0; v < 256; v++) {
            const int64_t value = step ? sum / step : v;
            t->of[c][v] = (uint8_t)(value > 255 ? 255 : value);
            sum += counts[v];
        }
    }
}
