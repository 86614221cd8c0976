/* SPDX-License-Identifier: Apache-2.0 */
#include "core/split/device_parts.h"

#include "base/number.h"
#include "core/logging/logging.h"
#include "core/hooks/profiling.h"
#include "core/hooks/hooks.h"
#include "base/handle.h"
#include "core/split/chunks.h"
#include "core/ranks/ranks.h"
#include "data/batch_slice.h"
#include "engine/run/run.h"
#include "parallel/devices/devices.h"

#include <stdio.h>
#include <stdlib.h>

struct lc__device_parts {
    lc__devices *devices;
    int most;
    lc__split split;
    lc_batch whole;                                   /* the batch, in tensors that every device can read */
    lc_tensor *arrived[LC_MAX_BATCH_TENSORS];         /* owned; copies of what a transfer hook has computed */
    lc_tensor *value, *outputs[LC_MAX_OUTPUTS_NAMED]; /* owned; those of all parts together */
    lc_graph *graph;                                  /* the host's graph, while a part runs */
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
        if (!p) {
            lc__devices_free(d);
            return lc_fail(LC_ERR_MEMORY, "out of memory: %d devices", n);
        }
        p->devices = d;
        p->most = n;
        t->device_parts = p;
    }
    lc_tensor *others[LC_PRECISION_TENSORS];
    int n_others = t->precision.tensors ? t->precision.tensors(t->precision_self, others) : 0;
    return lc__devices_set_module(t->device_parts->devices, t->m, others, n_others);
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
    lc__split_free(&p->split);
    for (int i = 0; i < LC_MAX_BATCH_TENSORS; i++) lc_tensor_unref(p->arrived[i]);
    for (int i = 0; i < LC_MAX_OUTPUTS_NAMED; i++) lc_tensor_unref(p->outputs[i]);
    lc_tensor_unref(p->value);
    free(p);
    t->device_parts = NULL;
}

int lc__device_parts_most(const lc_trainer *t)
{
    return t->device_parts ? t->device_parts->most : 1;
}

int lc__device_parts_running(const lc_trainer *t)
{
    return t->device_parts ? (int)t->device_parts->split.n : 1;
}

/* A tensor of that type, which the graphs of all devices can read: the previous batch's, if it fits. */
static lc_status keep_tensor(lc_tensor **have, const lc_type *type)
{
    if (*have && lc__type_equal(&(*have)->type, type)) return LC_OK;
    lc_tensor_unref(*have);
    *have = NULL;
    return lc__tensor_new_on(lc__host_device(), type->dtype, type->ndim, type->shape, LC_ROW_MAJOR, have);
}

void lc__device_parts_unscale(lc_trainer *t)
{
    struct lc__device_parts *p = t->device_parts;
    if (!p || t->graph == p->graph) return;
    lc_graph *g = t->graph;
    lc_graph_set_unscale(p->graph, g->unscale, g->after_update, g->after_update_ctx);
    lc_graph_set_unscale(g, NULL, NULL, NULL);
    g->scaled = true;
}

/* ---- cutting ---- */

/* Devices share memory but not results, so a tensor computed in this step is copied to memory. */
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
    if (p->whole.size > 0) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "a batch for %d devices must report how many samples it has (size)", p->most);
}

/* Cuts the batch into parts, each of whole chunks if the batch has any. */
static lc_status begin(lc_trainer *t, const lc_batch *batch)
{
    struct lc__device_parts *p = t->device_parts;
    bool chunks = lc__cuts_chunks(t);
    LC_TRY(take_batch(p, batch));
    int64_t samples = p->whole.size, size = (samples + p->most - 1) / p->most, n, units = 0;
    if (chunks) {
        p->whole.piece = lc__chunks_size(t, batch);
        size = lc__chunks_per_device(samples, p->whole.piece, p->most) * p->whole.piece;
    }
    n = (samples + size - 1) / size;
    if (batch->n_parts && !chunks) {
        size = 0;
        units = lc__batch_units(&p->whole, p->most);
        n = units && units < p->most ? units : p->most;
    }
    lc__warn_uneven(t, &p->whole, n);
    LC_TRY(lc__devices_begin(p->devices, (int)n, chunks));
    return lc__split_begin(t, &p->split, &p->whole, n, size, units);
}

static void leave(lc_trainer *t)
{
    struct lc__device_parts *p = t->device_parts;
    lc__devices_leave(p->devices);
    lc__split_leave(t, &p->split);
    t->graph = p->graph;
    t->part = 0;
}

/* Makes part i the running one, until leave(): t->graph is the graph of its device. */
static lc_status enter(lc_trainer *t, int64_t i)
{
    struct lc__device_parts *p = t->device_parts;
    double share = (double)p->split.piece[i].samples / (double)p->whole.size;
    p->graph = t->graph;
    t->graph = lc__devices_enter(p->devices, (int)i, share);
    t->part = (int)i;
    lc_status s = lc__split_enter(t, &p->split, i);
    if (s >= 0) return s;
    lc__devices_leave(p->devices);
    t->graph = p->graph;
    t->part = 0;
    return s;
}

lc_status lc__each_part(lc_trainer *t, const lc_batch *batch, lc__piece_fn *fn, void *ctx, lc_tensor **value)
{
    t->place.first = t->pieces + 1;
    if (!t->device_parts) return lc__each_chunk(t, batch, fn, ctx, value);
    lc__split *split = &t->device_parts->split;
    *value = NULL;
    LC_TRY(begin(t, batch));
    for (int64_t i = 0; i < split->n; i++) {
        LC_TRY(enter(t, i));
        lc_status s = lc__each_chunk(t, t->batch, fn, ctx, &split->piece[i].value);
        leave(t);
        LC_TRY(s);
    }
    return LC_OK;
}

/* ---- results of the parts ---- */

static lc_status mean(const lc__given *g, lc_tensor *out)
{
    double sum = 0, one;
    for (int i = 0; i < g->n; i++) {
        LC_TRY(lc_item(g->values[i], &one));
        sum += one * g->samples[i];
    }
    sum /= g->all;
    if (!lc_dtype_is_float(out->type.dtype))
        return lc_fail(LC_ERR_UNSUPPORTED, "the mean over parts of a value of %s", lc_dtype_name(out->type.dtype));
    char value[sizeof sum];
    lc__store_number(value, out->type.dtype, sum);
    return lc_tensor_write(out, value, lc_dtype_size(out->type.dtype));
}

/* An lc__join_fn that writes to memory the host's graph can read. */
static lc_status join_read(void *ctx, int output, const lc__given *g, lc_tensor **out)
{
    struct lc__device_parts *p = ctx;
    lc_tensor **kept = output < 0 ? &p->value : &p->outputs[output];
    LC_TRY(keep_tensor(kept, &g->type));
    *out = *kept;
    if (g->is_mean) return mean(g, *out);
    lc_view v;
    lc_status status = LC_OK;
    LC_TRY(lc__tensor_map(*out, LC__WRITE, &v));
    char *at = v.data;
    for (int i = 0; i < g->n && status >= 0; i++) {
        size_t bytes = (size_t)lc__numel(&g->values[i]->type) * lc_dtype_size(g->type.dtype);
        status = lc_tensor_read(g->values[i], at, bytes);
        at += bytes;
    }
    lc__tensor_unmap(*out, LC__WRITE);
    return status;
}

lc_status lc__device_parts_run(lc_trainer *t, lc_tensor **value)
{
    struct lc__device_parts *p = t->device_parts;
    if (!p) return LC_OK;
    LC_TRY(lc__devices_run(p->devices));
    LC_TRY(lc__split_value(t, &p->split, join_read, p, value));
    return lc__split_outputs(t, &p->split, join_read, p);
}

lc_status lc__device_parts_train(lc_closure *c)
{
    lc_trainer *t = c->t;
    if (!t->device_parts) return LC_OK;
    int64_t start = LC__PROFILE_START(t);
    LC_TRY(lc__device_parts_run(t, &c->loss));
    LC__PROFILE_ACTION(t, "run_step", start);
    return lc__results_read(t, &t->logging->train_results); /* another closure of this step would begin its own parts */
}

/* ---- the closure ---- */

lc_status lc__device_part_zero_grad(lc_closure *c)
{
    lc_trainer *t = c->t;
    const lc_batch *running = t->batch;
    const lc__place place = t->place;
    if (!t->device_parts) return lc__closure_zero_grad(c);
    int64_t i = t->device_parts->split.entered;
    leave(t);
    lc_status status = lc__closure_zero_grad(c);
    /* At once: device 0 adds to the host's gradients, as soon as a step reads a value. */
    if (status >= 0) status = lc__graph_flush(t->graph);
    lc_status again = enter(t, i);
    t->batch = running;
    t->place = place;
    return status < 0 ? status : again;
}

static lc_status call_step(void *ctx, const lc_batch *part, lc_tensor **loss)
{
    lc_closure *c = ctx;
    c->batch = part;
    LC_TRY(lc__run_training_step(c));
    *loss = c->loss;
    return LC_OK;
}

/* on_before_backward receives the loss of the whole batch, so the parts run up to here first. */
static lc_status before_backward(lc_trainer *t)
{
    struct lc__device_parts *p = t->device_parts;
    if (!t->mo.on_before_backward && !t->hooks[LC_HOOK_ON_BEFORE_BACKWARD].n) return LC_OK;
    LC_TRY(lc__devices_flush(p->devices));
    LC_TRY(lc__split_value(t, &p->split, join_read, p, &t->loss));
    if (!t->loss) return LC_OK;
    return lc__hook(t, LC_HOOK_ON_BEFORE_BACKWARD, &(lc__hook_args){.loss = lc__scaled_loss(t, t->loss)});
}

static lc_status backward(lc_trainer *t, lc_tensor *loss)
{
    return lc__hook(t, LC_HOOK_BACKWARD, &(lc__hook_args){.loss = lc__scaled_loss(t, loss)});
}

lc_status lc__device_parts_closure(lc_closure *c)
{
    lc_trainer *t = c->t;
    const lc__split *split = &t->device_parts->split;
    const lc_batch *batch = c->batch;
    LC_TRY(lc__each_part(t, batch, call_step, c, &c->loss));
    c->batch = batch;
    if (lc__window_place(t, c->batch_idx) == 0) LC_TRY(lc__closure_zero_grad(c));
    LC_TRY(before_backward(t));
    for (int64_t i = 0; i < split->n; i++) {
        if (!split->piece[i].value) continue;
        LC_TRY(enter(t, i));
        lc_status s = backward(t, split->piece[i].value);
        leave(t);
        LC_TRY(s);
    }
    LC_TRY(lc__device_parts_train(c));
    if (!c->loss) return LC_OK;
    t->window_backwards++;
    return lc__hook(t, LC_HOOK_ON_AFTER_BACKWARD, NULL);
}

/* ---- memory ---- */

lc_status lc_trainer_device_memory(const lc_trainer *t, int device, lc_device_memory *out)
{
    LC__IS(t, TRAINER, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
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
