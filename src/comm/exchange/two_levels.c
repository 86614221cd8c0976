/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on two levels (schedule.h): within a host, and between the ranks of a column. */
#include "comm/exchange/schedule_impl.h"

#include <stdlib.h>

bool lc__is_on_two_levels(const lc__schedule *s, const lc_comm_call *call)
{
    switch (call->op) {
    case LC_COMM_ALL_REDUCE:
    case LC_COMM_REDUCE_SCATTER:
        return (s->per_host & (s->per_host - 1)) == 0 && call->dtype != LC_F16 && call->dtype != LC_BF16;
    case LC_COMM_BROADCAST:
    case LC_COMM_ALL_GATHER:
        return true;
    default:
        return false;
    }
}

/* This rank's place. */
typedef struct place {
    int hosts, per_host, host, local;
} place;

static place place_of(const lc__schedule *s)
{
    return (place){s->size / s->per_host, s->per_host, s->rank / s->per_host, s->rank % s->per_host};
}

static lc__peer_messages *of_host(const lc__schedule *s, int local)
{
    return &s->peers[s->rank / s->per_host * s->per_host + local];
}

static lc__peer_messages *of_column(const lc__schedule *s, int host)
{
    return &s->peers[host * s->per_host + s->rank % s->per_host];
}

/* The range of part `local` of the data that host `host` owns. */
static int64_t owned(const place *p, int64_t all, int local, int host, int64_t *bytes)
{
    int64_t column, at = lc__part(all, p->per_host, local, &column);
    return at + lc__part(column, p->hosts, host, bytes);
}

/* ---- all_reduce ---- */

static void all_reduce(lc__schedule *s, const lc_comm_call *call, int64_t all)
{
    const place p = place_of(s);
    const char *in = call->in;
    char *out = call->out;
    int64_t column, start = lc__part(all, p.per_host, p.local, &column), n, own_bytes;
    int64_t own = owned(&p, all, p.local, p.host, &own_bytes);
    lc__combination *here = lc__combination_add(s, p.host * p.per_host, 1, p.per_host, lc__at(out, start));
    lc__message_add(s, &here->mine, lc__at(in, start), column, NULL, 0);
    lc__combination *last = lc__combination_add(s, p.local, p.per_host, p.hosts, lc__at(out, own));
    lc__message_add(s, &last->mine, lc__at(out, own), own_bytes, &here->done, own - start);
    for (int h = 0; h < p.hosts; h++) {
        lc__peer_messages *peer = of_column(s, h);
        if (h == p.host) continue;
        int64_t at = owned(&p, all, p.local, h, &n);
        lc__message_add(s, &peer->out[0], lc__at(out, at), n, &here->done, at - start);
        lc__message_add(s, &peer->in[0], NULL, own_bytes, NULL, 0);
        lc__message_add(s, &peer->out[1], lc__at(out, own), own_bytes, &last->done, 0);
        lc__message_add(s, &peer->in[1], lc__at(out, at), n, NULL, 0);
    }
    for (int l = 0; l < p.per_host; l++) {
        lc__peer_messages *peer = of_host(s, l);
        if (l == p.local) continue;
        int64_t at = lc__part(all, p.per_host, l, &n);
        lc__message_add(s, &peer->out[0], lc__at(in, at), n, NULL, 0);
        lc__message_add(s, &peer->in[0], NULL, column, NULL, 0);
        for (int k = 0; k < p.hosts; k++) { /* what is ready first goes first */
            int h = (p.host + k) % p.hosts;
            at = owned(&p, all, p.local, h, &n);
            lc__message_add(s, &peer->out[1], lc__at(out, at), n, k ? &of_column(s, h)->in[1].done : &last->done, 0);
        }
        for (int k = 0; k < p.hosts; k++) {
            at = owned(&p, all, l, (p.host + k) % p.hosts, &n);
            lc__message_add(s, &peer->in[1], lc__at(out, at), n, NULL, 0);
        }
    }
}

/* ---- reduce_scatter ---- */

static lc_status need_partial(lc__schedule *s, size_t bytes)
{
    if (bytes <= s->partial_bytes) return LC_OK;
    free(s->partial);
    s->partial_bytes = 0;
    s->partial = malloc(bytes);
    if (!s->partial) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for the sums of a host", bytes);
    s->partial_bytes = bytes;
    return LC_OK;
}

/* Rank l of a host combines, for its host, the parts of the ranks l of all hosts. */
static lc_status reduce_scatter(lc__schedule *s, const lc_comm_call *call, int64_t bytes)
{
    const place p = place_of(s);
    const char *in = call->in;
    int64_t part = lc__padded(bytes);
    LC_TRY(need_partial(s, (size_t)part * (size_t)p.hosts));
    lc__combination *here = lc__combination_add(s, p.host * p.per_host, 1, p.per_host, s->partial);
    for (int h = 0; h < p.hosts; h++)
        lc__message_add(s, &here->mine, lc__at(in, (h * p.per_host + p.local) * bytes), bytes, NULL, 0);
    lc__combination *last = lc__combination_add(s, p.local, p.per_host, p.hosts, call->out);
    lc__message_add(s, &last->mine, lc__at(s->partial, p.host * part), bytes, &here->done, p.host * part);
    for (int h = 0; h < p.hosts; h++) {
        lc__peer_messages *peer = of_column(s, h);
        if (h == p.host) continue;
        lc__message_add(s, &peer->out[0], lc__at(s->partial, h * part), bytes, &here->done, h * part);
        lc__message_add(s, &peer->in[0], NULL, bytes, NULL, 0);
    }
    for (int l = 0; l < p.per_host; l++) {
        lc__peer_messages *peer = of_host(s, l);
        if (l == p.local) continue;
        for (int h = 0; h < p.hosts; h++)
            lc__message_add(s, &peer->out[0], lc__at(in, (h * p.per_host + l) * bytes), bytes, NULL, 0);
        for (int h = 0; h < p.hosts; h++) lc__message_add(s, &peer->in[0], NULL, bytes, NULL, 0);
    }
    return LC_OK;
}

/* ---- all_gather ---- */

static void all_gather(lc__schedule *s, const lc_comm_call *call, int64_t bytes)
{
    const place p = place_of(s);
    char *out = call->out;
    for (int h = 0; h < p.hosts; h++) {
        if (h == p.host) continue;
        lc__message_add(s, &of_column(s, h)->out[0], call->in, bytes, NULL, 0);
        lc__message_add(s, &of_column(s, h)->in[0], lc__at(out, (h * p.per_host + p.local) * bytes), bytes, NULL, 0);
    }
    for (int l = 0; l < p.per_host; l++) {
        lc__peer_messages *peer = of_host(s, l);
        if (l == p.local) continue;
        for (int k = 0; k < p.hosts; k++) {
            int h = (p.host + k) % p.hosts;
            if (k == 0)
                lc__message_add(s, &peer->out[0], call->in, bytes, NULL, 0);
            else
                lc__message_add(s, &peer->out[0], lc__at(out, (h * p.per_host + p.local) * bytes), bytes,
                                &of_column(s, h)->in[0].done, 0);
        }
        for (int k = 0; k < p.hosts; k++)
            lc__message_add(s, &peer->in[0], lc__at(out, ((p.host + k) % p.hosts * p.per_host + l) * bytes), bytes,
                            NULL, 0);
    }
}

/* ---- broadcast ---- */

/* The root gives each rank of its host a part; they give it to their columns; then the ranks of each host exchange
 * them. */
static void broadcast(lc__schedule *s, const lc_comm_call *call, int64_t all)
{
    const place p = place_of(s);
    int root = call->peer, root_host = root / p.per_host;
    bool is_root = root == s->rank, at_root = root_host == p.host;
    char *data = is_root ? (char *)(uintptr_t)call->in : call->out;
    int64_t n, column, start = lc__part(all, p.per_host, p.local, &column);
    lc__message *from = at_root ? &s->peers[root].in[0] : &of_column(s, root_host)->in[0];
    const int64_t *ready = is_root ? NULL : &from->done;
    if (!is_root) lc__message_add(s, from, lc__at(data, start), column, NULL, 0);
    for (int h = 0; h < p.hosts && at_root; h++)
        if (h != p.host) lc__message_add(s, &of_column(s, h)->out[0], lc__at(data, start), column, ready, 0);
    for (int l = 0; l < p.per_host; l++) {
        lc__peer_messages *peer = of_host(s, l);
        bool to_root = at_root && root % p.per_host == l;
        if (l == p.local) continue;
        int64_t at = lc__part(all, p.per_host, l, &n);
        if (is_root) lc__message_add(s, &peer->out[0], lc__at(data, at), n, NULL, 0);
        if (!to_root) lc__message_add(s, &peer->out[1], lc__at(data, start), column, ready, 0);
        if (!is_root) lc__message_add(s, &peer->in[1], lc__at(data, at), n, NULL, 0);
    }
}

lc_status lc__two_levels_begin(lc__schedule *s, const lc_comm_call *call, int64_t bytes)
{
    switch (call->op) {
    case LC_COMM_ALL_REDUCE:
        all_reduce(s, call, bytes);
        return LC_OK;
    case LC_COMM_REDUCE_SCATTER:
        return reduce_scatter(s, call, bytes);
    case LC_COMM_ALL_GATHER:
        all_gather(s, call, bytes);
        return LC_OK;
    default:
        broadcast(s, call, bytes);
        return LC_OK;
    }
}
