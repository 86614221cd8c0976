/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"
#include "base/grow.h"

#include <stdlib.h>
#include <string.h>

static bool is_jpeg(const uint8_t *b, size_t n)
{
    return n >= 3 && b[0] == 0xFF && b[1] == 0xD8 && b[2] == 0xFF;
}

static bool is_png(const uint8_t *b, size_t n)
{
    return n >= 8 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8);
}

static bool is_webp(const uint8_t *b, size_t n)
{
    return n >= 12 && !memcmp(b, "RIFF", 4) && !memcmp(b + 8, "WEBP", 4);
}

static const struct {
    bool (*is)(const uint8_t *bytes, size_t n);
    lc__image_decoder *decode;
} formats[] = {{is_jpeg, lc__jpeg_decode}, {is_png, lc__png_decode}, {is_webp, lc__webp_decode}};

/* Formats that people keep next to these, to be named in an error. */
static const char *other_format(const uint8_t *b, size_t n)
{
    static const struct {
        const char *begins, *name;
        size_t n;
    } others[] = {
        {"GIF8", "a GIF file", 4},   {"BM", "a BMP file", 2},
        {"II*\0", "a TIFF file", 4}, {"MM\0*", "a TIFF file", 4},
        {"P3", "a PPM file", 2},     {"P5", "a PGM file", 2},
        {"P6", "a PPM file", 2},     {"\0\0\0\fjP", "JPEG 2000", 6},
        {"\xFF\x0A", "JPEG XL", 2},  {"version https://git-lfs", "a pointer of Git LFS, not the picture", 23}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (n >= others[i].n && !memcmp(b, others[i].begins, others[i].n)) return others[i].name;
    if (n >= 12 && !memcmp(b + 4, "ftyp", 4)) return "HEIF, AVIF or a video";
    return "none of these";
}

lc_status lc__image_missing(const lc__image_file *file, const char *format, const char *library, const char *option,
                            const char *package)
{
    return lc_fail(LC_ERR_UNSUPPORTED,
                   "%s is a %s file, but this lightc was built without %s; install it (Debian: %s) and build lightc "
                   "with -D%s=ON",
                   file->name, format, library, package, option);
}

lc_status lc__image_size_check(const lc__image_file *file, int64_t height, int64_t width)
{
    int64_t pixels;
    if (height < 1 || width < 1)
        return lc_fail(LC_ERR_FORMAT, "%s: the picture is %lld x %lld pixels", file->name, (long long)width,
                       (long long)height);
    if (__builtin_mul_overflow(height, width, &pixels) || pixels > file->max_pixels)
        return lc_fail(LC_ERR_FORMAT,
                       "%s: the picture is %lld x %lld pixels, more than max_pixels (%lld) allows; raise it if the "
                       "file can be trusted",
                       file->name, (long long)width, (long long)height, (long long)file->max_pixels);
    return LC_OK;
}

lc_status lc__image_room(const lc__image_file *file, int64_t height, int64_t width, lc__image *image)
{
    LC_TRY(lc__image_size_check(file, height, width));
    image->height = height;
    image->width = width;
    image->pixels = image->into;
    if (image->into && height == image->into_height && width == image->into_width && !file->exif_transpose)
        return LC_OK;
    LC_TRY(lc__grow(&image->own, &image->cap_own, 0, 3 * height * width, file->name));
    image->pixels = image->own;
    return LC_OK;
}

/* Where pixel (y, x) of the upright picture, [height,width], comes from in the stored one, whose rows have `stored`
 * pixels. */
static int64_t source_of(int orientation, int64_t y, int64_t x, int64_t height, int64_t width, int64_t stored)
{
    switch (orientation) {
    case 2:
        return y * stored + (width - 1 - x);
    case 3:
        return (height - 1 - y) * stored + (width - 1 - x);
    case 4:
        return (height - 1 - y) * stored + x;
    case 5:
        return x * stored + y;
    case 6:
        return (width - 1 - x) * stored + y;
    case 7:
        return (width - 1 - x) * stored + (height - 1 - y);
    case 8:
        return x * stored + (height - 1 - y);
    default:
        return y * stored + x;
    }
}

static lc_status turn_upright(const lc__image_file *file, lc__image *image)
{
    int orientation = image->orientation;
    if (orientation < 2 || orientation > 8) return LC_OK;
    bool sideways = orientation >= 5;
    int64_t height = sideways ? image->width : image->height, width = sideways ? image->height : image->width;
    LC_TRY(lc__grow(&image->turned, &image->cap_turned, 0, 3 * height * width, file->name));
    uint8_t *to = image->turned;
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++, to += 3)
            memcpy(to, image->pixels + 3 * source_of(orientation, y, x, height, width, image->width), 3);
    image->height = height;
    image->width = width;
    image->pixels = image->turned;
    return LC_OK;
}

lc_status lc__image_decode(const lc__image_file *file, lc__image *image)
{
    image->orientation = 1;
    image->pixels = NULL;
    if (!file->n) return lc_fail(LC_ERR_FORMAT, "%s is empty", file->name);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!formats[i].is(file->bytes, file->n)) continue;
        LC_TRY(formats[i].decode(file, image));
        return turn_upright(file, image);
    }
    return lc_fail(LC_ERR_FORMAT, "%s cannot be read: lightc decodes JPEG, PNG and WebP, and this is %s", file->name,
                   other_format(file->bytes, file->n));
}

void lc__image_release(lc__image *image)
{
    free(image->own);
    free(image->turned);
    *image = (lc__image){0};
}
