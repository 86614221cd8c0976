/* SPDX-License-Identifier: Apache-2.0 */
/* Flat buffers: parameters, gradients and optimizer state of a module, each in one piece of memory.
 *
 * Parameters lie in reverse order of registration, which is about the order in which backward finishes their
 * gradients, so that buckets for communication are contiguous ranges that fill from the front. */
#include "tensor/initial.h"
#include "base/grow.h"
#include "parallel/shard/shard.h"

#include <lightc/module.h>
#include <lightc/optim.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN_BYTES 256

void lc__flat_unref(lc_flat *flat)
{
    if (!flat || __atomic_sub_fetch(&flat->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    (void)!lc__flat_forget_sharding(flat);
    for (int i = 0; i < flat->n; i++)
        if (flat->gradients && flat->gradients[i]) lc_tensor_unref(flat->gradients[i]);
    lc_tensor_unref(flat->parameter);
    lc_tensor_unref(flat->gradient);
    free(flat->parameters);
    free(flat->gradients);
    free(flat->offset);
    free(flat->has_gradient);
    free(flat->trained);
    free(flat);
}

/* The buffers for n parameters of one data type. `move`: parameters' storage moves into the buffer; otherwise there is
 * one parameter, which stays where it is. */
static lc_status flat_new(lc_tensor **parameters, int n, bool move, lc_flat **out)
{
    lc_status status = LC_OK;
    *out = NULL;
    lc_flat *flat = calloc(1, sizeof *flat);
    if (!flat) return lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
    flat->refs = 1;
    flat->n = n;
    flat->parameters = calloc((size_t)n, sizeof *flat->parameters);
    flat->gradients = calloc((size_t)n, sizeof *flat->gradients);
    flat->offset = calloc((size_t)n, sizeof *flat->offset);
    flat->has_gradient = calloc((size_t)n, 1);
    flat->trained = calloc((size_t)n, 1);
    if (!flat->parameters || !flat->gradients || !flat->offset || !flat->has_gradient || !flat->trained) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
        goto done;
    }
    lc_dtype dtype = parameters[0]->type.dtype;
    int64_t align = (int64_t)(ALIGN_BYTES / lc_dtype_size(dtype));
    for (int i = 0; i < n; i++) {
        flat->parameters[i] = parameters[n - 1 - i];
        flat->offset[i] = flat->count;
        int64_t count = lc__numel(&flat->parameters[i]->type);
        flat->count += move ? (count + align - 1) / align * align : count;
    }
    int64_t shape[] = {flat->count};
    LC_TRY_GOTO(status, done, lc__tensor_reserve(dtype, 1, shape, LC_ROW_MAJOR, &flat->gradient));
    if (move) {
        LC_TRY_GOTO(status, done, lc__tensor_reserve(dtype, 1, shape, LC_ROW_MAJOR, &flat->parameter));
    } else {
        lc_type type = {.dtype = dtype, .ndim = 1, .shape = {flat->count}};
        lc_tensor *p = parameters[0];
        /* Not through lc__tensor_range: a reference to the parameter would keep it alive for ever. */
        LC_TRY_GOTO(status, done, lc_input_new(dtype, 1, type.shape, LC_ROW_MAJOR, p->data, &flat->parameter));
        flat->parameter->kind = LC_TENSOR_PERSISTENT;
        flat->parameter->base = lc_tensor_ref(flat->gradient); /* owns nothing itself */
    }
    for (int i = 0; i < n; i++) {
        lc_tensor *p = flat->parameters[i];
        size_t offset = (size_t)flat->offset[i] * lc_dtype_size(dtype);
        LC_TRY_GOTO(status, done, lc__tensor_range(flat->gradient, offset, &p->type, p->layout, &flat->gradients[i]));
    }
    for (int i = 0; i < n; i++) {
        lc_tensor *p = flat->parameters[i];
        if (move) lc__tensor_move(p, flat->parameter, (size_t)flat->offset[i] * lc_dtype_size(dtype));
        if (p->flat) {
            p->flat->parameters[p->flat_index] = NULL;
            lc__flat_unref(p->flat);
        }
        p->flat = flat;
        p->flat_index = i;
        flat->trained[i] = p->requires_grad;
        flat->refs++;
    }
    *out = flat;
done:
    if (status < 0) flat->refs = 1;
    lc__flat_unref(flat); /* parameters hold it from now on */
    return status;
}

lc_status lc__flat_replica(const lc_flat *of, lc_flat **out)
{
    lc_status status = LC_OK;
    size_t n = (size_t)of->n, width = lc_dtype_size(of->gradient->type.dtype);
    lc_flat *flat = *out = calloc(1, sizeof *flat);
    if (!flat) return lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
    flat->refs = 1;
    flat->n = of->n;
    flat->count = of->count;
    flat->parameter = lc_tensor_ref(of->parameter);
    flat->parameters = calloc(n, sizeof *flat->parameters);
    flat->gradients = calloc(n, sizeof *flat->gradients);
    flat->offset = calloc(n, sizeof *flat->offset);
    flat->has_gradient = calloc(n, 1);
    flat->trained = calloc(n, 1);
    if (!flat->parameters || !flat->gradients || !flat->offset || !flat->has_gradient || !flat->trained) {
        status = lc_fail(LC_ERR_MEMORY, "out of memory for flat buffers");
        goto done;
    }
    memcpy(flat->offset, of->offset, n * sizeof *flat->offset);
    LC_TRY_GOTO(status, done, lc_tensor_new(of->gradient->type.dtype, 1, &of->count, &flat->gradient));
    for (int i = 0; i < of->n; i++) {
        const lc_tensor *g = of->gradients[i];
        LC_TRY_GOTO(
            status, done,
            lc__tensor_range(flat->gradient, (size_t)of->offset[i] * width, &g->type, g->layout, &flat->gradients[i]));
    }
done:
    if (status < 0) {
        lc__flat_unref(flat);
        *out = NULL;
    }
    return status;
}

lc_status lc__flat_of(lc_tensor *parameter, lc_flat **out)
{
    if (!parameter->flat) {
        lc_flat *flat;
        LC_TRY(flat_new(&parameter, 1, false, &flat));
    }
    *out = parameter->flat;
    return LC_OK;
}

typedef struct collect {
    lc_tensor **tensors;
    int n, cap;
    lc_dtype dtype;
} collect;

static lc_status collect_parameter(void *ctx, const char *path, lc_module *owner, lc_module_tensor *t)
{
    (void)path, (void)owner;
    collect *c = ctx;
    if (!t->is_parameter || t->tensor->kind != LC_TENSOR_PERSISTENT || t->tensor->type.dtype != c->dtype) return LC_OK;
    if (t->tensor->flat && t->tensor->flat->n > 1) return LC_OK;
    LC_TRY(lc__grow(&c->tensors, &c->cap, c->n, 1, "flat buffers"));
    c->tensors[c->n++] = t->tensor;
    return LC_OK;
}

lc_status lc__module_flatten(lc_module *root)
{
    static const lc_dtype dtypes[] = {LC_F32, LC_F64, LC_F16, LC_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        collect c = {.dtype = dtypes[i]};
        lc_flat *flat;
        lc_status status = lc_module_visit(root, collect_parameter, &c);
        bool single = c.n == 1 && c.tensors[0]->flat;
        if (status >= 0 && c.n && !single) status = flat_new(c.tensors, c.n, true, &flat);
        free(c.tensors);
        if (status < 0) return status;
    }
    return LC_OK;
}

static void fill(lc_tensor *t, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++) {
        if (t->type.dtype == LC_F64)
            ((double *)t->data)[i] = value;
        else
            ((float *)t->data)[i] = (float)value;
    }
}

lc_status lc__optimizer_state_tensor(const lc_optimizer *opt, int k, int64_t index, const lc_tensor *p, lc_tensor **out)
{
    lc_type number = {.dtype = p->type.dtype};
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
            int64_t begin, count;
            LC_TRY(lc__optimizer_state_tensor(opt, k, first + i, group->parameters[i], &part));
            lc__tensor_slice(part, &begin, &count);
            fill(part, count, start);
            lc_tensor_unref(part);
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
                               "%s: its parameters have different data types or belong to different "
                               "modules; use one optimizer for each",
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
        if (!opt->state[k]) LC_TRY(lc_tensor_new(flat->parameter->type.dtype, 1, shape, &opt->state[k]));
    }
    int64_t first = 0;
    for (int g = 0; g < opt->n_groups; first += opt->groups[g++].n_parameters)
        LC_TRY(lc__optimizer_start_state(opt, &opt->groups[g], first));
    return lc_tensor_new(LC_F64, 1, &n, &opt->steps);
}
