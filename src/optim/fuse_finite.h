/* SPDX-License-Identifier: Apache-2.0 */
/* The check of gradients as a part of the products that compute them. */
#ifndef LC_OPTIM_FUSE_FINITE_H
#define LC_OPTIM_FUSE_FINITE_H

#include <lightc/status.h>

struct lc_build;

/* A pass of the planner. */
lc_status lc__fuse_finite(struct lc_build *b) LC_MUST_USE;

#endif
