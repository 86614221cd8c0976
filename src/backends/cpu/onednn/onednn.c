/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of a kernel for a call. To add one: declare it in kernels.h and list it in `table`, best first. */
#include "backends/cpu/onednn/onednn.h"
#include "backends/cpu/onednn/kernels.h"
#include "backends/cpu/onednn/prepared.h"
#include "ops/kernel.h"
#include "ops/ops.h"

#include <stdio.h>

static const struct {
    const lc_op *op;
    const lc_kernel *kernel[LC_ONEDNN_MAX_CANDIDATES];
    bool (*prefers_second)(const lc_call *call); /* OPTIONAL */
} table[] = {
    {&lc__op_matmul, {&lc__onednn_matmul, &lc__onednn_matmul_packed, &lc__onednn_matmul_batched}},
    {&lc__op_linear, {&lc__onednn_matmul, &lc__onednn_matmul_packed, &lc__onednn_matmul_batched}},
    {&lc__op_conv, {&lc__onednn_conv, &lc__onednn_conv_direct}, lc__onednn_conv_prefers_direct},
    {&lc__op_conv_input_grad, {&lc__onednn_conv_input_grad}},
    {&lc__op_conv_weight_grad, {&lc__onednn_conv_weight_grad, &lc__onednn_conv_weight_grad_gemm}},
};

lc_status lc__onednn_candidates(const lc_call *call, int max, const lc_kernel **out, int *n)
{
    *n = 0;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (call->op != table[i].op) continue;
        bool swap = table[i].prefers_second && table[i].prefers_second(call);
        for (int j = 0; j < LC_ONEDNN_MAX_CANDIDATES && *n < max; j++) {
            const lc_kernel *kernel = table[i].kernel[swap && j < 2 ? !j : j];
            bool yes = false;
            if (kernel) LC_TRY(lc__kernel_supports(kernel, call, &yes));
            if (yes) out[(*n)++] = kernel;
        }
    }
    return LC_OK;
}

bool lc__onednn_bf16_is_fast(bool vectors_are)
{
    return lc__dnnl_bf16_is_fast(vectors_are);
}

void lc__onednn_version(char *text, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, size, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

const char *lc__onednn_impl(const lc_call *call)
{
    if (!call->kernel || !call->state) return "";
    if (call->kernel == &lc__onednn_conv_weight_grad_gemm) return lc__onednn_gemm_impl(call);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int j = 0; j < LC_ONEDNN_MAX_CANDIDATES; j++)
            if (call->kernel == table[i].kernel[j]) return ((const lc__dnnl_plan *)call->state)->impl;
    return "";
}
