/* SPDX-License-Identifier: Apache-2.0 */
/* Removes what a test has written (the library has no function that removes arbitrary files). */
#ifndef LC_TESTS_REMOVE_TREE_H
#define LC_TESTS_REMOVE_TREE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Removes a file, or a directory with everything in it. Does not follow links. A path that does not exist is not an
 * error. */
static inline bool remove_tree(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0) return true;
    if (!S_ISDIR(st.st_mode)) return unlink(path) == 0;
    DIR *d = opendir(path);
    if (!d) return false;
    for (struct dirent *e; (e = readdir(d));) {
        char *inner = malloc(strlen(path) + strlen(e->d_name) + 2);
        if (!inner) abort();
        sprintf(inner, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) remove_tree(inner);
        free(inner);
    }
    closedir(d);
    return rmdir(path) == 0;
}

#endif
