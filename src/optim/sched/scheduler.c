/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as objects: making, stepping, state. The formulas of the classes are in the other files of this folder. */
#include "optim/sched/sched_internal.h"
#include "base/float_traps.h"
#include "base/handle.h"

#include "optim/optim_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

lc_status lc__scheduler_is_child(const lc_scheduler *s)
{
    return lc_fail(LC_ERR_ARGUMENT, "the schedule %s belongs to a %s; make another", s->ops->name,
                   s->parent->ops->name);
}

void lc_scheduler_free(lc_scheduler *s)
{
    if (!s) return;
    LC__IS_OR_NULL(s, SCHEDULER, );
    if (s->parent) {
        (void)lc__scheduler_is_child(s);
        return;
    }
    for (int i = 0; i < s->n_children; i++) {
        s->children[i]->parent = NULL;
        lc_scheduler_free(s->children[i]);
    }
    free(s->children);
    free(s->milestones);
    free(s->base_lrs);
    lc__mark_clear(&s->mark);
    free(s);
}

static int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static lc_status fill_arguments(lc_scheduler *s, const double *args)
{
    for (int i = 0; s->ops->args && s->ops->args[i]; i++) {
        s->args[i] = args[i];
        if (isnan(s->args[i])) return lc_fail(LC_ERR_ARGUMENT, "%s needs %s", s->ops->name, s->ops->args[i]);
    }
    return LC_OK;
}

/* Takes over groups that were added to the optimizer since the last step. */
static void take_groups(lc_scheduler *s)
{
    for (; s->n_groups < s->optimizer->n_groups; s->n_groups++)
        s->base_lrs[s->n_groups] = s->optimizer->groups[s->n_groups].initial_lr;
}

static bool is_among(lc_scheduler *const *list, int n, const lc_scheduler *s)
{
    for (int i = 0; i < n; i++)
        if (list[i] == s) return true;
    return false;
}

/* Allocates and fills s. It takes ownership of children only after everything else has succeeded. */
static lc_status build(lc_scheduler *s, const double *args, const lc__scheduler_parts *parts)
{
    LC_TRY(fill_arguments(s, args));
    s->base_lrs = malloc(LC_MAX_PARAM_GROUPS * sizeof(double));
    s->milestones = malloc(((size_t)parts->n_milestones + 1) * sizeof(int64_t));
    s->children = malloc(((size_t)parts->n_children + 1) * sizeof(lc_scheduler *));
    if (!s->base_lrs || !s->milestones || !s->children)
        return lc_fail(LC_ERR_MEMORY, "out of memory for %s", s->ops->name);
    take_groups(s);
    s->n_milestones = parts->n_milestones;
    for (int i = 0; i < parts->n_milestones; i++) s->milestones[i] = parts->milestones[i];
    qsort(s->milestones, (size_t)s->n_milestones, sizeof *s->milestones, compare_int64);
    s->lambda = parts->lambda;
    s->lambda_ctx = parts->lambda_ctx;
    for (int i = 0; i < parts->n_children; i++) {
        if (!parts->children[i])
            return lc_fail(LC_ERR_ARGUMENT, "%s: schedule %d could not be created", s->ops->name, i);
        if (!lc__has_mark(parts->children[i], LC__MARK_OF(SCHEDULER)))
            return lc__not_a(parts->children[i], LC__MARK_OF(SCHEDULER), s->ops->name);
        if (parts->children[i]->ops->needs_metric) {
            return lc_fail(LC_ERR_ARGUMENT, "%s cannot hold %s, which is stepped with a metric", s->ops->name,
                           parts->children[i]->ops->name);
        }
        if (parts->children[i]->optimizer != s->optimizer) {
            return lc_fail(LC_ERR_ARGUMENT, "%s: schedule %d belongs to another optimizer", s->ops->name, i);
        }
        if (parts->children[i]->parent) return lc__scheduler_is_child(parts->children[i]);
        if (is_among(parts->children, i, parts->children[i]))
            return lc_fail(LC_ERR_ARGUMENT, "%s: schedule %d is in the list twice; make another", s->ops->name, i);
        s->children[i] = parts->children[i];
    }
    s->n_children = parts->n_children;
    return LC_OK;
}

static lc_status scheduler_new(const lc_scheduler_ops *ops, lc_optimizer *opt, const double *args,
                               const lc__scheduler_parts *parts, lc_scheduler **out)
{
    *out = NULL;
    lc_scheduler *s = calloc(1, sizeof *s);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory for %s", ops->name);
    s->mark = LC__MARK_OF(SCHEDULER);
    s->ops = ops;
    s->optimizer = opt;
    lc_status status = build(s, args, parts);
    if (status >= 0 && ops->check) status = ops->check(s);
    if (status >= 0) {
        s->initial = true;
        status = ops->apply(s);
        s->initial = false;
    }
    if (status < 0) {
        s->n_children = 0; /* they still belong to the caller */
        lc_scheduler_free(s);
        return status;
    }
    for (int i = 0; i < s->n_children; i++) s->children[i]->parent = s;
    lc__optimizer_set_scheduled(opt);
    *out = s;
    return LC_OK;
}

lc_scheduler *lc__scheduler_construct(const lc_scheduler_ops *ops, lc_optimizer *opt, const double *args,
                                      lc__scheduler_parts parts)
{
    lc_scheduler *s = NULL;
    bool known = lc__has_mark(opt, LC__MARK_OF(OPTIMIZER));
    bool lists = (!parts.n_children || parts.children) && (!parts.n_milestones || parts.milestones);
    lc_status status = !opt     ? lc_fail(LC_ERR_ARGUMENT, "%s needs an optimizer", ops->name)
                       : !known ? lc__not_a(opt, LC__MARK_OF(OPTIMIZER), ops->name)
                       : !lists ? lc_fail(LC_ERR_ARGUMENT, "%s: %s is NULL", ops->name,
                                          parts.children || !parts.n_children ? "milestones" : "schedulers")
                                : scheduler_new(ops, opt, args, &parts, &s);
    if (status >= 0) return s;
    if (!known) opt = NULL;
    for (int i = 0; parts.children && i < parts.n_children; i++) {
        lc_scheduler *child = parts.children[i];
        if (is_among(parts.children, i, child)) continue; /* it was freed */
        if (lc__has_mark(child, LC__MARK_OF(SCHEDULER)) && !child->parent) lc_scheduler_free(child);
    }
    if (opt && opt->root && opt->root->status == LC_OK) {
        char why[768];
        snprintf(why, sizeof why, "%s", lc_error_message());
        lc_module_fail(opt->root, status, "%s", why);
    }
    return NULL;
}

static const lc_scheduler_ops *find(const char *name)
{
    for (const lc_scheduler_ops *const *ops = lc__scheduler_table; *ops; ops++) {
        if (!strcmp((*ops)->name, name)) return *ops;
    }
    return NULL;
}

static lc_status name_unknown(const char *name)
{
    char known[384] = "";
    for (const lc_scheduler_ops *const *ops = lc__scheduler_table; *ops; ops++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", (*ops)->name);
    }
    return lc_fail(LC_ERR_NOT_FOUND, "unknown schedule \"%s\"; available: %s", name, known);
}

lc_status lc_scheduler_by_name(const char *name, lc_optimizer *opt, const lc_named_number *args, int n_args,
                               const int64_t *milestones, int n_milestones, lc_scheduler *const *children,
                               int n_children, lc_scheduler **out)
{
    LC__IS_OR_NULL(opt, OPTIMIZER, LC_ERR_ARGUMENT);
    LC_TRY(lc__list_check("args", n_args, args));
    LC_TRY(lc__list_check("milestones", n_milestones, milestones));
    LC_TRY(lc__list_check("children", n_children, children));
    LC__NEEDS(name, LC_ERR_ARGUMENT);
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    *out = NULL;
    const lc_scheduler_ops *ops = find(name);
    if (!ops) return name_unknown(name);
    if (!opt) return lc_fail(LC_ERR_ARGUMENT, "%s needs an optimizer", name);
    double values[LC_MAX_SCHED_ARGS];
    for (int i = 0; ops->args && ops->args[i]; i++) values[i] = ops->defaults[i];
    for (int i = 0; i < n_args; i++) {
        char known[256] = "";
        int k = 0;
        if (!args[i].name) return lc_fail(LC_ERR_ARGUMENT, "%s: an argument has no name", name);
        while (ops->args && ops->args[k] && strcmp(ops->args[k], args[i].name)) {
            size_t at = strlen(known);
            snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", ops->args[k]);
            k++;
        }
        if (!ops->args || !ops->args[k]) {
            return lc_fail(LC_ERR_ARGUMENT, "%s has no argument \"%s\"; it has %s", name, args[i].name, known);
        }
        values[k] = args[i].value;
    }
    lc__scheduler_parts parts = {
        .milestones = milestones, .n_milestones = n_milestones, .children = children, .n_children = n_children};
    return scheduler_new(ops, opt, values, &parts, out);
}

/* ---- stepping ---- */

lc_status lc_scheduler_step_metric(lc_scheduler *s, double metric)
{
    LC__WITHOUT_TRAPS();
    LC__IS(s, SCHEDULER, LC_ERR_ARGUMENT);
    LC_TRY(lc__optimizer_settle(s->optimizer));
    take_groups(s);
    if (s->ops->step) return s->ops->step(s, metric);
    s->last_epoch++;
    return s->ops->apply(s);
}

lc_status lc_scheduler_step(lc_scheduler *s)
{
    LC__WITHOUT_TRAPS();
    LC__IS(s, SCHEDULER, LC_ERR_ARGUMENT);
    if (s->ops->needs_metric) {
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s is stepped with the value of a metric: lc_scheduler_step_metric, or name "
                       "the metric it monitors",
                       s->ops->name);
    }
    return lc_scheduler_step_metric(s, NAN);
}

lc_status lc__scheduler_restart(lc_scheduler *s)
{
    s->last_epoch = 0;
    if (!s->ops->closed_form) return s->ops->apply(s);
    for (int g = 0; g < s->n_groups; g++) *lc__sched_lr(s, g) = s->ops->closed_form(s, g);
    return LC_OK;
}

bool lc_scheduler_needs_metric(const lc_scheduler *s)
{
    LC__IS(s, SCHEDULER, false);
    return s->ops->needs_metric;
}

const char *lc_scheduler_name(const lc_scheduler *s)
{
    LC__IS(s, SCHEDULER, "");
    return s->ops->name;
}

lc_status lc__sched_set_momentum(lc_scheduler *s, double value)
{
    const char *name = lc_optimizer_has(s->optimizer, "beta1") ? "beta1" : "momentum";
    if (!lc_optimizer_has(s->optimizer, name)) {
        return lc_fail(LC_ERR_ARGUMENT, "%s cycles the momentum, but %s has none; set .no_cycle_momentum = true",
                       s->ops->name, s->optimizer->ops->name);
    }
    for (int g = 0; g < s->n_groups; g++) LC_TRY(lc_optimizer_set(s->optimizer, g, name, value));
    return LC_OK;
}

/* ---- state ---- */

#define MOST_EPOCHS 1e15 /* no run counts higher */

static lc_status visit_children(lc_scheduler *s, const char *prefix, lc_scheduler_state_fn *fn, void *ctx);

static lc_status visit(lc_scheduler *s, const char *prefix, lc_scheduler_state_fn *fn, void *ctx)
{
    char name[160];
    double epoch = (double)s->last_epoch;
    take_groups(s);
    snprintf(name, sizeof name, "%slast_epoch", prefix);
    LC_TRY(fn(ctx, name, &epoch));
    if (!(epoch >= -1 && epoch <= MOST_EPOCHS && epoch == floor(epoch)))
        return lc_fail(LC_ERR_FORMAT, "%s: state \"%s\" is %g, but must be a whole number from -1 to %g", s->ops->name,
                       name, epoch, MOST_EPOCHS);
    s->last_epoch = (int64_t)epoch;
    for (int g = 0; g < s->n_groups; g++) {
        snprintf(name, sizeof name, "%sbase_lrs.%d", prefix, g);
        LC_TRY(fn(ctx, name, &s->base_lrs[g]));
    }
    for (int k = 0; s->ops->state && s->ops->state[k]; k++) {
        snprintf(name, sizeof name, "%s%s", prefix, s->ops->state[k]);
        LC_TRY(fn(ctx, name, &s->state[k]));
    }
    return visit_children(s, prefix, fn, ctx);
}

static lc_status visit_children(lc_scheduler *s, const char *prefix, lc_scheduler_state_fn *fn, void *ctx)
{
    char name[128];
    for (int i = 0; i < s->n_children; i++) {
        snprintf(name, sizeof name, "%s%d.", prefix, i);
        LC_TRY(visit(s->children[i], name, fn, ctx));
    }
    return LC_OK;
}

lc_status lc_scheduler_visit_state(lc_scheduler *s, lc_scheduler_state_fn *fn, void *ctx)
{
    LC__IS(s, SCHEDULER, LC_ERR_ARGUMENT);
    LC__NEEDS(fn, LC_ERR_ARGUMENT);
    return visit(s, "", fn, ctx);
}

/* ---- checks ---- */

lc_status lc__sched_at_least(const lc_scheduler *s, int arg, double low)
{
    if (s->args[arg] >= low && s->args[arg] < INFINITY) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: %s is %g, must be at least %g", s->ops->name, s->ops->args[arg], s->args[arg],
                   low);
}

lc_status lc__sched_whole(const lc_scheduler *s, int arg, double low)
{
    if (s->args[arg] >= low && s->args[arg] <= MOST_EPOCHS && s->args[arg] == floor(s->args[arg])) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s: %s is %g, must be a whole number of at least %g%s", s->ops->name,
                   s->ops->args[arg], s->args[arg], low, s->args[arg] > MOST_EPOCHS ? ", and at most 1e15" : "");
}
