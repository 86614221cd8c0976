/* SPDX-License-Identifier: Apache-2.0 */
/* Connections at a listener that have proven nothing yet. There is a fixed number of places, and every new connection
 * gets one at once: if all are taken, the oldest connection of the address that has most of them is closed. So silent
 * connections, however many, do not delay one that can prove itself at once. */
#ifndef LC_COMM_NET_GUESTS_H
#define LC_COMM_NET_GUESTS_H

#include <lightc/status.h>

enum { LC__GUESTS = 256 };   /* places, if the process has enough descriptors */
#define LC__GUEST_TIME  5.0  /* seconds that a guest has to prove itself */
#define LC__GUEST_FIRST 0.15 /* seconds that it has even if there are too many */

typedef struct lc__guest {
    double since;  /* 0: there is no guest */
    uint64_t from; /* its address: that of a host, or of an IPv6 network */
} lc__guest;

/* How many places there are if `expected` connections that can prove themselves may arrive at once. */
int lc__guests_most(int expected);
/* Accepts a connection: its descriptor, or -1 and errno of accept4. */
int lc__guest_accept(int listener, double now, lc__guest *out);
/* Which of n guests must make room for the next; each begins with an lc__guest, `stride` bytes after the one before.
 * -1: all have time left; *until is when the first has not. */
int lc__guest_to_leave(const void *guests, size_t stride, int n, double now, double *until);

#endif
