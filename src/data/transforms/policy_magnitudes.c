/* SPDX-License-Identifier: Apache-2.0 */
/* Magnitudes in f32, as torchvision's: a translation is cut to whole pixels and a threshold is compared with bytes, so
 * that the last bit of a magnitude can move a picture or invert a byte. */
#include "data/transforms/policy.h"

#include <math.h>

const lc__strength lc__strength_wide = {0.99, 32, 32, 135, 0.99, 6};

lc__strength lc__strength_usual(int64_t height, int64_t width)
{
    return (lc__strength){0.3, 150.0 / 331.0 * (double)width, 150.0 / 331.0 * (double)height, 30, 0.9, 4};
}

/* Number i of n, evenly spaced: torch.linspace, which counts from the nearer end and rounds once. */
static float spaced(double from, double to, int i, int n)
{
    const float start = (float)from, end = (float)to, step = (end - start) / (float)(n - 1);
    return i < n / 2 ? fmaf(step, (float)i, start) : fmaf(-step, (float)(n - 1 - i), end);
}

double lc__magnitude(lc__augment op, const lc__strength *s, int i, int bins)
{
    switch (op) {
    case LC__SHEAR_X:
    case LC__SHEAR_Y:
        return spaced(0, s->shear, i, bins);
    case LC__TRANSLATE_X:
        return spaced(0, s->translate_x, i, bins);
    case LC__TRANSLATE_Y:
        return spaced(0, s->translate_y, i, bins);
    case LC__ROTATE:
        return spaced(0, s->rotate, i, bins);
    case LC__BRIGHTNESS:
    case LC__COLOR:
    case LC__CONTRAST:
    case LC__SHARPNESS:
        return spaced(0, s->color, i, bins);
    case LC__POSTERIZE:
        return nearbyintf(8 - (float)i / (float)((bins - 1) / s->posterize));
    case LC__SOLARIZE:
        return spaced(1, 0, i, bins);
    default:
        return 0;
    }
}
