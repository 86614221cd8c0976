/* SPDX-License-Identifier: Apache-2.0 */
/* The cost of a forward pass: predict_step is recorded on a batch of the given types, and its tape read. An operation
 * counts for the module whose parameter it uses, and for all modules that contain that module. */
#include "callbacks/model_cost.h"

#include "core/logging/logging.h"

#include <stdlib.h>
#include <string.h>

#include "engine/plan/plan.h"

typedef struct costs {
    lc__module_cost *v;
    int n;
} costs;

static int count(const lc_module *m)
{
    int n = 1;
    for (int i = 0; i < m->n_children; i++) n += count(m->children[i]);
    return n;
}

static void list(costs *c, const lc_module *m)
{
    c->v[c->n].training = m->training;
    c->v[c->n++].m = m;
    for (int i = 0; i < m->n_children; i++) list(c, m->children[i]);
}

/* The modes that the modules had when they were listed. */
static void restore_modes(const costs *c, lc_module *m, int *i)
{
    m->training = c->v[(*i)++].training;
    for (int k = 0; k < m->n_children; k++) restore_modes(c, m->children[k], i);
}

static const lc_module *owner_of(const costs *c, const lc_tensor *parameter)
{
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->v[i].m->n_tensors; k++)
            if (c->v[i].m->tensors[k].tensor == parameter) return c->v[i].m;
    return NULL;
}

static void charge(costs *c, const lc_module *m, double flops, const lc_type *in, const lc_type *out)
{
    for (int i = 0; i < c->n; i++) {
        bool holds = false;
        for (const lc_module *a = m; a && !holds; a = a->parent) holds = a == c->v[i].m;
        if (!holds) continue;
        c->v[i].flops += flops;
        if (!in) continue;
        if (!c->v[i].seen) c->v[i].in = *in;
        c->v[i].out = *out;
        c->v[i].seen = true;
    }
}

static void read_node(costs *c, const lc_graph *g, const lc_node *n)
{
    lc_view in[16], out[LC_MAX_OUTPUTS];
    lc_call call = {.op = n->op,
                    .in = in,
                    .out = out,
                    .n_in = n->n_in < 16 ? n->n_in : 16,
                    .n_out = n->n_out,
                    .ints = g->tape.ints + n->int_at,
                    .n_int = n->n_int};
    const lc_module *owner = NULL;
    const lc_type *first = NULL;
    for (int i = 0; i < call.n_in; i++) {
        uint32_t value = g->tape.in[n->in_at + (uint32_t)i];
        in[i] = (lc_view){.ndim = -1};
        if (value == LC_ABSENT) continue;
        const lc_tensor *x = g->values[value];
        lc__view_of(&x->type, LC_ROW_MAJOR, NULL, &in[i]);
        if (!owner && x->kind == LC_TENSOR_PERSISTENT) owner = owner_of(c, x);
        if (!first && x->kind != LC_TENSOR_PERSISTENT) first = &x->type;
    }
    for (int i = 0; i < call.n_out; i++) {
        const lc_tensor *y = g->values[n->first_out + (uint32_t)i];
        lc__view_of(&y->type, LC_ROW_MAJOR, NULL, &out[i]);
    }
    if (lc__is_macro(n->op) || !n->n_out) return;
    charge(c, owner ? owner : c->v[0].m, lc__call_flop(&call), owner ? first : NULL, &g->values[n->first_out]->type);
}

static lc_status record(lc_trainer *t, lc_tensor *const *inputs, int n)
{
    lc_batch batch = {.x = n ? inputs[0] : NULL, .y = n > 1 ? inputs[1] : NULL, .n = n};
    for (int i = 0; i < n; i++) batch.tensors[i] = inputs[i];
    batch.size = n && lc_tensor_ndim(inputs[0]) ? lc_tensor_dim(inputs[0], 0) : 1;
    LC_TRY(lc_step_begin(t->graph, 0, 0));
    lc_no_grad_begin();
    lc_module_train(t->m, false);
    t->logging->silent = true;
    const lc_tensor *y = t->mo.predict_step(t->m, &batch, 0, 0);
    t->logging->silent = false;
    lc_no_grad_end();
    lc_status s = lc_step_status(t->graph);
    return s >= 0 && !y ? lc_fail(LC_ERR_USER, "predict_step returned nothing for the example inputs") : s;
}

lc_status lc__model_cost(lc_trainer *t, const lc_type *inputs, int n_inputs, lc__module_cost **out, int *n)
{
    lc_tensor *tensors[LC_MAX_BATCH_TENSORS] = {NULL};
    int made = 0;
    lc_status s = LC_OK;
    costs c = {calloc((size_t)count(t->m), sizeof *c.v), 0};
    *out = NULL;
    *n = 0;
    if (!c.v) return lc_fail(LC_ERR_MEMORY, "out of memory: the costs of a model");
    list(&c, t->m);
    if (!t->mo.predict_step) s = lc_fail(LC_ERR_CONFIG, "%s has neither predict_step nor forward", t->mo.name);
    for (; made < n_inputs && made < LC_MAX_BATCH_TENSORS && s >= 0; made += s >= 0) {
        const lc_type *type = &inputs[made];
        s = lc_input_new(type->dtype, type->ndim, type->shape, LC_ROW_MAJOR, NULL, &tensors[made]);
    }
    if (s >= 0) {
        int listed = 0;
        s = record(t, tensors, made);
        restore_modes(&c, t->m, &listed);
        for (uint32_t i = 0; i < t->graph->tape.n_nodes && s >= 0; i++)
            read_node(&c, t->graph, &t->graph->tape.nodes[i]);
        lc_status ended = lc_step_end(t->graph);
        if (s >= 0) s = ended;
    }
    for (int i = 0; i < made; i++) lc_tensor_unref(tensors[i]);
    if (s < 0) {
        free(c.v);
        return lc_fail_context(s, "cannot determine the cost of the model");
    }
    *out = c.v;
    *n = c.n;
    return LC_OK;
}
