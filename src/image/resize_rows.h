/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of resizing. Sums are of integers, so that all variants give the same bytes. */
#ifndef LC_IMAGE_RESIZE_ROWS_H
#define LC_IMAGE_RESIZE_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* The weights of a row's results; see resize.h. */
typedef struct lc__resize_weights {
    int64_t to, taps; /* taps: a multiple of 4 */
    int channels;     /* bytes of a pixel */
    int bits;
    const int64_t *first, *n;
    const int16_t *weights; /* [to,taps]; zeros follow the n of a result */
} lc__resize_weights;

/* Resizes a row of `from` pixels. */
void lc__resize_along_x(const lc__resize_weights *a, const uint8_t *row, int64_t from, uint8_t *to);
/* to[i] = the sum of row k's byte i times w[k], for `width` bytes of n rows, `stride` bytes apart. */
void lc__resize_along_y(const uint8_t *rows, size_t stride, size_t width, int64_t n, const int16_t *w, int bits,
                        uint8_t *to);

#endif
