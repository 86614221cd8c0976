/* SPDX-License-Identifier: Apache-2.0 */
/* From the tape to operators: macro nodes become what they stand for.
 *
 * Gradient rules and optimizers record through the same functions as users do; while expanding, what they record goes
 * to a second tape. That tape (the user's operators in their order, with backward, clipping and updates in the places
 * where they were asked for) is what the planner works on. */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "ops/ops.h"
#include "tensor/slice.h"
#include "parallel/reduce/reducer.h"
#include "parallel/tree/tree_impl.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

typedef struct expansion {
    lc_build *b;
    lc_graph *g;
    bool *keep; /* by value of the user */
} expansion;

/* ---- accumulation state ---- */

lc_status lc__graph_add_flat(lc_graph *g, lc_flat *flat)
{
    for (int i = 0; i < g->n_flats; i++)
        if (g->flats[i] == flat) return LC_OK;
    LC_TRY(lc__grow(&g->flats, &g->cap_flats, g->n_flats, 1, "the plan of a step"));
    __atomic_fetch_add(&flat->refs, 1, __ATOMIC_RELAXED);
    g->flats[g->n_flats++] = flat;
    return LC_OK;
}

/* The state of a flat buffer in this segment; starts as it is now, or as lc_zero_grad left it. */
lc_status lc__expand_flat_state(lc_build *b, lc_flat *flat, lc_flat_state **out)
{
    lc_plan *plan = b->plan;
    for (int i = 0; i < plan->n_flats; i++)
        if (plan->flats[i].flat == flat) {
            *out = &plan->flats[i];
            return LC_OK;
        }
    LC_TRY(lc__graph_add_flat(b->g, flat));
    LC_TRY(lc__grow_one(&plan->flats, plan->n_flats, "the plan of a step"));
    lc_flat_state *s = &plan->flats[plan->n_flats];
    s->flat = flat;
    s->before = calloc(3, (size_t)flat->n);
    if (!s->before) return lc_fail(LC_ERR_MEMORY, "out of memory while planning");
    s->after = s->before + flat->n;
    s->trained = s->after + flat->n;
    memcpy(s->trained, flat->trained, (size_t)flat->n);
    memcpy(s->before, flat->has_gradient, (size_t)flat->n);
    if (plan->zero_grad)
        memset(s->before, LC_FLAT_ANY, (size_t)flat->n);
    else
        memcpy(s->after, s->before, (size_t)flat->n);
    plan->n_flats++;
    *out = s;
    return LC_OK;
}

/* ---- copying nodes ---- */

static lc_status copy_node(lc_graph *g, uint32_t k)
{
    const lc_node *n = &g->tape.nodes[k];
    lc_tape *ir = &g->ir;
    LC_TRY(lc__grow(&ir->in, &ir->cap_in, ir->n_in, n->n_in, "the plan of a step"));
    LC_TRY(lc__grow(&ir->ints, &ir->cap_ints, ir->n_ints, n->n_int, "the plan of a step"));
    uint32_t cap = ir->cap_floats, cap_sources = ir->cap_floats;
    LC_TRY(lc__grow(&ir->floats, &cap, ir->n_floats, n->n_float, "the plan of a step"));
    LC_TRY(lc__grow(&ir->sources, &cap_sources, ir->n_floats, n->n_float, "the plan of a step"));
    ir->cap_floats = cap;
    cap = cap_sources = ir->cap_nodes;
    LC_TRY(lc__grow(&ir->nodes, &cap, ir->n_nodes, 1, "the plan of a step"));
    LC_TRY(lc__grow(&ir->sites, &cap_sources, ir->n_nodes, 1, "the plan of a step"));
    ir->cap_nodes = cap;
    lc_node copy = *n;
    copy.in_at = ir->n_in;
    copy.int_at = ir->n_ints;
    copy.float_at = ir->n_floats;
    if (n->n_in) memcpy(ir->in + ir->n_in, g->tape.in + n->in_at, n->n_in * sizeof *ir->in);
    if (n->n_int) memcpy(ir->ints + ir->n_ints, g->tape.ints + n->int_at, n->n_int * sizeof *ir->ints);
    for (uint32_t i = 0; i < n->n_float; i++) {
        ir->floats[ir->n_floats + i] = g->tape.floats[n->float_at + i];
        ir->sources[ir->n_floats + i] = (lc_float_source){.user = (int64_t)(n->float_at + i)};
    }
    ir->sites[ir->n_nodes] = g->tape.sites[k];
    ir->nodes[ir->n_nodes++] = copy;
    ir->n_in += n->n_in;
    ir->n_ints += n->n_int;
    ir->n_floats += n->n_float;
    return LC_OK;
}

static lc_status note_writes(lc_build *b, const lc_node *n)
{
    const lc_graph *g = b->g;
    for (uint32_t i = 0; i < n->n_in && i < 32 && n->op->mutated_inputs; i++) {
        uint32_t value = g->tape.in[n->in_at + i];
        if ((n->op->mutated_inputs >> i & 1) && value != LC_ABSENT) LC_TRY(lc__expand_wrote(b, g->values[value]));
    }
    return LC_OK;
}

void lc__expand_produce(lc_graph *g, uint32_t first_out)
{
    if (g->status == LC_OK && g->ir.n_nodes) g->ir.nodes[g->ir.n_nodes - 1].first_out = first_out;
}

/* ---- backward ---- */

typedef struct backward {
    expansion *x;
    lc_graph *g;
    uint32_t n_values;
    lc_tensor **gradient; /* by value */
    lc_tensor **again;    /* by value: recomputed, in checkpointed regions */
    uint32_t *first_use;  /* by value: first differentiated node that reads it */
    bool *region_done;
    bool chunk; /* gradients go to `place` on the tree */
    lc__tree_place place;
    bool **done;         /* by flat buffer and parameter of the tree */
    bool any_write;      /* in this step, so far */
    lc__origin *origins; /* if there was any */
    uint32_t n_origins, cap_origins;
} backward;

static lc_tensor *tensor_of(const backward *b, uint32_t value)
{
    if (value == LC_ABSENT) return NULL;
    return b->again[value] ? b->again[value] : b->g->values[value];
}

static bool differentiated(const lc_node *n)
{
    return n->op->grad && !(n->op->flags & LC_OP_NO_GRAD) && !(n->flags & LC_NODE_NO_GRAD) && !lc__is_macro(n->op);
}

/* What was expanded from `first` on stands for node k of the user's tape. */
static lc_status note_origin(backward *b, uint32_t first, uint32_t k)
{
    uint32_t end = b->g->ir.n_nodes;
    if (!b->any_write || first == end) return LC_OK;
    LC_TRY(lc__grow(&b->origins, &b->cap_origins, b->n_origins, 1, "the plan of a step"));
    b->origins[b->n_origins++] = (lc__origin){first, end, k};
    return LC_OK;
}

/* Records the nodes of a checkpointed region once more; gradients then use those results. */
static lc_status recompute(backward *b, uint32_t region, uint32_t end)
{
    lc_graph *g = b->g;
    for (uint32_t k = 0; k < end; k++) {
        const lc_node *n = &g->tape.nodes[k];
        if (n->region != region || lc__is_macro(n->op) || (n->op->flags & (LC_OP_MUTATES | LC_OP_SIDE_EFFECT)))
            continue;
        lc_tensor *in[64], *out[LC_MAX_OUTPUTS];
        if (n->n_in > 64)
            return lc_fail(LC_ERR_UNSUPPORTED, "%s in a checkpointed region has too many inputs", n->op->name);
        for (uint32_t i = 0; i < n->n_in; i++) in[i] = tensor_of(b, g->tape.in[n->in_at + i]);
        uint32_t before = g->ir.n_nodes;
        lc_op_call_n(n->op, n->n_in, in, n->n_int, g->tape.ints + n->int_at, n->n_float, g->tape.floats + n->float_at,
                     out, g->tape.sites[k]);
        LC_TRY(g->status);
        LC_TRY(note_origin(b, before, k));
        for (uint32_t i = 0; i < n->n_out; i++) b->again[n->first_out + i] = out[i];
    }
    return LC_OK;
}

static lc_status add_gradient(backward *b, uint32_t value, lc_tensor *d, const lc_node *n)
{
    lc_graph *g = b->g;
    const lc_type *want = &g->values[value]->type;
    if (!lc__type_equal(&d->type, want)) {
        char got[128], wanted[128];
        return lc_fail(LC_ERR_INTERNAL, "the gradient rule of %s gave %s %s for an input of %s %s", n->op->name,
                       lc_dtype_name(d->type.dtype), lc__shape_text(&d->type, got, sizeof got),
                       lc_dtype_name(want->dtype), lc__shape_text(want, wanted, sizeof wanted));
    }
    lc_tensor *sum = b->gradient[value];
    b->gradient[value] = sum ? lc_op_call(&lc__op_add, 2, (lc_tensor *[]){sum, d}, 0, NULL, 0, NULL, LC_HERE) : d;
    return g->status;
}

/* The gradient of a parameter is complete: into its place in the flat buffer. */
static lc_status deposit(backward *b, uint32_t value)
{
    lc_tensor *p = b->g->values[value];
    lc_flat *flat;
    lc_flat_state *state;
    if (!b->gradient[value]) return LC_OK;
    LC_TRY(lc__flat_of(p, &flat));
    LC_TRY(lc__expand_flat_state(b->x->b, flat, &state));
    /* With slices the first gradient of a segment begins a new sum, which the sync adds to the slices. Of chunks the
     * last one's does; what the others add to is held whole. */
    bool sliced = flat->sharding && flat->sharding->gradient && (!b->chunk || b->place.last);
    uint8_t *has = &state->after[p->flat_index];
    int64_t add = sliced ? (*has & LC_FLAT_PENDING) != 0 : *has;
    *has |= sliced ? LC_FLAT_PENDING : 1;
    if (b->chunk) {
        bool taken;
        LC_TRY(lc__expand_tree_deposit(b->x->b, b->place, p, b->gradient[value], &taken));
        for (int f = 0; f < b->place.tree->n_flats && taken; f++)
            if (b->place.tree->flats[f].flat == flat) b->done[f][p->flat_index] = true;
        if (taken) {
            b->gradient[value] = NULL;
            return LC_OK;
        }
    }
    lc_tensor *in[] = {flat->gradients[p->flat_index], b->gradient[value]};
    lc_tensor *none[LC_MAX_OUTPUTS];
    lc_op_call_n(&lc__op_accumulate, 2, in, 1, &add, 0, NULL, none, LC_HERE);
    b->gradient[value] = NULL;
    return b->g->status;
}

static lc_status backward_node(backward *b, uint32_t k)
{
    lc_graph *g = b->g;
    const lc_node *n = &g->tape.nodes[k];
    lc_tensor *dout[LC_MAX_OUTPUTS] = {NULL}, *out[LC_MAX_OUTPUTS];
    bool any = false;
    for (uint32_t i = 0; i < n->n_out; i++) any |= (dout[i] = b->gradient[n->first_out + i]) != NULL;
    if (!any || !differentiated(n)) return LC_OK;
    if (n->region && !b->region_done[n->region]) {
        b->region_done[n->region] = true;
        LC_TRY(recompute(b, n->region, k + 1));
    }
    lc_tensor *few[3 * 16];
    bool few_need[16];
    lc_tensor **in = few, **din = few + 16;
    bool *need = few_need;
    if (n->n_in > 16) {
        in = lc__build_alloc(b->x->b, 2 * n->n_in * sizeof *in);
        need = lc__build_alloc(b->x->b, n->n_in);
        if (!in || !need) return LC_ERR_MEMORY;
        din = in + n->n_in;
    }
    bool wanted = false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t value = g->tape.in[n->in_at + i];
        in[i] = tensor_of(b, value);
        din[i] = NULL;
        need[i] = value != LC_ABSENT && g->values[value]->requires_grad;
        wanted |= need[i];
    }
    if (!wanted) return LC_OK;
    for (uint32_t i = 0; i < n->n_out; i++) out[i] = tensor_of(b, n->first_out + i);
    lc_grad rule = {.op = n->op,
                    .n_in = n->n_in,
                    .n_out = n->n_out,
                    .in = in,
                    .out = out,
                    .dout = dout,
                    .need = need,
                    .din = din,
                    .n_int = n->n_int,
                    .ints = g->tape.ints + n->int_at,
                    .n_float = n->n_float,
                    .floats = g->tape.floats + n->float_at};
    uint32_t before = g->ir.n_nodes;
    lc_status status = n->op->grad(&rule);
    /* To the user these operators belong to the call they differentiate. */
    for (uint32_t i = before; i < g->ir.n_nodes; i++) g->ir.sites[i] = g->tape.sites[k];
    if (status < 0) return lc_fail_context(status, "gradient of %s", n->op->name);
    LC_TRY(g->status);
    LC_TRY(note_origin(b, before, k));
    for (uint32_t i = 0; i < n->n_in; i++)
        if (need[i] && din[i]) LC_TRY(add_gradient(b, g->tape.in[n->in_at + i], din[i], n));
    for (uint32_t i = 0; i < n->n_out; i++) b->gradient[n->first_out + i] = NULL;
    /* Parameters that no earlier node reads are complete. */
    for (uint32_t i = 0; i < n->n_in; i++) {
        uint32_t value = g->tape.in[n->in_at + i];
        if (value != LC_ABSENT && b->first_use[value] == k && g->values[value]->kind == LC_TENSOR_PERSISTENT &&
            g->values[value]->requires_grad)
            LC_TRY(deposit(b, value));
    }
    return LC_OK;
}

/* What a chunk's backward pass counts: its own weight. On several ranks or devices a loss counts as much as this one
 * has samples. */
static lc_tensor *seed_of(lc_graph *g, const lc_node *n, int64_t dtype)
{
    double one = 1;
    if (n->n_float) return lc_op_call(&lc__op_scalar, 0, NULL, 1, &dtype, 1, g->tape.floats + n->float_at, LC_HERE);
    if (g->loss_weight) return lc_op_call_live(&lc__op_scalar, 0, NULL, 1, &dtype, 1, g->loss_weight, LC_HERE);
    return lc_op_call(&lc__op_scalar, 0, NULL, 1, &dtype, 1, &one, LC_HERE);
}

static lc_status begin_chunk(backward *b, const lc_node *n)
{
    b->place = lc__tree_place_of(b->g->tape.ints + n->int_at);
    b->chunk = true;
    b->done = lc__build_alloc(b->x->b, (size_t)b->place.tree->n_flats * sizeof *b->done);
    for (int f = 0; b->done && f < b->place.tree->n_flats; f++)
        if (!(b->done[f] = lc__build_alloc(b->x->b, (size_t)b->place.tree->flats[f].flat->n))) return LC_ERR_MEMORY;
    return b->done ? LC_OK : LC_ERR_MEMORY;
}

/* Chunks come one after the other behind what all of them may use. */
static bool of_another_chunk(const backward *b, uint32_t k)
{
    return b->chunk && k >= b->place.first_node && k < b->place.node;
}

static lc_status check_apart(const backward *b, uint32_t k)
{
    const lc_node *n = &b->g->tape.nodes[k];
    for (uint32_t i = 0; i < n->n_out; i++)
        if (b->gradient[n->first_out + i])
            return lc_fail(LC_ERR_STATE,
                           "deterministic training calls training_step for one chunk of a batch after the "
                           "other, and this loss depends on what was computed for another chunk");
    return LC_OK;
}

static lc_status backward_error(lc_graph *g, lc_status status, uint32_t k)
{
    if (g->status == LC_OK) lc__record_error(g, status, "backward", g->tape.sites[k], NULL, NULL, 0);
    return status;
}

/* From the loss, node k's, back to the parameters. */
static lc_status differentiate(backward *b, uint32_t loss, uint32_t k)
{
    lc_graph *g = b->g;
    uint32_t first = g->ir.n_nodes, at = k;
    const lc_type *type = &g->values[loss]->type;
    lc_tensor *seed = seed_of(g, &g->tape.nodes[k], type->dtype);
    if (type->ndim) seed = lc_op_call(&lc__op_reshape, 1, &seed, type->ndim, type->shape, 0, NULL, LC_HERE);
    LC_TRY(g->status);
    b->gradient[loss] = seed;
    if (g->values[loss]->kind == LC_TENSOR_PERSISTENT) return deposit(b, loss);
    for (uint32_t i = k; i-- > 0;) {
        lc_status status = of_another_chunk(b, i) ? check_apart(b, i) : backward_node(b, i);
        if (status < 0) return backward_error(g, status, i);
    }
    /* Parameters whose first reader got no gradient itself. */
    for (uint32_t v = 0; v < b->n_values; v++)
        if (b->gradient[v] && g->values[v]->kind == LC_TENSOR_PERSISTENT && g->values[v]->requires_grad)
            LC_TRY(deposit(b, v));
    lc_status status = lc__expand_check_reads(b->x->b, first, b->origins, b->n_origins, &at);
    return status < 0 ? backward_error(g, status, at) : LC_OK;
}

static lc_status expand_backward(expansion *x, uint32_t k)
{
    lc_graph *g = x->g;
    uint32_t loss = g->tape.in[g->tape.nodes[k].in_at];
    if (!g->values[loss]->requires_grad)
        return lc_fail(LC_ERR_STATE, "the loss depends on no parameter that requires a gradient, or was computed where "
                                     "none is recorded: behind lc_no_grad_begin, or in an evaluation (see the option "
                                     "inference_mode)");
    backward b = {.x = x, .g = g, .n_values = g->n_values, .any_write = lc__expand_any_write(x->b)};
    b.gradient = lc__build_alloc(x->b, g->n_values * sizeof *b.gradient);
    b.again = lc__build_alloc(x->b, g->n_values * sizeof *b.again);
    b.first_use = lc__build_alloc(x->b, g->n_values * sizeof *b.first_use);
    b.region_done = lc__build_alloc(x->b, g->n_regions + 1);
    if (!b.gradient || !b.again || !b.first_use || !b.region_done) return LC_ERR_MEMORY;
    if (g->tape.nodes[k].n_int) LC_TRY(begin_chunk(&b, &g->tape.nodes[k]));
    memset(b.first_use, 0xff, g->n_values * sizeof *b.first_use);
    for (uint32_t i = 0; i < k; i++) {
        const lc_node *n = &g->tape.nodes[i];
        if (!differentiated(n) || of_another_chunk(&b, i)) continue;
        for (uint32_t j = 0; j < n->n_in; j++) {
            uint32_t value = g->tape.in[n->in_at + j];
            if (value != LC_ABSENT && b.first_use[value] == LC_ABSENT) b.first_use[value] = i;
        }
    }
    lc_status status = differentiate(&b, loss, k);
    free(b.origins);
    LC_TRY(status);
    return b.chunk ? lc__expand_tree_absent(x->b, b.place, b.done) : LC_OK;
}

/* ---- the segment ---- */

static lc_status expand_node(expansion *x, uint32_t k)
{
    lc_graph *g = x->g;
    const lc_node *n = &g->tape.nodes[k];
    if (n->op == &lc__macro_backward) return expand_backward(x, k);
    if (n->op == &lc__macro_clip_norm) return lc__expand_clip_norm(x->b, n);
    if (n->op == &lc__macro_step) return lc__expand_step(x->b, n);
    if (n->op == &lc__macro_gradient) return lc__expand_gradient(x->b, n);
    if (n->op == &lc__macro_sync) return lc__expand_sync(x->b);
    if (n->op == &lc__macro_share_sum) return lc__expand_share_sum(x->b);
    if (n->op == &lc__macro_absent)
        return lc__expand_tree_absent(x->b, lc__tree_place_of(g->tape.ints + n->int_at), NULL);
    if (n->op == &lc__macro_window) return lc__expand_tree_window(x->b, lc__tree_place_of(g->tape.ints + n->int_at));
    if (n->op == &lc__macro_keep) {
        x->keep[g->tape.in[n->in_at]] = true;
        return LC_OK;
    }
    if (n->op == &lc__macro_write) return lc__expand_wrote(x->b, g->values[g->tape.in[n->in_at]]);
    if (n->op == &lc__macro_zero_grad && n->n_int) return lc__expand_zero_grad(x->b, n);
    if (n->op == &lc__macro_zero_grad) {
        x->b->plan->zero_grad = true;
        for (int i = 0; i < x->b->plan->n_flats; i++)
            memset(x->b->plan->flats[i].after, 0, (size_t)x->b->plan->flats[i].flat->n);
        return LC_OK;
    }
    LC_TRY(note_writes(x->b, n));
    return copy_node(g, k);
}

static bool keeps(lc__keeps which, const lc_tensor *value)
{
    return which == LC__KEEPS_ALL || (which == LC__KEEPS_NUMBERS && lc__numel(&value->type) == 1);
}

/* From the expanded tape to nodes that own their arrays and can be rewritten. */
static lc_status make_nodes(expansion *x)
{
    lc_build *b = x->b;
    lc_graph *g = x->g;
    const lc_tape *ir = &g->ir;
    b->n_nodes = (int)ir->n_nodes;
    b->nodes = lc__build_alloc(b, (ir->n_nodes + 1) * sizeof *b->nodes);
    b->n_values = b->cap_values = g->n_values;
    b->values = calloc(g->n_values + 1, sizeof *b->values);
    if (!b->nodes || !b->values) return lc_fail(LC_ERR_MEMORY, "out of memory while planning");
    uint32_t recorded = b->plan->value_0 + b->plan->n_values; /* by the program: values before this one */
    for (uint32_t v = 0; v < g->n_values; v++) {
        b->values[v].type = g->values[v]->type;
        b->values[v].storage = -1;
        b->values[v].keep = x->keep[v] || (v < recorded && keeps(b->plan->keeps, g->values[v]));
    }
    for (uint32_t k = 0; k < ir->n_nodes; k++) {
        const lc_node *n = &ir->nodes[k];
        lc_ir_node *to = &b->nodes[k];
        bool checks = (n->op->flags & LC_OP_CHECKS) && n->first_out < recorded;
        *to = (lc_ir_node){.op = n->op,
                           .checks = checks,
                           .n_in = n->n_in,
                           .n_out = n->n_out,
                           .n_int = n->n_int,
                           .n_float = n->n_float,
                           .site = ir->sites[k]};
        to->in = lc__build_alloc(b, (size_t)(n->n_in + n->n_out + 1) * sizeof *to->in);
        to->ints = lc__build_alloc(b, (size_t)(n->n_int + 1) * sizeof *to->ints);
        to->floats = lc__build_alloc(b, (size_t)(n->n_float + 1) * sizeof *to->floats);
        to->sources = lc__build_alloc(b, (size_t)(n->n_float + 1) * sizeof *to->sources);
        if (!to->in || !to->ints || !to->floats || !to->sources) return LC_ERR_MEMORY;
        to->out = to->in + n->n_in;
        if (n->n_in) memcpy(to->in, ir->in + n->in_at, n->n_in * sizeof *to->in);
        for (uint32_t i = 0; i < n->n_out; i++) to->out[i] = n->first_out + i;
        if (n->n_int) memcpy(to->ints, ir->ints + n->int_at, n->n_int * sizeof *to->ints);
        if (n->n_float) memcpy(to->floats, ir->floats + n->float_at, n->n_float * sizeof *to->floats);
        if (n->n_float) memcpy(to->sources, ir->sources + n->float_at, n->n_float * sizeof *to->sources);
    }
    return LC_OK;
}

static lc_status check_synced(const lc_plan *plan)
{
    for (int i = 0; i < plan->n_flats; i++)
        for (int k = 0; k < plan->flats[i].flat->n; k++)
            if (plan->flats[i].after[k] & LC_FLAT_PENDING)
                return lc_fail(LC_ERR_UNSUPPORTED,
                               "the strategy sharded reduces gradients in the backward pass that makes them: nothing "
                               "may be read between it and the end of the step; use --strategy sharded_1 or ddp");
    return LC_OK;
}

lc_status lc__expand(lc_build *b)
{
    lc_graph *g = b->g;
    uint32_t n_values = g->n_values;
    expansion x = {.b = b, .g = g};
    lc_status status = LC_OK;
    g->ir.n_nodes = g->ir.n_in = g->ir.n_ints = g->ir.n_floats = 0;
    /* keep grows with the values that expansion adds; those are never kept */
    x.keep = lc__build_alloc(b, n_values + 1);
    if (!x.keep) status = LC_ERR_MEMORY;
    for (uint32_t k = g->node_0; status >= 0 && k < g->tape.n_nodes; k++) {
        b->position = k;
        status = expand_node(&x, k);
        if (status < 0 && g->status == LC_OK)
            lc__record_error(g, status, g->tape.nodes[k].op->name, g->tape.sites[k], NULL, NULL, 0);
    }
    if (status >= 0) status = check_synced(b->plan);
    if (status >= 0) {
        bool *keep = lc__build_alloc(b, g->n_values + 1);
        if (keep) memcpy(keep, x.keep, n_values);
        x.keep = keep;
        status = keep ? make_nodes(&x) : LC_ERR_MEMORY;
    }
    b->n_values = g->n_values;
    return status;
}
