/* SPDX-License-Identifier: Apache-2.0 */
/* The word that was meant by one that is misspelt. */
#include "tools.h"

enum { LONGEST = 31 };

/* Letters to insert, drop or change between two words. */
static int distance(const char *a, const char *b)
{
    int row[LONGEST + 1], n = (int)strlen(b);
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int least = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < least) least = row[j] + 1;
            if (row[j - 1] + 1 < least) least = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = least;
        }
    }
    return row[n];
}

const char *nearest_word(const char *word, const char *const *words, int n)
{
    if (strlen(word) < 3 || strlen(word) > LONGEST) return NULL;
    for (int most = 1; most <= 2; most++)
        for (int i = 0; i < n; i++)
            if (distance(word, words[i]) <= most) return words[i];
    return NULL;
}
