/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* memfd_create */
#include "base/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

int lc__memory_file(const char *name, size_t bytes)
{
    struct rlimit largest; /* of any file; the kernel kills a process that exceeds it */
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

lc__file_place lc__file_place_of(int fd)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) return (lc__file_place){.fd = -1};
    return (lc__file_place){.pid = getpid(), .fd = fd, .device = (int64_t)st.st_dev, .file = (int64_t)st.st_ino};
}

int lc__file_open(const lc__file_place *place, size_t bytes)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->pid, (long long)place->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return -1;
    if (fstat(fd, &st) == 0 && (int64_t)st.st_dev == place->device && (int64_t)st.st_ino == place->file &&
        (uint64_t)st.st_size >= bytes)
        return fd;
    close(fd);
    errno = ESTALE;
    return -1;
}
