/* SPDX-License-Identifier: Apache-2.0 */
#include "core/logging/logging.h"
#include "core/hooks/profiling.h"
#include "core/hooks/hooks.h"
#include "core/split/device_parts.h"
#include "base/handle.h"

#include "core/split/chunks.h"
#include "core/ranks/ranks.h"
#include "data/batch_slice.h"
#include "parallel/devices/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    lc__batch_slice slice;
    const lc_batch *batch;
    lc_outputs outputs;
    lc_tensor *value;
} part;

struct lc__device_parts {
    lc__devices *devices;
    int most, n;
    part *part;
    int64_t samples;
    lc_batch whole;                                   /* the batch, made of tensors that every device can read */
    lc_tensor *arrived[LC_MAX_BATCH_TENSORS];         /* owned; of what a hook of transfer has computed */
    lc_tensor *value, *outputs[LC_MAX_OUTPUTS_NAMED]; /* owned; of all parts */
    bool has_value;
    /* ---- what lc__device_part_leave puts back ---- */
    int entered; /* -1: none */
    lc_graph *graph;
    const lc_batch *batch;
    lc_outputs saved;
};

/* ---- life ---- */

lc_status lc__device_parts_setup(lc_trainer *t)
{
    int n = t->strategy->devices ? t->strategy->devices(t->strategy_self) : 0;
    if (n < 1 || (n == 1 && (t->opt.deterministic || t->mo.manual_optimization))) return LC_OK;
    if (!t->device_parts) {
        lc__devices *d;
        LC_TRY(lc__devices_new(t->graph, n, t->strategy->copies_parameters, &d));
        struct lc__device_parts *p = calloc(1, sizeof *p);
        if (p) p->part = calloc((size_t)n, sizeof *p->part);
        if (!p || !p->part) {
            lc__devices_free(d);
            free(p);
            return lc_fail(LC_ERR_MEMORY, "out of memory: %d devices", n);
        }
        p->devices = d;
        p->most = n;
        p->entered = -1;
        t->device_parts = p;
    }
    return lc__devices_set_module(t->device_parts->devices, t->m);
}

lc_status lc__device_parts_forget_tree(lc_trainer *t)
{
    return t->device_parts ? lc__devices_set_tree(t->device_parts->devices, NULL) : LC_OK;
}

lc_status lc__device_parts_set_optimizers(lc_trainer *t)
{
    lc_optimizer *list[LC_MAX_OPTIMIZERS];
    if (!t->device_parts) return LC_OK;
    if (t->mo.manual_optimization)
        return lc_fail(LC_ERR_UNSUPPORTED,
                       "%s runs training_step once for each of %d devices, so it cannot step the optimizers itself, as "
                       "%s does (.manual_optimization); use --strategy ddp, which runs a process per device",
                       t->strategy->name, t->device_parts->most, t->mo.name);
    if (t->opt.sync_batchnorm && t->device_parts->most > 1)
        return lc_fail(
            LC_ERR_UNSUPPORTED,
            "sync_batchnorm: on the devices of %s batch norm normalizes each part separately; use --strategy ddp",
            t->strategy->name);
    for (int i = 0; i < t->optimizers.n; i++) list[i] = t->optimizers.optimizers[i].optimizer;
    LC_TRY(lc__devices_set_optimizers(t->device_parts->devices, list, t->optimizers.n));
    return lc__devices_set_tree(t->device_parts->devices, lc__tree_of(t));
}

void lc__device_parts_free(lc_trainer *t)
{
    struct lc__device_parts *p = t->device_parts;
    if (!p) return;
    lc__devices_free(p->devices);
    for (int i = 0; p->part && i < p->most; i++) lc__batch_slice_release(&p->part[i].slice);
    for (int i = 0; i < LC_MAX_BATCH_TENSORS; i++) lc_tensor_unref(p->arrived[i]);
    for (int i = 0; i < LC_MAX_OUTPUTS_NAMED; i++) lc_tensor_unref(p->outputs[i]);
    lc_tensor_unref(p->value);
    free(p->part);
    free(p);
    t->device_parts = NULL;
}

int lc__device_parts_most(const lc_trainer *t)
{
    return t->device_parts ? t->device_parts->most : 1;
}

/* A tensor of that type: the one that was made for the batch before, if it fits. */
static lc_status keep_tensor(lc_tensor **have, const lc_type *type)
{
    if (*have && lc__type_equal(&(*have)->type, type)) return LC_OK;
    lc_tensor_unref(*have);
    *have = NULL;
    return lc_tensor_new(type->dtype, type->ndim, type->shape, have);
}

/* ---- cutting ---- */

/* Devices share memory, but no results: what was computed in this step becomes memory. */
static lc_status take_tensor(struct lc__device_parts *p, const lc_batch *b, int i)
{
    lc_tensor *x = b->tensors[i];
    if (!x || lc_tensor_is_persistent(x)) return LC_OK;
    lc_view v;
    LC_TRY(keep_tensor(&p->arrived[i], &x->type));
    LC_TRY(lc__tensor_map(p->arrived[i], LC__WRITE, &v));
    lc_status status = lc_tensor_read(x, v.data, p->arrived[i]->bytes);
    lc__tensor_unmap(p->arrived[i], LC__WRITE);
    LC_TRY(status);
    p->whole.tensors[i] = p->arrived[i];
    if (b->x == x) p->whole.x = p->arrived[i];
    if (b->y == x) p->whole.y = p->arrived[i];
    return LC_OK;
}

static lc_status take_batch(struct lc__device_parts *p, const lc_batch *b)
{
    p->whole = *b;
    if (p->whole.size <= 0 && b->x && lc_tensor_ndim(b->x) > 0) p->whole.size = lc_tensor_dim(b->x, 0);
    for (int i = 0; i < b->n; i++) LC_TRY(take_tensor(p, b, i));
    p->samples = p->whole.size;
    if (p->samples > 0) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "a batch for %d devices must report how many samples it has (size)", p->most);
}

lc_status lc__device_parts_begin(lc_trainer *t, const lc_batch *batch, int *n)
{
    struct lc__device_parts *p = t->device_parts;
    LC_TRY(take_batch(p, batch));
    int64_t each = (p->samples + p->most - 1) / p->most;
    if (lc__cuts_chunks(t)) {
        p->whole.piece = lc__chunks_size(t, batch);
        each = lc__chunks_each(p->samples, p->whole.piece, p->most) * p->whole.piece;
    }
    bool by_share = batch->n_parts && !lc__cuts_chunks(t);
    int64_t units = by_share ? lc__batch_units(&p->whole, p->most) : 0;
    p->n = *n = by_share ? (int)(units && units < p->most ? units : p->most) : (int)((p->samples + each - 1) / each);
    lc__tell_uneven(t, &p->whole, p->n);
    p->has_value = false;
    t->cuts++;
    LC_TRY(lc__devices_begin(p->devices, p->n, lc__cuts_chunks(t)));
    for (int i = 0; i < p->n; i++) {
        int64_t begin = i * each, size = p->samples - begin < each ? p->samples - begin : each;
        if (by_share) lc__batch_share(p->samples, units, i, p->n, &begin, &size);
        p->part[i].value = NULL;
        p->part[i].outputs = t->outputs;
        lc__devices_enter(p->devices, i, (double)size / (double)p->samples);
        lc_status s = by_share ? lc__batch_cut_share(&p->part[i].slice, &p->whole, units, i, p->n, &p->part[i].batch)
                               : lc__batch_cut(&p->part[i].slice, &p->whole, begin, size, &p->part[i].batch);
        lc__devices_leave(p->devices);
        LC_TRY(s);
    }
    return LC_OK;
}

const lc_batch *lc__device_part_enter(lc_trainer *t, int i)
{
    struct lc__device_parts *p = t->device_parts;
    p->entered = i;
    p->graph = t->graph;
    p->batch = t->batch;
    p->saved = t->outputs;
    t->batch = p->part[i].batch;
    t->outputs = p->part[i].outputs;
    t->graph = lc__devices_enter(p->devices, i, (double)t->batch->size / (double)p->samples);
    t->part = i;
    return t->batch;
}

void lc__device_part_leave(lc_trainer *t)
{
    struct lc__device_parts *p = t->device_parts;
    if (!p || p->entered < 0) return;
    lc__devices_leave(p->devices);
    p->part[p->entered].outputs = t->outputs;
    t->outputs = p->saved;
    t->batch = p->batch;
    t->graph = p->graph;
    t->part = 0;
    p->entered = -1;
}

/* ---- values ---- */

void lc__device_part_set_value(lc_trainer *t, int i, lc_tensor *value)
{
    t->device_parts->part[i].value = value;
    t->device_parts->has_value |= value != NULL;
}

/* The type of the values of all parts together: floating-point numbers are averaged (each), the rest is stacked. */
static lc_status join_types(const struct lc__device_parts *p, lc_tensor *const *values, const char *what, lc_type *type,
                            bool *mean)
{
    int64_t rows = 0;
    const lc_type *first = NULL;
    for (int i = 0; i < p->n; i++) {
        if (!values[i]) continue;
        const lc_type *one = &values[i]->type;
        bool same = !first || (first->ndim == one->ndim && first->dtype == one->dtype);
        for (int k = 1; first && same && k < one->ndim; k++) same = first->shape[k] == one->shape[k];
        if (!same)
            return lc_fail(LC_ERR_SHAPE,
                           "%s: the outputs of the parts of the batch cannot be concatenated: the first dimension must "
                           "be the samples, and the others must be equal for all parts",
                           what);
        if (!first) first = one;
        rows += one->ndim ? one->shape[0] : 1;
    }
    if (!first) return lc_fail(LC_ERR_INTERNAL, "%s: no part of the batch returned it", what);
    *type = *first;
    *mean = lc_dtype_is_float(first->dtype) && lc__numel(first) == 1 && first->ndim == 0;
    if (*mean) return LC_OK;
    if (!type->ndim) type->ndim = 1;
    type->shape[0] = rows;
    return LC_OK;
}

static lc_status join_mean(const struct lc__device_parts *p, lc_tensor *const *values, lc_tensor *out)
{
    double sum = 0, samples = 0;
    for (int i = 0; i < p->n; i++) {
        double one, n = (double)p->part[i].batch->size;
        if (!values[i]) continue;
        LC_TRY(lc_item(values[i], &one));
        sum += one * n;
        samples += n;
    }
    sum /= samples;
    float single = (float)sum;
    if (out->type.dtype == LC_F64) return lc_tensor_write(out, &sum, sizeof sum);
    if (out->type.dtype == LC_F32) return lc_tensor_write(out, &single, sizeof single);
    return lc_fail(LC_ERR_UNSUPPORTED, "the mean over parts of a value of %s", lc_dtype_name(out->type.dtype));
}

/* values: by part; NULL where a part has none. */
static lc_status join(struct lc__device_parts *p, lc_tensor *const *values, const char *what, lc_tensor **out)
{
    lc_type type;
    lc_view v;
    lc_status status = LC_OK;
    bool mean = false;
    LC_TRY(join_types(p, values, what, &type, &mean));
    LC_TRY(keep_tensor(out, &type));
    if (mean) return join_mean(p, values, *out);
    LC_TRY(lc__tensor_map(*out, LC__WRITE, &v));
    char *at = v.data;
    for (int i = 0; i < p->n && status >= 0; i++) {
        if (!values[i]) continue;
        size_t bytes = (size_t)lc__numel(&values[i]->type) * lc_dtype_size(type.dtype);
        status = lc_tensor_read(values[i], at, bytes);
        at += bytes;
    }
    lc__tensor_unmap(*out, LC__WRITE);
    return status;
}

static lc_status join_value(struct lc__device_parts *p)
{
    lc_tensor *list[LC__MAX_DEVICES];
    if (!p->has_value) return LC_OK;
    for (int i = 0; i < p->n; i++) list[i] = p->part[i].value;
    return join(p, list, "the value of a step", &p->value);
}

static lc_status join_outputs(lc_trainer *t)
{
    struct lc__device_parts *p = t->device_parts;
    lc_tensor *list[LC__MAX_DEVICES];
    const lc_outputs *first = &p->part[0].outputs;
    for (int k = t->outputs.n; k < first->n; k++) {
        for (int i = 0; i < p->n; i++) {
            const lc_outputs *o = &p->part[i].outputs;
            if (o->n != first->n || strcmp(o->names[k], first->names[k]) != 0)
                return lc_fail(LC_ERR_STATE, "lc_output(\"%.60s\"): not every part of the batch returned it",
                               first->names[k]);
            list[i] = o->values[k];
        }
        LC_TRY(join(p, list, first->names[k], &p->outputs[k]));
        t->outputs.names[k] = first->names[k];
        t->outputs.values[k] = p->outputs[k];
    }
    t->outputs.n = first->n;
    return LC_OK;
}

lc_tensor *lc__device_parts_value(const lc_trainer *t)
{
    return t->device_parts->has_value ? t->device_parts->value : NULL;
}

/* ---- running ---- */

lc_status lc__device_parts_run(lc_trainer *t)
{
    LC_TRY(lc__devices_run(t->device_parts->devices));
    LC_TRY(join_value(t->device_parts));
    return join_outputs(t);
}

/* ---- the closure ---- */

static lc_status run_training_steps(lc_closure *c, int n)
{
    lc_trainer *t = c->t;
    const lc_batch *whole = c->batch;
    lc_status s = LC_OK;
    for (int i = 0; i < n && s >= 0; i++) {
        c->batch = lc__device_part_enter(t, i);
        s = lc__run_training_step(c);
        lc__device_part_set_value(t, i, c->loss);
        lc__device_part_leave(t);
    }
    c->batch = whole;
    c->loss = NULL;
    return s;
}

/* on_before_backward sees the loss of the whole batch, which is there when the parts have run so far. */
static lc_status before_backward(lc_trainer *t)
{
    if (!t->mo.on_before_backward && !t->hooks[LC_HOOK_ON_BEFORE_BACKWARD].n) return LC_OK;
    LC_TRY(lc__devices_flush(t->device_parts->devices));
    LC_TRY(join_value(t->device_parts));
    lc_tensor *loss = lc__device_parts_value(t);
    return loss ? lc__hook(t, LC_HOOK_ON_BEFORE_BACKWARD, &(lc__hook_args){.loss = loss}) : LC_OK;
}

static lc_status backward(lc_trainer *t, lc_tensor *loss)
{
    if (t->precision->scale_loss) loss = t->precision->scale_loss(t->precision_self, loss);
    return lc__hook(t, LC_HOOK_BACKWARD, &(lc__hook_args){.loss = loss});
}

lc_status lc__device_parts_closure(lc_closure *c)
{
    lc_trainer *t = c->t;
    struct lc__device_parts *p = t->device_parts;
    int n;
    LC_TRY(lc__device_parts_begin(t, c->batch, &n));
    LC_TRY(run_training_steps(c, n));
    if (lc__window_place(t, c->batch_idx) == 0) LC_TRY(lc__closure_zero_grad(c));
    LC_TRY(before_backward(t));
    for (int i = 0; i < n; i++) {
        if (!p->part[i].value) continue;
        lc__device_part_enter(t, i);
        lc_status s = backward(t, p->part[i].value);
        lc__device_part_leave(t);
        LC_TRY(s);
    }
    int64_t start = LC__PROFILE_START(t);
    LC_TRY(lc__device_parts_run(t));
    LC__PROFILE_ACTION(t, "run_step", start);
    LC_TRY(lc__results_read(t, &t->logging->train_results)); /* another closure of this step begins its own parts */
    c->loss = lc__device_parts_value(t);
    if (!c->loss) return LC_OK;
    t->window_backwards++;
    return lc__hook(t, LC_HOOK_ON_AFTER_BACKWARD, NULL);
}

/* ---- memory ---- */

lc_status lc_trainer_device_memory(const lc_trainer *t, int device, lc_device_memory *out)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    int n = t->device_parts ? t->device_parts->most : 0;
    if (!n)
        return lc_fail(LC_ERR_STATE,
                       "lc_trainer_device_memory: no run with several devices per process has taken place");
    if (device < -1 || device >= n)
        return lc_fail(LC_ERR_ARGUMENT, "lc_trainer_device_memory: devices are 0 to %d, and -1 for the host", n - 1);
    lc__devices_memory(t->device_parts->devices, device, out);
    return LC_OK;
}

struct lc__devices *lc__device_parts_devices(const lc_trainer *t)
{
    return t->device_parts ? t->device_parts->devices : NULL;
}

static void say(lc_trainer *t, const char *who, const lc_device_memory *m)
{
    int64_t all = m->parameters + m->buffers + m->gradients + m->optimizer_state + m->activations + m->workspace;
    bool small = all < 1 << 20;
    double unit = small ? 1 << 10 : 1 << 20;
    lc_trainer_message(t, LC_INFO,
                       "%s uses %.2f %s: parameters and buffers %.2f, gradients %.2f, optimizer state %.2f, "
                       "intermediate results %.2f, workspace %.2f",
                       who, (double)all / unit, small ? "KiB" : "MiB", (double)(m->parameters + m->buffers) / unit,
                       (double)m->gradients / unit, (double)m->optimizer_state / unit, (double)m->activations / unit,
                       (double)m->workspace / unit);
}

void lc__device_parts_report(lc_trainer *t)
{
    lc_device_memory m;
    char who[40];
    if (!t->device_parts) return;
    for (int i = -1; i < t->device_parts->most; i++) {
        lc__devices_memory(t->device_parts->devices, i, &m);
        if (i < 0 && !t->strategy->copies_parameters) continue;
        snprintf(who, sizeof who, i < 0 ? "the host" : "device %d", i);
        say(t, who, &m);
    }
}
