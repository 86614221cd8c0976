/* SPDX-License-Identifier: Apache-2.0 */
/* Internal declarations of operators: their constants, the table of all of them, and helpers for gradient rules.
 *
 * To add an operator: define lc__op_NAME in a file of this folder, and add NAME to one of the lists. */
#ifndef LC_OPS_OPS_H
#define LC_OPS_OPS_H

#include <lightc/ops.h>
#include "ops/elementwise_table.h"
#include "ops/ops_comm.h"
#include "ops/ops_nn.h"

/* Mathematical operators that are not elementwise. The encoding of ints and floats is documented at their
 * definitions. */
/* clang-format off */
#define LC_OPS_MATH_LIST(X)                                                                                          \
    X(sum) X(mean) X(amax) X(amin) X(var) X(std) X(norm) X(logsumexp) X(argmax) X(argmin)                            \
    X(softmax) X(softmax_backward) X(log_softmax) X(log_softmax_backward) X(cumsum) X(topk)                          \
    X(reshape) X(permute) X(slice) X(expand) X(contiguous)                                                           \
    X(cat) X(pad) X(tril) X(triu) X(flip)                                                                            \
    X(gather) X(index_select) X(scatter_add) X(index_add) X(one_hot)                                                 \
    X(full) X(arange) X(scalar) X(assign)
/* clang-format on */

#define LC_DECLARE_OP(name)                  extern const lc_op lc__op_##name;
#define LC_DECLARE_ELEMENTWISE_OP(name, ...) extern const lc_op lc__op_##name;
LC_OPS_MATH_LIST(LC_DECLARE_OP)
LC_OPS_COMM_LIST(LC_DECLARE_OP)
LC_ELEMENTWISE_LIST(LC_DECLARE_ELEMENTWISE_OP)

/* In no list: for the planner, except detach. range: in: 1-D; ints: offset, layout, shape...: a range of it as a tensor
 * of that shape. A view, so it costs nothing. */
extern const lc_op lc__op_range;
extern const lc_op lc__op_detach, lc__op_accumulate;

/* The operators of this room; ends with NULL. src/builtin.c lists them with those of other rooms. */
extern const lc_op *const lc__math_ops[];
/* Whether an operator is one of these, and not a program's, a backend's or another room's. */
bool lc__is_math_op(const lc_op *op);

/* For gradient rules: dy summed over the dimensions that were broadcast from `like`'s shape; dy itself if none were. */
lc_tensor *lc__sum_to(lc_tensor *dy, const lc_type *like);
/* For gradient rules: zeros of x's type. */
lc_tensor *lc__zeros_of(const lc_tensor *x);
/* Short forms of lc_op_call. */
lc_tensor *lc__op1(const lc_op *op, lc_tensor *x, lc_site site);
lc_tensor *lc__op2(const lc_op *op, lc_tensor *x, lc_tensor *y, lc_site site);
lc_tensor *lc__op3(const lc_op *op, lc_tensor *x, lc_tensor *y, lc_tensor *z, lc_site site);

#endif
