/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.LayerNorm, RMSNorm, GroupNorm */
#include "nn/nn_internal.h"

static lc_tensor *layer_norm(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_layer_norm_forward_at((lc_norm_layer *)self, x, site);
}

static lc_tensor *rms_norm(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_rms_norm_forward_at((lc_norm_layer *)self, x, site);
}

static lc_tensor *group_norm(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_group_norm_forward_at((lc_norm_layer *)self, x, site);
}

/* Shape and parameters, after the layer has been registered. */
static void finish(lc_norm_layer *l, const lc_norm_init_args *o, bool has_bias)
{
    l->eps = o->eps;
    if (o->features) {
        l->ndim = 1;
        l->shape[0] = o->features;
    } else {
        if (o->shape.n > LC_MAX_DIMS) {
            lc_module_fail(&l->base, LC_ERR_ARGUMENT, "the normalized shape has %d dimensions; at most %d are allowed",
                           o->shape.n, LC_MAX_DIMS);
            return;
        }
        l->ndim = o->shape.n;
        for (int i = 0; i < l->ndim; i++) l->shape[i] = o->shape.dim[i];
    }
    bool positive = l->ndim > 0;
    for (int i = 0; i < l->ndim; i++) positive &= l->shape[i] > 0;
    if (!positive) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "the normalized shape must be given and positive");
        return;
    }
    if (o->no_affine) return;
    l->weight = lc_module_add_parameter(&l->base, "weight", o->dtype, LC_ROW_MAJOR, l->ndim, l->shape,
                                        (lc_init){.kind = LC_INIT_ONES});
    if (!has_bias || o->no_bias) return;
    l->bias = lc_module_add_parameter(&l->base, "bias", o->dtype, LC_ROW_MAJOR, l->ndim, l->shape,
                                      (lc_init){.kind = LC_INIT_ZEROS});
}

void lc_layer_norm_init_with(lc_norm_layer *l, void *parent, const char *name, const lc_norm_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_layer_norm_init, lc_norm_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, "LayerNorm", layer_norm);
    finish(l, &o, true);
}

void lc_rms_norm_init_with(lc_norm_layer *l, void *parent, const char *name, const lc_norm_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_rms_norm_init, lc_norm_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, "RMSNorm", rms_norm);
    finish(l, &o, false);
}

void lc_group_norm_init_with(lc_norm_layer *l, void *parent, const char *name, int64_t num_groups,
                             const lc_norm_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_group_norm_init, lc_norm_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, "GroupNorm", group_norm);
    l->groups = num_groups;
    if (num_groups < 1 || o.features < 1 || o.features % num_groups) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "num_channels %lld must be a multiple of num_groups %lld",
                       (long long)o.features, (long long)num_groups);
        return;
    }
    if (o.shape.n) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "GroupNorm normalizes groups of channels; it has no shape");
        return;
    }
    finish(l, &o, true);
}

lc_tensor *lc_layer_norm_forward_at(lc_norm_layer *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "layer_norm", "lc_layer_norm_init", site);
    return LC__CALL_AT(lc_layer_norm, lc_norm, (x, l->weight, ), site, .bias = l->bias, .dims = l->ndim, .eps = l->eps);
}

lc_tensor *lc_rms_norm_forward_at(lc_norm_layer *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "rms_norm", "lc_rms_norm_init", site);
    return LC__CALL_AT(lc_rms_norm, lc_rms_norm, (x, ), site, .weight = l->weight, .dims = l->ndim, .eps = l->eps);
}

lc_tensor *lc_group_norm_forward_at(lc_norm_layer *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "group_norm", "lc_group_norm_init", site);
    return LC__CALL_AT(lc_group_norm, lc_norm, (x, l->groups, l->weight, ), site, .bias = l->bias, .eps = l->eps);
}
