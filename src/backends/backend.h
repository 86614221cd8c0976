/* SPDX-License-Identifier: Apache-2.0 */
/* A device as the planner and the executor see it. Nothing above this header knows oneDNN, OpenMP or CPU.
 *
 * To add a backend: implement lc_backend_ops in src/backends/NAME/, and add it to registry.c. */
#ifndef LC_BACKENDS_BACKEND_H
#define LC_BACKENDS_BACKEND_H

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
    /* Kernels of the set that can do the call as it stands (types, shapes, strides, threads, accumulate), best first:
     * at most `max`; *n may be 0, then call->op->kernel is left. They take the same layout. Depends on the call alone:
     * where memory runs out, that is an error, never another kernel. */
    lc_status (*find_kernels)(const void *set, const lc_call *call, int max, const lc_kernel **out, int *n);
    /* What a choice among them depends on: "avx512, oneDNN 2.6.0". */
    void (*describe)(const void *set, char *text, size_t size);
    int (*max_threads)(void);
} lc_backend_ops;

/* Whether a kernel can do a call. LC_ERR_MEMORY if it had too little memory to find out. */
lc_status lc__kernel_supports(const lc_kernel *kernel, const lc_call *call, bool *yes);

extern const lc_backend_ops lc__cpu_backend;

/* The backend of that name, or NULL with an error that lists what there is. */
const lc_backend_ops *lc__backend_find(const char *name);

/* ---- the fused elementwise node: the planner's only operator of its own ----
 *
 * A chain of elementwise operators over one iteration space is run tile by tile. The program is a list of
 * micro-operators on registers; register r < n_in is input r; each instruction writes the next register; outputs name
 * registers. It is passed to the kernel through call->ints, so that it is part of the plan like any attribute:
 *   ints[0] = number of instructions
 *   then per instruction: index of the elementwise operator in lc__elementwise_table, number of inputs, up to three
 *   input registers (-1 = none), index of its first float in call->floats (-1 = none)   => 6 int64 each
 *   then one register number per output.
 * The index carries the operator's first two ints (gelu's form, clamp's bounds, cast's data type; all small): see
 * LC_FUSED_OP. Inputs and outputs follow LC_WANT_ELEMENTWISE. */
#define LC_FUSED_OP(index, int0, int1) ((int64_t)(index) | (int64_t)(int0) << 16 | (int64_t)(int1) << 24)
#define LC_FUSED_OP_INDEX(code)        ((int)((code)&0xffff))
#define LC_FUSED_OP_INT0(code)         ((code) >> 16 & 0xff)
#define LC_FUSED_OP_INT1(code)         ((code) >> 24 & 0xff)
#define LC_FUSED_INSTRUCTION_INTS      6
#define LC_FUSED_MAX_INSTRUCTIONS      24
#define LC_FUSED_MAX_INPUTS            12
#define LC_FUSED_MAX_OUTPUTS           8

extern const lc_op lc__op_fused;
/* Operator i of a call of it. */
const lc_op *lc__fused_op(const lc_call *call, int i);
/* The first of them whose result at that element is not finite, with its inputs as they are now; -1: none. */
int lc__fused_culprit(const lc_call *call, const int64_t *index);

/* The elementwise operators, in a fixed order; src/ops/elementwise.c defines them. */
extern const lc_op *const lc__elementwise_table[];
extern const int lc__elementwise_count;
/* Index in the table, or -1. */
int lc__elementwise_index(const lc_op *op);

#endif
