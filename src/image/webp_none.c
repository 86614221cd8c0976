/* SPDX-License-Identifier: Apache-2.0 */
/* Builds without libwebp. */
#include "image/image.h"

lc_status lc__webp_decode(const lc__image_file *file, lc__image *image)
{
    (void)image;
    return lc__image_missing(file, "WebP", "libwebp", "LIGHTC_WITH_WEBP", "libwebp-dev");
}
