/* SPDX-License-Identifier: Apache-2.0 */
/* The one tag of EXIF data that changes pixels: how the camera was held (image.c turns the picture). EXIF is a TIFF
 * header ("II" or "MM" for the byte order, 42, the offset of the first directory) and directories of 12-byte entries:
 * tag, type, count, value. The value may have any type of whole numbers, as in Pillow, for which BYTE is not one. */
#include "image/image.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112

/* The bytes of a value, by type: SHORT, LONG, SBYTE, SSHORT, SLONG, IFD. Others have 0. */
static const uint8_t value_bytes[] = {[3] = 2, [4] = 4, [6] = 1, [8] = 2, [9] = 4, [13] = 4};

static unsigned number(const uint8_t *p, int bytes, bool big)
{
    unsigned v = 0;
    for (int i = 0; i < bytes; i++) v |= (unsigned)p[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

int lc__exif_orientation(const uint8_t *data, size_t n)
{
    for (int i = 0; i < 2 && n >= 6 && !memcmp(data, "Exif\0\0", 6); i++) data += 6, n -= 6;
    if (n < 8) return 1;
    bool big = !memcmp(data, "MM", 2);
    if ((!big && memcmp(data, "II", 2) != 0) || number(data + 2, 2, big) != 42) return 1;
    size_t at = number(data + 4, 4, big);
    if (at > n - 2) return 1;
    unsigned entries = number(data + at, 2, big);
    at += 2;
    for (; entries && n - at >= 12; entries--, at += 12) {
        unsigned tag = number(data + at, 2, big), type = number(data + at + 2, 2, big);
        if (tag != TAG_ORIENTATION || type >= sizeof value_bytes || !value_bytes[type]) continue;
        unsigned value = number(data + at + 8, value_bytes[type], big);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
