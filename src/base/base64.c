/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648). */
#include "base/base64.h"

#include <stdlib.h>
#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void lc__base64_add(lc__str *out, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
        char four[4] = {digits[v >> 18], digits[v >> 12 & 63], i + 1 < n ? digits[v >> 6 & 63] : '=',
                        i + 2 < n ? digits[v & 63] : '='};
        lc__str_add_bytes(out, four, 4);
    }
}

lc_status lc__base64_decode(const char *text, char **out, size_t *n)
{
    size_t length = strlen(text), pad = 0, at = 0;
    while (pad < length && pad < 2 && text[length - 1 - pad] == '=') pad++;
    if (length % 4) return lc_fail(LC_ERR_FORMAT, "invalid base64: its length is %zu", length);
    char *bytes = malloc(length / 4 * 3 + 1);
    if (!bytes) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes", length / 4 * 3);
    for (size_t i = 0; i < length; i += 4) {
        uint32_t v = 0;
        for (size_t k = i; k < i + 4; k++) {
            const char *digit = k < length - pad ? strchr(digits, text[k]) : digits;
            if (!digit) {
                free(bytes);
                return lc_fail(LC_ERR_FORMAT, "invalid base64: \"%c\" at byte %zu", text[k], k);
            }
            v = v << 6 | (uint32_t)(digit - digits);
        }
        bytes[at++] = (char)(v >> 16), bytes[at++] = (char)(v >> 8), bytes[at++] = (char)v;
    }
    *out = bytes, *n = at - pad;
    return LC_OK;
}
