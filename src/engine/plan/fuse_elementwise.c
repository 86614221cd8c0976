/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise chains become one node that makes one trip through memory (ops/fused.h).
 *
 * Nodes are taken in order; each joins the group of one of its inputs if that keeps the order of the step intact:
 * either all its other inputs already exist at the group's place, or the group can run at the node's place, because
 * nothing in between reads the group's results. Operators that write persistent tensors in between must not touch
 * memory that a moved node reads. */
#include "engine/plan/plan_impl.h"
#include "ops/fused.h"
#include "ops/ops.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct group {
    int position;
    int n;
    int members[LC_FUSED_MAX_INSTRUCTIONS];
    lc_ir_node fused; /* the node that computes them, if there are several */
} group;

typedef struct fuser {
    lc_build *b;
    int *producer; /* by value: node, or -1 */
    int *group_of; /* by node: group, or -1 */
    bool *alone;   /* by node: it was in a group for which there is no kernel */
    group *groups; /* at most one per node */
    int n_groups;
    int *first_use; /* by value: into uses */
    int *uses;      /* nodes that read a value, all values one after the other */
    int *mutators;  /* nodes that write persistent tensors, and those that accumulate gradients if a gradient is read */
    int n_mutators;
} fuser;

static int position_of(const fuser *f, int node)
{
    int g = f->group_of[node];
    return g < 0 ? node : f->groups[g].position;
}

/* Chains compute in f32; values of 16 bits are rounded between their operators as they are without a chain. */
static bool fusible_type(const lc_build *b, uint32_t value)
{
    lc_dtype dtype = b->values[value].type.dtype;
    return dtype == LC_F32 || dtype == LC_BF16 || dtype == LC_F16;
}

static bool fusible(const lc_build *b, const lc_ir_node *n)
{
    if (!(n->op->flags & LC_OP_ELEMENTWISE) || n->n_out != 1 || n->n_int > 2 || n->n_in > 3 || n->n_in < 1 ||
        n->n_float > 2)
        return false;
    for (int i = 0; i < n->n_int; i++)
        if (n->ints[i] < 0 || n->ints[i] > 255) return false;
    if (!fusible_type(b, n->out[0]) || lc__numel(&b->values[n->out[0]].type) == 0) return false;
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == LC_ABSENT || !fusible_type(b, n->in[i])) return false;
    return lc__elementwise_index(n->op) >= 0;
}

static const lc_tensor *memory_of(const fuser *f, uint32_t value)
{
    return lc__memory_of(f->b->g, f->b->nodes, f->producer, value);
}

/* Whether any elementwise node reads gradients: then the nodes that accumulate them count as writes. */
static bool reads_gradients(const fuser *f)
{
    const lc_graph *g = f->b->g;
    for (int i = 0; i < f->b->n_nodes; i++) {
        const lc_ir_node *n = &f->b->nodes[i];
        for (int k = 0; n->op && (n->op->flags & LC_OP_ELEMENTWISE) && k < n->n_in; k++) {
            const lc_tensor *t = n->in[k] == LC_ABSENT || f->producer[n->in[k]] >= 0 ? NULL : memory_of(f, n->in[k]);
            for (int j = 0; t && t->base && j < g->n_flats; j++)
                if (g->flats[j]->gradient == t->base) return true;
        }
    }
    return false;
}

/* Whether an operator between two positions writes memory that node reads. */
static bool written_between(const fuser *f, int node, int from, int to)
{
    const lc_ir_node *n = &f->b->nodes[node];
    for (int m = 0; m < f->n_mutators; m++) {
        if (f->mutators[m] <= from || f->mutators[m] >= to) continue;
        const lc_ir_node *w = &f->b->nodes[f->mutators[m]];
        for (int k = 0; k < w->n_in; k++) {
            if (!(w->op->mutated_inputs >> k & 1) || w->in[k] == LC_ABSENT) continue;
            const lc_tensor *target = memory_of(f, w->in[k]);
            for (int i = 0; target && i < n->n_in; i++) {
                const lc_tensor *source = memory_of(f, n->in[i]);
                if (source && lc__overlap(source, target)) return true;
            }
        }
    }
    return false;
}

static bool is_member(const fuser *f, int g, int node)
{
    return node >= 0 && f->group_of[node] == g;
}

/* Counts the distinct values that the group reads from outside with one more member. */
static int inputs_with(const fuser *f, int g, int extra, uint32_t *in)
{
    int n = 0;
    for (int m = 0; m <= f->groups[g].n; m++) {
        int node = m < f->groups[g].n ? f->groups[g].members[m] : extra;
        for (int i = 0; node >= 0 && i < f->b->nodes[node].n_in; i++) {
            uint32_t value = f->b->nodes[node].in[i];
            if (is_member(f, g, f->producer[value])) continue;
            int k = 0;
            while (k < n && in[k] != value) k++;
            if (k < n) continue;
            if (n == LC_FUSED_MAX_INPUTS) return INT_MAX;
            in[n++] = value;
        }
    }
    return n;
}

static bool read_outside(const fuser *f, int g, int extra, uint32_t value)
{
    if (f->b->values[value].keep) return true;
    for (int u = f->first_use[value]; u < f->first_use[value + 1]; u++)
        if (f->uses[u] != extra && !is_member(f, g, f->uses[u])) return true;
    return false;
}

static int outputs_with(const fuser *f, int g, int extra)
{
    int n = 0;
    for (int m = 0; m <= f->groups[g].n; m++) {
        int node = m < f->groups[g].n ? f->groups[g].members[m] : extra;
        if (node >= 0) n += read_outside(f, g, extra, f->b->nodes[node].out[0]);
    }
    return n;
}

static bool can_join(const fuser *f, int g, int node, int *position)
{
    const group *to = &f->groups[g];
    const lc_ir_node *n = &f->b->nodes[node];
    const lc_ir_node *member = &f->b->nodes[to->members[0]];
    const lc_type *a = &f->b->values[n->out[0]].type, *b = &f->b->values[member->out[0]].type;
    uint32_t in[LC_FUSED_MAX_INPUTS];
    if (!lc__same_shape(a, b) || to->n == LC_FUSED_MAX_INSTRUCTIONS) return false;
    if (inputs_with(f, g, node, in) > LC_FUSED_MAX_INPUTS || outputs_with(f, g, node) > LC_FUSED_MAX_OUTPUTS)
        return false;

    /* Whether the node can join at the group's place. */
    bool early = !written_between(f, node, to->position, node);
    for (int i = 0; i < n->n_in && early; i++) {
        int p = f->producer[n->in[i]];
        early = p < 0 || is_member(f, g, p) || position_of(f, p) < to->position;
    }
    if (early) {
        *position = to->position;
        return true;
    }
    /* Or at the node's place? Nothing before this node may read the group's results. */
    for (int m = 0; m < to->n; m++) {
        uint32_t value = f->b->nodes[to->members[m]].out[0];
        for (int u = f->first_use[value]; u < f->first_use[value + 1]; u++) {
            int reader = f->uses[u];
            if (reader != node && !is_member(f, g, reader) && position_of(f, reader) <= node) return false;
        }
        if (written_between(f, to->members[m], to->position, node)) return false;
    }
    *position = node;
    return true;
}

/* The register of a value: an input, or the result of one of the first m instructions. -1: none of these. */
static int64_t register_of(uint32_t value, const uint32_t *in, int n_in, const uint32_t *made, int m)
{
    int64_t reg = -1;
    for (int k = 0; k < n_in; k++)
        if (in[k] == value) reg = k;
    for (int k = 0; k < m; k++)
        if (made[k] == value) reg = n_in + k;
    return reg;
}

/* Sets the group's `fused`. */
static lc_status describe(fuser *f, int g)
{
    lc_build *b = f->b;
    group *from = &f->groups[g];
    uint32_t in[LC_FUSED_MAX_INPUTS], out[LC_FUSED_MAX_OUTPUTS];
    int n_in = inputs_with(f, g, -1, in), n_out = 0, n_float = 0, n_int = 1;
    int64_t ints[1 + LC_FUSED_INSTRUCTION_INTS * LC_FUSED_MAX_INSTRUCTIONS + LC_FUSED_MAX_OUTPUTS];
    uint32_t made[LC_FUSED_MAX_INSTRUCTIONS];
    lc_site sites[LC_FUSED_MAX_INSTRUCTIONS];
    double floats[2 * LC_FUSED_MAX_INSTRUCTIONS];
    lc_float_source sources[2 * LC_FUSED_MAX_INSTRUCTIONS];
    int64_t results[LC_FUSED_MAX_OUTPUTS];
    ints[0] = from->n;
    for (int m = 0; m < from->n; m++) {
        const lc_ir_node *n = &b->nodes[from->members[m]];
        made[m] = n->out[0];
        sites[m] = n->site;
        ints[n_int++] =
            LC_FUSED_OP(lc__elementwise_index(n->op), n->n_int > 0 ? n->ints[0] : 0, n->n_int > 1 ? n->ints[1] : 0);
        ints[n_int++] = n->n_in;
        for (int i = 0; i < 3; i++) ints[n_int++] = i < n->n_in ? register_of(n->in[i], in, n_in, made, m) : -1;
        ints[n_int++] = n->n_float ? n_float : -1;
        for (int i = 0; i < n->n_float; i++, n_float++) {
            floats[n_float] = n->floats[i];
            sources[n_float] = n->sources[i];
        }
        if (read_outside(f, g, -1, n->out[0])) {
            results[n_out] = n_in + m;
            out[n_out++] = n->out[0];
        }
    }
    for (int k = 0; k < n_out; k++) ints[n_int++] = results[k];

    lc_ir_node fused = {.op = &lc__op_fused,
                        .n_in = n_in,
                        .n_out = n_out,
                        .n_int = n_int,
                        .n_float = n_float,
                        .site = b->nodes[from->position].site};
    fused.in = lc__build_alloc(b, (size_t)(n_in + n_out) * sizeof *fused.in);
    fused.ints = lc__build_alloc(b, (size_t)n_int * sizeof *fused.ints);
    fused.floats = lc__build_alloc(b, (size_t)(n_float + 1) * sizeof *fused.floats);
    fused.sources = lc__build_alloc(b, (size_t)(n_float + 1) * sizeof *fused.sources);
    lc_site *at = lc__build_alloc(b, (size_t)from->n * sizeof *at);
    if (!fused.in || !fused.ints || !fused.floats || !fused.sources || !at) return LC_ERR_MEMORY;
    memcpy(at, sites, (size_t)from->n * sizeof *at);
    fused.sites = at;
    fused.out = fused.in + n_in;
    memcpy(fused.in, in, (size_t)n_in * sizeof *in);
    memcpy(fused.out, out, (size_t)n_out * sizeof *out);
    memcpy(fused.ints, ints, (size_t)n_int * sizeof *ints);
    memcpy(fused.floats, floats, (size_t)n_float * sizeof *floats);
    memcpy(fused.sources, sources, (size_t)n_float * sizeof *sources);
    from->fused = fused;
    return LC_OK;
}

static void emit(fuser *f, const group *from)
{
    for (int m = 0; m < from->n; m++) f->b->nodes[from->members[m]].op = NULL;
    f->b->nodes[from->position] = from->fused;
}

static lc_status prepare(fuser *f)
{
    lc_build *b = f->b;
    size_t n_nodes = (size_t)b->n_nodes + 1, n_values = b->n_values + 2, n_uses = 1;
    for (int i = 0; i < b->n_nodes; i++) n_uses += b->nodes[i].op ? (size_t)b->nodes[i].n_in : 0;
    f->producer = lc__build_alloc(b, n_values * sizeof(int));
    f->group_of = lc__build_alloc(b, n_nodes * sizeof(int));
    f->alone = lc__build_alloc(b, n_nodes * sizeof(bool));
    f->groups = lc__build_alloc(b, n_nodes * sizeof(group));
    f->first_use = lc__build_alloc(b, n_values * sizeof(int));
    f->uses = lc__build_alloc(b, n_uses * sizeof(int));
    f->mutators = lc__build_alloc(b, n_nodes * sizeof(int));
    if (!f->producer || !f->group_of || !f->alone || !f->groups || !f->first_use || !f->uses || !f->mutators)
        return LC_ERR_MEMORY;
    memset(f->producer, 0xff, n_values * sizeof(int));
    for (int i = 0; i < b->n_nodes; i++) {
        const lc_ir_node *n = &b->nodes[i];
        if (!n->op) continue;
        for (int k = 0; k < n->n_out; k++) f->producer[n->out[k]] = i;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] != LC_ABSENT) f->first_use[n->in[k] + 1]++;
    }
    bool gradients = reads_gradients(f);
    for (int i = 0; i < b->n_nodes; i++) {
        const lc_op *op = b->nodes[i].op;
        if (op && (op->flags & LC_OP_MUTATES) && (gradients || op != &lc__op_accumulate))
            f->mutators[f->n_mutators++] = i;
    }
    for (uint32_t v = 0; v < b->n_values; v++) f->first_use[v + 1] += f->first_use[v];
    int *at = lc__build_alloc(b, n_values * sizeof(int));
    if (!at) return LC_ERR_MEMORY;
    memcpy(at, f->first_use, n_values * sizeof(int));
    for (int i = 0; i < b->n_nodes; i++)
        for (int k = 0; b->nodes[i].op && k < b->nodes[i].n_in; k++)
            if (b->nodes[i].in[k] != LC_ABSENT) f->uses[at[b->nodes[i].in[k]]++] = i;
    return LC_OK;
}

/* Puts every node into a group, except those that must stay alone. */
static void make_groups(fuser *f)
{
    const lc_build *b = f->b;
    memset(f->group_of, 0xff, (size_t)b->n_nodes * sizeof *f->group_of);
    f->n_groups = 0;
    for (int i = 0; i < b->n_nodes; i++) {
        const lc_ir_node *n = &b->nodes[i];
        if (!n->op || f->alone[i] || !fusible(b, n)) continue;
        int best = -1, best_position = 0;
        for (int k = 0; k < n->n_in; k++) {
            int p = f->producer[n->in[k]], position;
            int g = p >= 0 ? f->group_of[p] : -1;
            if (g < 0 || g == best || !can_join(f, g, i, &position)) continue;
            if (best < 0 || f->groups[g].n > f->groups[best].n) {
                best = g;
                best_position = position;
            }
        }
        if (best < 0) {
            best = f->n_groups++;
            f->groups[best].n = 0;
            best_position = i;
        }
        f->groups[best].members[f->groups[best].n++] = i;
        f->groups[best].position = best_position;
        f->group_of[i] = best;
    }
}

/* Describes all groups, and marks the members of those for which there is no kernel. The places of other groups may
 * depend on theirs, so groups are made again then. */
static lc_status ask(fuser *f, bool *all)
{
    *all = true;
    for (int g = 0; g < f->n_groups; g++) {
        const group *of = &f->groups[g];
        bool yes = true;
        if (of->n < 2) continue;
        LC_TRY(describe(f, g));
        LC_TRY(lc__can_fuse(f->b, &of->fused, &f->b->nodes[of->members[0]], &yes));
        for (int m = 0; m < of->n && !yes; m++) f->alone[of->members[m]] = true;
        *all = *all && yes;
    }
    return LC_OK;
}

lc_status lc__fuse_elementwise(lc_build *b)
{
    fuser f = {.b = b};
    LC_TRY(prepare(&f));
    for (bool all = false; !all;) {
        make_groups(&f);
        LC_TRY(ask(&f, &all));
    }
    for (int g = 0; g < f.n_groups; g++)
        if (f.groups[g].n > 1) emit(&f, &f.groups[g]);
    return LC_OK;
}
