/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of any format: for any bytes the decoders return a status, and on success a picture that can be read. */
#include "image/image.h"
#include "image/resize.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t small[5 * 7 * 3], place[17 * 23 * 3];

static double a_fifth(void *ctx, int64_t height, int64_t width)
{
    (void)ctx;
    if (height < 1 || width < 1) abort();
    return 0.2;
}

/* Rows and columns from the middle on. */
static lc_box a_quarter(void *ctx, int64_t height, int64_t width)
{
    (void)ctx;
    if (height < 1 || width < 1) abort();
    return (lc_box){height / 2, width / 2, (height + 3) / 4, (width + 3) / 4};
}

/* A part is what it is in the whole picture, and as good. */
static void compare_with_the_whole(lc__image_file file, lc_status status, const lc__image *image)
{
    static lc__image whole;
    file.reads = NULL;
    if (lc__image_decode(&file, &whole) != status) abort();
    if (status != LC_OK) return;
    if (whole.height != image->height || whole.width != image->width) abort();
    const lc_box part = a_quarter(NULL, whole.height, whole.width);
    for (int64_t y = part.top; y < part.top + part.height; y++) {
        const int64_t at = 3 * (y * whole.width + part.left);
        if (memcmp(whole.pixels + at, image->pixels + at, (size_t)(3 * part.width))) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lc__image image; /* kept, as a thread of a loader does */
    static lc__resize resize;
    const lc__image_file file = {
        data, size, "input", 1 << 20, size % 2 == 0, size % 5 ? NULL : a_fifth, size % 7 ? NULL : a_quarter, NULL};
    image.into = size % 3 ? place : NULL;
    image.into_height = 17;
    image.into_width = 23;
    const lc_status status = lc__image_decode(&file, &image);
    if (file.reads) compare_with_the_whole(file, status, &image);
    if (status == LC_OK) {
        if (image.height < 1 || image.width < 1 || image.height * image.width > file.max_pixels) abort();
        if (lc__resize_rgb(&resize, image.pixels, image.height, image.width, small, 5, 7) != LC_OK) abort();
    } else if (!*lc_error_message()) {
        abort();
    }
    return 0;
}
