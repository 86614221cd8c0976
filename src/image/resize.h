/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing a picture, with the filters of torchvision's v2 resize of bytes; those with antialias are Pillow's. */
#ifndef LC_IMAGE_RESIZE_H
#define LC_IMAGE_RESIZE_H

#include "image/pixels.h"
#include "image/resize_groups.h"

#include <lightc/status.h>

typedef enum lc__filter {
    LC__FILTER_NEAREST = 0,
    LC__FILTER_NEAREST_EXACT,
    LC__FILTER_BILINEAR,
    LC__FILTER_BICUBIC,
} lc__filter;

/* The sizes of a resize; all are at least 1. */
typedef struct lc__resize_sizes {
    int64_t height, width, to_height, to_width;
    int channels; /* side by side */
    lc__filter filter;
    bool antialias; /* of bilinear and bicubic: when a picture shrinks, all of its pixels count */
} lc__resize_sizes;

/* The weights for one length. */
typedef struct lc__resize_axis {
    int64_t from, to;
    int64_t taps;       /* weights of a result, at most; a multiple of 4 */
    int bits;           /* the weights of a result add up to 1 << bits, up to rounding */
    int64_t *first, *n; /* [to]: the first source of each result, and how many it has, */
    int16_t *weights;   /* and their weights, [to,taps] */
} lc__resize_axis;

/* What a resize computes once for its sizes; its arrays are in memory of the caller's. */
typedef struct lc__resize_plan {
    lc__resize_sizes sizes;
    lc__resize_axis x, y;
    lc__resize_groups groups; /* of x */
    uint8_t *narrow;          /* [height,to_width,channels]: resized only along x */
} lc__resize_plan;

/* LC_ERR_FORMAT if a resize would make many more pixels than there are: of a thin picture, whose sides are far apart.
 */
lc_status lc__resize_check(int64_t height, int64_t width, int64_t to_height, int64_t to_width) LC_MUST_USE;
/* The bytes that a plan's arrays need, 64-byte aligned; 0: more than there can be. */
size_t lc__resize_room(const lc__resize_sizes *s);
void lc__resize_prepare(lc__resize_plan *plan, const lc__resize_sizes *s, void *room);
/* `from` has the plan's height and width, with `stride` bytes a row; `to` has to_width * channels. */
void lc__resize_run(const lc__resize_plan *plan, const uint8_t *from, size_t stride, uint8_t *to);

/* A plan that is kept for the next picture of the same size, and its memory. {0} is empty; one thread uses it at a
 * time. */
typedef struct lc__resize {
    lc__resize_plan plan;
    uint8_t *room;
    size_t cap_room;
} lc__resize;

/* `from` [height,width,3] to `to` [to_height,to_width,3], bilinear with antialias. Sizes are at least 1. */
lc_status lc__resize_rgb(lc__resize *r, const uint8_t *from, int64_t height, int64_t width, uint8_t *to,
                         int64_t to_height, int64_t to_width) LC_MUST_USE;
void lc__resize_release(lc__resize *r);

#endif
