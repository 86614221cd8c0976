/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights (optim/master.h) in checkpoints of runs that had none, or had parameters of another type. The exact
 * value of a parameter is its master weight, if it has one that is up to date, else the parameter itself. What a run
 * loads begins with the exact value in the checkpoint: parameters round it to their type, master weights to f32. */
#include "core/resume/run_state.h"
#include "optim/master.h"
#include "optim/state_buffers.h"
#include "safetensors/safetensors_impl.h"

#include <stdio.h>
#include <string.h>

bool lc__is_master_weight(const char *name)
{
    const char *last = strrchr(name, '.');
    return last && !strcmp(last + 1, LC__MASTER_WEIGHT);
}

/* The index of a parameter's master weight in a file of optimizer state; -1: it has none. */
static int64_t find_master(const lc_safetensors *states, const char *path)
{
    int64_t at = -1;
    for (int i = 0; i < LC_MAX_OPTIMIZERS && at < 0; i++) {
        char name[1024];
        int n = snprintf(name, sizeof name, "optimizers.%d.%s." LC__MASTER_WEIGHT, i, path);
        if (n > 0 && (size_t)n < sizeof name) at = lc_safetensors_find(states, name);
    }
    return at;
}

/* ---- parameters from master weights ---- */

static lc_status load_exact(lc_safetensors *model, lc_safetensors *states, int64_t at, const lc_named_tensor *to)
{
    const lc_type *type = &lc_safetensors_info(model, lc_safetensors_find(model, to->name))->type;
    lc_tensor *parameter = NULL, *master = NULL;
    lc_view p, w;
    lc_status status;
    LC_TRY_GOTO(status, done, lc_tensor_new(type->dtype, type->ndim, type->shape, &parameter));
    LC_TRY_GOTO(status, done, lc_tensor_new(LC_F32, type->ndim, type->shape, &master));
    LC_TRY_GOTO(status, done, lc_safetensors_load(model, to->name, parameter));
    LC_TRY_GOTO(status, done, lc_safetensors_load(states, lc_safetensors_info(states, at)->name, master));
    LC_TRY_GOTO(status, done, lc__tensor_map(parameter, LC__READ, &p));
    status = lc__tensor_map(master, LC__READ_WRITE, &w);
    if (status >= 0) {
        float *values = w.data;
        for (int64_t i = 0; i < lc_tensor_numel(master); i++) values[i] = lc__master_of(p.data, p.dtype, i, values);
        status = lc__tensor_write_as(to->tensor, &master->type, values);
        lc__tensor_unmap(master, LC__READ_WRITE);
    }
    lc__tensor_unmap(parameter, LC__READ);
done:
    lc_tensor_unref(master);
    lc_tensor_unref(parameter);
    return status;
}

lc_status lc__load_master_weights(const lc__tensor_list *model, lc_checkpoint *c)
{
    lc_safetensors *f = lc_checkpoint_tensors(c, LC_CKPT_MODEL), *states = lc_checkpoint_tensors(c, LC_CKPT_OPTIMIZER);
    for (int64_t i = 0; i < model->n && states; i++) {
        const lc_named_tensor *to = &model->v[i];
        int64_t master = find_master(states, to->name);
        lc_dtype saved = lc_safetensors_info(f, lc_safetensors_find(f, to->name))->type.dtype;
        if (master >= 0 && saved != to->tensor->type.dtype) LC_TRY(load_exact(f, states, master, to));
    }
    return LC_OK;
}

/* ---- master weights from parameters ---- */

lc_status lc__list_parameter_of(lc__tensor_list *l, const char *name, lc_tensor *master)
{
    char path[1024];
    const char *begin = strchr(name + strlen("optimizers."), '.') + 1, *end = strrchr(name, '.');
    snprintf(path, sizeof path, "%.*s", (int)(end - begin), begin);
    return lc__list_add(l, path, master);
}

lc_status lc__start_master_weights(const lc__tensor_list *masters, lc_checkpoint *c)
{
    lc_safetensors *f = lc_checkpoint_tensors(c, LC_CKPT_MODEL);
    if (!masters->n) return LC_OK;
    lc__safetensors_convert(f, true); /* from 16 bits, also in the same precision */
    return lc_safetensors_load_all(f, masters->n, masters->v, false);
}

/* ---- what a run does not keep ---- */

typedef struct loss {
    const lc_optimizers *optimizers;
    const lc_safetensors *states;
    bool found;
} loss;

static lc_status look_for_loss(void *ctx, const char *path, lc_module *owner, lc_module_tensor *mt)
{
    loss *l = ctx;
    (void)owner;
    if (!mt->is_parameter || !lc__is_half(mt->tensor->type.dtype) || find_master(l->states, path) < 0) return LC_OK;
    bool kept = false;
    for (int i = 0; i < l->optimizers->n && !kept; i++) {
        const lc__state_range *r = lc__optimizer_range(l->optimizers->optimizers[i].optimizer, mt->tensor->flat);
        kept = r && r->master;
    }
    l->found |= !kept;
    return LC_OK;
}

lc_status lc__loses_master_weights(lc_module *m, const lc_optimizers *all, lc_checkpoint *c, bool *loses)
{
    loss l = {all, lc_checkpoint_tensors(c, LC_CKPT_OPTIMIZER), false};
    if (l.states) LC_TRY(lc_module_visit(m, look_for_loss, &l));
    *loses = l.found;
    return LC_OK;
}
