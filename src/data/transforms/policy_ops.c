/* SPDX-License-Identifier: Apache-2.0 */
#include "data/transforms/policy.h"
#include "data/transforms/warp.h"
#include "image/color.h"

#include <math.h>
#include <string.h>

static void run_warp(lc__augment op, double magnitude, const lc__warp *how, const lc__pixels *from,
                     const lc__pixels *to)
{
    static const double middle[2];
    const double degrees = atan(magnitude) * (180 / 3.14159265358979323846);
    lc__warp w = *how;
    lc__affine a = {.scale = 1};
    if (op == LC__ROTATE) {
        lc__rotate(from, magnitude, middle, how, to);
        return;
    }
    if (op == LC__SHEAR_X) a.shear[0] = degrees;
    if (op == LC__SHEAR_Y) a.shear[1] = degrees;
    if (op == LC__TRANSLATE_X) a.translate[0] = trunc(magnitude);
    if (op == LC__TRANSLATE_Y) a.translate[1] = trunc(magnitude);
    if (op == LC__SHEAR_X || op == LC__SHEAR_Y) {
        a.center[0] = -0.5 * (double)from->width;
        a.center[1] = -0.5 * (double)from->height;
    }
    lc__warp_affine(&w, &a, from->height, from->width);
    lc__warp_run(&w, from, to);
}

static void run_table(lc__augment op, double magnitude, const lc__pixels *from, const lc__pixels *to)
{
    lc__byte_table t;
    if (op == LC__BRIGHTNESS) lc__table_brightness(&t, 1 + magnitude);
    if (op == LC__CONTRAST) lc__table_contrast(&t, from, 1 + magnitude);
    if (op == LC__POSTERIZE) lc__table_posterize(&t, (int)magnitude);
    if (op == LC__SOLARIZE) lc__table_solarize(&t, 255 * magnitude);
    if (op == LC__AUTOCONTRAST) lc__table_autocontrast(&t, from);
    if (op == LC__EQUALIZE) lc__table_equalize(&t, from);
    if (op == LC__INVERT) lc__table_invert(&t);
    lc__bytes_mapped(&t, from, to);
}

void lc__augment_run(lc__augment op, double magnitude, const lc__warp *how, const lc__pixels *from,
                     const lc__pixels *to)
{
    if (op == LC__IDENTITY)
        lc__turn(0, from, to);
    else if (op <= LC__ROTATE)
        run_warp(op, magnitude, how, from, to);
    else if (op == LC__COLOR)
        lc__saturation(from, 1 + magnitude, to);
    else if (op == LC__SHARPNESS)
        lc__sharpness(from, 1 + magnitude, to);
    else
        run_table(op, magnitude, from, to);
}
