/* SPDX-License-Identifier: Apache-2.0 */
/* The one tag of EXIF data that changes pixels: how the camera was held (image.c turns the picture). EXIF is a TIFF
 * header ("II" or "MM" for the byte order, 42, the offset of the first directory) and directories of 12-byte entries:
 * tag, type, count, and the values or, if they have more than 4 bytes, their offset. Damaged entries are treated as
 * Pillow does. The orientation may have any type of whole numbers, of which for Pillow BYTE is not one. */
#include "image/image.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112

/* The bytes of a value, by type. Others have 0, and entries of them are skipped. */
static const uint8_t value_bytes[] = {[1] = 1, [2] = 1, [3] = 2,  [4] = 4,  [5] = 8,  [6] = 1,  [7] = 1,
                                      [8] = 2, [9] = 4, [10] = 8, [11] = 4, [12] = 8, [13] = 4, [16] = 8};

/* SHORT, LONG, SBYTE, SSHORT, SLONG, IFD */
static bool is_whole(unsigned type)
{
    return type == 3 || type == 4 || type == 6 || type == 8 || type == 9 || type == 13;
}

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
    uint64_t all = 0; /* bytes of values that are elsewhere; more than there are means damage */
    at += 2;
    for (; entries && n - at >= 12; entries--, at += 12) {
        const unsigned tag = number(data + at, 2, big), type = number(data + at + 2, 2, big);
        const unsigned bytes = type < sizeof value_bytes ? value_bytes[type] : 0;
        const uint64_t size = (uint64_t)number(data + at + 4, 4, big) * bytes;
        size_t where = at + 8;
        if (!size) continue;
        if (size > 4) {
            all += size;
            if (all > n) continue;
            where = number(data + where, 4, big);
            if (where > n || size > n - where) return 1;
        }
        if (tag != TAG_ORIENTATION) continue;
        const unsigned value = is_whole(type) ? number(data + where, (int)bytes, big) : 1;
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}
