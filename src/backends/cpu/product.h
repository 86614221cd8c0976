/* SPDX-License-Identifier: Apache-2.0 */
/* A call of matmul, linear, or a fusion with one of them, as a product of matrices, or of batches of them. */
#ifndef LC_BACKENDS_CPU_PRODUCT_H
#define LC_BACKENDS_CPU_PRODUCT_H

#include <lightc/op.h>

/* out[b][m][n] = activation(x[b][m][k] * y[b][k][n] + bias[n]); strides in elements, a broadcast batch has stride 0,
 * out is dense. */
typedef struct lc__product {
    int nb;
    int64_t batch[LC_MAX_DIMS], xb[LC_MAX_DIMS], yb[LC_MAX_DIMS], ob[LC_MAX_DIMS];
    int64_t m, n, k;
    int64_t xm, xk, yk, yn;
    bool bias;
    int activation; /* as in lc__activate */
} lc__product;

/* Describes the product only, not what else a fusion computes, and not its types. False if the call is not a product,
 * or has other layouts. Contiguous batch dimensions are merged, and folded into the rows if the second operand has no
 * batch: [16,256,384] x [384,1152] is one product of 4096 rows. */
bool lc__product_shape(const lc_call *call, lc__product *out);
/* The same; also false if not all is in this type. */
bool lc__product_of_type(const lc_call *call, lc_dtype dtype, lc__product *out);

#endif
