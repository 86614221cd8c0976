/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* accept4 */
#include "comm/net/guests.h"
#include "comm/net/socket.h"
#include "base/descriptors.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum { LEAST = 16, BUCKETS = 256 };

int lc__guests_most(int expected)
{
    lc__descriptors_allow(expected + 2 * LC__GUESTS);
    long long left = (lc__descriptors_left() - expected) / 2; /* half is left to the program */
    return expected + (int)(left < LEAST ? LEAST : left < LC__GUESTS ? left : LC__GUESTS);
}

/* A host has one IPv4 address, but as many IPv6 addresses as it likes. */
static uint64_t place_of(const struct sockaddr_storage *sa)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)sa;
    const uint8_t *at = six->sin6_addr.s6_addr;
    uint64_t place = 0;
    if (sa->ss_family != AF_INET6) return ((const struct sockaddr_in *)sa)->sin_addr.s_addr;
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        memcpy(&place, at + 12, 4);
    else
        memcpy(&place, at, 8);
    return place;
}

int lc__guest_accept(int listener, double now, lc__guest *out)
{
    struct sockaddr_storage sa = {0};
    int fd = lc__socket_accept(listener, &sa);
    if (fd >= 0) *out = (lc__guest){.since = now, .from = place_of(&sa)};
    return fd;
}

static unsigned bucket(uint64_t from)
{
    return (unsigned)((from * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

int lc__guest_to_leave(const void *guests, size_t stride, int n, double now, double *until)
{
    int count[BUCKETS] = {0}, most = 0, found = -1;
    const char *at = guests;
    double since = now;
    for (int i = 0; i < n; i++) {
        const lc__guest *g = (const lc__guest *)(const void *)(at + (size_t)i * stride);
        int k = g->since > 0 ? ++count[bucket(g->from)] : 0;
        if (k > most) most = k;
    }
    for (int i = 0; i < n; i++) {
        const lc__guest *g = (const lc__guest *)(const void *)(at + (size_t)i * stride);
        if (g->since <= 0 || count[bucket(g->from)] != most || (found >= 0 && g->since >= since)) continue;
        found = i;
        since = g->since;
    }
    *until = since + LC__GUEST_FIRST;
    return now < *until ? -1 : found;
}
