/* SPDX-License-Identifier: Apache-2.0 */
/* Builds without libjpeg. */
#include "image/image.h"

lc_status lc__jpeg_decode(const lc__image_file *file, lc__image *image)
{
    (void)image;
    return lc__image_missing(file, "JPEG", "libjpeg", "LIGHTC_WITH_JPEG", "libjpeg-dev");
}
