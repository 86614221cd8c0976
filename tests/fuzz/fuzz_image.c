/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of any format: for any bytes the decoders return a status, and on success a picture that can be read. */
#include "image/image.h"
#include "image/resize.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t small[5 * 7 * 3], place[17 * 23 * 3];

static double a_fifth(void *ctx, int64_t height, int64_t width)
{
    (void)ctx;
    if (height < 1 || width < 1) abort();
    return 0.2;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lc__image image; /* kept, as a thread of a loader does */
    static lc__resize resize;
    const lc__image_file file = {data, size, "input", 1 << 20, size % 2 == 0, size % 5 ? NULL : a_fifth, NULL};
    image.into = size % 3 ? place : NULL;
    image.into_height = 17;
    image.into_width = 23;
    if (lc__image_decode(&file, &image) == LC_OK) {
        if (image.height < 1 || image.width < 1 || image.height * image.width > file.max_pixels) abort();
        if (lc__resize_rgb(&resize, image.pixels, image.height, image.width, small, 5, 7) != LC_OK) abort();
    } else if (!*lc_error_message()) {
        abort();
    }
    return 0;
}
