/* SPDX-License-Identifier: Apache-2.0 */
/* Running a plan on a device whose memory the host cannot reach. A replay writes the plan's block (record/graph_impl.h)
 * and enqueues the kernels; nothing waits. From its second run on each stretch of calls without one of the host's is
 * one program of the backend, if that has programs: the first run enqueues the kernels one by one, so that what they
 * make on first use is made. */
#include "engine/run/run.h"
#include "tensor/host_access.h"

#include <string.h>

/* The place on the host that the next copy of the block is made from. */
static lc_status next_slot(lc_plan *p, char **slot)
{
    lc_block *k = &p->block;
    k->turn = (k->turn + 1) % LC_SLOTS;
    if (k->marks[k->turn]) LC_TRY(lc__device_reach(p->on, k->marks[k->turn]));
    *slot = k->slots + (size_t)k->turn * k->bytes;
    return LC_OK;
}

/* Enqueues a copy to the block, from `offset` on. */
static lc_status send(const lc_plan *p, size_t offset, const void *from, size_t bytes)
{
    const lc_block *k = &p->block;
    const lc_backend_ops *ops = p->on->ops;
    if (!bytes) return LC_OK;
    return k->ahead ? ops->copy_ahead(p->on->context, (char *)k->ahead + offset, from, bytes)
                    : ops->copy(p->on->context, (char *)k->device + offset, from, bytes);
}

/* The pin of what is uploaded; NULL: its memory is not registered with the plan's device. */
static lc__pin *pin_of(const lc_graph *g, const lc_plan *p, const lc_upload *u)
{
    lc__pin *pin = g->values[u->value]->pin;
    return pin && pin->on == p->on ? pin : NULL;
}

/* All has been sent. A thread that writes into registered memory next waits for that. */
static lc_status sent_all(const lc_graph *g, const lc_plan *p)
{
    uint64_t mark = 0;
    const lc_block *k = &p->block;
    if (k->ahead) LC_TRY(p->on->ops->copy_arrived(p->on->context, k->device, k->ahead, k->bytes, &mark));
    for (int i = 0; i < k->n_uploads; i++) {
        lc__pin *pin = pin_of(g, p, &k->uploads[i]);
        if (!pin) continue;
        if (!mark) LC_TRY(p->on->ops->mark(p->on->context, &mark));
        pin->mark = mark;
    }
    return LC_OK;
}

/* Inputs in registered memory are copied from there, the rest of the block from the slot. */
static lc_status write_block(const lc_graph *g, lc_plan *p)
{
    char *slot;
    const lc_block *k = &p->block;
    LC_TRY(next_slot(p, &slot));
    memcpy(slot, &g->rng, sizeof g->rng);
    size_t end = k->n_uploads ? k->uploads[0].offset : k->bytes, sent = 0;
    memcpy(slot + k->floats, p->floats, end - k->floats);
    for (int i = 0; i < k->n_uploads; i++) {
        const lc_upload *u = &k->uploads[i];
        const void *data = g->values[u->value]->device_data;
        LC_TRY(lc__input_check(g->values[u->value]));
        if (!pin_of(g, p, u)) {
            memcpy(slot + u->offset, data, u->bytes);
            continue;
        }
        LC_TRY(send(p, sent, slot + sent, u->offset - sent));
        LC_TRY(send(p, u->offset, data, u->bytes));
        sent = i + 1 < k->n_uploads ? k->uploads[i + 1].offset : k->bytes;
    }
    LC_TRY(send(p, sent, slot + sent, k->bytes - sent));
    return sent_all(g, p);
}

/* A bad index is found when its kernel has run, perhaps steps after it was enqueued. */
lc_status lc__device_fault(lc_graph *g)
{
    if (!lc__fault_is_set(&g->fault)) return LC_OK;
    /* What is in the queue updates no parameter as long as the record is there. */
    LC_TRY(g->on->ops->wait(g->on->context, UINT64_MAX));
    const lc_plan_call *pc = (const lc_plan_call *)(const void *)g->fault.call; /* its first member */
    return lc__fault_take(&g->fault, pc->site);
}

lc_status lc__device_arrived(lc_graph *g)
{
    if (lc__on_host(g->on)) return LC_OK;
    LC_TRY(lc__device_wait(g->on));
    return lc__device_fault(g);
}

static lc_status communicate(lc_graph *g)
{
    LC_TRY(lc__begin_ready(g));
    return lc__communicate(g);
}

static lc_status run_on_host(lc_graph *g, const lc_plan *p, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        LC_TRY(lc__call_run(p->on, &p->calls[i].call));
        LC_TRY(communicate(g));
    }
    return LC_OK;
}

static lc_status enqueue(const lc_plan *p, const lc_stretch *s)
{
    for (int i = s->begin; i < s->end; i++) LC_TRY(lc__call_run(p->on, &p->calls[i].call));
    return LC_OK;
}

static lc_status make_program(const lc_plan *p, lc_stretch *s)
{
    const lc_backend_ops *ops = p->on->ops;
    LC_TRY(ops->program_begin(p->on->context));
    lc_status status = enqueue(p, s);
    lc_status ended = ops->program_end(p->on->context, &s->program);
    return status < 0 ? status : ended;
}

static lc_status run_stretch(const lc_plan *p, lc_stretch *s)
{
    const lc_backend_ops *ops = p->on->ops;
    if (!s->program && p->block.runs && ops->program_begin) LC_TRY(make_program(p, s));
    return s->program ? ops->program_run(p->on->context, s->program) : enqueue(p, s);
}

static lc_status run_all(lc_graph *g, lc_plan *p)
{
    const lc_block *k = &p->block;
    int at = 0;
    for (int i = 0; i < k->n_stretches; i++) {
        lc_stretch *s = &k->stretches[i];
        LC_TRY(run_on_host(g, p, at, s->begin));
        LC_TRY(run_stretch(p, s));
        LC_TRY(communicate(g));
        at = s->end;
    }
    return run_on_host(g, p, at, p->n_calls);
}

static lc_status replay(lc_graph *g, lc_plan *p)
{
    lc_block *k = &p->block;
    const lc_backend_ops *ops = p->on->ops;
    LC_TRY(lc__device_fault(g));
    LC_TRY(write_block(g, p));
    if (g->nan_check || g->profile || g->observe) return lc__execute_watched(g, p);
    LC_TRY(run_all(g, p));
    k->runs++;
    LC_TRY(ops->mark(p->on->context, &k->marks[k->turn]));
    return lc__device_fault(g);
}

lc_status lc__execute_on_device(lc_graph *g, lc_plan *p)
{
    lc_status status = replay(g, p);
    if (status >= 0) status = lc__begin_all(g);
    lc__forget_starts(g);
    return status;
}
