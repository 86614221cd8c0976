/* SPDX-License-Identifier: Apache-2.0 */
/* What a layer's forward says of a struct that is no layer. */
#include "nn/nn_internal.h"
#include "record/graph_impl.h"

lc_tensor *lc__no_layer(const void *l, const char *name, lc_site site)
{
    char title[64];
    snprintf(title, sizeof title, "lc_%s_forward", name);
    if (l)
        lc_fail(LC_ERR_ARGUMENT,
                "this layer was not initialised, or has been released; call lc_%s_init(&layer, parent, \"name\", ...) "
                "first, with a parent that is initialised itself",
                name);
    else
        lc_fail(LC_ERR_ARGUMENT, "the layer is NULL");
    lc__refuse_call(LC_ERR_ARGUMENT, title, site);
    return lc__error_tensor();
}

lc_tensor *lc__no_arguments(const char *name, lc_site site)
{
    char title[64];
    snprintf(title, sizeof title, "lc_%s_forward", name);
    lc__refuse_call(LC_ERR_ARGUMENT, title, site);
    return lc__error_tensor();
}
