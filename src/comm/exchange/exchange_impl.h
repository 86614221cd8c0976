/* SPDX-License-Identifier: Apache-2.0 */
/* What exchange.c (the calls that run), communicator.c and groups.c share. */
#ifndef LC_COMM_EXCHANGE_EXCHANGE_IMPL_H
#define LC_COMM_EXCHANGE_EXCHANGE_IMPL_H

#include "comm/exchange/exposed.h"
#include "comm/exchange/schedule.h"

#include <stdatomic.h>

/* A call that runs. */
typedef struct pending {
    lc_comm_call call;
    struct pending *next;
    uint64_t number;
    lc__message m; /* of send and receive */
    lc__range range;
    bool done;
} pending;

typedef struct queue {
    pending *first, *last;
} queue;

typedef struct peer_state {
    queue sends, receives;                    /* on the direct lane */
    uint64_t sends_started, receives_started; /* their numbers */
    bool across;                              /* on another host */
} peer_state;

/* Stage of the running collective. If ranks have exposed memory, a large all_reduce first asks whether its data is in
 * it on all of them; if so, each combines its part IN_PLACE, and then all report that they have. */
typedef enum stage { ASK, IN_PLACE, SAY, WHOLE } stage;

typedef struct exchange {
    const lc__transport_ops *ops;
    void *transport; /* NULL: one rank */
    void *opening;
    int rank, size;
    queue collectives; /* the first one runs */
    bool active;       /* `schedule` and `stage` are its */
    stage stage;
    lc__schedule schedule;
    lc__exposed exposed;
    int64_t *tokens;        /* [size]: where the data of this collective is (exposed.h) */
    int64_t combined;       /* bytes of this rank's part of it */
    uint64_t number;        /* of collectives */
    _Atomic uint64_t moved; /* bytes that were handed over or taken */
    uint64_t seen;          /* how many of them `idle` or `nap` knows */
    int64_t quiet_since, spin_ns;
    int64_t sent, sent_across; /* bytes, without headers; those that went to other hosts */
    peer_state *peers;         /* [size] */
    const void **parts;
} exchange;

/* Bytes of `count` elements; all_gather and others have as many of each rank. */
static inline int64_t lc__call_bytes(const lc_comm_call *call)
{
    return call->count * (int64_t)lc_dtype_size(call->dtype);
}

/* As far as possible now: send and receive; the collective that runs, and those that it lets run. */
lc_status lc__exchange_advance_direct(exchange *x) LC_MUST_USE;
lc_status lc__exchange_advance_collectives(exchange *x) LC_MUST_USE;

/* As lc_comm_ops; `state` is a pending. */
lc_status lc__exchange_start(void *self, const lc_comm_call *call, void *state) LC_MUST_USE;
lc_status lc__exchange_wait(exchange *x, const pending *p) LC_MUST_USE;
lc_status lc__exchange_split(void *self, int color, int key, int *rank, int *size, void **out) LC_MUST_USE;
/* Takes `transport` over, also when it fails. */
lc_status lc__exchange_make(const lc__transport_ops *ops, void *transport, void *opening, int rank, int size,
                            exchange **out) LC_MUST_USE;

#endif
