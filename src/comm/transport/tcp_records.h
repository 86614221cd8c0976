/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a lane between two ranks in sealed records (seal.h): a head of 4 bytes with the number of bytes that
 * follow, little endian; these bytes, encrypted or as they are; a tag. */
#ifndef LC_COMM_TRANSPORT_TCP_RECORDS_H
#define LC_COMM_TRANSPORT_TCP_RECORDS_H

#include "comm/net/seal.h"

#include <sys/types.h>

enum {
    LC__RECORD = 32 << 10, /* bytes of data at most */
    LC__RECORD_HEAD = 4,
    LC__RECORD_MOST = LC__RECORD_HEAD + LC__RECORD + LC__SEAL_TAG,
    LC__RECORDS_IN = 4 * LC__RECORD_MOST /* bytes that have arrived, before they are opened */
};

typedef struct lc__records {
    lc__seal *closes, *opens;
    uint8_t *out, *in; /* [LC__RECORD_MOST], [LC__RECORDS_IN] */
    size_t out_at, out_n, in_at, in_n;
    bool tampered;
} lc__records;

/* `closes` and `opens` are the keys for what is sent and received. */
lc_status lc__records_new(const uint8_t closes[LC__SEAL_KEY], const uint8_t opens[LC__SEAL_KEY], bool encrypts,
                          lc__records **out) LC_MUST_USE;
void lc__records_free(lc__records *r); /* NULL is fine */

/* Whether a record is under way to the socket, in part or whole. */
static inline bool lc__records_pending(const lc__records *r)
{
    return r->out_n > r->out_at;
}

/* Makes a record of n bytes and `zeros` zero bytes, together at most LC__RECORD; no other may be pending. */
bool lc__records_close(lc__records *r, const void *data, size_t n, size_t zeros);
/* Sends what is pending, as far as the socket takes it; false: the connection is gone. */
bool lc__records_flush(lc__records *r, int fd);
/* Whether there is room for more input. */
bool lc__records_take_more(const lc__records *r);
/* Receives what has arrived, as lc__socket_recv. */
ssize_t lc__records_fill(lc__records *r, int fd);
/* The bytes of data of the next record, if all of it has arrived; else 0. */
size_t lc__records_next(const lc__records *r);
/* Opens that record: its data, valid until the next fill; NULL, and `tampered`, if it is not what was sent. */
const uint8_t *lc__records_open(lc__records *r);

#endif
