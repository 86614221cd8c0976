/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LC_BASE_MEMORY_FILE_H
#define LC_BASE_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* A file without a name, in memory, of so many zeros; -1: there is none to be had, errno says why. */
int lc__memory_file(const char *name, size_t bytes);

/* Where other processes of this host find an open file of this one, and its identity. fd -1: none. */
typedef struct lc__file_place {
    int64_t pid, fd, device, file;
} lc__file_place;

lc__file_place lc__file_place_of(int fd);
/* A descriptor of the file, which the caller closes; -1: errno says why. ESTALE: what is there is another file, as the
 * number of a process may be that of another one in another container, or it has fewer bytes. */
int lc__file_open(const lc__file_place *place, size_t bytes);

#endif
