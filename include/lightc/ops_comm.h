/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives as operators: results of a step that come from all ranks, with gradients, for your own losses, layers and
 * strategies (torch.distributed.nn.functional).
 *
 * They are recorded like any operator and *collective*: every rank of `comm` records the same collectives in the same
 * order, with x of the same shape and type, and runs them, whether it uses the result or not. Bytes move while the
 * step's other operators run, from the call to the first one that reads the result. x may change after the call. An
 * error of the communicator (ranks that make different calls, a lost rank) ends the step with its status, and comm
 * stays failed. If a step fails while it runs on one rank only, the calls it has in flight or would have made fail on
 * the others with its message; if it fails before it runs, the program must call lc_comm_abort.
 *
 * Gradients are those of the sum of all ranks' losses, so the backward pass communicates too, on each rank whose loss
 * depends on the result and whose x requires a gradient: this must hold for all ranks, or for none.
 *
 * If only root sends (broadcast, scatter_from), x of the others has the same shape, is ignored, and has a zero
 * gradient. If only root receives (reduce, gather_to), y of the others has the same shape and is zero, and its dy is
 * ignored. So all ranks can compute the same loss, whatever their rank.
 *
 * There is no send and no receive: send has no result and receive no x, so no gradient could flow back. lc_gather_to in
 * a group of the two ranks (lc_comm_split) moves a value from one to the other, and its gradient back.
 *
 * `comm` outlives the steps that use it. If a trainer reduces gradients over the same ranks, use a separate group
 * (lc_comm_split): a bucket of gradients is sent when it is ready, which may be at different points of the step on
 * ranks with different batches. */
#ifndef LIGHTC_OPS_COMM_H
#define LIGHTC_OPS_COMM_H

#include <lightc/comm.h>
#include <lightc/ops_types.h>

LC_BEGIN_DECLS

/* x of all ranks, combined, on all. Gradient (only of LC_COMM_SUM): the sum of dy, on all. */
LC_API lc_tensor *lc_all_reduce_at(lc_tensor *x, lc_comm *comm, lc_reduce_op op, lc_site site);
#define lc_all_reduce(x, comm, op) lc_all_reduce_at(x, comm, op, LC_HERE)
/* The sum of x on rank root, zeros elsewhere. Gradient: root's dy, on all. */
LC_API lc_tensor *lc_reduce_at(lc_tensor *x, lc_comm *comm, int root, lc_site site);
#define lc_reduce(x, comm, root) lc_reduce_at(x, comm, root, LC_HERE)
/* root's x, on all. Gradient: the sum of dy on root, zeros elsewhere. */
LC_API lc_tensor *lc_broadcast_at(lc_tensor *x, lc_comm *comm, int root, lc_site site);
#define lc_broadcast(x, comm, root) lc_broadcast_at(x, comm, root, LC_HERE)
/* x[n,*] -> [N*n,*]: of rank 0, of rank 1, ..., on all. Gradient: reduce_scatter. */
LC_API lc_tensor *lc_all_gather_at(lc_tensor *x, lc_comm *comm, lc_site site);
#define lc_all_gather(x, comm) lc_all_gather_at(x, comm, LC_HERE)
/* x[N*n,*] -> [n,*]: the sum of all ranks' x; rank i has part i. Gradient: all_gather. */
LC_API lc_tensor *lc_reduce_scatter_at(lc_tensor *x, lc_comm *comm, lc_site site);
#define lc_reduce_scatter(x, comm) lc_reduce_scatter_at(x, comm, LC_HERE)
/* x[n,*] -> [N*n,*]: as all_gather on rank root, zeros elsewhere. lc_gather picks by index. Gradient: scatter_from. */
LC_API lc_tensor *lc_gather_to_at(lc_tensor *x, lc_comm *comm, int root, lc_site site);
#define lc_gather_to(x, comm, root) lc_gather_to_at(x, comm, root, LC_HERE)
/* x[N*n,*] -> [n,*]: rank i has part i of root's x. Gradient: gather_to. */
LC_API lc_tensor *lc_scatter_from_at(lc_tensor *x, lc_comm *comm, int root, lc_site site);
#define lc_scatter_from(x, comm, root) lc_scatter_from_at(x, comm, root, LC_HERE)
/* x[N*n,*] -> [N*n,*]: part i is what rank i has as its part for this rank. Gradient: all_to_all. */
LC_API lc_tensor *lc_all_to_all_at(lc_tensor *x, lc_comm *comm, lc_site site);
#define lc_all_to_all(x, comm) lc_all_to_all_at(x, comm, LC_HERE)

LC_END_DECLS

#endif
