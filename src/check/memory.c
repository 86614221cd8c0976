/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of one call, in one piece of the device's memory that is sent and fetched at once. */
#include "check/check.h"

#include <stdlib.h>
#include <string.h>

#define LARGEST ((size_t)64 << 20)

struct memory {
    const lc_device *on;
    void *device;
    char *host;
    size_t used;
};

lc_status memory_new(const lc_device *on, memory **out)
{
    memory *m = *out = calloc(1, sizeof *m);
    if (!m) return lc_fail(LC_ERR_MEMORY, "out of memory for operands");
    m->on = on;
    m->host = malloc(LARGEST);
    if (!m->host) return lc_fail(LC_ERR_MEMORY, "out of memory for operands");
    return on->ops->alloc(on->context, LARGEST, &m->device);
}

void memory_free(memory *m)
{
    if (!m) return;
    if (m->device) m->on->ops->free(m->on->context, m->device, LARGEST);
    free(m->host);
    free(m);
}

void memory_reset(memory *m)
{
    m->used = 0;
}

lc_status memory_add(memory *m, const void *data, size_t bytes, size_t *at)
{
    *at = m->used;
    if (bytes > LARGEST - m->used) return lc_fail(LC_ERR_MEMORY, "the operands of a call are too large to check it");
    if (data) memcpy(m->host + m->used, data, bytes);
    m->used = (m->used + bytes + 256) & ~(size_t)255;
    return LC_OK;
}

void *memory_device(const memory *m, size_t at)
{
    return (char *)m->device + at;
}

void *memory_host(const memory *m, size_t at)
{
    return m->host + at;
}

lc_status memory_send(memory *m)
{
    return lc__device_copy(m->on, m->device, lc__host_device(), m->host, m->used);
}

lc_status memory_fetch(memory *m)
{
    return lc__device_copy(lc__host_device(), m->host, m->on, m->device, m->used);
}
