/* SPDX-License-Identifier: Apache-2.0 */
/* Data connections of two ranks, with an attacker in between: both are real ends of src/comm/transport/tcp.c that make
 * the same calls. What each sends is split into its units (grains, sealed records, control messages), changed as the
 * input says, and passed on. The input:
 *
 *   byte 0   comm_security, and whether the attacker knows the keys and seals changed units again
 *   byte 1   the number of calls; then two bytes each: the kind, and the size
 *   changes  CHANGE bytes each: on which connection, at which unit, what
 *
 * Whatever is changed, each call succeeds or fails with a printable error, and no rank waits here: both are polled as
 * long as anything moves. A sealed call that succeeds has the same data as without changes, unless the attacker knows
 * the keys. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "comm/comm_internal.h"
#include "comm/control/wire.h"
#include "comm/progress_thread.h"
#include "comm/net/socket.h"
#include "comm/transport/tcp_mesh.h"
#include "comm/transport/tcp_records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed);

enum { RANKS = 2, STREAMS = LC__LANES + 1, WORDS = LC__LANES, CALLS = 6, CHANGE = 6, QUIET = 20, STEPS = 20000 };

/* ---- replaces the library's: connections that exist already, and no thread ---- */

static struct {
    int fds[STREAMS];
    lc__tcp_keys keys[STREAMS];
} ends[RANKS];

lc_status lc__tcp_mesh(lc_status prepared, const lc__tcp_place *here, int rank, int size, const bool *without,
                       int streams, const lc__meeting *meeting, int *fds, lc__tcp_keys *keys)
{
    int other = 1 - rank;
    (void)here, (void)size, (void)without, (void)meeting;
    if (prepared < 0) return prepared;
    for (int s = 0; s < streams; s++) {
        fds[rank * streams + s] = -1;
        fds[other * streams + s] = ends[rank].fds[s];
        if (keys) keys[other * streams + s] = ends[rank].keys[s];
    }
    return LC_OK;
}

lc_status lc__progress_thread_new(lc_comm_ops *ops, void **self)
{
    (void)ops, (void)self;
    return LC_OK;
}

void lc__progress_thread_drop(void *self)
{
    (void)self;
}

/* ---- changes ---- */

typedef enum kind { FLIP, SET, RESIZE, DROP, REPEAT, SWAP, INSERT, DELAY, CUT, KINDS } kind;

typedef struct change {
    uint8_t where, unit, kind, at, low, high; /* where: the sender and the stream */
} change;
_Static_assert(sizeof(change) == CHANGE, "a change is read as it is");

static const uint32_t numbers[] = {0,
                                   1,
                                   2,
                                   15,
                                   16,
                                   17,
                                   63,
                                   64,
                                   65,
                                   1024,
                                   LC__RECORD - 1,
                                   LC__RECORD,
                                   LC__RECORD + 1,
                                   INT32_MAX,
                                   UINT32_C(1) << 31,
                                   UINT32_MAX - 15,
                                   UINT32_MAX};

static uint32_t number_of(const change *c)
{
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    return c->high % 2 ? numbers[c->low % NUMBERS] : c->low;
}

typedef struct piece {
    uint8_t bytes[LC__RECORD_MOST];
    size_t n;
} piece;

/* What one rank sends on one connection. */
typedef struct flow {
    int from, to;
    size_t head, length_at;   /* of a unit; head 0: a grain */
    bool tag_counts;          /* the length includes the tag */
    lc__seal *opens, *closes; /* of an attacker that knows the keys; NULL: it does not */
    const change *changes;
    int n_changes;
    uint8_t number; /* of the stream, as in `where` */
    unsigned units;
    int delay;
    bool over, cut;
    uint8_t in[2 * LC__RECORD_MOST], out[8 * LC__RECORD_MOST];
    size_t n_in, n_out;
    piece held;
} flow;

static flow flows[RANKS][STREAMS];

static void queue(flow *f, const uint8_t *bytes, size_t n)
{
    if (n > sizeof f->out - f->n_out) return; /* too many units were inserted or repeated */
    memcpy(f->out + f->n_out, bytes, n);
    f->n_out += n;
}

/* `body` is a unit without its head and tag, if the attacker knows the keys. */
static void emit(flow *f, const uint8_t *head, const piece *body)
{
    static piece p;
    if (!f->closes) {
        queue(f, body->bytes, body->n);
        return;
    }
    size_t n = body->n > LC__RECORD ? LC__RECORD : body->n;
    memcpy(p.bytes, head, f->head);
    memcpy(p.bytes + f->head, body->bytes, n);
    lc__put_u32(p.bytes + f->length_at, (uint32_t)(n + (f->tag_counts ? LC__SEAL_TAG : 0)));
    if (!lc__seal_close(f->closes, p.bytes, f->head, p.bytes + f->head, n, p.bytes + f->head + n)) abort();
    queue(f, p.bytes, f->head + n + LC__SEAL_TAG);
}

static void resize(piece *p, size_t n)
{
    if (n > sizeof p->bytes) n = sizeof p->bytes;
    if (n > p->n) memset(p->bytes + p->n, 0, n - p->n);
    p->n = n;
}

/* How many times the unit is sent. */
static int apply(flow *f, const change *c, const uint8_t *head, piece *p)
{
    static piece noise;
    size_t at = p->n ? (size_t)c->at * 4 % p->n : 0;
    switch (c->kind % KINDS) {
    case FLIP:
        if (p->n) p->bytes[((size_t)c->at * 257 + c->high) % p->n] ^= (uint8_t)(1 << c->low % 8);
        return 1;
    case SET:
        if (p->n - at >= 4) lc__put_u32(p->bytes + at, number_of(c));
        return 1;
    case RESIZE:
        resize(p, number_of(c));
        return 1;
    case DROP:
        return 0;
    case REPEAT:
        return 2;
    case SWAP:
        f->held = *p;
        return 0;
    case INSERT:
        noise.n = 0;
        resize(&noise, number_of(c) % 4096);
        memset(noise.bytes, c->at, noise.n);
        emit(f, head, &noise);
        return 1;
    case DELAY:
        f->delay = c->low % QUIET;
        return 1;
    default:
        f->cut = true;
        return c->low % 2;
    }
}

static void pass(flow *f, uint8_t *unit, size_t n)
{
    static piece p;
    unsigned number = f->units++;
    size_t head = f->closes ? f->head : 0;
    int times = 1;
    p.n = n - (f->closes ? f->head + LC__SEAL_TAG : 0);
    if (f->opens && !lc__seal_open(f->opens, unit, head, unit + head, p.n, unit + head + p.n)) abort();
    memcpy(p.bytes, unit + head, p.n);
    for (int i = 0; i < f->n_changes && !f->cut; i++)
        if (f->changes[i].where % (RANKS * STREAMS) == f->number && f->changes[i].unit == number)
            times = apply(f, &f->changes[i], unit, &p);
    for (int i = 0; i < times; i++) emit(f, unit, &p);
    if (times && f->held.n) emit(f, unit, &f->held), f->held.n = 0;
}

/* The bytes of the next unit from a real end; 0: incomplete. */
static size_t next_unit(const flow *f, size_t at)
{
    size_t there = f->n_in - at;
    if (there < (f->head ? f->head : LC__GRAIN)) return 0;
    if (!f->head) return LC__GRAIN;
    size_t n = f->head + lc__get_u32(f->in + at + f->length_at) + (f->tag_counts ? 0 : LC__SEAL_TAG);
    if (n > LC__RECORD_MOST) abort();
    return there < n ? 0 : n;
}

/* Whether anything has moved. */
static bool carry(flow *f)
{
    bool moved = false;
    if (f->n_out) {
        ssize_t k = lc__socket_send(f->to, f->out, f->n_out);
        if (k < 0) f->over = true, f->n_out = 0;
        moved = k > 0;
        if (k > 0) memmove(f->out, f->out + k, f->n_out -= (size_t)k);
    }
    if (f->cut && !f->n_out && !f->over) {
        f->over = moved = true;
        (void)shutdown(f->to, SHUT_WR);
    }
    if (f->delay > 0) return f->delay--, true;
    if (f->over || f->cut || f->n_out > sizeof f->out / 4) return moved;
    ssize_t k = f->n_in < sizeof f->in ? lc__socket_recv(f->from, f->in + f->n_in, sizeof f->in - f->n_in) : 0;
    if (k > 0) f->n_in += (size_t)k, moved = true;
    size_t at = 0, n;
    while (!f->cut && !f->delay && f->n_out < sizeof f->out / 2 && (n = next_unit(f, at)) > 0) {
        pass(f, f->in + at, n);
        at += n;
    }
    memmove(f->in, f->in + at, f->n_in -= at);
    if (k < 0 && !f->n_in) f->cut = true; /* the end of the connection is passed on too */
    return moved || at;
}

/* ---- the calls ---- */

typedef struct what {
    lc_comm_call call;
    void *in, *out;
    size_t out_bytes;
    lc_request *request;
    bool done;
    lc_status status;
} what;

static what whats[RANKS][CALLS];

static void make_call(what *w, int rank, int k, uint8_t op, uint8_t much)
{
    static const int counts[] = {0, 1, 3, 16, 17, 1000, 9000, 20000};
    int sender = much / 8 % RANKS;
    *w = (what){.call = {.op = (lc_collective)(LC_COMM_BARRIER + op % LC_COMM_SEND),
                         .reduce = LC_COMM_SUM,
                         .dtype = LC_I32,
                         .peer = sender,
                         .count = counts[much % 8]}};
    if (w->call.op >= LC_COMM_SEND) {
        w->call.op = rank == sender ? LC_COMM_SEND : LC_COMM_RECV;
        w->call.peer = 1 - rank;
    }
    size_t n = (size_t)w->call.count * RANKS; /* the parts of both ranks, at most */
    w->out_bytes = n * sizeof(int32_t);
    w->in = malloc(w->out_bytes + 1), w->out = calloc(1, w->out_bytes + 1);
    if (!w->in || !w->out) abort();
    for (size_t i = 0; i < n; i++) {
        int32_t v = (int32_t)((i * 7 + (size_t)rank * 13 + (size_t)k * 5) % 101);
        memcpy((char *)w->in + i * sizeof v, &v, sizeof v);
        if (w->call.op == LC_COMM_BROADCAST && rank == sender) memcpy((char *)w->out + i * sizeof v, &v, sizeof v);
    }
    w->call.in = w->in, w->call.out = w->out;
}

static void check_printable(const char *text)
{
    if (!*text) abort();
    for (; *text; text++)
        if (((unsigned char)*text < ' ' && *text != '\n' && *text != '\t') || *text == 127) abort();
}

static void look_at(what *w)
{
    if (!w->request) return;
    w->status = lc_comm_poll(w->request, &w->done);
    if (w->done || w->status < 0) w->request = NULL;
    if (w->status < 0) check_printable(lc_error_message());
}

/* ---- a run ---- */

typedef struct plan {
    lc__security security;
    bool knows_keys;
    int n_calls, n_changes;
    const uint8_t *calls;
    change changes[64];
} plan;

static lc_status meet(void *ctx, const void *mine, void *all, size_t bytes)
{
    (void)ctx, (void)mine, (void)all, (void)bytes;
    return LC_OK; /* lc__tcp_mesh, which would call it, is replaced above */
}

static void open_flow(const plan *p, int from, int s, int in, int out)
{
    flow *f = &flows[from][s];
    bool sealed = p->security != LC__SECURITY_NONE, opens = sealed && p->knows_keys;
    const lc__tcp_keys *keys = &ends[from].keys[s];
    bool encrypts = s == WORDS || p->security == LC__SECURITY_ENCRYPT;
    f->from = in, f->to = out;
    f->opens = f->closes = NULL;
    f->changes = p->changes, f->n_changes = p->n_changes;
    f->number = (uint8_t)(from * STREAMS + s);
    f->head = s == WORDS ? LC__FRAME_HEAD : sealed ? LC__RECORD_HEAD : 0;
    f->length_at = s == WORDS ? 8 : 0;
    f->tag_counts = s == WORDS;
    f->units = 0, f->delay = 0;
    f->over = f->cut = false;
    f->n_in = f->n_out = f->held.n = 0;
    if (opens && (lc__seal_new(keys->closes, true, encrypts, &f->opens) < 0 ||
                  lc__seal_new(keys->closes, false, encrypts, &f->closes) < 0))
        abort();
}

static void open_all(const plan *p, lc_comm *comms[RANKS])
{
    const lc__meeting meeting = {LC_MEETING_INIT, .all_gather = meet};
    for (int s = 0; s < STREAMS; s++) {
        int pairs[RANKS][2];
        for (int r = 0; r < RANKS; r++) {
            if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pairs[r]) < 0) abort();
            ends[r].fds[s] = pairs[r][0];
            memset(ends[r].keys[s].closes, 1 + r * STREAMS + s, LC__SEAL_KEY);
            memset(ends[1 - r].keys[s].opens, 1 + r * STREAMS + s, LC__SEAL_KEY);
        }
        for (int r = 0; r < RANKS; r++) open_flow(p, r, s, pairs[r][1], pairs[1 - r][1]);
    }
    for (int r = 0; r < RANKS; r++) {
        lc__tcp_place here = {.address = "127.0.0.1", .security = p->security, .silence = 1};
        if (lc__comm_tcp(&here, r, RANKS, &meeting, &comms[r]) < 0) abort();
    }
}

static void run(const plan *p)
{
    lc_comm *comms[RANKS];
    open_all(p, comms);
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < p->n_calls; k++) {
            what *w = &whats[r][k];
            make_call(w, r, k, p->calls[2 * k], p->calls[2 * k + 1]);
            w->status = lc_comm_start(comms[r], &w->call, &w->request);
            if (w->status < 0) check_printable(lc_error_message());
        }
    for (int step = 0, quiet = 0; step < STEPS && quiet < QUIET; step++) {
        bool moved = false;
        for (int r = 0; r < RANKS; r++)
            for (int s = 0; s < STREAMS; s++) moved |= carry(&flows[r][s]);
        for (int r = 0; r < RANKS; r++)
            for (int k = 0; k < p->n_calls; k++) look_at(&whats[r][k]);
        quiet = moved ? 0 : quiet + 1;
    }
    for (int r = 0; r < RANKS; r++) { /* the other one is notified of the end, if that gets through */
        lc_comm_free(comms[r]);
        for (int s = 0; s < STREAMS && !r; s++) carry(&flows[r][s]);
        for (int k = 0; k < p->n_calls && !r; k++) look_at(&whats[1][k]);
    }
    for (int r = 0; r < RANKS; r++)
        for (int s = 0; s < STREAMS; s++) {
            lc__seal_free(flows[r][s].opens);
            lc__seal_free(flows[r][s].closes);
            close(flows[r][s].from);
        }
}

static void release_calls(const plan *p, what calls[RANKS][CALLS])
{
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < p->n_calls; k++) free(calls[r][k].in), free(calls[r][k].out);
}

/* ---- the input ---- */

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned int seed)
{
    unsigned int random = seed;
    if (size < 2 || size + CHANGE > room || rand_r(&random) % 2) return LLVMFuzzerMutate(data, size, room);
    for (int i = 0; i < CHANGE; i++) data[size++] = (uint8_t)(rand_r(&random) >> 8);
    data[size - CHANGE + 1] %= 8; /* the first units are those that exist */
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = sizeof((plan *)0)->changes / sizeof(change) };
    static what good[RANKS][CALLS];
    if (size < 2) return 0;
    plan p = {.security = (lc__security)(data[0] % 3), .knows_keys = data[0] / 3 % 2, .n_calls = 1 + data[1] % CALLS};
    p.calls = data + 2;
    if (size < 2 + 2 * (size_t)p.n_calls) return 0;
    if (lc__proof_reveals()) p.security = LC__SECURITY_NONE;
    run(&p);
    memcpy(good, whats, sizeof good);
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < p.n_calls; k++)
            if (!good[r][k].done) abort(); /* without changes all calls succeed */
    data += 2 + 2 * p.n_calls, size -= 2 + 2 * (size_t)p.n_calls;
    for (; size >= CHANGE && p.n_changes < MOST; data += CHANGE, size -= CHANGE)
        memcpy(&p.changes[p.n_changes++], data, CHANGE);
    run(&p);
    for (int r = 0; r < RANKS && p.security && !p.knows_keys; r++)
        for (int k = 0; k < p.n_calls; k++) {
            const what *w = &whats[r][k];
            if (w->done && memcmp(w->out, good[r][k].out, w->out_bytes) != 0) abort();
        }
    release_calls(&p, good);
    release_calls(&p, whats);
    return 0;
}
