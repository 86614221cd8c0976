/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of optimizers: step counts, and the state of all parameters in one buffer for each kind. */
#include "base/number.h"
#include "optim/state_buffers.h"

#include "module/tensors.h"
#include "tensor/host_access.h"
#include "tensor/initial.h"
#include "tensor/slice.h"

#include <lightc/optim.h>

static lc_status fill(lc_tensor *t, double value)
{
    lc_view v;
    LC_TRY(lc__tensor_map(t, LC__WRITE, &v));
    int64_t count = t->is_slice ? t->slice_count : lc__numel(&t->type);
    for (int64_t i = 0; i < count; i++) lc__set_number(v.data, v.dtype, i, value);
    lc__tensor_unmap(t, LC__WRITE);
    return LC_OK;
}

lc_status lc__optimizer_state_tensor(const lc_optimizer *opt, int k, int64_t index, const lc_tensor *p, lc_tensor **out)
{
    lc_type number = {.dtype = lc__wide_dtype(p->type.dtype)};
    if (!(opt->ops->scalar_state >> k & 1)) return lc__flat_state_tensor(opt->state[k], p, out);
    return lc__tensor_range(opt->state[k], (size_t)index * lc_dtype_size(number.dtype), &number, LC_ROW_MAJOR, out);
}

lc_status lc__optimizer_start_state(lc_optimizer *opt, const lc_param_group *group, int64_t first)
{
    for (int k = 0; opt->ops->initial_state && opt->ops->state_names && opt->ops->state_names[k]; k++) {
        double start = opt->ops->initial_state(opt, group, k);
        if (start == 0) continue;
        for (int i = 0; i < group->n_parameters; i++) {
            lc_tensor *part;
            LC_TRY(lc__optimizer_state_tensor(opt, k, first + i, group->parameters[i], &part));
            lc_status status = fill(part, start);
            lc_tensor_unref(part);
            LC_TRY(status);
        }
    }
    return LC_OK;
}

lc_status lc__optimizer_prepare(lc_optimizer *opt)
{
    if (opt->steps) return LC_OK;
    if (opt->root) LC_TRY(lc__module_flatten(opt->root));
    lc_flat *flat = NULL;
    int64_t n = 0;
    for (int g = 0; g < opt->n_groups; g++) {
        for (int i = 0; i < opt->groups[g].n_parameters; i++, n++) {
            lc_flat *f;
            LC_TRY(lc__flat_of(opt->groups[g].parameters[i], &f));
            if (flat && f != flat)
                return lc_fail(LC_ERR_CONFIG,
                               "%s: its parameters have different data types or belong to different modules; use a "
                               "separate optimizer for each",
                               opt->ops->name);
            flat = f;
            LC_TRY(lc__tensor_fill(opt->groups[g].parameters[i]));
        }
    }
    if (!flat) return lc_fail(LC_ERR_CONFIG, "%s: it has no parameters", opt->ops->name);
    for (int k = 0; opt->ops->state_names && opt->ops->state_names[k]; k++) {
        bool scalar = opt->ops->scalar_state >> k & 1;
        int64_t shape[] = {scalar ? n : flat->sharding ? flat->sharding->count : flat->count};
        if (k >= LC_MAX_OPTIM_STATE) return lc_fail(LC_ERR_INTERNAL, "%s has too many state buffers", opt->ops->name);
        if (!opt->state[k])
            LC_TRY(lc_tensor_new(lc__wide_dtype(flat->parameter->type.dtype), 1, shape, &opt->state[k]));
    }
    int64_t first = 0;
    for (int g = 0; g < opt->n_groups; first += opt->groups[g++].n_parameters)
        LC_TRY(lc__optimizer_start_state(opt, &opt->groups[g], first));
    return lc_tensor_new(LC_F64, 1, &n, &opt->steps);
}
