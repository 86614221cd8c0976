/* SPDX-License-Identifier: Apache-2.0 */
/* How the scale of the loss follows the gradients. */
#ifndef LC_PRECISION_UPDATE_SCALE_H
#define LC_PRECISION_UPDATE_SCALE_H

#include <lightc/op.h>

extern const lc_op lc__op_update_scale;

/* Persistent f32 tensors without dimensions: the scale, its reciprocal, and the count of updates since it last changed;
 * the first two as they were before the updates of a step. */
typedef struct lc__scale {
    lc_tensor *scale, *unscale, *count, *held, *held_unscale;
} lc__scale;

/* Records the change of a scale after an update whose gradients got `factor`. holds: copies it first. */
void lc__update_scale(const lc__scale *s, bool holds, lc_tensor *factor, int64_t interval, double growth,
                      double backoff);

#endif
