/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: replays a plan. Refreshes what varies (input memory, floats), then calls one kernel after another. */
#include "base/clock.h"
#include "engine/run/run.h"
#include "base/status.h"
#include "engine/plan/plan.h"
#include "tensor/host_access.h"

static double view_bytes(const lc_view *v)
{
    return lc__view_numel(v) * (double)lc_dtype_size(v->dtype);
}

static void report(const lc_graph *g, const lc_plan_call *pc, int64_t start, int64_t end)
{
    const lc_call *c = &pc->call;
    lc_span s = {.kind = LC_SPAN_OP,
                 .name = c->op->name,
                 .owner = c->kernel->name,
                 .start_ns = start,
                 .end_ns = end,
                 .site = pc->site,
                 .flop = lc__call_flop(c),
                 .ndim = c->n_out ? c->out[0].ndim : -1,
                 .shape = c->n_out ? c->out[0].shape : NULL};
    for (int i = 0; i < c->n_in; i++) s.bytes += view_bytes(&c->in[i]);
    for (int i = 0; i < c->n_out; i++) s.bytes += view_bytes(&c->out[i]);
    g->observe(g->observe_ctx, &s);
}

lc_status lc__communicate(const lc_graph *g)
{
    for (lc_peer *p = g->peers; p; p = p->next)
        if (p->ops->poll) LC_TRY(p->ops->poll(p));
    return LC_OK;
}

/* A device does one call at a time, too, so that the times and the faults are the call's. */
lc_status lc__execute_watched(lc_graph *g, lc_plan *p)
{
    bool host = lc__on_host(g->on);
    for (int i = 0; i < p->n_calls; i++) {
        lc_plan_call *pc = &p->calls[i];
        int64_t start = lc__now_ns();
        LC_TRY(lc__call_run(g->on, &pc->call));
        if (!host) LC_TRY(g->on->ops->wait(g->on->context, UINT64_MAX));
        int64_t end = lc__now_ns();
        double seconds = 1e-9 * (double)(end - start);
        /* The first run warms up caches. */
        if (pc->runs == 1 || seconds < pc->seconds || pc->seconds == 0) pc->seconds = seconds;
        pc->runs++;
        if (g->observe) report(g, pc, start, end);
        if (lc__fault_is_set(&g->fault)) return lc__fault_take(&g->fault, lc__site_of_step(g, p, pc->site));
        if (g->nan_check && !(pc->call.op->flags & LC_OP_LATER)) LC_TRY(lc__check_finite(g, p, pc));
        if (!host) LC_TRY(lc__begin_ready(g));
        LC_TRY(lc__communicate(g));
    }
    return LC_OK;
}

static lc_status execute(lc_graph *g, lc_plan *p)
{
    if (g->nan_check || g->profile || g->observe) return lc__execute_watched(g, p);
    bool peers = g->peers;
    for (lc_plan_call *pc = p->calls, *end = pc + p->n_calls; pc < end; pc++) {
        pc->call.kernel->run(&pc->call);
        if (__builtin_expect(lc__fault_is_set(&g->fault) | peers, 0)) {
            if (lc__fault_is_set(&g->fault)) return lc__fault_take(&g->fault, lc__site_of_step(g, p, pc->site));
            LC_TRY(lc__communicate(g));
        }
    }
    return LC_OK;
}

lc_status lc__execute(lc_graph *g, lc_plan *p)
{
    lc_status status = LC_OK;
    for (int i = 0; i < p->n_patches && status >= 0; i++) {
        const lc_patch *patch = &p->patches[i];
        const lc_tensor *input = g->values[patch->value];
        patch->view->data = input->device_data ? (char *)input->device_data + patch->offset : NULL;
        status = lc__input_check(input);
    }
    for (int i = 0; i < p->n_linked; i++) *p->linked[i].to = g->tape.floats[p->linked[i].from];
    for (int i = 0; i < p->n_live; i++) *p->live[i].to = *p->live[i].from;
    if (status >= 0 && !p->by_bucket) status = lc__peers_settle(g);
    if (status >= 0) status = lc__on_host(g->on) ? execute(g, p) : lc__execute_on_device(g, p);
    for (uint32_t i = 0; i < p->n_written; i++) __atomic_fetch_add(p->written[i], 1, __ATOMIC_RELAXED);
    if (!g->peers) return status;
    char why[1024];
    if (status < 0) lc__copy_message(why, sizeof why);
    for (lc_peer *peer = g->peers; peer; peer = peer->next)
        if (peer->ops->ended) peer->ops->ended(peer, p, status, status < 0 ? why : NULL);
    return status < 0 ? lc_fail(status, "%s", why) : LC_OK;
}
