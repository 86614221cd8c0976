/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: what happens when a user calls an operator.
 *
 * A call appends one node to the tape and returns the handle of its result; nothing is computed. While the calls
 * repeat those of a known plan (the usual case), each costs a comparison with that plan's node: shapes need not be
 * inferred again. At the first difference inference takes over. */
#include "base/args.h"
#include "base/grow.h"
#include "base/number.h"
#include "record/append.h"
#include "tensor/initial.h"

#include <lightc/optim.h>
#include <lightc/random.h>
#include <stdlib.h>
#include <string.h>

#define SLAB    128
#define AS_SEEN 64 /* operands of a call that can be converted */

/* Without it gcc takes the usual way through these functions for a rare one, and copies nodes by `rep movs`. */
#define HOT __attribute__((hot))

/* ---- values ---- */

/* All arenas grow together, so that a step as large as the previous one finds room in whichever arena is next. */
static bool grow_slabs(lc_graph *g, uint32_t n)
{
    for (int i = 0; i < LC_ARENAS; i++) {
        lc_slab_arena *a = &g->arenas[i];
        while (a->n_slabs < n) {
            lc_tensor **slabs = realloc(a->slabs, (a->n_slabs + 1) * sizeof *slabs);
            if (!slabs) return false;
            a->slabs = slabs;
            slabs[a->n_slabs] = calloc(SLAB, sizeof **slabs); /* stamps must start as 0 */
            if (!slabs[a->n_slabs]) return false;
            a->n_slabs++;
        }
    }
    return true;
}

static lc_tensor *new_step_tensor(lc_graph *g)
{
    lc_slab_arena *a = &g->arenas[g->generation % LC_ARENAS];
    uint32_t slab = a->used / SLAB;
    if (slab >= a->n_slabs && !grow_slabs(g, slab + 1)) return NULL;
    return &a->slabs[slab][a->used++ % SLAB];
}

static lc_status add_value(lc_graph *g, lc_tensor *t)
{
    LC_TRY(lc__grow(&g->values, &g->cap_values, g->n_values, 1, "the record of a step"));
    t->graph = g;
    t->generation = g->generation;
    t->value = g->n_values;
    g->values[g->n_values++] = t;
    return LC_OK;
}

static lc_status add_external(lc_graph *g, lc_tensor *t)
{
    lc_external e; /* compared with memcmp: padding must be zero */
    if (t->initial) LC_TRY(lc__tensor_fill(t));
    memset(&e, 0, sizeof e);
    e.id = t->kind == LC_TENSOR_INPUT ? 0 : t->id;
    e.value = g->n_values;
    e.kind = (uint16_t)t->kind;
    e.layout = (uint16_t)t->layout;
    if (t->kind == LC_TENSOR_INPUT) e.type = t->type;
    LC_TRY(add_value(g, t));
    if (g->expanding) return LC_OK; /* found again whenever the segment is expanded again */
    LC_TRY(lc__grow(&g->externals, &g->cap_externals, g->n_externals, 1, "the record of a step"));
    g->externals[g->n_externals] = e;
    if (g->expect) {
        uint32_t k = g->n_externals - g->ext_0;
        if (k >= g->expect->n_externals || memcmp(&g->expect->externals[k], &e, sizeof e) != 0) g->expect = NULL;
    }
    g->n_externals++;
    return LC_OK;
}

/* The error for an operand that is a result, but not of the step being recorded. If it has expired, its handle may have
 * been reused. Devices begin a step of their own for each step function, so a result of another device may be of this
 * step or of an earlier one. */
static lc_status no_operand(const lc_graph *g, const lc_tensor *t)
{
    const lc_graph *of = t->graph;
    if (!of || of == g || (!g->devices && of->generation != t->generation))
        return lc_fail(LC_ERR_STATE, "an input is a result of an earlier step, which has expired; lc_assign it to a "
                                     "persistent tensor to carry it over");
    if (!g->devices)
        return lc_fail(LC_ERR_STATE, "an input belongs to another graph; pass it through a persistent tensor");
    return lc_fail(LC_ERR_STATE, "an input was computed for another device's part of the batch, or in an earlier step; "
                                 "compute it in the step function that uses it, or lc_assign it to a persistent tensor "
                                 "to carry it over");
}

lc_status lc__value_of(lc_graph *g, lc_tensor *t, uint32_t *value)
{
    t = lc__own_handle(g, t);
    if (t->graph == g && t->generation == g->generation) {
        *value = t->value;
        return LC_OK;
    }
    if (t->kind == LC_TENSOR_STEP) return no_operand(g, t);
    LC_TRY(add_external(g, t));
    *value = t->value;
    return LC_OK;
}

/* The node of the user's tape that makes a value, or NULL. Results are numbered in the order of nodes. */
static const lc_node *maker_of(const lc_tape *tape, uint32_t value)
{
    uint32_t low = 0, high = tape->n_nodes; /* the last node that begins at or before the value */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (tape->nodes[middle].first_out <= value)
            low = middle + 1;
        else
            high = middle;
    }
    while (low > 0 && !tape->nodes[low - 1].n_out) low--;
    const lc_node *n = low ? &tape->nodes[low - 1] : NULL;
    return n && value < n->first_out + n->n_out ? n : NULL;
}

lc_tensor *lc__viewed_tensor(const lc_graph *g, uint32_t value)
{
    const lc_node *n;
    while (value < g->n_values && (n = maker_of(&g->tape, value)) && (n->op->flags & LC_OP_VIEW))
        value = g->tape.in[n->in_at];
    lc_tensor *t = value < g->n_values ? g->values[value] : NULL;
    return t && t->kind >= LC_TENSOR_PERSISTENT ? t : NULL;
}

/* ---- recording ---- */

static uint64_t site_hash(lc_site site)
{
    const char *file = site.file ? strrchr(site.file, '/') : NULL;
    file = file ? file + 1 : site.file ? site.file : "";
    return lc_random_key(lc_random_key_name(0, file), (uint64_t)site.line) | 1;
}

/* How often this site has recorded a random operator in this step or chunk: calls in a loop get streams of their own,
 * and so do chunks. */
static lc_status random_site(lc_graph *g, lc_site site, int64_t ints[2])
{
    uint64_t hash = site_hash(site);
    uint32_t i = g->chunk.first_site;
    if (g->chunk.number >= 0) hash = lc_random_key(hash, (uint64_t)g->chunk.number + 1);
    while (i < g->n_random_sites && g->random_sites[i].hash != hash) i++;
    if (i == g->n_random_sites) {
        LC_TRY(lc__grow(&g->random_sites, &g->cap_random_sites, i, 1, "the record of a step"));
        g->random_sites[i].hash = hash;
        g->random_sites[i].count = 0;
        g->n_random_sites++;
    }
    ints[0] = (int64_t)hash;
    ints[1] = ++g->random_sites[i].count;
    return LC_OK;
}

/* Results of a node whose types were inferred. */
static lc_status add_results(lc_graph *g, int n, const lc_type *types, bool any_grad, lc_tensor **out)
{
    for (int i = 0; i < n; i++) {
        lc_tensor *t = new_step_tensor(g);
        if (!t) return lc_fail(LC_ERR_MEMORY, "out of memory while recording the step");
        memset(t, 0, sizeof *t); /* also the stamp */
        t->type = types[i];
        t->kind = LC_TENSOR_STEP;
        t->requires_grad = any_grad && lc_dtype_is_float(types[i].dtype);
        LC_TRY(add_value(g, t));
        out[i] = t;
    }
    return LC_OK;
}

static lc_status record(lc_graph *g, const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints,
                        int n_float, const double *floats, bool live, lc_site site, lc_tensor **out)
{
    lc_tape *tape = g->expanding ? &g->ir : &g->tape;
    attributes a = {.n_int = n_int, .n_float = n_float, .ints = ints, .floats = floats, .user = -1};
    attribute_copies copies;
    lc_type types[LC_MAX_OUTPUTS];
    bool any_grad;
    int n_out = 0;
    LC_TRY(lc__reserved_check(op->reserved, "lc_op"));
    LC_TRY(lc__grow(&tape->in, &tape->cap_in, tape->n_in, n_in, "the record of a step"));
    LC_TRY(copy_attributes(g, &a, live, &copies));
    for (const lc_peer *p = g->expanding ? NULL : g->peers; p; p = p->next)
        if (p->ops->check_write) LC_TRY(p->ops->check_write(p, op, in));
    LC_TRY(append_inputs(g, tape, op, n_in, in, &any_grad));
    lc_node node = {.op = op,
                    .n_in = (uint32_t)n_in,
                    .n_int = (uint32_t)n_int,
                    .n_float = (uint8_t)n_float,
                    .flags = g->expanding ? 0 : g->node_flags,
                    .region = g->expanding ? 0 : g->region,
                    .in_at = tape->n_in,
                    .int_at = tape->n_ints,
                    .float_at = tape->n_floats};
    if (!g->expanding) g->expect = NULL; /* it does not repeat the plan, or follow() would have recorded it */
    LC_TRY(infer_types(op, n_in, in, &a, types, &n_out));
    node.n_out = (uint8_t)n_out;
    node.first_out = g->n_values;
    LC_TRY(add_results(g, n_out, types, any_grad, out));
    LC_TRY(append_attributes(g, tape, &a));
    return append_node(tape, node, site);
}

/* The usual case: the call repeats the next node of the plan that is expected. Types are known, capacities were checked
 * when the segment began. False: nothing was recorded. */
static HOT bool follow(lc_graph *g, const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints,
                       int n_float, const double *floats, const lc_site *site, lc_tensor **out)
{
    const lc_plan *plan = g->expect;
    lc_tape *tape = &g->tape;
    uint32_t k = tape->n_nodes - plan->node_0;
    if (k >= plan->n_nodes) return false;
    const lc_node *want = &plan->nodes[k];
    if (want->op != op || (int)want->n_in != n_in || (int)want->n_int != n_int || want->n_float != n_float ||
        want->region != g->region || want->flags != g->node_flags)
        return false;
    if ((!in && n_in) || (!ints && n_int) || (!floats && n_float)) return false;
    const uint32_t *want_in = plan->in + (want->in_at - plan->in_0);
    uint32_t *values = tape->in ? tape->in + tape->n_in : NULL; /* NULL if the first operator has no inputs */
    for (int i = 0; i < n_in; i++) {
        lc_tensor *t = in[i] ? lc__own_handle(g, in[i]) : NULL;
        if (!t) {
            values[i] = LC_ABSENT;
        } else if (t->graph == g && t->generation == g->generation) {
            values[i] = t->value;
        } else {
            if ((unsigned)t->kind - LC_TENSOR_PERSISTENT > 1u || add_external(g, t) < 0 || !g->expect) return false;
            values[i] = t->value;
        }
        if (values[i] != want_in[i]) return false;
    }
    if (want->first_out != g->n_values) return false;
    const int64_t *want_ints = plan->ints + (want->int_at - plan->int_0);
    for (int i = 0; i < n_int; i++) {
        if (ints[i] != want_ints[i]) return false;
        tape->ints[tape->n_ints + (uint32_t)i] = ints[i];
    }
    if (n_float) memcpy(tape->floats + tape->n_floats, floats, (size_t)n_float * sizeof *floats);
    for (uint32_t i = 0; i < want->n_out; i++) {
        lc_tensor *t = new_step_tensor(g);
        if (!t) {
            g->arenas[g->generation % LC_ARENAS].used -= i;
            g->n_values -= i;
            return false;
        }
        uint32_t v = g->n_values - plan->value_0;
        uint64_t stamp = plan->uid << 24 | v;
        if (t->stamp != stamp) {
            memset(t, 0, sizeof *t);
            t->type = plan->types[v];
            t->kind = LC_TENSOR_STEP;
            t->requires_grad = plan->requires_grad[v];
            t->stamp = v < 1u << 24 ? stamp : 0;
            t->graph = g;
        }
        t->generation = g->generation;
        t->value = g->n_values;
        g->values[g->n_values++] = t;
        out[i] = t;
    }
    if (__builtin_expect(want->n_out < op->n_out, 0))
        for (int i = want->n_out; i < op->n_out; i++) out[i] = NULL;
    tape->nodes[tape->n_nodes] = *want;
    tape->sites[tape->n_nodes++] = *site;
    tape->n_in += (uint32_t)n_in;
    tape->n_ints += (uint32_t)n_int;
    tape->n_floats += (uint32_t)n_float;
    return true;
}

static lc_status check_input(const lc_op *op, const lc_tensor *t, int i)
{
    char what[80];
    if (lc__is_tensor(t) && t->kind != LC_TENSOR_ERROR) return LC_OK;
    lc__input_title(op->inputs, i, what, sizeof what);
    if (!lc__is_tensor(t)) return lc__no_tensor(t, what);
    /* A tensor that failed outside the step (a layer that could not be built). */
    return lc_fail(LC_ERR_STATE, "%s is the result of a failed operation: %s", what, lc_error_message());
}

/* An operator of the program may write only tensors that outlive the step. */
static lc_status check_written(const lc_graph *g, const lc_op *op, int n_in, lc_tensor *const *in)
{
    char what[80];
    for (int i = 0; i < n_in && op->mutated_inputs && !g->raw && !g->expanding; i++) {
        if (!(op->mutated_inputs >> i & 1) || !in[i] || in[i]->kind != LC_TENSOR_STEP) continue;
        lc__input_title(op->inputs, i, what, sizeof what);
        return lc_fail(LC_ERR_ARGUMENT,
                       "it writes %s, which is a result of this step; what is written must be a tensor of "
                       "lc_tensor_new or lc_module_add_buffer, or a parameter",
                       what);
    }
    return LC_OK;
}

static lc_status outside_of_step(const char *title, const lc_site *site)
{
    return lc_fail(LC_ERR_STATE,
                   "%s was called%s, but no step is being recorded on this thread; call operators in training_step and "
                   "the other step functions, or between lc_step_begin and lc_step_end",
                   title, lc__at_site(*site).text);
}

/* Why an operator, perhaps of the program, cannot be called; NULL: it can. */
static const char *defect(const lc_op *op)
{
    if (!op->name || !op->infer) return "an operator must have a name and infer";
    if (op->n_out < 0 || op->n_out > LC_MAX_OUTPUTS) return "n_out must be from 0 to LC_MAX_OUTPUTS";
    if (op->flags & LC_OP_VIEW && !op->view) return "an operator with the flag LC_OP_VIEW must have the function view";
    if (op->kernel && !op->kernel->run) return "its kernel has no function run";
    if (!(op->flags & LC_OP_MUTATES) == !op->mutated_inputs) return NULL;
    return op->mutated_inputs ? "an operator with mutated_inputs must have the flag LC_OP_MUTATES"
                              : "an operator with the flag LC_OP_MUTATES must say in mutated_inputs what it writes";
}

/* The requirements of lc_op_call and its variants. */
static bool is_call(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints, int n_float,
                    const double *floats)
{
    return op && !defect(op) && (n_in | n_int | n_float) >= 0 && (in || !n_in) && (ints || !n_int) &&
           (floats || !n_float);
}

/* Reports a call for which is_call is false. */
static __attribute__((cold)) void refuse(const lc_op *op, int n_in, lc_tensor *const *in, int n_int,
                                         const int64_t *ints, int n_float, lc_tensor **out, const lc_site *site)
{
    lc_status s = LC_ERR_ARGUMENT;
    if (!op)
        s = lc_fail(s, "the operator is NULL");
    else if (defect(op))
        s = lc_fail(s, "%s", defect(op));
    else if ((n_in | n_int | n_float) < 0)
        s = lc_fail(s, "the numbers of inputs and attributes must not be negative");
    else
        s = lc_fail(s, "%s is NULL", n_in && !in ? "in" : n_int && !ints ? "ints" : "floats");
    lc__refuse_call(s, op && op->name ? op->name : "lc_op_call", *site);
    for (int i = 0; op && i < op->n_out && i < LC_MAX_OUTPUTS; i++) out[i] = lc__error_tensor();
}

static bool has_seen(int n, lc_tensor *const *in)
{
    for (int i = 0; i < n; i++)
        if (lc__is_tensor(in[i]) && (in[i]->seen || lc__is_half(in[i]->type.dtype))) return true;
    return false;
}

static void call(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints, int n_float,
                 const double *floats, bool live, lc_tensor **out, const lc_site *site);

/* A call in a graph that has tensors of 16 bits, or parameters that are stored in another type. */
static __attribute__((noinline)) void call_as_seen(const lc_op *op, int n_in, lc_tensor *const *in, int n_int,
                                                   const int64_t *ints, int n_float, const double *floats, bool live,
                                                   lc_tensor **out, const lc_site *site)
{
    lc_graph *g = lc__current;
    lc_tensor *seen[AS_SEEN];
    lc__to_do later = {0};
    lc_status status = check_written(g, op, n_in, in);
    if (status >= 0) status = g->recorder.host->operands(g, op, n_in, in, seen, &later, *site);
    if (status < 0) {
        lc__record_error(g, status, lc__op_title(op, n_int, ints), *site, op->inputs, in, n_in);
        for (int i = 0; i < op->n_out; i++) out[i] = lc__error_tensor();
        return;
    }
    g->raw = true;
    call(op, n_in, seen, n_int, ints, n_float, floats, live, out, site);
    g->raw = false;
    if ((later.rounds || later.written) && g->status == LC_OK)
        g->recorder.host->results(g, op, later, in, seen, out, *site);
}

/* The site is passed by pointer: to copy it while the caller's two stores are still in flight stalls the core, for a
 * fifth of the time that it takes to follow a plan. */
static HOT void call(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints, int n_float,
                     const double *floats, bool live, lc_tensor **out, const lc_site *site)
{
    lc_graph *g = lc__current;
    lc_tensor *results[LC_MAX_OUTPUTS];
    lc_status status = LC_OK;
    int64_t keyed[32];
    if (op && (op->flags & LC_OP_RANDOM) && g && g->recording && n_int >= 2 && n_int <= 32 && ints && ints[0] == 0 &&
        ints[1] == 0) {
        memcpy(keyed, ints, (size_t)n_int * sizeof *ints);
        status = random_site(g, *site, keyed);
        ints = keyed;
    }
    if (g && __builtin_expect(g->any_seen, 0) && n_in > 0 && n_in <= AS_SEEN && !g->raw && g->recording &&
        !g->expanding && g->status == LC_OK && status == LC_OK && is_call(op, n_in, in, n_int, ints, n_float, floats)) {
        call_as_seen(op, n_in, in, n_int, ints, n_float, floats, live, out, site);
        return;
    }
    if (g && g->expect && !g->expanding && g->recording && g->status == LC_OK && status == LC_OK &&
        follow(g, op, n_in, in, n_int, ints, n_float, floats, site, out))
        return;
    if (!is_call(op, n_in, in, n_int, ints, n_float, floats)) {
        refuse(op, n_in, in, n_int, ints, n_float, out, site);
        return;
    }
    if (g && g->recording && !g->any_seen && has_seen(n_in, in)) { /* for the first time */
        g->any_seen = true;
        call(op, n_in, in, n_int, ints, n_float, floats, live, out, site);
        return;
    }
    memset(results, 0, sizeof results);
    if (!g || !g->recording) {
        status = outside_of_step(op->title ? op->title(n_int, ints) : op->name, site);
    } else if (g->status == LC_OK) {
        for (int i = 0; i < n_in && status == LC_OK; i++)
            if (in[i]) status = check_input(op, in[i], i);
        if (status == LC_OK) status = check_written(g, op, n_in, in);
        if (status == LC_OK) status = record(g, op, n_in, in, n_int, ints, n_float, floats, live, *site, results);
        if (status < 0) lc__record_error(g, status, lc__op_title(op, n_int, ints), *site, op->inputs, in, n_in);
    } else {
        status = g->status;
    }
    for (int i = 0; i < op->n_out; i++) out[i] = status < 0 ? lc__error_tensor() : results[i];
}

/* Operators without a result give NULL. */
static inline lc_tensor *first_result(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints,
                                      int n_float, const double *floats, bool live, const lc_site *site)
{
    lc_tensor *out[LC_MAX_OUTPUTS];
    out[0] = op ? NULL : lc__error_tensor();
    call(op, n_in, in, n_int, ints, n_float, floats, live, out, site);
    return out[0];
}

lc_tensor *lc_op_call(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints, int n_float,
                      const double *floats, lc_site site)
{
    return first_result(op, n_in, in, n_int, ints, n_float, floats, false, &site);
}

lc_tensor *lc_op_call_live(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints, int n_float,
                           const double *floats, lc_site site)
{
    return first_result(op, n_in, in, n_int, ints, n_float, floats, true, &site);
}

void lc_op_call_n(const lc_op *op, int n_in, lc_tensor *const *in, int n_int, const int64_t *ints, int n_float,
                  const double *floats, lc_tensor **out, lc_site site)
{
    if (out)
        call(op, n_in, in, n_int, ints, n_float, floats, false, out, &site);
    else
        lc__refuse_call(lc_fail(LC_ERR_ARGUMENT, "out is NULL"), op && op->name ? op->name : "lc_op_call_n", site);
}
