/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients whose bits do not depend on how many ranks compute them.
 *
 * A batch of all ranks is cut into chunks, numbered consecutively; each is a forward and a backward pass of its own.
 * Their gradients are added on one binary tree over those numbers, split at the largest power of two:
 * ((0+1)+(2+3))+((4+5)+6). A rank has 2^k consecutive chunks, if there are that many, which form a whole subtree; above
 * it the reduction over ranks continues on the same tree (comm.h). An absent part (a chunk that does not exist, a
 * parameter without a gradient in it) is -0.0, the number that changes nothing when it is added. The batches of an
 * accumulation window are added in the same way.
 *
 * A subtree that waits for its other half is *held*: one more buffer for each level of the tree, laid out like the flat
 * gradient buffer. If that is sharded (tensor/slice.h), so are the sums of a window: batches are added when they are
 * reduced, and a rank needs only its slices. Chunks of a rank are added before that, so their held sums are whole.
 *
 * tree.c records, expand_tree.c makes operators of it. */
#ifndef LC_PARALLEL_TREE_TREE_H
#define LC_PARALLEL_TREE_TREE_H

#include "record/graph_impl.h"

typedef struct lc__tree lc__tree;

#define LC__TREE_LEVELS 32

/* From now on the graph's gradients are added in this way when chunks are recorded. `ranks`: the number of ranks or
 * devices whose gradients are added. */
lc_status lc__tree_new(lc_graph *g, int ranks, lc__tree **out) LC_MUST_USE;
/* For the graph of a device that computes some of the chunks of `of`, which must outlive it: chunks may write what `of`
 * allows. */
lc_status lc__tree_of_device(lc_graph *g, const lc__tree *of, lc__tree **out) LC_MUST_USE;
/* The tree of a graph, or NULL. */
lc__tree *lc__tree_of_graph(const lc_graph *g);
void lc__tree_free(lc__tree *t); /* NULL is fine; before the graph */
/* Adds the parameters of an optimizer to the tree. Sums are f32 or f64: gradients of halves must be f32
 * (lc__optimizer_sums_in_f32). */
lc_status lc__tree_add(lc__tree *t, lc_optimizer *opt) LC_MUST_USE;
lc_status lc__tree_add_flat(lc__tree *t, lc_flat *flat) LC_MUST_USE;

/* Bytes of sums held so far; they are allocated by the plans that add to them. */
int64_t lc__tree_bytes(const lc__tree *t);

/* Part `index` of a sum is added to the sums held at `levels`, one after the other; returns their number. *to: the
 * level at which the result is held; -1: it is the whole sum. */
int lc__tree_path(int64_t index, bool last, int levels[LC__TREE_LEVELS], int *to);
/* in: target, value or absent, then the held sums, lowest level first: target = ... held + (held + value) */
extern const lc_op lc__op_combine;
/* A persistent tensor that chunks may write to (on several ranks they may write to no other): its owner ensures that
 * the result does not depend on the number of ranks. */
lc_status lc__tree_allow(lc__tree *t, const lc_tensor *tensor) LC_MUST_USE;

/* Operators recorded from now on belong to one chunk: the index-th of this rank's `count`, with number `number` among
 * those of all ranks, by which random operators are keyed. Its backward pass (at most one) has weight `weight`. */
void lc__tree_chunk_begin(lc__tree *t, int64_t number, int64_t index, int64_t count, double weight);
void lc__tree_chunk_end(lc__tree *t);
/* This rank has no chunk of this batch. */
void lc__tree_no_chunk(lc__tree *t);
/* Call it after the chunks of batch `index` of a window, and after their reduction over ranks; `last`: gradients become
 * those of the whole window. */
void lc__tree_window(lc__tree *t, int64_t index, bool last);

/* The sum held between two batches of a window, after `batches` of them, at a level that is a set bit of `batches`: a
 * tensor like each parameter's gradient, or this rank's part of one. *out NULL: p is not on the tree. */
lc_status lc__tree_window_held(lc__tree *t, const lc_tensor *p, int level, lc_tensor **out) LC_MUST_USE;
/* Sets all held sums to -0.0: no gradient so far. */
lc_status lc__tree_window_clear(lc__tree *t, int64_t batches) LC_MUST_USE;

#endif
