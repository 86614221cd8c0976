/* SPDX-License-Identifier: Apache-2.0 */
/* Step counts and state buffers of optimizers. */
#ifndef LC_OPTIM_STATE_BUFFERS_H
#define LC_OPTIM_STATE_BUFFERS_H

#include "tensor/tensor_impl.h"

#include <lightc/optim.h>

#define LC__MASTER_WEIGHT "master_weight" /* the name of that state */

/* The parameters of an optimizer may be in several flat buffers: of several data types, or modules. Each state is one
 * buffer, in which each of these has a range. */
typedef struct lc__state_range {
    lc_flat *flat; /* borrowed from its parameters */
    int64_t begin, count;
    lc_tensor *master; /* LC_OPT_MASTER_WEIGHTS: `count` numbers of f32, whose state index follows the last one of
                          ops->state_names; NULL: parameters that need no copy */
} lc__state_range;

/* The range of flat; NULL: none yet. */
const lc__state_range *lc__optimizer_range(const lc_optimizer *opt, const lc_flat *flat);
/* Makes the parameters of a group known: adds ranges for flat buffers that are new, with their master weights, to be
 * followed by the state. *count: elements of all ranges. */
lc_status lc__optimizer_add_ranges(lc_optimizer *opt, const lc_param_group *group, int64_t *count) LC_MUST_USE;
/* Whether gradients of its parameters of 16 bits are summed in f32 from now on; before reducer and tree know them. */
lc_status lc__optimizer_sums_in_f32(const lc_optimizer *opt, bool yes) LC_MUST_USE;
/* Keeps only the first n ranges. */
void lc__optimizer_drop_ranges(lc_optimizer *opt, int n);
/* Allocates an optimizer's step counts and state buffers if it has none yet. */
lc_status lc__optimizer_prepare(lc_optimizer *opt);
/* "exp_avg": of state k; after those of the vtable LC__MASTER_WEIGHT, if the optimizer has them. NULL: there is none.
 */
const char *lc__optimizer_state_name(const lc_optimizer *opt, int k);
/* The memory of its state, in bytes. */
int64_t lc__optimizer_bytes(const lc_optimizer *opt);
/* Frees them, as if the optimizer had never made a step. */
void lc__optimizer_forget_state(lc_optimizer *opt);
/* Writes the initial state of a group's parameters; `first`: index of the group's first parameter. */
lc_status lc__optimizer_start_state(lc_optimizer *opt, const lc_param_group *group, int64_t first) LC_MUST_USE;
/* A handle for one parameter's part of state k: a number (scalar_state), or the result of lc__flat_state_tensor; NULL
 * if it has none. `index`: of the parameter in `steps`. */
lc_status lc__optimizer_state_tensor(const lc_optimizer *opt, int k, int64_t index, const lc_tensor *parameter,
                                     lc_tensor **out) LC_MUST_USE;

#endif
