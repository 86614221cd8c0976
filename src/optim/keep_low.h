/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LC_OPTIM_KEEP_LOW_H
#define LC_OPTIM_KEEP_LOW_H

#include <lightc/op.h>

struct lc_build;

/* A pass: parameters that a step rounds to 16 bits have low copies (tensor/low.h). */
lc_status lc__keep_low(struct lc_build *b) LC_MUST_USE;

/* Rounds a parameter, if its low copy is not current. in: parameter, its low copy; ints: */
extern const lc_op lc__op_refresh_low;
enum { LC__REFRESH_FLAT, LC__REFRESH_INDEX, LC__REFRESH_KIND, LC__REFRESH_INTS };
/* For its kernels: whether they must round, and that they have. */
bool lc__refresh_needed(const lc_call *call);
void lc__refreshed(const lc_call *call);

#endif
