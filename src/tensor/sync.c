/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer at run time: requests in flight, what went wrong, which parameters have gradients anywhere. */
#include "tensor/sync.h"

#include "core/clock.h"
#include "core/status.h"
#include "tensor/sync_impl.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

lc_status lc__reducer_new(lc_graph *g, lc_comm *comm, size_t bucket_bytes, lc__reducer **out)
{
    lc__reducer *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
    r->g = g;
    r->comm = comm;
    r->weight = 1;
    r->bucket_bytes = bucket_bytes ? bucket_bytes : (size_t)1 << 20;
    g->reducer = r;
    *out = r;
    return LC_OK;
}

void lc__reducer_free(lc__reducer *r)
{
    if (!r) return;
    if (r->g->reducer == r) r->g->reducer = NULL;
    for (int i = 0; i < r->n_flats; i++) lc__flat_unref(r->flats[i]);
    free(r->flats);
    free(r->requests);
    free(r->mask);
    free(r);
}

lc_status lc__reducer_add(lc__reducer *r, lc_optimizer *opt)
{
    LC_TRY(lc__optimizer_prepare(opt));
    for (int i = 0; i < opt->n_groups; i++)
        for (int k = 0; k < opt->groups[i].n_parameters; k++) {
            lc_flat *flat = opt->groups[i].parameters[k]->flat;
            bool known = false;
            for (int f = 0; f < r->n_flats; f++) known |= r->flats[f] == flat;
            if (known) continue;
            lc_flat **list = realloc(r->flats, (size_t)(r->n_flats + 1) * sizeof(lc_flat *));
            if (!list) return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
            r->flats = list;
            uint8_t *mask = realloc(r->mask, (size_t)(r->n_mask + flat->n + LC__SYNC_FLAGS));
            if (!mask) return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
            r->mask = mask;
            r->n_mask += flat->n;
            __atomic_fetch_add(&flat->refs, 1, __ATOMIC_RELAXED);
            r->flats[r->n_flats++] = flat;
        }
    return LC_OK;
}

void lc__reducer_set_weight(lc__reducer *r, double weight)
{
    r->weight = weight;
}

double lc__reducer_ranks(const lc__reducer *r)
{
    return lc_comm_size(r->comm);
}

const double *lc__reducer_weight(const lc__reducer *r)
{
    return &r->weight;
}

void lc__reducer_get_stats(const lc__reducer *r, lc__reducer_stats *out)
{
    *out = r->stats;
}

/* Kernels cannot fail: the first error waits for lc__reducer_sync. */
static void keep_error(lc__reducer *r, lc_status s)
{
    if (s >= 0 || r->status < 0) return;
    r->status = s;
    lc__copy_message(r->message, sizeof r->message);
}

bool lc__reducer_busy(const lc__reducer *r)
{
    return r->n_requests > 0 && r->status >= 0;
}

void lc__reducer_poll(lc__reducer *r)
{
    keep_error(r, lc_comm_progress(r->comm));
}

/* ---- the node that sends a bucket off ---- */

static void run_launch(const lc_call *c)
{
    lc__reducer *r = (lc__reducer *)(uintptr_t)c->ints[0];
    if (r->status < 0) return;
    char *data = (char *)c->in[0].data + (size_t)c->ints[1] * lc_dtype_size(c->in[0].dtype);
    keep_error(r, lc_comm_all_reduce(r->comm, data, data, c->ints[2], c->in[0].dtype, LC_COMM_SUM,
                                     &r->requests[r->n_requests]));
    if (r->status < 0) return;
    r->n_requests++;
    r->stats.buckets++;
    r->stats.bytes += c->ints[2] * (int64_t)lc_dtype_size(c->in[0].dtype);
    lc__reducer_poll(r);
}

static lc_status infer_nothing(lc_infer *call)
{
    call->n_out = 0;
    return LC_OK;
}

static const lc_kernel launch_kernel = {
    .name = "launch", .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_launch};
/* in: flat gradients; ints: reducer, offset, count */
const lc_op lc__op_launch_bucket = {.name = "all_reduce_bucket",
                                    .flags = LC_OP_MUTATES | LC_OP_SIDE_EFFECT | LC_OP_NO_GRAD,
                                    .infer = infer_nothing,
                                    .mutated_inputs = 1,
                                    .kernel = &launch_kernel};

/* ---- a sync ---- */

static lc_status wait_for_all(lc__reducer *r)
{
    for (int i = 0; i < r->n_requests && r->status >= 0; i++) keep_error(r, lc_comm_wait(r->requests[i]));
    r->n_requests = 0;
    return r->status < 0 ? lc_fail(r->status, "%s", r->message) : LC_OK;
}

lc_status lc__reducer_sync(lc__reducer *r, uint8_t flags[LC__SYNC_FLAGS])
{
    /* The reducer is part of what the plan is keyed by, as optimizers are. */
    int64_t ints[] = {(int64_t)(uintptr_t)r};
    lc_op_call(&lc__macro_sync, 0, NULL, 1, ints, 0, NULL, LC_HERE);
    LC_TRY(lc_step_status(r->g));
    LC_TRY(lc_step_run(r->g));
    uint8_t *at = r->mask;
    for (int f = 0; f < r->n_flats; at += r->flats[f++]->n)
        memcpy(at, r->flats[f]->has_gradient, (size_t)r->flats[f]->n);
    memcpy(at, flags, LC__SYNC_FLAGS);
    int64_t start = lc__now_ns();
    LC_TRY(wait_for_all(r));
    LC_TRY(lc_comm_all_reduce(r->comm, r->mask, r->mask, r->n_mask + LC__SYNC_FLAGS, LC_U8, LC_COMM_MAX, NULL));
    r->stats.exposed_ns += lc__now_ns() - start;
    r->stats.syncs++;
    at = r->mask;
    for (int f = 0; f < r->n_flats; at += r->flats[f++]->n)
        memcpy(r->flats[f]->has_gradient, at, (size_t)r->flats[f]->n);
    memcpy(flags, at, LC__SYNC_FLAGS);
    return LC_OK;
}
