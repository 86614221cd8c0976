/* SPDX-License-Identifier: Apache-2.0 */
/* The values of tensors on the host. The memory of a tensor belongs to a device, and its value may not have been
 * computed yet. So the host maps a tensor before it reads or writes values, and unmaps it afterwards:
 *
 *     lc_view v;
 *     LC_TRY(lc__tensor_map(t, LC__READ_WRITE, &v));
 *     ... v.data ...
 *     lc__tensor_unmap(t, LC__READ_WRITE);
 *
 * docs/design.md lists the rooms that access memory directly (tests/source/test_host_access.c checks that no other
 * does). */
#ifndef LC_TENSOR_HOST_ACCESS_H
#define LC_TENSOR_HOST_ACCESS_H

#include "tensor/tensor_impl.h"

/* Only LC__WRITE: all elements will be written, so the old values do not matter. */
typedef enum lc__access { LC__READ = 1, LC__WRITE = 2, LC__READ_WRITE = LC__READ | LC__WRITE } lc__access;

/* The host address of t's value until it is unmapped; for a sliced tensor, this rank's slice as 1-D. First computes
 * what the step being recorded still has to do for it, and fills in an initial value. */
lc_status lc__tensor_map(lc_tensor *t, lc__access access, lc_view *out) LC_MUST_USE;
/* After a write, notifies the step being recorded, which may have read the value. */
void lc__tensor_unmap(lc_tensor *t, lc__access access);
/* mirror.c: the same for memory that the host cannot reach. *v is the value on the device `on`; its address becomes
 * that of a copy on the host, which is written back when t is unmapped. */
lc_status lc__mirror_map(lc_tensor *t, const lc_device *on, lc__access access, lc_view *v) LC_MUST_USE;
void lc__mirror_unmap(lc_tensor *t, lc__access access);
/* mirror.c: enqueues a copy of t, one element, to `to`, memory of host_alloc of the device `on`; does not wait.
 * *fetched: its type; 0 if the value is not on that device, or not computed there. */
lc_status lc__tensor_fetch(lc_tensor *t, const lc_device *on, void *to, lc_dtype *fetched) LC_MUST_USE;
/* In a device's part of a step, that device's handle of a module's tensor; else t. Map, unmap and fetch use it. */
lc_tensor *lc__tensor_own(lc_tensor *t);
/* Fails if t is an input to which the program has given no memory. */
lc_status lc__input_check(const lc_tensor *t) LC_MUST_USE;
/* The error of a tensor whose step is over. */
lc_status lc__tensor_expired(void);
/* Runs what the step being recorded still has to do with a persistent tensor; and waits for it. */
lc_status lc__tensor_run(lc_tensor *t) LC_MUST_USE;
lc_status lc__tensor_wait(lc_tensor *t) LC_MUST_USE;
/* Runs the step of a step's tensor up to it: where its value is, or will be. An f32 number that the precision stores as
 * f64 is found as that. */
lc_status lc__tensor_find(lc_tensor *t, lc_view *out, const lc_device **on) LC_MUST_USE;
/* lc_tensor_write, from row-major numbers of another type. */
lc_status lc__tensor_write_as(lc_tensor *t, const lc_type *type, const void *data) LC_MUST_USE;
/* A tensor that is whole on all ranks of `comm` gets the value of rank `root`. Collective. Unlike lc__tensor_gather it
 * does not take a rank's status along: buffers are sent for every batch, and an agreement before each would double the
 * messages. A rank that fails before it ends its run, and with it the other ranks', as after any failure in a batch. */
lc_status lc__tensor_broadcast(lc_tensor *t, lc_comm *comm, int root) LC_MUST_USE;
/* Whether the step being recorded uses a persistent tensor whose last reference is gone: it is then freed after the
 * step, by lc__graph_free_kept. */
bool lc__tensor_keep(lc_tensor *t);
/* The address of t's memory, to check whether it has moved, or to make a range of an input. Do not read or write
 * through it: map t instead. */
void *lc__tensor_address(const lc_tensor *t);

/* What remains to be done for a call whose operands were converted (engine/run/seen_types.c). */
typedef struct lc__to_do {
    lc_dtype rounds;  /* the results that are data become this type of 16 bits; 0: none does */
    uint32_t results; /* those that are data, by position */
    uint32_t written; /* operands that are copies, to be written back, by position */
} lc__to_do;

/* The slots of a graph for host access. */
typedef struct lc__host_ops {
    /* The handle of t on the device that this thread records for (lc_tensor.replicas). */
    lc_tensor *(*own)(lc_tensor *t);
    /* Runs what this thread has recorded and uses a persistent tensor. */
    lc_status (*run)(lc_tensor *t);
    /* Finds the value of a step's tensor, after running the step up to it, and the device that has it or will. */
    lc_status (*find)(lc_tensor *t, lc_view *out, const lc_device **on);
    /* Waits until the graph's device has done what runs there. */
    lc_status (*wait)(lc_graph *g);
    /* The host has written a persistent tensor. */
    void (*wrote)(lc_tensor *t);
    /* For a call that is recorded: operands that it cannot compute with become other tensors, in `out`; then, for its
     * results, what the first has left to do; `given`: `out`. */
    lc_status (*operands)(lc_graph *g, const lc_op *op, int n_in, lc_tensor *const *in, lc_tensor **out,
                          lc__to_do *later, lc_site site);
    void (*results)(lc_graph *g, const lc_op *op, lc__to_do later, lc_tensor *const *in, lc_tensor *const *given,
                    lc_tensor **results, lc_site site);
    bool (*keep)(lc_tensor *t); /* lc__tensor_keep */
    /* The place in the program that made t. */
    lc_site (*site)(const lc_tensor *t);
} lc__host_ops;

/* The part of a graph that tensors know: the first member of lc_graph. */
typedef struct lc__recorder {
    lc__mark mark;
    const lc__host_ops *host;
} lc__recorder;

/* The graph that this thread records into, or has recorded into last; NULL: none. */
extern _Thread_local lc_graph *lc__current;

#endif
