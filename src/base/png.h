/* SPDX-License-Identifier: Apache-2.0 */
/* Writing PNG pictures. */
#ifndef LC_BASE_PNG_H
#define LC_BASE_PNG_H

#include "base/str.h"

/* Appends a picture as a PNG file. `pixels` is [height,width,channels] of bytes; channels: 1 gray, 2 gray and alpha, 3
 * RGB, 4 RGBA. Sides are from 1 to 2^31 - 1. */
lc_status lc__png_add(lc__str *out, const uint8_t *pixels, int width, int height, int channels) LC_MUST_USE;

#endif
