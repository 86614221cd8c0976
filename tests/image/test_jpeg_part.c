/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG files of which only a part is looked at: it has the pixels that it has in the whole picture, and what is broken
 * is the same error, also outside of the part. */
#include "test.h"

#if LIGHTC_HAVE_JPEG
#include "base/io.h"
#include "image/image.h"
#include "scratch.h"
#include <lightc/image.h>
#include <lightc/random.h>
#include <lightc/transforms.h>

#include <stdio.h>

#include <jpeglib.h>

/* How a file is written. */
typedef struct kind {
    const char *name;
    J_COLOR_SPACE space;
    int channels, h, v; /* how many samples of the first channel there are for one of the others, in a row and column */
    bool progressive, separate; /* a scan for each channel */
    int restart;                /* rows of blocks between restart markers */
} kind;

static const kind kinds[] = {
    {"4:4:4", JCS_RGB, 3, 1, 1, false, false, 0},      {"4:2:2", JCS_RGB, 3, 2, 1, false, false, 0},
    {"4:4:0", JCS_RGB, 3, 1, 2, false, false, 0},      {"4:2:0", JCS_RGB, 3, 2, 2, false, false, 0},
    {"4:1:1", JCS_RGB, 3, 4, 1, false, false, 0},      {"4:1:0", JCS_RGB, 3, 4, 2, false, false, 0},
    {"gray", JCS_GRAYSCALE, 1, 1, 1, false, false, 0}, {"gray 2x2", JCS_GRAYSCALE, 1, 2, 2, false, false, 0},
    {"CMYK", JCS_CMYK, 4, 1, 1, false, false, 0},      {"restarts", JCS_RGB, 3, 2, 2, false, false, 1},
    {"progressive", JCS_RGB, 3, 2, 2, true, false, 0}, {"a scan for each", JCS_RGB, 3, 2, 2, false, true, 0},
};
#define N_KINDS ((int)(sizeof kinds / sizeof kinds[0]))

typedef struct file {
    unsigned char *bytes;
    unsigned long n;
} file;

static const jpeg_scan_info each[] = {
    {1, {0}, 0, 63, 0, 0},
    {1, {1}, 0, 63, 0, 0},
    {1, {2}, 0, 63, 0, 0},
};

/* Waves, noise and edges, in every channel. */
static void paint(uint8_t *row, int width, int channels, int y)
{
    for (int x = 0; x < width; x++)
        for (int c = 0; c < channels; c++) {
            const int wave = (x * (3 + c) + y * (5 - c)) % 256;
            const int noise = (int)lc_random_below((uint64_t)c, (uint64_t)(y * 4096 + x), 64);
            row[x * channels + c] = (uint8_t)(x / 9 % 5 == y / 7 % 5 ? 255 - wave : (wave + noise) % 256);
        }
}

static file written(const kind *k, int width, int height)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr error;
    file f = {0};
    uint8_t *row = malloc((size_t)(width * 4));
    CHECK(row);
    c.err = jpeg_std_error(&error);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &f.bytes, &f.n);
    c.image_width = (JDIMENSION)width, c.image_height = (JDIMENSION)height;
    c.input_components = k->channels, c.in_color_space = k->space;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 85, TRUE);
    c.comp_info[0].h_samp_factor = k->h, c.comp_info[0].v_samp_factor = k->v;
    c.restart_in_rows = k->restart;
    if (k->progressive) jpeg_simple_progression(&c);
    if (k->separate) c.scan_info = each, c.num_scans = 3;
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < height; y++) {
        paint(row, width, k->channels, y);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(row);
    return f;
}

/* ---- decoding ---- */

/* Rows that were given away. */
static struct {
    bool wanted;
    lc_box part;
    int64_t rows;
    uint8_t *pixels;
} given;

static lc_box the_part(void *ctx, int64_t height, int64_t width, bool *takes)
{
    lc_box part = *(const lc_box *)ctx;
    CHECK(part.top + part.height <= height && part.left + part.width <= width);
    *takes = given.wanted;
    if (!given.wanted) return part;
    given.part = part;
    given.rows = 0;
    free(given.pixels);
    given.pixels = malloc((size_t)(3 * part.height * part.width));
    CHECK(given.pixels);
    return part;
}

static lc_status take(void *ctx, const uint8_t *rows, int64_t n)
{
    (void)ctx;
    CHECK(given.wanted && n > 0 && n <= LC__IMAGE_ROWS && given.rows + n <= given.part.height);
    memcpy(given.pixels + 3 * given.rows * given.part.width, rows, (size_t)(3 * n * given.part.width));
    given.rows += n;
    return LC_OK;
}

static void compare_given(const lc__image *image)
{
    const lc_box *p = &given.part;
    CHECK_EQ(given.rows, p->height);
    for (int64_t y = 0; y < p->height; y++)
        CHECK(!memcmp(given.pixels + 3 * y * p->width, image->pixels + 3 * ((p->top + y) * image->width + p->left),
                      (size_t)(3 * p->width)));
}

static double scale_of(void *ctx, int64_t height, int64_t width)
{
    (void)height, (void)width;
    return ((const lc_box *)ctx)->height % 2 ? 0.4 : 0.2;
}

/* `part` NULL: all of it. A part is decoded twice: its rows are given away, and stay in the picture. */
static lc_status decode(const file *f, lc_box *part, bool reduced, lc__image *image)
{
    static lc_box whole = {.height = 1};
    const lc__image_file from = {.bytes = f->bytes,
                                 .n = f->n,
                                 .name = "a file",
                                 .max_pixels = 1 << 20,
                                 .least_scale = reduced ? scale_of : NULL,
                                 .reads = part ? the_part : NULL,
                                 .take = take,
                                 .ctx = part ? part : &whole};
    char why[300] = "";
    given.wanted = part != NULL;
    const lc_status want = part ? lc__image_decode(&from, image) : LC_OK;
    if (want < 0) snprintf(why, sizeof why, "%s", lc_error_message());
    given.wanted = false;
    if (image->own) memset(image->own, 0x5A, image->cap_own);
    const lc_status got = lc__image_decode(&from, image);
    if (!part) return got;
    if (got != want || (got < 0 && strcmp(why, lc_error_message())))
        TEST_FAIL("\"%s\" if rows are given away, \"%s\" if not", why, got < 0 ? lc_error_message() : "");
    if (got == LC_OK) compare_given(image);
    return got;
}

static lc_box a_part(uint64_t key, int64_t height, int64_t width)
{
    lc_box p = {.height = 1 + (int64_t)lc_random_below(key, 0, (uint64_t)height),
                .width = 1 + (int64_t)lc_random_below(key, 1, (uint64_t)width)};
    p.top = (int64_t)lc_random_below(key, 2, (uint64_t)(height - p.height + 1));
    p.left = (int64_t)lc_random_below(key, 3, (uint64_t)(width - p.width + 1));
    return p;
}

static void compare(const char *name, const lc__image *whole, const lc__image *some, const lc_box *p)
{
    CHECK(whole->height == some->height && whole->width == some->width);
    for (int64_t y = p->top; y < p->top + p->height; y++) {
        const int64_t at = 3 * (y * whole->width + p->left);
        if (memcmp(whole->pixels + at, some->pixels + at, (size_t)(3 * p->width)))
            TEST_FAIL("%s, %lld x %lld: row %lld of %lld x %lld at (%lld, %lld) differs", name, (long long)whole->width,
                      (long long)whole->height, (long long)y, (long long)p->width, (long long)p->height,
                      (long long)p->left, (long long)p->top);
    }
}

TEST(a_part_has_the_pixels_of_the_whole)
{
    static const int sizes[][2] = {{1, 1},   {7, 9},   {16, 16},  {33, 31},   {40, 100},
                                   {97, 64}, {65, 66}, {129, 50}, {200, 151}, {31, 17}};
    lc__image whole = {0}, some = {0};
    for (int k = 0; k < N_KINDS; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const file f = written(&kinds[k], sizes[s][0], sizes[s][1]);
            for (int reduced = 0; reduced < 2; reduced++) {
                CHECK_OK(decode(&f, NULL, reduced, &whole));
                for (uint64_t i = 0; i < (uint64_t)ROUNDS(100, 10); i++) {
                    lc_box p = a_part(lc_random_key(s, i), whole.height, whole.width);
                    if (reduced) p.height = whole.height - p.top - !((whole.height - p.top) % 2);
                    if (!p.height) continue;
                    CHECK_OK(decode(&f, &p, reduced, &some));
                    compare(kinds[k].name, &whole, &some, &p);
                }
            }
            free(f.bytes);
        }
    lc__image_release(&whole);
    lc__image_release(&some);
}

/* Every row and column at which a part may begin and end, next to each other. */
TEST(every_edge)
{
    enum { WIDTH = 113, HEIGHT = 83 };
    lc__image whole = {0}, some = {0};
    for (int k = 0; k < N_KINDS; k++) {
        const file f = written(&kinds[k], WIDTH, HEIGHT);
        CHECK_OK(decode(&f, NULL, false, &whole));
        for (int64_t at = 0; at < WIDTH; at++) {
            lc_box begins = {0, at, 9, WIDTH - at}, ends = {70, 0, 13, at + 1};
            CHECK_OK(decode(&f, &begins, false, &some));
            compare(kinds[k].name, &whole, &some, &begins);
            CHECK_OK(decode(&f, &ends, false, &some));
            compare(kinds[k].name, &whole, &some, &ends);
        }
        for (int64_t at = 0; at < HEIGHT; at++) {
            lc_box begins = {at, 40, HEIGHT - at, 40}, ends = {0, 50, at + 1, 63};
            CHECK_OK(decode(&f, &begins, false, &some));
            compare(kinds[k].name, &whole, &some, &begins);
            CHECK_OK(decode(&f, &ends, false, &some));
            compare(kinds[k].name, &whole, &some, &ends);
        }
        free(f.bytes);
    }
    lc__image_release(&whole);
    lc__image_release(&some);
}

/* Pixels outside of the part stay as they were: otherwise nothing is saved. */
TEST(the_rest_is_left_out)
{
    const file f = written(&kinds[3], 200, 151);
    lc_box p = {60, 80, 30, 60};
    lc__image image = {0};
    CHECK_OK(decode(&f, &p, false, &image));
    CHECK_OK(decode(&f, &p, false, &image));
    for (int64_t i = 0; i < image.height * image.width; i++) {
        const int64_t y = i / image.width, x = i % image.width;
        if (y < p.top || y >= p.top + p.height || x < p.left || x >= p.left + p.width)
            CHECK_EQ(image.pixels[3 * i], 0x5A);
    }
    lc__image_release(&image);
    free(f.bytes);
}

static lc_status the_file(void *ctx, int64_t index, const char **name, int64_t *target)
{
    (void)index;
    *name = ctx;
    *target = 0;
    return LC_OK;
}

static lc_transform chain(void)
{
    const double mean[] = {0.4, 0.5, 0.6}, std[] = {0.2, 0.3, 0.4};
    lc_transform t[3], all;
    CHECK_OK(lc_transform_random_crop(120, 150, &t[0]));
    CHECK_OK(lc_transform_horizontal_flip(0.5, &t[1]));
    CHECK_OK(lc_transform_normalize(3, mean, std, &t[2]));
    CHECK_OK(lc_transform_compose(3, t, &all));
    return all;
}

/* A sample that is so large that it is written past the caches, made of rows as they are decoded. */
TEST(large_samples_of_rows)
{
    static float want[120 * 150 * 3], got[120 * 150 * 3];
    lc_transform inside = chain();
    lc_dataset *whole, *cropped, *part;
    int64_t y;
    char path[600];
    snprintf(path, sizeof path, "%s/large.jpg", fresh_dir("large_rows"));
    const file f = written(&kinds[3], 200, 151);
    CHECK_OK(lc__replace_file(&lc__io_system, path, f.bytes, f.n));
    CHECK_OK(lc_image_list_from(1, the_file, path, &whole));
    CHECK_OK(lc_dataset_transform(whole, 0, chain(), &cropped));
    CHECK_OK(lc_image_list_from(1, the_file, path, &part, .transform = &inside));
    for (uint64_t key = 0; key < 40; key++) {
        CHECK_OK(lc_dataset_read(cropped, 0, key, (void *[]){want, &y}));
        CHECK_OK(lc_dataset_read(part, 0, key, (void *[]){got, &y}));
        CHECK(!memcmp(want, got, sizeof want));
    }
    lc_dataset_unref(cropped);
    lc_dataset_unref(whole);
    lc_dataset_unref(part);
    free(f.bytes);
}

/* ---- files that are broken ---- */

static void the_same_end(const char *name, const file *f, lc_box *p, lc__image *whole, lc__image *some)
{
    char why[300];
    const lc_status want = decode(f, NULL, false, whole);
    snprintf(why, sizeof why, "%s", want < 0 ? lc_error_message() : "");
    /* A damaged header may have given the picture another size. */
    if (want == LC_OK && (p->top + p->height > whole->height || p->left + p->width > whole->width)) return;
    const lc_status got = decode(f, p, false, some);
    if (got != want || (want < 0 && strcmp(why, lc_error_message())))
        TEST_FAIL("%s: \"%s\" for the whole, \"%s\" for a part", name, why, got < 0 ? lc_error_message() : "");
    if (want == LC_OK) compare(name, whole, some, p);
}

/* Cut anywhere: the file ends early, though the part may be there. */
TEST(truncated_files)
{
    lc__image whole = {0}, some = {0};
    for (int k = 0; k < N_KINDS; k++) {
        file f = written(&kinds[k], 65, 66);
        for (const unsigned long all = f.n; f.n > 0; f.n--) {
            lc_box p = {8, 3, 20, 40};
            the_same_end(kinds[k].name, &f, &p, &whole, &some);
            if (f.n < all) CHECK_STATUS(decode(&f, &p, false, &some), LC_ERR_FORMAT);
        }
        free(f.bytes);
    }
    lc__image_release(&whole);
    lc__image_release(&some);
}

/* Bytes changed, also to markers where none belongs. */
TEST(damaged_files)
{
    static const uint8_t markers[] = {0xD9, 0xDA, 0xC4, 0xDB, 0xC0, 0xD3, 0xFF, 0x00, 0x01, 0xE1, 0xCC, 0xDC};
    lc__image whole = {0}, some = {0};
    for (int k = 0; k < N_KINDS; k++) {
        const file f = written(&kinds[k], 65, 66);
        for (uint64_t i = 0; i < (uint64_t)ROUNDS(1500, 100); i++) {
            const size_t at = lc_random_below(i, 0, f.n - 1);
            const uint8_t was[2] = {f.bytes[at], f.bytes[at + 1]};
            lc_box p = a_part(i, 66, 65);
            f.bytes[at] = i % 2 ? 0xFF : (uint8_t)lc_random_below(i, 1, 256);
            if (i % 2) f.bytes[at + 1] = markers[lc_random_below(i, 2, sizeof markers)];
            the_same_end(kinds[k].name, &f, &p, &whole, &some);
            memcpy(f.bytes + at, was, 2);
        }
        free(f.bytes);
    }
    lc__image_release(&whole);
    lc__image_release(&some);
}
#else
TEST(no_jpeg)
{
    SKIP("this build lacks libjpeg");
}
#endif
TEST_MAIN
