/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a collective: at most two messages from each rank to each other, and combinations of what arrives.
 *
 * Flat: the ranks own the data together: rank i of N owns segment i. The first message goes to the owners, which
 * combine what they get; the second one comes from the owners:
 *
 *     broadcast          root -> owners                 owners -> all      (root's links carry 2S instead of NS)
 *     all_reduce         all -> owners, combined        owners -> all
 *     reduce             all -> root, combined          scatter            root -> all
 *     gather             all -> root                    all_gather         all -> all
 *     reduce_scatter     all -> owners, combined        all_to_all         all -> all
 *     barrier            all -> all, empty
 *
 * If the transport has a lane for it, the owners answer an all_reduce in place: the second message then has no header,
 * and is not sent.
 *
 * So an all_reduce moves 2(N-1)/N of its bytes over each link, as a ring does, in two hops instead of 2(N-1); and an
 * owner sees all contributions at once, so that it can combine them on the tree that comm.h promises.
 *
 * On two levels, if the ranks are on H hosts, L on each, with consecutive numbers: rank l of each host handles part l
 * of the data for its host. All ranks of a host send it their contributions, and it combines them. Then it and the
 * ranks l of the other hosts, its *column*, do among themselves what all ranks do in a flat collective; last, it sends
 * the result to the ranks of its host. So each byte goes from host to host once, instead of once for each rank:
 *
 *     all_reduce         2S(H-1)/H leave a host, instead of L times as many
 *     reduce_scatter     S(H-1)/H, instead of L times
 *     all_gather         S(H-1)/H, instead of L times
 *     broadcast          S(H-1) leave the root's host, none another
 *
 * Sums use two levels if the ranks of a host are a subtree of the tree that comm.h promises, that is, if L is a power
 * of two; but not for f16 and bf16, whose partial sums would have to travel as f32. The other collectives are flat. */
#ifndef LC_COMM_EXCHANGE_SCHEDULE_H
#define LC_COMM_EXCHANGE_SCHEDULE_H

#include "comm/comm_internal.h"

/* Contiguous bytes of a message; in the stream they are padded to LC__GRAIN. */
typedef struct lc__range {
    char *at; /* where they are sent from, or received; NULL: they are combined */
    int64_t bytes;
    const int64_t *ready; /* bytes to send are known up to *ready - from; NULL: all are */
    int64_t from;
} lc__range;

/* A message, and how far it is. */
typedef struct lc__message {
    const lc__range *ranges;
    int n_ranges;
    int64_t bytes; /* of all ranges, without padding */
    bool exists;
    bool answers; /* it is on LC__LANE_ANSWERED, after its header; or is the answer to that, without one */
    bool begun;   /* the header is done */
    int range;    /* the one under way; n_ranges: all are done */
    int64_t at;   /* position in that range */
    int64_t done; /* bytes, padding included */
} lc__message;

/* Combines what `n` ranks, `first`, `first + step`, ..., contribute with their first messages, and this rank, number
 * `own` of them, with a message to itself. */
typedef struct lc__combination {
    int first, step, n, own;
    lc__message mine;
    char *to;     /* one range after the other, each padded */
    bool answers; /* the result is also written over the contributions */
    int64_t done; /* bytes of `to` that are final, padding included */
} lc__combination;

typedef struct lc__peer_messages {
    lc__message out[2], in[2]; /* the second begins when the first is done */
} lc__peer_messages;

typedef struct lc__schedule {
    int rank, size;
    int per_host; /* L, or 0 if there are no two levels */
    bool answers; /* the transport has LC__LANE_ANSWERED */
    /* of the running call */
    lc__peer_messages *peers;        /* [size] */
    lc__combination combinations[2]; /* the second may use the result of the first */
    int n_combinations;
    /* for all calls */
    lc__range *ranges;
    int n_ranges;
    char *partial; /* sums of a host, in a reduce_scatter */
    size_t partial_bytes;
} lc__schedule;

/* host_of NULL: all ranks are on one host. */
lc_status lc__schedule_init(lc__schedule *s, int rank, int size, bool answers, int (*host_of)(void *ctx, int rank),
                            void *ctx) LC_MUST_USE;
void lc__schedule_release(lc__schedule *s);

/* Plans a call, and does the parts that need no other rank. */
lc_status lc__schedule_begin(lc__schedule *s, const lc_comm_call *call) LC_MUST_USE;

/* `n` more bytes of a message are done. */
void lc__message_advance(lc__message *m, int64_t n);

static inline int64_t lc__padded(int64_t bytes)
{
    return (bytes + LC__GRAIN - 1) / LC__GRAIN * LC__GRAIN;
}

static inline bool lc__message_through(const lc__message *m)
{
    return !m->exists || (m->begun && m->range == m->n_ranges);
}

/* Bytes of the range under way that can be handed on, in whole grains except at its end. */
static inline int64_t lc__message_ready(const lc__message *m)
{
    if (m->range == m->n_ranges) return 0;
    const lc__range *r = &m->ranges[m->range];
    int64_t left = r->bytes - m->at, n = r->ready ? *r->ready - r->from - m->at : left;
    return n >= left ? left : n > 0 ? n / LC__GRAIN * LC__GRAIN : 0;
}

#endif
