/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers: each has started some of the ranks, or is about to. One is in the coordinator's own process; others have a
 * connection, which reserves their ranks as long as it is open: a launcher that is gone may be started again. A
 * launcher is trusted only about its own ranks. */
#include "comm/coordinator/coordinator_internal.h"
#include "comm/net/socket.h"

#include <stdio.h>
#include <string.h>

static bool has(const lc__launcher *l, int rank)
{
    return rank >= l->first && rank < l->first + l->count;
}

bool lc__launcher_forbids(const lc__coordinator *c, int rank, uint64_t identity, char *why, size_t size)
{
    for (int i = 0; i < c->n_launchers; i++) {
        const lc__launcher *l = &c->launchers[i];
        if (!has(l, rank) || l->identity == identity) continue;
        snprintf(why, size, "rank %d was already started by another launcher (%s)", rank, l->sender);
        return true;
    }
    return false;
}

/* Whether the rank belongs to another launcher, or has joined with another identity, also if that one's launcher is
 * gone. */
static bool is_anothers(const lc__coordinator *c, int rank, uint64_t identity, char *why, size_t size)
{
    const lc__member *m = &c->members[rank];
    if (lc__launcher_forbids(c, rank, identity, why, size)) return true;
    if (!m->process || m->identity == identity) return false;
    snprintf(why, size, "rank %d has already joined (host %s, process %llu)", rank, m->host,
             (unsigned long long)m->process);
    return true;
}

bool lc__launcher_add(lc__coordinator *c, lc__wire *w, const uint8_t hello[LC__HELLO_BYTES], char *why, size_t size)
{
    uint32_t first = lc__get_u32(hello + 4), count = lc__get_u32(hello + 12);
    uint64_t identity = lc__get_u64(hello + 24);
    if (first >= (uint32_t)c->size || count > (uint32_t)c->size - first) {
        snprintf(why, size, "the run has %d ranks, but it starts %u from rank %u on", c->size, count, first);
        return false;
    }
    for (uint32_t i = first; i < first + count; i++)
        if (is_anothers(c, (int)i, identity, why, size)) return false;
    snprintf(why, size, "the run already has %d launchers, as many as ranks", c->n_launchers);
    if (c->n_launchers == c->size) return false;
    lc__launcher *l = &c->launchers[c->n_launchers++];
    *l = (lc__launcher){.wire = *w, .identity = identity, .first = (int)first, .count = (int)count};
    l->wire.limit = LC__END_TEXT + 4;
    lc__control_sender(hello, l->sender);
    lc__socket_watch(w->fd, c->times.silence);
    return true;
}

void lc__coordinator_claim(lc__coordinator *c, int first, int count, uint64_t identity)
{
    pthread_mutex_lock(&c->lock);
    lc__launcher *l = &c->launchers[c->n_launchers++]; /* it comes first, and once */
    *l = (lc__launcher){.wire.fd = -1, .here = true, .identity = identity, .first = first, .count = count};
    snprintf(l->sender, sizeof l->sender, "which coordinates the run");
    pthread_mutex_unlock(&c->lock);
}

static bool take(lc__coordinator *c, const lc__launcher *l, const lc__frame *f, double now)
{
    char how[256];
    if (f->kind != LC__FRAME_ENDED || f->n < 4) return false;
    uint32_t rank = lc__get_u32(f->data);
    if (rank >= (uint32_t)c->size || !has(l, (int)rank)) return false;
    lc__frame_text(f->data + 4, f->n - 4, how, sizeof how);
    lc__member_ended(&c->members[rank], how, now);
    return true;
}

void lc__launcher_serve(lc__coordinator *c, lc__launcher *l, double now)
{
    lc__frame f;
    bool open = lc__wire_fill(&l->wire);
    int got;
    while ((got = lc__wire_next(&l->wire, &f)) > 0)
        if (!take(c, l, &f, now)) got = -1;
    if (got < 0 || !open) lc__wire_release(&l->wire);
}

void lc__launchers_tidy(lc__coordinator *c)
{
    int n = 0;
    for (int i = 0; i < c->n_launchers; i++)
        if (c->launchers[i].here || c->launchers[i].wire.fd >= 0) c->launchers[n++] = c->launchers[i];
    c->n_launchers = n;
}
