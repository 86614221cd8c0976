/* SPDX-License-Identifier: Apache-2.0 */
#include "core/trainer/matmul_precision.h"

#include "record/graph_impl.h"

#include <string.h>

lc_status lc__matmul_precision_parse(const char *text, lc_matmul_precision *out)
{
    static const char *const names[] = {"highest", "high", "medium"};
    *out = LC_MATMUL_HIGHEST;
    for (int i = 0; text && *text && i < 3; i++)
        if (!strcmp(text, names[i])) {
            *out = (lc_matmul_precision)i;
            return LC_OK;
        }
    if (!text || !*text) return LC_OK;
    return lc_fail(LC_ERR_CONFIG, "float32_matmul_precision is \"%.60s\"; it must be highest, high or medium", text);
}

const char *lc__matmul_precision_falls_back(const lc_graph *g)
{
    if (g->options.matmul_precision == g->products) return NULL;
    return g->options.matmul_precision == LC_MATMUL_HIGH
               ? "float32_matmul_precision: high falls back to highest: there are no units for matrices of bf16 that "
                 "kernels could use"
               : "float32_matmul_precision: medium falls back to highest: there are no units for matrices of bf16 that "
                 "kernels could use";
}
