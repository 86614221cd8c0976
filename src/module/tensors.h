/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on all tensors of a module. */
#ifndef LC_MODULE_TENSORS_H
#define LC_MODULE_TENSORS_H

#include <lightc/module.h>

#include "device/device.h"

/* Flattens all parameters below `root` that are not yet flat (one lc_flat for each data type). */
lc_status lc__module_flatten(lc_module *root) LC_MUST_USE;
/* move.c: moves all tensors below `root` that are on another device. */
lc_status lc__module_move(lc_module *root, const lc_device *on) LC_MUST_USE;
/* Makes the initial values that have not been made yet. */
lc_status lc__module_fill(lc_module *root) LC_MUST_USE;
/* Parameters whose slices were on ranks that are gone become zeros: a checkpoint is about to be read into them. */
lc_status lc__module_revive(lc_module *root) LC_MUST_USE;

/* store.c: stores f32 parameters in another type (tensor/store.c); LC_F32 undoes that. Buffers stay f32. */
lc_status lc__module_store(lc_module *m, lc_dtype dtype) LC_MUST_USE;

#endif
