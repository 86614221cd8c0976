/* SPDX-License-Identifier: Apache-2.0 */
/* torch.nn.Linear */
#include "nn/nn_internal.h"

static lc_tensor *forward(lc_module *self, lc_tensor *x, lc_site site)
{
    return lc_linear_forward_at((lc_linear *)self, x, site);
}

void lc_linear_init_with(lc_linear *l, void *parent, const char *name, int64_t in_features,
                         const lc_linear_init_args *options)
{
    LC_LAYER_OPTIONS(o, lc_linear_init, lc_linear_init_args, options, parent);
    LC_LAYER_BEGIN(l, parent, name, "Linear", forward);
    l->in_features = in_features;
    l->out_features = o.out_features;
    if (in_features < 1 || o.out_features < 1) {
        lc_module_fail(&l->base, LC_ERR_ARGUMENT, "in_features %lld and out_features %lld must be positive",
                       (long long)in_features, (long long)o.out_features);
        return;
    }
    l->weight = lc_module_add_parameter(&l->base, "weight", o.dtype, LC_ROW_MAJOR, 2,
                                        (int64_t[]){o.out_features, in_features}, lc__init_default_weight());
    if (o.no_bias) return;
    l->bias = lc_module_add_parameter(&l->base, "bias", o.dtype, LC_ROW_MAJOR, 1, &o.out_features,
                                      lc__init_inverse_sqrt(in_features));
}

lc_tensor *lc_linear_forward_at(lc_linear *l, lc_tensor *x, lc_site site)
{
    LC_LAYER_FORWARD(l, "linear", "lc_linear_init", site);
    return lc_linear_at(x, l->weight, l->bias, site); /* [..., out] */
}
