/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of which some ranks compute less than others while parameters are sharded: before each call that not all
 * ranks reach by themselves, the ranks agree on what to call next. */
#include "base/number.h"
#include "engine/run/run.h"
#include "parallel/reduce/reducer_impl.h"

#include <stdlib.h>
#include <string.h>

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

/* `bytes` of the slice buffer, from an element on, for a place in the scratch memory; the result is `to`, or where they
 * are on the host. */
static const void *slice_bytes(lc__reducer *r, const lc_tensor *p, int64_t from, size_t bytes, void *to)
{
    const void *at = (char *)p->device_data + (size_t)from * lc_dtype_size(p->type.dtype);
    if (lc__on_host(p->on)) return at;
    lc__reducer_keep_error(r, lc__device_copy(lc__host_device(), to, p->on, at, bytes));
    return to;
}

/* Puts this rank's part where it belongs in the scratch memory. */
static const void *own_low(lc__reducer *r, const lc__unit *u, const lc_tensor *p)
{
    const size_t low = (size_t)u->slice * lc_dtype_size(r->g->low);
    const size_t ranks = (size_t)lc_comm_size(r->slices);
    char *own = (char *)r->scratch + (size_t)lc_comm_rank(r->slices) * low, *behind = (char *)r->scratch + ranks * low;
    const void *f32 = slice_bytes(r, p, u->at, (size_t)u->slice * sizeof(float), behind);
    for (int64_t i = 0; i < u->slice; i++) lc__set_number(own, r->g->low, i, lc__number_at(f32, LC_F32, i));
    return own;
}

static const void *own_vectors(lc__reducer *r, const lc_flat *flat, const lc__unit *u, int64_t most)
{
    const int rank = lc_comm_rank(r->slices);
    float *own = (float *)r->scratch + rank * most;
    for (int k = u->first; k < u->first + u->n; k++) {
        int64_t from, at, n = lc__vector_piece(flat, u, rank, k, &from, &at);
        if (!n) continue;
        const size_t bytes = (size_t)n * sizeof *own;
        const void *data = slice_bytes(r, flat->sharding->parameter, u->at + from, bytes, own + at);
        if (data != own + at) memcpy(own + at, data, bytes);
    }
    return own;
}

static void gather_for_others(lc__reducer *r, int64_t which)
{
    const lc_flat *flat = NULL;
    const lc__unit *u = unit_at(r, which / LC__GATHERED_KINDS, &flat);
    const lc_tensor *p = flat->sharding->parameter;
    const size_t bytes = (size_t)u->slice * lc_dtype_size(p->type.dtype);
    lc_comm_call call = {.op = LC_COMM_ALL_GATHER, .dtype = p->type.dtype, .out = r->scratch, .count = u->slice};
    switch ((lc__gathered)(which % LC__GATHERED_KINDS)) {
    case LC__GATHERED_F32:
    case LC__GATHERED_KINDS:
        call.in = slice_bytes(r, p, u->at, bytes, (char *)r->scratch + (size_t)lc_comm_rank(r->slices) * bytes);
        break;
    case LC__GATHERED_LOW:
        call.dtype = r->g->low;
        call.in = own_low(r, u, p);
        break;
    case LC__GATHERED_VECTORS:
        call.count = lc__vectors_most(flat, u);
        call.in = own_vectors(r, flat, u, call.count);
        break;
    }
    run_now(r, r->slices, &call);
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
            size_t bytes = (size_t)(s->units[k].slice * (s->size + 1)) * lc_dtype_size(s->parameter->type.dtype);
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
