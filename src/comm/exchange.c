/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over streams of bytes, without waiting.
 *
 * The ranks own the data together: of N ranks, rank i owns segment i. A collective is at most two messages from each
 * rank to each other: to the owners (message A), who combine what they get, and from the owners (message B). That is
 *
 *     broadcast          A: root -> owners               B: owners -> all          (root's links carry 2S instead of
 * NS) all_reduce         A: all -> owners, who combine   B: owners -> all reduce             A: all -> root, who
 * combines    scatter        A: root -> all gather             A: all -> root                  all_gather B: all -> all
 *     reduce_scatter     A: all -> owners, who combine   all_to_all     A: all -> all
 *     barrier            A: all -> all, empty
 *
 * An all_reduce so moves 2(N-1)/N of its bytes over each link, as a ring does, in two hops instead of 2(N-1); and an
 * owner sees all contributions at once, so that it can combine them on the tree that comm.h promises. B follows A piece
 * by piece: what is combined is sent on while the rest arrives.
 *
 * The collectives of a communicator run one after another, in the order of their calls; a message begins with a header
 * that says which call it belongs to, and the receiver compares it with its own. Send and receive go on a lane of their
 * own, where messages between two ranks keep their order but wait for nothing else. */
#include "comm/combine.h"
#include "comm/comm_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT32_C(0x6c63636d) /* "lccm" */

typedef struct header {
    uint32_t magic, op;
    uint32_t dtype, reduce;
    int32_t peer, phase; /* phase: A is 0, B is 1 */
    int64_t count, bytes;
    uint64_t number;
    unsigned char zero[LC__GRAIN - 48];
} header;
_Static_assert(sizeof(header) == LC__GRAIN, "a header is one grain");

/* How far a message is. */
typedef struct message {
    bool begun; /* the header is through */
    int64_t n;  /* bytes, padding included */
} message;

/* A call that runs. */
typedef struct pending {
    lc_comm_call call;
    struct pending *next;
    uint64_t number;
    message m; /* of send and receive */
    bool done;
} pending;

typedef struct queue {
    pending *first, *last;
} queue;

typedef struct peer_state {
    message a_out, b_out, a_in, b_in;         /* of the collective that runs */
    queue sends, receives;                    /* on the direct lane */
    uint64_t sends_started, receives_started; /* their numbers */
} peer_state;

typedef struct exchange {
    const lc__transport_ops *ops;
    void *transport; /* NULL: one rank */
    void *opening;
    int rank, size;
    queue collectives;    /* the first one runs */
    bool active;          /* its first steps have been taken */
    uint64_t number;      /* of collectives */
    int64_t combined;     /* bytes of this rank's segment that are final */
    int64_t gathered;     /* how many bytes of A each contribution is combined up to */
    uint64_t moved, seen; /* pieces that were handed over or taken, and how many of them `idle` knows */
    int64_t quiet_since, spin_ns;
    peer_state *peers; /* [size] */
    const void **parts;
} exchange;

static void append(queue *q, pending *p)
{
    if (q->last)
        q->last->next = p;
    else
        q->first = p;
    q->last = p;
}

static pending *pop(queue *q)
{
    pending *p = q->first;
    q->first = p->next;
    if (!q->first) q->last = NULL;
    p->next = NULL;
    p->done = true;
    return p;
}

static int64_t padded(int64_t bytes)
{
    return (bytes + LC__GRAIN - 1) / LC__GRAIN * LC__GRAIN;
}

/* ---- what a collective consists of ---- */

typedef struct piece {
    const char *from; /* of a message that goes out */
    char *to;         /* of one that comes in; of combined ones: the result */
    int64_t bytes;
    bool exists;
} piece;

static int64_t bytes_of(const lc_comm_call *call)
{
    return call->count * (int64_t)lc_dtype_size(call->dtype);
}

/* Segment i of the whole: equal parts on grains, the last ones smaller. */
static int64_t segment(const exchange *x, const lc_comm_call *call, int i, int64_t *bytes)
{
    int64_t all = bytes_of(call), part = padded((all + x->size - 1) / x->size), at = part * i;
    if (at > all) at = all;
    *bytes = all - at < part ? all - at : part;
    return at;
}

static bool combines(const lc_comm_call *call)
{
    return call->op == LC_COMM_ALL_REDUCE || call->op == LC_COMM_REDUCE_SCATTER || call->op == LC_COMM_REDUCE;
}

static piece a_out(const exchange *x, const lc_comm_call *call, int to)
{
    piece p = {.bytes = bytes_of(call), .exists = true};
    const char *in = call->in;
    switch (call->op) {
    case LC_COMM_BARRIER:
        break;
    case LC_COMM_BROADCAST:
        p.exists = x->rank == call->peer; /* fallthrough */
    case LC_COMM_ALL_REDUCE: {
        int64_t at = segment(x, call, to, &p.bytes);
        p.from = in ? in + at : NULL;
        break;
    }
    case LC_COMM_SCATTER:
        p.exists = x->rank == call->peer; /* fallthrough */
    case LC_COMM_REDUCE_SCATTER:
    case LC_COMM_ALL_TO_ALL:
        p.from = in ? in + to * p.bytes : NULL;
        break;
    case LC_COMM_REDUCE:
    case LC_COMM_GATHER:
        p.exists = to == call->peer;
        p.from = in;
        break;
    default:
        p.exists = false;
    }
    return p;
}

static piece a_in(const exchange *x, const lc_comm_call *call, int from)
{
    piece p = {.bytes = bytes_of(call), .exists = true};
    char *out = call->out;
    switch (call->op) {
    case LC_COMM_BARRIER:
        break;
    case LC_COMM_BROADCAST:
        p.exists = from == call->peer; /* fallthrough */
    case LC_COMM_ALL_REDUCE: {
        int64_t at = segment(x, call, x->rank, &p.bytes);
        p.to = out ? out + at : NULL;
        break;
    }
    case LC_COMM_SCATTER:
        p.exists = from == call->peer;
        p.to = out;
        break;
    case LC_COMM_REDUCE_SCATTER:
        p.to = out;
        break;
    case LC_COMM_REDUCE:
        p.exists = x->rank == call->peer;
        p.to = out;
        break;
    case LC_COMM_GATHER:
        p.exists = x->rank == call->peer; /* fallthrough */
    case LC_COMM_ALL_TO_ALL:
        p.to = out ? out + from * p.bytes : NULL;
        break;
    default:
        p.exists = false;
    }
    return p;
}

static piece b_out(const exchange *x, const lc_comm_call *call, int to)
{
    piece p = {.exists = true};
    int64_t at;
    switch (call->op) {
    case LC_COMM_ALL_REDUCE:
        at = segment(x, call, x->rank, &p.bytes);
        p.from = call->out ? (char *)call->out + at : NULL;
        break;
    case LC_COMM_BROADCAST:
        p.exists = to != call->peer;
        at = segment(x, call, x->rank, &p.bytes);
        p.from = call->out ? (char *)call->out + at : NULL;
        break;
    case LC_COMM_ALL_GATHER:
        p.bytes = bytes_of(call);
        p.from = call->in;
        break;
    default:
        p.exists = false;
    }
    return p;
}

static piece b_in(const exchange *x, const lc_comm_call *call, int from)
{
    piece p = {.exists = true};
    int64_t at;
    switch (call->op) {
    case LC_COMM_BROADCAST:
        p.exists = x->rank != call->peer; /* fallthrough */
    case LC_COMM_ALL_REDUCE:
        at = segment(x, call, from, &p.bytes);
        p.to = call->out ? (char *)call->out + at : NULL;
        break;
    case LC_COMM_ALL_GATHER:
        p.bytes = bytes_of(call);
        p.to = call->out ? (char *)call->out + from * p.bytes : NULL;
        break;
    default:
        p.exists = false;
    }
    return p;
}

/* What this rank contributes to the combination it owns. */
static const char *own_part(const exchange *x, const lc_comm_call *call)
{
    return a_out(x, call, x->rank).from;
}

/* What a rank gives itself, where that is a copy. */
static void copy_own(const exchange *x, const lc_comm_call *call)
{
    const char *from = call->in;
    char *to = call->out;
    int64_t bytes = bytes_of(call), own = x->rank * bytes;
    if (call->op == LC_COMM_ALL_TO_ALL)
        from += own, to += own;
    else if (call->op == LC_COMM_ALL_GATHER || (call->op == LC_COMM_GATHER && call->peer == x->rank))
        to += own;
    else if (call->op == LC_COMM_SCATTER && call->peer == x->rank)
        from += own;
    else
        return;
    if (bytes && from != to) memmove(to, from, (size_t)bytes);
}

/* ---- messages ---- */

static header header_of(const lc_comm_call *call, uint64_t number, int phase, int64_t bytes)
{
    return (header){.magic = MAGIC,
                    .op = (uint32_t)call->op,
                    .dtype = (uint32_t)call->dtype,
                    .reduce = (uint32_t)call->reduce,
                    .peer = call->peer,
                    .phase = phase,
                    .count = call->count,
                    .bytes = bytes,
                    .number = number};
}

/* Sends what there is room for, of the first `ready` bytes. */
static void push(exchange *x, int to, int lane, message *m, const header *h, const piece *p, int64_t ready)
{
    void *at;
    if (!m->begun) {
        if (x->ops->room(x->transport, to, lane, &at) < sizeof *h) return;
        memcpy(at, h, sizeof *h);
        x->ops->commit(x->transport, to, lane, sizeof *h);
        m->begun = true;
    }
    while (m->n < p->bytes) {
        int64_t room = (int64_t)x->ops->room(x->transport, to, lane, &at), left = p->bytes - m->n, n = ready - m->n;
        n = n < left ? n / LC__GRAIN * LC__GRAIN : left;
        if (n > room) n = room;
        if (n <= 0) return;
        memcpy(at, p->from + m->n, (size_t)n);
        if (padded(n) > n) memset((char *)at + n, 0, (size_t)(padded(n) - n));
        x->ops->commit(x->transport, to, lane, (size_t)padded(n));
        x->moved++;
        m->n += padded(n);
    }
}

static lc_status mismatch(exchange *x, int from, const header *got, const header *want)
{
    char theirs[LC_COMM_CALL_TEXT], ours[LC_COMM_CALL_TEXT], why[512];
    lc_comm_call call = {
        (lc_collective)got->op, (lc_reduce_op)got->reduce, (lc_dtype)got->dtype, got->peer, NULL, NULL, got->count};
    lc_comm_call_text(&call, theirs, sizeof theirs);
    call = (lc_comm_call){(lc_collective)want->op,
                          (lc_reduce_op)want->reduce,
                          (lc_dtype)want->dtype,
                          want->peer,
                          NULL,
                          NULL,
                          want->count};
    lc_comm_call_text(&call, ours, sizeof ours);
    snprintf(why, sizeof why,
             "the ranks make different calls: call %llu is %s on rank %d, and call %llu is %s on rank %d",
             (unsigned long long)want->number, ours, x->rank, (unsigned long long)got->number, theirs, from);
    x->ops->abort(x->transport, why);
    return lc_fail(LC_ERR_STATE, "%s", why);
}

/* A send answers a receive. */
static bool answers(const header *got, const header *want, int self)
{
    if (want->op == LC_COMM_RECV)
        return got->op == LC_COMM_SEND && got->peer == self && got->dtype == want->dtype && got->count == want->count &&
               got->number == want->number;
    return !memcmp(got, want, sizeof *got);
}

/* Takes the header, if it is there. */
static lc_status begin(exchange *x, int from, int lane, message *m, const header *want)
{
    const void *at;
    if (m->begun || x->ops->peek(x->transport, from, lane, &at) < sizeof *want) return LC_OK;
    header got;
    memcpy(&got, at, sizeof got);
    if (got.magic != MAGIC)
        return lc_fail(LC_ERR_INTERNAL, "what came from rank %d is no message (defect in the transport %s)", from,
                       x->ops->name);
    if (!answers(&got, want, x->rank)) return mismatch(x, from, &got, want);
    x->ops->consume(x->transport, from, lane, sizeof got);
    m->begun = true;
    return LC_OK;
}

static lc_status pull(exchange *x, int from, int lane, message *m, const header *want, const piece *p)
{
    const void *at;
    LC_TRY(begin(x, from, lane, m, want));
    while (m->begun && m->n < p->bytes) {
        int64_t n = (int64_t)x->ops->peek(x->transport, from, lane, &at), left = padded(p->bytes) - m->n;
        if (n > left) n = left;
        if (n <= 0) break;
        memcpy(p->to + m->n, at, (size_t)(n < p->bytes - m->n ? n : p->bytes - m->n));
        x->ops->consume(x->transport, from, lane, (size_t)n);
        x->moved++;
        m->n += n;
    }
    return LC_OK;
}

static bool through(const message *m, const piece *p)
{
    return !p->exists || (m->begun && m->n >= p->bytes);
}

static bool sent(const exchange *x, int to, int lane)
{
    return !x->ops->sent || x->ops->sent(x->transport, to, lane);
}

/* ---- the collective that runs ---- */

/* Combines a piece that all contributions have arrived of; *combined becomes its bytes. */
static lc_status combine_piece(exchange *x, const lc_comm_call *call, int64_t *combined)
{
    piece p = {0};
    int64_t n = INT64_MAX;
    header want = {0};
    const char *own = own_part(x, call);
    *combined = 0;
    for (int i = 0; i < x->size; i++) {
        if (i == x->rank) continue;
        p = a_in(x, call, i);
        if (!p.exists) return LC_OK;
        message *m = &x->peers[i].a_in;
        want = header_of(call, x->number, 0, p.bytes);
        LC_TRY(begin(x, i, LC__LANE_COLLECTIVE, m, &want));
        int64_t here =
            m->begun && !through(m, &p) ? (int64_t)x->ops->peek(x->transport, i, LC__LANE_COLLECTIVE, &x->parts[i]) : 0;
        if (here < n) n = here;
    }
    if (n > padded(p.bytes) - x->gathered) n = padded(p.bytes) - x->gathered;
    if (n <= 0) return LC_OK;
    int64_t real = n < p.bytes - x->gathered ? n : p.bytes - x->gathered;
    x->parts[x->rank] = own + x->gathered;
    lc_comm_combine(call->dtype, call->reduce, x->size, x->parts, p.to + x->gathered,
                    real / (int64_t)lc_dtype_size(call->dtype));
    for (int i = 0; i < x->size; i++) {
        if (i == x->rank) continue;
        x->ops->consume(x->transport, i, LC__LANE_COLLECTIVE, (size_t)n);
        x->peers[i].a_in.n += n;
    }
    x->gathered += n;
    x->combined = x->gathered;
    x->moved++;
    *combined = n;
    return LC_OK;
}

/* How much of this rank's segment can be sent on. */
static int64_t ready(const exchange *x, const lc_comm_call *call)
{
    if (call->op == LC_COMM_ALL_REDUCE) return x->combined;
    if (call->op == LC_COMM_BROADCAST && call->peer != x->rank) return x->peers[call->peer].a_in.n;
    return INT64_MAX;
}

static lc_status advance(exchange *x, const lc_comm_call *call, bool *done)
{
    *done = true;
    for (int64_t n = combines(call); n > 0;) LC_TRY(combine_piece(x, call, &n));
    for (int k = 1; k < x->size; k++) {
        /* Each rank begins with another one, so that no link waits while others are busy. */
        int i = (x->rank + k) % x->size;
        peer_state *s = &x->peers[i];
        piece ao = a_out(x, call, i), bo = b_out(x, call, i), ai = a_in(x, call, i), bi = b_in(x, call, i);
        header a = header_of(call, x->number, 0, ao.bytes), b = header_of(call, x->number, 1, bo.bytes);
        if (ao.exists && !through(&s->a_out, &ao)) push(x, i, LC__LANE_COLLECTIVE, &s->a_out, &a, &ao, INT64_MAX);
        if (bo.exists && through(&s->a_out, &ao) && !through(&s->b_out, &bo))
            push(x, i, LC__LANE_COLLECTIVE, &s->b_out, &b, &bo, ready(x, call));
        a.bytes = ai.bytes, b.bytes = bi.bytes;
        if (ai.exists && !combines(call)) LC_TRY(pull(x, i, LC__LANE_COLLECTIVE, &s->a_in, &a, &ai));
        if (bi.exists && through(&s->a_in, &ai)) LC_TRY(pull(x, i, LC__LANE_COLLECTIVE, &s->b_in, &b, &bi));
        *done = *done && through(&s->a_out, &ao) && through(&s->b_out, &bo) && through(&s->a_in, &ai) &&
                through(&s->b_in, &bi) && sent(x, i, LC__LANE_COLLECTIVE);
    }
    return LC_OK;
}

static void activate(exchange *x, const lc_comm_call *call)
{
    x->active = true;
    x->moved++;
    x->number++;
    x->combined = x->gathered = 0;
    for (int i = 0; i < x->size; i++) {
        peer_state *s = &x->peers[i];
        s->a_out = s->b_out = s->a_in = s->b_in = (message){0};
    }
    copy_own(x, call);
    if (x->size == 1 && combines(call) && call->in != call->out && call->count)
        memmove(call->out, call->in, (size_t)bytes_of(call));
}

static lc_status advance_collectives(exchange *x)
{
    for (pending *p; (p = x->collectives.first) != NULL;) {
        bool done;
        if (!x->active) activate(x, &p->call);
        LC_TRY(advance(x, &p->call, &done));
        if (!done) break;
        pop(&x->collectives);
        x->active = false;
    }
    return LC_OK;
}

/* ---- send and receive ---- */

static lc_status advance_own(exchange *x)
{
    peer_state *s = &x->peers[x->rank];
    while (s->sends.first && s->receives.first) {
        const pending *out = s->sends.first, *in = s->receives.first;
        header got = header_of(&out->call, out->number, 0, 0), want = header_of(&in->call, in->number, 0, 0);
        if (!answers(&got, &want, x->rank)) {
            char a[LC_COMM_CALL_TEXT], b[LC_COMM_CALL_TEXT];
            lc_comm_call_text(&out->call, a, sizeof a);
            lc_comm_call_text(&in->call, b, sizeof b);
            return lc_fail(LC_ERR_STATE, "rank %d: its %s does not fit its %s", x->rank, a, b);
        }
        if (out->call.count) memmove(in->call.out, out->call.in, (size_t)bytes_of(&in->call));
        pop(&s->sends);
        pop(&s->receives);
    }
    return LC_OK;
}

static lc_status advance_direct(exchange *x)
{
    for (int i = 0; i < x->size; i++) {
        peer_state *s = &x->peers[i];
        if (i == x->rank) {
            LC_TRY(advance_own(x));
            continue;
        }
        for (pending *p; (p = s->sends.first) != NULL; pop(&s->sends)) {
            piece out = {.from = p->call.in, .bytes = bytes_of(&p->call), .exists = true};
            header h = header_of(&p->call, p->number, 0, out.bytes);
            push(x, i, LC__LANE_DIRECT, &p->m, &h, &out, INT64_MAX);
            if (!through(&p->m, &out) || !sent(x, i, LC__LANE_DIRECT)) break;
        }
        for (pending *p; (p = s->receives.first) != NULL; pop(&s->receives)) {
            piece in = {.to = p->call.out, .bytes = bytes_of(&p->call), .exists = true};
            header h = header_of(&p->call, p->number, 0, in.bytes);
            LC_TRY(pull(x, i, LC__LANE_DIRECT, &p->m, &h, &in));
            if (!through(&p->m, &in)) break;
        }
    }
    return LC_OK;
}

/* ---- the backend ---- */

static lc_status start(void *self, const lc_comm_call *call, void *state)
{
    exchange *x = self;
    pending *p = state;
    p->call = *call;
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
    LC_TRY(advance_direct(x));
    LC_TRY(advance_collectives(x));
    if (state) *done = ((pending *)state)->done;
    return LC_OK;
}

/* Waiting costs the processor at first, then time slices, then only wake-ups: the rank that is waited for may need the
 * core. Who gives a core away on a busy machine gets it back milliseconds later, so with a core for each rank it is
 * kept for longer than what is waited for usually takes. */
enum { SPIN_NS = 50000, SPIN_CROWDED_NS = 10000, YIELD_NS = 50000 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void idle(void *self, int microseconds)
{
    exchange *x = self;
    if (!x->transport) {
        sched_yield();
        return;
    }
    int64_t now = now_ns();
    if (x->moved != x->seen) x->quiet_since = now;
    x->seen = x->moved;
    if (now - x->quiet_since < x->spin_ns) return;
    if (now - x->quiet_since < x->spin_ns + YIELD_NS)
        sched_yield();
    else
        x->ops->idle(x->transport, microseconds);
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
    free(x->peers);
    free(x->parts);
    free(x);
}

/* ---- groups ---- */

static lc_status wait_for(exchange *x, const pending *p)
{
    bool done = false;
    while (!p->done) {
        LC_TRY(poll_all(x, NULL, &done));
        if (!p->done) idle(x, 100);
    }
    return LC_OK;
}

typedef struct group {
    exchange *parent;
    int *members; /* ranks of the parent, in the order of the new ranks */
    int n, rank;
} group;

/* The members tell each other, over the parent's direct lane. */
static lc_status group_all_gather(void *ctx, const void *mine, void *all, size_t bytes)
{
    group *g = ctx;
    lc_status status = LC_OK;
    pending *calls = calloc(2 * (size_t)g->n, sizeof *calls);
    if (!calls) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", g->n);
    for (int i = 0; i < g->n; i++) {
        lc_comm_call out = {LC_COMM_SEND, 0, LC_U8, g->members[i], mine, NULL, (int64_t)bytes};
        lc_comm_call in = {LC_COMM_RECV,  0, LC_U8, g->members[i], NULL, (char *)all + (size_t)i * bytes,
                           (int64_t)bytes};
        LC_TRY_GOTO(status, done, start(g->parent, &out, &calls[2 * i]));
        LC_TRY_GOTO(status, done, start(g->parent, &in, &calls[2 * i + 1]));
    }
    for (int i = 0; i < 2 * g->n; i++) LC_TRY_GOTO(status, done, wait_for(g->parent, &calls[i]));
done:
    free(calls); /* after an error nothing runs on the parent again: comm.c sees to it */
    return status;
}

/* Members of this rank's colour by (key, rank). */
static void order_members(group *g, const int32_t (*told)[2], int size, int rank)
{
    for (int i = 0; i < size; i++) {
        if (told[i][0] != told[rank][0]) continue;
        int at = g->n++;
        for (; at > 0 && told[g->members[at - 1]][1] > told[i][1]; at--) g->members[at] = g->members[at - 1];
        g->members[at] = i;
    }
    while (g->members[g->rank] != rank) g->rank++;
}

static lc_status make(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size, exchange **out)
{
    exchange *x = calloc(1, sizeof *x);
    if (x) {
        x->peers = calloc((size_t)size, sizeof *x->peers);
        x->parts = calloc((size_t)size, sizeof *x->parts);
    }
    if (!x || !x->peers || !x->parts) {
        if (transport) ops->close(transport);
        if (x) free(x->peers), free(x->parts);
        free(x);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a communicator of %d ranks", size);
    }
    x->ops = ops;
    x->transport = transport;
    x->opening = opening;
    x->rank = rank;
    x->size = size;
    x->spin_ns = size <= sysconf(_SC_NPROCESSORS_ONLN) ? SPIN_NS : SPIN_CROWDED_NS;
    *out = x;
    return LC_OK;
}

static lc_status split(void *self, int color, int key, int *rank, int *size, void **out)
{
    exchange *x = self, *made = NULL;
    lc_status status = LC_OK;
    void *transport = NULL;
    int32_t mine[2] = {color, key};
    int32_t(*told)[2] = calloc((size_t)x->size, sizeof *told);
    group g = {.parent = x, .members = calloc((size_t)x->size, sizeof(int))};
    pending p = {0};
    if (!told || !g.members)
        LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", x->size));
    lc_comm_call ask = {LC_COMM_ALL_GATHER, 0, LC_I32, -1, mine, told, 2};
    LC_TRY_GOTO(status, done, start(x, &ask, &p));
    LC_TRY_GOTO(status, done, wait_for(x, &p));
    if (color >= 0) {
        order_members(&g, (const int32_t(*)[2])told, x->size, x->rank);
        lc__meeting meeting = {group_all_gather, &g};
        if (g.n > 1) LC_TRY_GOTO(status, done, x->ops->open(x->opening, g.rank, g.n, &meeting, &transport));
        LC_TRY_GOTO(status, done, make(x->ops, transport, x->opening, g.rank, g.n, &made));
        *rank = g.rank;
        *size = g.n;
        *out = made;
    }
done:
    free(told);
    free(g.members);
    return status;
}

lc_status lc__exchange_new(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size,
                           lc_comm **out)
{
    exchange *x = NULL;
    *out = NULL;
    LC_TRY(make(ops, transport, opening, rank, size, &x));
    const lc_comm_ops backend = {
        .size = sizeof backend,
        .name = ops->name,
        .state_bytes = sizeof(pending),
        .start = start,
        .poll = poll_all,
        .split = split,
        .free = exchange_free,
        .idle = idle,
        .abort = abort_all,
    };
    return lc_comm_new(&backend, x, rank, size, out);
}

/* ---- one rank ---- */

lc_status lc_comm_self(lc_comm **out)
{
    static const lc__transport_ops none = {.name = "self"};
    return lc__exchange_new(&none, NULL, NULL, 0, 1, out);
}
