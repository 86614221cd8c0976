/* SPDX-License-Identifier: Apache-2.0 */
/* Text from elsewhere, made safe to show. */
#include "base/printable.h"

#include "base/handle.h"

#include <stdio.h>
#include <string.h>

/* The length of the character at `s`, of n bytes, if it may be shown; else 0. An overlong form, a surrogate or a
 * control character may not. */
static size_t character(const unsigned char *s, size_t n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
    if (!bytes || bytes > n) return 0;
    uint32_t c = bytes == 1 ? s[0] : s[0] & (0x7fu >> bytes);
    for (size_t i = 1; i < bytes; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3f);
    }
    bool control = c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029;
    bool surrogate = c >= 0xd800 && c < 0xe000;
    return control || surrogate || c < least[bytes] || c > 0x10ffff ? 0 : bytes;
}

size_t lc__printable(const char *from, size_t n, bool lines, char *text, size_t size)
{
    const unsigned char *s = (const unsigned char *)from;
    size_t k = 0;
    for (size_t i = 0; i < n && s[i];) {
        size_t bytes = lines && (s[i] == '\n' || s[i] == '\t') ? 1 : character(s + i, n - i);
        size_t need = bytes ? bytes : 4;
        if (k + need >= size) break;
        if (bytes)
            memcpy(text + k, s + i, bytes);
        else
            snprintf(text + k, size - k, "\\x%02x", s[i]);
        k += need;
        i += bytes ? bytes : 1;
    }
    if (size) text[k] = 0;
    return k;
}

size_t lc__cut_character(const char *text, size_t n)
{
    size_t at = n;
    while (at > 0 && n - at < 3 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) at--;
    unsigned char first = at > 0 ? (unsigned char)text[at - 1] : 0;
    size_t bytes = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return bytes > 1 && at - 1 + bytes > n ? at - 1 : n;
}

bool lc__format_has_lines(const char *format)
{
    return strchr(format, '\n') || !strcmp(format, "%s");
}

const char *lc_printable(const char *from, bool lines, char *text, size_t size)
{
    LC__NEEDS(from, "");
    LC__NEEDS(text, "");
    lc__printable(from, strlen(from), lines, text, size);
    return text;
}
