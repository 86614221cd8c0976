/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms and samplers belong to the program until a dataset, a list or a loader takes them over (base/owned.h). */
#include "base/owned.h"
#include "base/args.h"
#include "data_internal.h"

lc_status lc__transform_own(const lc_transform *t)
{
    return lc__own(LC__SLOT(t->ops, free), t->self, "transform", t->ops->name);
}

void lc__transform_disown(const lc_transform *t)
{
    lc__disown(LC__SLOT(t->ops, free), t->self);
}

void lc__transform_free(lc_transform *t)
{
    if (!t->ops) return;
    lc__transform_disown(t);
    lc_transform_release(t);
}

void lc_transform_release(lc_transform *t)
{
    if (!t || !t->ops) return;
    lc__free_unless_owned(LC__SLOT(t->ops, free), t->self);
    *t = (lc_transform){0};
}

lc_status lc__sampler_own(const lc_sampler *s)
{
    return lc__own(LC__SLOT(s->ops, free), s->self, "sampler", s->ops->name ? s->ops->name : "");
}

void lc__sampler_free(lc_sampler *s)
{
    if (!s->ops) return;
    lc__disown(LC__SLOT(s->ops, free), s->self);
    lc_sampler_release(s);
}

void lc_sampler_release(lc_sampler *s)
{
    if (!s || !s->ops) return;
    lc__free_unless_owned(LC__SLOT(s->ops, free), s->self);
    *s = (lc_sampler){0};
}
