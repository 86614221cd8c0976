/* SPDX-License-Identifier: Apache-2.0 */
/* How functions take the argument structs of lightc/args.h. */
#ifndef LC_BASE_ARGS_H
#define LC_BASE_ARGS_H

#include "base/status.h"

#include <lightc/args.h>
#include <string.h>

/* Copies the caller's arguments over `to`, which holds the defaults: members that the caller's struct does not have yet
 * keep theirs. */
lc_status lc__args_take_older(void *to, size_t size, const void *given, const char *function,
                              const char *name) LC_MUST_USE;
static inline LC_MUST_USE lc_status lc__args_take(void *to, size_t size, const void *given, const char *function,
                                                  const char *name)
{
    if (!given || *(const size_t *)given != size) return lc__args_take_older(to, size, given, function, name);
    memcpy(to, given, size);
    return LC_OK;
}

/* Copies a vtable of the caller's over `to`, which is zeroed: slots that it does not have yet stay NULL. It must have
 * the first `required` bytes. `what` and `init`, the macro it begins with, are for messages. */
lc_status lc__ops_take(void *to, size_t size, const void *given, size_t required, const char *what,
                       const char *init) LC_MUST_USE;
/* The same without the copy, for vtables that are read in place, with LC__SLOT. */
lc_status lc__ops_check(size_t size, const void *given, size_t required, const char *what,
                        const char *init) LC_MUST_USE;
/* Structs without a size, which programs write as literals, grow into their reserved members: zeros, unless the program
 * was compiled with newer headers. */
lc_status lc__reserved_check(void *const reserved[2], const char *what) LC_MUST_USE;
/* A slot of a vtable that may be too short to have it. */
#define LC__SLOT(ops, slot)                                                                                            \
    ((ops)->size > offsetof(__typeof__(*(ops)), slot) ? (ops)->slot : (__typeof__((ops)->slot))0)

/* At the start of a function: declares TYPE a with the caller's arguments; if they are NULL or did not begin with
 * NAME_defaults(), reports it and returns the last argument, which may be empty. */
#define LC__TAKE(a, name, type, given, ...)                                                                            \
    type a = name##_defaults();                                                                                        \
    do {                                                                                                               \
        if (lc__args_take(&a, sizeof(a), given, __func__, #name) < 0) return __VA_ARGS__;                              \
    } while (0)

/* The same in a function that returns a status, if NULL means the defaults. */
#define LC__TAKE_IF_GIVEN(a, name, type, given)                                                                        \
    type a = name##_defaults();                                                                                        \
    if (given) LC_TRY(lc__args_take(&a, sizeof(a), given, __func__, #name))

/* LC_CALL_AT for another call site. */
#define LC__CALL_AT(function, kind, before, site, ...)                                                                 \
    LC_CALL_(LC_UNIQUE_, kind##_args, kind##_defaults(), function##_at, before, (, site), __VA_ARGS__, )

#endif
