/* SPDX-License-Identifier: Apache-2.0 */
/* SequentialLR, ChainedScheduler: schedules made of schedules. */
#include "optim/sched/sched_internal.h"

/* ---- SequentialLR ---- */

/* The schedule for step s->last_epoch, as an index. */
static int active(const lc_scheduler *s)
{
    int i = 0;
    while (i < s->n_milestones && s->milestones[i] <= s->last_epoch) i++;
    return i;
}

/* All children were applied when they were made; only the effect of the one for step 0 is kept. */
static lc_status sequential_apply(lc_scheduler *s)
{
    for (int g = 0; g < s->n_groups; g++) *lc__sched_lr(s, g) = s->optimizer->groups[g].initial_lr;
    lc_scheduler *first = s->children[active(s)];
    if (first->n_children) return lc__scheduler_restart(first);
    first->last_epoch = 0;
    return first->ops->apply(first);
}

static lc_status sequential_step(lc_scheduler *s, double metric)
{
    (void)metric;
    s->last_epoch++;
    int i = active(s);
    if (i > 0 && s->milestones[i - 1] == s->last_epoch) return lc__scheduler_restart(s->children[i]);
    return lc_scheduler_step(s->children[i]);
}

static lc_status sequential_check(lc_scheduler *s)
{
    if (s->n_children < 1) return lc_fail(LC_ERR_ARGUMENT, "SequentialLR needs at least one schedule");
    if (s->n_milestones == s->n_children - 1) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "SequentialLR: %d schedules need %d milestones, but got %d", s->n_children,
                   s->n_children - 1, s->n_milestones);
}

const lc_scheduler_ops lc__sched_sequential = {
    LC_SCHEDULER_OPS_INIT,     .name = "SequentialLR",  .apply = sequential_apply,
    .check = sequential_check, .step = sequential_step,
};

lc_scheduler *lc_sequential_lr_with(const lc_sequential_lr_args *args)
{
    LC__TAKE(a, lc_sequential_lr, lc_sequential_lr_args, args, NULL);
    lc__scheduler_parts parts = {.milestones = a.milestones,
                                 .n_milestones = a.n_schedulers ? a.n_schedulers - 1 : 0,
                                 .children = a.schedulers,
                                 .n_children = a.n_schedulers};
    return lc__scheduler_construct(&lc__sched_sequential, a.optimizer, NULL, parts);
}

/* ---- ChainedScheduler ---- */

static lc_status chained_apply(lc_scheduler *s)
{
    if (s->initial) return LC_OK; /* the children were applied when they were made */
    /* Restarted as a part of a SequentialLR: each child applies its own start to the base rates. */
    for (int g = 0; g < s->n_groups; g++) *lc__sched_lr(s, g) = s->base_lrs[g];
    for (int i = 0; i < s->n_children; i++) {
        s->children[i]->last_epoch = 0;
        LC_TRY(s->children[i]->ops->apply(s->children[i]));
    }
    return LC_OK;
}

static lc_status chained_step(lc_scheduler *s, double metric)
{
    (void)metric;
    s->last_epoch++;
    for (int i = 0; i < s->n_children; i++) LC_TRY(lc_scheduler_step(s->children[i]));
    return LC_OK;
}

static lc_status chained_check(lc_scheduler *s)
{
    return s->n_children ? LC_OK : lc_fail(LC_ERR_ARGUMENT, "ChainedScheduler needs at least one schedule");
}

const lc_scheduler_ops lc__sched_chained = {
    LC_SCHEDULER_OPS_INIT,  .name = "ChainedScheduler", .apply = chained_apply,
    .check = chained_check, .step = chained_step,
};

lc_scheduler *lc_chained_scheduler_with(const lc_chained_scheduler_args *args)
{
    LC__TAKE(a, lc_chained_scheduler, lc_chained_scheduler_args, args, NULL);
    return lc__scheduler_construct(&lc__sched_chained, a.optimizer, NULL,
                                   (lc__scheduler_parts){.children = a.schedulers, .n_children = a.n_schedulers});
}
