/* SPDX-License-Identifier: Apache-2.0 */
/* Several backward passes, each with a sync, before an update: sums over ranks must not be summed again, so each rank
 * continues with its share of them. This is tracked by parameter, since the passes may train different ones. */
#include "base/number.h"
#include "ops/infer.h"
#include "record/graph_impl.h"
#include "parallel/reduce/reducer_impl.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

static void divide(void *gradients, lc_dtype dtype, int64_t from, int64_t n, int by)
{
    for (int64_t i = from; i < from + n; i++)
        lc__set_number(gradients, dtype, i, lc__number_at(gradients, dtype, i) / by);
}

/* In stage 1 a rank knows only the sums of its own slices: its share is these, and zeros elsewhere. */
static void share_unit(void *gradients, lc_dtype dtype, const lc__sharding *s, const lc__unit *u)
{
    size_t width = lc_dtype_size(dtype), slice = (size_t)u->slice * width;
    char *unit = (char *)gradients + (size_t)u->offset * width;
    memset(unit, 0, (size_t)s->rank * slice);
    memset(unit + (size_t)(s->rank + 1) * slice, 0, (size_t)(s->size - s->rank - 1) * slice);
}

/* Slices are never summed again. */
static size_t sum_bytes(const lc_flat *flat)
{
    bool sliced = flat->sharding && flat->sharding->gradient;
    return sliced ? 0 : (size_t)flat->count * lc_dtype_size(flat->gradient->type.dtype);
}

static void share_all(const lc__reducer *r, const lc_flat *flat, uint8_t *summed, bool all, void *gradients)
{
    const lc__sharding *s = flat->sharding;
    lc_dtype dtype = flat->gradient->type.dtype;
    for (int i = 0; i < flat->n && !s; i++) {
        if (summed[i] != LC__SUM || !flat->parameters[i] || !(all || lc__trained(flat, i))) continue;
        divide(gradients, dtype, flat->offset[i], lc__numel(&flat->parameters[i]->type), lc_comm_size(r->comm));
        summed[i] = LC__NOT_SUMMED;
    }
    for (int k = 0; s && k < s->n_units; k++) {
        const lc__unit *u = &s->units[k];
        if (summed[u->first] != LC__SUM || !(all || lc__any_trained(flat, u))) continue;
        share_unit(gradients, dtype, s, u);
        memset(summed + u->first, LC__NOT_SUMMED, (size_t)u->n);
    }
}

/* Replaces every sum by this rank's share of it; all: also for frozen parameters, which the next sync does not sum
 * again. */
static lc_status share_sums(lc__reducer *r, int f, bool all)
{
    const lc_flat *flat = r->flats[f];
    void *at = flat->gradient->device_data;
    size_t bytes = sum_bytes(flat);
    uint8_t *summed = r->summed;
    for (int i = 0; i < f; i++) summed += r->flats[i]->n;
    if (!bytes) return LC_OK;
    LC_TRY(lc__staging_reserve(&r->shares, r->g->on, bytes));
    LC_TRY(lc__staging_read(&r->shares, r->g->on, 0, at, bytes));
    LC_TRY(lc__staging_wait(&r->shares, r->g->on));
    share_all(r, flat, summed, all, lc__staging_at(&r->shares, 0, at));
    return lc__staging_write(&r->shares, r->g->on, 0, at, bytes);
}

static void run_share_sum(const lc_call *c)
{
    lc__reducer *r = lc__reducer_of(c);
    lc__reducer_keep_error(r, share_sums(r, (int)c->ints[LC__SYNC_REDUCER + 1], false));
}

static const lc_kernel share_sum_kernel = {
    .name = "share_sum", .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_share_sum};
const lc_op lc__op_share_sum = {.name = "share_sum",
                                .flags = LC_OP_MUTATES | LC_OP_SIDE_EFFECT | LC_OP_NO_GRAD | LC_OP_HOST | LC_OP_STAGES,
                                .infer = lc__infer_nothing,
                                .mutated_inputs = 1,
                                .kernel = &share_sum_kernel};

void lc__reducer_before_backward(lc_peer *p)
{
    if (((const lc__reducer *)p)->any_summed) lc_op_call(&lc__macro_share_sum.op, 0, NULL, 0, NULL, 0, NULL, LC_HERE);
}

/* Copies a flat buffer's gradients to `sums`, or back. */
static lc_status copy_sums(const lc_flat *flat, void *sums, bool back)
{
    const lc_device *on = flat->gradient->on, *host = lc__host_device();
    void *gradients = flat->gradient->device_data;
    if (back) return lc__device_copy(on, gradients, host, sums, sum_bytes(flat));
    return lc__device_copy(host, sums, on, gradients, sum_bytes(flat));
}

lc_status lc__reducer_share(lc__reducer *r)
{
    size_t bytes = (size_t)r->n_mask;
    LC_TRY(lc__peers_settle(r->g));
    if (!r->any_summed || r->sums) return LC_OK;
    for (int f = 0; f < r->n_flats; f++) bytes += sum_bytes(r->flats[f]);
    char *at = r->sums = malloc(bytes);
    if (!at) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for gradients that are saved", bytes);
    at = (char *)memcpy(at, r->summed, (size_t)r->n_mask) + r->n_mask;
    for (int f = 0; f < r->n_flats; at += sum_bytes(r->flats[f++])) {
        LC_TRY(copy_sums(r->flats[f], at, false));
        LC_TRY(share_sums(r, f, true));
    }
    return LC_OK;
}

void lc__reducer_unshare(lc__reducer *r)
{
    char *at = r->sums;
    if (!at) return;
    memcpy(r->summed, at, (size_t)r->n_mask);
    at += r->n_mask;
    /* Only a device can fail; its next call reports that. */
    for (int f = 0; f < r->n_flats; at += sum_bytes(r->flats[f++])) (void)!copy_sums(r->flats[f], at, true);
    free(r->sums);
    r->sums = NULL;
}

void lc__reducer_zeroed(lc_peer *p)
{
    lc__reducer *r = (lc__reducer *)p;
    if (r->any_summed || r->any_restored) memset(r->summed, LC__NOT_SUMMED, (size_t)r->n_mask);
    r->any_summed = r->any_restored = false;
}

void lc__reducer_restored(lc__reducer *r)
{
    uint8_t *summed = r->summed;
    for (int f = 0; f < r->n_flats; summed += r->flats[f++]->n)
        memset(summed, sum_bytes(r->flats[f]) ? LC__RESTORED_SHARE : LC__SUM, (size_t)r->flats[f]->n);
    r->any_restored = true;
}

static const uint8_t *summed_of(const lc__reducer *r, const lc_tensor *parameter)
{
    const uint8_t *summed = r->summed;
    int f = 0;
    while (f < r->n_flats && r->flats[f] != parameter->flat) summed += r->flats[f++]->n;
    return f < r->n_flats ? &summed[parameter->flat_index] : NULL;
}

bool lc__reducer_has_shares(const lc__reducer *r)
{
    const uint8_t *summed = r->summed;
    for (int f = 0; f < r->n_flats && r->any_restored; summed += r->flats[f++]->n)
        for (int i = 0; i < r->flats[f]->n; i++)
            if (summed[i] == LC__RESTORED_SHARE && lc__trained(r->flats[f], i)) return true;
    return false;
}

lc_status lc__not_summed(void)
{
    return lc_fail(LC_ERR_STATE,
                   "lc_gradient: the strategy sharded sums gradients over the ranks after the last batch of a window; "
                   "read them in on_before_optimizer_step, or use --strategy ddp");
}

lc_status lc__reducer_check_summed(const lc_peer *p, const lc_tensor *parameter)
{
    const uint8_t *summed = summed_of((const lc__reducer *)p, parameter);
    return summed && *summed == LC__SUM ? LC_OK : lc__not_summed();
}

/* In sharded buffers a unit is summed as a whole. */
void lc__reducer_note_sums(lc__reducer *r)
{
    uint8_t *summed = r->summed;
    for (int f = 0; f < r->n_flats; summed += r->flats[f++]->n) {
        const lc_flat *flat = r->flats[f];
        const lc__sharding *s = flat->sharding;
        for (int i = 0; i < flat->n && !s; i++)
            if (lc__trained(flat, i)) summed[i] = LC__SUM;
        for (int k = 0; s && k < s->n_units; k++)
            if (lc__any_trained(flat, &s->units[k])) memset(summed + s->units[k].first, LC__SUM, (size_t)s->units[k].n);
    }
    r->any_summed = true;
}
