/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/* The operators of neural networks, as the operator table, the planner and the backends see them.
 *
 * To add one: write its entry and reference kernel in a file of its family (conv.c, norm.c, ...), add its name to the
 * list below, its public function to include/lightc/ops_nn.h and a row to src/check/rows_nn.h.
 *
 * Operands, ints and floats by position (`?` may be NULL; a missing one keeps its place):
 *   matmul                 x[..,M,K] y[..,K,N]; vectors are made matrices by the public function | | -> z
 *   linear                 x w b? | activation (0 none, 1 relu, 2 tanh, 3 sigmoid; set by the planner) | -> y
 *   linear_gelu            x w b? | gelu's form | -> gelu(y) y? (a node of one result has only the first) (planner only)
 *   matmul_gelu_backward   x[..,M,K] y[..,K,N] z | gelu's form | -> gelu_backward(x y, z) gelu(z)? (planner only)
 *   gelu_backward_gelu     dy x | gelu's form | -> gelu_backward(dy, x) gelu(x)                 (planner only)
 *   linear_weight_grad     dy[M,N] x[M,K] | | -> dw[N,K] db[N]                                  (planner only)
 *   linear_weight_grad_finite  the same -> dw db finite (0; NaN if dw or db is not finite)      (planner only)
 *   conv                   x w b? | nd stride[nd] padding[nd] dilation[nd] groups activation | -> y
 *   conv_input_grad        dy w b? | nd stride padding dilation groups input size[nd] | -> dx   (also: transposed)
 *   conv_weight_grad       dy x | nd stride padding dilation groups kernel size[nd] | -> dw
 *   max_pool2d             x | kh kw sh sw ph pw dh dw ceil | -> y, index (place in the window: u8, or i32)
 *   max_pool2d_backward    dy index | the same, H W | -> dx
 *   avg_pool2d             x | kh kw sh sw ph pw ceil count_include_pad divisor | -> y
 *   avg_pool2d_backward    dy | the same, H W | -> dx
 *   adaptive_avg_pool2d    x | OH OW | -> y          adaptive_avg_pool2d_backward  dy | H W | -> dx
 *   interpolate            x | mode align_corners OH OW | scale_h scale_w (0: from the sizes) -> y
 *   interpolate_backward   dy | mode align_corners H W | the same -> dx
 *   batch_norm             x w? b? | activation (0, 1 relu) | eps -> y mean[C] var[C] (biased)
 *   batch_norm_backward    dy x w? b? mean var | activation | eps -> dx dw db
 *   batch_norm_inference   x w? b? running_mean running_var | activation | eps -> y
 *   batch_norm_relu_backward  dy x w? b? mean var | 1 | eps -> dx dw db y                       (planner only)
 *   batch_norm_relu_pool   x w? b? | the 9 of max_pool2d | eps -> y index mean var              (planner only)
 *   batch_norm_relu_pool_backward  dy index x w? b? mean var | the 9 | eps -> dx dw db          (planner only)
 *   layer_norm             x w? b? | dims | eps -> y mean rstd
 *   layer_norm_backward    dy x w? mean rstd | dims | -> dx dw db
 *   rms_norm               x w? | dims | eps -> y rstd
 *   rms_norm_backward      dy x w? rstd | dims | -> dx dw
 *   group_norm             x w? b? | groups | eps -> y mean rstd
 *   group_norm_backward    dy x w? mean rstd | groups | -> dx dw db
 *   embedding              ids w | padding_idx or -1 | -> y
 *   embedding_backward     dy ids | V padding_idx | -> dw
 *   cross_entropy          x t w? | ignore_index reduction | label_smoothing -> loss lse total_weight
 *   cross_entropy_backward dloss x t w? lse total_weight | the same | the same -> dx
 *   nll_loss               x t w? | ignore_index reduction | -> loss total_weight
 *   nll_loss_backward      dloss t w? total_weight | ignore_index reduction C | -> dx
 *   sdpa                   q k v mask? | causal has_scale | scale -> y lse
 *   sdpa_backward          dy q k v mask? y lse | the same | the same -> dq dk dv
 *   dropout                x | site occurrence | p -> y
 *   bernoulli              p | site occurrence | -> y
 *   uniform, normal        (none) | site occurrence dtype shape... | low high; mean std -> y
 *   lstm                   gx[B,T,4H] (= linear(x, w_ih, b_ih)) w_hh b_hh? h0? c0? | |
 *                          -> y h_n c_n gates[B,T,4H] cells[B,T,H]
 *   lstm_backward          dy? dh_n? dc_n? w_hh h0? c0? y gates cells | | -> dgx h_prev[B,T,H] dh0 dc0
 *   gru                    gx[B,T,3H] w_hh b_hh? h0? | | -> y h_n gates[B,T,4H] (r, z, n, hidden part of n)
 *   gru_backward           dy? dh_n? w_hh h0? y gates | | -> dgx dgh[B,T,3H] h_prev dh0 */
/* clang-format on */
#ifndef LC_OPS_OPS_NN_H
#define LC_OPS_OPS_NN_H

#include <lightc/op.h>

#define LC_OPS_NN_LIST(X)                                                                                              \
    X(matmul)                                                                                                          \
    X(linear)                                                                                                          \
    X(linear_gelu)                                                                                                     \
    X(matmul_gelu_backward)                                                                                            \
    X(gelu_backward_gelu)                                                                                              \
    X(linear_weight_grad)                                                                                              \
    X(linear_weight_grad_finite)                                                                                       \
    X(conv)                                                                                                            \
    X(conv_input_grad)                                                                                                 \
    X(conv_weight_grad)                                                                                                \
    X(max_pool2d)                                                                                                      \
    X(max_pool2d_backward)                                                                                             \
    X(avg_pool2d)                                                                                                      \
    X(avg_pool2d_backward)                                                                                             \
    X(adaptive_avg_pool2d)                                                                                             \
    X(adaptive_avg_pool2d_backward)                                                                                    \
    X(interpolate)                                                                                                     \
    X(interpolate_backward)                                                                                            \
    X(batch_norm)                                                                                                      \
    X(batch_norm_backward)                                                                                             \
    X(batch_norm_relu_backward)                                                                                        \
    X(batch_norm_inference)                                                                                            \
    X(batch_norm_relu_pool)                                                                                            \
    X(batch_norm_relu_pool_backward)                                                                                   \
    X(layer_norm)                                                                                                      \
    X(layer_norm_backward)                                                                                             \
    X(rms_norm)                                                                                                        \
    X(rms_norm_backward)                                                                                               \
    X(group_norm)                                                                                                      \
    X(group_norm_backward)                                                                                             \
    X(embedding)                                                                                                       \
    X(embedding_backward)                                                                                              \
    X(cross_entropy)                                                                                                   \
    X(cross_entropy_backward)                                                                                          \
    X(nll_loss)                                                                                                        \
    X(nll_loss_backward)                                                                                               \
    X(sdpa)                                                                                                            \
    X(sdpa_backward)                                                                                                   \
    X(dropout)                                                                                                         \
    X(bernoulli)                                                                                                       \
    X(uniform)                                                                                                         \
    X(normal)                                                                                                          \
    X(lstm)                                                                                                            \
    X(lstm_backward)                                                                                                   \
    X(gru)                                                                                                             \
    X(gru_backward)

#define LC_OPS_NN_DECLARE(name) extern const lc_op lc__op_##name;
LC_OPS_NN_LIST(LC_OPS_NN_DECLARE)
#undef LC_OPS_NN_DECLARE

#endif
