/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer's operators: kernels that begin calls to other ranks, and kernels that wait for them. */
#include "base/number.h"
#include "base/clock.h"
#include "engine/run/run.h"
#include "ops/infer.h"
#include "parallel/reduce/reducer_impl.h"

#include <string.h>

/* ---- memory ---- */

static size_t width_of(const lc_view *v)
{
    return lc_dtype_size(v->dtype);
}

static char *elements(const lc_view *v, int64_t offset)
{
    return (char *)v->data + (size_t)offset * width_of(v);
}

static lc__sending *sending_of(const lc_call *c)
{
    return &lc__reducer_of(c)->sending[c->ints[LC__SYNC_SLOT]];
}

/* Where the host has what is at `at`; on a device, at `offset` of the memory of the slot. */
static void *here(const lc_call *c, size_t offset, const void *at)
{
    return lc__staging_at(&sending_of(c)->memory, offset, at);
}

/* On a device, `n` bytes at `at` are copied there. */
static void take(const lc_call *c, size_t offset, const void *at, size_t n)
{
    lc__reducer *r = lc__reducer_of(c);
    lc__reducer_keep_error(r, lc__staging_read(&sending_of(c)->memory, r->g->on, offset, at, n));
}

/* What the call in the slot writes there belongs at `at`. */
static void *result_at(const lc_call *c, size_t offset, void *at, size_t n)
{
    lc__sending *s = sending_of(c);
    s->to = at;
    s->offset = offset;
    s->bytes = n;
    return here(c, offset, at);
}

void lc__reducer_deliver(lc__reducer *r, int slot)
{
    lc__sending *s = &r->sending[slot];
    lc__reducer_keep_error(r, lc__staging_write(&s->memory, r->g->on, s->offset, s->to, s->bytes));
    s->bytes = 0;
}

/* ---- calls ---- */

/* Calls begin(c) when what was taken is there. */
static void when_taken(const lc_call *c, lc__begin_fn *begin)
{
    lc__reducer *r = lc__reducer_of(c);
    lc__reducer_keep_error(r, lc__when_done(r->g, c, begin, sending_of(c)));
}

/* Starts `call` in the slot of `c`. */
static void launch(const lc_call *c, lc_comm *comm, lc_comm_call call)
{
    lc__reducer *r = lc__reducer_of(c);
    if (r->status < 0) return;
    call.peer = -1;
    lc__reducer_keep_error(r, lc_comm_start(comm, &call, &r->requests[c->ints[LC__SYNC_SLOT]]));
    if (r->status < 0) return;
    r->n_under_way++;
    lc__reducer_move(r);
}

static void wait_for(lc__reducer *r, int slot)
{
    lc__reducer_keep_error(r, lc__begin_through(r->g, &r->sending[slot]));
    lc_request *request = r->requests[slot];
    if (!request) return;
    r->requests[slot] = NULL;
    r->n_under_way--;
    lc__reducer_wait(r, request);
    if (!r->wire) lc__reducer_deliver(r, slot);
}

void lc__reducer_wait_for_all(lc__reducer *r)
{
    lc__reducer_keep_error(r, lc__begin_all(r->g));
    for (int i = 0; i < r->cap_requests; i++) wait_for(r, i);
    r->owed = false;
}

/* On a device: makes room for `count` elements in the slot of `c`, which another plan may still use. */
static lc_status make_room(const lc_call *c, int64_t count)
{
    lc__reducer *r = lc__reducer_of(c);
    lc__staging *m = &sending_of(c)->memory;
    size_t bytes = (size_t)count * width_of(&c->in[0]);
    if (lc__on_host(r->g->on) || m->bytes >= bytes) return LC_OK;
    wait_for(r, (int)c->ints[LC__SYNC_SLOT]);
    return lc__staging_reserve(m, r->g->on, bytes);
}

static lc_status prepare_bucket(lc_call *c)
{
    return make_room(c, c->ints[LC__SYNC_COUNT]);
}

static lc_status prepare_unit(lc_call *c)
{
    return make_room(c, c->ints[LC__SYNC_COUNT] * lc_comm_size(lc__reducer_of(c)->slices));
}

/* A slice more, for sums that the unit's are added to. */
static lc_status prepare_slice(lc_call *c)
{
    return make_room(c, c->ints[LC__SYNC_COUNT] * (lc_comm_size(lc__reducer_of(c)->slices) + 1));
}

static void count_bucket(const lc_call *c, int64_t elements_sent, lc_dtype dtype)
{
    lc__reducer_stats *stats = &lc__reducer_of(c)->stats;
    stats->buckets++;
    stats->bytes += elements_sent * (int64_t)lc_dtype_size(dtype);
}

static void begin_bucket(const lc_call *c)
{
    lc__reducer *r = lc__reducer_of(c);
    lc_dtype dtype = c->in[0].dtype;
    int64_t count = c->ints[LC__SYNC_COUNT];
    void *data = here(c, 0, elements(&c->in[0], c->ints[LC__SYNC_OFFSET]));
    /* Before the first bucket, so that the agreement is known before the last bucket arrives. */
    lc__reducer_begin_agreement(r);
    if (r->wire) {
        data = lc__wire_pack(r->wire, data, dtype, count);
        dtype = lc__wire_dtype(r->wire);
    }
    launch(c, r->comm,
           (lc_comm_call){.op = LC_COMM_ALL_REDUCE, .dtype = dtype, .in = data, .out = data, .count = count});
    count_bucket(c, count, dtype);
}

static void run_reduce_bucket(const lc_call *c)
{
    char *bucket = elements(&c->in[0], c->ints[LC__SYNC_OFFSET]);
    size_t bytes = (size_t)c->ints[LC__SYNC_COUNT] * width_of(&c->in[0]);
    lc__reducer_of(c)->sent[c->ints[LC__SYNC_SLOT]] = bucket;
    take(c, 0, bucket, bytes);
    result_at(c, 0, bucket, bytes);
    when_taken(c, begin_bucket);
}

/* From stage 2 on a unit has memory only for this plan: the sum is taken from the slot (take_slice). */
static void begin_unit(const lc_call *c)
{
    const lc__reducer *r = lc__reducer_of(c);
    int64_t count = c->ints[LC__SYNC_COUNT], offset = c->ints[LC__SYNC_OFFSET], rank = lc_comm_rank(r->slices);
    char *sum = elements(&c->in[0], offset + rank * count), *data = here(c, 0, elements(&c->in[0], offset));
    size_t width = width_of(&c->in[0]), slice = (size_t)count * width, before = (size_t)rank * slice;
    lc__reducer_agree(lc__reducer_of(c), LC__REDUCES, c->ints[LC__SYNC_SLOT]);
    for (int i = LC__SYNC_FIRST; i + 1 < c->n_int; i += 2)
        memset(data + (size_t)c->ints[i] * width, 0, (size_t)c->ints[i + 1] * width);
    launch(c, r->slices,
           (lc_comm_call){.op = LC_COMM_REDUCE_SCATTER,
                          .dtype = c->in[0].dtype,
                          .in = data,
                          .out = r->stage < 2 ? result_at(c, before, sum, slice) : here(c, before, sum),
                          .count = count});
    count_bucket(c, count * lc_comm_size(r->slices), c->in[0].dtype);
}

static void run_reduce_unit(const lc_call *c)
{
    size_t slice = (size_t)c->ints[LC__SYNC_COUNT] * width_of(&c->in[0]);
    size_t all = (size_t)lc_comm_size(lc__reducer_of(c)->slices) * slice;
    take(c, 0, elements(&c->in[0], c->ints[LC__SYNC_OFFSET]), all);
    when_taken(c, begin_unit);
}

/* What the slot's call before has made is where it was. */
static void begin_slice(const lc_call *c)
{
    const lc__reducer *r = lc__reducer_of(c);
    int64_t count = c->ints[LC__SYNC_COUNT], offset = c->ints[LC__SYNC_OFFSET];
    size_t slice = (size_t)count * width_of(&c->in[0]), before = (size_t)lc_comm_rank(r->slices) * slice;
    wait_for(lc__reducer_of(c), (int)c->ints[LC__SYNC_SLOT]);
    void *data = here(c, before, elements(&c->in[0], offset));
    launch(c, r->replicas,
           (lc_comm_call){.op = LC_COMM_ALL_REDUCE, .dtype = c->in[0].dtype, .in = data, .out = data, .count = count});
}

static void run_reduce_slice(const lc_call *c)
{
    when_taken(c, begin_slice);
}

static void run_take_slice(const lc_call *c)
{
    lc__reducer *r = lc__reducer_of(c);
    size_t width = width_of(&c->in[0]), slice = (size_t)c->ints[LC__SYNC_COUNT] * width;
    size_t before = (size_t)lc_comm_rank(r->slices) * slice, after = (size_t)lc_comm_size(r->slices) * slice;
    lc__staging *m = &sending_of(c)->memory;
    bool adds = false;
    wait_for(r, (int)c->ints[LC__SYNC_SLOT]);
    const char *sums = here(c, before, elements(&c->in[0], c->ints[LC__SYNC_OFFSET]));
    for (int i = LC__SYNC_FIRST; i + 3 < c->n_int; i += 4) {
        if (!c->ints[i + 3]) continue;
        take(c, after + (size_t)c->ints[i] * width, elements(&c->in[1], c->ints[i + 1]),
             (size_t)c->ints[i + 2] * width);
        adds = true;
    }
    if (adds) lc__reducer_keep_error(r, lc__staging_wait(m, r->g->on));
    for (int i = LC__SYNC_FIRST; i + 3 < c->n_int; i += 4) {
        size_t at = (size_t)c->ints[i] * width, bytes = (size_t)c->ints[i + 2] * width;
        char *to = elements(&c->in[1], c->ints[i + 1]);
        if (c->ints[i + 3])
            lc__add_numbers(here(c, after + at, to), sums + at, c->in[0].dtype, c->ints[i + 2]);
        else
            memcpy(here(c, after + at, to), sums + at, bytes);
        lc__reducer_keep_error(r, lc__staging_write(m, r->g->on, after + at, to, bytes));
    }
}

/* Gathers this rank's slice, which is at `slice`, and those of the others to `whole`. */
static void begin_gather(const lc_call *c, const void *slice, void *whole)
{
    lc_comm *slices = lc__reducer_of(c)->slices;
    size_t bytes = (size_t)c->ints[LC__SYNC_COUNT] * width_of(&c->in[0]);
    launch(c, slices,
           (lc_comm_call){.op = LC_COMM_ALL_GATHER,
                          .dtype = c->in[0].dtype,
                          .in = here(c, (size_t)lc_comm_rank(slices) * bytes, slice),
                          .out = result_at(c, 0, whole, (size_t)lc_comm_size(slices) * bytes),
                          .count = c->ints[LC__SYNC_COUNT]});
}

static void take_slice_of(const lc_call *c, const void *slice)
{
    size_t bytes = (size_t)c->ints[LC__SYNC_COUNT] * width_of(&c->in[0]);
    take(c, (size_t)lc_comm_rank(lc__reducer_of(c)->slices) * bytes, slice, bytes);
}

static const void *slice_in_whole(const lc_call *c)
{
    int64_t rank = lc_comm_rank(lc__reducer_of(c)->slices);
    return elements(&c->in[0], c->ints[LC__SYNC_OFFSET] + rank * c->ints[LC__SYNC_COUNT]);
}

static void begin_whole(const lc_call *c)
{
    begin_gather(c, slice_in_whole(c), elements(&c->in[0], c->ints[LC__SYNC_OFFSET]));
}

static void run_gather_whole(const lc_call *c)
{
    take_slice_of(c, slice_in_whole(c));
    when_taken(c, begin_whole);
}

static void begin_gather_unit(const lc_call *c)
{
    lc__reducer_agree(lc__reducer_of(c), LC__GATHERS, c->ints[LC__SYNC_UNIT]);
    lc__reducer_note_unit(lc__reducer_of(c), c->ints[LC__SYNC_UNIT]);
    begin_gather(c, elements(&c->in[0], c->ints[LC__SYNC_OFFSET]), c->out[0].data);
}

static void run_gather_unit(const lc_call *c)
{
    take_slice_of(c, elements(&c->in[0], c->ints[LC__SYNC_OFFSET]));
    when_taken(c, begin_gather_unit);
}

/* This rank's vectors, which are put together where the others see them. */
static char *own_vectors(const lc_call *c)
{
    const size_t before =
        (size_t)(lc_comm_rank(lc__reducer_of(c)->slices) * c->ints[LC__SYNC_COUNT]) * width_of(&c->in[0]);
    return here(c, before, (char *)c->out[0].data + before);
}

static void begin_gather_vectors(const lc_call *c)
{
    lc__reducer *r = lc__reducer_of(c);
    const int64_t count = c->ints[LC__SYNC_COUNT];
    const size_t all = (size_t)(lc_comm_size(r->slices) * count) * width_of(&c->in[0]);
    lc__reducer_agree(r, LC__GATHERS, c->ints[LC__SYNC_UNIT]);
    lc__reducer_note_unit(r, c->ints[LC__SYNC_UNIT]);
    launch(c, r->slices,
           (lc_comm_call){.op = LC_COMM_ALL_GATHER,
                          .dtype = c->in[0].dtype,
                          .in = own_vectors(c),
                          .out = result_at(c, 0, c->out[0].data, all),
                          .count = count});
}

static void run_gather_vectors(const lc_call *c)
{
    const lc__reducer *r = lc__reducer_of(c);
    const size_t width = width_of(&c->in[0]);
    const int64_t before = lc_comm_rank(r->slices) * c->ints[LC__SYNC_COUNT];
    for (int i = LC__SYNC_FIRST; i + 2 < c->n_int; i += 3) {
        const char *from = elements(&c->in[0], c->ints[i]);
        const size_t bytes = (size_t)c->ints[i + 2] * width;
        if (lc__on_host(r->g->on))
            memcpy(own_vectors(c) + (size_t)c->ints[i + 1] * width, from, bytes);
        else
            take(c, (size_t)(before + c->ints[i + 1]) * width, from, bytes);
    }
    when_taken(c, begin_gather_vectors);
}

static void run_wait(const lc_call *c)
{
    int slot = (int)c->ints[LC__SYNC_SLOT];
    if (slot < 0)
        lc__reducer_wait_for_all(lc__reducer_of(c));
    else
        wait_for(lc__reducer_of(c), slot);
}

static void run_wait_until(const lc_call *c)
{
    lc__reducer *r = lc__reducer_of(c);
    const char *begin = elements(&c->in[0], 0), *end = elements(&c->in[0], c->ints[LC__SYNC_OFFSET]);
    int64_t start = lc__now_ns();
    for (int i = 0; i < r->cap_requests; i++)
        if (r->requests[i] && r->sent[i] >= begin && r->sent[i] < end) wait_for(r, i);
    r->stats.exposed_ns += lc__now_ns() - start;
}

/* The planner makes it (place_slices.c), with its type. */
static lc_status infer_planned(lc_infer *call)
{
    return lc_fail(LC_ERR_INTERNAL, "%s cannot be recorded", call->op->name);
}

#define SYNC_OP(id, text, later, n_results, mutated, infer_types, prepares)                                            \
    static const lc_kernel id##_kernel = {                                                                             \
        .name = text, .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .prepare = prepares, .run = run_##id};     \
    const lc_op lc__op_##id = {.name = text,                                                                           \
                               .flags = LC_OP_MUTATES | LC_OP_SIDE_EFFECT | LC_OP_NO_GRAD | LC_OP_HOST |               \
                                        LC_OP_STAGES | (later),                                                        \
                               .n_out = n_results,                                                                     \
                               .infer = infer_types,                                                                   \
                               .mutated_inputs = mutated,                                                              \
                               .kernel = &id##_kernel}
SYNC_OP(reduce_bucket, "all_reduce_bucket", LC_OP_LATER, 0, 1, lc__infer_nothing, prepare_bucket);
SYNC_OP(reduce_unit, "reduce_scatter_unit", LC_OP_LATER, 0, 1, lc__infer_nothing, prepare_unit);
SYNC_OP(reduce_slice, "all_reduce_slice", LC_OP_LATER, 0, 1, lc__infer_nothing, prepare_unit);
SYNC_OP(take_slice, "take_slice", 0, 0, 2, lc__infer_nothing, prepare_slice);
SYNC_OP(gather_whole, "all_gather_unit", LC_OP_LATER, 0, 1, lc__infer_nothing, prepare_unit);
SYNC_OP(wait, "wait", 0, 0, 1, lc__infer_nothing, NULL);
SYNC_OP(wait_until, "wait_until", 0, 0, 1, lc__infer_nothing, NULL);
SYNC_OP(gather_unit, "gather_unit", LC_OP_LATER, 1, 0, infer_planned, prepare_unit);
SYNC_OP(gather_vectors, "gather_vectors", LC_OP_LATER, 1, 0, infer_planned, prepare_unit);

const lc_op *const lc__reduce_ops[] = {
    &lc__op_share_sum,
    &lc__op_reduce_bucket,
    &lc__op_reduce_unit,
    &lc__op_reduce_slice,
    &lc__op_take_slice,
    &lc__op_gather_whole,
    &lc__op_gather_unit,
    &lc__op_gather_vectors,
    &lc__op_wait,
    &lc__op_wait_until,
    NULL,
};
