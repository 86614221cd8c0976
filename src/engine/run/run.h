/* SPDX-License-Identifier: Apache-2.0 */
/* Running recorded steps. */
#ifndef LC_ENGINE_RUN_RUN_H
#define LC_ENGINE_RUN_RUN_H

#include "record/graph_impl.h"

/* graph_run.c */
/* Runs what was recorded so far and keeps all of its values, as a host read does. */
lc_status lc__graph_flush(lc_graph *g) LC_MUST_USE;
/* As lc_step_run, keeping the values that `keeps` selects. */
lc_status lc__graph_run_step(lc_graph *g, lc__keeps keeps) LC_MUST_USE;
/* Between two steps: gives back the memory of intermediate results, which the next step allocates again. Values that
 * were kept expire. */
void lc__graph_drop_arena(lc_graph *g);
/* lc_step_run in two halves: planning what was recorded, on the graph's thread (NULL: nothing was), and running the
 * plan, on any thread. After both, lc__graph_ran resumes recording. */
lc_status lc__graph_plan(lc_graph *g, lc__keeps keeps, lc_plan **plan) LC_MUST_USE;
lc_status lc__graph_execute(lc_graph *g, lc_plan *plan) LC_MUST_USE;
void lc__graph_ran(lc_graph *g);
/* Reports every kernel call from now on; fn NULL: stops. */
void lc__graph_observe(lc_graph *g, lc_span_fn *fn, void *ctx);

/* execute.c */
lc_status lc__execute(lc_graph *g, lc_plan *plan);
/* Runs calls one at a time, and looks at each: for NaN, to profile, to observe. */
lc_status lc__execute_watched(lc_graph *g, lc_plan *plan) LC_MUST_USE;
/* Between two calls: moves bytes to and from other ranks. */
lc_status lc__communicate(const lc_graph *g) LC_MUST_USE;
/* device_run.c: runs a plan whose floats are up to date. */
lc_status lc__execute_on_device(lc_graph *g, lc_plan *plan) LC_MUST_USE;
/* Waits until the device has done all that was enqueued; fails if it has failed, or a kernel has met a bad index. */
lc_status lc__device_arrived(lc_graph *g) LC_MUST_USE;
/* Fails if a kernel has met a bad index; does not wait. */
lc_status lc__device_fault(lc_graph *g) LC_MUST_USE;
/* starts.c: what the host begins when the device has got there. All of it has begun when the run of a plan ends. */
typedef void lc__begin_fn(const lc_call *call);
/* From a kernel of LC_OP_STAGES: calls begin(call) when the device has done all that is enqueued so far, after what was
 * passed here before; at once if the host reaches the device's memory. */
lc_status lc__when_done(lc_graph *g, const lc_call *call, lc__begin_fn *begin, const void *key) LC_MUST_USE;
/* Begins what can begin now. Like the next two it fails if a kernel has met a bad index, and then begins nothing. */
lc_status lc__begin_ready(lc_graph *g) LC_MUST_USE;
/* Waits for the device, and begins all up to the last one with that key, if there is one. */
lc_status lc__begin_through(lc_graph *g, const void *key) LC_MUST_USE;
lc_status lc__begin_all(lc_graph *g) LC_MUST_USE;
void lc__forget_starts(lc_graph *g);
/* host_call.c */
/* A call of a device with its operands and numbers on the host; what it writes is copied too. */
typedef struct lc__host_call {
    lc_call call;
    void **memory; /* [n_in + n_out] */
    lc_view *views;
    double *floats;
    lc_rng_key rng;
} lc__host_call;
/* Waits for the device, and copies. After an error there is nothing to free. */
lc_status lc__host_call_make(const lc_device *on, const lc_call *call, lc__host_call *out) LC_MUST_USE;
void lc__host_call_free(lc__host_call *h);
/* Runs a call, or enqueues it. One that runs on the host waits for the device, and copies its operands. */
lc_status lc__call_run(const lc_device *on, const lc_call *call) LC_MUST_USE;
/* fault.c: the error that the record describes, of a call made at `site`; empties the record. */
lc_status lc__fault_take(lc__fault *f, lc_site site);
/* The site, in the step that runs, of the first node that the step from which the plan was made recorded at `planned`.
 */
lc_site lc__site_of_step(const lc_graph *g, const lc_plan *p, lc_site planned);
/* Fails if a call's results are not finite. */
lc_status lc__check_finite(const lc_graph *g, const lc_plan *p, const lc_plan_call *pc) LC_MUST_USE;
/* The slots through which the host uses a graph. */
extern const lc__host_ops lc__graph_host;
void lc__graph_free_kept(lc_graph *g);

/* seen_types.c: the operands and results of a call that is recorded (lc__host_ops). */
lc_status lc__operands_as_seen(lc_graph *g, const lc_op *op, int n_in, lc_tensor *const *in, lc_tensor **out,
                               lc__to_do *later, lc_site site) LC_MUST_USE;
void lc__results_as_seen(lc_graph *g, const lc_op *op, lc__to_do later, lc_tensor *const *in, lc_tensor *const *given,
                         lc_tensor **results, lc_site site);

#endif
