/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the allocations of all threads, and simulates a lack of memory: the program's own malloc wraps the C library's
 * and fails at the n-th call. Include it in one file of a program, which LIGHTC_OVERRIDING_TESTS names
 * (tests/CMakeLists.txt). With a sanitizer (SANITIZED, test.h), which has its own allocator, it does nothing. */
#ifndef LC_FAIL_MALLOC_H
#define LC_FAIL_MALLOC_H

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#ifndef SANITIZED
static atomic_long mallocs, malloc_fail_at; /* 0: never; it fails once */

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t n);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t n);
void *aligned_alloc(size_t align, size_t n);

static bool out_of_memory(void)
{
    if (atomic_fetch_add(&mallocs, 1) + 1 != atomic_load(&malloc_fail_at)) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n)
{
    return out_of_memory() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return out_of_memory() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return out_of_memory() ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    return out_of_memory() ? NULL : __libc_memalign(align, n);
}
#endif

#endif
