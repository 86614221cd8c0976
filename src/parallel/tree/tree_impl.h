/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of gradients, as tree.c (recording) and expand_tree.c (when a plan is made) share it. */
#ifndef LC_PARALLEL_TREE_TREE_IMPL_H
#define LC_PARALLEL_TREE_TREE_IMPL_H

#include "engine/plan/plan_impl.h"
#include "parallel/tree/tree.h"

/* A buffer like a flat gradient buffer, or like a slice buffer. */
typedef struct lc__held {
    lc_tensor *whole;  /* NULL: not made yet */
    lc_tensor **range; /* by parameter; NULL: the parameter is gone */
} lc__held;

/* Which of the two trees: over the chunks of a batch, over the batches of a window. */
enum { LC__TREE_CHUNKS, LC__TREE_WINDOW, LC__TREES };

typedef struct lc__tree_flat {
    lc_flat *flat; /* referenced */
    lc__held held[LC__TREES][LC__TREE_LEVELS];
    uint8_t *trained; /* by parameter, since the running window's first batch; NULL: no window yet */
} lc__tree_flat;

struct lc__tree {
    lc_peer peer;
    lc_graph *g;
    uint64_t id; /* part of the plans' keys */
    int ranks;
    const lc__tree *of; /* NULL: not a device's tree */
    uint64_t *allowed;  /* ids of tensors */
    int n_allowed;
    lc__tree_flat *flats;
    int n_flats;
    /* The chunk being recorded: */
    int64_t index;
    bool last;
    double weight;
    uint32_t first_node, node; /* of the batch's first chunk, and of this one, on the tape */
};

/* The place of a sum: ints of the macro nodes. */
typedef struct lc__tree_place {
    lc__tree *tree;
    int64_t index;
    bool last;
    uint32_t first_node, node;
} lc__tree_place;
#define LC__TREE_INTS 6
lc__tree_place lc__tree_place_of(const int64_t *ints);

lc_status lc__tree_held(lc__tree_flat *f, int which, int level, lc__held **out) LC_MUST_USE;

/* expand_tree.c. ints: place on the tree. The backward pass of a chunk (floats: its weight), a chunk without gradients,
 * and the sum over a window. */
extern const lc_macro lc__macro_chunk, lc__macro_absent, lc__macro_window;

#endif
