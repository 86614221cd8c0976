/* SPDX-License-Identifier: Apache-2.0 */
/* The precision of a check (check.h). */
#include "check.h"

#include "base/number.h"

lc_status check_precision_begin(const char *name, check_precision *p)
{
    *p = (check_precision){.graph = lc_graph_defaults()};
    LC_TRY(lc_precision_find(name, &p->ops));
    return p->ops->configure_graph ? p->ops->configure_graph(&p->self, &p->graph) : LC_OK;
}

void check_precision_end(check_precision *p)
{
    if (p->ops && p->ops->teardown) p->ops->teardown(p->self);
}

lc_status check_convert(check_precision *p, lc_module *m)
{
    return p->ops->convert_module ? p->ops->convert_module(&p->self, m) : LC_OK;
}

lc_tensor *check_scale(const check_precision *p, lc_tensor *loss)
{
    return p->ops->scale_loss ? p->ops->scale_loss(p->self, loss) : loss;
}

lc_dtype check_low_type(const check_precision *p)
{
    lc_dtype dtype = p->graph.autocast ? p->graph.autocast : p->graph.storage;
    return dtype == LC_F64 ? LC_DTYPE_DEFAULT : dtype;
}

double check_rounded(lc_dtype dtype, double x)
{
    uint64_t bits;
    lc__store_number(&bits, dtype, x);
    return lc__load_number(&bits, dtype);
}
