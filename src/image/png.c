/* SPDX-License-Identifier: Apache-2.0 */
/* PNG by libpng: every kind becomes 8-bit RGB. As in Pillow's convert("RGB") transparency and gamma are ignored, and of
 * an animation the default picture is read.
 *
 * libpng reports an error by a function that must not return: it jumps back to `decode`, and everything is freed in one
 * place. */
#include "image/image.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    png_structp png;
    png_infop info;
    jmp_buf back;
    char text[160];
    const lc__image_file *file;
    size_t at;
    bool short_of_bytes, short_of_memory;
} run;

static void give_up(png_structp png, png_const_charp text)
{
    run *r = png_get_error_ptr(png);
    snprintf(r->text, sizeof r->text, "%s", text);
    longjmp(r->back, 1);
}

static void no_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    run *r = png_get_io_ptr(png);
    if (n > r->file->n - r->at) {
        r->short_of_bytes = true;
        png_error(png, "the file ends early");
    }
    memcpy(to, r->file->bytes + r->at, n);
    r->at += n;
}

/* libpng's own words for a lack of memory are those of any error. */
static png_voidp allocate(png_structp png, png_alloc_size_t n)
{
    run *r = png_get_mem_ptr(png);
    void *p = malloc(n);
    if (!p) r->short_of_memory = true;
    return p;
}

static void release(png_structp png, png_voidp p)
{
    (void)png;
    free(p);
}

static lc_status report(const run *r)
{
    if (r->short_of_memory) return lc_fail(LC_ERR_MEMORY, "out of memory: %s is decoded", r->file->name);
    if (r->short_of_bytes) return lc_fail(LC_ERR_FORMAT, "%s ends early: the PNG file is truncated", r->file->name);
    return lc_fail(LC_ERR_FORMAT, "%s: the PNG data are corrupt: %s", r->file->name, r->text);
}

static void convert_to_rgb(const run *r)
{
    int color = png_get_color_type(r->png, r->info);
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(r->png);
    if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(r->png);
    if (!(color & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(r->png);
    png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
}

static lc_status read_picture(run *r, lc__image *image)
{
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);         /* max_pixels is the limit */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* only those that change pixels are read */
    png_read_info(r->png, r->info);
    LC_TRY(lc__image_room(r->file, png_get_image_height(r->png, r->info), png_get_image_width(r->png, r->info), image));
    convert_to_rgb(r);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    const size_t stride = 3 * (size_t)image->width;
    if (png_get_rowbytes(r->png, r->info) != stride)
        return lc_fail(LC_ERR_INTERNAL, "%s: libpng has rows of %zu bytes for %lld pixels", r->file->name,
                       png_get_rowbytes(r->png, r->info), (long long)image->width);
    for (int p = 0; p < passes; p++)
        for (int64_t y = 0; y < image->height; y++) png_read_row(r->png, image->pixels + (size_t)y * stride, NULL);
    return LC_OK;
}

/* All state that changes after setjmp is in *r: longjmp does not lose it. */
static lc_status decode(run *r, lc__image *image)
{
    if (setjmp(r->back)) return report(r);
    r->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, r, give_up, no_warning, r, allocate, release);
    if (r->png) r->info = png_create_info_struct(r->png);
    return r->info ? read_picture(r, image) : report(r);
}

lc_status lc__png_decode(const lc__image_file *file, lc__image *image)
{
    run r = {.file = file};
    lc_status status = decode(&r, image);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    if (status == LC_OK && file->exif_transpose) status = lc__png_orientation(file, &image->orientation);
    return status;
}
