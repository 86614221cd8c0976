/* SPDX-License-Identifier: Apache-2.0 */
/* An exchange as a communicator: how it is made, how its calls begin, how it waits, and what memory its ranks expose.
 * The calls themselves advance in exchange.c. */
#include "base/clock.h"
#include "base/handle.h"
#include "base/processors.h"
#include "comm/exchange/exchange_impl.h"
#include "comm/exchange/schedule_impl.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static void append(queue *q, pending *p)
{
    if (q->last)
        q->last->next = p;
    else
        q->first = p;
    q->last = p;
}

static uint64_t moved_so_far(void *self)
{
    return atomic_load_explicit(&((exchange *)self)->moved, memory_order_relaxed);
}

/* ---- calls ---- */

lc_status lc__exchange_start(void *self, const lc_comm_call *call, void *state)
{
    exchange *x = self;
    pending *p = state;
    p->call = *call;
    p->range =
        (lc__range){call->op == LC_COMM_SEND ? (char *)(uintptr_t)call->in : call->out, lc__call_bytes(call), NULL, 0};
    p->m = (lc__message){.ranges = &p->range, .n_ranges = call->count > 0, .bytes = p->range.bytes, .exists = true};
    if (call->op == LC_COMM_SEND) {
        p->number = ++x->peers[call->peer].sends_started;
        append(&x->peers[call->peer].sends, p);
    } else if (call->op == LC_COMM_RECV) {
        p->number = ++x->peers[call->peer].receives_started;
        append(&x->peers[call->peer].receives, p);
    } else {
        append(&x->collectives, p);
    }
    return LC_OK;
}

static lc_status poll_all(void *self, void *state, bool *done)
{
    exchange *x = self;
    if (x->transport) LC_TRY(x->ops->progress(x->transport));
    LC_TRY(lc__exchange_advance_direct(x));
    LC_TRY(lc__exchange_advance_collectives(x));
    if (state) *done = ((pending *)state)->done;
    return LC_OK;
}

/* ---- waiting ---- */

/* Waiting costs the processor at first, then time slices, then only wake-ups: the rank that is waited for may need the
 * core. On a busy machine a core that is given away comes back milliseconds later, so with a core for each rank it is
 * kept for longer than the wait usually takes. */
enum { SPIN_NS = 50000, SPIN_CROWDED_NS = 10000, YIELD_NS = 50000 };

static void idle(void *self, int microseconds)
{
    exchange *x = self;
    if (!x->transport) {
        sched_yield();
        return;
    }
    int64_t now = lc__now_ns();
    uint64_t moved = moved_so_far(x);
    if (moved != x->seen) x->quiet_since = now;
    x->seen = moved;
    if (now - x->quiet_since < x->spin_ns) return;
    if (now - x->quiet_since < x->spin_ns + YIELD_NS)
        sched_yield();
    else
        x->ops->idle(x->transport, microseconds);
}

/* Every wake-up takes the core from the rank, so while bytes flow they may gather for a while, unless buffers would be
 * full by then. */
static int nap(void *self, int microseconds, bool hurry)
{
    enum { GATHER_US = 2000, ENOUGH = 768 << 10 };
    exchange *x = self;
    uint64_t moved = moved_so_far(x) - x->seen;
    x->seen += moved;
    if (!hurry && moved) return moved < ENOUGH ? GATHER_US : 0;
    x->ops->idle(x->transport, microseconds);
    return 0;
}

static void abort_all(void *self, const char *why)
{
    exchange *x = self;
    if (x->transport) x->ops->abort(x->transport, why);
}

static void exchange_free(void *self)
{
    exchange *x = self;
    if (x->transport) x->ops->close(x->transport);
    lc__schedule_release(&x->schedule);
    lc__exposed_release(&x->exposed);
    free(x->peers);
    free(x->parts);
    free(x->tokens);
    free(x);
}

static void stats(void *self, lc_comm_stats *out)
{
    const exchange *x = self;
    out->sent = x->sent;
    out->sent_across = x->sent_across;
}

lc_status lc__exchange_wait(exchange *x, const pending *p)
{
    bool done = false;
    while (!p->done) {
        LC_TRY(poll_all(x, NULL, &done));
        if (!p->done) idle(x, 100);
    }
    return LC_OK;
}

/* ---- making ---- */

lc_status lc__exchange_make(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size,
                            exchange **out)
{
    exchange *x = calloc(1, sizeof *x);
    lc_status status = LC_OK;
    int (*host)(void *, int) = transport ? ops->host : NULL;
    if (!x) {
        if (transport) ops->close(transport);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a communicator of %d ranks", size);
    }
    x->ops = ops;
    x->transport = transport;
    x->opening = opening;
    x->rank = rank;
    x->size = size;
    x->spin_ns = size <= lc__processors_granted((int)sysconf(_SC_NPROCESSORS_ONLN)) ? SPIN_NS : SPIN_CROWDED_NS;
    x->peers = calloc((size_t)size, sizeof *x->peers);
    x->parts = calloc((size_t)size, sizeof *x->parts);
    x->tokens = calloc((size_t)size, sizeof *x->tokens);
    x->exposed = (lc__exposed){.rank = rank, .size = size};
    if (!x->peers || !x->parts || !x->tokens)
        LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: a communicator of %d ranks", size));
    LC_TRY_GOTO(status, done, lc__schedule_init(&x->schedule, rank, size, ops->peek_answer != NULL, host, transport));
    for (int i = 0; i < size && host; i++) x->peers[i].across = host(transport, i) != host(transport, rank);
    *out = x;
    x = NULL;
done:
    if (x) exchange_free(x);
    return status;
}

/* ---- exposed memory ---- */

static lc_status gather_from_all(void *ctx, const void *mine, void *all, size_t bytes)
{
    pending p = {0};
    LC_TRY(lc__exchange_start(ctx, &(lc_comm_call){LC_COMM_ALL_GATHER, 0, LC_U8, -1, mine, all, (int64_t)bytes}, &p));
    return lc__exchange_wait(ctx, &p);
}

static lc_status expose(void *self, void *data, size_t bytes, int fd)
{
    exchange *x = self;
    const lc__meeting meeting = {LC_MEETING_INIT, .all_gather = gather_from_all, .ctx = x};
    return lc__exposed_add(&x->exposed, data, bytes, fd, &meeting);
}

static void conceal(void *self, const void *data)
{
    lc__exposed_remove(&((exchange *)self)->exposed, data);
}

lc_status lc__exchange_new(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size,
                           lc_comm **out)
{
    exchange *x = NULL;
    *out = NULL;
    LC_TRY(lc__exchange_make(ops, transport, opening, rank, size, &x));
    const lc_comm_ops backend = {
        .size = sizeof backend,
        .name = ops->name,
        .state_bytes = sizeof(pending),
        .start = lc__exchange_start,
        .poll = poll_all,
        .split = lc__exchange_split,
        .free = exchange_free,
        .idle = idle,
        .abort = abort_all,
        .stats = stats,
        .sleep = transport && ops->wants_thread ? nap : NULL,
        .expose = transport && ops->sees_files ? expose : NULL,
        .conceal = transport && ops->sees_files ? conceal : NULL,
        .moved = transport ? moved_so_far : NULL,
    };
    return lc_comm_new(&backend, x, rank, size, out);
}

/* ---- one rank ---- */

lc_status lc_comm_self(lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    static const lc__transport_ops none = {.name = "self"};
    return lc__exchange_new(&none, NULL, NULL, 0, 1, out);
}
