/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create */
#include "core/memory_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

int lc__memory_file(const char *name, size_t bytes)
{
    struct rlimit largest; /* of any file; the kernel ends who makes a larger one */
    if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur != RLIM_INFINITY && bytes > largest.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}
