/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by layers: lists of dimensions, and the errors of a struct that is not a layer. */
#include "nn/nn_internal.h"
#include "ops/take.h"
#include "record/graph_impl.h"

lc_tensor *lc__no_layer(const void *l, const char *name, const char *init, lc_site site)
{
    char title[64];
    snprintf(title, sizeof title, "lc_%s_forward", name);
    if (l)
        lc_fail(LC_ERR_ARGUMENT,
                "this layer was not initialized, or was released; call %s(&layer, parent, \"name\", ...) "
                "first, with an initialized parent",
                init);
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

void lc__layer_dims(lc_module *layer, int nd, int64_t all, const lc_dims *list, const char *name, int64_t *out)
{
    if (lc__dims_check(list, nd, name) < 0) (void)!lc_module_fail(layer, LC_ERR_ARGUMENT, "%s", lc_error_message());
    for (int i = 0; i < nd; i++) out[i] = lc__dims_at(list, i, all);
}
