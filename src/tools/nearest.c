/* SPDX-License-Identifier: Apache-2.0 */
/* Words of the command line that are none of those that are known. */
#include "base/edit_distance.h"
#include "tools.h"

#include <stdio.h>

const char *nearest_word(const char *word, const char *const *words, int n)
{
    const char *nearest = NULL;
    int best = 3;
    if (strlen(word) < 3) return NULL;
    for (int i = 0; i < n; i++) {
        int d = lc__edit_distance(word, strlen(word), words[i], strlen(words[i]));
        if (d < best) best = d, nearest = words[i];
    }
    return nearest;
}

int unknown_word(const char *kind, const char *word, const char *const *words, int n, tool_usage *usage)
{
    if (!*word) return usage(false);
    for (int i = 0; i < n; i++)
        if (!strcmp(word, words[i])) return usage(false);
    const char *meant = nearest_word(word, words, n);
    fprintf(stderr, "error: unknown %s \"%s\"%s%s%s\n", kind, SHOWN(word), meant ? "; did you mean \"" : "",
            meant ? meant : "", meant ? "\"?" : "");
    return meant ? 2 : usage(false);
}
