/* SPDX-License-Identifier: Apache-2.0 */
/* One step of a program's own loop, from lc_fabric_begin to lc_fabric_end: errors in between are kept. */
#include "core/loop/loop.h"
#include "core/hooks/precision_calls.h"
#include "core/fabric/fabric_internal.h"

#include "base/args.h"
#include "base/float_traps.h"
#include "comm/world/world.h"
#include "comm/agree.h"
#include "record/graph_impl.h"
#include "parallel/reduce/reducer.h"

/* Keeps an error until lc_fabric_end. */
static void note(lc_fabric *f, lc_status s)
{
    lc__first_error_note(&f->error, s);
}

/* Whether a step is open; otherwise notes an error. */
static bool recording(lc_fabric *f, const char *what, lc_site site)
{
    if (f->error.status < 0) return false;
    if (lc_current_graph() == f->graph) return true;
    note(f, lc_fail(LC_ERR_STATE, "%s: call lc_fabric_begin first%s", what, lc__at_site(site).text));
    return false;
}

/* Whether it is an optimizer, or NULL; otherwise notes an error. */
static bool may_be_optimizer(lc_fabric *f, const lc_optimizer *optimizer, const char *what)
{
    if (!optimizer || lc__has_mark(optimizer, LC__MARK_OF(OPTIMIZER))) return true;
    note(f, lc__not_a(optimizer, LC__MARK_OF(OPTIMIZER), what));
    return false;
}

lc_status lc_fabric_begin(lc_fabric *f)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (!f->m) return lc_fail(LC_ERR_STATE, "lc_fabric_begin: call lc_fabric_setup first");
    f->error.status = LC_OK;
    if (f->strategy->progress) f->strategy->progress(f->strategy_self, f->steps, LC__OWN_LOOP);
    LC_TRY(lc_step_begin(f->graph, (uint64_t)f->steps, 0));
    /* Between the backward pass and lc_fabric_end a program may read values, and step other optimizers. */
    f->graph->sync_keeps = f->optimizers.n > 1 ? LC__KEEPS_ALL : LC__KEEPS_NUMBERS;
    f->steps++;
    return LC_OK;
}

void lc_fabric_backward_at(lc_fabric *f, lc_tensor *loss, lc_site site)
{
    LC__IS(f, FABRIC, );
    if (loss && !lc__is_tensor(loss)) {
        note(f, lc__not_a_tensor(loss, __func__));
        return;
    }
    if (!recording(f, "lc_fabric_backward", site)) return;
    if (!loss) {
        note(f, lc_fail(LC_ERR_ARGUMENT, "lc_fabric_backward: the loss is missing%s", lc__at_site(site).text));
        return;
    }
    lc_keep_at(loss, site);
    lc_backward_at(lc__precision_scale_loss(&f->precision, f->precision_self, loss), site);
    uint8_t flags[LC_SYNC_FLAGS] = {0};
    bool sync = !f->no_sync || f->strategy->syncs_every_backward;
    f->unsummed = f->strategy->after_backward && !sync && lc_fabric_world_size(f) > 1;
    if (f->strategy->after_backward && sync) note(f, f->strategy->after_backward(f->strategy_self, flags));
}

void lc_fabric_zero_grad_at(lc_fabric *f, lc_site site)
{
    LC__IS(f, FABRIC, );
    if (!recording(f, "lc_fabric_zero_grad", site)) return;
    lc_zero_grad(f->graph);
    f->unsummed = false;
}

lc_tensor *lc_fabric_clip_gradients_at(lc_fabric *f, lc_optimizer *optimizer, const lc_clip_args *given)
{
    LC__WITHOUT_TRAPS();
    LC__TAKE(args, lc_clip, lc_clip_args, given, lc__error_tensor());
    LC__IS(f, FABRIC, lc__error_tensor());
    if (!may_be_optimizer(f, optimizer, __func__)) return lc__error_tensor();
    if (!recording(f, "lc_fabric_clip_gradients", args.site)) return NULL;
    if (!optimizer || !((args.clip_val >= 0) ^ (args.max_norm >= 0))) {
        note(f, lc_fail(LC_ERR_ARGUMENT,
                        "lc_fabric_clip_gradients needs an optimizer and one of .clip_val and .max_norm%s",
                        lc__at_site(args.site).text));
        return NULL;
    }
    if (args.max_norm >= 0) return lc_clip_grad_norm_at(optimizer, args.max_norm, args.site);
    lc_clip_grad_value_at(optimizer, args.clip_val, args.site);
    return NULL;
}

void lc_fabric_step_at(lc_fabric *f, lc_optimizer *optimizer, lc_site site)
{
    LC__IS(f, FABRIC, );
    if (!may_be_optimizer(f, optimizer, __func__)) return;
    if (!recording(f, "lc_fabric_step", site)) return;
    if (!optimizer) {
        note(f, lc_fail(LC_ERR_ARGUMENT, "lc_fabric_step: the optimizer is missing%s", lc__at_site(site).text));
        return;
    }
    if (f->unsummed) {
        note(f, lc_fail(LC_ERR_STATE,
                        "lc_fabric_step: the gradients of the last backward pass have not been reduced over ranks; "
                        "call lc_fabric_no_backward_sync(f, false) before the last one of a window%s",
                        lc__at_site(site).text));
        return;
    }
    bool skip;
    lc_status s = lc__precision_before_step(&f->precision, f->precision_self, optimizer, &skip);
    if (s >= 0 && f->precision.before_optimizer_step) s = lc__ranks_any(f->comm, &skip);
    note(f, s);
    if (skip)
        lc__leave_update_out(optimizer);
    else
        lc_optimizer_step_at(optimizer, site);
}

lc_status lc_fabric_end(lc_fabric *f)
{
    LC__IS(f, FABRIC, LC_ERR_ARGUMENT);
    if (lc_current_graph() == f->graph) {
        note(f, lc_step_status(f->graph));
        if (f->error.status >= 0) note(f, lc_step_run(f->graph));
        /* Finishes gradient sums that no update has waited for. */
        if (f->error.status >= 0) note(f, lc__peers_settle(f->graph));
        note(f, lc_step_end(f->graph));
    } else {
        note(f, lc_fail(LC_ERR_STATE, "lc_fabric_end: call lc_fabric_begin first"));
    }
    lc_status status = lc__first_error_status(&f->error);
    f->error.status = LC_OK;
    return status;
}

void lc_fabric_no_backward_sync(lc_fabric *f, bool on)
{
    LC__IS(f, FABRIC, );
    f->no_sync = on;
}
