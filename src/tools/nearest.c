/* SPDX-License-Identifier: Apache-2.0 */
/* The word that a misspelled one probably means. */
#include "base/edit_distance.h"
#include "tools.h"

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
