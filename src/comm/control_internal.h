/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ends of the control channel share: coordinator*.c and control.c. */
#ifndef LC_COMM_CONTROL_INTERNAL_H
#define LC_COMM_CONTROL_INTERNAL_H

#include "comm/control.h"
#include "comm/control_wire.h"
#include "comm/proof.h"

#include <pthread.h>

enum {
    LC__CONTROL_VERSION = 2, /* of the messages */
    LC__CHALLENGE_BYTES = 8 + LC__NONCE,
    LC__HELLO_HEAD = 20 + LC__HOST_TEXT,
    LC__HELLO_BYTES = LC__HELLO_HEAD + LC__NONCE + LC__PROOF,
    LC__UNPROVEN_BYTES = 512 /* more is not taken from who has not proven to know the secret */
};

/* What `role` proves, when the coordinator has sent `asked` and a rank `hello`. */
lc__proof_ask lc__control_ask(lc__proof_role role, const uint8_t asked[LC__NONCE],
                              const uint8_t hello[LC__HELLO_BYTES]);

lc_status lc__control_check_secret(const char *secret) LC_MUST_USE;
/* Defaults in place of zeros; NULL: all of them. */
lc__control_times lc__control_default_times(const lc__control_times *times);
/* A thread that gets no signals: they are for the program's own threads. Returns as pthread_create. */
int lc__control_thread(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
