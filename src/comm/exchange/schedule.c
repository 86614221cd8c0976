/* SPDX-License-Identifier: Apache-2.0 */
/* Flat collectives; those on two levels are in two_levels.c. */
#include "comm/exchange/schedule_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

static void skip_empty(lc__message *m)
{
    while (m->range < m->n_ranges && m->at >= m->ranges[m->range].bytes) m->range++, m->at = 0;
}

void lc__message_advance(lc__message *m, int64_t n)
{
    m->at += n;
    m->done += n;
    skip_empty(m);
}

void lc__message_add(lc__schedule *s, lc__message *m, const void *at, int64_t bytes, const int64_t *ready, int64_t from)
{
    lc__range *r = &s->ranges[s->n_ranges++];
    *r = (lc__range){(char *)(uintptr_t)at, bytes, ready, from};
    if (!m->exists) m->ranges = r;
    m->exists = true;
    m->n_ranges++;
    m->bytes += bytes;
    skip_empty(m);
}

int64_t lc__part(int64_t all, int n, int i, int64_t *bytes)
{
    int64_t part = lc__padded((all + n - 1) / n), at = part * i;
    if (at > all) at = all;
    *bytes = all - at < part ? all - at : part;
    return at;
}

lc__combination *lc__combination_add(lc__schedule *s, int first, int step, int n, void *to)
{
    lc__combination *c = &s->combinations[s->n_combinations++];
    *c = (lc__combination){.first = first, .step = step, .n = n, .own = (s->rank - first) / step, .to = to};
    return c;
}

/* ---- flat ---- */

static void flat_owned(lc__schedule *s, const lc_comm_call *call, int64_t all)
{
    int64_t own_bytes, bytes, own = lc__part(all, s->size, s->rank, &own_bytes);
    bool reduce = call->op == LC_COMM_ALL_REDUCE, root = call->peer == s->rank;
    const char *in = call->in;
    char *out = call->out;
    const int64_t *ready = NULL;
    if (reduce) {
        lc__combination *c = lc__combination_add(s, 0, 1, s->size, lc__at(out, own));
        lc__message_add(s, &c->mine, lc__at(in, own), own_bytes, NULL, 0);
        c->answers = s->answers;
        ready = &c->done;
    } else if (!root) {
        ready = &s->peers[call->peer].in[0].done;
    }
    for (int i = 0; i < s->size; i++) {
        lc__peer_messages *p = &s->peers[i];
        int64_t at = lc__part(all, s->size, i, &bytes);
        if (i == s->rank) continue;
        if (reduce || root) lc__message_add(s, &p->out[0], lc__at(in, at), bytes, NULL, 0);
        if (reduce || i == call->peer)
            lc__message_add(s, &p->in[0], reduce ? NULL : lc__at(out, own), own_bytes, NULL, 0);
        if (reduce ? !s->answers : i != call->peer)
            lc__message_add(s, &p->out[1], lc__at(out, own), own_bytes, ready, 0);
        if (reduce || !root) lc__message_add(s, &p->in[1], lc__at(out, at), bytes, NULL, 0);
        if (reduce && s->answers) p->out[0].answers = p->in[1].answers = p->in[1].begun = true;
    }
}

/* At most one message each way. */
static void flat_direct(lc__schedule *s, const lc_comm_call *call, int64_t bytes)
{
    bool root = call->peer == s->rank;
    const char *in = call->in;
    char *out = call->out;
    for (int i = 0; i < s->size; i++) {
        lc__message *to = &s->peers[i].out[0], *from = &s->peers[i].in[0];
        if (i == s->rank) continue;
        switch (call->op) {
        case LC_COMM_BARRIER:
            lc__message_add(s, to, NULL, 0, NULL, 0);
            lc__message_add(s, from, NULL, 0, NULL, 0);
            break;
        case LC_COMM_SCATTER:
            if (root) lc__message_add(s, to, lc__at(in, i * bytes), bytes, NULL, 0);
            if (i == call->peer) lc__message_add(s, from, out, bytes, NULL, 0);
            break;
        case LC_COMM_GATHER:
            if (i == call->peer) lc__message_add(s, to, in, bytes, NULL, 0);
            if (root) lc__message_add(s, from, lc__at(out, i * bytes), bytes, NULL, 0);
            break;
        case LC_COMM_ALL_GATHER:
            lc__message_add(s, to, in, bytes, NULL, 0);
            lc__message_add(s, from, lc__at(out, i * bytes), bytes, NULL, 0);
            break;
        case LC_COMM_ALL_TO_ALL:
            lc__message_add(s, to, lc__at(in, i * bytes), bytes, NULL, 0);
            lc__message_add(s, from, lc__at(out, i * bytes), bytes, NULL, 0);
            break;
        case LC_COMM_REDUCE:
            if (i == call->peer) lc__message_add(s, to, in, bytes, NULL, 0);
            if (root) lc__message_add(s, from, NULL, bytes, NULL, 0);
            break;
        case LC_COMM_REDUCE_SCATTER:
            lc__message_add(s, to, lc__at(in, i * bytes), bytes, NULL, 0);
            lc__message_add(s, from, NULL, bytes, NULL, 0);
            break;
        default:
            break;
        }
    }
    if (call->op == LC_COMM_REDUCE_SCATTER || (call->op == LC_COMM_REDUCE && root)) {
        lc__combination *c = lc__combination_add(s, 0, 1, s->size, out);
        const char *own = call->op == LC_COMM_REDUCE ? in : lc__at(in, s->rank * bytes);
        lc__message_add(s, &c->mine, own, bytes, NULL, 0);
    }
}

/* Copies what a rank sends to itself, unless it is combined. */
static void copy_own(const lc__schedule *s, const lc_comm_call *call, int64_t bytes)
{
    const char *from = call->in;
    char *to = call->out;
    int64_t own = s->rank * bytes;
    bool root = call->peer == s->rank;
    if (!bytes) return;
    if (call->op == LC_COMM_ALL_TO_ALL)
        from += own, to += own;
    else if (call->op == LC_COMM_ALL_GATHER || (call->op == LC_COMM_GATHER && root))
        to += own;
    else if (call->op == LC_COMM_SCATTER && root)
        from += own;
    else if (s->size > 1 || !lc__reduces(call->op))
        return;
    if (from != to) memmove(to, from, (size_t)bytes);
}

lc_status lc__schedule_begin(lc__schedule *s, const lc_comm_call *call)
{
    int64_t bytes = call->count * (int64_t)lc_dtype_size(call->dtype);
    s->n_combinations = s->n_ranges = 0;
    memset(s->peers, 0, (size_t)s->size * sizeof *s->peers);
    copy_own(s, call, bytes);
    if (s->size == 1) return LC_OK;
    if (s->per_host && lc__is_on_two_levels(s, call)) return lc__two_levels_begin(s, call, bytes);
    if (call->op == LC_COMM_ALL_REDUCE || call->op == LC_COMM_BROADCAST)
        flat_owned(s, call, bytes);
    else
        flat_direct(s, call, bytes);
    return LC_OK;
}

/* ---- making ---- */

/* L (schedule.h) if every host has as many ranks and the ranks of each host are consecutive; else 0. */
static int ranks_per_host(int size, int (*host_of)(void *ctx, int rank), void *ctx)
{
    int n = 1;
    while (n < size && host_of(ctx, n) == host_of(ctx, 0)) n++;
    if (n == 1 || n == size || size % n) return 0;
    for (int i = 0; i < size; i++)
        for (int k = 0; k < size; k++)
            if ((host_of(ctx, i) == host_of(ctx, k)) != (i / n == k / n)) return 0;
    return n;
}

lc_status lc__schedule_init(lc__schedule *s, int rank, int size, bool answers, int (*host_of)(void *ctx, int rank),
                            void *ctx)
{
    /* Flat: four messages for each rank. On two levels: as many to ranks of the same host, of a range for each host,
     * and to those of the column. And what this rank itself contributes. */
    enum { MOST_RANGES = 10 };
    *s = (lc__schedule){.rank = rank, .size = size, .answers = answers};
    s->peers = calloc((size_t)size, sizeof *s->peers);
    s->ranges = calloc((size_t)size * MOST_RANGES, sizeof *s->ranges);
    if (!s->peers || !s->ranges) {
        lc__schedule_release(s);
        return lc_fail(LC_ERR_MEMORY, "out of memory: a communicator of %d ranks", size);
    }
    if (host_of) s->per_host = ranks_per_host(size, host_of, ctx);
    return LC_OK;
}

void lc__schedule_release(lc__schedule *s)
{
    free(s->peers);
    free(s->ranges);
    free(s->partial);
    *s = (lc__schedule){0};
}
