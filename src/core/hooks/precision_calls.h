/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a precision's functions, which may be the program's. One that it lacks does nothing. An error without a
 * message, and a request, which only before_optimizer_step can make, are errors that name the function. */
#ifndef LC_CORE_HOOKS_PRECISION_CALLS_H
#define LC_CORE_HOOKS_PRECISION_CALLS_H

#include <lightc/precision.h>

lc_status lc__precision_configure_graph(const lc_precision_ops *p, void **self, lc_graph_args *graph) LC_MUST_USE;
lc_status lc__precision_convert_module(const lc_precision_ops *p, void **self, lc_module *m) LC_MUST_USE;
lc_status lc__precision_copy(const lc_precision_ops *p, const void *self, void **out) LC_MUST_USE;
lc_status lc__precision_save(const lc_precision_ops *p, void *self, lc_state *state) LC_MUST_USE;
lc_status lc__precision_load(const lc_precision_ops *p, void *self, const lc_state *state) LC_MUST_USE;
/* The loss to differentiate, never NULL: an error tensor if there is none. */
lc_tensor *lc__precision_scale_loss(const lc_precision_ops *p, void *self, lc_tensor *loss);

#endif
