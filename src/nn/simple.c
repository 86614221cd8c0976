/* SPDX-License-Identifier: Apache-2.0 */
/* Layers without parameters: dropout, pooling, activations, flatten. */
#include "nn/nn_internal.h"

/* ---- Dropout ---- */

static lc_tensor *dropout(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_dropout_forward_at((lc_dropout *)self, x, site);
}

void lc_dropout_init_with(lc_dropout *l, void *parent, const char *name, double p)
{
    LC_LAYER_BEGIN(l, parent, name, "Dropout", dropout);
    l->p = p;
    if (!(p >= 0 && p <= 1)) lc_module_fail(&l->base, LC_ERR_ARGUMENT, "p %g must be between 0 and 1", p);
}

lc_tensor *lc_dropout_forward_at(lc_dropout *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "dropout", "lc_dropout_init", site);
    return l->base.training && l->p > 0 ? lc_dropout_at(x, l->p, site) : x;
}

/* ---- pooling ---- */

static const char *const pool_names[] = {"MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d"};

static lc_tensor *pool(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_pool_forward_at((lc_pool *)self, x, site);
}

void lc_pool_init_with(lc_pool *l, int kind, void *parent, const char *name, const lc_pool_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_pool_init, lc_pool_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, pool_names[kind], pool);
    l->kind = kind;
    lc__layer_dims(&l->base, 2, o.kernel_size, &o.kernel_sizes, "kernel_sizes", l->kernel);
    lc__layer_dims(&l->base, 2, o.stride, &o.strides, "strides", l->stride);
    lc__layer_dims(&l->base, 2, o.padding, &o.paddings, "paddings", l->padding);
    lc__layer_dims(&l->base, 2, o.dilation, &o.dilations, "dilations", l->dilation);
    for (int i = 0; i < 2; i++)
        if (l->stride[i] == LC_UNSET) l->stride[i] = l->kernel[i];
    l->ceil_mode = o.ceil_mode;
    l->exclude_pad = o.exclude_pad;
    l->divisor = o.divisor_override;
    bool small =
        kind == LC_POOL_ADAPTIVE_AVG ? l->kernel[0] < 0 || l->kernel[1] < 0 : l->kernel[0] < 1 || l->kernel[1] < 1;
    if (small) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "%s %lld x %lld must be positive",
                       kind == LC_POOL_ADAPTIVE_AVG ? "output_size" : "kernel_size", (long long)l->kernel[0],
                       (long long)l->kernel[1]);
    } else if (kind != LC_POOL_ADAPTIVE_AVG && (l->stride[0] < 1 || l->stride[1] < 1)) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "stride %lld x %lld must be positive", (long long)l->stride[0],
                       (long long)l->stride[1]);
    } else if (kind != LC_POOL_MAX && (l->dilation[0] != 1 || l->dilation[1] != 1)) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "dilation %lld x %lld: only MaxPool2d has a dilation",
                       (long long)l->dilation[0], (long long)l->dilation[1]);
    } else if (l->dilation[0] < 1 || l->dilation[1] < 1) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "dilation %lld x %lld must be positive", (long long)l->dilation[0],
                       (long long)l->dilation[1]);
    }
}

lc_tensor *lc_pool_forward_at(lc_pool *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "pool", "lc_max_pool2d_init, lc_avg_pool2d_init or lc_adaptive_avg_pool2d_init", site);
    if (l->kind == LC_POOL_ADAPTIVE_AVG) return lc_adaptive_avg_pool2d_at(x, l->kernel[0], l->kernel[1], site);
    lc_pool_args a = lc_pool_defaults();
    a.kernel = l->kernel[0];
    a.kernel_w = l->kernel[1];
    a.stride = LC_DIMS(l->stride[0], l->stride[1]);
    a.padding = LC_DIMS(l->padding[0], l->padding[1]);
    a.ceil_mode = l->ceil_mode;
    if (l->kind == LC_POOL_MAX) {
        a.dilation = LC_DIMS(l->dilation[0], l->dilation[1]);
        return lc_max_pool2d_at(x, &a, site);
    }
    a.exclude_pad = l->exclude_pad;
    a.divisor = l->divisor;
    return lc_avg_pool2d_at(x, &a, site);
}

/* ---- activations ---- */

static const char *const activation_names[] = {
#define LC_ACTIVATION_NAME(id, name) name,
    LC_ACTIVATION_LIST(LC_ACTIVATION_NAME)
#undef LC_ACTIVATION_NAME
};

static lc_tensor *activation(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_activation_forward_at((lc_activation *)self, x, site);
}

void lc_activation_init_with(lc_activation *l, void *parent, const char *name, const lc_activation_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_activation_init, lc_activation_init_args, options, parent);
    int n = (int)(sizeof activation_names / sizeof *activation_names);
    bool known = (int)o.kind >= 0 && (int)o.kind < n;
    LC_LAYER_BEGIN(l, parent, name, known ? activation_names[o.kind] : "Activation", activation);
    l->kind = o.kind;
    l->a = !isnan(o.a) ? o.a : o.kind == LC_ACT_LEAKY_RELU ? 0.01 : 1;
    l->dim = o.dim;
    if (!known) lc_module_fail(&l->base, LC_ERR_ARGUMENT, "unknown activation %d", (int)o.kind);
}

lc_tensor *lc_activation_forward_at(lc_activation *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "activation", "lc_activation_init", site);
    switch (l->kind) {
    case LC_ACT_RELU:
        return lc_relu_at(x, site);
    case LC_ACT_TANH:
        return lc_tanh_at(x, site);
    case LC_ACT_SIGMOID:
        return lc_sigmoid_at(x, site);
    case LC_ACT_GELU:
        return LC__CALL_AT(lc_gelu, lc_gelu, (), site, .x = x);
    case LC_ACT_GELU_TANH:
        return LC__CALL_AT(lc_gelu, lc_gelu, (), site, .x = x, .tanh = true);
    case LC_ACT_SILU:
        return lc_silu_at(x, site);
    case LC_ACT_LEAKY_RELU:
        return LC__CALL_AT(lc_leaky_relu, lc_leaky_relu, (), site, .x = x, .slope = l->a);
    case LC_ACT_ELU:
        return LC__CALL_AT(lc_elu, lc_elu, (), site, .x = x, .slope = l->a);
    case LC_ACT_RELU6:
        return lc_relu6_at(x, site);
    case LC_ACT_HARDSWISH:
        return lc_hardswish_at(x, site);
    case LC_ACT_HARDSIGMOID:
        return lc_hardsigmoid_at(x, site);
    case LC_ACT_SOFTPLUS:
        return lc_softplus_at(x, site);
    case LC_ACT_SOFTSIGN:
        return lc_softsign_at(x, site);
    case LC_ACT_MISH:
        return lc_mish_at(x, site);
    case LC_ACT_LOGSIGMOID:
        return lc_logsigmoid_at(x, site);
    case LC_ACT_SOFTMAX:
        return lc_softmax_at(x, l->dim, site);
    case LC_ACT_LOG_SOFTMAX:
        return lc_log_softmax_at(x, l->dim, site);
    }
    return x; /* an unknown kind was refused when the layer was made */
}

/* ---- Flatten ---- */

static lc_tensor *flatten(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_flatten_forward_at((lc_flatten *)self, x, site);
}

void lc_flatten_init_with(lc_flatten *l, void *parent, const char *name, int start_dim)
{
    LC_LAYER_BEGIN(l, parent, name, "Flatten", flatten);
    l->start_dim = start_dim;
}

lc_tensor *lc_flatten_forward_at(lc_flatten *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "flatten", "lc_flatten_init", site);
    return lc_flatten_at(x, l->start_dim, site);
}
