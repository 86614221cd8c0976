/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for type inference. Messages name operands; the recorder adds the operator and all shapes. */
#ifndef LC_OPS_INFER_H
#define LC_OPS_INFER_H

#include <lightc/op.h>
#include "tensor/tensor_impl.h"

/* Exactly n operands, all given. */
lc_status lc__infer_operands(const lc_infer *call, int n) LC_MUST_USE;
/* At least these many ints and floats. */
lc_status lc__infer_attributes(const lc_infer *call, int ints, int floats) LC_MUST_USE;
/* Operand i is f32 or f64. */
lc_status lc__infer_float(const lc_infer *call, int i) LC_MUST_USE;
/* Operands i and j have the same data type. */
lc_status lc__infer_same_dtype(const lc_infer *call, int i, int j) LC_MUST_USE;
/* Operand i holds indices: i64 or i32. */
lc_status lc__infer_index(const lc_infer *call, int i) LC_MUST_USE;
/* 0 <= dim < t->ndim. */
lc_status lc__infer_dim(const lc_type *t, int64_t dim) LC_MUST_USE;
/* Operands first..first+n-1 broadcast to out's shape (dtype is unchanged). */
lc_status lc__infer_broadcast(const lc_infer *call, int first, int n, lc_type *out) LC_MUST_USE;
/* A tensor of `dtype` can be filled with the value. As in PyTorch, integers drop fractions, and bool takes any value.
 */
lc_status lc__infer_value(double value, lc_dtype dtype) LC_MUST_USE;
/* Numbers of `dtype` are computed with the value: integers only with integers. */
lc_status lc__infer_scalar(double value, lc_dtype dtype) LC_MUST_USE;
/* The operator has no result. */
lc_status lc__infer_nothing(lc_infer *call) LC_MUST_USE;
/* The result has the first operand's type. */
lc_status lc__infer_same(lc_infer *call) LC_MUST_USE;

/* Number of elements; -1 on overflow. */
int64_t lc__type_numel(const lc_type *t);
/* Room for lc__shape_text (tensor_impl.h). */
#define LC__SHAPE_TEXT 200
/* A dimension that may count from the end; unchanged if it is out of range, which infer reports. */
int64_t lc__wrap_dim(int64_t dim, int ndim);
/* The result of a function that has nothing to do: x, or, while gradients are off (lc_no_grad_begin), x without
 * history, as an operator's result would be. */
lc_tensor *lc__unchanged(lc_tensor *x, lc_site site);
/* x as `dtype`: x itself if it has that type, also while gradients are off. */
lc_tensor *lc__as(lc_tensor *x, lc_dtype dtype);
/* NULL or an error tensor: then a function on tensors records its operator at once, which reports it. */
bool lc__is_bad(const lc_tensor *x);

#endif
