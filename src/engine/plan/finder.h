/* SPDX-License-Identifier: Apache-2.0 */
/* What named fusions are built on: who makes a value and who else reads it, and nodes in place of others.
 *
 * A pattern describes the node that it wants (lc__fused_node), asks whether there is a kernel for it (lc__can_fuse),
 * and only then changes the build. */
#ifndef LC_ENGINE_PLAN_FINDER_H
#define LC_ENGINE_PLAN_FINDER_H

#include "engine/plan/plan_impl.h"

typedef struct lc__finder {
    lc_build *b;
    int *producer; /* by value: node, or -1 */
} lc__finder;

static inline lc_ir_node *lc__producer(const lc__finder *f, uint32_t value)
{
    return value == LC_ABSENT || f->producer[value] < 0 ? NULL : &f->b->nodes[f->producer[value]];
}

static inline bool lc__only_use(const lc__finder *f, uint32_t value)
{
    return f->b->values[value].uses == 1 && !f->b->values[value].keep;
}

/* A fusion rounds once where its parts round twice, which is the same only in a wide type. */
static inline bool lc__is_wide(const lc__finder *f, uint32_t value)
{
    lc_dtype dtype = f->b->values[value].type.dtype;
    return dtype == LC_F32 || dtype == LC_F64;
}

/* With room for one value more of each node. */
lc_status lc__finder_init(lc__finder *f, lc_build *b) LC_MUST_USE;
/* A node with the site and floats of `like`; its arrays are copied. */
lc_status lc__fused_node(lc__finder *f, const lc_ir_node *like, const lc_op *op, int n_in, const uint32_t *in,
                         int n_out, const uint32_t *out, int n_int, const int64_t *ints, lc_ir_node *made) LC_MUST_USE;
/* `made` takes the place of n. */
void lc__put_node(lc__finder *f, lc_ir_node *n, const lc_ir_node *made);
void lc__drop_node(lc__finder *f, lc_ir_node *n);

/* fuse_linear.c */
lc_status lc__fuse_linear(lc__finder *f);

#endif
