/* SPDX-License-Identifier: Apache-2.0 */
/* Where a rank runs: its host, processors, memory and networks (from /proc and /sys), exchanged between all ranks; and
 * the links between ranks. */
#ifndef LC_TOOLS_PLACE_H
#define LC_TOOLS_PLACE_H

#include <lightc/lightc.h>

enum { PLACE_CPUS = 1024, MOST_LINKS = 16 };

typedef struct place {
    char version[32], host[128];
    char id[256];       /* equal for ranks on the same host */
    char cpu_list[128]; /* processors it may run on: "0-3,8" */
    uint64_t cpus[PLACE_CPUS / 64];
    uint64_t nodes;                               /* NUMA nodes of these, a bit each; 0: unknown */
    int32_t n_cpus, all_cpus, all_nodes, sockets; /* all_*: of the host */
    int32_t threads;                              /* the number that a trainer would use */
    int32_t granted;                              /* how many of n_cpus the container may keep busy */
    double load;                                  /* of the last minute; -1: unknown */
    int64_t memlock;                              /* bytes; -1: unlimited */
    int32_t ports[2];                             /* range of ports that connections listen on */
    int32_t has_fabric, has_network;              /* has_network: more than loopback */
    char networks[512];                           /* "eth0 10.0.0.1 10000 Mbit/s, ..." */
} place;

/* Collects the places of all ranks. `node`: the simulated host of this process, or -1. Collective. */
lc_status place_gather(lc_comm *c, int node, place *all) LC_MUST_USE;
/* The first rank on the same host as `rank`. */
int place_host(const place *all, int rank);

/* A class of links, with the first two ranks that have one. */
typedef struct rank_link {
    int a, b;
    bool across; /* between hosts */
    char what[64];
} rank_link;

/* Returns how many there are, at most MOST_LINKS. */
int place_links(const place *all, int n, rank_link *out);

#endif
