/* SPDX-License-Identifier: Apache-2.0 */
/* The layouts in which operands are tried, and which of them kernels take. */
#include "check/check.h"

#include <string.h>

const char *const layout_names[LAYOUTS] = {"as planned",  "row-major",  "channels last",
                                           "rows padded", "transposed", "spread"};

static void spread(const lc_view *v, int64_t step, int64_t gap, int64_t *stride)
{
    for (int d = v->ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step = step * (v->shape[d] ? v->shape[d] : 1) + gap;
    }
}

static bool is_broadcast(const lc_view *v)
{
    for (int d = 0; d < v->ndim; d++)
        if (v->stride[d] == 0 && v->shape[d] > 1) return true;
    return false;
}

bool layout_of(const lc_view *v, check_layout layout, int64_t *stride)
{
    lc_type type = lc__view_type(v);
    memcpy(stride, v->stride, sizeof v->stride);
    if (layout == AS_PLANNED || is_broadcast(v)) return layout == AS_PLANNED;
    if (layout == ROW_MAJOR) lc__dense_strides(&type, LC_ROW_MAJOR, stride);
    if (layout == CHANNELS_LAST) lc__dense_strides(&type, LC_CHANNELS_LAST, stride);
    if (layout == PADDED_ROWS) spread(v, 1, 3, stride);
    if (layout == SPREAD) spread(v, 2, 0, stride);
    if (layout != TRANSPOSED || v->ndim < 2) return layout != TRANSPOSED;
    int64_t *shape = type.shape, last = v->ndim - 1, other = shape[last];
    shape[last] = shape[last - 1];
    shape[last - 1] = other;
    lc__dense_strides(&type, LC_ROW_MAJOR, stride);
    other = stride[last];
    stride[last] = stride[last - 1];
    stride[last - 1] = other;
    return true;
}

/* ---- what kernels take: lc_kernel_layout ---- */

static bool is_dense(const lc_view *v, lc_layout layout)
{
    return lc__is_dense(v->ndim, v->shape, v->stride, layout);
}

static bool is_natural(const lc_view *v, lc_kernel_layout want)
{
    return is_dense(v, want == LC_WANT_CHANNELS_LAST && v->ndim >= 3 ? LC_CHANNELS_LAST : LC_ROW_MAJOR);
}

static bool has_dense_rows(const lc_view *v)
{
    return v->ndim == 0 || v->shape[v->ndim - 1] == 1 || v->stride[v->ndim - 1] == 1;
}

/* Full operands are dense in one order, which is the result's. */
static bool is_elementwise(const lc_call *call)
{
    const lc_view *out = &call->out[0];
    lc_layout order = is_dense(out, LC_ROW_MAJOR) ? LC_ROW_MAJOR : LC_CHANNELS_LAST;
    if (!call->n_out || !is_dense(out, order)) return false;
    for (int i = 0; i < call->n_in; i++) {
        const lc_view *v = &call->in[i];
        if (v->ndim < 0) continue;
        bool full = v->ndim == out->ndim && !memcmp(v->shape, out->shape, (size_t)v->ndim * sizeof *v->shape);
        if (!full || (is_broadcast(v) && v->ndim == out->ndim)) continue;
        if (!is_dense(v, order)) return false;
    }
    return true;
}

bool kernel_takes(const lc_kernel *kernel, const lc_call *call)
{
    if (kernel->layout == LC_WANT_ELEMENTWISE) return is_elementwise(call);
    for (int i = 0; i < call->n_in + call->n_out; i++) {
        const lc_view *v = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
        bool fits = true;
        if (v->ndim < 0 || (i < call->n_in && call->op->mutated_inputs >> i & 1)) continue;
        switch (kernel->layout) {
        case LC_WANT_STRIDED:
        case LC_WANT_ELEMENTWISE:
            break;
        case LC_WANT_ROW_MAJOR:
        case LC_WANT_CHANNELS_LAST:
            fits = is_natural(v, kernel->layout);
            break;
        case LC_WANT_MATRIX:
            fits = i < call->n_in ? lc__is_matrix(v->ndim, v->shape, v->stride) : is_dense(v, LC_ROW_MAJOR);
            break;
        case LC_WANT_LAST_DENSE:
            fits = has_dense_rows(v);
            break;
        }
        if (!fits) return false;
    }
    return true;
}
