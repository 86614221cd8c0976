/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG by libjpeg (libjpeg-turbo), with its defaults, which are Pillow's: the exact DCT and smooth upsampling.
 *
 * libjpeg reports an error by a function that must not return: it jumps back to `decode`, and everything that the
 * library has allocated is freed in one place. All of it is in the struct `run` of one call, so threads share nothing.
 * Damage inside the data of a picture is a warning in libjpeg, and ignored, as Pillow does; a file that ends early is
 * an error. */
#include "image/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

/* A progressive file of some kilobytes can ask for a million passes over a large picture. No encoder writes 100. */
#define MOST_SCANS 500
#define EXIF       (JPEG_APP0 + 1)

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

static lc_status read_rows(run *r, lc__image *image)
{
    bool cmyk = r->d.out_color_space == JCS_CMYK;
    const size_t stride = 3 * (size_t)image->width;
    JSAMPARRAY inks = NULL;
    if (cmyk) inks = r->d.mem->alloc_sarray((j_common_ptr)&r->d, JPOOL_IMAGE, r->d.output_width * 4, 1);
    while (r->d.output_scanline < r->d.output_height) {
        JSAMPROW row = image->pixels + r->d.output_scanline * stride;
        jpeg_read_scanlines(&r->d, cmyk ? inks : &row, 1);
        if (cmyk) cmyk_to_rgb(inks[0], row, image->width);
    }
    jpeg_finish_decompress(&r->d);
    return LC_OK;
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
    return read_rows(r, image);
}

/* What changes after setjmp is in *r, so longjmp loses none of it. */
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
