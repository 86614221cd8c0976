/* SPDX-License-Identifier: Apache-2.0 */
/* "tcp": ranks anywhere. Any two have a connection for each lane, so that a full lane does not hold up the other, and
 * one for words (goodbye, or the reason of an abort).
 *
 * Each end of a lane has a ring for what goes out and one for what has come in: transports promise contiguous memory
 * and whole grains, which sockets do not. Bytes move between rings and sockets inside of `progress` only; a call is
 * done when its bytes are with the kernel (`sent`), so that no bytes wait in a rank that computes.
 *
 * A rank that disappears without a goodbye is lost, which is an error at once. After a goodbye it is an error only if
 * something is still expected from the rank. The network between two ranks may fail while both run on and others still
 * reach them: so connections use keep-alive probes, and a lane that carries nothing while the words still flow counts
 * as lost, too.
 *
 * If connections are sealed (tcp_records.h), there are records between the rings and the socket. One that is not what
 * the other rank has sent ends the lane and the group. */
#define _GNU_SOURCE /* ppoll */
#include "comm/comm_internal.h"
#include "base/handle.h"
#include "comm/control/control_internal.h"
#include "comm/control/wire.h"
#include "comm/exchange/schedule.h"
#include "comm/net/socket.h"
#include "comm/transport/tcp_lanes.h"
#include "comm/transport/tcp_mesh.h"
#include "base/at_fork.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK 0.5 /* seconds between two looks at all lanes */
enum { STREAMS = LC__LANES + 1, WORDS = LC__LANES, LOOKS = 3 };
/* Large data is sent past the outgoing ring; the incoming ring must have room for what arrives while a thread rests
 * (nap). */
static const size_t out_bytes[LC__LANES] = {[LC__LANE_COLLECTIVE] = 64 << 10, [LC__LANE_DIRECT] = 64 << 10};
static const size_t in_bytes[LC__LANES] = {[LC__LANE_COLLECTIVE] = 512 << 10, [LC__LANE_DIRECT] = 64 << 10};

/* For this rank itself, and for ranks reached in other ways (mixed.c), memory is NULL. */
typedef struct peer {
    lc__lane lanes[LC__LANES];
    char *memory;               /* of the rings */
    lc__wire words;             /* its fd stays open until the end: abort may use it from another thread */
    bool quiet;                 /* no words will come */
    bool left;                  /* it has said goodbye */
    bool tampered;              /* what it sent was changed on its way */
    int cut;                    /* of the last LOOKS, how many found a lane that carries nothing */
    char local[64], remote[64]; /* addresses of this rank and of the peer, between the two */
} peer;

typedef struct group {
    lc__tcp_place here;
    int rank, size;
    peer *peers;
    struct pollfd *polled; /* [size,STREAMS] */
    int missed;            /* a rank that has left and is still needed; -1 */
    int lost;              /* a rank that is gone without a goodbye, or cut off; -1 */
    double look;           /* when to look at lanes */
    atomic_int aborted;    /* 1: `why` is being written; 2: it is written */
    char why[512];
    lc__at_fork forked;
} group;

/* ---- rings ---- */

static size_t room(void *self, int to, int l, void **at)
{
    group *g = self;
    peer *p = &g->peers[to];
    lc__ring *r = &p->lanes[l].out;
    if (p->left) g->missed = to;
    *at = r->data + r->written % out_bytes[l];
    return lc__ring_until_wrap(r->written, out_bytes[l] - lc__ring_filled(r), out_bytes[l]) / LC__GRAIN * LC__GRAIN;
}

static void commit(void *self, int to, int l, size_t n)
{
    group *g = self;
    g->peers[to].lanes[l].out.written += n;
}

/* Sends past the ring, whose counts change as if the bytes had gone through it. Only the rest of a grain that was begun
 * does go through it. */
static size_t put(void *self, int to, int l, const void *data, size_t n)
{
    group *g = self;
    peer *p = &g->peers[to];
    lc__lane *c = &p->lanes[l];
    lc__ring *r = &c->out;
    if (p->left) g->missed = to;
    if (!c->closed) lc__lane_send(c, out_bytes[l]);
    if (c->closed || lc__lane_has_more(c)) return 0;
    if (c->records) return lc__lane_put_sealed(c, data, n);
    ssize_t k = lc__socket_send(c->fd, data, n);
    c->full = k < (ssize_t)n;
    c->closed = k < 0;
    if (k <= 0) return 0;
    size_t taken = (size_t)lc__padded(k), rest = taken < n ? taken - (size_t)k : n - (size_t)k;
    r->read = r->written += (size_t)k;
    char *at = r->data + r->written % out_bytes[l];
    memcpy(at, (const char *)data + k, rest);
    memset(at + rest, 0, taken - (size_t)k - rest);
    r->written += taken - (size_t)k;
    return taken;
}

static bool sent(void *self, int to, int l)
{
    group *g = self;
    peer *p = &g->peers[to];
    if (!lc__lane_has_more(&p->lanes[l])) return true;
    if (p->left) g->missed = to;
    return false;
}

static size_t peek(void *self, int from, int l, const void **at)
{
    group *g = self;
    peer *p = &g->peers[from];
    lc__ring *r = &p->lanes[l].in;
    *at = r->data + r->read % in_bytes[l];
    return lc__ring_until_wrap(r->read, lc__ring_filled(r), in_bytes[l]) / LC__GRAIN * LC__GRAIN;
}

static void miss(void *self, int from, int l)
{
    group *g = self;
    const peer *p = &g->peers[from];
    if (p->left && p->lanes[l].closed && !lc__lane_can_open(&p->lanes[l], in_bytes[l])) g->missed = from;
}

static void consume(void *self, int from, int l, size_t n)
{
    group *g = self;
    g->peers[from].lanes[l].in.read += n;
}

/* ---- moving ---- */

/* The first reason stays. */
static bool set_reason(group *g, const char *why)
{
    int nobody = 0;
    if (!atomic_compare_exchange_strong(&g->aborted, &nobody, 1)) return false;
    snprintf(g->why, sizeof g->why, "%s", why);
    return true;
}

static void hear(group *g, int from)
{
    peer *p = &g->peers[from];
    lc__frame f;
    char why[sizeof g->why];
    bool open = lc__wire_fill(&p->words);
    int got;
    while ((got = lc__wire_next(&p->words, &f)) > 0) {
        if (f.kind == LC__FRAME_BYE) p->left = true;
        if (f.kind != LC__FRAME_END) continue;
        lc__frame_lines(f.data, f.n, why, sizeof why);
        if (!*why) snprintf(why, sizeof why, "rank %d has ended the group without a reason", from);
        if (set_reason(g, why)) atomic_store_explicit(&g->aborted, 2, memory_order_release);
    }
    if (open && got == 0) return;
    p->quiet = true;
    p->tampered |= p->words.tampered;
    if (!p->left && g->lost < 0) g->lost = from;
}

/* Opens records that had no room before. Returns whether there are any that have room now. */
static bool open_all(group *g, bool look_only)
{
    bool some = false;
    for (int i = 0; i < g->size && g->here.security; i++)
        for (int l = 0; l < LC__LANES && g->peers[i].memory; l++) {
            lc__lane *c = &g->peers[i].lanes[l];
            some |= lc__lane_can_open(c, in_bytes[l]);
            if (!look_only) lc__lane_open(c, in_bytes[l]);
            if (c->records->tampered && g->lost < 0) g->peers[i].tampered = true, g->lost = i;
        }
    return some;
}

/* Lists what to poll for. A lane with nothing to send and no room to receive is skipped. */
static nfds_t list(group *g)
{
    nfds_t n = 0;
    for (int i = 0; i < g->size; i++) {
        peer *p = &g->peers[i];
        if (!p->memory) continue;
        for (int l = 0; l < LC__LANES; l++) {
            lc__lane *c = &p->lanes[l];
            bool more = (lc__lane_has_more(c) || c->full) && !p->left;
            bool takes = c->records ? lc__records_take_more(c->records) : lc__ring_filled(&c->in) < in_bytes[l];
            int events = (takes ? POLLIN : 0) | (more ? POLLOUT : 0);
            g->polled[n++] = (struct pollfd){.fd = c->closed || !events ? -1 : c->fd, .events = (short)events};
        }
        g->polled[n++] = (struct pollfd){.fd = p->quiet ? -1 : p->words.fd, .events = POLLIN};
    }
    return n;
}

static void move(group *g)
{
    nfds_t n = 0;
    for (int i = 0; i < g->size; i++) {
        if (!g->peers[i].memory) continue;
        for (int l = 0; l < LC__LANES; l++, n++) {
            lc__lane *c = &g->peers[i].lanes[l];
            int what = g->polled[n].revents;
            if (what & POLLOUT) {
                c->full = false;
                lc__lane_send(c, out_bytes[l]);
            }
            if (what & ~POLLOUT && !c->closed) lc__lane_receive(c, in_bytes[l]);
        }
        if (g->polled[n++].revents) hear(g, i);
    }
}

static bool is_cut(const group *g, const peer *p)
{
    for (int l = 0; l < LC__LANES; l++)
        if (p->lanes[l].closed || lc__socket_is_unanswered(p->lanes[l].fd, g->here.silence)) return true;
    return false;
}

/* When a rank leaves, its lanes end and its goodbye has arrived. Without a goodbye, only the lane is lost. */
static void look_at_lanes(group *g)
{
    double now = lc__seconds();
    if (now < g->look) return;
    g->look = now + LOOK;
    for (int i = 0; i < g->size; i++) {
        peer *p = &g->peers[i];
        if (!p->memory || p->left) continue;
        p->cut = is_cut(g, p) ? p->cut + 1 : 0;
        if (p->cut >= LOOKS && g->lost < 0) g->lost = i;
    }
}

/* Why this rank cannot go on, or "". */
static void find_failure(const group *g, char *why, size_t size)
{
    const peer *p = g->lost >= 0 ? &g->peers[g->lost] : NULL;
    *why = 0;
    if (p && p->tampered)
        snprintf(why, size, "rank %d is lost: " LC__TAMPERED " (%s to %s)", g->lost, p->remote, p->local);
    else if (p && p->cut >= LOOKS)
        snprintf(why, size,
                 "rank %d is lost: one of its connections to rank %d no longer carries data (%s to %s); check whether "
                 "the network between the hosts is down, or a firewall closes connections",
                 g->lost, g->rank, p->remote, p->local);
    else if (p)
        snprintf(why, size, "rank %d is lost: its connection to rank %d is closed (%s to %s)", g->lost, g->rank,
                 p->remote, p->local);
    else if (g->missed >= 0)
        snprintf(why, size, LC__MISSED_TEXT, g->missed, g->rank);
}

static lc_status progress(void *self)
{
    group *g = self;
    char why[sizeof g->why];
    if (poll(g->polled, list(g), 0) > 0) move(g);
    (void)open_all(g, false);
    look_at_lanes(g);
    if (atomic_load_explicit(&g->aborted, memory_order_acquire) == 2) return lc_fail(LC_ERR_PEER, "%s", g->why);
    if (g->lost < 0 && g->missed < 0) return LC_OK;
    find_failure(g, why, sizeof why);
    return lc_fail(LC_ERR_PEER, "%s", why);
}

static void idle(void *self, int microseconds)
{
    group *g = self;
    struct timespec t = {microseconds / 1000000, microseconds % 1000000 * 1000L};
    nfds_t n = list(g);
    if (open_all(g, true)) return; /* a record is there already */
    if (atomic_load_explicit(&g->aborted, memory_order_relaxed) != 2) ppoll(g->polled, n, &t, NULL);
}

/* ---- ending ---- */

static void say(group *g, lc__frame_kind kind, const char *text)
{
    for (int i = 0; i < g->size; i++) { /* a word always fits into the socket's buffer: there is only one */
        lc__wire *w = &g->peers[i].words;
        if (g->peers[i].memory && lc__wire_put(w, kind, NULL, 0, text, strlen(text))) (void)lc__wire_flush(w);
    }
}

static void abort_all(void *self, const char *why)
{
    group *g = self;
    if (!set_reason(g, why)) return;
    say(g, LC__FRAME_END, g->why);
    atomic_store_explicit(&g->aborted, 2, memory_order_release);
}

/* Runs in a forked child: connections must end with the parent. */
static void close_in_child(void *self)
{
    group *g = self;
    for (int i = 0; i < g->size; i++) {
        peer *p = &g->peers[i];
        int *const fds[STREAMS] = {&p->lanes[0].fd, &p->lanes[1].fd, &p->words.fd};
        for (int s = 0; s < STREAMS; s++)
            if (*fds[s] >= 0) close(*fds[s]), *fds[s] = -1;
        for (int l = 0; l < LC__LANES; l++) p->lanes[l].closed = true;
    }
}

static void close_all(void *self)
{
    group *g = self;
    lc__at_fork_remove(&g->forked);
    char why[sizeof g->why];
    find_failure(g, why, sizeof why); /* others may be waiting for this rank, not for the one it has lost */
    if (*why) abort_all(g, why);
    /* Passes the reason on: its sender may not have reached every rank before this connection closed. */
    if (atomic_load_explicit(&g->aborted, memory_order_acquire) != 2)
        say(g, LC__FRAME_BYE, "");
    else if (*g->why)
        say(g, LC__FRAME_END, g->why);
    for (int i = 0; i < g->size; i++) {
        peer *p = &g->peers[i];
        for (int l = 0; l < LC__LANES; l++) {
            if (p->lanes[l].fd >= 0) close(p->lanes[l].fd);
            lc__records_free(p->lanes[l].records);
        }
        lc__wire_release(&p->words);
        free(p->memory);
    }
    free(g->peers);
    free(g->polled);
    free(g);
}

/* ---- beginning ---- */

static bool rings_new(peer *p)
{
    size_t all = 0;
    for (int l = 0; l < LC__LANES; l++) all += in_bytes[l] + out_bytes[l];
    p->memory = malloc(all);
    if (!p->memory) return false;
    char *at = p->memory;
    for (int l = 0; l < LC__LANES; l++) {
        p->lanes[l].in.data = at;
        p->lanes[l].out.data = at + in_bytes[l];
        at += in_bytes[l] + out_bytes[l];
    }
    return true;
}

static group *group_new(int rank, int size, const bool *without)
{
    group *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->rank = rank;
    g->size = size;
    g->missed = g->lost = -1;
    g->peers = calloc((size_t)size, sizeof *g->peers);
    g->polled = calloc((size_t)size * STREAMS, sizeof *g->polled);
    bool fits = g->peers && g->polled;
    for (int i = 0; i < size && g->peers; i++) {
        g->peers[i].words.fd = -1;
        for (int l = 0; l < LC__LANES; l++) g->peers[i].lanes[l].fd = -1;
        if (i != rank && !(without && without[i]) && !rings_new(&g->peers[i])) fits = false;
    }
    if (fits) return g;
    for (int i = 0; i < size && g->peers; i++) free(g->peers[i].memory);
    free(g->peers), free(g->polled), free(g);
    return NULL;
}

static lc_status seal_peer(const group *g, peer *p, const lc__tcp_keys keys[STREAMS])
{
    bool encrypts = g->here.security == LC__SECURITY_ENCRYPT;
    for (int l = 0; l < LC__LANES; l++)
        LC_TRY(lc__records_new(keys[l].closes, keys[l].opens, encrypts, &p->lanes[l].records));
    LC_TRY(lc__seal_new(keys[WORDS].closes, false, true, &p->words.sends));
    return lc__seal_new(keys[WORDS].opens, true, true, &p->words.takes);
}

static void connect_peer(const group *g, peer *p, const int fds[STREAMS])
{
    for (int s = 0; s < STREAMS; s++) lc__socket_watch(fds[s], g->here.silence);
    for (int l = 0; l < LC__LANES; l++) p->lanes[l].fd = fds[l];
    lc__wire_init(&p->words, fds[WORDS], 2 * sizeof g->why);
    lc__socket_local(fds[WORDS], p->local, sizeof p->local);
    lc__socket_remote(fds[WORDS], p->remote, sizeof p->remote);
}

static lc_status check_security(const lc__tcp_place *here)
{
    if (here->security == LC__SECURITY_NONE || !lc__proof_reveals()) return LC_OK;
    return lc_fail(LC_ERR_UNSUPPORTED, "comm_security=%s: connections cannot be sealed, because %s",
                   lc__security_name(here->security), lc__proof_why_not());
}

lc_status lc__tcp_open(const lc__tcp_place *here, int rank, int size, const bool *without, const lc__meeting *meeting,
                       void **out)
{
    lc_status status = LC_OK, prepared = LC_OK;
    group *g = group_new(rank, size, without);
    int *fds = calloc((size_t)size * STREAMS, sizeof *fds);
    lc__tcp_keys *keys = here->security ? calloc((size_t)size * STREAMS, sizeof *keys) : NULL;
    if (!g || !fds || (here->security && !keys))
        prepared = lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks over tcp", size);
    if (prepared >= 0) prepared = check_security(here);
    LC_TRY_GOTO(status, done, lc__tcp_mesh(prepared, here, rank, size, without, STREAMS, meeting, fds, keys));
    g->here = *here;
    for (int i = 0; i < size; i++)
        if (g->peers[i].memory) connect_peer(g, &g->peers[i], &fds[i * STREAMS]);
    for (int i = 0; i < size && keys && status >= 0; i++)
        if (g->peers[i].memory) status = seal_peer(g, &g->peers[i], &keys[i * STREAMS]);
    if (status < 0) goto done; /* the others notice that this rank is gone */
    g->forked = (lc__at_fork){.in_child = close_in_child, .self = g};
    lc__at_fork_add(&g->forked);
    *out = g;
    g = NULL;
done:
    if (g) atomic_store(&g->aborted, 2), close_all(g);
    free(fds);
    free(keys);
    return status;
}

static lc_status open_group(void *here, int rank, int size, const lc__meeting *meeting, void **out)
{
    return lc__tcp_open(here, rank, size, NULL, meeting, out);
}

/* Groups are reached at the same place as the group that they are split from. */
static lc_status prepare(void *self, int color, int key, void **opening)
{
    group *g = self;
    (void)key;
    *opening = color < 0 ? NULL : &g->here;
    return LC_OK;
}

const lc__transport_ops lc__tcp = {
    .name = "tcp",
    .prepare = prepare,
    .wants_thread = true,
    .open = open_group,
    .close = close_all,
    .room = room,
    .commit = commit,
    .put = put,
    .sent = sent,
    .peek = peek,
    .consume = consume,
    .miss = miss,
    .progress = progress,
    .idle = idle,
    .abort = abort_all,
};

lc_status lc__comm_tcp(const lc__tcp_place *here, int rank, int size, const lc_meeting *given, lc_comm **out)
{
    void *end = NULL;
    lc_meeting meeting;
    *out = NULL;
    LC_TRY(lc__comm_take_meeting(rank, size, given, &meeting));
    if (size > 1) LC_TRY(lc__tcp_open(here, rank, size, NULL, &meeting, &end));
    return lc__exchange_new(&lc__tcp, end, NULL, rank, size, out);
}

lc_status lc_comm_tcp(const char *address, int rank, int size, const lc_meeting *meeting, lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc__tcp_place here;
    *out = NULL;
    LC_TRY(lc__tcp_place_set(&here, address, "", 0));
    return lc__comm_tcp(&here, rank, size, meeting, out);
}
