/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a kernel, an operator's reference or a backend's, can do a call. */
#ifndef LC_OPS_KERNEL_H
#define LC_OPS_KERNEL_H

#include <lightc/op.h>

/* LC_ERR_MEMORY if there was too little memory to find out. */
lc_status lc__kernel_supports(const lc_kernel *kernel, const lc_call *call, bool *yes) LC_MUST_USE;

#endif
