/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* O_PATH */
#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

/* The lowest free descriptor: about as many are open. */
static rlim_t count_open(rlim_t limit)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return limit;
    close(fd);
    return (rlim_t)fd;
}

void lc__descriptors_allow(int more)
{
    enum { OTHERS = 64 }; /* descriptors that the program opens meanwhile */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    rlim_t want = count_open(limit.rlim_cur) + (rlim_t)more + OTHERS;
    if (limit.rlim_cur >= want) return;
    limit.rlim_cur = want < limit.rlim_max ? want : limit.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
}

bool lc__descriptors_lacked(int error)
{
    return error == EMFILE || error == ENFILE;
}

long long lc__descriptors_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
    return (long long)limit.rlim_cur;
}

long long lc__descriptors_left(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT32_MAX) return INT32_MAX;
    return (long long)limit.rlim_cur - (long long)count_open(limit.rlim_cur);
}
