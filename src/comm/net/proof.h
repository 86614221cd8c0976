/* SPDX-License-Identifier: Apache-2.0 */
/* How the ends of a connection prove to each other that they know a secret, without sending it: each sends the other a
 * random number, and answers with HMAC-SHA-256, under the secret, of its role, both numbers, and what it says about
 * itself. An answer is of no use on another connection (other numbers) or in the other direction (another role).
 *
 * Without OpenSSL (proof_none.c) the answer is the secret itself, which must not leave the host. */
#ifndef LC_COMM_NET_PROOF_H
#define LC_COMM_NET_PROOF_H

#include <lightc/status.h>

enum { LC__NONCE = 32, LC__PROOF = 64 };

typedef enum lc__proof_role {
    LC__PROOF_RANK = 1,    /* on the control channel */
    LC__PROOF_COORDINATOR, /* on the control channel */
    LC__PROOF_CALLER,      /* between two ranks, the one that connects */
    LC__PROOF_LISTENER,
    LC__PROOF_GROUP,     /* no answer: the key of a group */
    LC__PROOF_WATCHER,   /* on the control channel: a launcher, which watches the processes of ranks */
    LC__PROOF_KEY_THERE, /* no answer: the key for what the connecting end sends (seal.h) */
    LC__PROOF_KEY_BACK   /* and for what the other end sends */
} lc__proof_role;

typedef struct lc__proof_ask {
    lc__proof_role role;
    uint8_t asked[LC__NONCE];    /* the number from the listening end */
    uint8_t answered[LC__NONCE]; /* the number from the connecting end */
    uint8_t about[96];           /* what the connecting end says about itself; unused bytes are 0 */
} lc__proof_ask;

/* Whether answers reveal the secret. */
bool lc__proof_reveals(void);
/* "OpenSSL is not installed", if they do. */
const char *lc__proof_why_not(void);
/* OpenSSL's libcrypto; NULL: it is not available. */
void *lc__proof_library(void);
lc_status lc__proof_nonce(uint8_t nonce[LC__NONCE]) LC_MUST_USE;
/* key: up to LC__PROOF bytes. */
lc_status lc__proof_make(const void *key, size_t key_bytes, const lc__proof_ask *ask,
                         uint8_t proof[LC__PROOF]) LC_MUST_USE;
/* Whether a proof is right. Takes the same time wherever it differs. */
bool lc__proof_is(const void *key, size_t key_bytes, const lc__proof_ask *ask, const uint8_t proof[LC__PROOF]);

#endif
