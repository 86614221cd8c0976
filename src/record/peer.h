/* SPDX-License-Identifier: Apache-2.0 */
/* The peers of a graph, which connect its steps to other devices and ranks. src/parallel has three of them: they sum
 * gradients over ranks (reduce), add them in a fixed order (tree) and run the collectives of a plan (collectives). The
 * tape, the planner, the executor and the optimizers know them through lc_peer_ops only: a slot is called on each peer
 * that has it, in the order in which they joined. */
#ifndef LC_RECORD_PEER_H
#define LC_RECORD_PEER_H

#include <lightc/graph.h>
#include <lightc/op.h>

struct lc_build;
struct lc_flat;
struct lc_pass;
struct lc_plan;
struct lc__unit;
typedef struct lc_peer lc_peer;

/* All slots are OPTIONAL. */
typedef struct lc_peer_ops {
    /* ---- while a step is recorded ---- */
    /* Fails if a call may not be recorded because it writes to in[0]. Called for every call. */
    lc_status (*check_write)(const lc_peer *p, const lc_op *op, lc_tensor *const *in);
    /* A backward pass is requested. True: the peer has recorded it. */
    bool (*backward)(lc_peer *p, lc_tensor *loss, lc_site site);
    /* A backward pass is about to be recorded that no peer takes over. */
    void (*before_backward)(lc_peer *p);
    /* Gradients are zeros from here on (lc_zero_grad). */
    void (*zeroed)(lc_peer *p);
    /* The number of ranks over which gradients are averaged. */
    double (*ranks)(const lc_peer *p);
    /* Whether gradients are still under way after a backward pass. */
    bool (*owes)(const lc_peer *p);
    /* Waits for these gradients. Also called outside of a step. */
    lc_status (*settle)(lc_peer *p);
    /* Fails if the gradient of a parameter, which has one, is not yet the sum over ranks. */
    lc_status (*check_summed)(const lc_peer *p, const lc_tensor *parameter);

    /* ---- while a plan is made ---- */
    const struct lc_pass *passes; /* engine/plan/passes.h; the last one has no `run` */
    /* Whether the peer writes to gradients in their place from the backward pass on. */
    bool sums_in_place;
    /* Bytes that the peer holds besides the plans' arena. */
    int64_t (*bytes)(const lc_peer *p);
    /* The gradient of parameter i, of which each rank has a slice, assembled by all ranks. */
    lc_status (*whole_gradient)(lc_peer *p, const struct lc_flat *flat, int i, lc_tensor **out);
    /* The next part of an update by buckets, while gradients are still under way: *u (zeros at first) becomes the next
     * bucket's parameters, whose gradients are waited for. *any false: there were no more buckets, and all other
     * gradients are waited for. */
    lc_status (*next_bucket)(lc_peer *p, struct lc_build *b, struct lc_flat *flat, struct lc__unit *u, bool *any);
    /* The update of this rank's slice of a unit of whole parameters has been recorded; u NULL: of all units. */
    lc_status (*updated)(lc_peer *p, struct lc_build *b, struct lc_flat *flat, const struct lc__unit *u);

    /* ---- while a plan runs ---- */
    /* Called between two kernels. */
    lc_status (*poll)(lc_peer *p);
    /* Adds up words [n] over the ranks that have a slice each, or over all ranks; called from a kernel. */
    void (*add_up)(lc_peer *p, int64_t *words, int n);
    /* A run is over. why: the message of its failure on this rank, or NULL. */
    void (*ended)(lc_peer *p, const struct lc_plan *plan, lc_status status, const char *why);

    /* Called when the graph is freed, for peers that have no other owner. */
    void (*free)(lc_peer *p);
} lc_peer_ops;

/* The first member of each peer. */
struct lc_peer {
    const lc_peer_ops *ops;
    lc_graph *graph;
    lc_peer *next;
    uint64_t key; /* part of the plans' key, unlike that of all earlier peers of the graph; 0: not needed */
};

/* A graph has one peer of each kind: `p` replaces another with the same ops. */
void lc__peer_join(lc_peer *p, const lc_peer_ops *ops, lc_graph *g);
/* Does nothing if the peer has left. */
void lc__peer_leave(lc_peer *p);
/* The peer of that kind, or NULL. */
lc_peer *lc__peer_of(const lc_graph *g, const lc_peer_ops *ops);
void lc__peers_free(lc_graph *g);

/* Over all peers of a graph: */
uint64_t lc__peers_key(const lc_graph *g);
int64_t lc__peers_bytes(const lc_graph *g);
void lc__peers_before_backward(const lc_graph *g);
bool lc__peers_owe(const lc_graph *g);
bool lc__peers_sum_in_place(const lc_graph *g);
lc_status lc__peers_settle(const lc_graph *g) LC_MUST_USE;

#endif
