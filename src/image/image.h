/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures: JPEG, PNG and WebP files as RGB bytes, the same bytes as Pillow's convert("RGB") gives.
 *
 * The libraries decode: libjpeg, libpng and libwebp, one file here for each, with a second (jpeg_none.c, ...) for
 * builds without the library, which says what is missing. Content decides the format, never the name of a file. Files
 * are not trusted: the size in a header is compared with a limit before anything is allocated for it.
 *
 * To add a format: a file with its decoder, a line in the table of image.c. */
#ifndef LC_IMAGE_IMAGE_H
#define LC_IMAGE_IMAGE_H

#include <lightc/data.h>

#include <stddef.h>
#include <stdint.h>

/* Rows that a decoder gives away at a time. They are few, since others are decoded while what is made of these is on
 * its way to memory: after sixteen, a row of blocks, the processor would wait for it. */
enum { LC__IMAGE_ROWS = 8 };

/* A file in memory. */
typedef struct lc__image_file {
    const uint8_t *bytes;
    size_t n;
    const char *name;    /* for messages */
    int64_t max_pixels;  /* larger pictures are refused */
    bool exif_transpose; /* turn the picture upright, as Pillow's ImageOps.exif_transpose does */
    /* How far the picture may be reduced: a factor of its sides, asked for its size in the file; NULL: not at all. Only
     * JPEG has a cheap way, to 1/2, 1/4 and 1/8. */
    double (*least_scale)(void *ctx, int64_t height, int64_t width);
    /* Which part of the decoded picture is looked at, asked for its size: pixels outside of it may be left out. It has
     * at least one pixel. NULL: all of them. Only JPEG has a cheap way. */
    lc_box (*reads)(void *ctx, int64_t height, int64_t width, bool *takes);
    /* If `reads` has set *takes: is given the rows of the part as they are decoded, `n` more, next to each other. The
     * picture has no pixels then. */
    lc_status (*take)(void *ctx, const uint8_t *rows, int64_t n);
    void *ctx;
} lc__image_file;

/* A decoded picture, and the memory for the next one. {0} is empty; one thread uses it at a time. */
typedef struct lc__image {
    int64_t height, width;
    uint8_t *pixels; /* [height,width,3]: in `own`, in `turned`, or in `into` */
    int orientation; /* EXIF's, 1 to 8, if it was asked for; else 1 */
    /* Where pixels go if the decoded picture has exactly this size; NULL: nowhere. Set by the caller. */
    uint8_t *into;
    int64_t into_height, into_width;
    uint8_t *own, *turned;
    size_t cap_own, cap_turned;
} lc__image;

/* Decodes a file of any format. LC_ERR_FORMAT: it is broken, too large, or of no format that lightc reads;
 * LC_ERR_UNSUPPORTED: this build lacks the library. Messages begin with the file's name. */
lc_status lc__image_decode(const lc__image_file *file, lc__image *image) LC_MUST_USE;
void lc__image_release(lc__image *image);

/* ---- for decoders ---- */

typedef lc_status lc__image_decoder(const lc__image_file *file, lc__image *image);
lc__image_decoder lc__jpeg_decode, lc__png_decode, lc__webp_decode;

/* LC_ERR_FORMAT if a picture of this size is refused. */
lc_status lc__image_size_check(const lc__image_file *file, int64_t height, int64_t width) LC_MUST_USE;
/* Sets the size of the picture, and `pixels` to room for it; LC_ERR_FORMAT if it has too many pixels. */
lc_status lc__image_room(const lc__image_file *file, int64_t height, int64_t width, lc__image *image) LC_MUST_USE;
/* The error of a build without `library`. */
lc_status lc__image_missing(const lc__image_file *file, const char *format, const char *library, const char *option,
                            const char *package) LC_MUST_USE;
/* The orientation in EXIF data (a TIFF header and its first directory, perhaps after "Exif\0\0"); 1 if there is none.
 */
int lc__exif_orientation(const uint8_t *data, size_t n);
/* The same for a PNG file, of which only the chunks are looked at. */
lc_status lc__png_orientation(const lc__image_file *file, int *orientation) LC_MUST_USE;

#endif
