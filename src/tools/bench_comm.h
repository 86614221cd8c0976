/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `lightc bench comm`: bench_points.c measures, bench_ranks.c starts the ranks. */
#ifndef LC_TOOLS_BENCH_COMM_H
#define LC_TOOLS_BENCH_COMM_H

#include "bench.h"

enum { MOST_RANKS = 64, MOST_ROWS = 4096 };

/* Besides the collectives: all_reduce in memory that the ranks share, as ddp does for gradients. */
#define OWN_MEMORY "all_reduce, own memory"

typedef struct row {
    char backend[16], collective[64];
    int ranks;
    int64_t bytes;
    double median, least, most; /* seconds */
} row;

typedef struct bench {
    const char *backends, *collectives, *ranks, *json;
    long long max_bytes;
    double seconds; /* duration of a batch */
    bool rows;      /* print them for the program that started this one */
    bool quiet;     /* print nothing */
    row *found;
    int n;
} bench;

/* ---- bench_points.c ---- */

/* Whether `name` is in "a,b,c". */
bool bench_listed(const char *list, const char *name);
/* Measures everything requested, and keeps the results on rank 0. `node`: the simulated host of this rank, or -1.
 * Collective. */
lc_status bench_all_points(lc_comm *c, bench *o, int node) LC_MUST_USE;
/* Stores a point, and prints it. */
void bench_keep(bench *o, const row *r);
/* Least squares of relative errors over rows first..last-1: sum of ((alpha + beta * bytes) / t - 1)^2. If that makes
 * one of the two negative, it is set to zero. */
bench_line bench_fit(const row *r, int first, int last);

/* ---- bench_ranks.c: starting and joining ranks ---- */

lc_status bench_threads(bench *o, int size) LC_MUST_USE;
lc_status bench_processes(bench *o, int size, const char *backend) LC_MUST_USE;
lc_status bench_mpirun(bench *o, int size) LC_MUST_USE;
bool bench_is_rank(void); /* another program has started this process as a rank */
lc_status bench_open(lc_comm **out) LC_MUST_USE;
int bench_node(void);

/* ---- measurements for other sub-commands (bench.h) ---- */
enum { LINK_BYTES = 1 << 20, LINK_ROWS = 16 };

#endif
