/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between each two ranks of a group. */
#ifndef LC_COMM_TRANSPORT_TCP_MESH_H
#define LC_COMM_TRANSPORT_TCP_MESH_H

#include "comm/comm_internal.h"

#include "comm/net/proof.h"
#include "comm/net/seal.h"

enum { LC__TCP_TOKEN = LC__NONCE };

/* What each rank sends the others in the meeting, twice: its address, then its result. If the run has a secret, nothing
 * in the meeting suffices to join the group. */
typedef struct lc__tcp_card {
    char address[64], why[256];   /* why: it failed */
    int32_t port, missing;        /* missing: what failed is about another rank */
    int32_t security;             /* lc__security: that of all is the same */
    uint8_t token[LC__TCP_TOKEN]; /* rank 0's is the group's */
} lc__tcp_card;

/* The keys of a connection that is sealed. */
typedef struct lc__tcp_keys {
    uint8_t closes[LC__SEAL_KEY], opens[LC__SEAL_KEY]; /* of what this rank sends, and of what comes */
} lc__tcp_keys;

/* Collective. `prepared`: whether this rank can take part; its error fails on all ranks, as does an error of a
 * connection. `here`: of this host for the others. without [size]: ranks that this one has no connection to, nor they
 * to it; NULL: none. fds [size,streams]: connection s to rank i is fds[i * streams + s]; -1 to itself and where there
 * is none. They do not wait, and are the caller's to close. keys [size,streams]: of these; NULL: not wanted. */
lc_status lc__tcp_mesh(lc_status prepared, const lc__tcp_place *here, int rank, int size, const bool *without,
                       int streams, const lc__meeting *meeting, int *fds, lc__tcp_keys *keys) LC_MUST_USE;
/* What the ranks of a group prove to know. */
lc_status lc__tcp_key(const char *secret, const uint8_t token[LC__TCP_TOKEN], uint8_t key[LC__PROOF]) LC_MUST_USE;

#endif
