/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of optimizers: step counts, and the state of all parameters in one buffer for each kind. */
#include "optim/state_buffers.h"

#include "base/grow.h"
#include "base/handle.h"
#include "base/number.h"
#include "optim/optim_internal.h"
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

const lc__state_range *lc__optimizer_range(const lc_optimizer *opt, const lc_flat *flat)
{
    for (int i = 0; i < opt->n_ranges; i++)
        if (opt->ranges[i].flat == flat) return &opt->ranges[i];
    return NULL;
}

static int n_states(const lc_optimizer *opt)
{
    int n = 0;
    while (opt->ops->state_names && opt->ops->state_names[n]) n++;
    return n;
}

const char *lc__optimizer_state_name(const lc_optimizer *opt, int k)
{
    int n = n_states(opt);
    if (k < n) return opt->ops->state_names[k];
    return k == n && opt->flags & LC_OPT_MASTER_WEIGHTS ? LC__MASTER_WEIGHT : NULL;
}

int64_t lc__optimizer_bytes(const lc_optimizer *opt)
{
    int64_t bytes = 0;
    for (int k = 0; k < LC_MAX_OPTIM_STATE; k++) bytes += opt->state[k] ? (int64_t)opt->state[k]->bytes : 0;
    for (int i = 0; i < opt->n_ranges; i++) bytes += opt->ranges[i].master ? (int64_t)opt->ranges[i].master->bytes : 0;
    return bytes;
}

static lc_status state_of(const lc_optimizer *opt, int k, const lc_tensor *p, lc_tensor **out)
{
    const lc__state_range *r = lc__optimizer_range(opt, p->flat);
    if (!r) return lc_fail(LC_ERR_INTERNAL, "%s has no state for a parameter", opt->ops->name);
    bool is_master = k == n_states(opt);
    lc_tensor *state = is_master ? r->master : opt->state[k], *part;
    *out = NULL;
    if (!state) return LC_OK;
    if (is_master || opt->n_ranges == 1) return lc__flat_state_tensor(state, p, out);
    lc_type type = {.dtype = state->type.dtype, .ndim = 1, .shape = {r->count}};
    LC_TRY(lc__tensor_range(state, (size_t)r->begin * lc_dtype_size(type.dtype), &type, LC_ROW_MAJOR, &part));
    lc_status status = lc__flat_state_tensor(part, p, out);
    lc_tensor_unref(part); /* *out keeps the memory */
    return status;
}

lc_status lc__optimizer_state_tensor(const lc_optimizer *opt, int k, int64_t index, const lc_tensor *p, lc_tensor **out)
{
    bool scalar = k < n_states(opt) && opt->ops->scalar_state >> k & 1;
    if (!scalar) return state_of(opt, k, p, out);
    lc_type number = {.dtype = opt->state[k]->type.dtype};
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

void lc__optimizer_drop_ranges(lc_optimizer *opt, int n)
{
    while (opt->n_ranges > n) lc_tensor_unref(opt->ranges[--opt->n_ranges].master);
}

lc_status lc__optimizer_add_ranges(lc_optimizer *opt, const lc_param_group *group, int64_t *count)
{
    for (int i = 0; i < group->n_parameters; i++) {
        lc_flat *flat;
        LC_TRY(lc__flat_of(group->parameters[i], &flat));
        if (lc__optimizer_range(opt, flat)) continue;
        lc_dtype dtype = flat->parameter->type.dtype;
        lc_dtype first = opt->n_ranges ? opt->ranges[0].flat->parameter->type.dtype : dtype;
        if (lc__wide_dtype(dtype) != lc__wide_dtype(first))
            return lc_fail(LC_ERR_CONFIG, "%s: its parameters are %s and %s; use a separate optimizer for each",
                           opt->ops->name, lc_dtype_name(first), lc_dtype_name(dtype));
        LC_TRY(lc__grow_one(&opt->ranges, opt->n_ranges, "the state of an optimizer"));
        lc__state_range *r = &opt->ranges[opt->n_ranges++];
        *r = (lc__state_range){.flat = flat, .count = flat->sharding ? flat->sharding->count : flat->count};
        if (r != opt->ranges) r->begin = r[-1].begin + r[-1].count;
        if (opt->flags & LC_OPT_MASTER_WEIGHTS && dtype != lc__wide_dtype(dtype))
            LC_TRY(lc_tensor_new(lc__wide_dtype(dtype), 1, &r->count, &r->master)); /* zeros: they start later */
    }
    const lc__state_range *last = opt->n_ranges ? &opt->ranges[opt->n_ranges - 1] : NULL;
    *count = last ? last->begin + last->count : 0;
    return LC_OK;
}

lc_status lc__optimizer_sums_in_f32(const lc_optimizer *opt, bool yes)
{
    for (int g = 0; g < opt->n_groups; g++)
        for (int i = 0; i < opt->groups[g].n_parameters; i++) {
            lc_flat *flat;
            LC_TRY(lc__flat_of(opt->groups[g].parameters[i], &flat));
            LC_TRY(lc__flat_sums_in_f32(flat, yes));
        }
    return LC_OK;
}

lc_status lc__optimizer_prepare(lc_optimizer *opt)
{
    if (opt->steps) return LC_OK;
    if (opt->root) LC_TRY(lc__module_flatten(opt->root));
    int64_t n = 0, count = 0;
    lc__optimizer_drop_ranges(opt, 0);
    for (int g = 0; g < opt->n_groups; g++) {
        LC_TRY(lc__optimizer_add_ranges(opt, &opt->groups[g], &count));
        for (int i = 0; i < opt->groups[g].n_parameters; i++, n++)
            LC_TRY(lc__tensor_fill(opt->groups[g].parameters[i]));
    }
    if (!n) return lc_fail(LC_ERR_CONFIG, "%s: it has no parameters", opt->ops->name);
    lc_dtype dtype = lc__wide_dtype(opt->ranges[0].flat->parameter->type.dtype);
    for (int k = 0; opt->ops->state_names && opt->ops->state_names[k]; k++) {
        int64_t shape[] = {opt->ops->scalar_state >> k & 1 ? n : count};
        if (k >= LC_MAX_OPTIM_STATE) return lc_fail(LC_ERR_INTERNAL, "%s has too many state buffers", opt->ops->name);
        if (!opt->state[k]) LC_TRY(lc_tensor_new(dtype, 1, shape, &opt->state[k]));
    }
    int64_t first = 0;
    for (int g = 0; g < opt->n_groups; first += opt->groups[g++].n_parameters)
        LC_TRY(lc__optimizer_start_state(opt, &opt->groups[g], first));
    return lc_tensor_new(LC_F64, 1, &n, &opt->steps);
}

/* ---- for checkpoints ---- */

typedef struct state_visit {
    lc_optimizer *opt;
    lc_optimizer_state_fn *fn;
    void *ctx;
} state_visit;

static lc_status visit_parameter(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)owner;
    const state_visit *v = ctx;
    lc_optimizer *opt = v->opt;
    int64_t index = t->is_parameter ? lc__optimizer_index(opt, t->tensor) : -1;
    if (index < 0) return LC_OK;
    const lc__state_range *r = lc__optimizer_range(opt, t->tensor->flat);
    int64_t offset = r->begin + t->tensor->flat->offset[t->tensor->flat_index], count = lc_tensor_numel(t->tensor);
    LC_TRY(v->fn(v->ctx, "step", path, t->tensor, opt->steps, index, 1));
    int k = 0;
    for (; opt->ops->state_names && opt->ops->state_names[k]; k++) {
        bool scalar = opt->ops->scalar_state >> k & 1;
        LC_TRY(v->fn(v->ctx, opt->ops->state_names[k], path, t->tensor, opt->state[k], scalar ? index : offset,
                     scalar ? 1 : count));
    }
    if (!r->master) return LC_OK;
    return v->fn(v->ctx, lc__optimizer_state_name(opt, k), path, t->tensor, r->master, offset - r->begin, count);
}

lc_status lc_optimizer_visit_state(lc_optimizer *opt, lc_optimizer_state_fn *fn, void *ctx)
{
    LC__IS(opt, OPTIMIZER, LC_ERR_ARGUMENT);
    LC__NEEDS(fn, LC_ERR_ARGUMENT);
    if (!opt->root)
        return lc_fail(LC_ERR_STATE, "%s was made without a module, so its state has no names", opt->ops->name);
    LC_TRY(lc__optimizer_prepare(opt));
    return lc_module_visit(opt->root, visit_parameter, &(state_visit){opt, fn, ctx});
}
