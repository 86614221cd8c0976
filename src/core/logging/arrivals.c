/* SPDX-License-Identifier: Apache-2.0 */
#include "core/logging/arrivals.h"

#include "base/number.h"
#include "core/hooks/hooks.h"
#include "engine/run/run.h"

#include <stdlib.h>
#include <string.h>

/* A place is used again only when no entry of the queue can still name it. */
enum { MOST = 512, PLACES = 2 * MOST, PLACE = 8 };

typedef enum arrival_kind { ADD, CALL, PUBLISH } arrival_kind;

typedef struct arrival {
    arrival_kind kind;
    bool here; /* `value` is known */
    lc_dtype dtype;
    int place;
    uint64_t mark; /* of the device, after the copy; 0: none yet */
    double value;
    lc_tensor *tensor;  /* until it is marked: to copy a value once that is logged twice */
    lc__note note;      /* ADD; PUBLISH: its results */
    lc__arrived_fn *fn; /* CALL */
    void *ctx;
    lc__moment at;
} arrival;

struct lc__arrivals {
    lc_graph *graph;
    char *memory; /* [PLACES][PLACE], of host_alloc */
    arrival queue[MOST];
    /* Entries are numbered: first of the queue, the next one, the first without a mark, after the last publication. */
    uint64_t first, next, unmarked, published;
    uint64_t reached; /* the largest mark that the device is known to have got to */
    int64_t faults;   /* of the graph, so far */
};

lc_status lc__arrivals_begin(lc_trainer *t)
{
    const lc_device *on = t->graph->on;
    if (lc__on_host(on)) return LC_OK;
    struct lc__arrivals *q = calloc(1, sizeof *q);
    if (!q) return lc_fail(LC_ERR_MEMORY, "out of memory: logged values");
    void *memory;
    lc_status s = on->ops->host_alloc(on->context, (size_t)PLACES * PLACE, &memory);
    if (s < 0) {
        free(q);
        return s;
    }
    q->graph = t->graph;
    q->faults = t->graph->fault.taken;
    q->memory = memory;
    t->logging->arrivals = q;
    return LC_OK;
}

void lc__arrivals_end(lc_trainer *t)
{
    struct lc__arrivals *q = t->logging->arrivals;
    if (!q) return;
    const lc_device *on = q->graph->on;
    on->ops->host_free(on->context, q->memory, (size_t)PLACES * PLACE);
    free(q);
    t->logging->arrivals = NULL;
}

static arrival *entry(struct lc__arrivals *q, uint64_t number)
{
    return &q->queue[number % MOST];
}

/* ---- taking values out ---- */

/* Values that were enqueued since the last mark get one. */
static lc_status mark(struct lc__arrivals *q)
{
    const lc_device *on = q->graph->on;
    uint64_t m = 0;
    for (; q->unmarked < q->next; q->unmarked++) {
        arrival *a = entry(q, q->unmarked);
        if (a->here) continue;
        if (!m) LC_TRY(on->ops->mark(on->context, &m));
        a->mark = m;
        a->tensor = NULL;
    }
    return LC_OK;
}

/* Whether the value is on the host. A value of a step with a bad index is none. */
static lc_status look(struct lc__arrivals *q, arrival *a, bool wait, bool *here)
{
    const lc_device *on = q->graph->on;
    *here = a->here;
    if (a->here) return LC_OK;
    if (!a->mark) LC_TRY(mark(q));
    *here = a->mark <= q->reached;
    if (!*here && wait)
        LC_TRY(on->ops->wait(on->context, a->mark));
    else if (!*here)
        LC_TRY(on->ops->reached(on->context, a->mark, here));
    *here |= wait;
    if (!*here) return LC_OK;
    LC_TRY(lc__device_fault(q->graph));
    if (a->mark > q->reached) q->reached = a->mark;
    a->value = lc__load_number(q->memory + (size_t)a->place * PLACE, a->dtype);
    return LC_OK;
}

static void act(lc_trainer *t, const arrival *a)
{
    switch (a->kind) {
    case ADD:
        lc__results_add_value(&a->note, a->value);
        break;
    case CALL:
        a->fn(a->ctx, a->value, a->at);
        break;
    case PUBLISH:
        lc__results_publish_now(t, a->note.r);
        break;
    }
}

static void forget(struct lc__arrivals *q)
{
    q->first = q->unmarked = q->next;
    q->faults = q->graph->fault.taken;
}

/* Takes out entries before number `end`. What an entry does may call this again. */
static lc_status advance(lc_trainer *t, uint64_t end, bool wait)
{
    struct lc__arrivals *q = t->logging->arrivals;
    if (q->faults != q->graph->fault.taken) forget(q); /* some of the values are none */
    while (q->first < end) {
        bool here;
        arrival *a = entry(q, q->first);
        lc_status s = look(q, a, wait, &here);
        if (s < 0) forget(q);
        LC_TRY(s);
        if (!here) return LC_OK;
        arrival taken = *a;
        q->first++;
        if (q->unmarked < q->first) q->unmarked = q->first;
        act(t, &taken);
    }
    return LC_OK;
}

/* The error may be that of an earlier batch. */
static lc_status noticed(const lc_trainer *t, lc_status s)
{
    if (s >= 0) return LC_OK;
    return lc_fail_context(s, "noticed in epoch %lld, batch %lld", (long long)t->current_epoch,
                           (long long)t->batch_idx);
}

lc_status lc__arrivals_settle(lc_trainer *t)
{
    struct lc__arrivals *q = t->logging->arrivals;
    return q ? noticed(t, advance(t, q->next, true)) : LC_OK;
}

lc_status lc__arrivals_settle_to(lc_trainer *t, uint64_t number)
{
    return noticed(t, advance(t, number, true));
}

uint64_t lc__arrivals_number(const lc_trainer *t)
{
    return t->logging->arrivals->next;
}

void lc__arrivals_settle_in_hook(lc_trainer *t)
{
    struct lc__arrivals *q = t->logging->arrivals;
    lc_status s = q ? advance(t, q->published, true) : LC_OK;
    if (s < 0) lc__defer_error(t, s);
}

/* ---- putting values in ---- */

static lc_status make_room(lc_trainer *t)
{
    const struct lc__arrivals *q = t->logging->arrivals;
    return q->next - q->first < MOST ? LC_OK : noticed(t, advance(t, q->first + 1, true));
}

/* The entry of a value of the running step that is copied already, or NULL. */
static const arrival *copied(struct lc__arrivals *q, const lc_tensor *tensor)
{
    for (uint64_t i = q->unmarked; i < q->next; i++)
        if (entry(q, i)->tensor == tensor) return entry(q, i);
    return NULL;
}

/* Sends for the value of `a`. One that is elsewhere than on the run's device is read. */
static lc_status fetch(struct lc__arrivals *q, arrival *a, lc_tensor *tensor)
{
    const arrival *same = copied(q, tensor);
    a->place = same ? same->place : (int)(q->next % PLACES);
    char *at = q->memory + (size_t)a->place * PLACE;
    if (same) {
        a->dtype = same->dtype;
    } else {
        memset(at, 0xff, PLACE); /* NaN, not the value before, if it is read too early */
        LC_TRY(lc__tensor_fetch(tensor, q->graph->on, at, &a->dtype));
    }
    a->here = !a->dtype;
    if (a->here) return lc_item(tensor, &a->value);
    a->tensor = tensor;
    return LC_OK;
}

static lc_status put(lc_trainer *t, arrival *a, lc_tensor *tensor)
{
    struct lc__arrivals *q = t->logging->arrivals;
    LC_TRY(make_room(t));
    if (tensor) LC_TRY(fetch(q, a, tensor));
    if (a->here && q->first == q->next) {
        act(t, a);
        return LC_OK;
    }
    *entry(q, q->next++) = *a;
    return LC_OK;
}

lc_status lc__arrivals_add(lc_trainer *t, const lc__note *note, lc_tensor *tensor)
{
    return put(t, &(arrival){.kind = ADD, .note = *note}, tensor);
}

lc_status lc__arrivals_add_number(lc_trainer *t, const lc__note *note, double value)
{
    return put(t, &(arrival){.kind = ADD, .here = true, .note = *note, .value = value}, NULL);
}

lc_status lc__arrivals_call(lc_trainer *t, lc_tensor *tensor, lc__arrived_fn *fn, void *ctx)
{
    const lc__moment at = {t->global_step, t->current_epoch, t->batch_idx};
    return put(t, &(arrival){.kind = CALL, .fn = fn, .ctx = ctx, .at = at}, tensor);
}

lc_status lc__arrivals_publish(lc_trainer *t, lc__results *r)
{
    struct lc__arrivals *q = t->logging->arrivals;
    LC_TRY(put(t, &(arrival){.kind = PUBLISH, .here = true, .note = {.r = r}}, NULL));
    q->published = q->next;
    return lc__arrivals_look(t);
}

lc_status lc__arrivals_look(lc_trainer *t)
{
    struct lc__arrivals *q = t->logging->arrivals;
    LC_TRY(mark(q));
    return noticed(t, advance(t, q->next, false));
}
