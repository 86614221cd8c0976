/* SPDX-License-Identifier: Apache-2.0 */
/* Builds without libpng. */
#include "image/image.h"

lc_status lc__png_decode(const lc__image_file *file, lc__image *image)
{
    (void)image;
    return lc__image_missing(file, "PNG", "libpng", "LIGHTC_WITH_PNG", "libpng-dev");
}
