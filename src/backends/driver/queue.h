/* SPDX-License-Identifier: Apache-2.0 */
/* The memory and the queue of a device, over its driver: the parts of lc_backend_ops that do not depend on the kind of
 * device. A backend fills in its name and its kernels, and opens its devices by lc__queue_open:
 *
 *     static const lc_backend_ops ops = {LC__QUEUE_OPS("sim"), .open = open, ...}; */
#ifndef LC_BACKENDS_DRIVER_QUEUE_H
#define LC_BACKENDS_DRIVER_QUEUE_H

#include <lightc/backend.h>

#include "backends/driver/driver.h"

/* Opens device `index`; *device is what `open` returns. */
lc_status lc__queue_open(const lc_backend_host *host, const lc__driver *driver, int index, void **device) LC_MUST_USE;
/* For kernels: starts a function of the driver. call->device is the device. */
void lc__queue_launch(const lc_call *call, const void *function, const unsigned grid[3], const unsigned block[3],
                      unsigned shared, void **parameters);

lc_status lc__queue_arena_reserve(void *device, void **base, size_t *reserved);
lc_status lc__queue_arena_commit(void *device, void *base, size_t reserved, size_t bytes);
void lc__queue_arena_drop(void *device, void *base, size_t bytes);
void lc__queue_arena_release(void *device, void *base, size_t reserved);
lc_status lc__queue_alloc(void *device, size_t bytes, void **out);
void lc__queue_free(void *device, void *data, size_t bytes);
size_t lc__queue_available(void *device);
lc_status lc__queue_copy(void *device, void *to, const void *from, size_t bytes);
lc_status lc__queue_copy_ahead(void *device, void *to, const void *from, size_t bytes);
lc_status lc__queue_copy_arrived(void *device, void *to, const void *from, size_t bytes, uint64_t *mark);
void *lc__queue_stream(void *device);
lc_status lc__queue_host_alloc(void *device, size_t bytes, void **out);
void lc__queue_host_free(void *device, void *data, size_t bytes);
lc_status lc__queue_host_register(void *device, void *data, size_t bytes);
void lc__queue_host_unregister(void *device, void *data);
lc_status lc__queue_mark(void *device, uint64_t *mark);
lc_status lc__queue_wait(void *device, uint64_t mark);
lc_status lc__queue_reached(void *device, uint64_t mark, bool *reached);
lc_status lc__queue_program_begin(void *device);
lc_status lc__queue_program_end(void *device, void **program);
lc_status lc__queue_program_run(void *device, void *program);
void lc__queue_program_free(void *device, void *program);

#define LC__QUEUE_OPS(text)                                                                                            \
    LC_BACKEND_OPS_INIT(text),                                                                                         \
        .arena_reserve = lc__queue_arena_reserve, .arena_commit = lc__queue_arena_commit,                              \
        .arena_drop = lc__queue_arena_drop, .arena_release = lc__queue_arena_release, .alloc = lc__queue_alloc,        \
        .reserve = lc__queue_alloc, .free = lc__queue_free, .available = lc__queue_available, .copy = lc__queue_copy,  \
        .copy_ahead = lc__queue_copy_ahead, .copy_arrived = lc__queue_copy_arrived, .queue = lc__queue_stream,         \
        .host_alloc = lc__queue_host_alloc, .host_free = lc__queue_host_free,                                          \
        .host_register = lc__queue_host_register, .host_unregister = lc__queue_host_unregister,                        \
        .mark = lc__queue_mark, .wait = lc__queue_wait, .reached = lc__queue_reached,                                  \
        .program_begin = lc__queue_program_begin, .program_end = lc__queue_program_end,                                \
        .program_run = lc__queue_program_run, .program_free = lc__queue_program_free

#endif
