/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG by libjpeg-turbo, with its defaults, which are Pillow's: the exact DCT and smooth upsampling. If only a part of
 * a picture is looked at, only its pixels are computed; the bytes before it have to be read all the same.
 *
 * libjpeg reports an error by a function that must not return: it jumps back to `decode`, and everything that the
 * library has allocated is freed in one place. All of it is in the struct `run` of one call, so threads share nothing.
 * Damage inside the data of a picture is a warning in libjpeg, and ignored, as Pillow does; a file that ends early is
 * an error, also after the part. */
#include "image/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

/* A progressive file of some kilobytes can ask for a million passes over a large picture. No encoder writes 100. */
#define MOST_SCANS 500
#define EXIF       (JPEG_APP0 + 1)

#define BESIDE      2  /* columns: smooth upsampling mixes colors with those of the next one that is stored */
#define LEAST_WIDTH 32 /* columns that are worth a crop, and enough for each way of upsampling */

typedef struct run {
    struct jpeg_decompress_struct d;
    struct jpeg_error_mgr error;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    const lc__image_file *file;
} run;

static lc_status report(const run *r)
{
    char text[JMSG_LENGTH_MAX];
    r->d.err->format_message((j_common_ptr)&r->d, text);
    switch (r->d.err->msg_code) {
    case JERR_OUT_OF_MEMORY:
        return lc_fail(LC_ERR_MEMORY, "out of memory: %s is decoded", r->file->name);
    case JERR_INPUT_EOF:
        return lc_fail(LC_ERR_FORMAT, "%s ends early: the JPEG file is truncated", r->file->name);
    case JERR_ARITH_NOTIMPL:
    case JERR_BAD_PRECISION:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_SOF_UNSUPPORTED:
        return lc_fail(LC_ERR_FORMAT,
                       "%s: libjpeg does not read this kind of JPEG file (%s); convert it to a usual one, of 8 bits",
                       r->file->name, text);
    default:
        return lc_fail(LC_ERR_FORMAT, "%s: the JPEG data are corrupt: %s", r->file->name, text);
    }
}

static void give_up(j_common_ptr d)
{
    longjmp(((run *)d->client_data)->back, 1);
}

static void no_warning(j_common_ptr d, int level)
{
    (void)d, (void)level;
}

static void no_output(j_common_ptr d)
{
    (void)d;
}

static void nothing(j_decompress_ptr d)
{
    (void)d;
}

static boolean at_the_end(j_decompress_ptr d)
{
    ERREXIT(d, JERR_INPUT_EOF);
    return FALSE;
}

static void skip(j_decompress_ptr d, long n)
{
    if (n <= 0) return;
    if ((size_t)n > d->src->bytes_in_buffer) ERREXIT(d, JERR_INPUT_EOF);
    d->src->next_input_byte += n;
    d->src->bytes_in_buffer -= (size_t)n;
}

static void count_scans(j_common_ptr d)
{
    if (((j_decompress_ptr)d)->input_scan_number > MOST_SCANS) ERREXIT(d, JERR_BAD_PROGRESSION);
}

static void open_run(run *r)
{
    jpeg_create_decompress(&r->d);
    r->source = (struct jpeg_source_mgr){.next_input_byte = r->file->bytes,
                                         .bytes_in_buffer = r->file->n,
                                         .init_source = nothing,
                                         .fill_input_buffer = at_the_end,
                                         .skip_input_data = skip,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = nothing};
    r->d.src = &r->source;
    r->progress.progress_monitor = count_scans;
    r->d.progress = &r->progress;
    if (r->file->exif_transpose) jpeg_save_markers(&r->d, EXIF, 0xFFFF);
}

/* Files of four colors are stored inverted, as Adobe does: what is read is 255 minus the ink. */
static void cmyk_to_rgb(const uint8_t *from, uint8_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++, from += 4, to += 3) {
        int light = from[3];
        for (int c = 0; c < 3; c++) to[c] = (uint8_t)(light - ((255 - from[c]) * light + 127) / 255);
    }
}

/* ---- rows ---- */

/* Has only the columns of the part decoded, and what smooth upsampling needs next to them; returns the first that is
 * decoded. A reduced picture keeps all, since libjpeg-turbo 2 miscounts its stored colors. */
static int64_t crop_columns(run *r, const lc_box *part)
{
    const int64_t end = part->left + part->width + BESIDE, most = r->d.output_width;
    JDIMENSION first = (JDIMENSION)(part->left > BESIDE ? part->left - BESIDE : 0);
    JDIMENSION width = (JDIMENSION)(end < most ? end : most) - first;
    if (width < LEAST_WIDTH || r->d.scale_denom > 1) return 0;
    jpeg_crop_scanline(&r->d, &first, &width);
    return first;
}

/* Decodes rows that nobody looks at. */
static void pass_rows(run *r, JSAMPROW line, JDIMENSION end)
{
    while (r->d.output_scanline < end) jpeg_read_scanlines(&r->d, &line, 1);
}

/* Whether decoding the rest could not fail: up to the end marker it has no other markers than those of restarts. */
static bool rest_is_whole(const run *r)
{
    const uint8_t *p = r->source.next_input_byte, *end = p + r->source.bytes_in_buffer;
    if (r->d.unread_marker) return false;
    while ((p = memchr(p, 0xFF, (size_t)(end - p)))) {
        while (p < end && *p == 0xFF) p++;
        if (p == end) return false;
        if (*p == JPEG_EOI) return true;
        if (*p && (*p < JPEG_RST0 || *p > JPEG_RST0 + 7)) return false;
    }
    return false;
}

/* A whole picture is an error if what follows the part is broken, and so is a part of one. */
static void finish(run *r, JSAMPROW line)
{
    if (r->d.output_scanline < r->d.output_height && (jpeg_input_complete(&r->d) || rest_is_whole(r))) return;
    pass_rows(r, line, r->d.output_height);
    jpeg_finish_decompress(&r->d);
}

/* Rows are decoded into a line of their own: those that begin at a multiple of 16 bytes libjpeg-turbo writes past the
 * caches, and getting such a picture back from memory can take longer than its decoding. */
static lc_status read_rows(run *r, const lc_box *part, bool takes, lc__image *image)
{
    const bool cmyk = r->d.out_color_space == JCS_CMYK;
    const size_t pixel = cmyk ? 4 : 3;
    JSAMPROW line = r->d.mem->alloc_large((j_common_ptr)&r->d, JPOOL_IMAGE, r->d.output_width * pixel + 1);
    line++;
    int64_t first = 0, given = 0;
    if (jpeg_has_multiple_scans(&r->d)) { /* neighbors count everywhere if a scan is missing */
        pass_rows(r, line, (JDIMENSION)part->top);
    } else {
        first = crop_columns(r, part);
        if (part->top) jpeg_skip_scanlines(&r->d, (JDIMENSION)part->top);
    }
    const uint8_t *from = line + pixel * (size_t)(part->left - first);
    const int64_t stride = 3 * (takes ? part->width : image->width);
    uint8_t *const begin = image->pixels + (takes ? 0 : stride * part->top + 3 * part->left), *to = begin;
    for (int64_t y = 0; y < part->height; y++, to += stride) {
        if (takes && y - given == LC__IMAGE_ROWS) {
            LC_TRY(r->file->take(r->file->ctx, begin, LC__IMAGE_ROWS));
            given = y;
            to = begin;
        }
        jpeg_read_scanlines(&r->d, &line, 1);
        if (cmyk)
            cmyk_to_rgb(from, to, part->width);
        else
            memcpy(to, from, 3 * (size_t)part->width);
    }
    finish(r, line);
    return takes ? r->file->take(r->file->ctx, begin, part->height - given) : LC_OK;
}

/* The decoder can make fewer pixels of each block of 8 x 8, which costs less than making all. */
static void reduce(run *r, bool sideways)
{
    const lc__image_file *file = r->file;
    const int64_t height = r->d.image_height, width = r->d.image_width;
    const double least =
        file->least_scale ? file->least_scale(file->ctx, sideways ? width : height, sideways ? height : width) : 1;
    r->d.scale_num = 1;
    for (r->d.scale_denom = 8; r->d.scale_denom > 1 && 1.0 / r->d.scale_denom < least;) r->d.scale_denom /= 2;
}

static lc_status read_picture(run *r, lc__image *image)
{
    open_run(r);
    jpeg_read_header(&r->d, TRUE);
    int channels = r->d.num_components;
    if (channels != 1 && channels != 3 && channels != 4)
        return lc_fail(LC_ERR_FORMAT, "%s: a JPEG file has 1, 3 or 4 components, not %d", r->file->name, channels);
    LC_TRY(lc__image_size_check(r->file, r->d.image_height, r->d.image_width));
    for (jpeg_saved_marker_ptr m = r->d.marker_list; m; m = m->next)
        if (m->marker == EXIF && m->data_length >= 6 && !memcmp(m->data, "Exif\0\0", 6)) {
            image->orientation = lc__exif_orientation(m->data, m->data_length);
            break;
        }
    r->d.out_color_space = channels == 4 ? JCS_CMYK : JCS_RGB;
    reduce(r, image->orientation >= 5);
    jpeg_calc_output_dimensions(&r->d);
    LC_TRY(lc__image_room(r->file, r->d.output_height, r->d.output_width, image));
    jpeg_start_decompress(&r->d);
    lc_box part = {.height = image->height, .width = image->width};
    bool takes = false;
    if (r->file->reads && image->orientation == 1)
        part = r->file->reads(r->file->ctx, image->height, image->width, &takes);
    return read_rows(r, &part, takes, image);
}

/* All state that changes after setjmp is in *r: longjmp does not lose it. */
static lc_status decode(run *r, lc__image *image)
{
    if (setjmp(r->back)) return report(r);
    return read_picture(r, image);
}

lc_status lc__jpeg_decode(const lc__image_file *file, lc__image *image)
{
    run r = {.file = file};
    r.d.err = jpeg_std_error(&r.error);
    r.error.error_exit = give_up;
    r.error.emit_message = no_warning;
    r.error.output_message = no_output;
    r.d.client_data = &r;
    lc_status status = decode(&r, image);
    jpeg_destroy_decompress(&r.d);
    return status;
}
