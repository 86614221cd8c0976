/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank is: what it reports to the others about its host, processors, memory and networks (from /proc and /sys),
 * and which links there are between ranks. */
#ifndef LC_TOOLS_PLACE_H
#define LC_TOOLS_PLACE_H

#include <lightc/lightc.h>

enum { PLACE_CPUS = 1024, MOST_LINKS = 16 };

typedef struct place {
    char version[32], host[128];
    char id[256];       /* the same for ranks that are on one host */
    char cpu_list[128]; /* it may run on: "0-3,8" */
    uint64_t cpus[PLACE_CPUS / 64];
    uint64_t nodes;                                /* of NUMA that have these, a bit each; 0: not known */
    int32_t n_cpus, all_cpus, all_nodes, sockets;  /* all: of the host */
    int32_t threads;                               /* that a trainer would use */
    int32_t granted;                               /* as many of n_cpus as the container may keep busy */
    double load;                                   /* of the last minute; -1: not known */
    int64_t memlock;                               /* bytes; -1: as much as it likes */
    int32_t ports[2];                              /* that connections listen on */
    int32_t has_fabric, under_mpirun, has_network; /* has_network: more than loopback */
    char networks[512];                            /* "eth0 10.0.0.1 10000 Mbit/s, ..." */
} place;

/* Collects the places of all ranks. `node`: which of several simulated hosts this process is on, or -1. Collective. */
lc_status place_gather(lc_comm *c, int node, place *all) LC_MUST_USE;
/* all[i].id is that of an earlier rank: the first one; else i. */
int place_host(const place *all, int rank);

/* One of the ways that bytes go between two ranks: the first two ranks between which they do. */
typedef struct rank_link {
    int a, b;
    bool across; /* hosts */
    char what[64];
} rank_link;

/* Returns how many there are, at most MOST_LINKS. */
int place_links(const place *all, int n, rank_link *out);

#endif
