/* SPDX-License-Identifier: Apache-2.0 */
#include "record/peer.h"
#include "record/graph_impl.h"

#include <lightc/random.h>

void lc__peer_join(lc_peer *p, const lc_peer_ops *ops, lc_graph *g)
{
    lc_peer *before = lc__peer_of(g, ops), **at = &g->peers;
    if (before) lc__peer_leave(before);
    while (*at) at = &(*at)->next;
    *at = p;
    p->ops = ops;
    p->graph = g;
    p->next = NULL;
}

void lc__peer_leave(lc_peer *p)
{
    for (lc_peer **at = &p->graph->peers; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            return;
        }
}

lc_peer *lc__peer_of(const lc_graph *g, const lc_peer_ops *ops)
{
    lc_peer *p = g->peers;
    while (p && p->ops != ops) p = p->next;
    return p;
}

void lc__peers_free(lc_graph *g)
{
    for (lc_peer *p = g->peers; p; p = g->peers) {
        lc__peer_leave(p);
        if (p->ops->free) p->ops->free(p);
    }
}

uint64_t lc__peers_key(const lc_graph *g)
{
    uint64_t key = 0;
    for (const lc_peer *p = g->peers; p; p = p->next)
        if (p->key) key = lc_random_key(key, p->key);
    return key;
}

int64_t lc__peers_bytes(const lc_graph *g)
{
    int64_t bytes = 0;
    for (const lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->bytes) bytes += p->ops->bytes(p);
    return bytes;
}

void lc__peers_before_backward(const lc_graph *g)
{
    for (lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->before_backward) p->ops->before_backward(p);
}

bool lc__peers_owe(const lc_graph *g)
{
    bool any = false;
    for (const lc_peer *p = g->peers; p; p = p->next) any |= p->ops->owes && p->ops->owes(p);
    return any;
}

bool lc__peers_sum_in_place(const lc_graph *g)
{
    bool any = false;
    for (const lc_peer *p = g->peers; p; p = p->next) any |= p->ops->sums_in_place;
    return any;
}

lc_status lc__peers_settle(const lc_graph *g)
{
    for (lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->settle) LC_TRY(p->ops->settle(p));
    return LC_OK;
}
