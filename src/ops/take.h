/* SPDX-License-Identifier: Apache-2.0 */
/* How operators take their argument structs. */
#ifndef LC_OPS_TAKE_H
#define LC_OPS_TAKE_H

#include "base/args.h"
#include "record/graph_impl.h"

#include <lightc/ops_types.h>

/* LC__TAKE, with the error recorded in the step. */
#define LC__TAKE_OP(a, title, kind, given, site)                                                                       \
    kind##_args a = kind##_defaults();                                                                                 \
    do {                                                                                                               \
        lc_status take_status_ = lc__args_take(&a, sizeof(a), given, title, #kind);                                    \
        if (__builtin_expect(take_status_ < 0, 0)) {                                                                   \
            lc__refuse_call(take_status_, title, site);                                                                \
            return lc__error_tensor();                                                                                 \
        }                                                                                                              \
    } while (0)

/* The entry of `list` for spatial dimension i: a single number applies to all; an empty list gives `otherwise`. */
static inline int64_t lc__dims_at(const lc_dims *list, int i, int64_t otherwise)
{
    return list->n == 0 ? otherwise : list->dim[list->n == 1 ? 0 : i];
}

/* Fails unless `list` has no, one or n numbers. */
static inline lc_status lc__dims_check(const lc_dims *list, int n, const char *name)
{
    if (list->n == 0 || list->n == 1 || list->n == n) return LC_OK;
    return lc_fail(LC_ERR_ARGUMENT, "%s has %d numbers; give 1%s", name, list->n,
                   n == 1   ? ""
                   : n == 2 ? " or 2"
                            : " or 3");
}

#endif
