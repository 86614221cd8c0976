/* SPDX-License-Identifier: Apache-2.0 */
/* The reducer at run time: what it reduces, errors, and agreement on which parameters have gradients on any rank. */
#include "parallel/reduce/reducer.h"
#include "engine/run/run.h"
#include "base/grow.h"

#include "comm/comm_internal.h"
#include "comm/exchange/exposed.h"
#include "base/clock.h"
#include "base/status.h"
#include "module/tensors.h"
#include "optim/optim_internal.h"
#include "parallel/tree/tree.h"
#include "optim/state_buffers.h"
#include "parallel/reduce/reducer_impl.h"
#include "parallel/shard/shard.h"

#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

static const lc_peer_ops reducer_ops;

/* ---- what ranks must have in common ---- */

/* The trained parameters, and the order of gathers, which may differ between copies: a hash of each, of 4 bytes, and
 * its complement. If the largest values over the ranks are complements too, the hashes are equal. */
enum { HASH = 4, TRAINED = 0 };

static int copies(const lc__reducer *r)
{
    return r->replicas ? lc_comm_size(r->replicas) : 1;
}

static size_t alike_bytes(int n_copies)
{
    return (size_t)(1 + n_copies) * 2 * HASH;
}

static void write_alike(const lc__reducer *r, uint8_t *at)
{
    int copy = r->replicas ? lc_comm_rank(r->replicas) : 0;
    uint32_t trained[] = {0x811c9dc5u, 0}, order[] = {r->order, ~r->order};
    for (int f = 0; f < r->n_flats; f++)
        for (int i = 0; i < r->flats[f]->n; i++) trained[0] = (trained[0] ^ lc__trained(r->flats[f], i)) * 0x01000193u;
    trained[1] = ~trained[0];
    memset(at, 0, alike_bytes(copies(r)));
    memcpy(at, trained, sizeof trained);
    memcpy(at + sizeof trained * (size_t)(1 + copy), order, sizeof order);
}

static lc_status check_alike(const lc__reducer *r, const uint8_t *at)
{
    for (int k = 0; k <= copies(r); k++, at += 2 * HASH)
        for (int i = 0; i < HASH; i++) {
            if (at[i] + at[HASH + i] == UINT8_MAX) continue;
            return k == TRAINED ? lc_fail(LC_ERR_STATE, "some ranks train parameters that are frozen on others; freeze "
                                                        "and thaw them on all ranks")
                                : lc__reducer_other_order();
        }
    return LC_OK;
}

/* ---- life ---- */

/* The size of `mask` for n parameters and any number of copies. */
static size_t mask_bytes(const lc_comm *comm, int64_t n)
{
    return (size_t)n + LC__SYNC_FLAGS + alike_bytes(lc_comm_size(comm));
}

lc_status lc__reducer_new(lc_graph *g, lc_comm *comm, size_t bucket_bytes, lc__reducer **out)
{
    *out = NULL;
    lc__reducer *r = calloc(1, sizeof *r);
    if (!r) return lc_fail(LC_ERR_MEMORY, "out of memory: the reduction of gradients");
    r->mask = calloc(mask_bytes(comm, 0), 1);
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

/* Kernels cannot fail: the first error is kept for lc__reducer_sync. A rank that sees the failure in one group drops
 * out of the other, so report it there too: the failed rank may not belong to that group. */
void lc__reducer_keep_error(lc__reducer *r, lc_status s)
{
    if (s >= 0 || r->status < 0) return;
    r->status = s;
    lc__copy_message(r->message, sizeof r->message);
    if (r->slices == r->comm) return;
    lc_comm_abort(r->slices, r->message);
    lc_comm_abort(r->replicas, r->message);
}

/* Requests still in flight lose their buffers here. After a successful run only requests nobody waited for can be in
 * flight. */
static void stop_requests(lc__reducer *r)
{
    bool done = !r->agreement;
    for (int i = 0; i < r->cap_requests && r->status >= 0 && done; i++)
        if (r->requests[i]) lc__reducer_keep_error(r, lc_comm_poll(r->requests[i], &done));
    if (r->status >= 0 && done) return;
    const char *why = r->status < 0 ? r->message : "a rank has abandoned a gradient reduction that others wait for";
    lc__comm_give_up(r->comm, why);
    if (r->slices != r->comm) lc__comm_give_up(r->slices, why);
    lc__comm_give_up(r->replicas, why);
}

/* Ranks on one host then add up gradients directly in each other's memory. A buffer that cannot be exposed is sent the
 * usual way. Only the first flat buffers are exposed: each takes a file descriptor, and one of the communicator's few
 * places, which reducers share. */
static lc_status expose(lc__reducer *r, int f)
{
    enum { MOST = LC__EXPOSED / 2 };
    lc_tensor *g = r->flats[f]->gradient;
    if (f >= MOST || r->wire || !lc__on_host(g->on) || !lc__comm_can_expose(r->comm)) return LC_OK;
    r->exposed[f] = lc_tensor_ref(g);
    return lc__comm_expose(r->comm, g->device_data, g->bytes, lc__tensor_file(g));
}

static void conceal(lc__reducer *r, int f)
{
    if (r->exposed[f]) lc__comm_conceal(r->comm, r->exposed[f]->device_data);
    lc_tensor_unref(r->exposed[f]);
}

void lc__reducer_free(lc__reducer *r)
{
    if (!r) return;
    stop_requests(r);
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
    for (int i = 0; i < r->cap_requests; i++) lc__staging_free(&r->sending[i].memory, r->g->on);
    free(r->sending);
    free(r->mask);
    free(r->summed);
    free(r->sums);
    lc__wire_free(r->wire);
    lc__staging_free(&r->shares, r->g->on);
    free(r->scratch);
    free(r);
}

lc_status lc__reducer_compress(lc__reducer *r, lc_dtype wire)
{
    return wire == LC_F32 ? LC_OK : lc__wire_new(wire, lc_comm_size(r->comm), &r->wire);
}

static lc_status check_shardable(const lc_optimizer *opt)
{
    if (opt->ops->elementwise) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED,
                   "%s needs whole parameters, but the strategy sharded gives every rank only a slice; use --strategy "
                   "ddp, or SGD, Adam, AdamW, RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam or Rprop",
                   opt->ops->name);
}

static lc_status add_flat(lc__reducer *r, lc_flat *flat)
{
    for (int f = 0; f < r->n_flats; f++)
        if (r->flats[f] == flat) return LC_OK;
    LC_TRY(lc__grow_one(&r->flats, r->n_flats, "the reduction of gradients"));
    LC_TRY(lc__grow_one(&r->exposed, r->n_flats, "the reduction of gradients"));
    uint8_t *mask = realloc(r->mask, mask_bytes(r->comm, r->n_mask + flat->n));
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
        return lc_fail(LC_ERR_STATE, "%s has already been used: make a new optimizer for the strategy sharded",
                       opt->ops->name);
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
    if (r->stage == 3) lc__graph_drop_arena(r->g); /* to free memory */
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
    lc__sending *sending = realloc(r->sending, (size_t)n * sizeof *sending);
    if (!sending) return lc_fail(LC_ERR_MEMORY, "out of memory while planning: %d requests", n);
    memset(sending + r->cap_requests, 0, (size_t)(n - r->cap_requests) * sizeof *sending);
    r->sending = sending;
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

void lc__reducer_move(lc__reducer *r)
{
    lc__reducer_keep_error(r, lc_comm_progress(r->comm));
    if (r->slices != r->comm) lc__reducer_keep_error(r, lc_comm_progress(r->slices));
    if (r->replicas) lc__reducer_keep_error(r, lc_comm_progress(r->replicas));
}

void lc__reducer_wait(lc__reducer *r, lc_request *request)
{
    lc_comm *const all[] = {r->comm, r->slices, r->replicas};
    if (r->status >= 0) lc__reducer_keep_error(r, lc__comm_wait_with(request, all, 3));
}

lc_status lc__reducer_status(const lc__reducer *r)
{
    return r->status < 0 ? lc_fail(r->status, "%s", r->message) : LC_OK;
}

/* ---- slots of the peer ---- */

static double ranks(const lc_peer *p)
{
    const lc__reducer *r = (const lc__reducer *)p;
    return lc__tree_of_graph(r->g) ? 1 : lc_comm_size(r->comm); /* on a tree, chunks have weights */
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
        lc__reducer_wait_for_all(r);
        r->stats.exposed_ns += lc__now_ns() - start;
    }
    return lc__reducer_status(r);
}

static lc_status poll(lc_peer *p)
{
    lc__reducer *r = (lc__reducer *)p;
    if (r->n_under_way > 0 && r->status >= 0) lc__reducer_move(r);
    return lc__reducer_status(r);
}

/* If gradients were under way when a run failed, the reducer has failed too: the other ranks have made calls that this
 * one has not. */
static void ended(lc_peer *p, const lc_plan *plan, lc_status status, const char *why)
{
    lc__reducer *r = (lc__reducer *)p;
    (void)plan;
    if (why && (r->n_under_way > 0 || r->agreement)) lc__reducer_keep_error(r, lc_fail(status, "%s", why));
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
    .add_up = lc__reducer_add_up,
    .ended = ended,
};

lc__reducer *lc__reducer_of_graph(const lc_graph *g)
{
    return (lc__reducer *)lc__peer_of(g, &reducer_ops);
}

/* ---- agreements of the ranks ---- */

/* Starts agreeing on which parameters have a gradient on any rank, and on the trainer's flags. The graph knows this
 * rank's before the plan runs (lc__graph_prepare). */
void lc__reducer_begin_agreement(lc__reducer *r)
{
    uint8_t *at = r->mask;
    if (r->agreement || r->status < 0) return;
    for (int f = 0; f < r->n_flats; at += r->flats[f++]->n)
        memcpy(at, r->flats[f]->has_gradient, (size_t)r->flats[f]->n);
    memcpy(at, r->flags, LC__SYNC_FLAGS);
    write_alike(r, at + LC__SYNC_FLAGS);
    lc__reducer_keep_error(
        r, lc_comm_start(r->comm,
                         &(lc_comm_call){.op = LC_COMM_ALL_REDUCE,
                                         .reduce = LC_COMM_MAX,
                                         .dtype = LC_U8,
                                         .peer = -1,
                                         .in = r->mask,
                                         .out = r->mask,
                                         .count = r->n_mask + LC__SYNC_FLAGS + (int64_t)alike_bytes(copies(r))},
                         &r->agreement));
}

static lc_status end_agreement(lc__reducer *r, uint8_t flags[LC__SYNC_FLAGS])
{
    lc_request *request = r->agreement;
    const uint8_t *at = r->mask;
    r->agreement = NULL;
    if (request) lc__reducer_wait(r, request);
    LC_TRY(lc__reducer_status(r));
    for (int f = 0; f < r->n_flats; at += r->flats[f++]->n)
        memcpy(r->flats[f]->has_gradient, at, (size_t)r->flats[f]->n);
    memcpy(flags, at, LC__SYNC_FLAGS);
    r->order = 0;
    lc__reducer_keep_error(r, check_alike(r, at + LC__SYNC_FLAGS));
    return lc__reducer_status(r);
}

/* ---- a sync ---- */

lc_status lc__reducer_sync(lc__reducer *r, uint8_t flags[LC__SYNC_FLAGS])
{
    lc_op_call(&lc__macro_sync.op, 0, NULL, 0, NULL, 0, NULL, LC_HERE);
    memcpy(r->flags, flags, LC__SYNC_FLAGS);
    LC_TRY(lc_step_status(r->g));
    LC_TRY(lc__graph_run_step(r->g, r->g->sync_keeps));
    int64_t start = lc__now_ns();
    bool at_once = r->stage || r->wire;
    if (at_once) lc__reducer_wait_for_all(r);
    lc__reducer_agree(r, LC__ENDS, 0);
    lc__reducer_begin_agreement(r);
    LC_TRY(end_agreement(r, flags));
    if (r->wire) lc__wire_unpack(r->wire);
    for (int i = 0; i < r->cap_requests && r->wire; i++) lc__reducer_deliver(r, i);
    r->owed = !at_once && r->n_under_way > 0;
    r->stats.exposed_ns += lc__now_ns() - start;
    r->stats.syncs++;
    lc__reducer_note_sums(r);
    return LC_OK;
}
