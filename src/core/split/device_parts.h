/* SPDX-License-Identifier: Apache-2.0 */
/* A batch that several devices compute (parallel/devices/devices.h). The batch is cut along its first dimension, as
 * torch.chunk does, into at most one part per device; the last part may be smaller. A step function runs once for each
 * part, one after the other; its logged values and outputs are put together again. t->device_parts NULL: the strategy
 * drives one device. */
#ifndef LC_CORE_SPLIT_DEVICE_PARTS_H
#define LC_CORE_SPLIT_DEVICE_PARTS_H

#include "core/split/split.h"
#include "core/split/step.h"

/* Makes the devices if the trainer's strategy drives several, and gives them the module's tensors as they are now. */
lc_status lc__device_parts_setup(lc_trainer *t) LC_MUST_USE;
/* Call before the tree of the previous run is freed. */
lc_status lc__device_parts_forget_tree(lc_trainer *t) LC_MUST_USE;
/* Call when the optimizers exist. */
lc_status lc__device_parts_set_optimizers(lc_trainer *t) LC_MUST_USE;
void lc__device_parts_free(lc_trainer *t);

/* The number of devices; 1: no parts. */
int lc__device_parts_most(const lc_trainer *t);
/* The number of devices that have a part of the running batch. */
int lc__device_parts_running(const lc_trainer *t);

/* Calls fn for each device's part of the batch, in chunks if the batch is cut into some (chunks.h), or for all of it.
 * *value: that of the batch; NULL if there are parts, until they have run. */
lc_status lc__each_part(lc_trainer *t, const lc_batch *batch, lc__piece_fn *fn, void *ctx,
                        lc_tensor **value) LC_MUST_USE;
/* Runs the parts, if any. Afterwards gradients, outputs and *value are those of the whole batch. */
lc_status lc__device_parts_run(lc_trainer *t, lc_tensor **value) LC_MUST_USE;
/* The same for a closure; also reads its loss and logged values. */
lc_status lc__device_parts_train(lc_closure *c) LC_MUST_USE;
/* lc__closure_zero_grad, which works on the host's graph; a part may be running. */
lc_status lc__device_part_zero_grad(lc_closure *c) LC_MUST_USE;

/* closure_run for a batch that is cut into parts. */
lc_status lc__device_parts_closure(lc_closure *c) LC_MUST_USE;
/* On a device, whose loss was scaled: the host's graph, which updates, takes the scale out; devices only add gradients.
 */
void lc__device_parts_unscale(lc_trainer *t);

/* NULL: no parts. */
struct lc__devices *lc__device_parts_devices(const lc_trainer *t);
/* Logs how much memory each device holds. */
void lc__device_parts_report(lc_trainer *t);

#endif
