/* SPDX-License-Identifier: Apache-2.0 */
/* The intermediate form between the tape and the plan. It lives while a plan is made. */
#ifndef LC_ENGINE_PLAN_PLAN_IMPL_H
#define LC_ENGINE_PLAN_PLAN_IMPL_H

#include "engine/plan/tune.h"
#include "record/graph_impl.h"

#include <string.h>

typedef struct lc_ir_node {
    const lc_op *op; /* NULL: dropped */
    bool autocast;   /* its values may be low (storage_types.c) */
    bool gradient;   /* of a backward pass */
    bool checks;     /* indices that the program gave it: runs even if nobody reads its results */
    int n_in, n_out, n_int, n_float;
    uint32_t rounded; /* operands that count as rounded (lc_call) */
    uint32_t *in, *out;
    int64_t *ints;
    double *floats;           /* values of constants; */
    lc_float_source *sources; /* and the origin of the others */
    lc_site site;
    const lc_site *sites; /* of the instructions of a fused node; else NULL */
} lc_ir_node;

/* A piece of memory that contains one or more values. */
typedef struct lc_storage {
    size_t bytes;
    lc_tensor *external; /* a persistent or input tensor's memory */
    void *fixed;         /* memory of an earlier segment */
    int first, last;     /* positions of calls; last = INT_MAX: until the end of the step */
    int32_t merged;      /* part of that storage instead, or -1 */
    bool placed;         /* gradients are computed in it */
    bool of_gradients;   /* what is in it was computed with gradients (program.c) */
    size_t offset;       /* in the arena */
} lc_storage;

/* What is known about a value while planning. */
typedef struct lc_ir_value {
    lc_type type;
    int32_t storage; /* -1: not lowered (yet) */
    int64_t offset;  /* elements */
    int64_t stride[LC_MAX_DIMS];
    lc_tensor *outside; /* the persistent tensor that it is, of which the tape knows nothing; NULL: it is none */
    bool keep;
    bool in_parts;  /* memory that nodes write part by part: none of them makes it */
    uint32_t uses;  /* by live nodes */
    uint32_t exact; /* of an f32 number: the value of f64 that it has been rounded from, or LC_ABSENT */
} lc_ir_value;

typedef struct lc_ir_call {
    lc_ir_node *node;
    const lc_kernel *kernel;
    int threads;
    bool accumulate;
} lc_ir_call;

typedef struct lc_build {
    lc_graph *g;
    lc_plan *plan;
    bool optimize;
    uint32_t position; /* in the user's tape: the node being expanded */
    bool *keep;        /* by value of the user, while nodes are expanded: kept when the segment has run */
    lc_ir_node *nodes;
    int n_nodes;
    lc_ir_value *values;
    uint32_t n_values, cap_values;
    lc_storage *storages;
    int n_storages, cap_storages;
    lc_ir_call *calls;
    int n_calls, cap_calls;
    void **blocks; /* of the bump allocator */
    int n_blocks, cap_blocks;
    size_t block_used, block_size;
} lc_build;

/* The persistent tensor or input whose memory contains a value, also one of an earlier segment; NULL: none. `producer`:
 * by value, the node that makes it, or -1. */
static inline lc_tensor *lc__outside_of(const lc_graph *g, const lc_ir_node *nodes, const int *producer, uint32_t value)
{
    while (producer[value] >= 0) {
        const lc_ir_node *n = &nodes[producer[value]];
        if (!(n->op->flags & LC_OP_VIEW)) return NULL;
        value = n->in[0];
    }
    return lc__viewed_tensor(g, value);
}

/* The same, if it is a persistent tensor: one that nodes may write. */
static inline lc_tensor *lc__memory_of(const lc_graph *g, const lc_ir_node *nodes, const int *producer, uint32_t value)
{
    lc_tensor *t = lc__outside_of(g, nodes, producer, value);
    return t && t->kind == LC_TENSOR_PERSISTENT ? t : NULL;
}

/* Whether a node writes any of a persistent tensor's memory. */
static inline bool lc__node_writes(const lc_graph *g, const lc_ir_node *nodes, const int *producer, const lc_ir_node *n,
                                   const lc_tensor *memory)
{
    for (int k = 0; k < n->n_in; k++) {
        if (!(n->op->mutated_inputs >> k & 1) || n->in[k] == LC_ABSENT) continue;
        const lc_tensor *written = lc__memory_of(g, nodes, producer, n->in[k]);
        if (written && lc__overlap(written, memory)) return true;
    }
    return false;
}

static inline bool lc__same_shape(const lc_type *a, const lc_type *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
}

/* An empty array may be NULL. */
static inline bool lc__same_bytes(const void *a, const void *b, size_t bytes)
{
    return !bytes || memcmp(a, b, bytes) == 0;
}

/* Zero-filled memory that lives as long as the build; NULL when out of memory (with an error). */
void *lc__build_alloc(lc_build *b, size_t bytes);
uint32_t lc__build_value(lc_build *b, const lc_type *type); /* LC_ABSENT when out of memory */

/* expand.c */
lc_status lc__expand(lc_build *b);
/* The state of a flat buffer in this segment; starts with the present state, or zeroed by lc_zero_grad. */
lc_status lc__expand_flat_state(lc_build *b, lc_flat *flat, lc_flat_state **out);
/* Makes the node expanded last produce values that the user already holds. */
void lc__expand_produce(lc_graph *g, uint32_t first_out);
/* A range of a 1-D buffer. */
lc_tensor *lc__expand_range(lc_tensor *buffer, int64_t offset, int64_t count);
/* backward.c */
/* Receives the gradients of a backward pass that are parts of sums. */
typedef struct lc__summed_by {
    /* `gradient`, of a parameter, is complete; *taken false: it goes to its usual place. */
    lc_status (*deposit)(void *ctx, lc_build *b, lc_tensor *parameter, lc_tensor *gradient, bool *taken);
    void *ctx;
    bool last;            /* of all parts */
    uint32_t others, end; /* nodes of the tape, from `others` to before `end`, on which this part must not depend: */
    const char *apart;    /* the message of the error if it does */
} lc__summed_by;
/* Expands the node being expanded, a backward pass, from its input, the loss, back to the parameters. of NULL:
 * gradients go to their places in the flat buffers. */
lc_status lc__expand_backward(lc_build *b, const lc__summed_by *of) LC_MUST_USE;
lc_status lc__infer_backward(lc_infer *call);
/* expand_writes.c: gradient rules must see the values that their operators have seen */
/* The node being expanded (b->position) writes a persistent tensor. */
lc_status lc__expand_wrote(lc_build *b, const lc_tensor *t) LC_MUST_USE;
/* Nodes of the expanded tape that belong to one node of the user's. */
typedef struct lc__origin {
    uint32_t first, end; /* on the expanded tape */
    uint32_t node;       /* on the user's */
} lc__origin;
/* Fails if a backward pass, which begins at `first` of the expanded tape, reads a persistent tensor that was written
 * after the operator that it differentiates. *node: that operator, on the user's tape. */
lc_status lc__expand_check_reads(lc_build *b, uint32_t first, const lc__origin *origins, uint32_t n_origins,
                                 uint32_t *node) LC_MUST_USE;
/* Whether anything was written in this step so far. */
bool lc__expand_any_write(const lc_build *b);
/* storage_types.c */
lc_status lc__assign_storage_types(lc_build *b);
/* choose_kernel.c */
/* The call that a kernel is chosen for; views: of the node's operands and results. */
lc_call lc__call_of(const lc_build *b, const lc_ir_node *n, lc_view *views);
/* Sets call->kernel and call->threads; LC_ERR_UNSUPPORTED if there is no kernel. */
lc_status lc__choose_kernel(const lc_build *b, lc_call *call) LC_MUST_USE;
/* The kernel of a node before it is lowered, when layouts are unknown: operands are taken as dense. NULL: none. */
lc_status lc__kernel_of(lc_build *b, const lc_ir_node *n, const lc_kernel **kernel) LC_MUST_USE;
/* Every fusion asks before it is made: *yes if the backend has a kernel for the node `fused`. The operator's reference
 * kernel counts only if `part`, the most expensive of the nodes that it replaces, would be computed by its reference
 * kernel, too. */
lc_status lc__can_fuse(lc_build *b, const lc_ir_node *fused, const lc_ir_node *part, bool *yes) LC_MUST_USE;
/* drop_dead.c, fuse_patterns.c, fuse_elementwise.c, compute_again.c */
lc_status lc__drop_dead(lc_build *b);
lc_status lc__fuse_patterns(lc_build *b);
lc_status lc__fuse_elementwise(lc_build *b);
lc_status lc__compute_again(lc_build *b);
/* read_rounded.c */
lc_status lc__read_rounded(lc_build *b);
/* lower.c: nodes -> calls and storages */
lc_status lc__lower(lc_build *b);
/* share_memory.c: merges storages */
lc_status lc__share_memory(lc_build *b);
/* The storage that this one has become part of, or itself. */
static inline lc_storage *lc__storage_root(const lc_build *b, int32_t storage)
{
    while (b->storages[storage].merged >= 0) storage = b->storages[storage].merged;
    return &b->storages[storage];
}
/* The view of a value, without its data; ndim -1: it is LC_ABSENT. */
void lc__build_view(const lc_build *b, uint32_t value, lc_view *out);
/* arena.c: offsets; sets plan->arena_bytes and lower_bound */
lc_status lc__assign_arena(lc_build *b);
/* program.c: calls -> the program that a replay runs; tunes and prepares the kernels */
lc_status lc__make_program(lc_build *b);

#endif
