/* SPDX-License-Identifier: Apache-2.0 */
/* How the scale of the loss follows the gradients. */
#ifndef LC_PRECISION_UPDATE_SCALE_H
#define LC_PRECISION_UPDATE_SCALE_H

#include <lightc/op.h>

extern const lc_op lc__op_update_scale;

/* Records the change of a scale after an update whose gradients got `factor`. `scale`, its reciprocal `unscale` and
 * `count`, the updates since it last changed, are persistent f32 tensors without dimensions. */
void lc__update_scale(lc_tensor *scale, lc_tensor *unscale, lc_tensor *count, lc_tensor *factor, int64_t interval,
                      double growth, double backoff);

#endif
