/* SPDX-License-Identifier: Apache-2.0 */
/* The devices that a process uses. A device is opened once, and stays open. */
#ifndef LC_DEVICE_DEVICE_H
#define LC_DEVICE_DEVICE_H

#include <lightc/backend.h>

typedef struct lc_device {
    const lc_backend_ops *ops;
    int index;
    void *context; /* of the backend */
} lc_device;

/* The host's memory and processors. */
const lc_device *lc__host_device(void);
/* The device of a name: "cpu", "sim", "sim:1". Opens it. */
lc_status lc__device_find(const char *name, const lc_device **out) LC_MUST_USE;
/* How many devices there are of the kind of `name`; an error if it names none. Opens none: an open GPU
 * takes memory in each process. */
lc_status lc__device_count(const char *name, int *count) LC_MUST_USE;
/* The device of --accelerator and lc_graph_args.device; NULL or "auto": the default. */
lc_status lc__device_choose(const char *name, const lc_device **out) LC_MUST_USE;
/* Where this thread makes tensors and graphs: what lc__device_use chose, or what LIGHTC_ACCELERATOR names, or the
 * host. */
lc_status lc__device_default(const lc_device **out) LC_MUST_USE;
/* Chooses that for this thread; NULL: nothing is chosen. Returns the choice before. */
const lc_device *lc__device_use(const lc_device *on);
/* "cpu", "sim", "sim:1" into `name`, which it returns. */
enum { LC__DEVICE_NAME = 48 };
const char *lc__device_name(const lc_device *d, char name[LC__DEVICE_NAME]);

/* Waits until the device has got to the mark, unless it is there already: waiting has a price of its own. */
lc_status lc__device_reach(const lc_device *on, uint64_t mark) LC_MUST_USE;
/* Waits until the device, whose memory the host cannot reach, has got to what is enqueued last. Inputs of the next step
 * may still be on their way (copy_ahead). */
lc_status lc__device_wait(const lc_device *on) LC_MUST_USE;
/* Copies bytes between memories, and returns when that is done. A copy within one device is only enqueued. */
lc_status lc__device_copy(const lc_device *to_on, void *to, const lc_device *from_on, const void *from,
                          size_t bytes) LC_MUST_USE;

/* plugin.c: loads the backend of that name from a shared object. It stays loaded. */
lc_status lc__device_plugin(const char *name, const lc_backend_ops **out) LC_MUST_USE;
/* Whether the folder of LIGHTC_BACKEND_PATH has that shared object: why it cannot be loaded is then worth saying. */
bool lc__device_has_plugin(const char *name);
/* plugin.c: a full copy of the vtable that it brings, which may be shorter. free() frees it. */
lc_status lc__backend_take(const char *name, const lc_backend_ops *given, const lc_backend_ops **out) LC_MUST_USE;

/* The operator of that name, among all that a plan can contain except those of programs; NULL: there is none. */
const lc_op *lc__op_find(const char *name);

static inline bool lc__on_host(const lc_device *d)
{
    return d->ops->host_memory;
}

#endif
