/* SPDX-License-Identifier: Apache-2.0 */
/* Operands whose values are stored in another type than the program sees (tensor/store.c): a step converts each once,
 * and what is assigned to one is converted back. And operands that a program has made f16 or bf16: they are converted,
 * too, and the results are rounded. The planner reads them as they are stored where it can
 * (engine/plan/storage_types.c). */
#include "engine/run/run.h"
#include "base/number.h"
#include "ops/ops.h"
#include "ops/storage_rules.h"

#include <string.h>

static lc_tensor *convert(lc_graph *g, lc_tensor *t, lc_dtype dtype, lc_site site)
{
    g->raw = true;
    t = lc_op_call(&lc__op_cast, 1, &t, 1, &(int64_t){dtype}, 0, NULL, site);
    g->raw = false;
    return t;
}

/* t is this graph's handle of `given`. The value is converted again after a write, and not shared with what is recorded
 * without gradients, of the step or of t, which may be frozen for a part of the step. */
static lc_tensor *as_seen(lc_graph *g, lc_tensor *given, lc_tensor *t, lc_site site)
{
    uint64_t now = g->writes << 2 | (uint64_t)t->requires_grad << 1 | (g->no_grad != 0);
    if (t->as_seen.graph != g || t->as_seen.generation != g->generation || t->as_seen.at != now) {
        t->as_seen.value = convert(g, given, LC_F32, site);
        t->as_seen.graph = g;
        t->as_seen.generation = g->generation;
        t->as_seen.at = now;
    }
    return t->as_seen.value;
}

/* ---- writes ---- */

static void assign(lc_graph *g, lc_tensor *to, lc_tensor *value, lc_site site)
{
    g->raw = true;
    lc_op_call(&lc__op_assign, 2, (lc_tensor *[]){to, value}, 0, NULL, 0, NULL, site);
    g->raw = false;
}

/* An operator writes a copy of t that has the type it expects. */
static lc_status copy_of(lc_graph *g, const lc_op *op, lc_tensor *given, lc_tensor *t, int i, lc_site site,
                         lc_tensor **out)
{
    lc_tensor **copy = &t->as_seen.copy;
    if (op->n_out && lc__passes_gradients(op) && t->requires_grad && !g->no_grad)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "it writes input %d, whose values are stored as %s by the precision, and passes gradients; "
                       "write it with lc_assign, or between lc_no_grad_begin and lc_no_grad_end",
                       i, lc_dtype_name(t->type.dtype));
    if (*copy && (*copy)->on != t->on) {
        lc_tensor_unref(*copy);
        *copy = NULL;
    }
    if (!*copy) LC_TRY(lc__tensor_new_on(t->on, t->seen->dtype, t->type.ndim, t->type.shape, t->layout, copy));
    assign(g, *copy, convert(g, given, t->seen->dtype, site), site);
    *out = *copy;
    return g->status;
}

/* ---- tensors of 16 bits ---- */

static bool has_bit(uint32_t bits, int i)
{
    return i < 32 ? bits >> i & 1 : bits == UINT32_MAX;
}

/* Whether the operator computes with numbers. Operators of a program get what the program gives them. */
static bool computes(const lc_op *op)
{
    return !(op->flags & (LC_OP_VIEW | LC_OP_MUTATES | LC_OP_SIDE_EFFECT | LC_OP_HOST)) && op != &lc__op_cast &&
           op != &lc__op_contiguous && lc__is_math_op(op);
}

/* The type of a result, as in PyTorch: that of the operands if they have the same one, else f32. An operand of no
 * dimensions counts only if all have none. 0: it is f32. */
static lc_dtype result_type(uint32_t data, int n_in, lc_tensor *const *in)
{
    lc_dtype low = 0;
    bool any_dims = false;
    for (int i = 0; i < n_in; i++)
        any_dims |= in[i] && has_bit(data, i) && lc_dtype_is_float(lc_tensor_dtype(in[i])) && in[i]->type.ndim;
    for (int i = 0; i < n_in; i++) {
        if (!in[i] || !has_bit(data, i) || (any_dims && !in[i]->type.ndim)) continue;
        lc_dtype dtype = lc_tensor_dtype(in[i]);
        if (!lc_dtype_is_float(dtype)) continue;
        if (!lc__is_half(dtype) || (low && low != dtype)) return 0;
        low = dtype;
    }
    return low;
}

/* Operators compute in f32 with operands of 16 bits, and round their results once. With one of f64 they are refused. */
static void widen(lc_graph *g, const lc_op *op, int n_in, lc_tensor **in, lc__to_do *later, lc_site site)
{
    bool any = false, f64 = false;
    for (int i = 0; i < n_in; i++) {
        if (!lc__is_tensor(in[i])) {
            if (in[i]) return; /* recording reports it */
            continue;
        }
        any |= lc__is_half(in[i]->type.dtype);
        f64 |= in[i]->type.dtype == LC_F64;
    }
    if (!any || f64 || !computes(op)) return;
    lc__storage_rule rule = lc__storage_rule_of(op);
    later->rounds = result_type(rule.operands, n_in, in);
    later->results = rule.results;
    for (int i = 0; i < n_in; i++)
        if (in[i] && lc__is_half(in[i]->type.dtype)) in[i] = as_seen(g, in[i], lc__own_handle(g, in[i]), site);
}

lc_status lc__operands_as_seen(lc_graph *g, const lc_op *op, int n_in, lc_tensor *const *in, lc_tensor **out,
                               lc__to_do *later, lc_site site)
{
    lc_dtype assigned = 0;
    bool macro = lc__is_macro(op);               /* these expand into operators on what is stored */
    memcpy(out, in, (size_t)n_in * sizeof *out); /* all of them, also if one is refused */
    for (int i = 0; i < n_in; i++) {
        if (macro || !lc__is_tensor(in[i])) continue;
        lc_tensor *t = lc__own_handle(g, in[i]);
        if (!t->seen) continue;
        if (i >= 32 || !(op->mutated_inputs >> i & 1)) {
            out[i] = as_seen(g, in[i], t, site);
        } else if (op == &lc__op_assign) {
            assigned = t->type.dtype;
        } else if (!g->devices) { /* with devices, recording refuses it */
            LC_TRY(copy_of(g, op, in[i], t, i, site, &out[i]));
            later->written |= (uint32_t)1 << i;
        }
    }
    /* An operand that is also written is the copy, too. */
    for (int i = 0; i < n_in && later->written; i++)
        for (int k = 0; k < n_in && k < 32; k++)
            if (later->written >> k & 1 && in[i] == in[k]) out[i] = out[k];
    if (assigned && n_in > 1 && lc__is_tensor(out[1]) && out[1]->type.dtype == LC_F32)
        out[1] = convert(g, out[1], assigned, site);
    if (!macro) widen(g, op, n_in, out, later, site);
    if (macro || op->mutated_inputs) g->writes++;
    return LC_OK;
}

void lc__results_as_seen(lc_graph *g, const lc_op *op, lc__to_do later, lc_tensor *const *in, lc_tensor *const *given,
                         lc_tensor **results, lc_site site)
{
    for (int i = 0; i < 32; i++)
        if (later.written >> i & 1)
            assign(g, in[i], convert(g, given[i], lc__own_handle(g, in[i])->type.dtype, site), site);
    for (int k = 0; k < op->n_out && later.rounds; k++)
        if (results[k] && results[k]->type.dtype == LC_F32 && has_bit(later.results, k))
            results[k] = convert(g, results[k], later.rounds, site);
}
