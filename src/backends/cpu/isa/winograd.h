/* SPDX-License-Identifier: Apache-2.0 */
/* Winograd's minimal filtering for 3 x 3 convolutions with stride 1 (A. Lavin, S. Gray, "Fast Algorithms for
 * Convolutional Neural Networks", 2015): the transforms, on vectors of channels.
 *
 * A tile of 6 x 6 pixels and a 3 x 3 kernel are polynomials; 4 x 4 results follow from the products of their values at
 * 6 x 6 points. Per channel pair that is 36 multiplications instead of 144, and all products at one point, over tiles
 * and channels, are one matrix product. In one dimension, with points p in {0, a, -a, b, -b, infinity}:
 *
 *   results of 4   A^T row i: p^i          ; infinity counts for i = 3
 *   kernel of 3    G row p: (1, p, p^2)/N_p ; infinity: (0, 0, 1)     N_p = product over q != p of (p - q)
 *   pixels         B^T row p: coefficients of M(x) / (x - p)          M(x) = x (x^2 - a^2) (x^2 - b^2)
 *                  infinity: of M(x) itself
 *
 * The gradient of the kernel is the same algorithm with 4 and 3 exchanged: the tile of dy is a kernel of 4, the results
 * are 3. Only a^2, b^2 and their sum and product must be exact; a^2 = 1/2 and b^2 = 2 keep the values at all points of
 * similar size. The error is then twice that of a plain sum; the usual points +-1, +-2 give five times as much
 * (measured; tests/backends/test_winograd.c). */
#ifndef LC_BACKENDS_CPU_ISA_WINOGRAD_H
#define LC_BACKENDS_CPU_ISA_WINOGRAD_H

#include "backends/cpu/isa/vec.h"

#include <stdbool.h>

#define WG_RESULTS 4                       /* of a tile, in one dimension */
#define WG_POINTS  6                       /* pixels of a tile and points, in one dimension */
#define WG_ALL     (WG_POINTS * WG_POINTS) /* points */

static const float wg_a = 0.70710678118654752f, wg_b = 1.4142135623730951f; /* a^2 = 1/2, b^2 = 2 */

/* The pairs of points +-p differ only in a sign. */
LC_INLINE void wg_pair(vf even, vf odd, vf *plus, vf *minus)
{
    *plus = even + odd;
    *minus = even - odd;
}

/* B^T d: six pixels to six points; the first three of them are made from d[0..4], the last three from d[1..5]. */
LC_INLINE void wg_left_pixels(const vf *d, vf *t)
{
    t[0] = d[0] - 2.5f * d[2] + d[4];
    wg_pair(d[4] - 2.f * d[2], wg_a * (d[3] - 2.f * d[1]), &t[1], &t[2]);
}

LC_INLINE void wg_right_pixels(const vf *d, vf *t)
{
    wg_pair(d[4] - .5f * d[2], wg_b * (d[3] - .5f * d[1]), &t[0], &t[1]);
    t[2] = d[1] - 2.5f * d[3] + d[5];
}

LC_INLINE void wg_pixels(const vf *d, vf *t)
{
    wg_left_pixels(d, t);
    wg_right_pixels(d, t + 3);
}

/* G g: a kernel of three. N is 1 at 0, -3/2 at +-a, 6 at +-b. */
LC_INLINE void wg_kernel3(const vf *g, vf *t)
{
    t[0] = g[0];
    wg_pair((-2.f / 3.f) * (g[0] + .5f * g[2]), (-2.f / 3.f * wg_a) * g[1], &t[1], &t[2]);
    wg_pair((1.f / 6.f) * (g[0] + 2.f * g[2]), (1.f / 6.f * wg_b) * g[1], &t[3], &t[4]);
    t[5] = g[2];
}

/* The same without the factors 1 / N, for the gradient of the pixels: the tile of dy, a kernel of four, has them. */
LC_INLINE void wg_values3(const vf *g, vf *t)
{
    t[0] = g[0];
    wg_pair(g[0] + .5f * g[2], wg_a * g[1], &t[1], &t[2]);
    wg_pair(g[0] + 2.f * g[2], wg_b * g[1], &t[3], &t[4]);
    t[5] = g[2];
}

/* G g: a kernel of four. */
LC_INLINE void wg_kernel4(const vf *g, vf *t)
{
    t[0] = g[0];
    wg_pair((-2.f / 3.f) * (g[0] + .5f * g[2]), (-2.f / 3.f * wg_a) * (g[1] + .5f * g[3]), &t[1], &t[2]);
    wg_pair((1.f / 6.f) * (g[0] + 2.f * g[2]), (1.f / 6.f * wg_b) * (g[1] + 2.f * g[3]), &t[3], &t[4]);
    t[5] = g[3];
}

/* A^T m: four results. */
LC_INLINE void wg_results4(const vf *m, vf *y)
{
    vf sa = m[1] + m[2], sb = m[3] + m[4], da = wg_a * (m[1] - m[2]), db = wg_b * (m[3] - m[4]);
    y[0] = m[0] + sa + sb;
    y[1] = da + db;
    y[2] = .5f * sa + 2.f * sb;
    y[3] = .5f * da + 2.f * db + m[5];
}

/* A^T m: three results. */
LC_INLINE void wg_results3(const vf *m, vf *y)
{
    vf sa = m[1] + m[2], sb = m[3] + m[4];
    y[0] = m[0] + sa + sb;
    y[1] = wg_a * (m[1] - m[2]) + wg_b * (m[3] - m[4]);
    y[2] = .5f * sa + 2.f * sb + m[5];
}

/* B m: six points to what they add to six pixels; the first three, the last three, all. */
LC_INLINE void wg_left_pixels_back(const vf *m, vf *d)
{
    d[0] = m[0];
    d[1] = m[5] - 2.f * wg_a * (m[1] - m[2]) - .5f * wg_b * (m[3] - m[4]);
    d[2] = -2.5f * m[0] - 2.f * (m[1] + m[2]) - .5f * (m[3] + m[4]);
}

LC_INLINE void wg_right_pixels_back(const vf *m, vf *d)
{
    d[0] = wg_a * (m[1] - m[2]) + wg_b * (m[3] - m[4]) - 2.5f * m[5];
    d[1] = m[0] + (m[1] + m[2]) + (m[3] + m[4]);
    d[2] = m[5];
}

LC_INLINE void wg_pixels_back(const vf *m, vf *d)
{
    wg_left_pixels_back(m, d);
    wg_right_pixels_back(m, d + 3);
}

typedef void wg_transform(const vf *from, vf *to);

/* transform(x) transform^T, x [n_in][n_in], to [n_out][n_out]; both row-major. */
LC_INLINE void wg_both_ways(wg_transform *transform, const int n_in, const int n_out, const vf *x, vf *to)
{
    vf half[WG_POINTS][WG_POINTS], in[WG_POINTS], out[WG_POINTS];
#pragma GCC unroll 8
    for (int j = 0; j < n_in; j++) {
#pragma GCC unroll 8
        for (int i = 0; i < n_in; i++) in[i] = x[i * n_in + j];
        transform(in, out);
#pragma GCC unroll 8
        for (int i = 0; i < n_out; i++) half[i][j] = out[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < n_out; i++) transform(half[i], to + i * n_out);
}

#endif
