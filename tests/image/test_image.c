/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding and resizing: the files of tests/image/pictures against what Pillow and torchvision make of them
 * (tests/peers/record_images.py), and files that are broken. */
#include "image/image.h"
#include "image/resize.h"
#include "picture_files.h"
#include "scratch.h"
#include "sources.h"
#include <lightc/array_file.h>

/* The largest difference of two pictures of one size. */
static int difference(const uint8_t *a, const uint8_t *b, int64_t height, int64_t width)
{
    int most = 0;
    for (int64_t i = 0; i < 3 * height * width; i++)
        if (abs(a[i] - b[i]) > most) most = abs(a[i] - b[i]);
    return most;
}

static lc_status decode(const bytes *b, const char *name, bool exif_transpose, lc__image *image)
{
    const lc__image_file file = {b->data, b->n, name, 1000000, exif_transpose};
    return lc__image_decode(&file, image);
}

/* A file against its PPM: `suffix` ".ppm" or ".upright.ppm". */
static void compare(const char *name, const char *suffix, int tolerance)
{
    bytes file = read_picture_file(name, "");
    ppm want = read_ppm(name, suffix);
    lc__image image = {0};
    if (decode(&file, name, !strcmp(suffix, ".upright.ppm"), &image) < 0) TEST_FAIL("%s", lc_error_message());
    if (image.height != want.height || image.width != want.width)
        TEST_FAIL("%s: %lld x %lld, wanted %lld x %lld", name, (long long)image.width, (long long)image.height,
                  (long long)want.width, (long long)want.height);
    int most = difference(image.pixels, want.pixels, want.height, want.width);
    if (most > tolerance) TEST_FAIL("%s%s: differs by %d", name, suffix, most);
    lc__image_release(&image);
    ppm_free(&want);
    bytes_free(&file);
}

TEST(jpeg_as_pillow)
{
    NEEDS_JPEG;
    static const char *const names[] = {"color420.jpg", "color422.jpg", "color444.jpg", "progressive.jpg",
                                        "grey.jpg",     "cmyk.jpg",     "photo.jpg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) compare(names[i], ".ppm", 1);
}

TEST(png_as_pillow)
{
    NEEDS_PNG;
    static const char *const names[] = {"rgb.png",
                                        "rgb_interlaced.png",
                                        "rgb_transparent.png",
                                        "rgba.png",
                                        "grey.png",
                                        "grey_transparent.png",
                                        "grey_alpha.png",
                                        "grey1.png",
                                        "grey2.png",
                                        "grey4.png",
                                        "grey16.png",
                                        "grey_alpha16.png",
                                        "rgb16.png",
                                        "rgba16.png",
                                        "palette.png",
                                        "palette4.png",
                                        "palette_transparent.png",
                                        "gamma.png",
                                        "animated.png"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) compare(names[i], ".ppm", 0);
}

TEST(webp_as_pillow)
{
    NEEDS_WEBP;
    static const char *const lossless[] = {"lossless.webp", "alpha.webp", "animated.webp"};
    for (size_t i = 0; i < sizeof lossless / sizeof *lossless; i++) compare(lossless[i], ".ppm", 0);
    compare("lossy.webp", ".ppm", 1);
    compare("lossy_alpha.webp", ".ppm", 1);
}

/* Orientation is ignored, unless it is asked for. */
static void *whole_array(lc_array_file *f, const char *name, lc_dtype to)
{
    const int64_t i = lc_array_file_find(f, name);
    const lc_array_info *info = lc_array_file_info(f, i);
    if (!info) TEST_FAIL("there is no array %s", name);
    const size_t n = (size_t)info->shape[0] * (info->ndim > 1 ? (size_t)info->shape[1] : 1) * lc_dtype_size(to);
    void *data = malloc(n);
    CHECK(data);
    CHECK_OK(lc_array_file_read(f, i, 0, info->shape[0], to, data, n));
    return data;
}

/* Files of all kinds, in sizes from 1 to 17, as they are stored and upright. */
TEST(many_files_as_pillow)
{
    NEEDS_JPEG;
    NEEDS_PNG;
    NEEDS_WEBP;
    enum { FILES = 200 };
    char path[5000];
    lc_array_file *f;
    lc__image image = {0};
    snprintf(path, sizeof path, "%s/tests/image/pictures/many.npz", source_root());
    CHECK_OK(lc_array_file_open(path, &f));
    uint8_t *files = whole_array(f, "files", LC_U8);
    int64_t *lengths = whole_array(f, "bytes", LC_I64);
    for (int upright = 0; upright < 2; upright++) {
        uint8_t *pixels = whole_array(f, upright ? "upright" : "stored", LC_U8), *want = pixels, *file = files;
        int64_t *sizes = whole_array(f, upright ? "upright_sizes" : "stored_sizes", LC_I64);
        for (int i = 0; i < FILES; i++) {
            const int64_t height = sizes[2 * i], width = sizes[2 * i + 1];
            const bytes b = {file, (size_t)lengths[i]};
            CHECK_OK(decode(&b, "many", upright, &image));
            CHECK(image.height == height && image.width == width);
            if (difference(image.pixels, want, height, width) > 1) TEST_FAIL("file %d differs", i);
            want += 3 * height * width;
            file += lengths[i];
        }
        free(pixels);
        free(sizes);
    }
    lc__image_release(&image);
    free(files);
    free(lengths);
    lc_array_file_close(f);
}

TEST(exif_orientation)
{
    char name[40];
    for (int i = 1; i <= 8 && LIGHTC_HAVE_JPEG; i++) {
        snprintf(name, sizeof name, "turned%d.jpg", i);
        compare(name, ".ppm", 1);
        compare(name, ".upright.ppm", 1);
    }
    static const char *const others[] = {"turned6.png",      "turned8_after.png",    "turned6_header.png",
                                         "turned5_text.png", "turned6_deflated.png", "turned7.webp"};
    for (int i = 0; i < 6; i++) {
        if (i < 5 ? !LIGHTC_HAVE_PNG : !LIGHTC_HAVE_WEBP) continue;
        compare(others[i], ".ppm", 0);
        compare(others[i], ".upright.ppm", 0);
    }
}

TEST(exif_that_is_broken_turns_nothing)
{
    uint8_t data[64] = "Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
    CHECK_EQ(lc__exif_orientation(data, 32), 6);
    for (size_t n = 0; n < 28; n++) CHECK_EQ(lc__exif_orientation(data, n), 1);
    data[24] = 9;
    CHECK_EQ(lc__exif_orientation(data, 32), 1);
    data[24] = 6;
    data[10] = data[11] = data[12] = data[13] = 0xFF; /* a directory far away */
    CHECK_EQ(lc__exif_orientation(data, 32), 1);
}

/* Pillow turns a picture if the type is SHORT, LONG, SBYTE, SSHORT, SLONG or IFD, and not if it is another that fits
 * into an entry: BYTE, ASCII, UNDEFINED. */
TEST(exif_orientation_of_each_type)
{
    static const int encoded[14] = {[3] = 2, [4] = 4, [6] = 1, [8] = 2, [9] = 4, [13] = 4};
    for (uint8_t type = 0; type < 14; type++) {
        uint8_t little[] = "II*\0\x08\0\0\0\x01\0\x12\x01\0\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
        uint8_t big[] = "MM\0*\0\0\0\x08\0\x01\x01\x12\0\0\0\0\0\x01\0\0\0\0\0\0\0\0";
        little[12] = big[13] = type;
        big[18 + (encoded[type] ? encoded[type] - 1 : 0)] = 6;
        const int want = encoded[type] ? 6 : 1;
        if (lc__exif_orientation(little, 26) != want || lc__exif_orientation(big, 26) != want)
            TEST_FAIL("type %d", type);
    }
}

/* What Pillow 13 makes of directories with damaged entries. */
TEST(exif_with_damaged_entries)
{
#define TAG "\x12\x01"
#define SIX "\x06\0\0\0"
    static const struct {
        const char entries[30]; /* two, and what follows them */
        int want;
    } cases[] = {
        {TAG "\x03\0\0\0\0\0" SIX TAG "\x03\0\x01\0\0\0\x03\0\0\0", 3},         /* a count of 0 is not a tag */
        {TAG "\x03\0\x02\0\0\0" SIX TAG "\x03\0\x01\0\0\0\x03\0\0\0", 6},       /* the first of two */
        {TAG "\x01\0\x01\0\0\0" SIX TAG "\x03\0\x01\0\0\0\x03\0\0\0", 1},       /* bytes are not an orientation */
        {TAG "\x00\0\x01\0\0\0" SIX TAG "\x03\0\x01\0\0\0\x03\0\0\0", 3},       /* no such type */
        {TAG "\x03\0\x03\0\0\0\x22\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\0", 8},    /* at an offset */
        {TAG "\x03\0\x03\0\0\0\x25\0\0\0" TAG "\x03\0\x01\0\0\0\x03\0\0\0", 1}, /* beyond the end: reading ends */
        {TAG "\x03\0\xff\0\0\0\x06\0\0\0" TAG "\x03\0\x01\0\0\0\x03\0\0\0", 3}, /* more than the file has */
        {"\x0f\x01\x02\0\x09\0\0\0\x25\0\0\0" TAG "\x03\0\x01\0\0\0\x03\0\0\0", 1},
        {"\x0f\x01\x02\0\x06\0\0\0\x20\0\0\0" TAG "\x03\0\x01\0\0\0\x03\0\0\0", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t data[40] = "II*\0\x08\0\0\0\x02";
        memcpy(data + 10, cases[i].entries, sizeof cases[i].entries);
        if (lc__exif_orientation(data, sizeof data) != cases[i].want) TEST_FAIL("case %zu", i);
    }
}

static int orientation_of(int n, const char *const types[], const void *const data[], const size_t lengths[])
{
    static uint8_t png[4096];
    const size_t size = png_of(png, n, types, data, lengths);
    const lc__image_file file = {.bytes = png, .n = size, .name = "some.png"};
    int orientation = 0;
    CHECK_OK(lc__png_orientation(&file, &orientation));
    return orientation;
}

#define PROFILE "Raw profile type exif\0"
#define DIGITS  "49492A0008000000010012010300010000000600000000000000"

TEST(exif_in_a_text_of_a_png)
{
    static const struct {
        const char *data;
        size_t n;
        int want;
    } texts[] = {
#define TEXT(s, want) {s, sizeof s - 1, want}
        TEXT(PROFILE "\nexif\n  26\n" DIGITS "\n", 6),
        TEXT(PROFILE "\nexif\n  26\n4949 2a00\r\n080000000100 12010300010000000600000000000000", 6),
        TEXT(PROFILE "\nexif\n" DIGITS, 1),
        TEXT(PROFILE "\nexif\n  26\n" DIGITS "g", 1),
        TEXT(PROFILE "\nexif\n  26\n" DIGITS "0", 1),
        TEXT(PROFILE "\n\n\n", 1),
        TEXT(PROFILE, 1),
        TEXT("Raw profile type exif", 1),
        TEXT("Raw profile type iptc\0\nexif\n  26\n" DIGITS, 1),
    };
    static const uint8_t exif[] = "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08\0\0\0\0\0\0\0";
    static const char *const types[] = {"tEXt", "eXIf", "tEXt"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const void *const data[] = {texts[i].data, exif, texts[i].data};
        const size_t lengths[] = {texts[i].n, sizeof exif, texts[i].n};
        CHECK_EQ(orientation_of(1, types, data, lengths), texts[i].want);
        CHECK_EQ(orientation_of(3, types, data, lengths), 8);
    }
    /* More than a MiB, deflated to a few bytes. */
    static uint8_t zeros[(1 << 20) + 1], small[4096] = PROFILE;
    uLongf n = sizeof small - sizeof PROFILE;
    CHECK_EQ(compress(small + sizeof PROFILE, &n, zeros, sizeof zeros), Z_OK);
    CHECK_EQ(
        orientation_of(1, (const char *const[]){"zTXt"}, (const void *const[]){small}, (size_t[]){sizeof PROFILE + n}),
        1);
}

/* ---- resizing ---- */

TEST(resize_as_torchvision)
{
    static const int64_t sizes[][2] = {{13, 17}, {61, 90}, {30, 17}, {13, 40}, {100, 7}, {1, 1}, {29, 41}};
    ppm from = read_ppm("photo.jpg", ".ppm");
    lc__resize r = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int64_t height = sizes[i][0], width = sizes[i][1];
        char suffix[40];
        snprintf(suffix, sizeof suffix, ".%lldx%lld.ppm", (long long)height, (long long)width);
        ppm want = read_ppm("photo.jpg", suffix);
        uint8_t *to = malloc((size_t)(3 * height * width)); /* no byte more, for the sanitizer */
        CHECK(to);
        CHECK_OK(lc__resize_rgb(&r, from.pixels, from.height, from.width, to, height, width));
        int most = difference(to, want.pixels, height, width);
        if (most > 0) TEST_FAIL("%s: differs by %d", suffix, most);
        free(to);
        ppm_free(&want);
    }
    lc__resize_release(&r);
    ppm_free(&from);
}

/* White stays white, and black stays black, whatever the sizes: weights add up to one. */
TEST(resize_keeps_a_plain_picture)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 16, 33, 100, 3001};
    const int n = sizeof sizes / sizeof *sizes;
    lc__resize r = {0};
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) {
            const int64_t from = sizes[a], to = sizes[b];
            uint8_t *plain = malloc((size_t)(3 * from * 2)), *out = malloc((size_t)(3 * to * 3));
            CHECK(plain && out);
            memset(plain, 255, (size_t)(3 * from * 2));
            CHECK_OK(lc__resize_rgb(&r, plain, 2, from, out, 3, to));
            for (int64_t i = 0; i < 3 * to * 3; i++) CHECK_EQ(out[i], 255);
            CHECK_OK(lc__resize_rgb(&r, plain, from, 2, out, to, 3));
            for (int64_t i = 0; i < 3 * to * 3; i++) CHECK_EQ(out[i], 255);
            free(plain);
            free(out);
        }
    lc__resize_release(&r);
}

/* ---- files that are not pictures ---- */

static void refuse(const void *data, size_t n, const char *part)
{
    lc__image image = {0};
    const bytes b = {(uint8_t *)(uintptr_t)data, n};
    CHECK_STATUS(decode(&b, "some/file", false, &image), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "some/file");
    CHECK_CONTAINS(lc_error_message(), part);
    lc__image_release(&image);
}

TEST(other_formats_are_named)
{
    refuse("", 0, "is empty");
    refuse("GIF89a..........", 16, "a GIF file");
    refuse("BM..............", 16, "a BMP file");
    refuse("II*\0............", 16, "a TIFF file");
    refuse("P6\n3 3 255\n", 12, "a PPM file");
    refuse("\0\0\0\x20"
           "ftypavif....",
           16, "AVIF");
    refuse("version https://git-lfs.github.com", 34, "Git LFS");
    refuse("hello", 5, "JPEG, PNG and WebP");
}

/* Whole files that libjpeg does not decode: of 12 bits, and lossless ones. */
TEST(kinds_of_jpeg_that_are_not_read)
{
    if (!LIGHTC_HAVE_JPEG) SKIP("built without libjpeg");
    bytes file = read_picture_file("color420.jpg", "");
    uint8_t *frame = file.data;
    while (frame[0] != 0xFF || frame[1] != 0xC0) frame++;
    frame[4] = 12;
    refuse(file.data, file.n, "does not read this kind of JPEG file (Unsupported JPEG data precision 12)");
    frame[4] = 8, frame[1] = 0xC3;
    refuse(file.data, file.n, "does not read this kind of JPEG file");
    bytes_free(&file);
}

/* Each file cut anywhere: an error, or the whole picture if only its end is missing; never a part. */
static void cut_anywhere(const char *name, size_t may_miss)
{
    bytes file = read_picture_file(name, "");
    lc__image image = {0};
    for (size_t n = 0; n < file.n; n++) {
        uint8_t *exact = malloc(n + !n);
        CHECK(exact);
        memcpy(exact, file.data, n);
        const bytes cut = {exact, n};
        lc_status status = decode(&cut, name, true, &image);
        if (status == LC_OK && n + may_miss < file.n) TEST_FAIL("%s: %zu of %zu bytes are enough", name, n, file.n);
        if (status != LC_OK && status != LC_ERR_FORMAT) TEST_FAIL("%s: %s", name, lc_error_message());
        free(exact);
    }
    lc__image_release(&image);
    bytes_free(&file);
}

TEST(truncated_files)
{
    if (LIGHTC_HAVE_JPEG) cut_anywhere("color420.jpg", 0);
    if (LIGHTC_HAVE_JPEG) cut_anywhere("progressive.jpg", 0);
    if (LIGHTC_HAVE_JPEG) cut_anywhere("cmyk.jpg", 0);
    if (LIGHTC_HAVE_PNG) cut_anywhere("rgb.png", 16); /* the checksum of the pixels, and IEND */
    if (LIGHTC_HAVE_PNG) cut_anywhere("palette4.png", 16);
    if (LIGHTC_HAVE_WEBP) cut_anywhere("lossy.webp", 1);
    if (LIGHTC_HAVE_WEBP) cut_anywhere("lossless.webp", 1);
    if (LIGHTC_HAVE_WEBP) cut_anywhere("animated.webp", 400);
}

/* Each byte changed once: whatever comes of it, nothing breaks and nothing leaks. */
TEST(changed_files)
{
    static const char *const names[] = {
        "color420.jpg", "cmyk.jpg",     "progressive.jpg",     "turned6.jpg", "rgb.png",
        "palette4.png", "rgb16.png",    "lossy.webp",          "alpha.webp",  "animated.webp",
        "turned6.png",  "turned7.webp", "turned6_deflated.png"};
    for (size_t f = 0; f < sizeof names / sizeof *names; f++) {
        bytes file = read_picture_file(names[f], "");
        lc__image image = {0};
        for (size_t i = 0; i < file.n; i += ROUNDS(1, 3)) {
            uint8_t was = file.data[i];
            file.data[i] = (uint8_t)(was ^ (1 + i % 255));
            lc_status status = decode(&file, names[f], true, &image);
            if (status != LC_OK && status != LC_ERR_FORMAT && status != LC_ERR_UNSUPPORTED)
                TEST_FAIL("%s, byte %zu: %s", names[f], i, lc_error_message());
            file.data[i] = was;
        }
        lc__image_release(&image);
        bytes_free(&file);
    }
}

/* Only where pixels come from is a wrong sum an error; Pillow refuses such a file in any case. */
TEST(a_wrong_sum_of_a_chunk)
{
    NEEDS_PNG;
    bytes file = read_picture_file("gamma.png", "");
    ppm want = read_ppm("gamma.png", ".ppm");
    lc__image image = {0};
    CHECK(!memcmp(file.data + 37, "gAMA", 4));
    file.data[45] ^= 1;
    CHECK_OK(decode(&file, "gamma.png", true, &image));
    CHECK_EQ(difference(image.pixels, want.pixels, want.height, want.width), 0);
    file.data[29] ^= 1; /* of the size */
    CHECK_STATUS(decode(&file, "gamma.png", true, &image), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "CRC");
    lc__image_release(&image);
    ppm_free(&want);
    bytes_free(&file);
}

/* A header of 65000 x 65000 pixels is refused before anything is allocated for it. */
TEST(a_picture_that_is_too_large)
{
    static const char *const names[] = {"color420.jpg", "rgb.png", "lossless.webp"};
    const bool have[] = {LIGHTC_HAVE_JPEG, LIGHTC_HAVE_PNG, LIGHTC_HAVE_WEBP};
    for (int f = 0; f < 3; f++) {
        if (!have[f]) continue;
        bytes b = read_picture_file(names[f], "");
        lc__image image = {0};
        lc__image_file file = {b.data, b.n, names[f], 100, false};
        CHECK_STATUS(lc__image_decode(&file, &image), LC_ERR_FORMAT);
        CHECK_CONTAINS(lc_error_message(), names[f]);
        CHECK_CONTAINS(lc_error_message(), "max_pixels (100)");
        CHECK(!image.own);
        file.max_pixels = 1000;
        CHECK_OK(lc__image_decode(&file, &image));
        lc__image_release(&image);
        bytes_free(&b);
    }
}

/* libpng's own limit is 1,000,000 pixels of width or height. */
TEST(a_picture_as_wide_as_max_pixels_allows)
{
    if (!LIGHTC_HAVE_PNG) SKIP("this build lacks libpng");
    enum { WIDTH = 1000001 };
    static uint8_t png[65536], row[1 + WIDTH];
    uint8_t deflated[4096], header[13] = {0, WIDTH >> 16, WIDTH >> 8 & 255, WIDTH & 255, 0, 0, 0, 1, 8};
    uLongf n = sizeof deflated;
    CHECK_EQ(compress(deflated, &n, row, sizeof row), Z_OK);
    const size_t size = png_of(png, 3, (const char *const[]){"IHDR", "IDAT", "IEND"},
                               (const void *const[]){header, deflated, ""}, (size_t[]){sizeof header, n, 0});
    lc__image image = {0};
    lc__image_file file = {.bytes = png, .n = size, .name = "wide.png", .max_pixels = WIDTH};
    CHECK_OK(lc__image_decode(&file, &image));
    CHECK_EQ(image.width, WIDTH);
    file.max_pixels--;
    CHECK_STATUS(lc__image_decode(&file, &image), LC_ERR_FORMAT);
    CHECK_CONTAINS(lc_error_message(), "max_pixels");
    lc__image_release(&image);
}

/* Decoding into the place of the caller, if the size is right. */
TEST(decodes_in_place)
{
    NEEDS_PNG;
    bytes b = read_picture_file("rgb.png", "");
    ppm want = read_ppm("rgb.png", ".ppm");
    uint8_t place[9 * 13 * 3];
    lc__image image = {.into = place, .into_height = 9, .into_width = 13};
    CHECK_OK(decode(&b, "rgb.png", false, &image));
    CHECK(image.pixels == place && !image.own);
    CHECK(!memcmp(place, want.pixels, sizeof place));
    image.into_width = 12;
    CHECK_OK(decode(&b, "rgb.png", false, &image));
    CHECK(image.pixels == image.own);
    lc__image_release(&image);
    ppm_free(&want);
    bytes_free(&b);
}

/* A build without a library says what to install. */
TEST(a_missing_library)
{
    const lc__image_file file = {.name = "cat.jpg"};
    CHECK_STATUS(lc__image_missing(&file, "JPEG", "libjpeg", "LIGHTC_WITH_JPEG", "libjpeg-dev"), LC_ERR_UNSUPPORTED);
    CHECK_STR(lc_error_message(), "cat.jpg is a JPEG file, but this lightc was built without libjpeg; install it "
                                  "(Debian: libjpeg-dev) and build lightc with -DLIGHTC_WITH_JPEG=ON");
    const struct {
        const char *name, *library;
        bool have;
    } kinds[] = {{"grey.jpg", "libjpeg", LIGHTC_HAVE_JPEG},
                 {"grey.png", "libpng", LIGHTC_HAVE_PNG},
                 {"lossy.webp", "libwebp", LIGHTC_HAVE_WEBP}};
    for (int i = 0; i < 3; i++) {
        bytes b = read_picture_file(kinds[i].name, "");
        lc__image image = {0};
        lc_status status = decode(&b, kinds[i].name, false, &image);
        CHECK_EQ(status, kinds[i].have ? LC_OK : LC_ERR_UNSUPPORTED);
        if (!kinds[i].have) CHECK_CONTAINS(lc_error_message(), kinds[i].library);
        lc__image_release(&image);
        bytes_free(&b);
    }
}
TEST_MAIN
