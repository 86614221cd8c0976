/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters that a step rounds to 16 bits have low copies (tensor/low.h).
 *
 * Operators read the copy, after an operator that makes it again if the parameter has been written since it was made.
 * Updates write both. Everything else that writes a parameter is noted in the plan, whose replays make copies of that
 * memory old. A step that writes a parameter between rounding it and the last use of the result rounds it itself, and
 * so does one that has already written it other than by an update.
 *
 * Runs when the order of nodes is final. Devices have no such copies, nor have parameters that are in slices. */
#include "optim/keep_low.h"

#include "base/grow.h"
#include "engine/plan/plan.h"
#include "engine/plan/plan_impl.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "optim/optim_internal.h"
#include "tensor/low.h"

#include <limits.h>

/* ---- the operator ---- */

static const lc_flat *flat_of(const lc_call *call)
{
    return (const lc_flat *)(uintptr_t)call->ints[LC__REFRESH_FLAT];
}

bool lc__refresh_needed(const lc_call *call)
{
    const int64_t *i = call->ints;
    return lc__low_is_old(flat_of(call), (int)i[LC__REFRESH_INDEX], (int)i[LC__REFRESH_KIND], call->in[1].data);
}

void lc__refreshed(const lc_call *call)
{
    const int64_t *i = call->ints;
    lc__low_made(flat_of(call), (int)i[LC__REFRESH_INDEX], (int)i[LC__REFRESH_KIND], call->in[1].data);
}

static void run(const lc_call *call)
{
    if (!lc__refresh_needed(call)) return;
    lc__convert_strided(&call->in[0], &call->in[1]);
    lc__refreshed(call);
}

static const lc_kernel kernel = {.name = "reference", .layout = LC_WANT_STRIDED, .run = run};
const lc_op lc__op_refresh_low = {.name = "refresh_low",
                                  .flags = LC_OP_MUTATES | LC_OP_NO_GRAD | LC_OP_HOST,
                                  .infer = lc__infer_nothing,
                                  .mutated_inputs = 1 << 1,
                                  .kernel = &kernel};

/* ---- the pass ---- */

typedef struct keeping {
    lc_build *b;
    int *maker;    /* by value: its node, or -1 */
    int *last_use; /* by value: its last reader, through views, too; -1: none; INT_MAX: the program may read it */
} keeping;

static lc_status look_around(keeping *x)
{
    lc_build *b = x->b;
    const lc_plan *p = b->plan;
    x->maker = lc__build_alloc(b, (b->n_values + 1) * sizeof *x->maker);
    x->last_use = lc__build_alloc(b, (b->n_values + 1) * sizeof *x->last_use);
    if (!x->maker || !x->last_use) return LC_ERR_MEMORY;
    for (uint32_t v = 0; v < b->n_values; v++) {
        const bool is_programs = v >= p->value_0 && v < p->value_0 + p->n_values;
        x->maker[v] = -1;
        x->last_use[v] = b->values[v].keep || is_programs ? INT_MAX : -1;
    }
    for (int i = b->n_nodes - 1; i >= 0; i--) {
        const lc_ir_node *n = &b->nodes[i];
        for (int k = 0; n->op && k < n->n_out; k++) x->maker[n->out[k]] = i;
        for (int k = 0; n->op && k < n->n_in; k++) {
            if (n->in[k] == LC_ABSENT) continue;
            int *last = &x->last_use[n->in[k]];
            if (*last < i) *last = i;
            if (n->op->flags & LC_OP_VIEW && *last < x->last_use[n->out[0]]) *last = x->last_use[n->out[0]];
        }
    }
    return LC_OK;
}

/* Whether the graph has low copies, and of which kind. */
static bool keeps_low(const lc_graph *g, int *kind)
{
    *kind = lc__low_kind(g->low);
    return lc_dtype_size(g->low) == 2 && !g->devices && lc__on_host(g->on);
}

/* The flat buffer that t is all parameters of; NULL: none. */
static lc_flat *flat_with(const lc_graph *g, const lc_tensor *t)
{
    for (int i = 0; i < g->n_flats; i++)
        if (g->flats[i]->parameter == t) return g->flats[i];
    return NULL;
}

/* The flat buffer whose whole parameters the node updates; NULL: it does something else, or updates slices. */
static lc_flat *updated_by(const keeping *x, const lc_ir_node *n)
{
    const lc_graph *g = x->b->g;
    return lc__is_update(n->op) && x->maker[n->in[0]] < 0 ? flat_with(g, g->values[n->in[0]]) : NULL;
}

/* Whether a node of [begin, end) writes the memory of t. */
static bool is_written(const keeping *x, const lc_tensor *t, int begin, int end, bool by_updates)
{
    for (int i = begin; i < end; i++) {
        const lc_ir_node *n = &x->b->nodes[i];
        if (!n->op || !n->op->mutated_inputs || (!by_updates && updated_by(x, n) == t->flat)) continue;
        for (int k = 0; k < n->n_in; k++) {
            if (!(n->op->mutated_inputs >> k & 1) || n->in[k] == LC_ABSENT) continue;
            const lc_tensor *written = lc__memory_of(x->b->g, x->b->nodes, x->maker, n->in[k]);
            if (written && lc__overlap(written, t)) return true;
        }
    }
    return false;
}

/* The parameter whose low copy the result of node i may be; NULL: none. */
static lc_tensor *rounded_by(const keeping *x, int i)
{
    const lc_graph *g = x->b->g;
    const lc_ir_node *n = &x->b->nodes[i];
    if (n->op != &lc__op_cast || x->b->values[n->out[0]].type.dtype != g->low) return NULL;
    if (n->in[0] >= g->n_values || x->maker[n->in[0]] >= 0) return NULL;
    lc_tensor *t = g->values[n->in[0]];
    const int last = x->last_use[n->out[0]];
    if (t->kind != LC_TENSOR_PERSISTENT || !t->flat || t->is_slice || t->type.dtype != LC_F32 || last == INT_MAX)
        return NULL;
    return is_written(x, t, 0, i, false) || is_written(x, t, i, last, true) ? NULL : t;
}

/* The flat buffer lives as long as the plan. The graph does not get to know it: that would say that it trains these
 * parameters. */
static lc_status hold(lc_plan *p, lc_flat *flat)
{
    for (int i = 0; i < p->n_copied; i++)
        if (p->copied[i] == flat) return LC_OK;
    LC_TRY(lc__grow_one(&p->copied, p->n_copied, "the plan of a step"));
    __atomic_fetch_add(&flat->refs, 1, __ATOMIC_RELAXED);
    p->copied[p->n_copied++] = flat;
    return LC_OK;
}

/* The low copy of t. What a limit of memory leaves for steps is less by each new one. */
static lc_status copy_of(lc_graph *g, const lc_tensor *t, lc_dtype dtype, lc_tensor **out)
{
    const int before = t->flat->n_low;
    int64_t *most = &g->options.max_bytes;
    LC_TRY(lc__low_copy(t->flat, t->flat_index, dtype, out));
    if (*most > 0 && t->flat->n_low > before)
        *most = *most > (int64_t)(*out)->bytes ? *most - (int64_t)(*out)->bytes : 1;
    return LC_OK;
}

/* Replaces the node, which rounds t, by one that only does so if it must, and its result by the copy. */
static lc_status keep(const keeping *x, lc_ir_node *n, lc_tensor *t)
{
    lc_build *b = x->b;
    lc_ir_value *value = &b->values[n->out[0]];
    uint32_t *in = lc__build_alloc(b, 2 * sizeof *in);
    int64_t *ints = lc__build_alloc(b, LC__REFRESH_INTS * sizeof *ints);
    if (!in || !ints) return LC_ERR_MEMORY;
    LC_TRY(hold(b->plan, t->flat));
    LC_TRY(copy_of(b->g, t, value->type.dtype, &value->outside));
    ints[LC__REFRESH_FLAT] = (int64_t)(uintptr_t)t->flat;
    ints[LC__REFRESH_INDEX] = t->flat_index;
    ints[LC__REFRESH_KIND] = lc__low_kind(value->type.dtype);
    in[0] = n->in[0];
    in[1] = n->out[0];
    *n = (lc_ir_node){
        .op = &lc__op_refresh_low, .n_in = 2, .in = in, .n_int = LC__REFRESH_INTS, .ints = ints, .site = n->site};
    return LC_OK;
}

/* The parameter at an offset of the flat buffer. */
static int parameter_at(const lc_flat *flat, int64_t offset)
{
    int low = 0, high = flat->n;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        *(flat->offset[middle] <= offset ? &low : &high) = middle;
    }
    return low;
}

/* The update writes the copies of one kind, too. */
static lc_status update_both(lc_build *b, lc_ir_node *n, const lc_flat *flat, int kind)
{
    const lc__low *low = flat->low[kind];
    const uint32_t copies = lc__build_value(b, &low->all->type);
    if (copies == LC_ABSENT) return LC_ERR_MEMORY;
    b->values[copies].outside = low->all;
    n->in[n->n_in - 1] = copies;
    for (int64_t i = 0; i < n->ints[LC_U_SEGMENTS]; i++) {
        int64_t *entry = n->ints + LC_U_FIRST + LC_S_INTS * i;
        entry[LC_S_LOW] = low->copies[parameter_at(flat, entry[LC_S_OFFSET])] != NULL;
    }
    return LC_OK;
}

/* ---- writes ---- */

static lc_status note(lc_plan *p, uint64_t *writes)
{
    for (uint32_t i = 0; i < p->n_written; i++)
        if (p->written[i] == writes) return LC_OK;
    LC_TRY(lc__grow(&p->written, &p->cap_written, p->n_written, 1, "the plan of a step"));
    p->written[p->n_written++] = writes;
    return LC_OK;
}

/* A parameter that the program has not freed: the step has one. */
static lc_tensor *any_of(const lc_flat *flat)
{
    int k = 0;
    while (!flat->parameters[k]) k++;
    return flat->parameters[k];
}

/* Replays write the memory of t, and the copies of one kind if it is not negative. The buffer of a single parameter,
 * which was not moved, owns no memory: the parameter counts the writes. */
static lc_status note_write(const lc_graph *g, lc_plan *p, lc_tensor *t, int both)
{
    const lc_flat *flat = flat_with(g, t);
    if (flat) t = any_of(flat);
    for (int kind = 0; kind < LC__LOW_KINDS; kind++)
        if (kind != both) LC_TRY(note(p, &lc__tensor_writes(t)[kind]));
    return LC_OK;
}

static lc_status note_update(const keeping *x, lc_ir_node *n, lc_flat *flat)
{
    int kind;
    lc_plan *p = x->b->plan;
    const bool both = keeps_low(x->b->g, &kind) && flat->low[kind];
    for (int i = 0; i < p->n_flats; i++)
        if (p->flats[i].flat == flat) p->flats[i].n_low = flat->n_low;
    if (both) LC_TRY(update_both(x->b, n, flat, kind));
    return note_write(x->b->g, p, flat->parameter, both ? kind : -1);
}

static lc_status note_writes(const keeping *x, lc_ir_node *n)
{
    lc_flat *flat = updated_by(x, n);
    if (flat) return note_update(x, n, flat);
    if (n->op == &lc__op_accumulate || n->op == &lc__op_refresh_low) return LC_OK; /* not parameters */
    for (int k = 0; k < n->n_in; k++) {
        if (!(n->op->mutated_inputs >> k & 1) || n->in[k] == LC_ABSENT) continue;
        lc_tensor *t = lc__memory_of(x->b->g, x->b->nodes, x->maker, n->in[k]);
        if (t) LC_TRY(note_write(x->b->g, x->b->plan, t, -1));
    }
    return LC_OK;
}

lc_status lc__keep_low(lc_build *b)
{
    int kind;
    keeping x = {.b = b};
    LC_TRY(look_around(&x));
    for (int i = 0; i < b->n_nodes && keeps_low(b->g, &kind); i++) {
        lc_tensor *t = b->nodes[i].op ? rounded_by(&x, i) : NULL;
        if (t) LC_TRY(keep(&x, &b->nodes[i], t));
    }
    for (int i = 0; i < b->n_nodes; i++)
        if (b->nodes[i].op && b->nodes[i].op->mutated_inputs) LC_TRY(note_writes(&x, &b->nodes[i]));
    return LC_OK;
}
