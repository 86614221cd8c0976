/* SPDX-License-Identifier: Apache-2.0 */
/* The list of every operator, by name. */
#include <string.h>

#include "ops/ops.h"

#define ADDRESS(name)                  &lc__op_##name,
#define ADDRESS_ELEMENTWISE(name, ...) &lc__op_##name,

const lc_op *const lc__op_table[] = {LC_ELEMENTWISE_LIST(ADDRESS_ELEMENTWISE) LC_OPS_MATH_LIST(ADDRESS)
                                         LC_OPS_NN_LIST(ADDRESS) LC_OPS_COMM_LIST(ADDRESS)};
const int lc__op_count = sizeof lc__op_table / sizeof lc__op_table[0];

const lc_op *lc__op_find(const char *name)
{
    for (int i = 0; i < lc__op_count; i++)
        if (!strcmp(lc__op_table[i]->name, name)) return lc__op_table[i];
    return NULL;
}
