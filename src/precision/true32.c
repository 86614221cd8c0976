/* SPDX-License-Identifier: Apache-2.0 */
/* "32-true": parameters, arithmetic and gradients as the module made them. */
#include "module/tensors.h"
#include "precision/precisions.h"

/* An earlier run may have stored the parameters in another type. */
static lc_status convert_module(void **self, lc_module *m)
{
    (void)self;
    return lc__module_store(m, LC_F32);
}

const lc_precision_ops lc__precision_32_true = {
    LC_PRECISION_OPS_INIT("32-true"),
    .convert_module = convert_module,
};
