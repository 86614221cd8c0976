/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and strides of a product; see product.h. */
#include "backends/cpu/product.h"

#include "ops/ops.h"

#include <string.h>

static bool absent(const lc_call *call, int i)
{
    return i >= call->n_in || call->in[i].ndim < 0;
}

/* Makes the strides of an r x c matrix such that one is 1 and the other is a leading dimension; strides of dimensions
 * of size 1 are free. False if its layout does not allow it (an expanded row, say). */
static bool normalize(int64_t rows, int64_t cols, int64_t *row_stride, int64_t *col_stride)
{
    if (cols == 1) *col_stride = 1;
    if (rows == 1) *row_stride = *col_stride == 1 ? cols : 1;
    if (*col_stride == 1 && (rows == 1 || *row_stride >= cols)) return true;
    return *row_stride == 1 && *col_stride >= rows;
}

/* The strides of an operand as the planner will give them: as they are if they fit the kernel's layout, dense
 * otherwise (a copy is made then), or if the kernel takes only those. */
static void take_strides(const lc_view *v, bool only_dense, int64_t *stride)
{
    int n = v->ndim;
    int64_t row = n > 1 ? v->stride[n - 2] : 0, col = n > 0 ? v->stride[n - 1] : 1, dense = 1;
    bool fits =
        !only_dense &&
        (n < 1 || (n == 1 ? v->shape[0] == 1 || col == 1 : normalize(v->shape[n - 2], v->shape[n - 1], &row, &col)));
    for (int i = n - 1; i >= 0; i--) {
        stride[i] = fits ? v->stride[i] : dense;
        dense *= v->shape[i];
    }
}

static void drop_batch(lc__product *g, int i)
{
    g->nb--;
    size_t bytes = (size_t)(g->nb - i) * sizeof *g->batch;
    memmove(g->batch + i, g->batch + i + 1, bytes);
    memmove(g->xb + i, g->xb + i + 1, bytes);
    memmove(g->yb + i, g->yb + i + 1, bytes);
}

static void turn(lc_view *v, int64_t *stride)
{
    int64_t n = v->shape[0], step = stride[0];
    v->shape[0] = v->shape[1], stride[0] = stride[1];
    v->shape[1] = n, stride[1] = step;
}

static bool is_weight_grad(const lc_op *op)
{
    return op == &lc__op_linear_weight_grad || op == &lc__op_linear_weight_grad_finite;
}

static bool is_product(const lc_op *op)
{
    return op == &lc__op_matmul || op == &lc__op_linear || op == &lc__op_linear_gelu ||
           op == &lc__op_matmul_gelu_backward || is_weight_grad(op);
}

bool lc__product_shape(const lc_call *call, lc__product *g)
{
    if (!is_product(call->op)) return false;
    lc_view first = call->in[0];
    const lc_view *x = &first, *y = &call->in[1], *out = &call->out[0];
    bool gelu = call->op == &lc__op_linear_gelu || call->op == &lc__op_matmul_gelu_backward;
    bool linear = call->op == &lc__op_linear || call->op == &lc__op_linear_gelu;
    int64_t xs[LC_MAX_DIMS], ys[LC_MAX_DIMS];
    memset(g, 0, sizeof *g);
    if (x->ndim < (linear ? 1 : 2) || y->ndim < 2) return false;
    for (int i = 0; i < out->ndim; i++)
        if (out->shape[i] < 1) return false;
    take_strides(x, gelu, xs);
    take_strides(y, gelu, ys);
    if (is_weight_grad(call->op)) turn(&first, xs);
    g->m = x->ndim > 1 ? x->shape[x->ndim - 2] : 1;
    g->k = x->shape[x->ndim - 1];
    g->xm = x->ndim > 1 ? xs[x->ndim - 2] : g->k;
    g->xk = xs[x->ndim - 1];
    if (g->k < 1) return false;
    int x_batch = x->ndim > 2 ? x->ndim - 2 : 0, y_batch = 0;
    if (linear) {
        g->n = y->shape[0], g->yn = ys[0], g->yk = ys[1];
        g->bias = !absent(call, 2);
        g->activation = call->op == &lc__op_linear && call->n_int > 0 ? (int)call->ints[0] : 0;
        if (g->activation < 0 || g->activation > 3) return false;
    } else {
        g->n = y->shape[y->ndim - 1], g->yk = ys[y->ndim - 2], g->yn = ys[y->ndim - 1];
        y_batch = y->ndim - 2;
    }
    g->nb = x_batch > y_batch ? x_batch : y_batch;
    for (int i = 0; i < g->nb; i++) {
        int xi = i - (g->nb - x_batch), yi = i - (g->nb - y_batch);
        g->batch[i] = out->shape[i];
        g->xb[i] = xi < 0 || x->shape[xi] == 1 ? 0 : xs[xi];
        g->yb[i] = yi < 0 || y->shape[yi] == 1 ? 0 : ys[yi];
    }
    for (int i = g->nb - 1; i >= 0; i--) {
        if (g->batch[i] == 1) {
            drop_batch(g, i);
        } else if (i + 1 < g->nb && g->xb[i] == g->xb[i + 1] * g->batch[i + 1] &&
                   g->yb[i] == g->yb[i + 1] * g->batch[i + 1]) {
            g->batch[i] *= g->batch[i + 1];
            g->xb[i] = g->xb[i + 1];
            g->yb[i] = g->yb[i + 1];
            drop_batch(g, i + 1);
        }
    }
    while (g->nb && g->yb[g->nb - 1] == 0 && g->xb[g->nb - 1] && (g->m == 1 || g->xb[g->nb - 1] == g->m * g->xm)) {
        if (g->m == 1) g->xm = g->xb[g->nb - 1];
        g->m *= g->batch[--g->nb];
    }
    int64_t ob = g->m * g->n;
    for (int i = g->nb - 1; i >= 0; i--) {
        g->ob[i] = ob;
        ob *= g->batch[i];
    }
    return normalize(g->m, g->k, &g->xm, &g->xk) && normalize(g->k, g->n, &g->yk, &g->yn);
}

bool lc__product_of_type(const lc_call *call, lc_dtype dtype, lc__product *g)
{
    return lc__product_shape(call, g) && call->in[0].dtype == dtype && call->in[1].dtype == dtype &&
           call->out[0].dtype == dtype && (!g->bias || call->in[2].dtype == dtype);
}
