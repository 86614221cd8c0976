/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of a precision's functions. */
#include "core/hooks/precision_calls.h"
#include "base/status.h"
#include "record/graph_impl.h"

static lc_status answered(const lc_precision_ops *p, lc_status s, unsigned before, const char *function)
{
    if (s == LC_OK || (s < 0 && lc__error_count() != before)) return s;
    s = lc__answered(s, before, function, "a precision");
    return lc_fail_context(s, "precision %s", p->name);
}

lc_status lc__precision_configure_graph(const lc_precision_ops *p, void **self, lc_graph_args *graph)
{
    unsigned before = lc__error_count();
    return p->configure_graph ? answered(p, p->configure_graph(self, graph), before, "configure_graph") : LC_OK;
}

lc_status lc__precision_convert_module(const lc_precision_ops *p, void **self, lc_module *m)
{
    unsigned before = lc__error_count();
    return p->convert_module ? answered(p, p->convert_module(self, m), before, "convert_module") : LC_OK;
}

lc_status lc__precision_copy(const lc_precision_ops *p, const void *self, void **out)
{
    unsigned before = lc__error_count();
    return p->copy ? answered(p, p->copy(self, out), before, "copy") : LC_OK;
}

lc_status lc__precision_save(const lc_precision_ops *p, void *self, lc_state *state)
{
    unsigned before = lc__error_count();
    return p->save_state ? answered(p, p->save_state(self, state), before, "save_state") : LC_OK;
}

lc_status lc__precision_load(const lc_precision_ops *p, void *self, const lc_state *state)
{
    unsigned before = lc__error_count();
    return p->load_state ? answered(p, p->load_state(self, state), before, "load_state") : LC_OK;
}

lc_tensor *lc__precision_scale_loss(const lc_precision_ops *p, void *self, lc_tensor *loss)
{
    lc_tensor *scaled = p->scale_loss ? p->scale_loss(self, loss) : loss;
    if (scaled) return scaled;
    lc__refuse_call(lc_fail(LC_ERR_USER, "scale_loss returned no loss"), p->name, (lc_site){NULL, 0});
    return lc__error_tensor();
}
