/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that several devices compute (parallel/devices/devices.h): it is cut along its first dimension, as
 * torch.chunk does, into at most one part a device, the last of which may be smaller. A step function runs once for
 * each part, one after the other; what it logs and hands out is put together again. t->device_parts NULL: the strategy
 * drives one device. */
#ifndef LC_CORE_SPLIT_DEVICE_PARTS_H
#define LC_CORE_SPLIT_DEVICE_PARTS_H

#include "core/hooks/trainer_internal.h"

/* Makes the devices of the trainer's strategy, if it drives several: of the module's tensors as they are now. */
lc_status lc__device_parts_setup(lc_trainer *t) LC_MUST_USE;
/* The tree of the run before is about to be freed. */
lc_status lc__device_parts_forget_tree(lc_trainer *t) LC_MUST_USE;
/* The optimizers exist. */
lc_status lc__device_parts_set_optimizers(lc_trainer *t) LC_MUST_USE;
void lc__device_parts_free(lc_trainer *t);

/* How many devices there are; 1: no parts. */
int lc__device_parts_most(const lc_trainer *t);
/* Cuts the batch, into whole chunks where it has some (chunks.h); *n is the number of parts. Inside of a step.
 */
lc_status lc__device_parts_begin(lc_trainer *t, const lc_batch *batch, int *n) LC_MUST_USE;
/* Until lc__device_part_leave, what runs is part i: t->graph, t->batch (returned) and t->outputs are its. */
const lc_batch *lc__device_part_enter(lc_trainer *t, int i);
void lc__device_part_leave(lc_trainer *t); /* no harm outside of a part */
/* A part's loss, or its prediction. NULL: it has none. */
void lc__device_part_set_value(lc_trainer *t, int i, lc_tensor *value);

/* Runs the parts. Afterwards gradients and outputs are those of the whole batch. */
lc_status lc__device_parts_run(lc_trainer *t) LC_MUST_USE;
/* Behind that, what stands for the values of all parts: the mean of numbers, and of what has samples, one behind the
 * other. NULL: no part has one. */
lc_tensor *lc__device_parts_value(const lc_trainer *t);

/* What closure_run does for a whole batch. */
lc_status lc__device_parts_closure(lc_closure *c) LC_MUST_USE;

/* NULL: no parts. */
struct lc__devices *lc__device_parts_devices(const lc_trainer *t);
/* Tells how much memory each device holds. */
void lc__device_parts_report(lc_trainer *t);

#endif
