/* SPDX-License-Identifier: Apache-2.0 */
/* Pixels and what is around them: sharpness, and the Gaussian blur, one dimension after the other in floats. */
#include "image/color.h"

#include <math.h>
#include <string.h>

static uint8_t rounded(float v)
{
    const long n = lrintf(v);
    return (uint8_t)(n < 0 ? 0 : n > 255 ? 255 : n);
}

/* ---- sharpness ---- */

/* A pixel's middle counts five times as much as each of the eight around it. */
static uint8_t sharpened(const uint8_t *s, size_t pixel, size_t stride, float ratio)
{
    int around = 4 * s[0];
    for (int y = -1; y <= 1; y++)
        for (int x = -1; x <= 1; x++) around += (s + (ptrdiff_t)stride * y)[(ptrdiff_t)pixel * x];
    const float v = (float)s[0], soft = nearbyintf((float)around / 13), out = v + (soft - v) * (1 - ratio);
    return (uint8_t)(out < 0 ? 0 : out > 255 ? 255 : out);
}

void lc__sharpness(const lc__pixels *from, double factor, const lc__pixels *to)
{
    const size_t pixel = lc__pixel_bytes(from), bytes = pixel * (size_t)from->width;
    for (int p = 0; p < lc__pixel_planes(from); p++) {
        const lc__pixels source = lc__pixel_plane(from, p), target = lc__pixel_plane(to, p);
        for (int64_t y = 0; y < from->height; y++) {
            const uint8_t *s = lc__pixel_row(&source, y);
            uint8_t *d = lc__pixel_row(&target, y);
            memcpy(d, s, bytes);
            if (y == 0 || y == from->height - 1 || from->width <= 2) continue;
            for (size_t i = pixel; i < bytes - pixel; i++) d[i] = sharpened(s + i, pixel, source.stride, (float)factor);
        }
    }
}

/* ---- Gaussian blur ---- */

#define MOST_TAPS 1024

size_t lc__blur_room(int64_t height, int64_t width)
{
    const size_t longer = (size_t)(height > width ? height : width);
    return (size_t)height * (size_t)width + 2 * longer + MOST_TAPS;
}

static void weights(float *w, int64_t n, double sigma)
{
    const double end = (double)(n - 1) / (2 * sqrt(2.0));
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = (n > 1 ? -end + 2 * end * (double)i / (double)(n - 1) : 0) / sigma;
        w[i] = (float)exp(-x * x);
        sum += (double)w[i];
    }
    for (int64_t i = 0; i < n; i++) w[i] = (float)((double)w[i] / sum);
}

/* Index i of a line of n, reflected at its ends without repeating them. */
static int64_t reflected(int64_t i, int64_t n)
{
    if (i < 0) i = -i;
    return i < n ? i : 2 * (n - 1) - i;
}

/* line[0, n) -> itself, through `wide`, which has room for n + taps. */
static void blur_line(float *line, int64_t n, size_t step, const float *w, int64_t taps, float *wide)
{
    const int64_t half = taps / 2;
    for (int64_t i = 0; i < n + taps - 1; i++) wide[i] = line[(size_t)reflected(i - half, n) * step];
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int64_t k = 0; k < taps; k++) sum += wide[i + k] * w[k];
        line[(size_t)i * step] = sum;
    }
}

void lc__blur(const lc__pixels *from, int64_t kernel_height, int64_t kernel_width, double sigma, const lc__pixels *to,
              float *room)
{
    const int64_t height = from->height, width = from->width;
    const size_t pixel = lc__pixel_bytes(from), to_pixel = lc__pixel_bytes(to);
    float *w = room, *wide = w + MOST_TAPS / 2,
          *plane = room + lc__blur_room(0, 0) + 2 * (height > width ? height : width);
    for (int c = 0; c < from->channels; c++) {
        const size_t at = (size_t)c * lc__pixel_step(from), to_at = (size_t)c * lc__pixel_step(to);
        weights(w, kernel_width, sigma);
        for (int64_t y = 0; y < height; y++) {
            float *row = plane + y * width;
            for (int64_t x = 0; x < width; x++) row[x] = (float)(lc__pixel_row(from, y) + at)[(size_t)x * pixel];
            blur_line(row, width, 1, w, kernel_width, wide);
        }
        weights(w, kernel_height, sigma);
        for (int64_t x = 0; x < width; x++) blur_line(plane + x, height, (size_t)width, w, kernel_height, wide);
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x++)
                (lc__pixel_row(to, y) + to_at)[(size_t)x * to_pixel] = rounded(plane[y * width + x]);
    }
}
