/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives in a plan (operators: ops/ops_comm.h). Each becomes two nodes: "launch" copies x and starts the call,
 * where the user recorded it, so that the order of calls is the order of recording on every rank; "wait" ends it, just
 * before the first node that reads the result. The executor moves bytes between any two nodes. */
#ifndef LC_PARALLEL_COLLECTIVES_COLLECTIVES_H
#define LC_PARALLEL_COLLECTIVES_COLLECTIVES_H

#include "engine/plan/plan_impl.h"

/* Calls in flight, one slot for each launch of a plan. Made with the first plan that has one. */
typedef struct lc__collectives lc__collectives;

/* The pass, behind those that fuse. Without b->optimise the wait follows its launch. */
lc_status lc__split_collectives(lc_build *b) LC_MUST_USE;

/* Between two nodes: moves bytes, or returns what failed first in this run. */
lc_status lc__collectives_poll(lc__collectives *c) LC_MUST_USE;
/* Behind a run. why: what it failed of on this rank, or NULL; then what the plan has in flight, or would have called,
 * is ended on the other ranks too, with that message. Nothing is in flight afterwards. */
void lc__collectives_end(lc__collectives *c, const lc_plan *p, const char *why);
void lc__collectives_free(lc__collectives *c);

#endif
