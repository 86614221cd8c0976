/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer's operators: kernels that begin calls to other ranks, and kernels that wait for them. */
#include "base/number.h"
#include "base/clock.h"
#include "ops/infer.h"
#include "parallel/reduce/reducer_impl.h"

#include <string.h>

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
    lc_request *request = r->requests[slot];
    if (!request) return;
    r->requests[slot] = NULL;
    r->n_under_way--;
    lc__reducer_wait(r, request);
}

void lc__reducer_wait_for_all(lc__reducer *r)
{
    for (int i = 0; i < r->cap_requests; i++) wait_for(r, i);
    r->owed = false;
}

static char *elements(const lc_view *v, int64_t offset)
{
    return (char *)v->data + (size_t)offset * lc_dtype_size(v->dtype);
}

static void count_bucket(const lc_call *c, int64_t elements_sent, lc_dtype dtype)
{
    lc__reducer_stats *stats = &lc__reducer_of(c)->stats;
    stats->buckets++;
    stats->bytes += elements_sent * (int64_t)lc_dtype_size(dtype);
}

static void run_reduce_bucket(const lc_call *c)
{
    lc__wire *wire = lc__reducer_of(c)->wire;
    lc_dtype dtype = c->in[0].dtype;
    void *data = elements(&c->in[0], c->ints[LC__SYNC_OFFSET]);
    int64_t count = c->ints[LC__SYNC_COUNT];
    /* Before the first bucket, so that the agreement is known before the last bucket arrives. */
    lc__reducer_begin_agreement(lc__reducer_of(c));
    lc__reducer_of(c)->sent[c->ints[LC__SYNC_SLOT]] = data;
    if (wire) {
        data = lc__wire_pack(wire, data, dtype, count);
        dtype = lc__wire_dtype(wire);
    }
    launch(c, lc__reducer_of(c)->comm,
           (lc_comm_call){.op = LC_COMM_ALL_REDUCE, .dtype = dtype, .in = data, .out = data, .count = count});
    count_bucket(c, count, dtype);
}

static void run_reduce_unit(const lc_call *c)
{
    const lc__reducer *r = lc__reducer_of(c);
    int64_t count = c->ints[LC__SYNC_COUNT], rank = lc_comm_rank(r->slices);
    char *data = elements(&c->in[0], c->ints[LC__SYNC_OFFSET]);
    lc__reducer_agree(lc__reducer_of(c), LC__REDUCES, c->ints[LC__SYNC_SLOT]);
    for (int i = LC__SYNC_FIRST; i + 1 < c->n_int; i += 2)
        memset(elements(&c->in[0], c->ints[i]), 0, (size_t)c->ints[i + 1] * lc_dtype_size(c->in[0].dtype));
    launch(c, r->slices,
           (lc_comm_call){.op = LC_COMM_REDUCE_SCATTER,
                          .dtype = c->in[0].dtype,
                          .in = data,
                          .out = elements(&c->in[0], c->ints[LC__SYNC_OFFSET] + rank * count),
                          .count = count});
    count_bucket(c, count * lc_comm_size(r->slices), c->in[0].dtype);
}

static void run_reduce_slice(const lc_call *c)
{
    void *data = elements(&c->in[0], c->ints[LC__SYNC_OFFSET]);
    wait_for(lc__reducer_of(c), (int)c->ints[LC__SYNC_SLOT]);
    launch(c, lc__reducer_of(c)->replicas,
           (lc_comm_call){.op = LC_COMM_ALL_REDUCE,
                          .dtype = c->in[0].dtype,
                          .in = data,
                          .out = data,
                          .count = c->ints[LC__SYNC_COUNT]});
}

static void run_take_slice(const lc_call *c)
{
    wait_for(lc__reducer_of(c), (int)c->ints[LC__SYNC_SLOT]);
    for (int i = LC__SYNC_FIRST; i + 3 < c->n_int; i += 4) {
        const char *from = elements(&c->in[0], c->ints[LC__SYNC_OFFSET] + c->ints[i]);
        char *to = elements(&c->in[1], c->ints[i + 1]);
        int64_t n = c->ints[i + 2];
        if (!c->ints[i + 3])
            memcpy(to, from, (size_t)n * lc_dtype_size(c->in[0].dtype));
        else
            lc__add_numbers(to, from, c->in[0].dtype, n);
    }
}

static void run_gather_whole(const lc_call *c)
{
    int64_t count = c->ints[LC__SYNC_COUNT], offset = c->ints[LC__SYNC_OFFSET];
    lc_comm *slices = lc__reducer_of(c)->slices;
    launch(c, slices,
           (lc_comm_call){.op = LC_COMM_ALL_GATHER,
                          .dtype = c->in[0].dtype,
                          .in = elements(&c->in[0], offset + lc_comm_rank(slices) * count),
                          .out = elements(&c->in[0], offset),
                          .count = count});
}

static void run_gather_unit(const lc_call *c)
{
    lc__reducer_agree(lc__reducer_of(c), LC__GATHERS, c->ints[LC__SYNC_UNIT]);
    launch(c, lc__reducer_of(c)->slices,
           (lc_comm_call){.op = LC_COMM_ALL_GATHER,
                          .dtype = c->in[0].dtype,
                          .in = elements(&c->in[0], c->ints[LC__SYNC_OFFSET]),
                          .out = c->out[0].data,
                          .count = c->ints[LC__SYNC_COUNT]});
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

static void run_new_unit(const lc_call *c)
{
    (void)c;
}

/* The planner makes these (place_slices.c), with their types. */
static lc_status infer_planned(lc_infer *call)
{
    return lc_fail(LC_ERR_INTERNAL, "%s cannot be recorded", call->op->name);
}

#define SYNC_OP(id, text, later, n_results, mutated, infer_types)                                                      \
    static const lc_kernel id##_kernel = {                                                                             \
        .name = text, .layout = LC_WANT_STRIDED, .flags = LC_KERNEL_SERIAL, .run = run_##id};                          \
    const lc_op lc__op_##id = {.name = text,                                                                           \
                               .flags = LC_OP_MUTATES | LC_OP_SIDE_EFFECT | LC_OP_NO_GRAD | (later),                   \
                               .n_out = n_results,                                                                     \
                               .infer = infer_types,                                                                   \
                               .mutated_inputs = mutated,                                                              \
                               .kernel = &id##_kernel}
SYNC_OP(reduce_bucket, "all_reduce_bucket", LC_OP_LATER, 0, 1, lc__infer_nothing);
SYNC_OP(reduce_unit, "reduce_scatter_unit", LC_OP_LATER, 0, 1, lc__infer_nothing);
SYNC_OP(reduce_slice, "all_reduce_slice", LC_OP_LATER, 0, 1, lc__infer_nothing);
SYNC_OP(take_slice, "take_slice", 0, 0, 2, lc__infer_nothing);
SYNC_OP(gather_whole, "all_gather_unit", LC_OP_LATER, 0, 1, lc__infer_nothing);
SYNC_OP(wait, "wait", 0, 0, 1, lc__infer_nothing);
SYNC_OP(wait_until, "wait_until", 0, 0, 1, lc__infer_nothing);
SYNC_OP(gather_unit, "gather_unit", LC_OP_LATER, 1, 0, infer_planned);
SYNC_OP(new_unit, "new_unit", LC_OP_LATER, 1, 0, infer_planned);

const lc_op *const lc__reduce_ops[] = {
    &lc__op_share_sum,
    &lc__op_reduce_bucket,
    &lc__op_reduce_unit,
    &lc__op_reduce_slice,
    &lc__op_take_slice,
    &lc__op_gather_whole,
    &lc__op_gather_unit,
    &lc__op_wait,
    &lc__op_wait_until,
    &lc__op_new_unit,
    NULL,
};
