/* SPDX-License-Identifier: Apache-2.0 */
/* A transform of lightc knows whether a dataset or a list has taken it over, by a flag in front of its `self`: given to
 * two of them, it would be freed twice. The program's own transforms have no such flag. */
#include "base/args.h"
#include "base/handle.h"
#include "data_internal.h"

#include <stdlib.h>

/* 16 bytes, so that what follows is aligned as by malloc. */
typedef struct front {
    lc__mark mark;
    uint64_t owned; /* 0: by the program */
    char self[];
} front;

static front *front_of(const lc_transform *t)
{
    int n;
    if (!t->self || (LC__SLOT(t->ops, free) != lc__transform_delete && !lc__compose_parts(t, &n))) return NULL;
    return (front *)((char *)t->self - offsetof(front, self));
}

void *lc__transform_alloc(size_t size)
{
    front *f = size > SIZE_MAX - sizeof *f ? NULL : malloc(sizeof *f + size);
    if (!f) return NULL;
    f->mark = LC__MARK_OF(TRANSFORM);
    f->owned = 0;
    return f->self;
}

void lc__transform_delete(void *self)
{
    front *f = (front *)((char *)self - offsetof(front, self));
    lc__mark_clear(&f->mark);
    free(f);
}

lc_status lc__transform_own(const lc_transform *t)
{
    front *f = front_of(t);
    if (f && (!lc__has_mark(f, LC__MARK_OF(TRANSFORM)) || f->owned))
        return lc_fail(LC_ERR_ARGUMENT, "transform '%s' was taken over before, by a dataset or a list; make another",
                       t->ops->name);
    if (f) f->owned = 1;
    return LC_OK;
}

void lc__transform_disown(const lc_transform *t)
{
    front *f = front_of(t);
    if (f) f->owned = 0;
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
    const front *f = front_of(t);
    const bool free_it = !f || (lc__has_mark(f, LC__MARK_OF(TRANSFORM)) && !f->owned);
    if (LC__SLOT(t->ops, free) && free_it) t->ops->free(t->self);
    *t = (lc_transform){0};
}
