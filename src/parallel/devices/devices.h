/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices of one process, each of which computes its part of every batch.
 *
 * A device is a graph (with plans, arena and workspace of its own), a thread with its share of the cores, and handles
 * of its own for the tensors of the module. The parts of a step are recorded one after the other, on the program's
 * thread, and run at the same time. Recording resolves a module's tensor to the device's handle, so the planner and the
 * kernels know nothing of devices:
 *
 *              data_parallel                           central_storage (copies)
 *   parameter  memory of the host's, read only         copied from the host's before every step
 *   gradient   device 0: the host's; else its own      its own
 *   buffer     device 0: the host's; else a copy,      a copy, refreshed before every step; device 0's goes back
 *              refreshed before every step
 *
 * Afterwards gradients are added to the host's over the devices, on the tree of comm.h, each device having a range of
 * them; the update is recorded in the host's graph. If that runs on a device of an accelerator, device i is the i-th
 * from there on, and has copies of all tensors; gradients are added on the host. */
#ifndef LC_PARALLEL_DEVICES_DEVICES_H
#define LC_PARALLEL_DEVICES_DEVICES_H

#include <lightc/module.h>
#include "record/graph_impl.h"
#include "parallel/tree/tree.h"

#define LC__MAX_DEVICES 256

typedef struct lc__devices lc__devices;

/* Makes n (1 to LC__MAX_DEVICES) devices that share the threads of `host`, the graph of the update (borrowed). */
lc_status lc__devices_new(lc_graph *host, int n, bool copies, lc__devices **out) LC_MUST_USE;
void lc__devices_free(lc__devices *d); /* NULL is fine */

/* The module whose steps will run, and other tensors that steps read; they stay until the next call or
 * lc__devices_free. */
lc_status lc__devices_set_module(lc__devices *d, lc_module *m, lc_tensor *const *others, int n) LC_MUST_USE;
/* Gradients will be needed for the parameters of these optimizers. */
lc_status lc__devices_set_optimizers(lc__devices *d, lc_optimizer *const *optimizers, int n) LC_MUST_USE;

/* From now on every device computes chunks of a batch (tree.h), which add up on `tree`: its part of a step is 2^k
 * chunks that follow those of earlier devices. Call it after lc__devices_set_optimizers; again when the tree changes,
 * and with NULL before it is freed. */
lc_status lc__devices_set_tree(lc__devices *d, const lc__tree *tree) LC_MUST_USE;

/* A step of `parts` parts (at most one for each device) begins: handles are brought up to date. Call it inside a step
 * of the host's graph, whose records are run. Random operators of part i are keyed as those of rank i, or, if it
 * consists of chunks, by their numbers only. Results of an earlier step of these devices expire. */
lc_status lc__devices_begin(lc__devices *d, int parts, bool of_chunks) LC_MUST_USE;
/* From now on this thread records into device i's graph (returned), until lc__devices_leave. A mean loss has weight
 * `weight`: its part's share of the samples. */
lc_graph *lc__devices_enter(lc__devices *d, int i, double weight);
void lc__devices_leave(lc__devices *d); /* back into the host's graph; harmless outside of a part */
/* Runs what is recorded so far and keeps all of it; recording goes on. */
lc_status lc__devices_flush(lc__devices *d) LC_MUST_USE;
/* Runs all parts, and adds their gradients to the host's. Returns the error of the lowest device that failed. */
lc_status lc__devices_run(lc__devices *d) LC_MUST_USE;

/* The memory that device i holds, in bytes; i -1: the host, if it is not a device itself (copies), else zeros. */
void lc__devices_memory(const lc__devices *d, int i, lc_device_memory *out);
/* Adds the memory of all devices, without the host's. */
void lc__devices_add_memory(const lc__devices *d, lc_device_memory *m);
/* Bounds the memory of the steps of the host and all devices together. */
void lc__devices_limit(lc__devices *d, int64_t bytes);

#endif
