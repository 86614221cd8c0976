/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in for test_backend_plugin.c: a backend that is called "cuda", has no kernels, and runs on the host.
 * LIGHTC_TEST_BACKEND makes another one of it (lc_backend_entry). */
#include <lightc/backend.h>

#include <stdlib.h>
#include <string.h>

static lc_status arena_reserve(void *device, void **base, size_t *reserved)
{
    (void)device;
    *base = NULL;
    *reserved = 0;
    return LC_OK;
}
static lc_status arena_commit(void *device, void *base, size_t reserved, size_t bytes)
{
    (void)device, (void)base;
    return bytes > reserved ? LC_ERR_MEMORY : LC_OK;
}
static void drop(void *device, void *base, size_t bytes)
{
    (void)device, (void)base, (void)bytes;
}
static lc_status alloc(void *device, size_t bytes, void **out)
{
    (void)device;
    *out = calloc(1, bytes + 1);
    return *out ? LC_OK : LC_ERR_MEMORY;
}
static void release(void *device, void *data, size_t bytes)
{
    (void)device, (void)bytes;
    free(data);
}
static size_t available(void *device)
{
    (void)device;
    return 1 << 20;
}
static lc_status kernel_set(void *device, const void **set)
{
    *set = device;
    return LC_OK;
}
static lc_status find_kernels(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n)
{
    (void)set, (void)call, (void)max, (void)out;
    *n = 0;
    return LC_OK;
}
static void describe(const void *set, char *text, size_t size)
{
    (void)set;
    if (size) *text = 0;
}
static lc_status begin(void *device)
{
    (void)device;
    return LC_OK;
}

static lc_backend_ops ops = {LC_BACKEND_OPS_INIT("cuda"),
                             .host_memory = true,
                             .arena_reserve = arena_reserve,
                             .arena_commit = arena_commit,
                             .arena_drop = drop,
                             .arena_release = drop,
                             .alloc = alloc,
                             .reserve = alloc,
                             .free = release,
                             .available = available,
                             .kernel_set = kernel_set,
                             .find_kernels = find_kernels,
                             .describe = describe};

LC_API const lc_backend_ops *lc_backend_entry(const lc_backend_host *host);
const lc_backend_ops *lc_backend_entry(const lc_backend_host *host)
{
    const char *is = getenv("LIGHTC_TEST_BACKEND");
    if (!is) return &ops;
    if (!strcmp(is, "unnamed")) ops.name = NULL;
    if (!strcmp(is, "without memory")) ops.alloc = NULL;
    if (!strcmp(is, "without copies")) ops.host_memory = false;
    if (!strcmp(is, "half a program")) ops.program_begin = begin;
    if (!strcmp(is, "old")) host->fail(LC_ERR_CONFIG, "this backend was built for another version of lightc");
    return !strcmp(is, "old") || !strcmp(is, "silent") ? NULL : &ops;
}
