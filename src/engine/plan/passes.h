/* SPDX-License-Identifier: Apache-2.0 */
/* The passes that make a plan of a tape. The planner has a list of its own (plan.c); other built-in passes are listed
 * in src/builtin.c; and each peer of a graph may have some (record/peer.h). To add one: a function that rewrites the
 * build (plan_impl.h), and a line in a list. */
#ifndef LC_ENGINE_PLAN_PASSES_H
#define LC_ENGINE_PLAN_PASSES_H

#include <lightc/status.h>

struct lc_build;

/* When a pass runs. Within a phase the planner's own passes come first, those of peers last. */
typedef enum lc_phase {
    LC_PHASE_RECORDED, /* there is only a tape */
    LC_PHASE_EXPAND,   /* macros -> operators */
    LC_PHASE_FUSE,     /* optional: left out with LIGHTC_PLAN=off */
    LC_PHASE_PLACE,    /* the order of nodes is final, except that nodes may be inserted */
    LC_PHASE_SPLIT,    /* nodes -> where something is started, and where it is waited for */
    LC_PHASE_LOWER,    /* nodes -> calls, memory, the program of a replay */
    LC_PHASES
} lc_phase;

typedef struct lc_pass {
    lc_phase phase;
    lc_status (*run)(struct lc_build *b); /* NULL: the end of a list */
} lc_pass;

#endif
