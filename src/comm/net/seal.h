/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of one direction of a connection, sealed: each with AES-256-GCM under a key that only the two ends can make
 * (lc__proof_make, from the secret and both their random numbers) and its number in the direction. So what is changed,
 * left out, sent again, or sent in another order or the other way is noticed with the first such message.
 *
 * AES is OpenSSL's (seal_openssl.c), which is there where proofs do not show the secret. */
#ifndef LC_COMM_NET_SEAL_H
#define LC_COMM_NET_SEAL_H

#include <lightc/status.h>

enum { LC__SEAL_TAG = 16, LC__SEAL_KEY = 32 };

typedef struct lc__seal lc__seal;

/* Seals what is sent, or (`opens`) opens what is received. `encrypts`: otherwise it is only authenticated. */
lc_status lc__seal_new(const uint8_t key[LC__SEAL_KEY], bool opens, bool encrypts, lc__seal **out) LC_MUST_USE;
void lc__seal_free(lc__seal *s); /* NULL is fine */
/* Seals the next message: a head, which everybody can read, and n bytes, which are replaced by what is to be sent. */
bool lc__seal_close(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                    uint8_t tag[LC__SEAL_TAG]);
/* The other way. False: it is not the message that the other end has sent next. */
bool lc__seal_open(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                   const uint8_t tag[LC__SEAL_TAG]);

/* The message in that case, about the sender. */
#define LC__TAMPERED "a message was changed in transit: something on the network between the hosts interferes"

#endif
