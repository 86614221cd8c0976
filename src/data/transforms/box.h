/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a picture random_resized_crop takes. */
#ifndef LC_DATA_TRANSFORMS_BOX_H
#define LC_DATA_TRANSFORMS_BOX_H

#include <lightc/transforms.h>

/* In a picture of at least one pixel. */
lc_box lc__resized_crop_box(int64_t height, int64_t width, lc_range scale, lc_range ratio, uint64_t key);

#endif
