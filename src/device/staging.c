/* SPDX-License-Identifier: Apache-2.0 */
#include "device/staging.h"

lc_status lc__staging_reserve(lc__staging *s, const lc_device *on, size_t bytes)
{
    if (lc__on_host(on) || (s->memory && bytes <= s->bytes)) return LC_OK;
    lc__staging_free(s, on);
    void *memory;
    bytes = bytes ? bytes : 1;
    LC_TRY(on->ops->host_alloc(on->context, bytes, &memory));
    *s = (lc__staging){memory, bytes};
    return LC_OK;
}

void lc__staging_free(lc__staging *s, const lc_device *on)
{
    if (s->memory) on->ops->host_free(on->context, s->memory, s->bytes);
    *s = (lc__staging){0};
}

lc_status lc__staging_read(lc__staging *s, const lc_device *on, size_t offset, const void *at, size_t bytes)
{
    if (!s->memory || !bytes) return LC_OK;
    return on->ops->copy(on->context, s->memory + offset, at, bytes);
}

lc_status lc__staging_wait(const lc__staging *s, const lc_device *on)
{
    return s->memory ? lc__device_wait(on) : LC_OK;
}

lc_status lc__staging_write(lc__staging *s, const lc_device *on, size_t offset, void *at, size_t bytes)
{
    if (!s->memory || !bytes) return LC_OK;
    return on->ops->copy(on->context, at, s->memory + offset, bytes);
}
