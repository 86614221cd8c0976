/* SPDX-License-Identifier: Apache-2.0 */
/* A transport over other communicators; mixed.c opens it. */
#ifndef LC_COMM_TRANSPORT_RELAY_H
#define LC_COMM_TRANSPORT_RELAY_H

#include "comm/comm_internal.h"

extern const lc__transport_ops lc__relay; /* without `open` */

/* Takes ownership of the lanes, communicators over the same ranks, also on failure. without [size]: ranks that are
 * reached otherwise. */
lc_status lc__relay_new(lc_comm *const lanes[LC__LANES], const bool *without, void **out) LC_MUST_USE;
/* Splits its lanes into groups; NULL if color is negative. Collective. */
lc_status lc__relay_split(void *relay, int color, int key, lc_comm *lanes[LC__LANES]) LC_MUST_USE;

#endif
