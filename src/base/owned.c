/* SPDX-License-Identifier: Apache-2.0 */
#include "base/owned.h"

#include <stddef.h>
#include <stdlib.h>

typedef struct front {
    lc__mark mark;
    lc__free_fn *release;
    bool owned; /* false: by the program */
    _Alignas(max_align_t) char self[];
} front;

static front *front_of(lc__free_fn *free, const void *self)
{
    return free == lc__owned_free && self ? (front *)((char *)self - offsetof(front, self)) : NULL;
}

static bool is_made(const front *f)
{
    return lc__has_mark(f, LC__MARK_OF(OWNED));
}

void *lc__owned_new(size_t size, lc__free_fn *release)
{
    front *f = size > SIZE_MAX - sizeof *f ? NULL : calloc(1, sizeof *f + size);
    if (!f) return NULL;
    f->mark = LC__MARK_OF(OWNED);
    f->release = release;
    return f->self;
}

void lc__owned_free(void *self)
{
    front *f = front_of(lc__owned_free, self);
    if (!f) return;
    if (f->release) f->release(self);
    lc__mark_clear(&f->mark);
    free(f);
}

lc_status lc__own(lc__free_fn *free, void *self, const char *what, const char *name)
{
    front *f = front_of(free, self);
    if (f && (!is_made(f) || f->owned))
        return lc_fail(LC_ERR_ARGUMENT, "%s '%s' was taken over before, and belongs to what has it; make another", what,
                       name);
    if (f) f->owned = true;
    return LC_OK;
}

void lc__disown(lc__free_fn *free, void *self)
{
    front *f = front_of(free, self);
    if (f) f->owned = false;
}

void lc__free_unless_owned(lc__free_fn *free, void *self)
{
    const front *f = front_of(free, self);
    if (free && (!f || (is_made(f) && !f->owned))) free(self);
}
