/* SPDX-License-Identifier: Apache-2.0 */
/* A lane between two ranks: a TCP connection, a ring for what goes out and one for what has come in, and records
 * between the rings and the socket if it is sealed. `size` is that of the ring in question. */
#ifndef LC_COMM_TRANSPORT_TCP_LANES_H
#define LC_COMM_TRANSPORT_TCP_LANES_H

#include "comm/transport/tcp_records.h"

/* It holds the bytes [read, written), counted since the beginning. */
typedef struct lc__ring {
    char *data;
    uint64_t written, read;
} lc__ring;

typedef struct lc__lane {
    int fd;
    bool closed; /* nothing comes or goes anymore */
    bool full;   /* the socket took less than there was */
    lc__ring in, out;
    lc__records *records; /* NULL: bytes are sent as they are */
} lc__lane;

static inline size_t lc__ring_filled(const lc__ring *r)
{
    return (size_t)(r->written - r->read);
}

/* How many of the `n` bytes from position `at` on are contiguous. */
static inline size_t lc__ring_until_wrap(uint64_t at, size_t n, size_t size)
{
    size_t left = size - (size_t)(at % size);
    return n < left ? n : left;
}

/* Whether something is still to be sent. */
static inline bool lc__lane_has_more(const lc__lane *c)
{
    return lc__ring_filled(&c->out) || (c->records && lc__records_pending(c->records));
}

/* Whether a record has arrived for which there is room. */
bool lc__lane_can_open(const lc__lane *c, size_t size);
/* Move what they can: from the ring to the socket, from the socket to the ring, and from records that have arrived to
 * the ring. */
void lc__lane_send(lc__lane *c, size_t size);
void lc__lane_receive(lc__lane *c, size_t size);
void lc__lane_open(lc__lane *c, size_t size);
/* Seals bytes past the ring. Returns how many, in whole grains. */
size_t lc__lane_put_sealed(lc__lane *c, const char *data, size_t n);

#endif
