/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory, and how other processes of the host find them. */
#ifndef LC_BASE_MEMORY_FILE_H
#define LC_BASE_MEMORY_FILE_H

#include <stddef.h>
#include <stdint.h>

/* An anonymous file in memory, `bytes` zeros long; -1 and errno on failure. */
int lc__memory_file(const char *name, size_t bytes);

/* Where other processes of this host find an open file of this process, and the file's identity. fd -1: none. */
typedef struct lc__file_place {
    int64_t pid, fd, device, file;
} lc__file_place;

lc__file_place lc__file_place_of(int fd);
/* A descriptor of the file, which the caller closes; -1 and errno on failure. ESTALE: another file is there, since the
 * process number may belong to another process in another container, or the file is too short. */
int lc__file_open(const lc__file_place *place, size_t bytes);

#endif
