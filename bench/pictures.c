/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of JPEG files with the detail of photographs, always the same, and how fast libjpeg decodes them by itself.
 */
#include "pictures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifdef BENCH_HAVE_JPEG
#include <jpeglib.h>

#define QUALITY 90

/* ---- what is in a picture ---- */

static double lattice(uint64_t key, int octave, int x, int y, int channel)
{
    uint64_t z = key ^ ((uint64_t)octave << 56) ^ ((uint64_t)channel << 48) ^ ((uint64_t)x << 24) ^ (uint64_t)y;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 40) / (1 << 24) - 0.5;
}

/* Adds noise whose values are `step` pixels apart, with straight lines between them. */
static void add_octave(uint64_t key, int octave, int width, int height, int channel, float amplitude, float *plane)
{
    const int step = 1 << octave;
    for (int y = 0; y < height; y++) {
        float v = (float)(y % step) / (float)step, left = 0, right = 0;
        for (int x = 0; x < width; x++) {
            if (x % step == 0) {
                int i = x / step, k = y / step;
                left = (float)((1 - v) * lattice(key, octave, i, k, channel) +
                               v * lattice(key, octave, i, k + 1, channel));
                right = (float)((1 - v) * lattice(key, octave, i + 1, k, channel) +
                                v * lattice(key, octave, i + 1, k + 1, channel));
            }
            plane[y * width + x] += amplitude * (left + (right - left) * (float)(x % step) / (float)step);
        }
    }
}

/* Gradients and noise of several scales: most of it is gray, as in photographs. */
static void paint(int width, int height, uint64_t key, float *plane, uint8_t *pixels)
{
    enum { OCTAVES = 8 };
    const int n = width * height;
    for (int channel = 0; channel < 4; channel++) { /* the last is gray, which all colors share */
        float *to = plane + channel * n, amplitude = channel == 3 ? 150 : 60;
        memset(to, 0, (size_t)n * sizeof *to);
        for (int octave = OCTAVES - 1; octave >= (channel == 3 ? 0 : 3); octave--, amplitude *= 0.7f)
            add_octave(key, octave, width, height, channel, amplitude, to);
    }
    for (int i = 0; i < n; i++)
        for (int channel = 0; channel < 3; channel++) {
            float v = 128 + plane[channel * n + i] + plane[3 * n + i];
            pixels[3 * i + channel] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
}

/* ---- writing ---- */

static lc_status write_jpeg(const char *path, int width, int height, uint8_t *pixels)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr error;
    FILE *f = fopen(path, "wb");
    if (!f) return lc_fail(LC_ERR_IO, "cannot write %s", path);
    c.err = jpeg_std_error(&error);
    jpeg_create_compress(&c);
    jpeg_stdio_dest(&c, f);
    c.image_width = (JDIMENSION)width, c.image_height = (JDIMENSION)height;
    c.input_components = 3, c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, QUALITY, TRUE);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = pixels + 3 * (size_t)width * c.next_scanline;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return fclose(f) == 0 ? LC_OK : lc_fail(LC_ERR_IO, "cannot write %s", path);
}

lc_status bench_pictures_write(const char *folder, int width, int height, int n)
{
    char path[4200];
    struct stat st;
    const size_t pixels = (size_t)width * (size_t)height;
    if (stat(folder, &st) == 0) return LC_OK;
    uint8_t *bytes = malloc(3 * pixels);
    float *plane = malloc(4 * pixels * sizeof *plane);
    lc_status s = bytes && plane ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory");
    if (s == LC_OK && mkdir(folder, 0777) != 0) s = lc_fail(LC_ERR_IO, "cannot make %s", folder);
    for (int i = 0; s == LC_OK && i < n; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i % BENCH_CLASSES);
        mkdir(path, 0777); /* the first picture of a class makes it; if it cannot, writing fails */
        snprintf(path, sizeof path, "%s/%d/%06d.jpg", folder, i % BENCH_CLASSES, i);
        paint(width, height, (uint64_t)i * 0x9e3779b97f4a7c15u, plane, bytes);
        s = write_jpeg(path, width, height, bytes);
    }
    free(plane);
    free(bytes);
    return s;
}

/* ---- decoding ---- */

static lc_status read_file(const char *path, bench_bytes *out)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (f && fstat(fileno(f), &st) == 0) {
        out->n = (size_t)st.st_size;
        out->bytes = malloc(out->n);
    }
    bool good = out->bytes && fread(out->bytes, 1, out->n, f) == out->n;
    if (f) fclose(f);
    return good ? LC_OK : lc_fail(LC_ERR_IO, "cannot read %s", path);
}

lc_status bench_pictures_read(const char *folder, int n, bench_bytes *files)
{
    char path[4200];
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%d/%06d.jpg", folder, i % BENCH_CLASSES, i);
        LC_TRY(read_file(path, &files[i]));
    }
    return LC_OK;
}

/* No row begins at a multiple of 16 bytes: libjpeg-turbo writes such rows past the caches, and is then slower the next
 * time. */
static size_t stride_of(int width)
{
    return (3 * (size_t)width + 15) / 16 * 16;
}

size_t bench_picture_room(int width, int height)
{
    return stride_of(width) * (size_t)height + 1;
}

void bench_pictures_decode(int n, const bench_bytes *files, uint8_t *pixels)
{
    for (int i = 0; i < n; i++) {
        struct jpeg_decompress_struct d;
        struct jpeg_error_mgr error;
        d.err = jpeg_std_error(&error);
        jpeg_create_decompress(&d);
        jpeg_mem_src(&d, files[i].bytes, (unsigned long)files[i].n);
        jpeg_read_header(&d, TRUE);
        d.out_color_space = JCS_RGB;
        jpeg_start_decompress(&d);
        while (d.output_scanline < d.output_height) {
            JSAMPROW row = pixels + 1 + stride_of((int)d.output_width) * d.output_scanline;
            jpeg_read_scanlines(&d, &row, 1);
        }
        jpeg_finish_decompress(&d);
        jpeg_destroy_decompress(&d);
    }
}
#else
lc_status bench_pictures_write(const char *folder, int width, int height, int n)
{
    (void)folder, (void)width, (void)height, (void)n;
    return lc_fail(LC_ERR_UNSUPPORTED, "images: this build has no libjpeg (Debian: libjpeg-dev)");
}
lc_status bench_pictures_read(const char *folder, int n, bench_bytes *files)
{
    (void)n, (void)files;
    return bench_pictures_write(folder, 0, 0, 0);
}
size_t bench_picture_room(int width, int height)
{
    return 3 * (size_t)width * (size_t)height;
}
void bench_pictures_decode(int n, const bench_bytes *files, uint8_t *pixels)
{
    (void)n, (void)files, (void)pixels;
}
#endif
