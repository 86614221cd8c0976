/* SPDX-License-Identifier: Apache-2.0 */
/* The time, in nanoseconds or milliseconds. */
#ifndef LC_BASE_CLOCK_H
#define LC_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* A clock that never goes back; only differences mean anything. */
static inline int64_t lc__now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The same clock, to a few milliseconds, but cheap. */
static inline int64_t lc__coarse_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t lc__now_ms(void)
{
    return lc__now_ns() / 1000000;
}

/* Since 1970. */
static inline int64_t lc__realtime_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
