/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing a picture: bilinear with antialias, as Pillow's resize and torchvision's resize of bytes do. */
#ifndef LC_IMAGE_RESIZE_H
#define LC_IMAGE_RESIZE_H

#include <lightc/status.h>

#include <stddef.h>
#include <stdint.h>

/* The weights for one length, kept for the next picture of that length. */
typedef struct lc__resize_axis {
    int64_t from, to;   /* the lengths they are for */
    int64_t taps;       /* weights of a result, at most; a multiple of 4 */
    int bits;           /* the weights of a result add up to 1 << bits */
    int64_t *first, *n; /* [to]: the first source of each result, and how many it has, */
    int16_t *weights;   /* and their weights, [to,taps] */
    size_t cap_first, cap_n, cap_weights;
} lc__resize_axis;

/* What resizing needs besides the pictures. {0} is empty; one thread uses it at a time. */
typedef struct lc__resize {
    lc__resize_axis x, y;
    uint8_t *narrow; /* [height,to_width,3]: resized along x alone */
    size_t cap_narrow;
} lc__resize;

/* `from` [height,width,3] to `to` [to_height,to_width,3]. Sizes are at least 1. */
lc_status lc__resize_rgb(lc__resize *r, const uint8_t *from, int64_t height, int64_t width, uint8_t *to,
                         int64_t to_height, int64_t to_width) LC_MUST_USE;
void lc__resize_release(lc__resize *r);

#endif
