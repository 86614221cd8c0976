/* SPDX-License-Identifier: Apache-2.0 */
/* The files of tests/image/pictures, and what they should become. */
#ifndef LC_TESTS_PICTURE_FILES_H
#define LC_TESTS_PICTURE_FILES_H

#include "test.h"

#include <stdint.h>
#include <zlib.h>

#define NEEDS_JPEG                                                                                                     \
    if (!LIGHTC_HAVE_JPEG) SKIP("this build lacks libjpeg")
#define NEEDS_PNG                                                                                                      \
    if (!LIGHTC_HAVE_PNG) SKIP("this build lacks libpng")
#define NEEDS_WEBP                                                                                                     \
    if (!LIGHTC_HAVE_WEBP) SKIP("this build lacks libwebp")

typedef struct bytes {
    uint8_t *data;
    size_t n;
} bytes;

typedef struct ppm {
    uint8_t *pixels; /* [height,width,3] */
    int64_t height, width;
} ppm;

static inline void bytes_free(bytes *b)
{
    free(b->data);
}

static inline void ppm_free(ppm *p)
{
    free(p->pixels);
}

/* A PNG file of one chunk after another: their types, data, and how long the data are. Returns its length. */
static inline size_t png_of(uint8_t *png, int n, const char *const types[], const void *const data[],
                            const size_t lengths[])
{
    uint8_t *p = png + 8;
    memcpy(png, "\x89PNG\r\n\x1a\n", 8);
    for (int i = 0; i < n; i++) {
        memcpy(p + 4, types[i], 4);
        memcpy(p + 8, data[i], lengths[i]);
        const uint32_t sum = (uint32_t)crc32(0, p + 4, (uInt)(4 + lengths[i]));
        for (int k = 0; k < 4; k++) {
            p[k] = (uint8_t)(lengths[i] >> (24 - 8 * k));
            p[8 + lengths[i] + (size_t)k] = (uint8_t)(sum >> (24 - 8 * k));
        }
        p += 12 + lengths[i];
    }
    return (size_t)(p - png);
}

static inline bytes read_picture_file(const char *name, const char *suffix)
{
    char path[600];
    const char *root = getenv("LIGHTC_TEST_SOURCE");
    if (!root) SKIP("LIGHTC_TEST_SOURCE names no copy of the sources");
    snprintf(path, sizeof path, "%s/tests/image/pictures/%s%s", root, name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f) TEST_FAIL("cannot open %s", path);
    bytes b = {malloc(1 << 16), 0};
    if (!b.data) TEST_FAIL("no memory");
    b.n = fread(b.data, 1, 1 << 16, f);
    fclose(f);
    return b;
}

static inline ppm read_ppm(const char *name, const char *suffix)
{
    bytes b = read_picture_file(name, suffix);
    ppm p = {0};
    long long height, width;
    int head = 0;
    if (sscanf((const char *)b.data, "P6 %lld %lld 255%n", &width, &height, &head) != 2 || !head)
        TEST_FAIL("%s%s is not a PPM", name, suffix);
    p.height = height;
    p.width = width;
    if (b.n != (size_t)(head + 1 + 3 * height * width)) TEST_FAIL("%s%s has another size", name, suffix);
    p.pixels = malloc((size_t)(3 * height * width));
    if (!p.pixels) TEST_FAIL("no memory");
    memcpy(p.pixels, b.data + head + 1, (size_t)(3 * height * width));
    bytes_free(&b);
    return p;
}

#endif
