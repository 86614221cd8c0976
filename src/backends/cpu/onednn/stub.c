/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces the kernels of this folder in a build without oneDNN. */
#include "backends/cpu/onednn/onednn.h"

#include <stdio.h>

lc_status lc__onednn_candidates(const lc_call *call, int max, const lc_kernel **out, int *n)
{
    (void)call, (void)max, (void)out;
    *n = 0;
    return LC_OK;
}

bool lc__onednn_bf16_is_fast(bool vectors_are)
{
    (void)vectors_are;
    return false;
}

void lc__onednn_version(char *text, size_t size)
{
    snprintf(text, size, "no oneDNN");
}

const char *lc__onednn_impl(const lc_call *call)
{
    (void)call;
    return "";
}
