/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that run the same function at the same time, again and again. */
#ifndef LC_PARALLEL_DEVICES_TEAM_H
#define LC_PARALLEL_DEVICES_TEAM_H

#include <lightc/status.h>

typedef struct lc__team lc__team;

/* A team of `n` members, of which the caller's thread is member 0; the others sleep (or, between two runs that follow
 * each other closely, spin, unless OMP_WAIT_POLICY is passive). */
lc_status lc__team_new(int n, lc__team **out) LC_MUST_USE;
void lc__team_free(lc__team *team); /* NULL is fine */

/* Calls fn(ctx, i) for every i in [0, n), n <= the team's, each on its member's thread; returns when all are done. */
void lc__team_run(lc__team *team, int n, void (*fn)(void *ctx, int i), void *ctx);

#endif
