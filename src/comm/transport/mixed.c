/* SPDX-License-Identifier: Apache-2.0 */
/* "shm+tcp", "shm+mpi": ranks on several hosts. Ranks of one host share memory (rings.c), others have connections
 * (tcp.c) or use another communicator (relay.c): every stream of bytes goes one way or the other, and its users need
 * not know. An abort, and a lost rank, are reported on both. */
#include "comm/transport/relay.h"
#include "base/handle.h"
#include "comm/transport/rings.h"

#include "base/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What groups are opened with; over tcp they share it. */
typedef struct opening {
    atomic_int references;
    int host;
    lc__tcp_place here;
    lc_comm *lanes[LC__LANES]; /* the relay's, until it is made; NULL: tcp */
} opening;

typedef struct mixed {
    opening *opening;
    const lc__transport_ops *far_ops;
    void *near, *far; /* an end of the rings, and of tcp or a relay */
    int rank, size;
    int *hosts;    /* [size] */
    int *near_one; /* [size] its number among the ranks of this host; -1: on another */
    int n_near;
} mixed;

static void opening_unref(opening *o)
{
    if (atomic_fetch_sub(&o->references, 1) > 1) return;
    for (int l = 0; l < LC__LANES; l++) lc_comm_free(o->lanes[l]);
    free(o);
}

static void mixed_close(void *self)
{
    mixed *m = self;
    if (m->near) lc__rings_close(m->near);
    if (m->far) m->far_ops->close(m->far);
    opening_unref(m->opening);
    free(m->hosts);
    free(m->near_one);
    free(m);
}

/* ---- one way or the other ---- */

static size_t room(void *self, int peer, int lane, void **at)
{
    mixed *m = self;
    int near = m->near_one[peer];
    return near >= 0 ? lc__rings_room(m->near, near, lane, at) : m->far_ops->room(m->far, peer, lane, at);
}

static void commit(void *self, int peer, int lane, size_t n)
{
    mixed *m = self;
    int near = m->near_one[peer];
    if (near >= 0)
        lc__rings_commit(m->near, near, lane, n);
    else
        m->far_ops->commit(m->far, peer, lane, n);
}

static size_t put(void *self, int peer, int lane, const void *data, size_t n)
{
    mixed *m = self;
    return m->near_one[peer] < 0 && m->far_ops->put ? m->far_ops->put(m->far, peer, lane, data, n) : LC__NO_PUT;
}

static bool sent(void *self, int peer, int lane)
{
    mixed *m = self;
    return m->near_one[peer] >= 0 || m->far_ops->sent(m->far, peer, lane);
}

static size_t peek(void *self, int peer, int lane, const void **at)
{
    mixed *m = self;
    int near = m->near_one[peer];
    return near >= 0 ? lc__rings_peek(m->near, near, lane, at) : m->far_ops->peek(m->far, peer, lane, at);
}

static void consume(void *self, int peer, int lane, size_t n)
{
    mixed *m = self;
    int near = m->near_one[peer];
    if (near >= 0)
        lc__rings_consume(m->near, near, lane, n);
    else
        m->far_ops->consume(m->far, peer, lane, n);
}

static void miss(void *self, int peer, int lane)
{
    mixed *m = self;
    int near = m->near_one[peer];
    if (near >= 0)
        lc__rings_miss(m->near, near, lane);
    else
        m->far_ops->miss(m->far, peer, lane);
}

static int host(void *self, int rank)
{
    return ((mixed *)self)->hosts[rank];
}

/* ---- both ways ---- */

/* A failure that one side knows of is passed to the other: ranks of this host may wait only for each other. */
static lc_status progress(void *self)
{
    mixed *m = self;
    char why[512];
    int missed = lc__rings_missed(m->near), rank = 0;
    lc_status s = m->far_ops->progress(m->far);
    while (missed >= 0 && m->near_one[rank] != missed) rank++;
    if (s >= 0 && missed >= 0) s = lc_fail(LC_ERR_PEER, LC__MISSED_TEXT, rank, m->rank);
    if (s >= 0 && (s = lc__rings_progress(m->near)) >= 0) return LC_OK;
    lc__copy_message(why, sizeof why);
    lc__rings_abort(m->near, why);
    m->far_ops->abort(m->far, why);
    return lc_fail(s, "%s", why);
}

/* No thread can sleep on a futex and on sockets at once. So it sleeps on the side that wakes it, and only briefly,
 * because of the other side. */
static void idle(void *self, int microseconds)
{
    enum { NAP_US = 50 };
    mixed *m = self;
    if (m->n_near > 1)
        lc__rings_idle(m->near, microseconds < NAP_US ? microseconds : NAP_US);
    else
        m->far_ops->idle(m->far, microseconds);
}

static void mixed_abort(void *self, const char *why)
{
    mixed *m = self;
    m->far_ops->abort(m->far, why);
    lc__rings_abort(m->near, why);
}

/* ---- opening ---- */

/* A meeting of the ranks of one host, in which all ranks take part. */
typedef struct near_meeting {
    const mixed *m;
    const lc__meeting *all;
} near_meeting;

static lc_status near_all_gather(void *ctx, const void *mine, void *all, size_t bytes)
{
    const near_meeting *n = ctx;
    char *everybody = malloc((size_t)n->m->size * bytes);
    if (!everybody) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", n->m->size);
    lc_status s = n->all->all_gather(n->all->ctx, mine, everybody, bytes);
    for (int i = 0; i < n->m->size && s >= 0; i++)
        if (n->m->near_one[i] >= 0)
            memcpy((char *)all + (size_t)n->m->near_one[i] * bytes, everybody + (size_t)i * bytes, bytes);
    free(everybody);
    return s;
}

/* The first failure becomes that of all ranks. */
static lc_status agree(const mixed *m, lc_status mine, const lc__meeting *meeting)
{
    struct verdict {
        int32_t status;
        char why[252];
    } here = {.status = mine}, *all = calloc((size_t)m->size, sizeof *all);
    lc_status s = all ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", m->size);
    if (mine < 0) lc__copy_message(here.why, sizeof here.why);
    if (s >= 0) s = meeting->all_gather(meeting->ctx, &here, all, sizeof here);
    for (int i = 0; i < m->size && s >= 0; i++)
        if (all[i].status < 0)
            s = lc_fail((lc_status)all[i].status, "rank %d: %.*s", i, (int)sizeof all[i].why, all[i].why);
    free(all);
    return s;
}

static lc_status open_far(mixed *m, const bool *without, const lc__meeting *meeting)
{
    opening *o = m->opening;
    if (!o->lanes[0]) return lc__tcp_open(&o->here, m->rank, m->size, without, meeting, &m->far);
    lc_comm *lanes[LC__LANES];
    memcpy(lanes, o->lanes, sizeof lanes);
    memset(o->lanes, 0, sizeof o->lanes);
    return lc__relay_new(lanes, without, &m->far);
}

static lc_status open_both(mixed *m, const lc__meeting *meeting)
{
    lc_status status = LC_OK;
    bool *without = calloc((size_t)m->size, sizeof *without);
    if (!without) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", m->size);
    LC_TRY_GOTO(status, done, meeting->all_gather(meeting->ctx, &m->opening->host, m->hosts, sizeof *m->hosts));
    for (int i = 0; i < m->size; i++) {
        without[i] = m->hosts[i] == m->opening->host;
        m->near_one[i] = without[i] ? m->n_near++ : -1;
    }
    near_meeting near = {m, meeting};
    const lc__meeting here = {LC_MEETING_INIT, .all_gather = near_all_gather, .ctx = &near};
    LC_TRY_GOTO(status, done, agree(m, lc__shm.open(NULL, m->near_one[m->rank], m->n_near, &here, &m->near), meeting));
    status = open_far(m, without, meeting);
done:
    free(without);
    return status;
}

static lc_status mixed_open(void *with, int rank, int size, const lc__meeting *meeting, void **out)
{
    mixed *m = calloc(1, sizeof *m);
    int *hosts = calloc((size_t)size, sizeof *hosts), *near_one = calloc((size_t)size, sizeof *near_one);
    if (!m || !hosts || !near_one) {
        free(m), free(hosts), free(near_one);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", size);
    }
    *m = (mixed){.opening = with,
                 .far_ops = ((opening *)with)->lanes[0] ? &lc__relay : &lc__tcp,
                 .rank = rank,
                 .size = size,
                 .hosts = hosts,
                 .near_one = near_one};
    atomic_fetch_add(&m->opening->references, 1);
    lc_status s = open_both(m, meeting);
    if (s < 0)
        mixed_close(m);
    else
        *out = m;
    return s;
}

/* The communicators of a relay are split as the group is. */
static lc_status prepare_relay(void *self, int color, int key, void **out)
{
    mixed *m = self;
    opening *o = color < 0 ? NULL : calloc(1, sizeof *o);
    lc_comm *lanes[LC__LANES] = {NULL};
    *out = NULL;
    if (color >= 0 && !o) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of ranks");
    lc_status s = lc__relay_split(m->far, color, key, lanes);
    if (s < 0 || !o) {
        free(o);
        return s;
    }
    o->host = m->opening->host;
    memcpy(o->lanes, lanes, sizeof lanes);
    *out = o; /* no group refers to it until it is opened */
    return LC_OK;
}

#define MIXED_OPS                                                                                                      \
    .open = mixed_open, .close = mixed_close, .room = room, .commit = commit, .put = put, .sent = sent, .peek = peek,  \
    .consume = consume, .miss = miss, .progress = progress, .idle = idle, .abort = mixed_abort, .host = host

static const lc__transport_ops shm_tcp = {.name = "shm+tcp", .wants_thread = true, MIXED_OPS};
static const lc__transport_ops shm_mpi = {.name = "shm+mpi", .prepare = prepare_relay, MIXED_OPS};

static lc_status mixed_new(const lc__transport_ops *ops, opening *o, int rank, int size, const lc__meeting *meeting,
                           lc_comm **out)
{
    void *end = NULL;
    atomic_store(&o->references, 1);
    lc_status s = size > 1 ? mixed_open(o, rank, size, meeting, &end) : LC_OK;
    if (s >= 0) s = lc__exchange_new(ops, end, o, rank, size, out);
    opening_unref(o);
    return s;
}

lc_status lc__comm_shm_tcp(const lc__tcp_place *here, int host_number, int rank, int size, const lc_meeting *given,
                           lc_comm **out)
{
    lc_meeting meeting;
    *out = NULL;
    LC_TRY(lc__comm_take_meeting(rank, size, given, &meeting));
    opening *o = calloc(1, sizeof *o);
    if (!o) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", size);
    o->host = host_number;
    o->here = *here;
    return mixed_new(&shm_tcp, o, rank, size, &meeting, out);
}

lc_status lc_comm_shm_tcp(const char *address, int host_number, int rank, int size, const lc_meeting *meeting,
                          lc_comm **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    lc__tcp_place here;
    *out = NULL;
    LC_TRY(lc__tcp_place_set(&here, address, "", 0));
    return lc__comm_shm_tcp(&here, host_number, rank, size, meeting, out);
}

lc_status lc_comm_shm_over(lc_comm *far, int host_number, const lc_meeting *given, lc_comm **out)
{
    lc_meeting meeting;
    lc_comm *second = NULL;
    if (out) *out = NULL;
    if (!far) return lc_fail(LC_ERR_ARGUMENT, "the communicator between hosts is missing");
    LC__IS(far, COMM, LC_ERR_ARGUMENT);
    if (!out) {
        lc_comm_free(far);
        return lc__is_null(__func__, "out");
    }
    int rank = lc_comm_rank(far), size = lc_comm_size(far);
    opening *o = calloc(1, sizeof *o);
    lc_status s = o ? LC_OK : lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", size);
    if (s >= 0) s = lc__comm_take_meeting(rank, size, given, &meeting);
    if (s >= 0) s = lc_comm_split(far, 0, rank, &second);
    if (s < 0) {
        free(o);
        lc_comm_free(far);
        return s;
    }
    o->host = host_number;
    o->lanes[LC__LANE_COLLECTIVE] = far;
    o->lanes[LC__LANE_DIRECT] = second;
    return mixed_new(&shm_mpi, o, rank, size, &meeting, out);
}
