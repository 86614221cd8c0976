/* SPDX-License-Identifier: Apache-2.0 */
/* The files of this tree, for tests that read them. LIGHTC_TEST_SOURCE names its root; without it, the working
 * directory is the root or inside it. */
#ifndef LC_TESTS_SOURCES_H
#define LC_TESTS_SOURCES_H

#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const c_files[] = {".c", ".h", ".inl", NULL};

/* An absolute path; skips the test if it is not the root of the tree. */
static inline const char *source_root(void)
{
    static char root[PATH_MAX];
    char path[PATH_MAX + 40];
    const char *given = getenv("LIGHTC_TEST_SOURCE");
    const char *const places[] = {given ? given : ".", given ? given : ".."};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%.4000s/include/lightc/lightc.h", places[i]);
        if (access(path, R_OK) == 0 && realpath(places[i], root)) return root;
    }
    SKIP("the sources are not here: run it from the root of the tree, or set LIGHTC_TEST_SOURCE");
}

/* The text of a file, to be freed; NULL if it does not exist. */
static inline char *read_text(const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) < 0) return NULL;
    char *text = calloc(1, (size_t)st.st_size + 1);
    CHECK(text && fread(text, 1, (size_t)st.st_size, f) == (size_t)st.st_size);
    fclose(f);
    return text;
}

/* The text of a file by its name in the tree. */
static inline char *read_source(const char *name)
{
    char path[PATH_MAX + 512];
    snprintf(path, sizeof path, "%s/%s", source_root(), name);
    char *text = read_text(path);
    if (!text) TEST_FAIL("%s cannot be read", name);
    return text;
}

/* Whether the word is among `words`, of which the last is NULL. */
static inline bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0) words++;
    return *words != NULL;
}

/* Calls `look` with the name in the tree and the text of each file in a folder (or of the one file) whose name has one
 * of the endings ("": it has no dot). */
static inline void each_source(const char *folder, const char *const *endings, void (*look)(const char *, char *))
{
    char path[PATH_MAX + 512], name[512];
    snprintf(path, sizeof path, "%s/%s", source_root(), folder);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%.250s/%.250s", folder, e->d_name);
        each_source(name, endings, look);
    }
    if (d) {
        closedir(d);
        return;
    }
    const char *base = strrchr(folder, '/'), *dot = strrchr(base ? base : folder, '.');
    if (!is_one_of(dot ? dot : "", endings)) return;
    char *text = read_source(folder);
    look(folder, text);
    free(text);
}

static inline bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Replaces comments and literals, which may span lines, with blanks. */
static inline void blank_out(char *text)
{
    for (char *p = text; *p;) {
        char *end = NULL;
        if (!strncmp(p, "/*", 2)) {
            end = strstr(p + 2, "*/");
            end = end ? end + 2 : p + strlen(p);
        } else if (!strncmp(p, "//", 2)) {
            end = p + strcspn(p, "\n");
        } else if (*p == '"' || *p == '\'') {
            for (end = p + 1; *end && *end != *p; end++) end += *end == '\\' && end[1];
            if (*end) end++;
        }
        if (!end) {
            p++;
            continue;
        }
        for (; p < end; p++)
            if (*p != '\n') *p = ' ';
    }
}

#endif
