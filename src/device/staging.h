/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the host in place of a device's, for what the host does with values there: what it reads is copied from the
 * device, and what it has made is copied back. If the host reaches the device's memory, nothing is copied: `at` below
 * is used itself. */
#ifndef LC_DEVICE_STAGING_H
#define LC_DEVICE_STAGING_H

#include "device/device.h"

typedef struct lc__staging {
    char *memory; /* of host_alloc; NULL: the device's memory is used itself */
    size_t bytes;
} lc__staging;

/* Makes room for as many bytes, whose contents are lost. The device must not use the memory any more. */
lc_status lc__staging_reserve(lc__staging *s, const lc_device *on, size_t bytes) LC_MUST_USE;
void lc__staging_free(lc__staging *s, const lc_device *on);
/* Enqueues a copy of `bytes` at `at` of the device to `offset`. */
lc_status lc__staging_read(lc__staging *s, const lc_device *on, size_t offset, const void *at,
                           size_t bytes) LC_MUST_USE;
/* Waits until all that was read has arrived. */
lc_status lc__staging_wait(const lc__staging *s, const lc_device *on) LC_MUST_USE;
/* Enqueues a copy of `bytes` from `offset` to `at` of the device. They stay unchanged until it has got there. */
lc_status lc__staging_write(lc__staging *s, const lc_device *on, size_t offset, void *at, size_t bytes) LC_MUST_USE;

/* Where the host has what is at `at` of the device, and at `offset` here. */
static inline void *lc__staging_at(const lc__staging *s, size_t offset, const void *at)
{
    return s->memory ? s->memory + offset : (void *)(uintptr_t)at;
}

#endif
