/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of a call: an operator's reference, those of programs, a backend's. */
#ifndef LC_OPS_KERNEL_H
#define LC_OPS_KERNEL_H

#include "device/device.h"

/* LC_ERR_MEMORY if there was too little memory to find out. */
lc_status lc__kernel_supports(const lc_kernel *kernel, const lc_call *call, bool *yes) LC_MUST_USE;
/* The kernels for a call on a device, best first: those that programs have added (lc_op_add_kernel), then those of the
 * backend's set. */
lc_status lc__find_kernels(const lc_device *on, const void *set, const lc_call *call, int max, const lc_kernel **out,
                           int *n) LC_MUST_USE;

#endif
