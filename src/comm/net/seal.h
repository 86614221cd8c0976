/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of one direction of a connection, sealed: each with AES-256-GCM under a key that only the two ends can make
 * (lc__proof_make, from the secret and both their random numbers) and its number in the direction. So a message that is
 * changed, dropped, repeated, reordered or reflected is noticed at once.
 *
 * AES is OpenSSL's (seal_openssl.c), which is available if proofs do not reveal the secret. */
#ifndef LC_COMM_NET_SEAL_H
#define LC_COMM_NET_SEAL_H

#include <lightc/status.h>

enum { LC__SEAL_TAG = 16, LC__SEAL_KEY = 32 };

typedef struct lc__seal lc__seal;

/* Seals what is sent, or (`opens`) opens what is received. Without `encrypts` messages are only authenticated. */
lc_status lc__seal_new(const uint8_t key[LC__SEAL_KEY], bool opens, bool encrypts, lc__seal **out) LC_MUST_USE;
void lc__seal_free(lc__seal *s); /* NULL is fine */
/* Seals the next message: a head, which stays readable, and n bytes, which are replaced by the bytes to send. */
bool lc__seal_close(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                    uint8_t tag[LC__SEAL_TAG]);
/* Opens the next message. False: it is not what the other end sent next. */
bool lc__seal_open(lc__seal *s, const void *head, size_t head_bytes, uint8_t *data, size_t n,
                   const uint8_t tag[LC__SEAL_TAG]);

/* The error in that case, about the sender. */
#define LC__TAMPERED "a message was changed in transit: something on the network between the hosts interferes"

#endif
