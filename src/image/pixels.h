/* SPDX-License-Identifier: Apache-2.0 */
/* A picture of bytes in memory, in either layout. */
#ifndef LC_IMAGE_PIXELS_H
#define LC_IMAGE_PIXELS_H

#include <lightc/data.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lc__pixels {
    int64_t height, width;
    int channels;
    bool planar;   /* [channels,height,width]; else [height,width,channels] */
    uint8_t *at;   /* of a source, which is only read, as well */
    size_t stride; /* bytes from one row to the next, of a plane if planar; plane after plane is height * stride */
} lc__pixels;

/* What `a` and `b` have in common; without rows or without columns if that is nothing. */
static inline lc_box lc__box_within(lc_box a, lc_box b)
{
    const int64_t top = a.top > b.top ? a.top : b.top, left = a.left > b.left ? a.left : b.left;
    const int64_t bottom = a.top + a.height < b.top + b.height ? a.top + a.height : b.top + b.height;
    const int64_t right = a.left + a.width < b.left + b.width ? a.left + a.width : b.left + b.width;
    return (lc_box){top, left, bottom > top ? bottom - top : 0, right > left ? right - left : 0};
}

/* Bytes of a pixel that are adjacent. */
static inline size_t lc__pixel_bytes(const lc__pixels *p)
{
    return p->planar ? 1 : (size_t)p->channels;
}

static inline int lc__pixel_planes(const lc__pixels *p)
{
    return p->planar ? p->channels : 1;
}

/* One plane, as a picture of one channel; a picture that is not planar is its only one. */
static inline lc__pixels lc__pixel_plane(const lc__pixels *p, int plane)
{
    lc__pixels one = *p;
    if (!p->planar) return one;
    one.planar = false;
    one.channels = 1;
    one.at += (size_t)plane * (size_t)p->height * p->stride;
    return one;
}

/* The bytes from one channel of a pixel to the next. */
static inline size_t lc__pixel_step(const lc__pixels *p)
{
    return p->planar ? (size_t)p->height * p->stride : 1;
}

static inline uint8_t *lc__pixel_row(const lc__pixels *p, int64_t y)
{
    return p->at + (size_t)y * p->stride;
}

#endif
