/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of which some ranks compute less than others while parameters are sharded: before each call that not all
 * ranks reach by themselves, the ranks agree on what to call next. */
#include "engine/run/run.h"
#include "parallel/reduce/reducer_impl.h"

#include <stdlib.h>

/* Makes a call and waits for it, while others are under way. */
static void run_now(lc__reducer *r, lc_comm *comm, const lc_comm_call *call)
{
    lc_request *request;
    if (r->status < 0) return;
    lc__reducer_keep_error(r, lc_comm_start(comm, call, &request));
    lc__reducer_wait(r, request);
}

/* Sorts after all units. */
#define ADDS_UP   (KIND_STEP - 1)
#define KIND_STEP ((int64_t)1 << 40)

static const lc__unit *unit_at(const lc__reducer *r, int64_t index, const lc_flat **flat)
{
    for (int f = 0; f < r->n_flats; f++) {
        const lc__sharding *s = r->flats[f]->sharding;
        if (!s || !s->gradient) continue;
        *flat = r->flats[f];
        if (index < s->n_units) return &s->units[index];
        index -= s->n_units;
    }
    return NULL;
}

void lc__reducer_note_unit(lc__reducer *r, int64_t unit)
{
    if (!r->uneven) r->order = (r->order ^ (uint32_t)(unit + 1)) * 0x01000193u;
}

lc_status lc__reducer_other_order(void)
{
    return lc_fail(LC_ERR_STATE, "the ranks compute different things in this batch, but the strategy sharded needs all "
                                 "to use the same parameters; use --strategy ddp");
}

static void gather_for_others(lc__reducer *r, int64_t unit)
{
    const lc_flat *flat = NULL;
    const lc__unit *u = unit_at(r, unit, &flat);
    const lc_tensor *p = flat->sharding->parameter;
    size_t width = lc_dtype_size(p->type.dtype), bytes = (size_t)u->slice * width;
    const void *slice = (char *)p->device_data + (size_t)u->at * width;
    if (!lc__on_host(p->on)) {
        void *copy = (char *)r->scratch + (size_t)lc_comm_rank(r->slices) * bytes;
        lc__reducer_keep_error(r, lc__device_copy(lc__host_device(), copy, p->on, slice, bytes));
        slice = copy;
    }
    run_now(r, r->slices,
            &(lc_comm_call){
                .op = LC_COMM_ALL_GATHER, .dtype = p->type.dtype, .in = slice, .out = r->scratch, .count = u->slice});
}

void lc__reducer_agree(lc__reducer *r, int kind, int64_t which)
{
    int64_t mine = kind * KIND_STEP + which, next = -1;
    while (r->uneven && r->status >= 0) {
        run_now(r, r->comm,
                &(lc_comm_call){.op = LC_COMM_ALL_REDUCE,
                                .reduce = LC_COMM_MAX,
                                .dtype = LC_I64,
                                .in = &mine,
                                .out = &next,
                                .count = 1});
        if (next == mine || r->status < 0) return;
        if (next / KIND_STEP == LC__GATHERS)
            gather_for_others(r, next % KIND_STEP);
        else
            lc__reducer_keep_error(r, lc__reducer_other_order());
    }
}

void lc__reducer_add_up(lc_peer *p, int64_t *words, int n)
{
    lc__reducer *r = (lc__reducer *)p;
    lc__reducer_keep_error(r, lc__begin_all(r->g));
    lc__reducer_agree(r, LC__REDUCES, ADDS_UP); /* other ranks may have to gather first */
    run_now(r, r->slices,
            &(lc_comm_call){.op = LC_COMM_ALL_REDUCE, .dtype = LC_I64, .in = words, .out = words, .count = n});
}

static size_t largest_unit(const lc__reducer *r)
{
    size_t most = 0;
    for (int f = 0; f < r->n_flats; f++) {
        const lc__sharding *s = r->flats[f]->sharding;
        for (int k = 0; s && s->parameter && k < s->n_units; k++) {
            size_t bytes = (size_t)(s->units[k].slice * s->size) * lc_dtype_size(s->parameter->type.dtype);
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

lc_status lc__reducer_begin_batch(lc__reducer *r, int64_t passes)
{
    size_t bytes = largest_unit(r);
    int64_t most[] = {passes, -passes, r->order, -(int64_t)r->order};
    r->uneven = false;
    if (!bytes) return LC_OK;
    LC_TRY(lc_comm_all_reduce(r->comm, most, most, 4, LC_I64, LC_COMM_MAX, NULL));
    r->order = 0;
    if (!r->replicas && most[2] != -most[3]) return lc__reducer_other_order();
    if (most[0] == -most[1]) return LC_OK;
    if (!r->scratch && !(r->scratch = malloc(bytes)))
        return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for parameters that other ranks use", bytes);
    r->uneven = true;
    return LC_OK;
}

lc_status lc__reducer_end_batch(lc__reducer *r)
{
    lc__reducer_agree(r, LC__ENDS, 0);
    r->uneven = false;
    return lc__reducer_status(r);
}
