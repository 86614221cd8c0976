/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Conv1d, Conv2d, Conv3d and their transposed forms. Weights are stored channels-last, as kernels need
 * them. */
#include "nn/nn_internal.h"

static const char *const type_names[2][3] = {
    {"Conv1d", "Conv2d", "Conv3d"},
    {"ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"},
};

static lc_tensor *forward(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_conv_forward_at((lc_conv *)self, x, site);
}

static bool valid(lc_conv *l)
{
    for (int i = 0; i < l->nd; i++) {
        if (l->kernel[i] < 1 || l->stride[i] < 1 || l->padding[i] < 0 || l->dilation[i] < 1) {
            lc_module_fail(
                &l->base, LC_ERR_ARGUMENT,
                "kernel_size %lld, stride %lld and dilation %lld must be positive, and padding %lld not negative",
                (long long)l->kernel[i], (long long)l->stride[i], (long long)l->dilation[i], (long long)l->padding[i]);
            return false;
        }
    }
    if (l->in_channels < 1 || l->out_channels < 1 || l->groups < 1 || l->in_channels % l->groups ||
        l->out_channels % l->groups) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT,
                       "in_channels %lld and out_channels %lld must be multiples of groups %lld",
                       (long long)l->in_channels, (long long)l->out_channels, (long long)l->groups);
        return false;
    }
    return true;
}

void lc_conv_init_with(lc_conv *l, int nd, bool transposed, void *parent, const char *name, int64_t in_channels,
                       int64_t out_channels, const lc_conv_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_conv_init, lc_conv_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, type_names[transposed][nd - 1], forward);
    l->nd = nd;
    l->transposed = transposed;
    l->in_channels = in_channels;
    l->out_channels = out_channels;
    l->groups = o.groups;
    lc__layer_dims(&l->base, nd, o.kernel_size, &o.kernel_sizes, "kernel_sizes", l->kernel);
    lc__layer_dims(&l->base, nd, o.stride, &o.strides, "strides", l->stride);
    lc__layer_dims(&l->base, nd, o.padding, &o.paddings, "paddings", l->padding);
    lc__layer_dims(&l->base, nd, o.dilation, &o.dilations, "dilations", l->dilation);
    lc__layer_dims(&l->base, nd, o.output_padding, &o.output_paddings, "output_paddings", l->output_padding);
    if (!valid(l)) return;

    int64_t shape[5] = {out_channels, in_channels / l->groups}, fan_in;
    if (transposed) {
        shape[0] = in_channels;
        shape[1] = out_channels / l->groups;
    }
    fan_in = shape[1];
    for (int i = 0; i < nd; i++) {
        shape[2 + i] = l->kernel[i];
        fan_in *= l->kernel[i];
    }
    l->weight = lc_module_add_parameter(&l->base, "weight", o.dtype, LC_CHANNELS_LAST, 2 + nd, shape,
                                        lc__init_default_weight());
    if (o.no_bias) return;
    l->bias = lc_module_add_parameter(&l->base, "bias", o.dtype, LC_ROW_MAJOR, 1, &out_channels,
                                      lc__init_inverse_sqrt(fan_in));
}

lc_tensor *lc_conv_forward_at(lc_conv *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "conv", "lc_convNd_init or lc_conv_transposeNd_init", site);
    lc_conv_args a = lc_conv_defaults();
    a.bias = l->bias;
    a.groups = l->groups;
    a.stride.n = a.padding.n = a.dilation.n = a.output_padding.n = l->nd;
    for (int i = 0; i < l->nd; i++) {
        a.stride.dim[i] = l->stride[i];
        a.padding.dim[i] = l->padding[i];
        a.dilation.dim[i] = l->dilation[i];
        a.output_padding.dim[i] = l->output_padding[i];
    }
    if (l->transposed) {
        return l->nd == 1   ? lc_conv_transpose1d_at(x, l->weight, &a, site)
               : l->nd == 2 ? lc_conv_transpose2d_at(x, l->weight, &a, site)
                            : lc_conv_transpose3d_at(x, l->weight, &a, site);
    }
    return l->nd == 1   ? lc_conv1d_at(x, l->weight, &a, site)
           : l->nd == 2 ? lc_conv2d_at(x, l->weight, &a, site)
                        : lc_conv3d_at(x, l->weight, &a, site);
}
