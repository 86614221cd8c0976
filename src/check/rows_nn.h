/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of lightc/ops_nn.h, one row for each case. They are shared by tests/ops/test_ops_nn.c and the check of
 * backends. To add an operator, add a row.
 *
 * A row's inputs are text: a kind (n normal, p positive, u in [0,1), iK integers below K), the shape, and `!` if no
 * gradient is wanted. */
#ifndef LC_CHECK_ROWS_NN_H
#define LC_CHECK_ROWS_NN_H

#include "ops/ops_nn.h"

#include <lightc/lightc.h>

enum { MAX_IN = 6 };

typedef struct row {
    const char *name;
    lc_tensor *(*build)(lc_tensor *const *in);
    const char *in[MAX_IN];
} row;

#define BUILD(name, expression)                                                                                        \
    static lc_tensor *name(lc_tensor *const *in)                                                                       \
    {                                                                                                                  \
        lc_tensor *const x = in[0], *const y = in[1], *const z = in[2];                                                \
        (void)x, (void)y, (void)z;                                                                                     \
        return expression;                                                                                             \
    }

BUILD(b_matmul, lc_matmul(x, y))
BUILD(b_matmul_t, lc_matmul(x, lc_transpose(y, -1, -2)))
BUILD(b_linear, lc_linear(x, y, z))
BUILD(b_linear_plain, lc_linear(x, y, NULL))
BUILD(b_conv, lc_conv2d(x, y, z, .padding = LC_DIMS(1, 1)))
BUILD(b_conv_stride, lc_conv2d(x, y, z, .stride = LC_DIMS(2)))
BUILD(b_conv_groups, lc_conv2d(x, y, NULL, .padding = LC_DIMS(1, 1), .groups = 2))
BUILD(b_conv_dilation, lc_conv2d(x, y, z, .dilation = LC_DIMS(2), .padding = LC_DIMS(1)))
BUILD(b_conv1d, lc_conv1d(x, y, z, .padding = LC_DIMS(1)))
BUILD(b_conv3d, lc_conv3d(x, y, z, .padding = LC_DIMS(1), .stride = LC_DIMS(1, 2, 1)))
BUILD(b_transposed,
      lc_conv_transpose2d(x, y, z, .stride = LC_DIMS(2), .padding = LC_DIMS(1, 1), .output_padding = LC_DIMS(1, 1)))
BUILD(b_transposed1d, lc_conv_transpose1d(x, y, NULL, .stride = LC_DIMS(3), .groups = 2))
BUILD(b_transposed3d, lc_conv_transpose3d(x, y, z, .stride = LC_DIMS(2, 1, 2)))
BUILD(b_weight_grad, lc_op_call(&lc__op_conv_weight_grad, 2, (lc_tensor *[]){x, y}, 10,
                                (int64_t[]){2, 1, 1, 1, 1, 1, 1, 1, 3, 3}, 0, NULL, LC_HERE))
BUILD(b_max_pool, lc_max_pool2d(x, 3, .stride = LC_DIMS(2), .padding = LC_DIMS(1, 1)))
BUILD(b_max_pool_dilated, lc_max_pool2d(x, 2, .kernel_w = 3, .dilation = LC_DIMS(2), .stride = LC_DIMS(1, 2)))
BUILD(b_max_pool_ceil, lc_max_pool2d(x, 2, .ceil_mode = true))
BUILD(b_max_pool1d, lc_max_pool1d(x, 2))
BUILD(b_avg_pool, lc_avg_pool2d(x, 3, .stride = LC_DIMS(2), .padding = LC_DIMS(1, 1)))
BUILD(b_avg_pool_inside,
      lc_avg_pool2d(x, 3, .stride = LC_DIMS(2), .padding = LC_DIMS(1, 1), .exclude_pad = true, .ceil_mode = true))
BUILD(b_avg_pool_divisor, lc_avg_pool2d(x, 2, .divisor = 3))
BUILD(b_avg_pool1d, lc_avg_pool1d(x, 2))
BUILD(b_adaptive, lc_adaptive_avg_pool2d(x, 3, 2))
BUILD(b_adaptive_even, lc_adaptive_avg_pool2d(x, 2, 3))
BUILD(b_adaptive_one, lc_adaptive_avg_pool2d(x, 1, 1))
BUILD(b_nearest, lc_interpolate(x, LC_NEAREST, .scale = 2))
BUILD(b_nearest_down, lc_interpolate(x, LC_NEAREST, .output_size = LC_DIMS(2, 7)))
BUILD(b_bilinear, lc_interpolate(x, LC_BILINEAR, .output_size = LC_DIMS(7, 3)))
BUILD(b_bilinear_aligned, lc_interpolate(x, LC_BILINEAR, .output_size = LC_DIMS(7, 3), .align_corners = true))
BUILD(b_bilinear_scale, lc_interpolate(x, LC_BILINEAR, .scale = 1.7, .scale_w = 0.6))
BUILD(b_pixel_shuffle, lc_pixel_shuffle(x, 2))
BUILD(b_pixel_there_and_back, lc_mul(lc_pixel_unshuffle(lc_pixel_shuffle(x, 2), 2), x))
BUILD(b_batch_norm, lc_batch_norm(x, y, z))
BUILD(b_batch_norm_plain, lc_batch_norm(x, NULL, NULL, .eps = 1e-3))
BUILD(b_batch_norm_eval, lc_batch_norm(x, y, z, .running_mean = in[3], .running_var = in[4]))
BUILD(b_layer_norm, lc_layer_norm(x, y, z))
BUILD(b_layer_norm_plain, lc_layer_norm(x, NULL, NULL, .dims = 2))
BUILD(b_rms_norm, lc_rms_norm(x, y, .eps = 1e-6))
BUILD(b_rms_norm_plain, lc_rms_norm(x, NULL))
BUILD(b_group_norm, lc_group_norm(x, 2, y, z))
BUILD(b_group_norm_plain, lc_group_norm(x, 3, NULL, NULL))
BUILD(b_embedding, lc_embedding(x, y))
BUILD(b_cross_entropy, lc_cross_entropy(x, y, .weight = z, .label_smoothing = 0.1, .ignore_index = 2))
BUILD(b_cross_entropy_sum, lc_cross_entropy(x, y, .reduction = LC_REDUCE_SUM))
BUILD(b_cross_entropy_none, lc_cross_entropy(x, y, .reduction = LC_REDUCE_NONE, .label_smoothing = 0.3))
BUILD(b_cross_entropy_soft, lc_cross_entropy(x, y, .weight = z, .label_smoothing = 0.2))
BUILD(b_nll, lc_nll_loss(lc_log_softmax(x, 1), y, .weight = z))
BUILD(b_nll_none, lc_nll_loss(x, y, .reduction = LC_REDUCE_NONE))
BUILD(b_sdpa, lc_sdpa(x, y, z))
BUILD(b_sdpa_causal, lc_sdpa(x, y, z, .causal = true))
BUILD(b_sdpa_mask, lc_sdpa(x, y, z, .mask = in[3], .scale = 0.3))
BUILD(b_dropout, lc_dropout(x, 0.4))
BUILD(b_lstm, lc_lstm(x, y, z, .b_ih = in[3], .b_hh = in[4]))
BUILD(b_gru, lc_gru(x, y, z, .b_ih = in[3], .b_hh = in[4]))

/* The last states count too, and initial states are given. */
static lc_tensor *b_lstm_states(lc_tensor *const *in)
{
    lc_tensor *h, *c;
    lc_tensor *y = lc_lstm(in[0], in[1], in[2], .h0 = in[3], .c0 = in[4], .h_n = &h, .c_n = &c);
    return lc_add(lc_add(lc_mul(h, h), lc_sin(c)), lc_sum(y));
}

static lc_tensor *b_gru_state(lc_tensor *const *in)
{
    lc_tensor *h;
    lc_tensor *y = lc_gru(in[0], in[1], in[2], .h0 = in[3], .h_n = &h);
    return lc_add(lc_mul(h, h), lc_sum(y));
}

static const row rows[] = {
    {"matmul", b_matmul, {"n4,3", "n3,5"}},
    {"matmul_batch", b_matmul, {"n2,3,4", "n2,4,5"}},
    {"matmul_folded", b_matmul, {"n2,3,4", "n4,5"}},
    {"matmul_broadcast", b_matmul, {"n3,4", "n2,4,5"}},
    {"matmul_broadcast_both", b_matmul, {"n2,1,3,4", "n3,4,2"}},
    {"matmul_vectors", b_matmul, {"n5", "n5"}},
    {"matmul_vector_left", b_matmul, {"n4", "n2,4,3"}},
    {"matmul_vector_right", b_matmul, {"n2,3,4", "n4"}},
    {"matmul_transposed", b_matmul_t, {"n2,3,4", "n2,5,4"}},
    {"matmul_blocks", b_matmul, {"n19,70", "n70,37"}},
    {"linear", b_linear, {"n4,3", "n5,3", "n5"}},
    {"linear_batch", b_linear, {"n2,3,4", "n5,4", "n5"}},
    {"linear_vector", b_linear, {"n4", "n5,4", "n5"}},
    {"linear_plain", b_linear_plain, {"n2,2,4", "n5,4"}},
    {"conv2d", b_conv, {"n2,3,5,4", "n4,3,3,3", "n4"}},
    {"conv2d_stride", b_conv_stride, {"n2,2,7,6", "n3,2,3,2", "n3"}},
    {"conv2d_groups", b_conv_groups, {"n2,4,4,5", "n6,2,3,3"}},
    {"conv2d_dilation", b_conv_dilation, {"n1,2,6,7", "n2,2,3,3", "n2"}},
    {"conv2d_wide", b_conv, {"n1,1,3,70", "n1,1,3,3", "n1"}},
    {"conv2d_single", b_conv, {"n3,5,4", "n4,3,3,3", "n4"}},
    {"conv1d", b_conv1d, {"n2,3,6", "n4,3,3", "n4"}},
    {"conv3d", b_conv3d, {"n1,2,3,4,3", "n2,2,2,3,2", "n2"}},
    {"conv_transpose2d", b_transposed, {"n2,3,3,4", "n3,2,3,3", "n2"}},
    {"conv_transpose1d", b_transposed1d, {"n2,4,3", "n4,3,2"}},
    {"conv_transpose3d", b_transposed3d, {"n1,2,2,3,2", "n2,2,2,2,2", "n2"}},
    {"conv_weight_grad", b_weight_grad, {"n2,2,4,5", "n2,3,4,5"}},
    {"max_pool2d", b_max_pool, {"n2,2,5,6"}},
    {"max_pool2d_dilated", b_max_pool_dilated, {"n1,2,6,7"}},
    {"max_pool2d_ceil", b_max_pool_ceil, {"n1,2,5,5"}},
    {"max_pool2d_single", b_max_pool, {"n2,5,6"}},
    {"max_pool1d", b_max_pool1d, {"n2,3,7"}},
    {"avg_pool2d", b_avg_pool, {"n2,2,5,6"}},
    {"avg_pool2d_inside", b_avg_pool_inside, {"n1,2,6,6"}},
    {"avg_pool2d_divisor", b_avg_pool_divisor, {"n1,2,4,4"}},
    {"avg_pool1d", b_avg_pool1d, {"n2,3,6"}},
    {"adaptive_avg_pool2d", b_adaptive, {"n2,2,7,5"}},
    {"adaptive_avg_pool2d_even", b_adaptive_even, {"n2,2,4,6"}},
    {"adaptive_avg_pool2d_one", b_adaptive_one, {"n2,2,4,6"}},
    {"adaptive_avg_pool2d_single", b_adaptive, {"n2,7,5"}},
    {"interpolate_nearest", b_nearest, {"n1,2,3,4"}},
    {"interpolate_nearest_size", b_nearest_down, {"n1,2,3,4"}},
    {"interpolate_bilinear", b_bilinear, {"n1,2,3,4"}},
    {"interpolate_bilinear_aligned", b_bilinear_aligned, {"n1,2,3,4"}},
    {"interpolate_bilinear_scale", b_bilinear_scale, {"n1,2,3,4"}},
    {"pixel_shuffle", b_pixel_shuffle, {"n2,8,2,3"}},
    {"pixel_unshuffle", b_pixel_there_and_back, {"n1,8,2,3"}},
    {"batch_norm", b_batch_norm, {"n3,2,3,2", "n2", "n2"}},
    {"batch_norm_1d", b_batch_norm, {"n6,3", "n3", "n3"}},
    {"batch_norm_3d", b_batch_norm, {"n2,2,3", "n2", "n2"}},
    {"batch_norm_5d", b_batch_norm, {"n2,2,2,3,2", "n2", "n2"}},
    {"batch_norm_plain", b_batch_norm_plain, {"n3,2,3"}},
    {"batch_norm_eval", b_batch_norm_eval, {"n2,3,2,2", "n3", "n3", "n3!", "p3!"}},
    {"layer_norm", b_layer_norm, {"n4,6", "n6", "n6"}},
    {"layer_norm_2", b_layer_norm, {"n3,4,5", "n4,5", "n4,5"}},
    {"layer_norm_plain", b_layer_norm_plain, {"n3,4,5"}},
    {"rms_norm", b_rms_norm, {"n4,6", "n6"}},
    {"rms_norm_plain", b_rms_norm_plain, {"n2,3,6"}},
    {"group_norm", b_group_norm, {"n2,4,3,2", "n4", "n4"}},
    {"group_norm_plain", b_group_norm_plain, {"n2,6,3"}},
    {"embedding", b_embedding, {"i5:2,3", "n5,4"}},
    {"cross_entropy", b_cross_entropy, {"n3,5,4", "i5:3,4", "p5!"}},
    {"cross_entropy_sum", b_cross_entropy_sum, {"n4,6", "i6:4"}},
    {"cross_entropy_none", b_cross_entropy_none, {"n4,6", "i6:4"}},
    {"cross_entropy_single", b_cross_entropy_none, {"n6", "i6:"}},
    {"cross_entropy_soft", b_cross_entropy_soft, {"n4,6", "u4,6!", "p6!"}},
    {"cross_entropy_soft_spatial", b_cross_entropy_soft, {"n2,5,3", "u2,5,3!", "p5!"}},
    {"nll_loss", b_nll, {"n4,6", "i6:4", "p6!"}},
    {"nll_loss_none", b_nll_none, {"n2,6,3", "i6:2,3"}},
    {"sdpa", b_sdpa, {"n2,2,3,4", "n2,2,5,4", "n2,2,5,3"}},
    {"sdpa_causal", b_sdpa_causal, {"n2,6,4", "n2,6,4", "n2,6,3"}},
    {"sdpa_mask", b_sdpa_mask, {"n2,2,3,4", "n2,2,5,4", "n2,2,5,4", "n2,1,3,5!"}},
    {"dropout", b_dropout, {"n5,7"}},
    {"lstm", b_lstm, {"n2,4,3", "n12,3", "n12,3", "n12", "n12"}},
    {"lstm_states", b_lstm_states, {"n2,3,4", "n12,4", "n12,3", "n2,3", "n2,3"}},
    {"gru", b_gru, {"n2,4,3", "n9,3", "n9,3", "n9", "n9"}},
    {"gru_state", b_gru_state, {"n2,3,4", "n9,4", "n9,3", "n2,3"}},
};

#endif
