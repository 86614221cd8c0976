/* SPDX-License-Identifier: Apache-2.0 */
/* Tar files: the members of one, in order, and headers for a new one. POSIX (ustar, pax) and GNU's long names are read.
 * Files are not trusted: every header has a checksum, and every size is compared with the file's. */
#ifndef LC_DATA_TAR_H
#define LC_DATA_TAR_H

#include <lightc/status.h>

#include <stddef.h>
#include <stdint.h>

#define LC__TAR_BLOCK 512

typedef struct lc__tar {
    const char *path; /* borrowed */
    int fd;
    uint64_t at, bytes; /* the next header; of the file */
    char *name;         /* of the member found last, with a zero at its end */
    size_t cap_name;
    uint8_t block[LC__TAR_BLOCK];
} lc__tar;

/* A file in it; links, folders and devices are passed over. */
typedef struct lc__tar_member {
    const char *name; /* until the next one */
    uint64_t offset, size;
} lc__tar_member;

lc_status lc__tar_open(lc__tar *t, const char *path) LC_MUST_USE;
/* *m: the next file; its name is NULL at the end. */
lc_status lc__tar_next(lc__tar *t, lc__tar_member *m) LC_MUST_USE;
/* Reads a member's first n bytes, at most its size. */
lc_status lc__tar_read(lc__tar *t, const lc__tar_member *m, void *data, size_t n) LC_MUST_USE;
void lc__tar_close(lc__tar *t);

/* Whether a block is the header of a file of `size` bytes. */
bool lc__tar_is_header(const uint8_t block[LC__TAR_BLOCK], uint64_t size);
/* The header of a file; a name has less than 100 bytes. */
void lc__tar_header(uint8_t block[LC__TAR_BLOCK], const char *name, uint64_t size);

#endif
