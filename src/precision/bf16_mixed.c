/* SPDX-License-Identifier: Apache-2.0 */
/* "bf16-mixed": products, convolutions and attention in bf16, whose range is that of f32, so losses need no scale. */
#include "module/tensors.h"
#include "precision/precisions.h"

static lc_status configure_graph(void **self, lc_graph_args *graph)
{
    (void)self;
    graph->autocast = LC_BF16;
    return LC_OK;
}

static lc_status convert_module(void **self, lc_module *m)
{
    (void)self;
    return lc__module_store(m, LC_F32);
}

const lc_precision_ops lc__precision_bf16_mixed = {
    LC_PRECISION_OPS_INIT("bf16-mixed"),
    .configure_graph = configure_graph,
    .convert_module = convert_module,
};
