/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend: host memory, own kernels compiled per instruction set, and oneDNN's for matrices and convolutions.
 */
#include "backends/backend.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/memory.h"
#include "backends/cpu/onednn/onednn.h"
#include "backends/cpu/parallel.h"

#include <stdlib.h>
#include <string.h>

static const lc_kernel *find_kernel(const lc_call *call)
{
    const char *which = getenv("LIGHTC_KERNELS");
    if (which && !strcmp(which, "reference") && call->op->kernel) return NULL;
    const lc_kernel *kernel = lc__isa_kernel(lc__isa_best(), call);
    return kernel ? kernel : lc__onednn_find(call);
}

const lc_backend_ops lc__cpu_backend = {
    .name = "cpu",
    .arena_reserve = lc__cpu_arena_reserve,
    .arena_commit = lc__cpu_arena_commit,
    .arena_release = lc__cpu_arena_release,
    .alloc = lc__cpu_alloc,
    .free = lc__cpu_free,
    .available = lc__cpu_available,
    .find_kernel = find_kernel,
    .max_threads = lc__parallel_max,
};
