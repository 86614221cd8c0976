/* SPDX-License-Identifier: Apache-2.0 */
/* The last pass of a build: lowered calls become the program that a replay runs, each kernel call with its views,
 * numbers and scratch in memory of the plan. */
#include "engine/plan/plan_impl.h"
#include "base/grow.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

/* The host has it, and the graph runs on a device: a replay uploads it. */
static bool is_uploaded(const lc_build *b, const lc_storage *s)
{
    return s->external && s->external->on != b->g->on && lc__on_host(s->external->on);
}

/* The memory of a value; NULL if it is an input to which the program has given none. */
static char *address(const lc_build *b, const lc_ir_value *v)
{
    const lc_storage *s = lc__storage_root(b, v->storage);
    char *base = is_uploaded(b, s) ? (char *)b->plan->block.device + s->offset
                 : s->external     ? s->external->device_data
                 : s->fixed        ? s->fixed
                                   : (char *)b->g->arena + b->plan->arena_0 + s->offset;
    return base ? base + v->offset * (int64_t)lc_dtype_size(v->type.dtype) : NULL;
}

static const lc_tensor *input_of(const lc_build *b, const lc_ir_value *v)
{
    const lc_storage *s = lc__storage_root(b, v->storage);
    return s->external && s->external->kind == LC_TENSOR_INPUT && !is_uploaded(b, s) ? s->external : NULL;
}

/* Start of the next call's arrays. */
typedef struct cursor {
    lc_view *view;
    int64_t *ints;
    double *floats;
    lc_site *sites;
} cursor;

/* The number of sites a call has besides its own; only a check for NaN needs them. */
static size_t sites_of(const lc_build *b, const lc_ir_node *n)
{
    return b->g->nan_check && n->sites ? (size_t)n->ints[0] : 0;
}

static size_t align(size_t bytes)
{
    return (bytes + 255) & ~(size_t)255;
}

static lc_status reserve(const lc_build *b, size_t *floats)
{
    lc_plan *p = b->plan;
    size_t n_views = 0, n_floats = 0, n_ints = 0, n_live = 0, n_linked = 0, n_sites = 0;
    for (int i = 0; i < b->n_calls; i++) {
        const lc_ir_node *n = b->calls[i].node;
        n_views += (size_t)(n->n_in + n->n_out);
        n_ints += (size_t)n->n_int;
        n_floats += (size_t)n->n_float;
        n_sites += sites_of(b, n);
        for (int f = 0; f < n->n_float; f++) {
            n_live += n->sources[f].live != NULL;
            n_linked += !n->sources[f].live && n->sources[f].user >= 0;
        }
    }
    *floats = n_floats;
    p->calls = calloc((size_t)b->n_calls + 1, sizeof *p->calls);
    p->views = calloc(n_views + 1, sizeof *p->views);
    p->call_ints = calloc(n_ints + 1, sizeof *p->call_ints);
    p->floats = calloc(1, align((n_floats + 1) * sizeof *p->floats)); /* a device's block takes all of it */
    p->live = calloc(n_live + 1, sizeof *p->live);
    p->linked = calloc(n_linked + 1, sizeof *p->linked);
    p->patches = calloc(n_views + 1, sizeof *p->patches);
    p->sites = calloc(n_sites + 1, sizeof *p->sites);
    if (!p->calls || !p->views || !p->call_ints || !p->floats || !p->live || !p->linked || !p->patches || !p->sites)
        return lc_fail(LC_ERR_MEMORY, "out of memory while planning the step");
    return LC_OK;
}

static void fill_views(const lc_build *b, const lc_ir_node *n, const lc_call *c, lc_view *view)
{
    lc_plan *p = b->plan;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        uint32_t value = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        lc__build_view(b, value, &view[k]);
        if (value == LC_ABSENT) continue;
        const lc_ir_value *v = &b->values[value];
        view[k].data = address(b, v);
        const lc_tensor *input = input_of(b, v);
        if (input)
            p->patches[p->n_patches++] = (lc_patch){
                .view = &view[k], .value = input->value, .offset = v->offset * (int64_t)lc_dtype_size(v->type.dtype)};
    }
    if (c->kernel->layout == LC_WANT_ELEMENTWISE && n->n_out)
        for (int k = 0; k < n->n_in; k++)
            if (view[k].ndim >= 0) lc__broadcast_view(&view[k], &view[n->n_in]);
}

/* Numbers that change from step to step are read from their variables before each replay. */
static void fill_floats(lc_plan *p, const lc_ir_node *n, double *floats)
{
    for (int f = 0; f < n->n_float; f++) {
        floats[f] = n->floats[f];
        if (n->sources[f].live) {
            p->live[p->n_live].to = &floats[f];
            p->live[p->n_live++].from = n->sources[f].live;
        } else if (n->sources[f].user >= 0) {
            p->linked[p->n_linked].to = &floats[f];
            p->linked[p->n_linked++].from = (uint32_t)n->sources[f].user;
        }
    }
}

static const double *device_floats(const lc_plan *p, const double *floats)
{
    if (!p->block.device) return floats;
    return (const double *)(const void *)((char *)p->block.device + p->block.floats) + (floats - p->floats);
}

/* The call added next is the device's: it continues the stretch that ends here, or begins another. */
static lc_status stretch(lc_block *k, int call)
{
    if (!k->n_stretches || k->stretches[k->n_stretches - 1].end < call) {
        LC_TRY(lc__grow_one(&k->stretches, k->n_stretches, "planning the step"));
        k->stretches[k->n_stretches++] = (lc_stretch){.begin = call};
    }
    k->stretches[k->n_stretches - 1].end = call + 1;
    return LC_OK;
}

static lc_storage *storage_of(const lc_build *b, uint32_t value)
{
    int32_t i = value == LC_ABSENT ? -1 : b->values[value].storage;
    while (i >= 0 && b->storages[i].merged >= 0) i = b->storages[i].merged;
    return i < 0 ? NULL : &b->storages[i];
}

static bool is_gradient(const lc_graph *g, const lc_tensor *t)
{
    for (int i = 0; t && i < g->n_flats; i++)
        if (g->flats[i]->gradient == t || (t->base && g->flats[i]->gradient == t->base)) return true;
    return false;
}

/* Whether the node is of a backward pass, or reads what one has computed; what it computes is then of gradients, too.
 * Operators that exchange, clip or apply gradients have side effects and no gradient. */
static bool of_gradients(const lc_build *b, const lc_ir_node *n)
{
    const int updates = LC_OP_SIDE_EFFECT | LC_OP_NO_GRAD;
    bool is = n->gradient || (n->op->flags & updates) == updates;
    for (int i = 0; i < n->n_in && !is; i++) {
        const lc_storage *s = storage_of(b, n->in[i]);
        is = s && (s->of_gradients || is_gradient(b->g, s->external));
    }
    for (int i = 0; i < n->n_out && is; i++) {
        lc_storage *s = storage_of(b, n->out[i]);
        if (s && !s->external) s->of_gradients = true;
    }
    return is;
}

static lc_status add_call(const lc_build *b, const lc_ir_call *from, cursor *at)
{
    lc_plan *p = b->plan;
    lc_graph *g = b->g;
    const lc_ir_node *n = from->node;
    lc_plan_call *pc = &p->calls[p->n_calls];
    lc_call *c = &pc->call;
    pc->site = n->site;
    pc->of_gradients = b->g->nan_check && of_gradients(b, n);
    *c = (lc_call){.op = n->op,
                   .kernel = from->kernel,
                   .n_in = n->n_in,
                   .n_out = n->n_out,
                   .n_int = n->n_int,
                   .n_float = n->n_float,
                   .in = at->view,
                   .out = at->view + n->n_in,
                   .ints = at->ints,
                   .floats = device_floats(p, at->floats),
                   .rng = lc__on_host(g->on) ? &g->rng : p->block.device,
                   .threads = from->threads,
                   .deterministic = g->options.deterministic,
                   .accumulate = from->accumulate,
                   .matmul_precision = g->products,
                   .rounded = n->rounded,
                   .rounded_to = g->low};
    fill_views(b, n, c, at->view);
    if (n->n_int) memcpy(at->ints, n->ints, (size_t)n->n_int * sizeof *at->ints);
    fill_floats(p, n, at->floats);
    size_t n_sites = sites_of(b, n);
    if (n_sites) pc->sites = memcpy(at->sites, n->sites, n_sites * sizeof *at->sites);
    LC_TRY(lc__tune(g, c));
    bool on_host = lc__runs_on_host(g->on, c);
    if (p->block.device && !on_host) LC_TRY(stretch(&p->block, p->n_calls));
    c->device = on_host ? NULL : g->on->context;
    c->queue = on_host || !g->on->ops->queue ? NULL : g->on->ops->queue(g->on->context);
    c->fault = &g->fault;
    const unsigned before = lc__error_count();
    lc_status status = c->kernel->prepare ? lc__said(c->kernel->prepare(c), before) : LC_OK;
    if (status < 0) return lc_fail_context(status, "%s (%s)", n->op->name, c->kernel->name);
    if (c->scratch_bytes > p->scratch_bytes && !on_host) p->scratch_bytes = c->scratch_bytes;
    p->n_calls++;
    *at = (cursor){at->view + n->n_in + n->n_out, at->ints + n->n_int, at->floats + n->n_float, at->sites + n_sites};
    return LC_OK;
}

/* Room for what the host begins while the plan runs: its own calls. */
static lc_status reserve_starts(lc_graph *g, const lc_plan *p)
{
    int on_host = p->n_calls;
    for (int i = 0; i < p->block.n_stretches; i++) on_host -= p->block.stretches[i].end - p->block.stretches[i].begin;
    return lc__grow(&g->starts, &g->cap_starts, 0, on_host, "planning the step");
}

/* All plans of the graph share one scratch arena. */
static lc_status reserve_scratch(lc_graph *g, size_t least)
{
    if (least <= g->scratch_bytes) return LC_OK;
    const lc_backend_ops *ops = g->on->ops;
    lc_status status = ops->arena_commit(g->on->context, g->scratch, g->scratch_reserved, least);
    if (status < 0) return lc_fail_context(status, "the step needs %zu bytes of workspace", least);
    g->scratch_bytes = least;
    return LC_OK;
}

/* The block that a replay writes, with a place for everything in it. */
static lc_status make_block(lc_build *b, size_t n_floats)
{
    lc_plan *p = b->plan;
    lc_block *k = &p->block;
    const lc_device *on = b->g->on;
    k->uploads = calloc((size_t)b->n_storages + 1, sizeof *k->uploads);
    if (!k->uploads) return lc_fail(LC_ERR_MEMORY, "out of memory while planning the step");
    k->floats = align(sizeof(lc_rng_key));
    k->bytes = k->floats + align(n_floats * sizeof *p->floats);
    for (int i = 0; i < b->n_storages; i++) {
        lc_storage *s = &b->storages[i];
        if (!is_uploaded(b, s) || s->merged >= 0) continue;
        s->offset = k->bytes;
        k->uploads[k->n_uploads++] = (lc_upload){s->external->value, k->bytes, s->external->bytes};
        k->bytes += align(s->external->bytes);
    }
    LC_TRY(on->ops->alloc(on->context, k->bytes, &k->device));
    if (k->n_uploads && on->ops->copy_ahead) {
        LC_TRY(on->ops->alloc(on->context, k->bytes, &k->ahead));
        LC_TRY(on->ops->wait(on->context, UINT64_MAX)); /* it is zero now */
    }
    void *slots;
    LC_TRY(on->ops->host_alloc(on->context, LC_SLOTS * k->bytes, &slots));
    k->slots = slots;
    return LC_OK;
}

/* NULL: there is none, or it is memory that others write, in which case the rounded value has been taken before. */
static void *exact_address(const lc_build *b, const lc_ir_value *v)
{
    const lc_ir_value *exact = v->exact == LC_ABSENT ? NULL : &b->values[v->exact];
    if (!exact || exact->storage < 0 || lc__storage_root(b, exact->storage)->external) return NULL;
    return address(b, exact);
}

/* Records where the user's values can be read after a run. */
static void set_locations(const lc_build *b)
{
    lc_plan *p = b->plan;
    for (uint32_t v = 0; v < p->n_values; v++) {
        const lc_ir_value *value = &b->values[p->value_0 + v];
        if (value->storage < 0 || (!value->keep && b->optimize)) continue;
        if (b->g->values[p->value_0 + v]->kind != LC_TENSOR_STEP) continue;
        const lc_tensor *input = input_of(b, value);
        p->locations[v].made = true;
        p->locations[v].in_input = input != NULL;
        p->locations[v].input = input ? input->value : 0;
        p->locations[v].offset = value->offset;
        p->locations[v].data = input ? NULL : address(b, value);
        p->locations[v].exact = input ? NULL : exact_address(b, value);
        memcpy(p->locations[v].stride, value->stride, sizeof value->stride);
    }
}

lc_status lc__make_program(lc_build *b)
{
    lc_plan *p = b->plan;
    lc_graph *g = b->g;
    size_t n_floats;
    LC_TRY(reserve(b, &n_floats));
    if (!lc__on_host(g->on)) LC_TRY(make_block(b, n_floats));
    LC_TRY(g->on->ops->arena_commit(g->on->context, g->arena, g->arena_reserved, p->arena_0 + p->arena_bytes));
    cursor at = {p->views, p->call_ints, p->floats, p->sites};
    for (int i = 0; i < b->n_calls; i++) LC_TRY(add_call(b, &b->calls[i], &at));
    if (!lc__on_host(g->on)) LC_TRY(reserve_starts(g, p));
    LC_TRY(reserve_scratch(g, p->scratch_bytes));
    for (int i = 0; i < p->n_calls; i++) p->calls[i].call.scratch = g->scratch;
    set_locations(b);
    return LC_OK;
}
