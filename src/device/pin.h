/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the host that is registered with a device: a copy from there is enqueued as it is, and the device makes it
 * later. A thread that writes there next waits for that copy first. */
#ifndef LC_DEVICE_PIN_H
#define LC_DEVICE_PIN_H

#include "device/device.h"

typedef struct lc__pin {
    const lc_device *on; /* NULL: the memory is registered with no device */
    uint64_t mark;       /* after the last copy; 0: none was made */
} lc__pin;

/* Whether memory of the host can, and should, be registered with the device. */
static inline bool lc__can_pin(const lc_device *on)
{
    return !lc__on_host(on) && on->ops->host_register;
}

/* Waits until the device has made the last copy. */
static inline lc_status lc__pin_wait(const lc__pin *p)
{
    return p->mark ? lc__device_reach(p->on, p->mark) : LC_OK;
}

#endif
