/* SPDX-License-Identifier: Apache-2.0 */
/* A device as seen by tensors, the planner and the executor. No other part of the library knows oneDNN, OpenMP or the
 * CPU.
 *
 * To add a backend: implement lc_backend_ops in src/backends/NAME/, and name it in src/builtin.c. */
#ifndef LC_TENSOR_BACKEND_H
#define LC_TENSOR_BACKEND_H

#include <lightc/op.h>

typedef struct lc_backend_ops {
    const char *name; /* "cpu" */

    /* ---- memory. Memory never moves. ---- */
    /* A growable arena: reserves address space only; `commit` makes the first `bytes` usable. */
    lc_status (*arena_reserve)(void **base, size_t *reserved);
    lc_status (*arena_commit)(void *base, size_t reserved, size_t bytes);
    /* Drops the contents of the first `bytes`; their memory returns to the system until it is used again. */
    void (*arena_drop)(void *base, size_t bytes);
    void (*arena_release)(void *base, size_t reserved);
    /* Zero-filled, 256-byte aligned storage. */
    lc_status (*alloc)(size_t bytes, void **out);
    /* The same for storage that may never be used whole: it may be larger than the machine's memory. */
    lc_status (*reserve)(size_t bytes, void **out);
    void (*free)(void *data, size_t bytes);
    /* OPTIONAL: turns storage of `alloc` into that of an unnamed file, at the same address and with the same contents,
     * so that other processes can map it; it is freed as before. *fd: the file, which the caller closes; -1 if this is
     * impossible, and then nothing has changed. Once per storage. Nobody may use the storage meanwhile. */
    void (*share)(void *data, size_t bytes, int *fd);
    /* Bytes that can still be allocated. */
    size_t (*available)(void);

    /* ---- kernels ---- */
    /* The kernels that the backend uses: chosen when a graph is made, so that all its plans use the same. Reads the
     * environment (cpu: LIGHTC_ISA). *set is constant and belongs to the backend. */
    lc_status (*kernel_set)(const void **set);
    /* Kernels of the set that can do the call as it is (types, shapes, strides, threads, accumulate), best first: at
     * most `max`; *n may be 0; then call->op->kernel is used. They take the same layout. The result depends only on the
     * call: running out of memory is an error, never another kernel. */
    lc_status (*find_kernels)(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n);
    /* What the choice among kernels depends on: "avx512, oneDNN 2.6.0". */
    void (*describe)(const void *set, char *text, size_t size);
    int (*max_threads)(void);
} lc_backend_ops;

#endif
