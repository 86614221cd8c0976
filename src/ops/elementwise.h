/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations for elementwise.c: the gradient rules that are more than one operator, the cast kernel. */
#ifndef LC_OPS_ELEMENTWISE_H
#define LC_OPS_ELEMENTWISE_H

#include <lightc/op.h>

/* din[0] = op(dout[0], by), with the same ints and floats. */
lc_status lc__grad_by(lc_grad *g, const lc_op *op, lc_tensor *by);
lc_status lc__grad_zero(lc_grad *g);

lc_grad_fn lc__grad_add, lc__grad_sub, lc__grad_mul, lc__grad_div, lc__grad_neg, lc__grad_add_scalar,
    lc__grad_mul_scalar, lc__grad_exp, lc__grad_log, lc__grad_maximum, lc__grad_minimum, lc__grad_where,
    lc__grad_masked_fill, lc__grad_cast, lc__grad_prelu, lc__grad_pow, lc__grad_xlogy, lc__grad_mse, lc__grad_l1,
    lc__grad_smooth_l1, lc__grad_huber, lc__grad_bce_with_logits, lc__grad_kl_div, lc__grad_kl_div_log;

void lc__cast_run(const lc_call *call);

#endif
