/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of a convolution; see conv_shape.h. */
#include "backends/cpu/onednn/conv_shape.h"

#include <string.h>

bool lc__conv_describe(const lc_call *call, lc__conv_shape *c, const lc_view *x, const lc_view *w, const lc_view *y)
{
    memset(c, 0, sizeof *c);
    c->nd = (int)call->ints[0];
    if (c->nd < 1 || c->nd > 3 || x->ndim != c->nd + 2 || y->ndim != c->nd + 2 || w->ndim != c->nd + 2) return false;
    c->n = x->shape[0];
    c->in_channels = x->shape[1];
    c->out_channels = y->shape[1];
    c->groups = call->ints[1 + 3 * c->nd];
    c->window.nd = c->nd;
    if (c->n < 1 || c->in_channels < 1 || c->out_channels < 1 || c->groups < 1) return false;
    if (c->in_channels % c->groups || c->out_channels % c->groups) return false;
    for (int i = 0; i < c->nd; i++) {
        c->in_size[i] = x->shape[2 + i];
        c->out_size[i] = y->shape[2 + i];
        c->kernel[i] = w->shape[2 + i];
        c->window.stride[i] = call->ints[1 + i];
        c->window.padding[i] = call->ints[1 + c->nd + i];
        c->window.dilation[i] = call->ints[1 + 2 * c->nd + i];
        if (c->in_size[i] < 1 || c->out_size[i] < 1 || c->kernel[i] < 1) return false;
    }
    return true;
}

int64_t lc__conv_image_size(int nd, int64_t channels, const int64_t *size)
{
    for (int i = 0; i < nd; i++) channels *= size[i];
    return channels;
}
