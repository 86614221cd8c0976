/* SPDX-License-Identifier: Apache-2.0 */
/* The planner, for code that runs or inspects plans. Declarations shared by its passes are in plan_impl.h. */
#ifndef LC_ENGINE_PLAN_PLAN_H
#define LC_ENGINE_PLAN_PLAN_H

#include "record/graph_impl.h"

/* The plan of the segment, which becomes the last one of the step. */
lc_status lc__graph_prepare(lc_graph *g, lc__keeps keeps, lc_plan **plan);
void lc__plan_free(lc_plan *plan);
/* expand.c */
/* The buffers that lc_zero_grad zeroes: all that a plan has used, and those added here. */
lc_status lc__graph_add_flat(lc_graph *g, lc_flat *flat) LC_MUST_USE;
/* macros.c */
/* The host has written a persistent tensor, which the step being recorded may have read. */
void lc__record_host_write(lc_tensor *t);
/* backward.c */
/* Whether lc_backward has been recorded with this loss since the last run. */
bool lc__graph_went_backward(const lc_graph *g, const lc_tensor *loss);
/* flops.c */
double lc__call_flop(const lc_call *c);
/* missed.c */
/* Writes a line of the dump: why the cache has no plan for the segment, which is planned next. */
void lc__dump_missed(const lc_graph *g, lc__keeps keeps);
/* dump.c */
void lc__dump_plans(const lc_graph *g);
lc_status lc__dump_check(const lc_graph *g) LC_MUST_USE; /* fails if a dump is requested that cannot be written */

#endif
