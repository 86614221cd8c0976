/* SPDX-License-Identifier: Apache-2.0 */
/* A call of a device, copied to the host: to look at it, or to run it there (LIGHTC_HOST_FALLBACK=1). */
#include "engine/run/run.h"

#include <stdlib.h>
#include <string.h>

void lc__host_call_free(lc__host_call *h)
{
    for (int i = 0; h->memory && i < h->call.n_in + h->call.n_out; i++) free(h->memory[i]);
    free(h->memory);
    free(h->views);
    free(h->floats);
}

static lc_status fetch(const lc_device *on, void *to, const void *from, size_t bytes)
{
    if (!to) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes to copy an operand to the host", bytes);
    return lc__device_copy(lc__host_device(), to, on, from, bytes);
}

static lc_status copy_all(const lc_device *on, const lc_call *call, lc__host_call *h)
{
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const lc_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        h->views[i] = *v;
        if (v->ndim < 0) continue;
        size_t bytes = lc__view_span(v);
        h->views[i].data = h->memory[i] = malloc(bytes + 1);
        LC_TRY(fetch(on, h->memory[i], v->data, bytes));
    }
    LC_TRY(fetch(on, h->floats, call->floats, (size_t)call->n_float * sizeof *h->floats));
    return fetch(on, &h->rng, call->rng, sizeof h->rng);
}

lc_status lc__host_call_make(const lc_device *on, const lc_call *call, lc__host_call *h)
{
    size_t n = (size_t)(call->n_in + call->n_out);
    *h = (lc__host_call){.call = *call};
    h->memory = calloc(n + 1, sizeof *h->memory);
    h->views = calloc(n + 1, sizeof *h->views);
    h->floats = calloc((size_t)call->n_float + 1, sizeof *h->floats);
    lc_status status = LC_OK;
    if (!h->memory || !h->views || !h->floats)
        status = lc_fail(LC_ERR_MEMORY, "out of memory: the operands of %s", call->op->name);
    if (status >= 0) status = copy_all(on, call, h);
    if (status < 0) {
        lc__host_call_free(h);
        return status;
    }
    h->call.in = h->views;
    h->call.out = h->views + call->n_in;
    h->call.floats = h->floats;
    h->call.rng = &h->rng;
    return LC_OK;
}

/* ---- running it there ---- */

/* What was written goes back. Elements between those of a view may be another's, and stay as they are. */
static lc_status put_back(const lc_device *on, const lc_view *to, const lc_view *from)
{
    size_t bytes = lc__view_span(to);
    if (bytes == (size_t)lc__view_numel(to) * lc_dtype_size(to->dtype))
        return lc__device_copy(on, to->data, lc__host_device(), from->data, bytes);
    lc_view whole = *from;
    whole.data = malloc(bytes);
    lc_status status = fetch(on, whole.data, to->data, bytes);
    if (status >= 0) {
        lc__copy_strided(from, &whole);
        status = lc__device_copy(on, to->data, lc__host_device(), whole.data, bytes);
    }
    free(whole.data);
    return status;
}

static lc_status put_back_all(const lc_device *on, const lc_call *call, const lc__host_call *h)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->op->mutated_inputs >> i & 1 && call->in[i].ndim >= 0)
            LC_TRY(put_back(on, &call->in[i], &h->call.in[i]));
    for (int i = 0; i < call->n_out; i++)
        if (call->out[i].ndim >= 0) LC_TRY(put_back(on, &call->out[i], &h->call.out[i]));
    return LC_OK;
}

static lc_status run_on_host(const lc_device *on, const lc_call *call)
{
    lc__host_call h;
    lc_status status = LC_OK;
    LC_TRY(lc__host_call_make(on, call, &h));
    bool bad = call->fault && lc__fault_is_set(call->fault); /* then nothing is computed from what followed from it */
    if (!bad && call->scratch_bytes) h.call.scratch = aligned_alloc(256, (call->scratch_bytes + 255) & ~(size_t)255);
    if (!bad && call->scratch_bytes && !h.call.scratch)
        status = lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for %s", call->scratch_bytes, call->op->name);
    if (!bad && status >= 0) {
        h.call.origin = call;
        call->kernel->run(&h.call);
        status = put_back_all(on, call, &h);
    }
    if (!bad && call->scratch_bytes) free(h.call.scratch);
    lc__host_call_free(&h);
    return status;
}

lc_status lc__call_run(const lc_device *on, const lc_call *call)
{
    if (lc__runs_on_host(on, call) && !(call->op->flags & LC_OP_STAGES)) return run_on_host(on, call);
    call->kernel->run(call);
    return LC_OK;
}
