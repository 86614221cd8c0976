/* SPDX-License-Identifier: Apache-2.0 */
/* Rotated, sheared and tilted pictures, as torchvision's v2 affine, rotate and perspective make them of bytes. */
#ifndef LC_IMAGE_WARP_H
#define LC_IMAGE_WARP_H

#include "image/pixels.h"

#include <lightc/transforms.h>

/* Which point of the source each point (x, y) of the result comes from: ((a x + b y + c) / d, (e x + f y + g) / d),
 * where the source goes from -1 to 1 in both directions; d is 1, or h x + i y + 1. */
typedef struct lc__warp {
    float to_x[3], to_y[3]; /* a, b, c; e, f, g */
    float divisor[2];       /* h, i */
    bool perspective;       /* there is a divisor, and points begin at the upper left corner instead of the middle */
    bool bilinear;          /* else nearest */
    /* The value of pixels beyond the source: a number for each channel, one for all, or 0. */
    int fills;
    float fill[LC_MAX_COLOR];
} lc__warp;

/* What affine(angle, translate, scale, shear) of torchvision does with a picture; angles in degrees; `center` is where
 * (0, 0) is, from the middle of the picture. */
typedef struct lc__affine {
    double angle, translate[2], scale, shear[2], center[2];
} lc__affine;
void lc__warp_affine(lc__warp *w, const lc__affine *a, int64_t height, int64_t width);
/* What perspective() does: the corners `from` of the source (upper left, upper right, lower right, lower left; x and y)
 * go to `to`. False: there is no such picture. */
bool lc__warp_perspective(lc__warp *w, const double from[4][2], const double to[4][2], int64_t height, int64_t width);

/* `to` has the size, the channels and the layout of `from`. */
void lc__warp_run(const lc__warp *w, const lc__pixels *from, const lc__pixels *to);
/* Turns by `quarters` of 90 degrees against the clock; of an odd number, a square. */
void lc__turn(int quarters, const lc__pixels *from, const lc__pixels *to);

#endif
