/* SPDX-License-Identifier: Apache-2.0 */
/* "64-true", "bf16-true" and "16-true": every f32 value of a step, and the parameters, are stored in that type. */
#include "module/tensors.h"
#include "precision/precisions.h"

#define PRECISION(id, text, dtype)                                                                                     \
    static lc_status configure_##id(void **self, lc_graph_args *graph)                                                 \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        graph->storage = dtype;                                                                                        \
        return LC_OK;                                                                                                  \
    }                                                                                                                  \
    static lc_status convert_##id(void **self, lc_module *m)                                                           \
    {                                                                                                                  \
        (void)self;                                                                                                    \
        return lc__module_store(m, dtype);                                                                             \
    }                                                                                                                  \
    const lc_precision_ops lc__precision_##id = {                                                                      \
        LC_PRECISION_OPS_INIT(text),                                                                                   \
        .configure_graph = configure_##id,                                                                             \
        .convert_module = convert_##id,                                                                                \
    };

PRECISION(64_true, "64-true", LC_F64)
PRECISION(bf16_true, "bf16-true", LC_BF16)
PRECISION(16_true, "16-true", LC_F16)
