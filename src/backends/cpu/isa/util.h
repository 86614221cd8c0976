/* SPDX-License-Identifier: Apache-2.0 */
/* Small predicates on operands of kernels. */
#ifndef LC_BACKENDS_CPU_ISA_UTIL_H
#define LC_BACKENDS_CPU_ISA_UTIL_H

#include <lightc/op.h>

/* Elements of dimensions [first, last). */
static inline int64_t extent(const lc_view *v, int first, int last)
{
    int64_t n = 1;
    for (int d = first; d < last; d++) n *= v->shape[d];
    return n;
}

static inline int64_t numel(const lc_view *v)
{
    return extent(v, 0, v->ndim);
}

static inline bool given(const lc_view *v)
{
    return v->ndim >= 0;
}

/* All operands that are given are f32. */
static inline bool all_f32(const lc_view *v, int n)
{
    for (int i = 0; i < n; i++) {
        if (given(&v[i]) && v[i].dtype != LC_F32) return false;
    }
    return true;
}

static inline bool f32_call(const lc_call *call)
{
    return all_f32(call->in, call->n_in) && all_f32(call->out, call->n_out);
}

/* Dense row-major. */
static inline bool is_row_major(const lc_view *v)
{
    int64_t expected = 1;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->shape[d] != 1 && v->stride[d] != expected) return false;
        expected *= v->shape[d];
    }
    return true;
}

#endif
