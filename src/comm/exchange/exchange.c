/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over streams of bytes, without waiting: the messages that schedule.h plans are sent, received and
 * combined here. The second message follows the first one piece by piece: what is combined is sent on while the rest
 * arrives.
 *
 * The collectives of a communicator run one after another, in the order of their calls; a message begins with a header
 * that says which call it belongs to, and the receiver compares it with its own. Send and receive go on a lane of their
 * own, where messages between two ranks keep their order but wait for nothing else. */
#include "comm/combine.h"
#include "comm/exchange/exchange_impl.h"
#include "comm/exchange/schedule_impl.h"

#include <stdio.h>
#include <string.h>

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

static pending *pop(queue *q)
{
    pending *p = q->first;
    q->first = p->next;
    if (!q->first) q->last = NULL;
    p->next = NULL;
    p->done = true;
    return p;
}

/* Written by the owner of the exchange, one at a time. */
static void note_moved(exchange *x, int64_t n)
{
    uint64_t before = atomic_load_explicit(&x->moved, memory_order_relaxed);
    atomic_store_explicit(&x->moved, before + (uint64_t)n, memory_order_relaxed);
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

/* Sends up to `n` bytes. Returns how many bytes of the stream that were: fewer, in whole grains, or all with
 * padding. */
static int64_t put(exchange *x, int to, int lane, const char *data, int64_t n)
{
    enum { MANY = 32 << 10 };
    void *at;
    size_t taken = x->ops->put && n >= MANY ? x->ops->put(x->transport, to, lane, data, (size_t)n) : LC__NO_PUT;
    if (taken != LC__NO_PUT) return (int64_t)taken;
    int64_t room = (int64_t)x->ops->room(x->transport, to, lane, &at);
    if (n > room) n = room;
    if (n <= 0) return 0;
    memcpy(at, data, (size_t)n);
    if (lc__padded(n) > n) memset((char *)at + n, 0, (size_t)(lc__padded(n) - n));
    x->ops->commit(x->transport, to, lane, (size_t)lc__padded(n));
    return lc__padded(n);
}

/* Sends what is known and has room. */
static void push(exchange *x, int to, int lane, lc__message *m, const header *h)
{
    void *at;
    if (!m->begun) {
        if (x->ops->room(x->transport, to, lane, &at) < sizeof *h) return;
        memcpy(at, h, sizeof *h);
        x->ops->commit(x->transport, to, lane, sizeof *h);
        m->begun = true;
    }
    for (int64_t n; (n = lc__message_ready(m)) > 0;) {
        const char *data = m->ranges[m->range].at + m->at;
        int64_t taken = put(x, to, m->answers ? LC__LANE_ANSWERED : lane, data, n);
        if (!taken) return;
        if (taken < n) n = taken;
        note_moved(x, n);
        x->sent += n;
        if (x->peers[to].across) x->sent_across += n;
        lc__message_advance(m, taken);
    }
}

/* The bytes that have arrived from a rank that is waited for. */
static int64_t look(exchange *x, int from, int lane, const void **at)
{
    size_t n = x->ops->peek(x->transport, from, lane, at);
    if (!n && x->ops->miss) x->ops->miss(x->transport, from, lane);
    return (int64_t)n;
}

/* As in lc_comm_history, which does not count splits. */
static unsigned long long shown_number(const exchange *x, const header *h)
{
    return h->op == LC_COMM_SEND || h->op == LC_COMM_RECV ? h->number : h->number - x->splits;
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
             shown_number(x, want), ours, x->rank, shown_number(x, got), theirs, from);
    x->ops->abort(x->transport, why);
    return lc_fail(LC_ERR_STATE, "%s", why);
}

/* Whether the message is the one wanted: a send for a receive, otherwise the same call. */
static bool answers(const header *got, const header *want, int self)
{
    if (want->op == LC_COMM_RECV)
        return got->op == LC_COMM_SEND && got->peer == self && got->dtype == want->dtype && got->count == want->count &&
               got->number == want->number;
    return !memcmp(got, want, sizeof *got);
}

static lc_status read_header(exchange *x, int from, const void *at, header *out)
{
    memcpy(out, at, sizeof *out);
    if (out->magic == MAGIC) return LC_OK;
    return lc_fail(LC_ERR_INTERNAL, "rank %d sent an invalid message (defect in the transport %s)", from, x->ops->name);
}

/* Takes the header, if it is there. */
static lc_status begin(exchange *x, int from, int lane, lc__message *m, const header *want)
{
    const void *at;
    header got;
    if (m->begun || look(x, from, lane, &at) < (int64_t)sizeof *want) return LC_OK;
    LC_TRY(read_header(x, from, at, &got));
    if (!answers(&got, want, x->rank)) return mismatch(x, from, &got, want);
    x->ops->consume(x->transport, from, lane, sizeof got);
    m->begun = true;
    return LC_OK;
}

static lc_status pull(exchange *x, int from, int lane, lc__message *m, const header *want)
{
    const void *at;
    LC_TRY(begin(x, from, lane, m, want));
    while (m->begun && m->range < m->n_ranges) {
        const lc__range *r = &m->ranges[m->range];
        int64_t n = m->answers ? (int64_t)x->ops->peek_answer(x->transport, from, &at) : look(x, from, lane, &at);
        int64_t left = r->bytes - m->at;
        if (n > lc__padded(left)) n = lc__padded(left);
        if (n <= 0) break;
        memcpy(r->at + m->at, at, (size_t)(n < left ? n : left));
        if (m->answers)
            x->ops->take_answer(x->transport, from, (size_t)n);
        else
            x->ops->consume(x->transport, from, lane, (size_t)n);
        note_moved(x, n);
        lc__message_advance(m, n);
    }
    return LC_OK;
}

static bool sent(const exchange *x, int to, int lane)
{
    return !x->ops->sent || x->ops->sent(x->transport, to, lane);
}

/* ---- the collective that runs ---- */

/* The parts are in x->parts. */
static void combine_blocks(exchange *x, const lc_comm_call *call, const lc__combination *c, int64_t bytes)
{
    enum { BLOCK = 16 << 10 }; /* stays in the first-level cache */
    int64_t width = (int64_t)lc_dtype_size(call->dtype);
    char *to = c->to + c->done;
    for (int64_t n; bytes > 0; bytes -= n, to += n) {
        n = bytes < BLOCK ? bytes : BLOCK;
        lc_comm_combine(call->dtype, call->reduce, c->n, x->parts, to, n / width);
        for (int k = 0; k < c->n; k++) {
            char *part = (char *)(uintptr_t)x->parts[k];
            if (c->answers && k != c->own) memcpy(part, to, (size_t)n);
            x->parts[k] = part + n;
        }
    }
}

/* Combines a piece of which all contributions have arrived; *combined becomes its bytes. */
static lc_status combine_piece(exchange *x, const lc_comm_call *call, lc__combination *c, int64_t *combined)
{
    int64_t n = lc__message_ready(&c->mine);
    int lane = c->answers ? LC__LANE_ANSWERED : LC__LANE_COLLECTIVE;
    *combined = 0;
    for (int k = 0; k < c->n; k++) {
        int i = c->first + k * c->step;
        if (k == c->own) continue;
        lc__message *m = &x->schedule.peers[i].in[0];
        const header want = header_of(call, x->number, 0, m->bytes);
        LC_TRY(begin(x, i, LC__LANE_COLLECTIVE, m, &want));
        int64_t here = m->begun && m->range < m->n_ranges ? look(x, i, lane, &x->parts[k]) : 0;
        if (here < n) n = here;
    }
    if (n <= 0) return LC_OK;
    const lc__range *r = &c->mine.ranges[c->mine.range];
    x->parts[c->own] = r->at + c->mine.at;
    combine_blocks(x, call, c, n);
    if (c->answers) x->sent += n * (c->n - 1);
    n = lc__padded(n);
    for (int k = 0; k < c->n; k++) {
        int i = c->first + k * c->step;
        if (k == c->own) continue;
        x->ops->consume(x->transport, i, lane, (size_t)n);
        lc__message_advance(&x->schedule.peers[i].in[0], n);
    }
    lc__message_advance(&c->mine, n);
    c->done += n;
    note_moved(x, n);
    *combined = n;
    return LC_OK;
}

/* For a rank from which this call expects nothing: if it sends something with the same number, it makes a different
 * call. */
static lc_status check_unexpected(exchange *x, const lc_comm_call *call, int from)
{
    const header want = header_of(call, x->number, 0, 0);
    header got;
    const void *at;
    if (x->ops->peek(x->transport, from, LC__LANE_COLLECTIVE, &at) < sizeof got) return LC_OK;
    LC_TRY(read_header(x, from, at, &got));
    return got.number == x->number ? mismatch(x, from, &got, &want) : LC_OK;
}

static bool is_combined(const lc__schedule *s, int rank)
{
    for (int k = 0; k < s->n_combinations; k++) {
        const lc__combination *c = &s->combinations[k];
        int i = rank - c->first;
        if (i >= 0 && i % c->step == 0 && i / c->step < c->n) return true;
    }
    return false;
}

static lc_status advance(exchange *x, const lc_comm_call *call, bool *done)
{
    *done = true;
    for (int k = 0; k < x->schedule.n_combinations; k++)
        for (int64_t n = 1; n > 0;) LC_TRY(combine_piece(x, call, &x->schedule.combinations[k], &n));
    for (int k = 1; k < x->size; k++) {
        /* Each rank begins with a different peer, so that no link idles while others are busy. */
        int i = (x->rank + k) % x->size;
        lc__message *out = x->schedule.peers[i].out, *in = x->schedule.peers[i].in;
        for (int phase = 0; phase < 2; phase++) {
            if (lc__message_through(&out[phase])) continue;
            const header h = header_of(call, x->number, phase, out[phase].bytes);
            push(x, i, LC__LANE_COLLECTIVE, &out[phase], &h);
            if (!lc__message_through(&out[phase])) break;
        }
        for (int phase = 0; phase < 2; phase++) {
            if (lc__message_through(&in[phase])) continue;
            const header h = header_of(call, x->number, phase, in[phase].bytes);
            if (phase > 0 || !is_combined(&x->schedule, i)) LC_TRY(pull(x, i, LC__LANE_COLLECTIVE, &in[phase], &h));
            if (!lc__message_through(&in[phase]) && !in[1].answers) break;
        }
        if (!in[0].exists && !in[1].exists) LC_TRY(check_unexpected(x, call, i));
        for (int phase = 0; phase < 2; phase++)
            *done = *done && lc__message_through(&out[phase]) && lc__message_through(&in[phase]);
        *done = *done && sent(x, i, LC__LANE_COLLECTIVE);
    }
    return LC_OK;
}

/* ---- in place ---- */

/* The answer is the same on all ranks. */
static bool may_be_in_place(const exchange *x, const lc_comm_call *call)
{
    return x->exposed.any && call->op == LC_COMM_ALL_REDUCE && lc__call_bytes(call) >= LC__EXPOSED_LEAST &&
           !x->schedule.per_host;
}

static lc_status combine_in_place(exchange *x, const lc_comm_call *call, bool *done)
{
    int64_t before = x->combined, own_bytes;
    LC_TRY(lc__exposed_combine(&x->exposed, call, x->tokens, x->parts, &x->combined, done));
    note_moved(x, x->combined - before);
    if (!*done) return LC_OK;
    lc__part(lc__call_bytes(call), x->size, x->rank, &own_bytes);
    /* what the others read from this rank, and what it wrote to them */
    x->sent += lc__call_bytes(call) - own_bytes + (x->size - 1) * own_bytes;
    return LC_OK;
}

static lc_status enter(exchange *x, const lc_comm_call *call, stage next)
{
    static const lc_comm_call say = {.op = LC_COMM_BARRIER, .dtype = LC_U8, .peer = -1};
    int64_t *own = &x->tokens[x->rank];
    x->stage = next;
    switch (next) {
    case ASK:
        *own = call->in == call->out ? lc__exposed_token(&x->exposed, call->out, lc__call_bytes(call)) : -1;
        return lc__schedule_begin(
            &x->schedule,
            &(lc_comm_call){
                .op = LC_COMM_ALL_GATHER, .dtype = LC_I64, .peer = -1, .in = own, .out = x->tokens, .count = 1});
    case IN_PLACE:
        x->combined = 0;
        return LC_OK;
    case SAY:
        return lc__schedule_begin(&x->schedule, &say);
    default:
        return lc__schedule_begin(&x->schedule, call);
    }
}

static lc_status activate(exchange *x, const lc_comm_call *call)
{
    x->active = true;
    note_moved(x, 1);
    x->number++;
    return enter(x, call, may_be_in_place(x, call) ? ASK : WHOLE);
}

/* Goes through as many stages as possible now. */
static lc_status advance_stages(exchange *x, const lc_comm_call *call, bool *done)
{
    for (;;) {
        if (x->stage == IN_PLACE)
            LC_TRY(combine_in_place(x, call, done));
        else
            LC_TRY(advance(x, call, done));
        if (!*done || x->stage == SAY || x->stage == WHOLE) return LC_OK;
        LC_TRY(enter(x, call,
                     x->stage == IN_PLACE                            ? SAY
                     : lc__exposed_is_common(&x->exposed, x->tokens) ? IN_PLACE
                                                                     : WHOLE));
    }
}

lc_status lc__exchange_advance_collectives(exchange *x)
{
    for (pending *p; (p = x->collectives.first) != NULL;) {
        bool done;
        if (!x->active) LC_TRY(activate(x, &p->call));
        LC_TRY(advance_stages(x, &p->call, &done));
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
            return lc_fail(LC_ERR_STATE, "rank %d: its %s does not match its %s", x->rank, a, b);
        }
        if (out->call.count) memmove(in->call.out, out->call.in, (size_t)lc__call_bytes(&in->call));
        pop(&s->sends);
        pop(&s->receives);
    }
    return LC_OK;
}

lc_status lc__exchange_advance_direct(exchange *x)
{
    for (int i = 0; i < x->size; i++) {
        peer_state *s = &x->peers[i];
        if (i == x->rank) {
            LC_TRY(advance_own(x));
            continue;
        }
        for (pending *p; (p = s->sends.first) != NULL; pop(&s->sends)) {
            const header h = header_of(&p->call, p->number, 0, p->m.bytes);
            push(x, i, LC__LANE_DIRECT, &p->m, &h);
            if (!lc__message_through(&p->m) || !sent(x, i, LC__LANE_DIRECT)) break;
        }
        for (pending *p; (p = s->receives.first) != NULL; pop(&s->receives)) {
            const header h = header_of(&p->call, p->number, 0, p->m.bytes);
            LC_TRY(pull(x, i, LC__LANE_DIRECT, &p->m, &h));
            if (!lc__message_through(&p->m)) break;
        }
    }
    return LC_OK;
}
