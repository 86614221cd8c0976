/* SPDX-License-Identifier: Apache-2.0 */
/* PNG (ISO/IEC 15948): a signature, then chunks with a CRC each: IHDR, one IDAT with the zlib stream of all rows, IEND.
 * Every row has a filter byte in front; here it is "up" (the difference to the row above), which suits pictures that
 * networks make: flat and smooth areas become runs of small numbers. */
#include "base/png.h"

#include <stdlib.h>
#include <zlib.h>

static void add_u32(lc__str *out, uint32_t v)
{
    const char bytes[] = {(char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v};
    lc__str_add_bytes(out, bytes, 4);
}

/* Length, type, data, and the CRC of the latter two. `name` is the type. */
static void add_chunk(lc__str *out, const char *name, const uint8_t *data, size_t n)
{
    add_u32(out, (uint32_t)n);
    lc__str_add_bytes(out, name, 4);
    if (n) lc__str_add_bytes(out, (const char *)data, n);
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const uint8_t *)name, 4);
    add_u32(out, n ? (uint32_t)crc32_z(crc, data, n) : crc);
}

lc_status lc__png_add(lc__str *out, const uint8_t *pixels, int width, int height, int channels)
{
    static const uint8_t types[] = {0, 0, 4, 2, 6}; /* color types, by channels */
    size_t row = (size_t)width * (size_t)channels;
    if (width < 1 || height < 1 || channels < 1 || channels > 4 || row > ((size_t)1 << 30) / (size_t)height)
        return lc_fail(LC_ERR_ARGUMENT, "cannot write a PNG of %d x %d pixels with %d channels", width, height,
                       channels);
    size_t raw = (row + 1) * (size_t)height;
    uLongf packed = compressBound((uLong)raw);
    uint8_t *rows = malloc(raw), *data = malloc(packed);
    lc_status status = LC_OK;
    if (!rows || !data) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: a PNG of %d x %d pixels", width, height);
        goto done;
    }
    for (size_t y = 0; y < (size_t)height; y++) {
        uint8_t *to = rows + y * (row + 1);
        const uint8_t *from = pixels + y * row;
        *to++ = 2;
        for (size_t x = 0; x < row; x++) to[x] = (uint8_t)(from[x] - (y ? (from - row)[x] : 0));
    }
    if (compress2(data, &packed, rows, (uLong)raw, 6) != Z_OK) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory: compressing a PNG of %d x %d pixels", width, height);
        goto done;
    }
    const uint8_t header[] = {(uint8_t)(width >> 24),
                              (uint8_t)(width >> 16),
                              (uint8_t)(width >> 8),
                              (uint8_t)width,
                              (uint8_t)(height >> 24),
                              (uint8_t)(height >> 16),
                              (uint8_t)(height >> 8),
                              (uint8_t)height,
                              8,
                              types[channels],
                              0,
                              0,
                              0};
    lc__str_add_bytes(out, "\x89PNG\r\n\x1a\n", 8);
    add_chunk(out, "IHDR", header, sizeof header);
    add_chunk(out, "IDAT", data, packed);
    add_chunk(out, "IEND", NULL, 0);
    if (out->failed) status = lc_fail(LC_ERR_MEMORY, "out of memory: a PNG of %d x %d pixels", width, height);
done:
    free(rows);
    free(data);
    return status;
}
