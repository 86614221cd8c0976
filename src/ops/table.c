/* SPDX-License-Identifier: Apache-2.0 */
/* The list of this room's operators. */
#include "ops/fused.h"
#include "ops/ops.h"

#define ADDRESS(name)                  &lc__op_##name,
#define ADDRESS_ELEMENTWISE(name, ...) &lc__op_##name,

const lc_op *const lc__math_ops[] = {LC_ELEMENTWISE_LIST(ADDRESS_ELEMENTWISE) LC_OPS_MATH_LIST(ADDRESS)
                                             LC_OPS_NN_LIST(ADDRESS) LC_OPS_COMM_LIST(ADDRESS)
                                         /* in no list of names */
                                         & lc__op_range,
                                     &lc__op_detach, &lc__op_accumulate, &lc__op_fused, NULL};

bool lc__is_math_op(const lc_op *op)
{
    for (const lc_op *const *o = lc__math_ops; *o; o++)
        if (*o == op) return true;
    return false;
}
