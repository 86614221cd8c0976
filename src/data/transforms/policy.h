/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of which AutoAugment, RandAugment and TrivialAugment consist. */
#ifndef LC_DATA_TRANSFORMS_POLICY_H
#define LC_DATA_TRANSFORMS_POLICY_H

#include "image/pixels.h"

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

/* torchvision's operation of that name; `to` is not `from`, and has its size and layout. */
void lc__augment_run(lc__augment op, double magnitude, lc_resample interpolation, double fill, const lc__pixels *from,
                     const lc__pixels *to);

#endif
