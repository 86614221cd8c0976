/* SPDX-License-Identifier: Apache-2.0 */
/* Backends: kinds of devices, as tensors, the planner and the executor see them. No other part of the library knows
 * oneDNN, OpenMP or the CPU.
 *
 * A backend is built in (src/backends/NAME, named in src/builtin.c), or a plug-in: a shared object with the name
 * liblightc_NAME.so, which exports lc_backend_entry. `--accelerator NAME` opens it, from the folder that
 * LIGHTC_BACKEND_PATH names, or from where dlopen looks. A plug-in is not linked with lightc: it gets what it calls
 * from lc_backend_host. */
#ifndef LIGHTC_BACKEND_H
#define LIGHTC_BACKEND_H

#include <lightc/op.h>

/* `device` is what `open` returned. A backend whose memory the host cannot reach runs what it is given in order, on one
 * queue for each device: kernels enqueue their work and return. Its first error is kept, and every later call
 * returns it. */
typedef struct lc_backend_ops {
    size_t size;      /* LC_BACKEND_OPS_INIT(name) */
    const char *name; /* "cpu" */
    /* The host reads and writes the device's memory as its own, and a kernel has done its work when run() returns. Then
     * what follows `kernels` below is not called, and may be NULL. */
    bool host_memory;

    /* OPTIONAL (one device, which needs nothing): how many devices there are, and device `index` of them. It stays
     * open. */
    lc_status (*count)(int *devices);
    lc_status (*open)(int index, void **device);

    /* ---- memory. Memory never moves. ---- */
    /* A growable arena: reserves address space only; `commit` makes the first `bytes` usable. */
    lc_status (*arena_reserve)(void *device, void **base, size_t *reserved);
    lc_status (*arena_commit)(void *device, void *base, size_t reserved, size_t bytes);
    /* Returns memory of the arena, at least its first `bytes`, to the system; their contents are lost. Before the arena
     * is used again, arena_commit is called again. */
    void (*arena_drop)(void *device, void *base, size_t bytes);
    void (*arena_release)(void *device, void *base, size_t reserved);
    /* Zero-filled, 256-byte aligned storage. */
    lc_status (*alloc)(void *device, size_t bytes, void **out);
    /* The same for storage that may never be used whole. On a host it may be larger than the machine's memory; a device
     * may take all of it at once, and fail. */
    lc_status (*reserve)(void *device, size_t bytes, void **out);
    /* Waits until the device no longer uses the storage. */
    void (*free)(void *device, void *data, size_t bytes);
    /* OPTIONAL: turns storage of `alloc` into that of an unnamed file, at the same address and with the same contents,
     * so that other processes can map it; it is freed as before. *fd: the file, which the caller closes; -1 if this is
     * impossible, and then nothing has changed. Once per storage. Nobody may use the storage meanwhile. */
    void (*share)(void *device, void *data, size_t bytes, int *fd);
    /* Bytes that can still be allocated. */
    size_t (*available)(void *device);

    /* ---- kernels ---- */
    /* The kernels that the backend uses: chosen when a graph is made, so that all its plans use the same. Reads the
     * environment (cpu: LIGHTC_ISA). *set is constant and belongs to the backend. */
    lc_status (*kernel_set)(void *device, const void **set);
    /* Kernels of the set that can do the call as it is (types, shapes, strides, threads, rounded), best first: at
     * most `max`; *n may be 0; then the host's memory allows call->op->kernel, and the others fail. They take the same
     * layout. The result depends only on the call: running out of memory is an error, never another kernel. Operators
     * flagged LC_OP_HOST need no kernels. */
    lc_status (*find_kernels)(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n);
    /* What the choice among kernels depends on: "avx512, oneDNN 2.6.0". */
    void (*describe)(const void *set, char *text, size_t size);
    /* OPTIONAL (1) */
    int (*max_threads)(void);
    /* OPTIONAL (unknown): what the processor has that matters to kernels, with spaces between: "avx2 f16c avx512". */
    void (*features)(char *text, size_t size);
    /* OPTIONAL (it has): whether the processor has units for products of `dtype`, which has 16 bits. Without them
     * kernels convert to f32, so that such products are not faster than those of f32. */
    bool (*has_units)(const void *set, lc_dtype dtype);
    /* OPTIONAL (no): whether there are kernels that products of f32 gain from, if they may compute in bf16
     * (lc_call.matmul_precision). */
    bool (*lowers_products)(const void *set);

    /* ---- the queue ---- */
    /* Enqueues a copy of bytes between two addresses, each the device's or the host's. Host memory of host_alloc or
     * host_register is used when the queue gets there; other host memory is done with when the function returns. */
    lc_status (*copy)(void *device, void *to, const void *from, size_t bytes);
    /* OPTIONAL (copy): a second queue, for what the next step reads. copy_ahead enqueues a copy there, from host memory
     * that the queue can use. It waits for no kernel, only for each copy_arrived before it. copy_arrived enqueues a
     * copy within the device, which waits for each copy_ahead before it. *mark: after those. */
    lc_status (*copy_ahead)(void *device, void *to, const void *from, size_t bytes);
    lc_status (*copy_arrived)(void *device, void *to, const void *from, size_t bytes, uint64_t *mark);
    /* OPTIONAL (NULL): the queue, for kernels of programs (lc_call.queue). A backend documents what it is. */
    void *(*queue)(void *device);
    /* Host memory that the queues of all devices can use. host_free waits until none of them uses it any longer. */
    lc_status (*host_alloc)(void *device, size_t bytes, void **out);
    void (*host_free)(void *device, void *data, size_t bytes);
    /* OPTIONAL (batches are copied to memory of host_alloc first): from register to unregister, whole pages of the
     * host's memory are memory that the queues can use. unregister waits as host_free does. */
    lc_status (*host_register)(void *device, void *data, size_t bytes);
    void (*host_unregister)(void *device, void *data);
    /* A mark after what has been enqueued so far; marks count up. */
    lc_status (*mark)(void *device, uint64_t *mark);
    /* Waits until the device has got to the mark. UINT64_MAX: until it has done everything. */
    lc_status (*wait)(void *device, uint64_t mark);
    /* Whether the device has got to the mark; does not wait. */
    lc_status (*reached)(void *device, uint64_t mark, bool *reached);

    /* ---- OPTIONAL: programs. ---- */
    /* Work that is enqueued between begin and end does not run. It becomes a program, which keeps the addresses and
     * the numbers that it was enqueued with. Meanwhile nothing may be allocated, marked or waited for, no program is
     * run or freed, and one end of each copy is memory of host_alloc. */
    lc_status (*program_begin)(void *device);
    lc_status (*program_end)(void *device, void **program);
    lc_status (*program_run)(void *device, void *program);
    void (*program_free)(void *device, void *program);
} lc_backend_ops;

#define LC_BACKEND_OPS_INIT(text) .size = sizeof(lc_backend_ops), .name = (text)

/* ---- plug-ins ---- */

#define LC_BACKEND_SYMBOL "lc_backend_entry"
/* Until 1.0 a minor version may change the interface. */
#define LC_BACKEND_ABI (UINT32_C(1000) * LC_VERSION_MAJOR + LC_VERSION_MINOR)

/* The functions of the library that a plug-in calls. The library never changes the table. */
typedef struct lc_backend_host {
    uint32_t abi; /* LC_BACKEND_ABI of the library */
    /* lc_fail: returns `status`, and keeps the message. */
    lc_status (*fail)(lc_status status, const char *format, ...);
    /* The operator of that name, among all that a plan can contain: those of ops*.h, of the planner ("fused",
     * "accumulate_grad", "batch_norm_relu_pool"), of optimizers ("update_adam", "clip_coefficient") and of what spans
     * ranks ("all_reduce_bucket"). Not those of programs, which bring their own. NULL: there is none. */
    const lc_op *(*find_op)(const char *name);
    /* lc_call_bad_index */
    void (*bad_index)(const lc_call *call, const lc_bad_index *bad);
    /* Whether a call of the same graph has met a bad index that the library has not seen yet. Until then, kernels of
     * operators flagged LC_OP_MUTATES write nothing, so that no parameter is updated by what followed from it. */
    bool (*has_bad_index)(const lc_call *call);
} lc_backend_host;

/* The symbol of a plug-in: its backend, of which the library takes a copy, or NULL after host->fail. */
typedef const lc_backend_ops *lc_backend_entry_fn(const lc_backend_host *host);

#endif
