/* SPDX-License-Identifier: Apache-2.0 */
/* How operators store their f32 values in mixed precision: the table of docs/precision.md. */
#ifndef LC_OPS_STORAGE_RULES_H
#define LC_OPS_STORAGE_RULES_H

#include <lightc/op.h>
#include <lightc/precision.h>

/* Bits by position. Other f32 operands and results stay f32: weights and statistics of layers that normalize, for
 * example. */
typedef struct lc__storage_rule {
    lc_autocast_class class;
    uint32_t operands; /* those that are low, or (LC_AUTOCAST_FOLLOW) decide by being low */
    uint32_t results;
} lc__storage_rule;

lc__storage_rule lc__storage_rule_of(const lc_op *op);

#endif
