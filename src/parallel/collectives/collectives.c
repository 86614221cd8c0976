/* SPDX-License-Identifier: Apache-2.0 */
#include "parallel/collectives/collectives.h"

#include "base/status.h"
#include "device/staging.h"
#include "engine/plan/plan_impl.h"
#include "engine/run/run.h"
#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

/* Calls in flight, one slot for each launch of a plan. */
typedef struct lc__collectives {
    lc_peer peer;
    lc_request **flights;     /* by slot, room for the largest plan's; NULL: none */
    lc__staging *memory;      /* by slot: y, then the copy of x */
    int n, running, launched; /* launched: so far in this run */
    lc_status status;         /* of the kernels, in this run */
    char message[1024];
} lc__collectives;

/* ---- at run time ---- */

/* Kernels cannot fail: the first error is kept for the next poll. */
static void keep_error(lc__collectives *c, lc_status s)
{
    if (s >= 0 || c->status < 0) return;
    c->status = s;
    lc__copy_message(c->message, sizeof c->message);
}

static void end_call(lc__collectives *c, lc_request **f)
{
    *f = NULL;
    c->running--;
}

/* Moves bytes, or returns the first error of this run. */
static lc_status poll(lc_peer *p)
{
    lc__collectives *c = (lc__collectives *)p;
    for (int i = 0; i < c->n && c->running > 0 && c->status >= 0; i++) {
        bool done;
        if (!c->flights[i]) continue;
        lc_status s = lc_comm_poll(c->flights[i], &done);
        if (s < 0 || done) end_call(c, &c->flights[i]);
        keep_error(c, s);
    }
    return c->status < 0 ? lc_fail(c->status, "%s", c->message) : LC_OK;
}

static void free_all(lc_peer *p)
{
    lc__collectives *c = (lc__collectives *)p;
    for (int i = 0; i < c->n; i++) lc__staging_free(&c->memory[i], p->graph->on);
    free(c->memory);
    free(c->flights);
    free(c);
}

/* ints of launch and wait: the table of calls, the slot, then the operator's own */
enum { AT_CALLS, AT_SLOT, AT_COMM };

static lc__collectives *calls_of(const lc_call *c)
{
    return (lc__collectives *)(uintptr_t)c->ints[AT_CALLS];
}

static size_t bytes_of(const lc_view *v)
{
    return (size_t)lc__view_numel(v) * lc_dtype_size(v->dtype);
}

/* Whether this rank's x is sent; otherwise nobody reads it. */
static bool sends(const int64_t *ints)
{
    lc_collective which = (lc_collective)ints[LC__COMM_WHICH];
    return (which != LC_COMM_BROADCAST && which != LC_COMM_SCATTER) || ints[LC__COMM_RANK] == ints[LC__COMM_ROOT];
}

/* Whether this rank's y comes from the call; otherwise it is zeros. */
static bool receives(const int64_t *ints)
{
    lc_collective which = (lc_collective)ints[LC__COMM_WHICH];
    return (which != LC_COMM_REDUCE && which != LC_COMM_GATHER) || ints[LC__COMM_RANK] == ints[LC__COMM_ROOT];
}

static lc__staging *memory_of(const lc_call *c)
{
    return &calls_of(c)->memory[c->ints[AT_SLOT]];
}

static const lc_device *device_of(const lc_call *c)
{
    return calls_of(c)->peer.graph->on;
}

static lc_status prepare_launch(lc_call *c)
{
    size_t bytes = bytes_of(&c->out[0]) + (c->n_out > 1 ? bytes_of(&c->out[1]) : 0);
    return lc__staging_reserve(memory_of(c), device_of(c), bytes);
}

/* Where the call has x: a copy of it, or its place in y. *offset: in the slot's memory. */
static char *x_of(const lc_call *c, size_t *offset)
{
    const int64_t *ints = c->ints + AT_COMM;
    bool copies = c->n_out > 1;
    *offset = copies ? bytes_of(&c->out[0]) : 0;
    char *x = lc__staging_at(memory_of(c), *offset, c->out[copies].data);
    if (ints[LC__COMM_WHICH] != LC_COMM_ALL_GATHER) return x;
    size_t before = (size_t)ints[LC__COMM_RANK] * bytes_of(&c->in[0]);
    *offset += before;
    return x + before;
}

static void begin_launch(const lc_call *c)
{
    lc__collectives *all = calls_of(c);
    const int64_t *ints = c->ints + AT_COMM;
    lc_comm *comm = (lc_comm *)(uintptr_t)ints[LC__COMM_POINTER];
    lc_collective which = (lc_collective)ints[LC__COMM_WHICH];
    double nx = lc__view_numel(&c->in[0]), ny = lc__view_numel(&c->out[0]);
    size_t offset;
    if (all->status < 0) return;
    lc_comm_call call = {.op = which,
                         .reduce = (lc_reduce_op)ints[LC__COMM_REDUCE],
                         .dtype = c->in[0].dtype,
                         .peer = (int)ints[LC__COMM_ROOT],
                         .in = sends(ints) ? x_of(c, &offset) : NULL,
                         .out = receives(ints) ? lc__staging_at(memory_of(c), 0, c->out[0].data) : NULL,
                         .count = (int64_t)(nx < ny ? nx : ny)};
    if (which == LC_COMM_ALL_TO_ALL) call.count /= ints[LC__COMM_SIZE];
    lc_status s = lc_comm_start(comm, &call, &all->flights[c->ints[AT_SLOT]]);
    if (s >= 0) all->running++, all->launched++;
    keep_error(all, s);
    if (s >= 0) keep_error(all, lc_comm_progress(comm));
}

/* in: x. out: y, and a copy of x if the call cannot work in y. */
static void run_launch(const lc_call *c)
{
    lc__collectives *all = calls_of(c);
    lc__staging *m = memory_of(c);
    size_t offset, bytes = bytes_of(&c->in[0]);
    char *x = x_of(c, &offset);
    if (all->status < 0) return;
    if (sends(c->ints + AT_COMM) && m->memory)
        keep_error(all, lc__staging_read(m, device_of(c), offset, c->in[0].data, bytes));
    else if (sends(c->ints + AT_COMM) && bytes)
        memcpy(x, c->in[0].data, bytes);
    keep_error(all, lc__when_done(all->peer.graph, c, begin_launch, m));
}

/* in: y, and the copy. out: the result, in y's memory if possible. */
static void run_wait(const lc_call *c)
{
    lc__collectives *all = calls_of(c);
    const int64_t *ints = c->ints + AT_COMM;
    lc_request **f = &all->flights[c->ints[AT_SLOT]];
    size_t bytes = bytes_of(&c->in[0]);
    lc__staging *m = memory_of(c);
    char *y = lc__staging_at(m, 0, c->in[0].data), *to = lc__staging_at(m, 0, c->out[0].data);
    keep_error(all, lc__begin_through(all->peer.graph, m));
    if (*f && all->status >= 0) {
        lc_status s = lc_comm_wait(*f);
        end_call(all, f);
        keep_error(all, s);
    }
    if (!receives(ints))
        memset(to, 0, bytes);
    else if (to != y && bytes)
        memcpy(to, y, bytes);
    keep_error(all, lc__staging_write(m, device_of(c), 0, c->out[0].data, bytes));
}

/* Row-major, because ranks may have planned different layouts. */
static const lc_kernel launch_kernel = {.name = "launch",
                                        .layout = LC_WANT_ROW_MAJOR,
                                        .flags = LC_KERNEL_SERIAL,
                                        .prepare = prepare_launch,
                                        .run = run_launch};
static const lc_kernel wait_kernel = {
    .name = "wait", .layout = LC_WANT_ROW_MAJOR, .flags = LC_KERNEL_SERIAL | LC_KERNEL_INPLACE_0, .run = run_wait};
const lc_op lc__op_launch_collective = {.name = "launch_collective",
                                        .flags =
                                            LC_OP_SIDE_EFFECT | LC_OP_NO_GRAD | LC_OP_LATER | LC_OP_HOST | LC_OP_STAGES,
                                        .kernel = &launch_kernel};
const lc_op lc__op_wait_collective = {.name = "wait_collective",
                                      .flags = LC_OP_SIDE_EFFECT | LC_OP_NO_GRAD | LC_OP_HOST | LC_OP_STAGES,
                                      .kernel = &wait_kernel};
const lc_op *const lc__collective_ops[] = {&lc__op_launch_collective, &lc__op_wait_collective, NULL};

/* Aborts on the other ranks what the plan has in flight or had not launched yet, with the message `why`. Afterwards
 * nothing is in flight. */
static void ended(lc_peer *p, const lc_plan *plan, lc_status status, const char *why)
{
    lc__collectives *c = (lc__collectives *)p;
    (void)status;
    for (int i = 0; why && i < plan->n_calls; i++) {
        const lc_call *call = &plan->calls[i].call;
        if (call->op != &lc__op_launch_collective) continue;
        int slot = (int)call->ints[AT_SLOT];
        if (slot >= c->launched || c->flights[slot])
            lc_comm_abort((lc_comm *)(uintptr_t)call->ints[AT_COMM + LC__COMM_POINTER], why);
    }
    for (int i = 0; i < c->n && c->running > 0; i++) {
        if (!c->flights[i]) continue;
        (void)!lc_comm_wait(c->flights[i]);
        end_call(c, &c->flights[i]);
    }
    c->launched = 0;
    c->status = LC_OK;
}

/* ---- the pass ---- */

static bool is_collective(const lc_op *op)
{
#define IS(name)                                                                                                       \
    if (op == &lc__op_##name) return true;
    LC_OPS_COMM_LIST(IS)
#undef IS
    return false;
}

static const lc_peer_ops collectives_ops = {.poll = poll, .ended = ended, .free = free_all};

static lc_status make_room(lc_graph *g, int n, lc__collectives **out)
{
    lc__collectives *c = *out = (lc__collectives *)lc__peer_of(g, &collectives_ops);
    if (!c) {
        if (!(c = *out = calloc(1, sizeof *c)))
            return lc_fail(LC_ERR_MEMORY, "out of memory while planning: %d collectives", n);
        lc__peer_join(&c->peer, &collectives_ops, g);
    }
    if (n <= c->n) return LC_OK;
    lc_request **more = realloc(c->flights, (size_t)n * sizeof *more);
    if (!more) return lc_fail(LC_ERR_MEMORY, "out of memory while planning: %d collectives", n);
    memset(more + c->n, 0, (size_t)(n - c->n) * sizeof *more);
    c->flights = more;
    lc__staging *memory = realloc(c->memory, (size_t)n * sizeof *memory);
    if (!memory) return lc_fail(LC_ERR_MEMORY, "out of memory while planning: %d collectives", n);
    memset(memory + c->n, 0, (size_t)(n - c->n) * sizeof *memory);
    c->memory = memory;
    c->n = n;
    return LC_OK;
}

/* Makes the two nodes of a collective. */
static lc_status split(lc_build *b, lc__collectives *all, const lc_ir_node *n, int slot, lc_ir_node pair[2])
{
    lc_collective which = (lc_collective)n->ints[LC__COMM_WHICH];
    bool copies = which == LC_COMM_REDUCE_SCATTER || which == LC_COMM_ALL_TO_ALL || which == LC_COMM_GATHER ||
                  (which == LC_COMM_SCATTER && sends(n->ints));
    int between = copies ? 2 : 1;
    uint32_t *values = lc__build_alloc(b, 2 * sizeof *values);
    int64_t *ints = lc__build_alloc(b, (AT_COMM + LC__COMM_INTS) * sizeof *ints);
    if (!values || !ints) return LC_ERR_MEMORY;
    lc_type x = b->values[n->in[0]].type, y = b->values[n->out[0]].type;
    for (int i = 0; i < between; i++)
        if ((values[i] = lc__build_value(b, i ? &x : &y)) == LC_ABSENT) return LC_ERR_MEMORY;
    ints[AT_CALLS] = (int64_t)(uintptr_t)all;
    ints[AT_SLOT] = slot;
    memcpy(ints + AT_COMM, n->ints, LC__COMM_INTS * sizeof *ints);
    pair[0] = pair[1] = *n;
    pair[0].op = &lc__op_launch_collective;
    pair[0].out = values;
    pair[0].n_out = between;
    pair[1].op = &lc__op_wait_collective;
    pair[1].in = values;
    pair[1].n_in = between;
    pair[0].ints = pair[1].ints = ints;
    pair[0].n_int = pair[1].n_int = AT_COMM + LC__COMM_INTS;
    return LC_OK;
}

static bool reads(const lc_ir_node *n, uint32_t value)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == value) return true;
    return false;
}

lc_status lc__split_collectives(lc_build *b)
{
    lc__collectives *all;
    int n = 0, slot = 0, at = 0;
    for (int i = 0; i < b->n_nodes; i++) n += b->nodes[i].op && is_collective(b->nodes[i].op);
    if (!n) return LC_OK;
    LC_TRY(make_room(b->g, n, &all));
    lc_ir_node *nodes = lc__build_alloc(b, (size_t)(b->n_nodes + n) * sizeof *nodes);
    lc_ir_node *waits = lc__build_alloc(b, (size_t)n * sizeof *waits); /* op NULL: already in its place */
    if (!nodes || !waits) return LC_ERR_MEMORY;
    for (int i = 0; i <= b->n_nodes; i++) {
        const lc_ir_node *node = i < b->n_nodes ? &b->nodes[i] : NULL;
        if (node && !node->op) continue;
        for (int k = 0; k < slot; k++)
            if (waits[k].op && (!node || !b->optimize || reads(node, waits[k].out[0]))) {
                nodes[at++] = waits[k];
                waits[k].op = NULL;
            }
        if (!node) break;
        if (!is_collective(node->op)) {
            nodes[at++] = *node;
            continue;
        }
        lc_ir_node pair[2];
        LC_TRY(split(b, all, node, slot, pair));
        nodes[at++] = pair[0];
        waits[slot++] = pair[1];
    }
    b->nodes = nodes;
    b->n_nodes = at;
    return LC_OK;
}
