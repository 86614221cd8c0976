/* SPDX-License-Identifier: Apache-2.0 */
/* Warps as the transforms and policies ask for them. */
#ifndef LC_DATA_TRANSFORMS_WARP_H
#define LC_DATA_TRANSFORMS_WARP_H

#include "image/warp.h"

#include <lightc/transforms.h>

/* A warp with an interpolation and a fill: a color, or else a number, which may be LC_NOT_GIVEN. Where pixels come from
 * is still open. */
lc__warp lc__warp_of(lc_resample interpolation, double fill, const lc_color *color);
/* Against the clock, in degrees, around a point from the middle. */
void lc__rotate(const lc__pixels *from, double angle, const double center[2], const lc__warp *how,
                const lc__pixels *to);

#endif
