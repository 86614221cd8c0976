/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by exchange.c (the calls that run), communicator.c and groups.c. */
#ifndef LC_COMM_EXCHANGE_EXCHANGE_IMPL_H
#define LC_COMM_EXCHANGE_EXCHANGE_IMPL_H

#include "comm/exchange/exposed.h"
#include "comm/exchange/schedule.h"

#include <stdatomic.h>

/* A call under way. */
typedef struct pending {
    lc_comm_call call;
    struct pending *next;
    uint64_t number;
    lc__message m; /* for send and receive */
    lc__range range;
    bool done;
} pending;

typedef struct queue {
    pending *first, *last;
} queue;

typedef struct peer_state {
    queue sends, receives;                    /* on the direct lane */
    uint64_t sends_started, receives_started; /* how many there were */
    bool across;                              /* the peer is on another host */
} peer_state;

/* Stage of the running collective. If ranks have exposed memory, a large all_reduce first asks whether its data is in
 * it on all of them; if so, each combines its part IN_PLACE, and then all SAY that they have. */
typedef enum stage { ASK, IN_PLACE, SAY, WHOLE } stage;

typedef struct exchange {
    const lc__transport_ops *ops;
    void *transport; /* NULL: one rank */
    void *opening;
    int rank, size;
    queue collectives; /* the first one runs */
    bool active;       /* `schedule` and `stage` belong to it */
    stage stage;
    lc__schedule schedule;
    lc__exposed exposed;
    int64_t *tokens;        /* [size]: where the data of this collective is (exposed.h) */
    int64_t combined;       /* bytes of this rank's part that are combined */
    uint64_t number;        /* how many collectives so far */
    uint64_t splits;        /* how many of them were made by splits */
    _Atomic uint64_t moved; /* bytes sent and received */
    uint64_t seen;          /* `moved` as `idle` or `nap` saw it last */
    int64_t quiet_since, spin_ns;
    int64_t sent, sent_across; /* bytes, without headers; the part sent to other hosts */
    peer_state *peers;         /* [size] */
    const void **parts;
} exchange;

/* Bytes of `count` elements; all_gather and others have as many from each rank. */
static inline int64_t lc__call_bytes(const lc_comm_call *call)
{
    return call->count * (int64_t)lc_dtype_size(call->dtype);
}

/* Advance as far as possible now: sends and receives; the running collective, and those after it. */
lc_status lc__exchange_advance_direct(exchange *x) LC_MUST_USE;
lc_status lc__exchange_advance_collectives(exchange *x) LC_MUST_USE;

/* As lc_comm_ops; `state` is a pending. */
lc_status lc__exchange_start(void *self, const lc_comm_call *call, void *state) LC_MUST_USE;
lc_status lc__exchange_wait(exchange *x, const pending *p) LC_MUST_USE;
lc_status lc__exchange_split(void *self, int color, int key, int *rank, int *size, void **out) LC_MUST_USE;
/* Takes ownership of `transport`, also on failure. */
lc_status lc__exchange_make(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size,
                            exchange **out) LC_MUST_USE;

#endif
