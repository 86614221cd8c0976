/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between any two ranks of a group. */
#ifndef LC_COMM_TRANSPORT_TCP_MESH_H
#define LC_COMM_TRANSPORT_TCP_MESH_H

#include "comm/comm_internal.h"

#include "comm/net/proof.h"
#include "comm/net/seal.h"

enum { LC__TCP_TOKEN = LC__NONCE };

/* The message of a rank to the others in the meeting, sent twice: its address, then its result. If the run has a
 * secret, nothing in the meeting suffices to join the group. */
typedef struct lc__tcp_card {
    char address[64], why[256];   /* why: the error */
    int32_t port, missing;        /* missing: the error is about another rank */
    int32_t security;             /* lc__security: the same on all ranks */
    uint8_t token[LC__TCP_TOKEN]; /* rank 0's is the group's */
} lc__tcp_card;

/* The keys of a connection that is sealed. */
typedef struct lc__tcp_keys {
    uint8_t closes[LC__SEAL_KEY], opens[LC__SEAL_KEY]; /* for what this rank sends, and receives */
} lc__tcp_keys;

/* Collective. `prepared`: whether this rank can take part; its error makes all ranks fail, as does that of a
 * connection. `here`: where the others reach this rank. without [size]: ranks that this one has no connection with;
 * NULL: none. fds [size,streams]: connection s to rank i is fds[i * streams + s]; -1 if there is none, as to itself.
 * They do not block; the caller closes them. keys [size,streams]: their keys; NULL: not wanted. */
lc_status lc__tcp_mesh(lc_status prepared, const lc__tcp_place *here, int rank, int size, const bool *without,
                       int streams, const lc__meeting *meeting, int *fds, lc__tcp_keys *keys) LC_MUST_USE;
/* The key that the ranks of a group prove to know. */
lc_status lc__tcp_key(const char *secret, const uint8_t token[LC__TCP_TOKEN], uint8_t key[LC__PROOF]) LC_MUST_USE;

#endif
