/* SPDX-License-Identifier: Apache-2.0 */
/* Step counts and state buffers of optimizers. */
#ifndef LC_OPTIM_STATE_BUFFERS_H
#define LC_OPTIM_STATE_BUFFERS_H

#include <lightc/optim.h>

/* Allocates an optimizer's step counts and state buffers if it has none yet. */
lc_status lc__optimizer_prepare(lc_optimizer *opt);
/* It has none then, as if it had never made a step. */
void lc__optimizer_forget_state(lc_optimizer *opt);
/* The values that the state of a group's parameters starts with; `first`: index of the group's first one. */
lc_status lc__optimizer_start_state(lc_optimizer *opt, const lc_param_group *group, int64_t first) LC_MUST_USE;
/* A handle for one parameter's part of state k: a number (scalar_state), or what lc__flat_state_tensor gives. `index`:
 * of the parameter in `steps`. */
lc_status lc__optimizer_state_tensor(const lc_optimizer *opt, int k, int64_t index, const lc_tensor *parameter,
                                     lc_tensor **out) LC_MUST_USE;

#endif
