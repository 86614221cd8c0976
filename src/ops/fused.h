/* SPDX-License-Identifier: Apache-2.0 */
/* The fused elementwise node, which only the planner makes.
 *
 * A chain of elementwise operators over one iteration space is run tile by tile. The program is a list of
 * micro-operators on registers; register r < n_in is input r; each instruction writes the next register; outputs name
 * registers. It is passed to the kernel through call->ints, so that it is part of the plan like any attribute:
 *   ints[0] = number of instructions
 *   then per instruction: index of the elementwise operator in lc__elementwise_table, number of inputs, up to three
 *   input registers (-1 = none), index of its first float in call->floats (-1 = none)   => 6 int64 each
 *   then one register number per output.
 * The index carries the operator's first two ints (gelu's form, clamp's bounds, cast's data type; all small): see
 * LC_FUSED_OP. Inputs and outputs follow LC_WANT_ELEMENTWISE. */
#ifndef LC_OPS_FUSED_H
#define LC_OPS_FUSED_H

#include <lightc/op.h>

#define LC_FUSED_OP(index, int0, int1) ((int64_t)(index) | (int64_t)(int0) << 16 | (int64_t)(int1) << 24)
#define LC_FUSED_OP_INDEX(code)        ((int)((code)&0xffff))
#define LC_FUSED_OP_INT0(code)         ((code) >> 16 & 0xff)
#define LC_FUSED_OP_INT1(code)         ((code) >> 24 & 0xff)
#define LC_FUSED_INSTRUCTION_INTS      6
#define LC_FUSED_MAX_INSTRUCTIONS      24
#define LC_FUSED_MAX_INPUTS            12
#define LC_FUSED_MAX_OUTPUTS           8

extern const lc_op lc__op_fused;
/* The operator of instruction i of a fused call. */
const lc_op *lc__fused_op(const lc_call *call, int i);
/* The first instruction whose result at that element is not finite, evaluated on the present inputs; -1: none. */
int lc__fused_culprit(const lc_call *call, const int64_t *index);

/* The elementwise operators, in a fixed order; src/ops/elementwise.c defines them. */
extern const lc_op *const lc__elementwise_table[];
extern const int lc__elementwise_count;
/* Index in the table, or -1. */
int lc__elementwise_index(const lc_op *op);

#endif
