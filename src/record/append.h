/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of recording a call: its attributes are copied, its inputs become values, the types of its results are
 * inferred, and its node goes to the tape. record.c is the only caller; inlined, they take no longer than one function.
 */
#ifndef LC_RECORD_APPEND_H
#define LC_RECORD_APPEND_H

#include "base/grow.h"
#include "record/graph_impl.h"

#include <stdlib.h>
#include <string.h>

#define INLINE inline __attribute__((always_inline))

/* Devices that run at the same time share tensors without replicas, and parameters: they may only read them. */
static inline lc_status check_shared(const lc_graph *g, const lc_op *op, int i, const lc_tensor *t)
{
    if (!g->devices || g->expanding || t->kind != LC_TENSOR_PERSISTENT) return LC_OK;
    bool written = op->mutated_inputs >> i & 1, trained = t->requires_grad && !g->no_grad && op->grad;
    if (written && t->replicas && t->read_only)
        return lc_fail(LC_ERR_STATE,
                       "several devices run this step, but it writes input %d, a parameter, which must be the same on "
                       "all of them; write it in a hook with lc_tensor_write, or use --strategy ddp",
                       i);
    if (t->replicas || (!written && !trained)) return LC_OK;
    return lc_fail(LC_ERR_STATE,
                   "several devices run this step, but input %d, which it %s, belongs to no module; register it with "
                   "lc_module_add_%s, so that every device has its own",
                   i, written ? "writes" : "trains", written ? "buffer" : "parameter");
}

static inline bool floats_of_user(const lc_graph *g, const double *floats)
{
    return floats >= g->tape.floats && floats < g->tape.floats + g->tape.n_floats;
}

/* Room for a copy of a call's integers and floats, which may point into pools that move (gradient rules pass such
 * pointers on). */
typedef struct attribute_copies {
    int64_t ints[32];
    double floats[16];
    lc_float_source sources[16];
} attribute_copies;

/* Apart from the copies, whose addresses `infer` gets: this can stay in registers. */
typedef struct attributes {
    int n_int, n_float;
    const int64_t *ints;
    const double *floats;
    const double *live;               /* read again at every run; NULL: not */
    int64_t user;                     /* index of the first in the user's tape; -1: they are not of it */
    const lc_float_source *inherited; /* the sources that they have already; NULL: none */
} attributes;

static INLINE lc_status copy_attributes(const lc_graph *g, attributes *a, bool live, attribute_copies *to)
{
    int n = a->n_float;
    const double *floats = a->floats;
    if (g->expanding && n && floats_of_user(g, floats)) a->user = floats - g->tape.floats;
    if (g->expanding && n && a->user < 0 && floats >= g->ir.floats && floats < g->ir.floats + g->ir.n_floats) {
        if (n > 16) return lc_fail(LC_ERR_INTERNAL, "too many floats");
        memcpy(to->sources, g->ir.sources + (floats - g->ir.floats), (size_t)n * sizeof to->sources[0]);
        a->inherited = to->sources;
    }
    if (a->n_int && a->n_int <= 32) a->ints = memcpy(to->ints, a->ints, (size_t)a->n_int * sizeof to->ints[0]);
    if (n > 16) return lc_fail(LC_ERR_ARGUMENT, "an operator has at most 16 floats");
    if (!n) return LC_OK;
    a->floats = memcpy(to->floats, floats, (size_t)n * sizeof *floats);
    if (live) {
        a->live = floats;
        a->inherited = NULL;
    }
    return LC_OK;
}

static INLINE lc_status append_inputs(lc_graph *g, const lc_tape *tape, const lc_op *op, int n_in, lc_tensor *const *in,
                                      bool *any_grad)
{
    uint32_t *values = tape->in ? tape->in + tape->n_in : NULL; /* NULL if the first operator has no inputs */
    *any_grad = false;
    for (int i = 0; i < n_in; i++) {
        values[i] = LC_ABSENT;
        if (!in[i]) continue;
        LC_TRY(lc__value_of(g, in[i], &values[i]));
        *any_grad |= in[i]->requires_grad;
        LC_TRY(check_shared(g, op, i, in[i]));
    }
    *any_grad = *any_grad && !g->no_grad && !g->expanding && lc__passes_gradients(op);
    return LC_OK;
}

static INLINE lc_status infer_types(const lc_op *op, int n_in, lc_tensor *const *in, const attributes *a,
                                    lc_type types[LC_MAX_OUTPUTS], int *n_out)
{
    const lc_type *few_types[32];
    const lc_type **in_type = n_in <= 32 ? few_types : malloc((size_t)n_in * sizeof *in_type);
    if (!in_type) return lc_fail(LC_ERR_MEMORY, "out of memory while recording the step");
    for (int i = 0; i < n_in; i++) in_type[i] = in[i] ? &in[i]->type : NULL;
    memset(types, 0, LC_MAX_OUTPUTS * sizeof *types);
    lc_infer infer = {.op = op,
                      .n_in = n_in,
                      .in = in_type,
                      .n_int = a->n_int,
                      .ints = a->ints,
                      .n_float = a->n_float,
                      .floats = a->floats,
                      .n_out = op->n_out,
                      .out = types};
    lc_status status = op->infer(&infer);
    if (in_type != few_types) free(in_type);
    *n_out = infer.n_out;
    for (int i = 0; i < infer.n_out && status >= 0; i++)
        if (types[i].dtype == LC_DTYPE_DEFAULT)
            status = lc_fail(LC_ERR_USER, "its infer sets no type for result %d", i);
    return status;
}

static INLINE lc_status append_attributes(const lc_graph *g, lc_tape *tape, const attributes *a)
{
    LC_TRY(lc__grow(&tape->ints, &tape->cap_ints, tape->n_ints, a->n_int, "the record of a step"));
    if (a->n_int) memcpy(tape->ints + tape->n_ints, a->ints, (size_t)a->n_int * sizeof *a->ints);
    uint32_t cap = tape->cap_floats;
    LC_TRY(lc__grow(&tape->floats, &cap, tape->n_floats, a->n_float, "the record of a step"));
    if (g->expanding && cap != tape->cap_floats) {
        uint32_t cap_sources = tape->cap_floats;
        LC_TRY(lc__grow(&tape->sources, &cap_sources, 0, cap, "the record of a step"));
    }
    tape->cap_floats = cap;
    for (int i = 0; i < a->n_float; i++) {
        tape->floats[tape->n_floats + (uint32_t)i] = a->floats[i];
        if (!g->expanding) continue;
        tape->sources[tape->n_floats + (uint32_t)i] =
            a->inherited
                ? a->inherited[i]
                : (lc_float_source){.live = a->live ? a->live + i : NULL, .user = a->user >= 0 ? a->user + i : -1};
    }
    return LC_OK;
}

static INLINE lc_status append_node(lc_tape *tape, lc_node node, lc_site site)
{
    uint32_t cap_nodes = tape->cap_nodes;
    LC_TRY(lc__grow(&tape->nodes, &cap_nodes, tape->n_nodes, 1, "the record of a step"));
    LC_TRY(lc__grow(&tape->sites, &tape->cap_nodes, tape->n_nodes, 1, "the record of a step"));
    tape->sites[tape->n_nodes] = site;
    tape->nodes[tape->n_nodes++] = node;
    tape->n_in += node.n_in;
    tape->n_ints += node.n_int;
    tape->n_floats += node.n_float;
    return LC_OK;
}

#undef INLINE

#endif
