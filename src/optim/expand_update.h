/* SPDX-License-Identifier: Apache-2.0 */
/* Expansions of the macros in macros.c. */
#ifndef LC_OPTIM_EXPAND_UPDATE_H
#define LC_OPTIM_EXPAND_UPDATE_H

#include "engine/plan/plan_impl.h"

lc_status lc__expand_clip_norm(lc_build *b, const lc_node *n);
lc_status lc__expand_step(lc_build *b, const lc_node *n);
lc_status lc__expand_zero_grad(lc_build *b, const lc_node *n);
lc_status lc__expand_gradient(lc_build *b, const lc_node *n);

#endif
