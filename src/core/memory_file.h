/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LC_CORE_MEMORY_FILE_H
#define LC_CORE_MEMORY_FILE_H

#include <stddef.h>

/* A file without a name, in memory, of so many zeros; -1: there is none to be had, errno says why. */
int lc__memory_file(const char *name, size_t bytes);

#endif
