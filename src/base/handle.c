/* SPDX-License-Identifier: Apache-2.0 */
/* Errors about arguments that are NULL or not an object of their type. */
#include "base/handle.h"

#include <string.h>

static const char *name_of(lc__mark mark)
{
    switch ((mark - UINT64_C(0xC0DE6C6967687463)) >> 48) {
#define LC__MARK_CASE(id, name)                                                                                        \
    case LC__NUMBER_##id:                                                                                              \
        return name;
        LC__MARK_LIST(LC__MARK_CASE)
#undef LC__MARK_CASE
    default:
        return "object";
    }
}

/* The length of the name that users know: lc_linear of lc_linear_at, lc_sgd of lc_sgd_with. */
static int name_length(const char *function)
{
    size_t n = strlen(function);
    if (n > 3 && !strcmp(function + n - 3, "_at")) return (int)n - 3;
    return n > 5 && !strcmp(function + n - 5, "_with") && !strstr(function, "_parse_with") ? (int)n - 5 : (int)n;
}

lc_status lc__not_a(const void *object, lc__mark mark, const char *function)
{
    const char *name = name_of(mark);
    if (!object) return lc_fail(LC_ERR_ARGUMENT, "%.*s: the %s is NULL", name_length(function), function, name);
    return lc_fail(LC_ERR_ARGUMENT,
                   "%.*s: this is not %s %s; it was never made, has been freed, or is an object of another type",
                   name_length(function), function, strchr("aeiou", *name) ? "an" : "a", name);
}

lc_status lc__is_null(const char *function, const char *pointer)
{
    return lc_fail(LC_ERR_ARGUMENT, "%.*s: %s must not be NULL", name_length(function), function, pointer);
}

lc_status lc__list_check(const char *name, int64_t n, const void *list)
{
    if (n < 0) return lc_fail(LC_ERR_ARGUMENT, "n_%s is %lld; it must not be negative", name, (long long)n);
    if (n && !list) return lc_fail(LC_ERR_ARGUMENT, "n_%s is %lld, but %s is NULL", name, (long long)n, name);
    return LC_OK;
}
