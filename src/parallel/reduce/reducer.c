/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer at run time: requests in flight, what went wrong, which parameters have gradients anywhere. */
#include "parallel/reduce/reducer.h"
#include "base/grow.h"

#include "comm/comm_internal.h"
#include "comm/exchange/exposed.h"
#include "base/clock.h"
#include "base/status.h"
#include "module/tensors.h"
#include "ops/infer.h"
#include "optim/optim_internal.h"
#include "parallel/tree/tree.h"
#include "optim/state_buffers.h"
#include "parallel/reduce/reducer_impl.h"
#include "parallel/shard/shard.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

static const lc_peer_ops reducer_ops;

lc_status lc__reducer_new(lc_graph *g, lc_comm *comm, size_t bucket_bytes, lc__reducer **out)
{
    lc__reducer *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
    r->mask = calloc(LC__SYNC_FLAGS, 1);
    if (!r->mask) {
        free(r);
        return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
    }
    r->g = g;
    r->comm = r->slices = comm;
    r->weight = 1;
    r->bucket_bytes = bucket_bytes ? bucket_bytes : (size_t)512 << 10;
    r->peer.key = ++g->next_peer;
    lc__peer_join(&r->peer, &reducer_ops, g);
    g->loss_weight = &r->weight;
    *out = r;
    return LC_OK;
}

/* Kernels cannot fail: the first error waits for lc__reducer_sync. Who heard of it in one group is missed in the other,
 * where it has to be told: the rank that failed need not know that group. */
static void keep_error(lc__reducer *r, lc_status s)
{
    if (s >= 0 || r->status < 0) return;
    r->status = s;
    lc__copy_message(r->message, sizeof r->message);
    if (r->slices == r->comm) return;
    lc_comm_abort(r->slices, r->message);
    lc_comm_abort(r->replicas, r->message);
}

/* What still runs loses its memory here. Behind a run that went well nothing does, but what nobody has waited for. */
static void let_go(lc__reducer *r)
{
    bool done = !r->agreement;
    for (int i = 0; i < r->cap_requests && r->status >= 0 && done; i++)
        if (r->requests[i]) keep_error(r, lc_comm_poll(r->requests[i], &done));
    if (r->status >= 0 && done) return;
    const char *why = r->status < 0 ? r->message : "a rank has given up a reduction of gradients that others wait for";
    lc__comm_give_up(r->comm, why);
    if (r->slices != r->comm) lc__comm_give_up(r->slices, why);
    lc__comm_give_up(r->replicas, why);
}

/* Ranks of a host then add up gradients where they are. What cannot be exposed goes its usual way. The first flat
 * buffers only: each takes a file descriptor, and one of the few places of the communicator, which reducers share. */
static lc_status expose(lc__reducer *r, int f)
{
    enum { MOST = LC__EXPOSED / 2 };
    lc_tensor *g = r->flats[f]->gradient;
    if (f >= MOST || r->wire || !lc__comm_can_expose(r->comm)) return LC_OK;
    r->exposed[f] = lc_tensor_ref(g);
    return lc__comm_expose(r->comm, g->data, g->bytes, lc__tensor_file(g));
}

static void conceal(lc__reducer *r, int f)
{
    if (r->exposed[f]) lc__comm_conceal(r->comm, r->exposed[f]->data);
    lc_tensor_unref(r->exposed[f]);
}

void lc__reducer_free(lc__reducer *r)
{
    if (!r) return;
    let_go(r);
    lc__peer_leave(&r->peer);
    if (r->g->loss_weight == &r->weight) r->g->loss_weight = NULL;
    for (int i = 0; i < r->n_flats; i++) {
        conceal(r, i);
        if (r->flats[i]->sharding && r->flats[i]->sharding->owner == r) (void)!lc__flat_forget_sharding(r->flats[i]);
        lc__flat_unref(r->flats[i]);
    }
    free(r->flats);
    free(r->exposed);
    free(r->requests);
    free(r->sent);
    free(r->mask);
    free(r->summed);
    free(r->sums);
    lc__wire_free(r->wire);
    free(r->scratch);
    free(r);
}

lc_status lc__reducer_compress(lc__reducer *r, lc_dtype wire)
{
    return wire == LC_F32 ? LC_OK : lc__wire_new(wire, lc_comm_size(r->comm), &r->wire);
}

static lc_status check_shardable(const lc_optimizer *opt)
{
    const lc_optimizer_ops *ops = opt->ops;
    if (lc__is_elementwise(ops)) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED,
                   "%s needs whole parameters, of which the strategy sharded gives every rank a part; use --strategy "
                   "ddp, or SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam or Rprop",
                   ops->name);
}

static lc_status add_flat(lc__reducer *r, lc_flat *flat)
{
    for (int f = 0; f < r->n_flats; f++)
        if (r->flats[f] == flat) return LC_OK;
    LC_TRY(lc__grow_one(&r->flats, r->n_flats, "the reduction of gradients"));
    LC_TRY(lc__grow_one(&r->exposed, r->n_flats, "the reduction of gradients"));
    uint8_t *mask = realloc(r->mask, (size_t)(r->n_mask + flat->n + LC__SYNC_FLAGS));
    if (!mask) return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
    r->mask = mask;
    uint8_t *summed = realloc(r->summed, (size_t)(r->n_mask + flat->n));
    if (!summed) return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
    memset(summed + r->n_mask, 0, (size_t)flat->n);
    r->summed = summed;
    r->n_mask += flat->n;
    __atomic_fetch_add(&flat->refs, 1, __ATOMIC_RELAXED);
    int f = r->n_flats++;
    r->flats[f] = flat;
    r->exposed[f] = NULL;
    if (r->stage) return lc__flat_shard(flat, r->slices, r->replicas, r->stage, r->bucket_bytes, r);
    LC_TRY(lc__flat_forget_sharding(flat));
    return expose(r, f);
}

lc_status lc__reducer_add(lc__reducer *r, lc_optimizer *opt)
{
    if (r->stage) LC_TRY(check_shardable(opt));
    if (r->stage && opt->steps)
        return lc_fail(LC_ERR_STATE, "%s has been used: make a new optimizer for the strategy sharded", opt->ops->name);
    for (int i = 0; i < opt->n_groups; i++)
        for (int k = 0; k < opt->groups[i].n_parameters; k++) {
            lc_flat *flat;
            LC_TRY(lc__flat_of(opt->groups[i].parameters[k], &flat));
            LC_TRY(add_flat(r, flat));
        }
    int64_t elements = 0;
    for (int f = 0; f < r->n_flats; f++) elements += r->flats[f]->count;
    if (r->wire) LC_TRY(lc__wire_reserve(r->wire, elements, 0));
    return lc__optimizer_prepare(opt);
}

static lc_status add_parameter(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    lc_flat *flat;
    (void)path, (void)owner;
    if (!t->is_parameter) return LC_OK;
    LC_TRY(lc__flat_of(t->tensor, &flat));
    return add_flat(ctx, flat);
}

lc_status lc__reducer_add_module(lc__reducer *r, lc_module *m)
{
    LC_TRY(lc__module_flatten(lc_module_root(m)));
    return lc_module_visit(m, add_parameter, r);
}

void lc__reducer_shard(lc__reducer *r, int stage)
{
    r->stage = stage;
}

void lc__reducer_replicate(lc__reducer *r, lc_comm *slices, lc_comm *replicas)
{
    r->slices = slices;
    r->replicas = replicas;
}

bool lc__reducer_sums_on_tree(const lc__reducer *r)
{
    if (!r->replicas) return true;
    int size = lc_comm_size(r->slices), first = lc_comm_rank(r->replicas) * size;
    return (size & (size - 1)) == 0 && lc_comm_rank(r->comm) == first + lc_comm_rank(r->slices);
}

lc_status lc__reducer_gather(lc__reducer *r)
{
    if (r->stage == 3) lc__graph_drop_arena(r->g); /* to make room */
    for (int i = 0; i < r->n_flats; i++) LC_TRY(lc__flat_gather(r->flats[i]));
    return LC_OK;
}

lc_status lc__reducer_reserve(lc__reducer *r, int n)
{
    if (r->wire) LC_TRY(lc__wire_reserve(r->wire, 0, n));
    if (n <= r->cap_requests) return LC_OK;
    lc_request **list = realloc(r->requests, (size_t)n * sizeof(lc_request *));
    if (!list) return lc_fail(LC_ERR_MEMORY, "out of memory while planning: %d requests", n);
    memset(list + r->cap_requests, 0, (size_t)(n - r->cap_requests) * sizeof(lc_request *));
    r->requests = list;
    const char **sent = realloc(r->sent, (size_t)n * sizeof *sent);
    if (!sent) return lc_fail(LC_ERR_MEMORY, "out of memory while planning: %d requests", n);
    r->sent = sent;
    r->cap_requests = n;
    return LC_OK;
}

void lc__reducer_set_weight(lc__reducer *r, double weight)
{
    r->weight = weight;
}

void lc__reducer_get_stats(const lc__reducer *r, lc__reducer_stats *out)
{
    *out = r->stats;
}

static void move_bytes(lc__reducer *r)
{
    keep_error(r, lc_comm_progress(r->comm));
    if (r->slices != r->comm) keep_error(r, lc_comm_progress(r->slices));
    if (r->replicas) keep_error(r, lc_comm_progress(r->replicas));
}

static void wait_for_request(lc__reducer *r, lc_request *request)
{
    lc_comm *const all[] = {r->comm, r->slices, r->replicas};
    if (r->status >= 0) keep_error(r, lc__comm_wait_with(request, all, 3));
}

/* A call that is waited for at once, while others run. */
static void run_now(lc__reducer *r, lc_comm *comm, const lc_comm_call *call)
{
    lc_request *request;
    if (r->status < 0) return;
    keep_error(r, lc_comm_start(comm, call, &request));
    wait_for_request(r, request);
}

static lc_status status_of(const lc__reducer *r)
{
    return r->status < 0 ? lc_fail(r->status, "%s", r->message) : LC_OK;
}

/* ---- batches of which some ranks compute less ---- */

/* What a rank does next. ADDS_UP comes behind all units. */
enum { ENDS, REDUCES, GATHERS };
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

static void gather_for_others(lc__reducer *r, int64_t unit)
{
    const lc_flat *flat = NULL;
    const lc__unit *u = unit_at(r, unit, &flat);
    const lc_tensor *p = flat->sharding->parameter;
    run_now(r, r->slices,
            &(lc_comm_call){.op = LC_COMM_ALL_GATHER,
                            .dtype = p->type.dtype,
                            .in = (char *)p->data + (size_t)u->at * lc_dtype_size(p->type.dtype),
                            .out = r->scratch,
                            .count = u->slice});
}

/* Before every call that not all ranks come to by themselves. As long as any rank wants to gather, all do: the others
 * for it alone. What they do besides, all do in the same order. */
static void agree(lc__reducer *r, int kind, int64_t which)
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
        if (next / KIND_STEP == GATHERS)
            gather_for_others(r, next % KIND_STEP);
        else
            keep_error(r, lc_fail(LC_ERR_STATE, "the ranks compute different things in this batch, and with the "
                                                "strategy sharded all must use the same parameters; use ddp"));
    }
}

static void add_up(lc_peer *p, int64_t *words, int n)
{
    lc__reducer *r = (lc__reducer *)p;
    agree(r, REDUCES, ADDS_UP); /* others may gather for what follows first */
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
    int64_t most[] = {passes, -passes};
    r->uneven = false;
    if (!bytes) return LC_OK;
    LC_TRY(lc_comm_all_reduce(r->comm, most, most, 2, LC_I64, LC_COMM_MAX, NULL));
    if (most[0] == -most[1]) return LC_OK;
    if (!r->scratch && !(r->scratch = malloc(bytes)))
        return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for parameters that other ranks use", bytes);
    r->uneven = true;
    return LC_OK;
}

lc_status lc__reducer_end_batch(lc__reducer *r)
{
    agree(r, ENDS, 0);
    r->uneven = false;
    return status_of(r);
}

/* ---- the nodes ---- */

/* Begins what `call` says, in the slot of `c`. */
static void launch(const lc_call *c, lc_comm *comm, lc_comm_call call)
{
    lc__reducer *r = lc__reducer_of(c);
    if (r->status < 0) return;
    call.peer = -1;
    keep_error(r, lc_comm_start(comm, &call, &r->requests[c->ints[LC__SYNC_SLOT]]));
    if (r->status < 0) return;
    r->n_under_way++;
    move_bytes(r);
}

static void wait_for(lc__reducer *r, int slot)
{
    lc_request *request = r->requests[slot];
    if (!request) return;
    r->requests[slot] = NULL;
    r->n_under_way--;
    wait_for_request(r, request);
}

static void wait_for_all(lc__reducer *r)
{
    for (int i = 0; i < r->cap_requests; i++) wait_for(r, i);
    r->owed = false;
}

/* ---- what the engine asks ---- */

static double ranks(const lc_peer *p)
{
    const lc__reducer *r = (const lc__reducer *)p;
    return lc__tree_of_graph(r->g) ? 1 : lc_comm_size(r->comm); /* a tree has weights for chunks */
}

static bool owes(const lc_peer *p)
{
    return ((const lc__reducer *)p)->owed;
}

static lc_status settle(lc_peer *p)
{
    lc__reducer *r = (lc__reducer *)p;
    if (r->owed) {
        int64_t start = lc__now_ns();
        wait_for_all(r);
        r->stats.exposed_ns += lc__now_ns() - start;
    }
    return status_of(r);
}

static lc_status poll(lc_peer *p)
{
    lc__reducer *r = (lc__reducer *)p;
    if (r->n_under_way > 0 && r->status >= 0) move_bytes(r);
    return status_of(r);
}

/* If gradients were under way when a run failed, so has the reducer: the other ranks have made calls that this one has
 * not. */
static void ended(lc_peer *p, const lc_plan *plan, lc_status status, const char *why)
{
    lc__reducer *r = (lc__reducer *)p;
    (void)plan;
    if (why && (r->n_under_way > 0 || r->agreement)) keep_error(r, lc_fail(status, "%s", why));
}

static const lc_peer_ops reducer_ops = {
    .before_backward = lc__reducer_before_backward,
    .zeroed = lc__reducer_zeroed,
    .ranks = ranks,
    .owes = owes,
    .settle = settle,
    .check_summed = lc__reducer_check_summed,
    .passes = lc__reducer_passes,
    .sums_in_place = true,
    .whole_gradient = lc__reducer_whole_gradient,
    .next_bucket = lc__reducer_next_bucket,
    .updated = lc__reducer_updated,
    .poll = poll,
    .add_up = add_up,
    .ended = ended,
};

lc__reducer *lc__reducer_of_graph(const lc_graph *g)
{
    return (lc__reducer *)lc__peer_of(g, &reducer_ops);
}

/* ---- what all ranks agree on ---- */

/* Which parameters have a gradient on any rank, and the trainer's flags. The graph knows this rank's before the plan is
 * run (lc__graph_prepare). */
static void begin_agreement(lc__reducer *r)
{
    uint8_t *at = r->mask;
    if (r->agreement || r->status < 0) return;
    for (int f = 0; f < r->n_flats; at += r->flats[f++]->n)
        memcpy(at, r->flats[f]->has_gradient, (size_t)r->flats[f]->n);
    memcpy(at, r->flags, LC__SYNC_FLAGS);
    keep_error(r, lc_comm_start(r->comm,
                                &(lc_comm_call){.op = LC_COMM_ALL_REDUCE,
                                                .reduce = LC_COMM_MAX,
                                                .dtype = LC_U8,
                                                .peer = -1,
                                                .in = r->mask,
                                                .out = r->mask,
                                                .count = r->n_mask + LC__SYNC_FLAGS},
                                &r->agreement));
}

static lc_status end_agreement(lc__reducer *r, uint8_t flags[LC__SYNC_FLAGS])
{
    lc_request *request = r->agreement;
    const uint8_t *at = r->mask;
    r->agreement = NULL;
    if (request) wait_for_request(r, request);
    LC_TRY(status_of(r));
    for (int f = 0; f < r->n_flats; at += r->flats[f++]->n)
        memcpy(r->flats[f]->has_gradient, at, (size_t)r->flats[f]->n);
    memcpy(flags, at, LC__SYNC_FLAGS);
    return LC_OK;
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
    begin_agreement(lc__reducer_of(c)); /* ahead of the first bucket: it is known before the last one is there */
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
    agree(lc__reducer_of(c), REDUCES, c->ints[LC__SYNC_SLOT]);
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
        else if (c->in[0].dtype == LC_F64)
            for (int64_t k = 0; k < n; k++) ((double *)to)[k] += ((const double *)from)[k];
        else
            for (int64_t k = 0; k < n; k++) ((float *)to)[k] += ((const float *)from)[k];
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
    agree(lc__reducer_of(c), GATHERS, c->ints[LC__SYNC_UNIT]);
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
        wait_for_all(lc__reducer_of(c));
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

/* ---- a sync ---- */

lc_status lc__reducer_sync(lc__reducer *r, uint8_t flags[LC__SYNC_FLAGS])
{
    lc_op_call(&lc__macro_sync.op, 0, NULL, 0, NULL, 0, NULL, LC_HERE);
    memcpy(r->flags, flags, LC__SYNC_FLAGS);
    LC_TRY(lc_step_status(r->g));
    LC_TRY(lc__graph_run_step(r->g, r->g->sync_keeps));
    int64_t start = lc__now_ns();
    bool at_once = r->stage || r->wire;
    if (at_once) wait_for_all(r);
    agree(r, ENDS, 0);
    begin_agreement(r);
    LC_TRY(end_agreement(r, flags));
    if (r->wire) lc__wire_unpack(r->wire);
    r->owed = !at_once && r->n_under_way > 0;
    r->stats.exposed_ns += lc__now_ns() - start;
    r->stats.syncs++;
    lc__reducer_note_sums(r);
    return LC_OK;
}
