/* SPDX-License-Identifier: Apache-2.0 */
/* The transport through memory that all ranks see: a ring of bytes for each ordered pair of ranks and each lane. In
 * those of LC__LANE_ANSWERED a sum goes back in the cache lines that its parts came in. */
#ifndef LC_COMM_TRANSPORT_WINDOW_H
#define LC_COMM_TRANSPORT_WINDOW_H

#include "comm/comm_internal.h"

/* The shared part. Holds no pointers: processes have it at different addresses. */
typedef struct lc__window lc__window;

size_t lc__window_bytes(int size);
void lc__window_init(lc__window *w, int size); /* of zeros */

/* One rank's end. Every rank leaves exactly once: when its end is closed (then `release` is called with the window's
 * bytes), or because it could not join. */
lc_status lc__window_join(lc__window *w, int rank, void (*release)(lc__window *w, size_t bytes),
                          void **out) LC_MUST_USE;
/* Counts one more rank that has left; whether it was the last. */
bool lc__window_leave(lc__window *w);

/* Everything of lc__transport_ops but name and open. */
#define LC__WINDOW_OPS                                                                                                 \
    .close = lc__window_close, .room = lc__window_room, .commit = lc__window_commit, .peek = lc__window_peek,          \
    .consume = lc__window_consume, .peek_answer = lc__window_peek_answer, .take_answer = lc__window_take_answer,       \
    .miss = lc__window_miss, .progress = lc__window_progress, .idle = lc__window_idle, .abort = lc__window_abort

void lc__window_close(void *self);
size_t lc__window_room(void *self, int peer, int lane, void **at);
void lc__window_commit(void *self, int peer, int lane, size_t n);
size_t lc__window_peek(void *self, int peer, int lane, const void **at);
void lc__window_consume(void *self, int peer, int lane, size_t n);
size_t lc__window_peek_answer(void *self, int peer, const void **at);
void lc__window_take_answer(void *self, int peer, size_t n);
void lc__window_miss(void *self, int peer, int lane);
lc_status lc__window_progress(void *self);
/* A rank that has left and is still needed; -1: none, or the group has ended. */
int lc__window_missed(const void *self);
void lc__window_idle(void *self, int microseconds);
void lc__window_abort(void *self, const char *why);

#endif
