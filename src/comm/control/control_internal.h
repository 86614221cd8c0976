/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two ends of the control channel: the files of control/ and of coordinator/. */
#ifndef LC_COMM_CONTROL_CONTROL_INTERNAL_H
#define LC_COMM_CONTROL_CONTROL_INTERNAL_H

#include "comm/control/control.h"
#include "comm/control/wire.h"
#include "comm/net/proof.h"
#include "base/thread.h"

#define LC__RETRY 0.1 /* seconds between two tries to reach the coordinator */

enum {
    LC__CONTROL_VERSION = 7, /* of the messages */
    LC__CHALLENGE_BYTES = 8 + LC__NONCE,
    LC__HELLO_TEXT = 32, /* offset of the host in it */
    LC__HELLO_HEAD = LC__HELLO_TEXT + LC__HOST_TEXT,
    LC__HELLO_BYTES = LC__HELLO_HEAD + LC__NONCE + LC__PROOF,
    LC__UNPROVEN_BYTES = 512, /* limit for an end that has not proven that it knows the secret */
    LC__DOUBT_TEXT = 256
};

/* The statement that `role` proves, if the coordinator has sent `asked` and the other end `hello`. */
lc__proof_ask lc__control_ask(lc__proof_role role, const uint8_t asked[LC__NONCE],
                              const uint8_t hello[LC__HELLO_BYTES]);

/* Makes the answer of `role`, for `count` ranks, to the coordinator's first message, in `hello`; false: it cannot, and
 * `doubt` says why. */
bool lc__control_answer(const lc__control_args *o, lc__proof_role role, int count, const lc__frame *challenge,
                        uint8_t hello[LC__HELLO_BYTES], char doubt[LC__DOUBT_TEXT]);
/* Names the sender of an answer ("host a, process 7"). */
enum { LC__SENDER_TEXT = LC__HOST_TEXT * 4 + 48 };
void lc__control_sender(const uint8_t hello[LC__HELLO_BYTES], char text[LC__SENDER_TEXT]);

/* Connects to the coordinator, which may start later than its clients (it has `until`), and waits until it has sent the
 * first message, or closed (it has until `answered`). Until then `say` gets messages in which `who` ("rank 3") waits.
 */
lc_status lc__control_reach(const lc__control_args *o, const char *who, double until, double answered,
                            int *fd) LC_MUST_USE;
void lc__control_nap(double seconds);
/* Puts the defaults in place of zeros; NULL: all defaults. */
lc__control_times lc__control_default_times(const lc__control_times *times);

#endif
