/* SPDX-License-Identifier: Apache-2.0 */
/* Computed in floats, in PyTorch's order and with its fused multiply-adds, since the nearest pixel may be another one
 * after a different rounding. */
#include "image/warp.h"

#include <math.h>
#include <string.h>

/* ---- where pixels come from ---- */

static double radians(double degrees)
{
    return degrees * (3.14159265358979323846 / 180);
}

void lc__warp_affine(lc__warp *w, const lc__affine *a, int64_t height, int64_t width)
{
    const double rot = radians(a->angle), sx = radians(a->shear[0]), sy = radians(a->shear[1]);
    const double cx = a->center[0], cy = a->center[1], tx = cx + a->translate[0], ty = cy + a->translate[1];
    /* Rotation and shear; the determinant is 1. */
    const double m00 = cos(rot - sy) / cos(sy), m01 = -(m00 * tan(sx) + sin(rot));
    const double m10 = sin(rot - sy) / cos(sy), m11 = cos(rot) - m10 * tan(sx);
    double inverse[6] = {m11 / a->scale, -m01 / a->scale, 0, -m10 / a->scale, m00 / a->scale, 0};
    inverse[2] = cx - inverse[0] * tx - inverse[1] * ty;
    inverse[5] = cy - inverse[3] * tx - inverse[4] * ty;
    w->perspective = false;
    for (int i = 0; i < 3; i++) {
        w->to_x[i] = (float)inverse[i] / (0.5f * (float)width);
        w->to_y[i] = (float)inverse[3 + i] / (0.5f * (float)height);
    }
}

/* Solves a linear system of 8 equations, in place, with pivots. */
static bool solve(double m[8][9])
{
    for (int c = 0; c < 8; c++) {
        int pivot = c;
        for (int r = c + 1; r < 8; r++)
            if (fabs(m[r][c]) > fabs(m[pivot][c])) pivot = r;
        if (!(fabs(m[pivot][c]) > 1e-12)) return false;
        for (int k = 0; k < 9; k++) {
            double t = m[c][k];
            m[c][k] = m[pivot][k];
            m[pivot][k] = t;
        }
        for (int r = 0; r < 8; r++) {
            if (r == c) continue;
            double f = m[r][c] / m[c][c];
            for (int k = c; k < 9; k++) m[r][k] -= f * m[c][k];
        }
    }
    for (int r = 0; r < 8; r++) m[r][8] /= m[r][r];
    return true;
}

bool lc__warp_perspective(lc__warp *w, const double from[4][2], const double to[4][2], int64_t height, int64_t width)
{
    double m[8][9];
    for (int i = 0; i < 4; i++) {
        const double x = to[i][0], y = to[i][1], fx = from[i][0], fy = from[i][1];
        memcpy(m[2 * i], (double[9]){x, y, 1, 0, 0, 0, -fx * x, -fx * y, fx}, sizeof m[0]);
        memcpy(m[2 * i + 1], (double[9]){0, 0, 0, x, y, 1, -fy * x, -fy * y, fy}, sizeof m[0]);
    }
    if (!solve(m)) return false;
    for (int i = 0; i < 3; i++) {
        w->to_x[i] = (float)m[i][8] / (0.5f * (float)width);
        w->to_y[i] = (float)m[3 + i][8] / (0.5f * (float)height);
    }
    w->divisor[0] = (float)m[6][8];
    w->divisor[1] = (float)m[7][8];
    w->perspective = true;
    return true;
}

/* ---- pixels ---- */

#define INLINE static inline __attribute__((always_inline))

/* PyTorch's product of matrices, where it fuses. For pictures of fewer than 67 pixels, and on some processors for all,
 * it does not, which is not followed here. */
INLINE float sum_of(const float by[3], float x, float y)
{
    return fmaf(y, by[1], x * by[0]) + by[2];
}

/* The source of result (x, y), in pixels of the source. */
INLINE void source_of(const lc__warp *w, const lc__pixels *from, int64_t x, int64_t y, float *sx, float *sy)
{
    float px, py, gx, gy;
    if (w->perspective) {
        px = (float)x + 0.5f;
        py = (float)y + 0.5f;
        const float d = fmaf(py, w->divisor[1], px * w->divisor[0]) + 1;
        gx = sum_of(w->to_x, px, py) / d - 1;
        gy = sum_of(w->to_y, px, py) / d - 1;
    } else {
        px = (float)x + (float)(1 - from->width) * 0.5f;
        py = (float)y + (float)(1 - from->height) * 0.5f;
        gx = sum_of(w->to_x, px, py);
        gy = sum_of(w->to_y, px, py);
    }
    *sx = fmaf(gx + 1, (float)from->width / 2, -0.5f);
    *sy = fmaf(gy + 1, (float)from->height / 2, -0.5f);
}

static float fill_of(const lc__warp *w, size_t channel)
{
    return w->fill[w->fills > 1 ? channel : 0];
}

static void beyond(const lc__warp *w, size_t channels, uint8_t *to)
{
    for (size_t c = 0; c < channels; c++) to[c] = (uint8_t)lrintf(fill_of(w, c));
}

static void nearest(const lc__warp *w, const lc__pixels *from, float sx, float sy, uint8_t *to)
{
    const size_t pixel = (size_t)from->channels;
    sx = nearbyintf(sx);
    sy = nearbyintf(sy);
    if (sx >= 0 && sx < (float)from->width && sy >= 0 && sy < (float)from->height)
        memcpy(to, lc__pixel_row(from, (int64_t)sy) + pixel * (size_t)sx, pixel);
    else
        beyond(w, pixel, to);
}

static void bilinear(const lc__warp *w, const lc__pixels *from, float sx, float sy, uint8_t *to)
{
    const size_t pixel = (size_t)from->channels;
    const float height = (float)from->height, width = (float)from->width, left = floorf(sx), top = floorf(sy);
    if (!(sx > -1 && sx < width && sy > -1 && sy < height)) { /* also if they are NaN */
        beyond(w, pixel, to);
        return;
    }
    const float right = sx - left, below = sy - top;
    const float weights[4] = {(1 - right) * (1 - below), right * (1 - below), (1 - right) * below, right * below};
    const uint8_t *at[4];
    float share[4], inside = 0;
    int n = 0;
    for (int i = 0; i < 4; i++) {
        const int64_t x = (int64_t)left + (i & 1), y = (int64_t)top + (i >> 1);
        if (x < 0 || x >= from->width || y < 0 || y >= from->height) continue;
        at[n] = lc__pixel_row(from, y) + pixel * (size_t)x;
        inside += weights[i];
        share[n++] = weights[i];
    }
    for (size_t c = 0; c < pixel; c++) {
        float v = 0;
        for (int i = 0; i < n; i++) v += (float)at[i][c] * share[i];
        if (w->fills) v = (v - fill_of(w, c)) * inside + fill_of(w, c);
        const long rounded = lrintf(v);
        to[c] = (uint8_t)(rounded < 0 ? 0 : rounded > 255 ? 255 : rounded);
    }
}

INLINE void run_plane(const lc__warp *w, const lc__pixels *source, const lc__pixels *target)
{
    for (int64_t y = 0; y < target->height; y++) {
        uint8_t *at = lc__pixel_row(target, y);
        for (int64_t x = 0; x < target->width; x++, at += target->channels) {
            float sx, sy;
            source_of(w, source, x, y, &sx, &sy);
            if (w->bilinear)
                bilinear(w, source, sx, sy, at);
            else
                nearest(w, source, sx, sy, at);
        }
    }
}

static void run_anywhere(const lc__warp *w, const lc__pixels *source, const lc__pixels *target)
{
    run_plane(w, source, target);
}

#if defined(__x86_64__)
/* Without the instruction, fmaf is a function of the C library, with the same results. */
__attribute__((target("fma"))) static void run_fused(const lc__warp *w, const lc__pixels *source,
                                                     const lc__pixels *target)
{
    run_plane(w, source, target);
}

static bool has_fused(void)
{
    return __builtin_cpu_supports("fma");
}
#else
#define run_fused run_anywhere

static bool has_fused(void)
{
    return true;
}
#endif

void lc__warp_run(const lc__warp *w, const lc__pixels *from, const lc__pixels *to)
{
    const bool fused = has_fused();
    for (int p = 0; p < lc__pixel_planes(from); p++) {
        const lc__pixels source = lc__pixel_plane(from, p), target = lc__pixel_plane(to, p);
        lc__warp own = *w;
        if (from->planar && w->fills > 1) own.fill[0] = w->fill[p], own.fills = 1;
        if (fused)
            run_fused(&own, &source, &target);
        else
            run_anywhere(&own, &source, &target);
    }
}

void lc__turn(int quarters, const lc__pixels *from, const lc__pixels *to)
{
    const int64_t right = to->width - 1, bottom = to->height - 1;
    for (int p = 0; p < lc__pixel_planes(from); p++) {
        const lc__pixels source = lc__pixel_plane(from, p), target = lc__pixel_plane(to, p);
        const size_t pixel = (size_t)source.channels;
        for (int64_t y = 0; y < target.height; y++)
            for (int64_t x = 0; x < target.width; x++) {
                const int64_t sy = quarters == 0 ? y : quarters == 1 ? x : quarters == 2 ? bottom - y : right - x;
                const int64_t sx = quarters == 0 ? x : quarters == 1 ? bottom - y : quarters == 2 ? right - x : y;
                memcpy(lc__pixel_row(&target, y) + pixel * (size_t)x, lc__pixel_row(&source, sy) + pixel * (size_t)sx,
                       pixel);
            }
    }
}
