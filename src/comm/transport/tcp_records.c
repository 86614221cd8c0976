/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/transport/tcp_records.h"
#include "comm/control/wire.h"
#include "comm/net/socket.h"

#include <stdlib.h>
#include <string.h>

lc_status lc__records_new(const uint8_t closes[LC__SEAL_KEY], const uint8_t opens[LC__SEAL_KEY], bool encrypts,
                          lc__records **out)
{
    lc__records *r = calloc(1, sizeof *r);
    *out = r;
    if (r) r->out = malloc(LC__RECORD_MOST), r->in = malloc(LC__RECORDS_IN);
    if (!r || !r->out || !r->in) return lc_fail(LC_ERR_MEMORY, "out of memory: sealed messages between two ranks");
    LC_TRY(lc__seal_new(closes, false, encrypts, &r->closes));
    return lc__seal_new(opens, true, encrypts, &r->opens);
}

void lc__records_free(lc__records *r)
{
    if (!r) return;
    lc__seal_free(r->closes);
    lc__seal_free(r->opens);
    free(r->out);
    free(r->in);
    free(r);
}

bool lc__records_close(lc__records *r, const void *data, size_t n, size_t zeros)
{
    uint8_t *at = r->out + LC__RECORD_HEAD;
    size_t all = n + zeros;
    lc__put_u32(r->out, (uint32_t)all);
    memcpy(at, data, n);
    memset(at + n, 0, zeros);
    r->out_at = 0;
    r->out_n = LC__RECORD_HEAD + all + LC__SEAL_TAG;
    return lc__seal_close(r->closes, r->out, LC__RECORD_HEAD, at, all, at + all);
}

bool lc__records_flush(lc__records *r, int fd)
{
    while (lc__records_pending(r)) {
        ssize_t k = lc__socket_send(fd, r->out + r->out_at, r->out_n - r->out_at);
        if (k <= 0) return k == 0;
        r->out_at += (size_t)k;
    }
    return true;
}

bool lc__records_take_more(const lc__records *r)
{
    return r->in_n - r->in_at < LC__RECORDS_IN;
}

ssize_t lc__records_fill(lc__records *r, int fd)
{
    if (r->in_at == r->in_n) r->in_at = r->in_n = 0;
    if (LC__RECORDS_IN - r->in_n < LC__RECORD_MOST && r->in_at) {
        memmove(r->in, r->in + r->in_at, r->in_n - r->in_at);
        r->in_n -= r->in_at;
        r->in_at = 0;
    }
    if (r->in_n == LC__RECORDS_IN) return 0;
    ssize_t k = lc__socket_recv(fd, r->in + r->in_n, LC__RECORDS_IN - r->in_n);
    if (k > 0) r->in_n += (size_t)k;
    return k;
}

/* A record with an impossible head is opened as an empty one, which fails. */
static size_t data_of_next(const lc__records *r)
{
    uint32_t n = lc__get_u32(r->in + r->in_at);
    return n > LC__RECORD ? 0 : n;
}

size_t lc__records_next(const lc__records *r)
{
    size_t there = r->in_n - r->in_at;
    if (there < LC__RECORD_HEAD + LC__SEAL_TAG) return 0;
    size_t n = data_of_next(r);
    if (there < LC__RECORD_HEAD + n + LC__SEAL_TAG) return 0;
    return n ? n : 1; /* no rank sends an empty one */
}

const uint8_t *lc__records_open(lc__records *r)
{
    uint8_t *head = r->in + r->in_at, *data = head + LC__RECORD_HEAD;
    size_t n = data_of_next(r);
    r->tampered = !lc__seal_open(r->opens, head, LC__RECORD_HEAD, data, n, data + n) || !n;
    r->in_at += LC__RECORD_HEAD + n + LC__SEAL_TAG;
    return r->tampered ? NULL : data;
}
