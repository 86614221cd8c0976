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

/* The rows of a part, if they are taken as they are decoded. */
typedef struct taken {
    bool wanted, asked;
    size_t row, bytes;
    uint8_t rows[3 << 20];
} taken;

static lc_box a_quarter_of(int64_t height, int64_t width)
{
    return (lc_box){height / 2, width / 2, (height + 3) / 4, (width + 3) / 4};
}

/* Rows and columns from the middle on. */
static lc_box a_quarter(void *ctx, int64_t height, int64_t width, bool *takes)
{
    taken *t = ctx;
    if (height < 1 || width < 1) abort();
    const lc_box part = a_quarter_of(height, width);
    *takes = t->asked = t->wanted;
    t->row = 3 * (size_t)part.width;
    return part;
}

static lc_status take(void *ctx, const uint8_t *rows, int64_t n)
{
    taken *t = ctx;
    const size_t bytes = (size_t)n * t->row;
    if (!t->asked || n < 1 || n > LC__IMAGE_ROWS || bytes > sizeof t->rows - t->bytes) abort();
    memcpy(t->rows + t->bytes, rows, bytes);
    t->bytes += bytes;
    return LC_OK;
}

/* A part is what it is in the whole picture, and as good. */
static void compare_with_the_whole(lc__image_file file, lc_status status, const lc__image *image)
{
    static lc__image whole;
    const taken *t = file.ctx;
    file.reads = NULL;
    if (lc__image_decode(&file, &whole) != status) abort();
    if (status != LC_OK) return;
    if (whole.height != image->height || whole.width != image->width) abort();
    const lc_box part = a_quarter_of(whole.height, whole.width);
    const size_t row = 3 * (size_t)part.width;
    if (t->asked && t->bytes != row * (size_t)part.height) abort();
    for (int64_t y = part.top; y < part.top + part.height; y++) {
        const int64_t at = 3 * (y * whole.width + part.left);
        const uint8_t *got = t->asked ? t->rows + row * (size_t)(y - part.top) : image->pixels + at;
        if (memcmp(whole.pixels + at, got, row)) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lc__image image; /* kept, as a thread of a loader does */
    static lc__resize resize;
    static taken rows;
    rows.wanted = size % 4 < 2;
    rows.asked = false;
    rows.bytes = 0;
    const lc__image_file file = {.bytes = data,
                                 .n = size,
                                 .name = "input",
                                 .max_pixels = 1 << 20,
                                 .exif_transpose = size % 2 == 0,
                                 .least_scale = size % 5 ? NULL : a_fifth,
                                 .reads = size % 7 ? NULL : a_quarter,
                                 .take = take,
                                 .ctx = &rows};
    image.into = size % 3 ? place : NULL;
    image.into_height = 17;
    image.into_width = 23;
    const lc_status status = lc__image_decode(&file, &image);
    if (file.reads) compare_with_the_whole(file, status, &image);
    if (status == LC_OK) {
        if (image.height < 1 || image.width < 1 || image.height * image.width > file.max_pixels) abort();
        if (!rows.asked && lc__resize_rgb(&resize, image.pixels, image.height, image.width, small, 5, 7) != LC_OK)
            abort();
    } else if (!*lc_error_message()) {
        abort();
    }
    return 0;
}
