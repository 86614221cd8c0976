/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of strangers at a listener, which have proven nothing yet. There is a fixed number of places, and every
 * new connection gets one at once: if all are taken, the oldest connection of the address that has most of them is
 * closed. So silent connections, however many, do not delay one that can prove itself at once. */
#ifndef LC_COMM_NET_GUESTS_H
#define LC_COMM_NET_GUESTS_H

#include <lightc/status.h>

enum { LC__GUESTS = 256 };   /* places for others, where the process has so many descriptors */
#define LC__GUEST_TIME  5.0  /* seconds until a guest has to have proven what it has to */
#define LC__GUEST_FIRST 0.15 /* that it has in any case, if there are too many */

typedef struct lc__guest {
    double since;  /* 0: it is none */
    uint64_t from; /* its address: of one host, or one network of IPv6 */
} lc__guest;

/* How many places there are where `expected` connections may come at once that can prove it. */
int lc__guests_most(int expected);
/* One that has come is accepted: its descriptor, or -1 with errno of accept4. */
int lc__guest_accept(int listener, double now, lc__guest *out);
/* Which of n is put out for the next one; each begins with an lc__guest, `stride` bytes after the one before. -1: none
 * has had its time; *until is when one has. */
int lc__guest_to_leave(const void *guests, size_t stride, int n, double now, double *until);

#endif
