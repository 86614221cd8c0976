/* SPDX-License-Identifier: Apache-2.0 */
/* The EXIF data of a PNG file: a chunk eXIf, or in hexadecimal digits a text of the name that ImageMagick gives it.
 * libpng looks for no such text, and refuses a chunk that begins with "Exif\0\0". As in Pillow a chunk eXIf counts
 * before a text, and of several the last one. Chunks with a wrong sum do not count. */
#include "image/image.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define PROFILE   "Raw profile type exif" /* and a 0 */
#define MOST_TEXT ((size_t)1 << 20)       /* bytes, as in Pillow */
#define AROUND    12                      /* bytes of a chunk besides its data: length, type, and sum */

typedef struct chunk {
    const uint8_t *type, *data; /* NULL: no chunk */
    size_t n;
} chunk;

static uint32_t number(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The chunk at *at, which moves to the next one. False: there is no whole one, or it is the last. */
static bool next_chunk(const lc__image_file *file, size_t *at, chunk *c)
{
    const uint8_t *p = file->bytes + *at;
    const size_t left = file->n - *at;
    if (left < AROUND || number(p) > left - AROUND) return false;
    *c = (chunk){p + 4, p + 8, number(p)};
    *at += AROUND + c->n;
    return memcmp(c->type, "IEND", 4) != 0;
}

static bool is(const chunk *c, const char *type)
{
    return !memcmp(c->type, type, 4);
}

static bool is_profile(const chunk *c)
{
    return (is(c, "tEXt") || is(c, "zTXt")) && c->n > sizeof PROFILE && !memcmp(c->data, PROFILE, sizeof PROFILE);
}

static bool is_whole(const chunk *c)
{
    return crc32(0, c->type, (uInt)(4 + c->n)) == number(c->data + c->n);
}

/* The text of a profile. Returns its length; 0 if it is too long or broken. */
static size_t text_of(const chunk *c, uint8_t text[MOST_TEXT])
{
    const uint8_t *from = c->data + sizeof PROFILE;
    const size_t n = c->n - sizeof PROFILE;
    uLongf length = MOST_TEXT;
    if (is(c, "zTXt")) return *from == 0 && uncompress(text, &length, from + 1, n - 1) == Z_OK ? length : 0;
    if (n > MOST_TEXT) return 0;
    memcpy(text, from, n);
    return n;
}

static int digit(uint8_t c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Bytes of the digits that follow three lines, in place. Returns how many there are; 0 if another character is among
 * them. */
static size_t bytes_of(uint8_t *text, size_t n)
{
    size_t at = 0, made = 0;
    for (int lines = 0; lines < 3 && at < n; at++) lines += text[at] == '\n';
    while (at < n) {
        if (strchr(" \t\n\r\v\f", text[at]) && text[at]) {
            at++;
            continue;
        }
        const int high = digit(text[at]), low = n - at > 1 ? digit(text[at + 1]) : -1;
        if (high < 0 || low < 0) return 0;
        text[made++] = (uint8_t)(high * 16 + low);
        at += 2;
    }
    return made;
}

lc_status lc__png_orientation(const lc__image_file *file, int *orientation)
{
    chunk c, exif = {0}, profile = {0};
    *orientation = 1;
    for (size_t at = 8; at < file->n && next_chunk(file, &at, &c);) {
        if (is(&c, "eXIf") && is_whole(&c)) exif = c;
        if (is_profile(&c) && is_whole(&c)) profile = c;
    }
    if (exif.data) *orientation = lc__exif_orientation(exif.data, exif.n);
    if (exif.data || !profile.data) return LC_OK;
    uint8_t *text = malloc(MOST_TEXT);
    if (!text) return lc_fail(LC_ERR_MEMORY, "out of memory: the EXIF data of %s are read", file->name);
    *orientation = lc__exif_orientation(text, bytes_of(text, text_of(&profile, text)));
    free(text);
    return LC_OK;
}
