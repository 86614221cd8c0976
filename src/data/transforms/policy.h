/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of which AutoAugment, RandAugment and TrivialAugment consist. */
#ifndef LC_DATA_TRANSFORMS_POLICY_H
#define LC_DATA_TRANSFORMS_POLICY_H

#include "image/warp.h"

#include <lightc/transforms.h>

typedef enum lc__augment {
    LC__IDENTITY = 0,
    LC__SHEAR_X,
    LC__SHEAR_Y,
    LC__TRANSLATE_X,
    LC__TRANSLATE_Y,
    LC__ROTATE,
    LC__BRIGHTNESS,
    LC__COLOR,
    LC__CONTRAST,
    LC__SHARPNESS,
    LC__POSTERIZE,
    LC__SOLARIZE,
    LC__AUTOCONTRAST,
    LC__EQUALIZE,
    LC__INVERT,
} lc__augment;

/* The most that the operations do. */
typedef struct lc__strength {
    double shear, translate_x, translate_y, rotate, color, posterize;
} lc__strength;

/* What AutoAugment and RandAugment do at most. */
lc__strength lc__strength_usual(int64_t height, int64_t width);
/* What TrivialAugmentWide does at most. */
extern const lc__strength lc__strength_wide;

/* Magnitude i of `bins`, evenly spaced from none to the most, with torchvision's bits. 0 for operations without one. */
double lc__magnitude(lc__augment op, const lc__strength *s, int i, int bins);

/* torchvision's operation of that name, with the interpolation and the fill of `how`; `to` is not `from`, and has its
 * size and layout. */
void lc__augment_run(lc__augment op, double magnitude, const lc__warp *how, const lc__pixels *from,
                     const lc__pixels *to);

#endif
