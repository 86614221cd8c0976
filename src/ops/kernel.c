/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a kernel can do a call. */
#include "ops/kernel.h"

#include <errno.h>

lc_status lc__kernel_supports(const lc_kernel *kernel, const lc_call *call, bool *yes)
{
    errno = 0;
    *yes = !kernel->supports || kernel->supports(call);
    if (errno != ENOMEM) return LC_OK;
    return lc_fail(LC_ERR_MEMORY, "out of memory while looking for a kernel for %s", call->op->name);
}
