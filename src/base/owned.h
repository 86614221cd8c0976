/* SPDX-License-Identifier: Apache-2.0 */
/* The `self` of lightc's own plug-ins (callbacks, loggers, profilers, precisions, samplers, transforms), which belong
 * to the program until something takes them over: a trainer, a loader, a dataset. In front of such a `self` is who
 * frees it, so that one that is given to a second owner is an error, and not freed twice. What a program allocates
 * itself has no such front.
 *
 * A plug-in gets its `self` from lc__owned_new, and the slot of its vtable that frees it is lc__owned_free. */
#ifndef LC_BASE_OWNED_H
#define LC_BASE_OWNED_H

#include "base/handle.h"

typedef void lc__free_fn(void *self);

/* `size` bytes of zeros; NULL: out of memory. `release` (NULL: none) frees what they point to, not the bytes. */
void *lc__owned_new(size_t size, lc__free_fn *release);
void lc__owned_free(void *self);

/* The owner of a plug-in (what: "callback", name: "EarlyStopping") takes it. LC_ERR_ARGUMENT: another has it or had it,
 * so it must not be freed. */
lc_status lc__own(lc__free_fn *free, void *self, const char *what, const char *name) LC_MUST_USE;
/* The owner leaves it to the program again. */
void lc__disown(lc__free_fn *free, void *self);
/* Frees what the program gives up (free may be NULL), unless something has taken it over. */
void lc__free_unless_owned(lc__free_fn *free, void *self);

/* The same for a list of callbacks, loggers or profilers that nothing can take over, since memory ran out. What is in
 * the list twice is freed once. */
#define LC__FREE_LIST_UNLESS_OWNED(list, n)                                                                            \
    for (int i_ = 0, k_; i_ < (n); i_++) {                                                                             \
        for (k_ = 0; k_ < i_ && (list)[k_].self != (list)[i_].self;) k_++;                                             \
        if (k_ == i_) lc__free_unless_owned(LC__SLOT((list)[i_].ops, free), (list)[i_].self);                          \
    }

#endif
