/* SPDX-License-Identifier: Apache-2.0 */
/* The transport through memory that all ranks see: a ring of bytes for each ordered pair of ranks and each lane. On
 * LC__LANE_ANSWERED a sum goes back in the cache lines in which its parts came. */
#ifndef LC_COMM_TRANSPORT_RINGS_H
#define LC_COMM_TRANSPORT_RINGS_H

#include "comm/comm_internal.h"

/* The shared part. Holds no pointers: processes map it at different addresses. */
typedef struct lc__rings lc__rings;

size_t lc__rings_bytes(int size);
void lc__rings_init(lc__rings *w, int size); /* memory of zeros */

/* One rank's end. Every rank leaves exactly once: when its end is closed (then `release` is called with the rings'
 * bytes), or because it could not join. */
lc_status lc__rings_join(lc__rings *w, int rank, void (*release)(lc__rings *w, size_t bytes), void **out) LC_MUST_USE;
/* Counts one more rank that has left; returns whether it was the last. */
bool lc__rings_leave(lc__rings *w);

/* Everything in lc__transport_ops except name and open. */
#define LC__RINGS_OPS                                                                                                  \
    .close = lc__rings_close, .room = lc__rings_room, .commit = lc__rings_commit, .peek = lc__rings_peek,              \
    .consume = lc__rings_consume, .peek_answer = lc__rings_peek_answer, .take_answer = lc__rings_take_answer,          \
    .miss = lc__rings_miss, .progress = lc__rings_progress, .idle = lc__rings_idle, .abort = lc__rings_abort

void lc__rings_close(void *self);
size_t lc__rings_room(void *self, int peer, int lane, void **at);
void lc__rings_commit(void *self, int peer, int lane, size_t n);
size_t lc__rings_peek(void *self, int peer, int lane, const void **at);
void lc__rings_consume(void *self, int peer, int lane, size_t n);
size_t lc__rings_peek_answer(void *self, int peer, const void **at);
void lc__rings_take_answer(void *self, int peer, size_t n);
void lc__rings_miss(void *self, int peer, int lane);
lc_status lc__rings_progress(void *self);
/* A rank that has left and is still needed; -1: none, or the group has ended. */
int lc__rings_missed(const void *self);
void lc__rings_idle(void *self, int microseconds);
void lc__rings_abort(void *self, const char *why);

#endif
