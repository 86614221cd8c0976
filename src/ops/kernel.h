/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of any kernel, be it an operator's reference or a backend's. */
#ifndef LC_OPS_KERNEL_H
#define LC_OPS_KERNEL_H

#include <lightc/op.h>

/* Whether a kernel can do a call. LC_ERR_MEMORY if it had too little memory to find out. */
lc_status lc__kernel_supports(const lc_kernel *kernel, const lc_call *call, bool *yes) LC_MUST_USE;

#endif
