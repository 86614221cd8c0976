/* SPDX-License-Identifier: Apache-2.0 */
/* The colors of a picture, changed as torchvision's v2 functions change bytes, and blurs. `to` has the size, the
 * channels and the layout of `from`, and may be it where that is said. Pictures have 1 or 3 channels. */
#ifndef LC_IMAGE_COLOR_H
#define LC_IMAGE_COLOR_H

#include "image/pixels.h"

/* Each byte becomes another one: table[channel][byte]; `to` may be `from`. */
typedef struct lc__byte_table {
    uint8_t of[3][256];
} lc__byte_table;
void lc__bytes_mapped(const lc__byte_table *table, const lc__pixels *from, const lc__pixels *to);

/* Tables. Some depend on the picture. */
void lc__table_brightness(lc__byte_table *t, double factor);
void lc__table_contrast(lc__byte_table *t, const lc__pixels *picture, double factor);
void lc__table_posterize(lc__byte_table *t, int bits);
void lc__table_solarize(lc__byte_table *t, double threshold);
void lc__table_invert(lc__byte_table *t);
void lc__table_autocontrast(lc__byte_table *t, const lc__pixels *picture);
void lc__table_equalize(lc__byte_table *t, const lc__pixels *picture);

/* `to` may be `from`. */
void lc__saturation(const lc__pixels *from, double factor, const lc__pixels *to);
void lc__hue(const lc__pixels *from, double turn, const lc__pixels *to);
/* Gray in each channel of `to`, which has 1 or 3, or may be `from`. */
void lc__gray(const lc__pixels *from, const lc__pixels *to);

/* `to` must not be `from`. */
void lc__sharpness(const lc__pixels *from, double factor, const lc__pixels *to);

/* Floats that lc__blur needs for a picture. */
size_t lc__blur_room(int64_t height, int64_t width);
/* Gaussian; kernels are odd, and at most twice the picture's size less one. `to` may be `from`. */
void lc__blur(const lc__pixels *from, int64_t kernel_height, int64_t kernel_width, double sigma, const lc__pixels *to,
              float *room);

#endif
