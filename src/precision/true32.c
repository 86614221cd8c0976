/* SPDX-License-Identifier: Apache-2.0 */
/* "32-true": parameters, arithmetic and gradients as the module made them. Nothing is converted. */
#include "precision/precisions.h"

const lc_precision_ops lc__precision_32_true = {
    LC_PRECISION_OPS_INIT("32-true"),
};
