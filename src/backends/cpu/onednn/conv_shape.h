/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes shared by the three operators of a convolution, read from operands and ints. */
#ifndef LC_ONEDNN_CONV_SHAPE_H
#define LC_ONEDNN_CONV_SHAPE_H

#include "backends/cpu/onednn/dnnl_shim.h"
#include <lightc/op.h>

typedef struct lc__conv_shape {
    int nd;
    int64_t n, in_channels, out_channels, groups;
    int64_t in_size[3], out_size[3], kernel[3];
    lc__dnnl_window window;
} lc__conv_shape;

/* x or dx, w or dw, y or dy of the call. False if these kernels do not support it (sizes of 0). */
bool lc__conv_describe(const lc_call *call, lc__conv_shape *c, const lc_view *x, const lc_view *w, const lc_view *y);
/* Elements of an image with that many channels. */
int64_t lc__conv_image_size(int nd, int64_t channels, const int64_t *size);

#endif
