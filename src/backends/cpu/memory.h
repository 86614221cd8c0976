/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory for the CPU backend; lc_backend_ops documents the functions. */
#ifndef LC_BACKENDS_CPU_MEMORY_H
#define LC_BACKENDS_CPU_MEMORY_H

#include <lightc/status.h>

lc_status lc__cpu_arena_reserve(void **base, size_t *reserved);
lc_status lc__cpu_arena_commit(void *base, size_t reserved, size_t bytes);
void lc__cpu_arena_drop(void *base, size_t bytes);
void lc__cpu_arena_release(void *base, size_t reserved);
lc_status lc__cpu_alloc(size_t bytes, void **out);
lc_status lc__cpu_reserve(size_t bytes, void **out);
void lc__cpu_free(void *data, size_t bytes);
void lc__cpu_share(void *data, size_t bytes, int *fd);
size_t lc__cpu_available(void);

#endif
