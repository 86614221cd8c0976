/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients and parameters of which a rank keeps a slice become intermediate results (place_slices.c); what its files
 * share. */
#ifndef LC_PARALLEL_REDUCE_PLACE_SLICES_H
#define LC_PARALLEL_REDUCE_PLACE_SLICES_H

#include "engine/plan/plan_impl.h"
#include "parallel/reduce/reducer_impl.h"

/* A node to insert before the node at `position`; at the same position, lower phases come first. */
typedef struct lc__insertion {
    int position, phase, sequence;
    lc_ir_node *node;
} lc__insertion;
enum { LC__LAUNCHES, LC__WAITS, LC__VIEWS };

/* Where a node is inserted. */
typedef struct lc__spot {
    int position, phase;
    lc_site site;
} lc__spot;

/* The kinds of values that the pass distinguishes. */
typedef enum lc__meaning {
    LC__NOTHING = 0,
    LC__GRADIENT,
    LC__ALL_GRADIENTS,
    LC__PARAMETER,
    LC__LOW_PARAMETER, /* rounded, of a unit that travels so */
    LC__VIEW_OF_PARAMETER,
    LC__PARAMETER_SLICES
} lc__meaning;
typedef struct lc__place {
    lc__meaning is;
    int unit;    /* of `units` below */
    int index;   /* parameter of the flat buffer */
    int made_by; /* the node of a view, or the one that rounds it */
    int cluster; /* that `replacement` is for, counted from 1 */
    uint32_t replacement;
} lc__place;

/* A unit of any of the flat buffers. */
typedef struct lc__placed_unit {
    lc_flat *flat;
    const lc__unit *u;
    bool low;          /* it travels in 16 bits, */
    bool whole;        /* unless a matrix of it is read in f32 */
    uint32_t gradient; /* LC_ABSENT: no memory yet */
    int cluster;       /* the current one, counted from 1; 0: none */
    int last_use;      /* -1: none */
} lc__placed_unit;

typedef struct lc__cluster {
    int unit, first_use, barrier; /* barrier: the gathers are sent after this node */
    uint32_t parameters, vectors; /* of all ranks; LC_ABSENT: not read */
} lc__cluster;

typedef struct lc__placing {
    lc_build *b;
    lc__reducer *r;
    lc__placed_unit *units;
    int n_units;
    uint32_t n_values; /* number of values that have a place */
    lc__place *places;
    lc__insertion *insertions;
    uint32_t n_insertions, cap_insertions;
    lc__cluster *clusters;
    uint32_t n_clusters, cap_clusters;
    int slots; /* that are used */
} lc__placing;

/* ---- insert_nodes.c ---- */
/* A node that is not inserted yet; NULL: out of memory. */
lc_ir_node *lc__new_node(lc__placing *x, const lc_op *op, int n_in, int n_out, int n_int, lc_site site);
lc_status lc__insert_node(lc__placing *x, int position, int phase, lc_ir_node *node) LC_MUST_USE;
/* Memory for `count` elements from each rank. */
lc_status lc__ranks_value(lc__placing *x, const lc__placed_unit *u, lc_dtype dtype, int64_t count,
                          uint32_t *out) LC_MUST_USE;
/* Inserts a range of a 1-D value, of this shape. */
lc_status lc__add_range(lc__placing *x, uint32_t of, int64_t offset, lc_type type, lc_layout layout, lc__spot at,
                        uint32_t *out) LC_MUST_USE;
/* The same: a parameter's range of a unit's memory. */
lc_status lc__unit_range(lc__placing *x, const lc__placed_unit *u, int index, uint32_t memory, lc__spot at,
                         uint32_t *out) LC_MUST_USE;
/* Puts all of them into the list of nodes. */
lc_status lc__merge_inserted(lc__placing *x) LC_MUST_USE;

/* ---- gather_units.c ---- */
/* Inserts what gathers the memory of cluster k. */
lc_status lc__gather_cluster(lc__placing *x, uint32_t k) LC_MUST_USE;
/* A vector of the unit, which is put together from the pieces that ranks have. */
lc_status lc__put_together(lc__placing *x, const lc__placed_unit *u, int index, lc__spot at, uint32_t *out) LC_MUST_USE;

#endif
