/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes between the rings of a lane and its socket. */
#include "comm/transport/tcp_lanes.h"
#include "comm/comm_internal.h"
#include "comm/exchange/schedule.h"
#include "comm/net/socket.h"

#include <string.h>

/* False: the connection is gone, or the lane cannot be used anymore. */
static bool send_record(lc__lane *c, const void *data, size_t n, size_t zeros)
{
    return lc__records_close(c->records, data, n, zeros) && lc__records_flush(c->records, c->fd);
}

static void send_sealed(lc__lane *c, size_t size)
{
    lc__ring *r = &c->out;
    c->closed = !lc__records_flush(c->records, c->fd);
    while (!c->closed && lc__ring_filled(r) && !lc__records_pending(c->records)) {
        size_t n = lc__ring_until_wrap(r->read, lc__ring_filled(r), size);
        if (n > LC__RECORD) n = LC__RECORD;
        c->closed = !send_record(c, r->data + r->read % size, n, 0);
        r->read += n;
    }
}

void lc__lane_send(lc__lane *c, size_t size)
{
    lc__ring *r = &c->out;
    ssize_t k = 1;
    if (c->records) {
        send_sealed(c, size);
        return;
    }
    while (k > 0 && lc__ring_filled(r)) {
        k = lc__socket_send(c->fd, r->data + r->read % size, lc__ring_until_wrap(r->read, lc__ring_filled(r), size));
        if (k > 0) r->read += (size_t)k;
    }
    if (k < 0) c->closed = true;
}

size_t lc__lane_put_sealed(lc__lane *c, const char *data, size_t n)
{
    size_t taken = 0;
    while (taken < n && !c->closed && !lc__records_pending(c->records)) {
        size_t k = n - taken < LC__RECORD ? n - taken : LC__RECORD;
        c->closed = !send_record(c, data + taken, k, (size_t)lc__padded((int64_t)k) - k);
        taken += (size_t)lc__padded((int64_t)k);
    }
    c->full = lc__records_pending(c->records);
    return taken;
}

bool lc__lane_can_open(const lc__lane *c, size_t size)
{
    size_t n = c->records && !c->records->tampered ? lc__records_next(c->records) : 0;
    return n && n <= size - lc__ring_filled(&c->in);
}

void lc__lane_open(lc__lane *c, size_t size)
{
    lc__ring *r = &c->in;
    while (lc__lane_can_open(c, size)) {
        size_t n = lc__records_next(c->records), first = lc__ring_until_wrap(r->written, n, size);
        const uint8_t *data = lc__records_open(c->records);
        if (!data) return;
        memcpy(r->data + r->written % size, data, first);
        memcpy(r->data, data + first, n - first);
        r->written += n;
    }
}

void lc__lane_receive(lc__lane *c, size_t size)
{
    lc__ring *r = &c->in;
    ssize_t k = 1;
    if (c->records) {
        while (k > 0 && !c->records->tampered) {
            k = lc__records_fill(c->records, c->fd);
            lc__lane_open(c, size);
        }
        if (k < 0 || c->records->tampered) c->closed = true;
        return;
    }
    while (k > 0 && lc__ring_filled(r) < size) {
        size_t n = lc__ring_until_wrap(r->written, size - lc__ring_filled(r), size);
        k = lc__socket_recv(c->fd, r->data + r->written % size, n);
        if (k > 0) r->written += (size_t)k;
        if (k < (ssize_t)n) break;
    }
    if (k < 0) c->closed = true;
}
