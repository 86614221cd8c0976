/* SPDX-License-Identifier: Apache-2.0 */
/* A device as tensors, the planner and the executor see it. Nothing else of the library knows oneDNN, OpenMP or CPU.
 *
 * To add a backend: implement lc_backend_ops in src/backends/NAME/, and name it in src/builtin.c. */
#ifndef LC_TENSOR_BACKEND_H
#define LC_TENSOR_BACKEND_H

#include <lightc/op.h>

typedef struct lc_backend_ops {
    const char *name; /* "cpu" */

    /* ---- memory. Addresses never move once given. ---- */
    /* A growable arena: reserves address space only; `commit` makes the first `bytes` usable. */
    lc_status (*arena_reserve)(void **base, size_t *reserved);
    lc_status (*arena_commit)(void *base, size_t reserved, size_t bytes);
    /* What is in the first `bytes` is lost, and their memory is the system's until it is used again. */
    void (*arena_drop)(void *base, size_t bytes);
    void (*arena_release)(void *base, size_t reserved);
    /* Zero-filled, 256-byte aligned storage. */
    lc_status (*alloc)(size_t bytes, void **out);
    /* The same for what may never be used whole: it may be more than the machine has. */
    lc_status (*reserve)(size_t bytes, void **out);
    void (*free)(void *data, size_t bytes);
    /* OPTIONAL: storage of `alloc` goes on as that of a file without a name, at the same address and with what is in
     * it, so that other processes can map it; it is freed as before. *fd: the file, the caller's to close; -1 where
     * this cannot be, and then nothing has changed. Once for a storage. Nobody may use the storage meanwhile. */
    void (*share)(void *data, size_t bytes, int *fd);
    /* Bytes that could still be had. */
    size_t (*available)(void);

    /* ---- kernels ---- */
    /* Which of its kernels the backend uses: fixed when a graph is made, so that no two plans differ in it. Reads the
     * environment (cpu: LIGHTC_ISA). *set is constant and belongs to the backend. */
    lc_status (*kernel_set)(const void **set);
    /* Kernels of the set that can do the call as it is (types, shapes, strides, threads, accumulate), best first: at
     * most `max`; *n may be 0, then call->op->kernel is left. They take the same layout. The result depends only on the
     * call: running out of memory is an error, never another kernel. */
    lc_status (*find_kernels)(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n);
    /* What a choice among them depends on: "avx512, oneDNN 2.6.0". */
    void (*describe)(const void *set, char *text, size_t size);
    int (*max_threads)(void);
} lc_backend_ops;

#endif
