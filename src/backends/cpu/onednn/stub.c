/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the kernels of this folder in a build without oneDNN: there are none. */
#include "backends/cpu/onednn/onednn.h"

const lc_kernel *lc__onednn_find(const lc_call *call)
{
    (void)call;
    return NULL;
}

int lc__onednn_candidates(const lc_call *call, const lc_kernel **out, int max)
{
    (void)call, (void)out, (void)max;
    return 0;
}

const char *lc__onednn_impl(const lc_call *call)
{
    (void)call;
    return "";
}
