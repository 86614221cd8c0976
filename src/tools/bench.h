/* SPDX-License-Identifier: Apache-2.0 */
/* Measurements for other sub-commands. */
#ifndef LC_TOOLS_BENCH_H
#define LC_TOOLS_BENCH_H

#include <lightc/lightc.h>

/* seconds = alpha + beta * bytes, and the largest ratio between a point and the line. */
typedef struct bench_line {
    double alpha, beta, off;
} bench_line;

/* Measures one direction between ranks a and b. Collective; rank 0 gets the line. `seconds`: duration of a batch of
 * calls. */
lc_status bench_link(lc_comm *c, int a, int b, double seconds, bench_line *out) LC_MUST_USE;
/* The same between two processes of this host, over "shm" or "tcp". */
lc_status bench_pair(const char *backend, double seconds, bench_line *out) LC_MUST_USE;

#endif
