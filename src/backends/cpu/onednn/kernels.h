/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of this folder. To add one: define it, declare it here and list it in onednn.c. */
#ifndef LC_ONEDNN_KERNELS_H
#define LC_ONEDNN_KERNELS_H

#include <lightc/op.h>

/* matmul.c; each serves both matmul and linear. */
extern const lc_kernel lc__onednn_matmul;         /* one primitive on operands in place */
extern const lc_kernel lc__onednn_matmul_packed;  /* reorders the second operand into the library's layout first */
extern const lc_kernel lc__onednn_matmul_batched; /* a two-dimensional primitive per matrix of the batch */

/* conv.c */
extern const lc_kernel lc__onednn_conv;
extern const lc_kernel lc__onednn_conv_direct; /* without batch-reduced products */
/* Whether the direct kernel was measured to be faster: few channels, 1x1 kernels, narrow images. */
bool lc__onednn_conv_prefers_direct(const lc_call *call);
extern const lc_kernel lc__onednn_conv_input_grad;
extern const lc_kernel lc__onednn_conv_weight_grad;

/* conv_gemm.c */
extern const lc_kernel lc__onednn_conv_weight_grad_gemm; /* columns of image patches, one matrix product */
const char *lc__onednn_gemm_impl(const lc_call *call);   /* lc__onednn_impl of that kernel */

#endif
