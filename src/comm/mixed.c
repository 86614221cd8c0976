/* SPDX-License-Identifier: Apache-2.0 */
/* "shm+tcp": ranks on several hosts. Ranks of one host share memory (window.c), others have connections (tcp.c): every
 * stream of bytes goes one way or the other, and whoever uses them need not know. An abort, and a rank that is lost,
 * are told both ways. */
#include "comm/window.h"

#include "core/status.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What groups are opened with; theirs together. */
typedef struct opening {
    atomic_int references;
    int host;
    char address[64];
} opening;

typedef struct mixed {
    opening *opening;
    void *near, *far; /* an end of the window, and of tcp */
    int rank, size;
    int *hosts;    /* [size] */
    int *near_one; /* [size] its number among the ranks of this host; -1: on another */
    int n_near;
} mixed;

static void opening_unref(opening *o)
{
    if (atomic_fetch_sub(&o->references, 1) == 1) free(o);
}

static void mixed_close(void *self)
{
    mixed *m = self;
    if (m->near) lc__window_close(m->near);
    if (m->far) lc__tcp.close(m->far);
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
    return near >= 0 ? lc__window_room(m->near, near, lane, at) : lc__tcp.room(m->far, peer, lane, at);
}

static void commit(void *self, int peer, int lane, size_t n)
{
    mixed *m = self;
    int near = m->near_one[peer];
    if (near >= 0)
        lc__window_commit(m->near, near, lane, n);
    else
        lc__tcp.commit(m->far, peer, lane, n);
}

static bool sent(void *self, int peer, int lane)
{
    mixed *m = self;
    return m->near_one[peer] >= 0 || lc__tcp.sent(m->far, peer, lane);
}

static size_t peek(void *self, int peer, int lane, const void **at)
{
    mixed *m = self;
    int near = m->near_one[peer];
    return near >= 0 ? lc__window_peek(m->near, near, lane, at) : lc__tcp.peek(m->far, peer, lane, at);
}

static void consume(void *self, int peer, int lane, size_t n)
{
    mixed *m = self;
    int near = m->near_one[peer];
    if (near >= 0)
        lc__window_consume(m->near, near, lane, n);
    else
        lc__tcp.consume(m->far, peer, lane, n);
}

static void miss(void *self, int peer, int lane)
{
    mixed *m = self;
    if (m->near_one[peer] < 0) lc__tcp.miss(m->far, peer, lane);
}

static int host(void *self, int rank)
{
    return ((mixed *)self)->hosts[rank];
}

/* ---- both ways ---- */

/* What one side knows the other has to learn: ranks of this host may wait for each other alone. */
static lc_status progress(void *self)
{
    mixed *m = self;
    char why[512];
    lc_status s = lc__tcp.progress(m->far);
    if (s >= 0 && (s = lc__window_progress(m->near)) >= 0) return LC_OK;
    lc__copy_message(why, sizeof why);
    lc__window_abort(m->near, why);
    lc__tcp.abort(m->far, why);
    return lc_fail(s, "%s", why);
}

/* Nobody can sleep on a futex and on sockets. So the sleep is on the side that wakes, and short for the sake of the
 * other one. */
static void idle(void *self, int microseconds)
{
    enum { NAP_US = 50 };
    mixed *m = self;
    if (m->n_near > 1)
        lc__window_idle(m->near, microseconds < NAP_US ? microseconds : NAP_US);
    else
        lc__tcp.idle(m->far, microseconds);
}

static void mixed_abort(void *self, const char *why)
{
    mixed *m = self;
    lc__tcp.abort(m->far, why);
    lc__window_abort(m->near, why);
}

/* ---- opening ---- */

/* A meeting of the ranks of one host, which all ranks take part in. */
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

/* The first failure is everybody's. */
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
    const lc__meeting here = {near_all_gather, &near};
    LC_TRY_GOTO(status, done, agree(m, lc__shm.open(NULL, m->near_one[m->rank], m->n_near, &here, &m->near), meeting));
    status = lc__tcp_open(m->opening->address, m->rank, m->size, without, meeting, &m->far);
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
    *m = (mixed){.opening = with, .rank = rank, .size = size, .hosts = hosts, .near_one = near_one};
    atomic_fetch_add(&m->opening->references, 1);
    lc_status s = open_both(m, meeting);
    if (s < 0)
        mixed_close(m);
    else
        *out = m;
    return s;
}

static const lc__transport_ops mixed_ops = {
    .name = "shm+tcp",
    .open = mixed_open,
    .close = mixed_close,
    .room = room,
    .commit = commit,
    .sent = sent,
    .peek = peek,
    .consume = consume,
    .miss = miss,
    .progress = progress,
    .idle = idle,
    .abort = mixed_abort,
    .host = host,
};

lc_status lc_comm_shm_tcp(const char *address, int host_number, int rank, int size, const lc_meeting *meeting,
                          lc_comm **out)
{
    void *end = NULL;
    *out = NULL;
    opening *o = calloc(1, sizeof *o);
    if (!o) return lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", size);
    atomic_store(&o->references, 1);
    o->host = host_number;
    snprintf(o->address, sizeof o->address, "%s", address ? address : "127.0.0.1");
    lc_status s = size > 1 ? mixed_open(o, rank, size, meeting, &end) : LC_OK;
    if (s >= 0) s = lc__exchange_new(&mixed_ops, end, o, rank, size, out);
    opening_unref(o);
    return s;
}
