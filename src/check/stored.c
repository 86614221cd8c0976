/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of f32 whose operands and results are stored in 16 bits, as the planner asks for kernels in mixed precision
 * (engine/plan/storage_types.c): the reference kernel computes in f32, from operands that have been rounded. */
#include "check/values.h"
#include "ops/fused.h"
#include "ops/ops.h"
#include "ops/storage_rules.h"

#include <stdlib.h>
#include <string.h>

/* Which operands are low, and which results. */
typedef struct choice {
    uint32_t operands, results;
} choice;

static bool is_chosen(const lc_call *call, choice how, int i)
{
    int k = i < call->n_in ? i : i - call->n_in;
    uint32_t bits = i < call->n_in ? how.operands : how.results;
    if (values_operand(call, i)->ndim < 0 || values_operand(call, i)->dtype != LC_F32) return false;
    return k < 32 ? bits >> k & 1 : bits == UINT32_MAX;
}

/* The dense values in another type, in memory of their own. */
static lc_status convert(lc_view *v, lc_dtype dtype)
{
    lc_view to;
    lc_type type = lc__view_type(v);
    type.dtype = dtype;
    lc__view_of(&type, LC_ROW_MAJOR, malloc((size_t)lc__numel(&type) * lc_dtype_size(dtype) + 1), &to);
    if (!to.data) return lc_fail(LC_ERR_MEMORY, "out of memory for operands");
    lc__convert_strided(v, &to);
    free(v->data);
    *v = to;
    return LC_OK;
}

/* Rounds those operands of the call itself. */
static lc_status round_operands(const lc_call *call, choice how, lc_dtype low)
{
    for (int i = 0; i < call->n_in; i++) {
        lc_view v;
        if (!is_chosen(call, how, i)) continue;
        LC_TRY(values_copy(&call->in[i], &v));
        lc_status status = convert(&v, low);
        if (status >= 0) status = convert(&v, LC_F32);
        if (status >= 0) lc__copy_strided(&v, &call->in[i]);
        free(v.data);
        LC_TRY(status);
    }
    return LC_OK;
}

/* `like` is the call as it is stored, with room for its views. */
static bool make_like(const lc_call *call, choice how, lc_dtype low, lc_call *like, lc_view *views)
{
    bool any = false;
    *like = *call;
    like->in = views;
    like->out = views + call->n_in;
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        views[i] = *values_operand(call, i);
        if (!is_chosen(call, how, i)) continue;
        views[i].dtype = low;
        any = true;
    }
    return any;
}

static lc_status convert_values(const lc_call *call, choice how, lc_dtype low, values *v)
{
    for (int i = 0; i < v->n; i++) {
        if (!is_chosen(call, how, i)) continue;
        if (v->before[i].ndim >= 0) LC_TRY(convert(&v->before[i], low));
        if (v->after[i].ndim >= 0) LC_TRY(convert(&v->after[i], low));
        if (i == call->n_in && v->twice.ndim >= 0) LC_TRY(convert(&v->twice, low));
    }
    return LC_OK;
}

/* Runs the reference kernel with the operands as they are now. */
static lc_status run_reference(lc_graph *g, lc_call *call, values *v, bool *good)
{
    LC_TRY(values_keep(call, false, v));
    call->kernel->run(call);
    *good = !lc__fault_is_set(&g->fault);
    atomic_store(&g->fault.state, LC__FAULT_EMPTY);
    return *good ? values_keep(call, true, v) : LC_OK;
}

static lc_status check_choice(check *c, lc_graph *g, lc_call *call, const values *original, choice how, lc_dtype low)
{
    lc_call like;
    lc_view views[VALUES_MOST];
    values v = {.n = original->n, .low = low};
    bool good = false, any;
    if (!make_like(call, how, low, &like, views)) return LC_OK;
    LC_TRY(check_has_kernel(c, &like, &any));
    if (!any || !is_new(c, check_hash(&like))) return LC_OK;
    lc_status status = round_operands(call, how, low);
    if (status >= 0) status = run_reference(g, call, &v, &good);
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].ndim >= 0) lc__copy_strided(&original->before[i], &call->in[i]);
    if (status >= 0 && good) status = convert_values(call, how, low, &v);
    if (status >= 0 && good) status = check_layouts(c, &like, &v, &any);
    values_forget(&v);
    return status;
}

lc_status check_stored(check *c, lc_graph *g, lc_call *call, const values *v)
{
    static const lc_dtype types[] = {LC_BF16, LC_F16};
    const lc_op *op = call->op;
    lc__storage_rule rule = lc__storage_rule_of(op);
    if (op->mutated_inputs || op == &lc__op_cast || op == &lc__op_fused || op->flags & (LC_OP_HOST | LC_OP_VIEW))
        return LC_OK;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        LC_TRY(check_choice(c, g, call, v, (choice){rule.operands, rule.results}, types[t]));
        if (op->flags & LC_OP_ELEMENTWISE) continue; /* chains of these convert what they read */
        /* Results that only become part of a gradient are f32, and so are those of operators that compute in f32. */
        LC_TRY(check_choice(c, g, call, v, (choice){rule.operands, 0}, types[t]));
        for (int i = 0; i < call->n_in && i < 32; i++)
            LC_TRY(check_choice(c, g, call, v, (choice){(uint32_t)1 << i, 0}, types[t]));
    }
    return LC_OK;
}
