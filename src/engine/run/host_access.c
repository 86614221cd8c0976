/* SPDX-License-Identifier: Apache-2.0 */
/* The slots through which the host uses a graph (tensor/host_access.h): compute what has been recorded, and locate
 * results. */
#include "engine/run/run.h"
#include "engine/plan/plan.h"

#include <string.h>

/* NULL: the value has no place. */
static const lc_location *find_location(const lc_graph *g, uint32_t value)
{
    for (int i = 0; i < g->n_chain; i++) {
        const lc_plan *p = g->chain[i];
        if (value < p->value_0 || value >= p->value_0 + p->n_values) continue;
        const lc_location *where = &p->locations[value - p->value_0];
        return where->made ? where : NULL;
    }
    return NULL;
}

static void *address(const lc_graph *g, const lc_location *where)
{
    if (!where->in_input) return where->data;
    const lc_tensor *input = g->values[where->input];
    return (char *)input->device_data + where->offset * (int64_t)lc_dtype_size(input->type.dtype);
}

static lc_tensor *own(lc_tensor *t)
{
    return lc__current->recording ? lc__own_handle(lc__current, t) : t;
}

static lc_status run_for(lc_tensor *t)
{
    lc_graph *g = lc__current;
    if (g->parts && t->replicas) LC_TRY(g->parts_ops->run(g->parts, t));
    if (t->is_slice) return lc__graph_flush(g); /* views of the slice may be used */
    bool used = t->graph == g && t->generation == g->generation;
    return used && g->status == LC_OK ? lc__graph_flush(g) : LC_OK;
}

static lc_status wait_for(lc_graph *g)
{
    return lc__on_host(g->on) ? LC_OK : lc__step_failed(g, lc__device_arrived(g));
}

static lc_status find_result(lc_tensor *t, lc_view *out, const lc_device **on)
{
    lc_graph *g = t->graph;
    if (t->generation != g->generation) return lc__tensor_expired();
    if (g->status != LC_OK) return lc_step_status(g);
    if (g->recording && t->value >= g->value_0) LC_TRY(lc__graph_flush(g));
    const lc_location *where = find_location(g, t->value);
    if (!where)
        return lc_fail(
            LC_ERR_STATE,
            "this value was not kept when its part of the step ran; call lc_keep on it where it is computed");
    *on = where->in_input ? lc__host_device() : g->on;
    /* Member by member, in one pass: this is called for every value that a step logs. */
    out->data = where->exact ? where->exact : address(g, where);
    out->dtype = where->exact ? LC_F64 : t->type.dtype;
    out->ndim = t->type.ndim;
    memcpy(out->shape, t->type.shape, sizeof out->shape);
    memcpy(out->stride, where->stride, sizeof out->stride);
    memset(out->reserved, 0, sizeof out->reserved);
    return LC_OK;
}

static void wrote(lc_tensor *t)
{
    lc__record_host_write(t);
    if (lc__current->parts && t->replicas) lc__current->parts_ops->wrote(lc__current->parts, t);
}

static bool keep(lc_tensor *t)
{
    lc_graph *g = lc__current;
    if (!g->recording || t->graph != g || t->generation != g->generation) return false;
    t->is_kept = true;
    t->refs = 1;
    t->next_kept = g->kept;
    g->kept = t;
    return true;
}

void lc__graph_free_kept(lc_graph *g)
{
    while (g->kept) {
        lc_tensor *t = g->kept;
        g->kept = t->next_kept;
        t->is_kept = false;
        lc_tensor_unref(t);
    }
}

const lc__host_ops lc__graph_host = {
    .own = own,
    .run = run_for,
    .find = find_result,
    .wait = wait_for,
    .wrote = wrote,
    .keep = keep,
    .operands = lc__operands_as_seen,
    .results = lc__results_as_seen,
    .site = lc__site_of,
};
