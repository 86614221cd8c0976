/* SPDX-License-Identifier: Apache-2.0 */
/* The last calls of a communicator, in a ring: the thread that makes the calls writes it, and any thread reads it
 * without making the writer wait. A reader may miss a call that is being replaced. */
#ifndef LC_COMM_HISTORY_H
#define LC_COMM_HISTORY_H

#include <lightc/comm.h>

#include <stdatomic.h>

enum { LC__HISTORY = 32 };

typedef struct lc__history {
    struct lc__past_call {
        atomic_ullong number;      /* from 1; 0: none, or it is being written */
        atomic_ullong collective;  /* the number among collectives, from 1; 0: it is a send or a receive */
        atomic_llong begun, count; /* begun: lc__now_ns */
        atomic_int op, reduce, dtype, peer;
        atomic_bool done;
    } calls[LC__HISTORY];
    uint64_t collectives; /* written by the thread that makes calls */
} lc__history;

typedef struct lc__call_record {
    uint64_t number, collective;
    int64_t begun;
    bool done;
    lc_comm_call call; /* without its memory */
} lc__call_record;

void lc__history_begin(lc__history *h, uint64_t number, const lc_comm_call *call);
void lc__history_done(lc__history *h, uint64_t number);
/* Entry i of the ring, from 0; false: there is none. */
bool lc__history_get(const lc__history *h, int i, lc__call_record *out);

/* For several communicators: the newest calls, and the oldest unfinished one, since that is the one that hangs. */
enum { LC__LAST_CALLS = 4 };
typedef struct lc__last_calls {
    int n;
    struct lc__last_call {
        lc__call_record record;
        char group[32];
    } calls[LC__LAST_CALLS], stuck; /* calls: the oldest first; stuck.record.number 0: none */
} lc__last_calls;

/* What a rank is doing on its communicators, to decide whether the ranks of a run wait for each other. Starts as {0};
 * lc__comm_standing adds a communicator with its groups. */
typedef struct lc__standing {
    lc__last_calls last;
    uint64_t activity;              /* changes with each call that begins, is waited for or ends, and as bytes move */
    bool waits;                     /* in a call, on a backend that reports when bytes move */
    struct lc__last_call under_way; /* the oldest call that has not ended and may be compared with other ranks' */
} lc__standing;

/* *oldest becomes the oldest call of `h` that has not ended, if that is older. */
void lc__history_oldest(const lc__history *h, const char *group, struct lc__last_call *oldest);
/* A number that changes when a call begins or ends. */
uint64_t lc__history_activity(const lc__history *h);
void lc__last_calls_add(lc__last_calls *l, const lc__history *h, const char *group);
/* One line a call, as "  12 all_reduce of 4096 f32, sum"; '>' marks calls that have not ended. */
void lc__last_calls_text(const lc__last_calls *l, char *text, size_t size);

#endif
