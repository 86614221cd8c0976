/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes in bytes as text: 4096, 64KiB, 2GiB. */
#include "core/options/options.h"

#include "base/c_locale.h"

#include <stdio.h>
#include <string.h>

/* Each is 1024 times the one before. */
static const char *const size_units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
enum { SIZE_UNITS = sizeof size_units / sizeof *size_units };

bool lc__size_read(const char *text, int64_t *bytes)
{
    char *end;
    *bytes = 0;
    if (*text < '0' || *text > '9') return false;
    double n = lc__strtod(text, &end);
    for (int i = 0; i < SIZE_UNITS; i++, n *= 1024) {
        const bool same = !strcmp(end, size_units[i]) || (i && end[0] == size_units[i][0] && !end[1]) || (!i && !*end);
        if (!same) continue;
        if (!(n < 0x1p62)) return false;
        *bytes = (int64_t)n;
        return true;
    }
    return false;
}

/* In the largest unit that needs no fraction. */
int lc__size_print(char *text, size_t size, int64_t v)
{
    int unit = 0;
    for (; unit + 1 < SIZE_UNITS && v && v % 1024 == 0; v /= 1024) unit++;
    return snprintf(text, size, "%lld%s", (long long)v, unit ? size_units[unit] : "");
}
