/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory for the CPU backend; lc_backend_ops documents the functions. */
#ifndef LC_BACKENDS_CPU_MEMORY_H
#define LC_BACKENDS_CPU_MEMORY_H

#include <lightc/status.h>

lc_status lc__cpu_arena_reserve(void *device, void **base, size_t *reserved);
lc_status lc__cpu_arena_commit(void *device, void *base, size_t reserved, size_t bytes);
void lc__cpu_arena_drop(void *device, void *base, size_t bytes);
void lc__cpu_arena_release(void *device, void *base, size_t reserved);
lc_status lc__cpu_alloc(void *device, size_t bytes, void **out);
lc_status lc__cpu_reserve(void *device, size_t bytes, void **out);
void lc__cpu_free(void *device, void *data, size_t bytes);
void lc__cpu_share(void *device, void *data, size_t bytes, int *fd);
size_t lc__cpu_available(void *device);

#endif
