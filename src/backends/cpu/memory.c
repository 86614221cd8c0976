/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory. An arena is a large range of addresses without backing memory, of which a growing prefix is made usable.
 * It grows without moving, so that plans may hold plain pointers. */
#define _GNU_SOURCE /* mremap */
#include "backends/cpu/memory.h"
#include "base/memory_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define HUGE_PAGE      ((size_t)2 << 20)
#define ARENA_SMALLEST ((size_t)64 << 20)
#ifdef __SANITIZE_THREAD__ /* leaves a program 6 TiB of addresses, and ends it when they are used up */
#define ARENA_LARGEST ((size_t)32 << 30)
#else
#define ARENA_LARGEST ((size_t)1 << 40)
#endif
#define ALIGNMENT 256
/* From this size on storage is mapped separately: zero pages are free, large pages are possible, and freed memory
 * returns to the system at once, as when a module's parameters move into flat buffers. */
#define MAP_FROM ((size_t)128 << 10)

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static uint64_t machine_bytes(void)
{
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- arenas ---- */
/* Twice the machine's memory is more than a plan may have; a process has addresses for hundreds of such arenas. */
lc_status lc__cpu_arena_reserve(void *device, void **base, size_t *reserved)
{
    (void)device;
    size_t size = sizeof(size_t) > 4 ? ARENA_LARGEST : (size_t)512 << 20;
    struct rlimit limit;
    while (size / 4 >= machine_bytes() && size > ARENA_SMALLEST) size /= 2;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        /* Reserved addresses count; leave room for everything else. */
        while (size > limit.rlim_cur / 4 && size > ARENA_SMALLEST) size /= 2;
    }
    for (; size >= ARENA_SMALLEST; size /= 2) {
        char *p = mmap(NULL, size + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) continue;
        size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (head) munmap(p, head);
        if (HUGE_PAGE - head) munmap(p + head + size, HUGE_PAGE - head);
        *base = p + head;
        *reserved = size;
        return LC_OK;
    }
    return lc_fail(LC_ERR_MEMORY,
                   "cannot reserve %zu MiB of address space (%s); raise the limit on address space (ulimit -v)",
                   ARENA_SMALLEST >> 20, strerror(errno));
}

lc_status lc__cpu_arena_commit(void *device, void *base, size_t reserved, size_t bytes)
{
    (void)device;
    if (bytes > reserved)
        return lc_fail(LC_ERR_MEMORY, "%zu MiB are needed, but only %zu MiB of address space could be reserved",
                       bytes >> 20, reserved >> 20);
    /* A large page is cleared as a whole when it is first written, and a small step uses little of one. */
    const bool large = bytes >= HUGE_PAGE;
    bytes = large ? (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1) : whole_pages(bytes);
    if (!bytes) return LC_OK;
    if (mprotect(base, bytes, PROT_READ | PROT_WRITE) != 0)
        return lc_fail(LC_ERR_MEMORY, "cannot get %zu MiB of memory (%s); %zu MiB are available", bytes >> 20,
                       strerror(errno), lc__cpu_available(NULL) >> 20);
    if (large) madvise(base, bytes, MADV_HUGEPAGE); /* only a hint; kernels without large pages refuse it */
    return LC_OK;
}

void lc__cpu_arena_drop(void *device, void *base, size_t bytes)
{
    (void)device;
    if (bytes) madvise(base, whole_pages(bytes), MADV_DONTNEED);
}

void lc__cpu_arena_release(void *device, void *base, size_t reserved)
{
    (void)device;
    if (base) munmap(base, reserved);
}

/* ---- single storages ---- */
static lc_status alloc(size_t bytes, int flags, void **out)
{
    *out = NULL;
    if (bytes > SIZE_MAX / 2) return lc_fail(LC_ERR_MEMORY, "%zu bytes exceed the address space", bytes);
    if (bytes >= MAP_FROM) {
        void *p = mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
        if (p != MAP_FAILED) {
            if (bytes >= 2 * HUGE_PAGE) madvise(p, whole_pages(bytes), MADV_HUGEPAGE);
            *out = p;
            return LC_OK;
        }
    } else {
        size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (!rounded) rounded = ALIGNMENT;
        void *p = aligned_alloc(ALIGNMENT, rounded);
        if (p) {
            memset(p, 0, rounded);
            *out = p;
            return LC_OK;
        }
    }
    return lc_fail(LC_ERR_MEMORY, "cannot get %zu bytes of memory; %zu MiB are available", bytes,
                   lc__cpu_available(NULL) >> 20);
}

lc_status lc__cpu_alloc(void *device, size_t bytes, void **out)
{
    (void)device;
    return alloc(bytes, 0, out);
}

lc_status lc__cpu_reserve(void *device, size_t bytes, void **out)
{
    (void)device;
    return alloc(bytes, MAP_NORESERVE, out);
}

void lc__cpu_free(void *device, void *data, size_t bytes)
{
    (void)device;
    if (!data) return;
    if (bytes >= MAP_FROM)
        munmap(data, whole_pages(bytes));
    else
        free(data);
}

/* Pages that have not been written to need no copy, and so no memory yet. */
static void copy_written(char *to, const char *from, size_t bytes)
{
    enum { PAGE = 4096 };
    for (size_t at = 0; at < bytes; at += PAGE) {
        size_t n = bytes - at < PAGE ? bytes - at : PAGE;
        if (from[at] || memcmp(from + at, from + at + 1, n - 1)) memcpy(to + at, from + at, n);
    }
}

void lc__cpu_share(void *device, void *data, size_t bytes, int *fd)
{
    (void)device;
    size_t n = whole_pages(bytes);
    *fd = bytes < MAP_FROM ? -1 : lc__memory_file("lightc-storage", n);
    if (*fd < 0) return;
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (p != MAP_FAILED) {
        copy_written(p, data, bytes);
        if (mremap(p, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, data) == data) return;
        munmap(p, n);
    }
    close(*fd);
    *fd = -1;
}

/* ---- available memory ---- */
/* The number in the first line of a file; UINT64_MAX if there is none ("max", no such file). */
static uint64_t read_number(const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) return UINT64_MAX;
    unsigned long long value;
    int fields = fscanf(f, "%llu", &value);
    fclose(f);
    return fields == 1 ? value : UINT64_MAX;
}

/* The number that follows `key` at the start of a line; `missing` if there is none. */
static uint64_t read_field(const char *path, const char *key, uint64_t missing)
{
    FILE *f = fopen(path, "r");
    if (!f) return missing;
    char line[256];
    uint64_t value = missing;
    size_t n = strlen(key);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, key, n)) continue;
        value = strtoull(line + n, NULL, 10);
        break;
    }
    fclose(f);
    return value;
}

static uint64_t left(uint64_t limit, uint64_t used)
{
    if (limit == UINT64_MAX) return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

/* Bytes that the control group still allows. File pages that can be dropped at once are not counted as used. */
static uint64_t cgroup_left(const char *dir, const char *limit_name, const char *used_name, const char *cache_key)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, limit_name);
    uint64_t limit = read_number(path);
    if (limit == UINT64_MAX) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", dir, used_name);
    uint64_t used = read_number(path);
    if (used == UINT64_MAX) return limit;
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    uint64_t cache = read_field(path, cache_key, 0);
    return left(limit, used > cache ? used - cache : 0);
}

size_t lc__cpu_available(void *device)
{
    (void)device;
    uint64_t kib = read_field("/proc/meminfo", "MemAvailable:", UINT64_MAX);
    uint64_t least = kib == UINT64_MAX ? UINT64_MAX : kib * 1024;
    if (least == UINT64_MAX) least = machine_bytes();

    /* The group as a container sees it (the root of its view), and the group by name. */
    char own[400] = "/sys/fs/cgroup", line[384];
    FILE *f = fopen("/proc/self/cgroup", "r");
    if (f) {
        while (fgets(line, sizeof line, f)) {
            if (strncmp(line, "0::", 3)) continue;
            line[strcspn(line, "\n")] = 0;
            snprintf(own, sizeof own, "/sys/fs/cgroup%s", line + 3);
        }
        fclose(f);
    }
    const uint64_t groups[] = {
        cgroup_left("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "),
        cgroup_left(own, "memory.max", "memory.current", "inactive_file "),
        cgroup_left("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    };
    for (int i = 0; i < 3; i++) {
        if (groups[i] < least) least = groups[i];
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        uint64_t data = read_field("/proc/self/status", "VmData:", 0) * 1024;
        if (left(limit.rlim_cur, data) < least) least = left(limit.rlim_cur, data);
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        /* Arenas have reserved their addresses already; what they have not filled is still available. */
        uint64_t data = read_field("/proc/self/status", "VmData:", 0) * 1024;
        if (left(limit.rlim_cur, data) < least) least = left(limit.rlim_cur, data);
    }
    return least > SIZE_MAX ? SIZE_MAX : (size_t)least;
}
