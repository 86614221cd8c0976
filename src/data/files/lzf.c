/* SPDX-License-Identifier: Apache-2.0 */
/* A control byte below 32 is followed by as many bytes, and one. In another one the upper three bits are the length of
 * a copy less 2 (7: the next byte is added), and the lower five and the next byte are how far back it begins, less 1.
 */
#include "data/files/lzf.h"

#include <string.h>

size_t lc__lzf_decode(const uint8_t *from, size_t n, uint8_t *to, size_t room)
{
    const uint8_t *const end = from + n;
    size_t at = 0;
    while (from < end) {
        const size_t control = *from++;
        if (control < 32) {
            const size_t run = control + 1;
            if (run > (size_t)(end - from) || run > room - at) return 0;
            if (to) memcpy(to + at, from, run);
            from += run;
            at += run;
            continue;
        }
        size_t length = (control >> 5) + 2;
        if (length == 9 && from < end) length += *from++;
        if (from == end) return 0;
        const size_t back = ((control & 31) << 8 | *from++) + 1;
        if (back > at || length > room - at) return 0;
        for (size_t i = 0; to && i < length; i++) to[at + i] = to[at + i - back];
        at += length;
    }
    return at;
}
