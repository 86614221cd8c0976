/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the library and of the program lightc. */
#include "base/edit_distance.h"

static char plain(char c)
{
    return c == '-' ? '_' : c;
}

int lc__edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    enum { MAX = 64 };
    int d[3][MAX + 1];
    if (n > MAX || m > MAX) return MAX;
    for (size_t j = 0; j <= m; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *row = d[i % 3], *up = d[(i - 1) % 3], *up2 = d[(i + 1) % 3]; /* (i - 2) mod 3 */
        char x = plain(a[i - 1]);
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            char y = plain(b[j - 1]);
            int best = up[j - 1] + (x != y);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && x == plain(b[j - 2]) && plain(a[i - 2]) == y && up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            row[j] = best;
        }
    }
    return d[n % 3][m];
}
