/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the ranks of an exchange: their members, and how they meet. */
#include "comm/exchange/exchange_impl.h"

#include <stdlib.h>

typedef struct group {
    exchange *parent;
    int *members; /* ranks of the parent, in the order of the new ranks */
    int n, rank;
} group;

/* The members exchange data over the parent's direct lane. */
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
        LC_TRY_GOTO(status, done, lc__exchange_start(g->parent, &out, &calls[2 * i]));
        LC_TRY_GOTO(status, done, lc__exchange_start(g->parent, &in, &calls[2 * i + 1]));
    }
    for (int i = 0; i < 2 * g->n; i++) LC_TRY_GOTO(status, done, lc__exchange_wait(g->parent, &calls[i]));
done:
    free(calls); /* after an error nothing runs on the parent again: comm.c ensures it */
    return status;
}

/* A member that does not join may be lost in the parent, or have aborted it. */
static lc_status group_check(void *ctx)
{
    const exchange *x = ((group *)ctx)->parent;
    return x->ops->progress(x->transport);
}

/* Orders the members of this rank's color by (key, rank). */
static void order_members(group *g, const int32_t (*asked)[2], int size, int rank)
{
    for (int i = 0; i < size; i++) {
        if (asked[i][0] != asked[rank][0]) continue;
        int at = g->n++;
        for (; at > 0 && asked[g->members[at - 1]][1] > asked[i][1]; at--) g->members[at] = g->members[at - 1];
        g->members[at] = i;
    }
    while (g->members[g->rank] != rank) g->rank++;
}

lc_status lc__exchange_split(void *self, int color, int key, int *rank, int *size, void **out)
{
    exchange *x = self, *made = NULL;
    lc_status status = LC_OK;
    void *transport = NULL;
    int32_t mine[2] = {color, key};
    int32_t(*asked)[2] = calloc((size_t)x->size, sizeof *asked);
    group g = {.parent = x, .members = calloc((size_t)x->size, sizeof(int))};
    pending p = {0};
    if (!asked || !g.members)
        LC_TRY_GOTO(status, done, lc_fail(LC_ERR_MEMORY, "out of memory: a group of %d ranks", x->size));
    lc_comm_call ask = {LC_COMM_ALL_GATHER, 0, LC_I32, -1, mine, asked, 2};
    LC_TRY_GOTO(status, done, lc__exchange_start(x, &ask, &p));
    LC_TRY_GOTO(status, done, lc__exchange_wait(x, &p));
    x->splits++;
    if (color >= 0) order_members(&g, (const int32_t(*)[2])asked, x->size, x->rank);
    void *opening = x->opening;
    if (x->transport && x->ops->prepare)
        LC_TRY_GOTO(status, done, x->ops->prepare(x->transport, g.n > 1 ? color : -1, key, &opening));
    if (color >= 0) {
        lc__meeting meeting = {LC_MEETING_INIT, .all_gather = group_all_gather, .ctx = &g, .check = group_check};
        if (g.n > 1) LC_TRY_GOTO(status, done, x->ops->open(opening, g.rank, g.n, &meeting, &transport));
        LC_TRY_GOTO(status, done, lc__exchange_make(x->ops, transport, opening, g.rank, g.n, &made));
        *rank = g.rank;
        *size = g.n;
        *out = made;
    }
done:
    free(asked);
    free(g.members);
    return status;
}
