/* SPDX-License-Identifier: Apache-2.0 */
/* What transforms are built on: fields as pictures, arguments that are checked, numbers that are drawn. */
#ifndef LC_DATA_TRANSFORMS_TRANSFORM_H
#define LC_DATA_TRANSFORMS_TRANSFORM_H

#include "base/args.h"
#include "data/data_internal.h"
#include "data/transforms/box.h"
#include "image/pixels.h"
#include "image/resize.h"

#include <lightc/transforms.h>

/* A transform with a copy of `self`, which is freed with it. */
lc_status lc__transform_make(const lc_transform_ops *ops, const void *self, size_t size, lc_transform *out) LC_MUST_USE;

/* A field as a picture: row-major C,H,W is C planes of pixels of one element; channels-last is one plane of pixels of C
 * elements. Sizes are 0 if they are not known yet. */
typedef struct lc__picture {
    int64_t channels, height, width, planes;
    size_t pixel; /* bytes */
} lc__picture;

lc_status lc__picture_of(const char *who, const lc_field *f, lc__picture *m) LC_MUST_USE;
/* The same, which must be of bytes; `channels` (unless 0) are allowed, and 1. */
lc_status lc__byte_picture_of(const char *who, const lc_field *f, int channels, lc__picture *m) LC_MUST_USE;
void lc__picture_resize(lc_field *f, int64_t height, int64_t width);
/* The pixels of a field of bytes. */
lc__pixels lc__pixels_of(const lc_field *f, const void *data);

/* The value of pixels that are filled: an element for each channel, or one for all. */
typedef struct lc__fill {
    int n;
    size_t size; /* bytes of an element */
    unsigned char of[LC_MAX_COLOR][8];
} lc__fill;

/* `color`, or `value` if there is none, as elements of a picture; an error if its type cannot hold them, or it has
 * another number of channels. */
lc_status lc__fill_of(const char *who, const lc_field *f, double value, const lc_color *color,
                      lc__fill *fill) LC_MUST_USE;
/* Fills a part of a picture. */
void lc__fill_box(const lc__picture *m, char *data, const lc_box *box, const lc__fill *fill);

/* ---- arguments ---- */

lc_status lc__check_probability(const char *who, double p) LC_MUST_USE;
/* Both ends are from `least` to `most`, in their order. */
lc_status lc__check_range(const char *who, const char *what, lc_range r, double least, double most) LC_MUST_USE;
lc_status lc__check_size(const char *who, int64_t height, int64_t width) LC_MUST_USE;
/* With the constant, which may only be a color if the mode has one. */
lc_status lc__check_padding_mode(const char *who, lc_padding_mode mode, double fill, const lc_color *color) LC_MUST_USE;
/* A color, or a number for all channels, but not both. */
lc_status lc__check_color(const char *who, double value, const lc_color *color) LC_MUST_USE;
/* Whether `color` has one number, or as many as the picture of field `f` has channels. */
lc_status lc__check_channels(const char *who, const lc_field *f, const lc_color *color) LC_MUST_USE;
/* Nearest or bilinear, and a fill that bytes can hold; LC_NOT_GIVEN is one too if `optional`. */
lc_status lc__check_warp(const char *who, lc_resample interpolation, double fill, const lc_color *color,
                         bool optional) LC_MUST_USE;

/* ---- random numbers ---- */

static inline double lc__draw(uint64_t key, uint64_t i, lc_range r)
{
    return r.from + (r.to - r.from) * lc_random_uniform(key, i);
}

/* ---- pad.c ---- */

/* The part of `in` under a window of `out`'s size at (top, left). The window may extend beyond `in`, or be outside of
 * it: `mode` says which pixels it has there, and `fill` is the constant. */
void lc__padded_window(const lc__picture *in, const char *src, const lc__picture *out, char *dst, int64_t top,
                       int64_t left, lc_padding_mode mode, const lc__fill *fill);
/* The part of `in` that a window is made of, of at least one pixel. */
lc_box lc__window_reads(const lc__picture *in, lc_box window, lc_padding_mode mode);
/* Whether a picture is large enough to be padded so far with `mode`. */
lc_status lc__check_padding(const char *who, const lc__picture *in, const int64_t sides[4],
                            lc_padding_mode mode) LC_MUST_USE;

/* ---- resize.c ---- */

lc_status lc__check_resample(const char *who, lc_resample interpolation) LC_MUST_USE;
/* Bytes of scratch that resizing `from`, whose size is known, or any part of it needs. */
size_t lc__resample_scratch(const lc__pixels *from, int64_t height, int64_t width, lc_resample interpolation,
                            bool antialias);
/* Resizes a part of `from` to `to`. */
void lc__resample(const lc__pixels *from, const lc_box *part, const lc__pixels *to, lc_resample interpolation,
                  bool antialias, void *scratch);

#endif
