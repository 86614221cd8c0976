/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a file of at most `size` - 1 bytes, for tests of what programs write. */
#ifndef LC_TESTS_FILE_TEXT_H
#define LC_TESTS_FILE_TEXT_H

#include <limits.h>
#include <stdio.h>

/* Empty if there is no such file. */
static inline void file_text(const char *dir, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, size - 1, f) : 0;
    text[n] = 0;
    if (f) fclose(f);
}

#endif
