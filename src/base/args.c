/* SPDX-License-Identifier: Apache-2.0 */
/* Argument structs of callers, which may have been compiled with other versions of them. */
#include "base/args.h"

#include <string.h>

/* Reads the size that a struct begins with; 0: the struct is NULL or has no size. */
static size_t size_of(const void *given)
{
    size_t size = given ? *(const size_t *)given : 0;
    return size >= sizeof(size_t) && size <= 65536 ? size : 0;
}

static lc_status newer(const char *what, size_t given, size_t known)
{
    return lc_fail(
        LC_ERR_ARGUMENT,
        "%s: this struct has %zu bytes, but only %zu in this library, lightc %s: the program was compiled with newer "
        "headers",
        what, given, known, lc_version());
}

lc_status lc__args_take_older(void *to, size_t size, const void *given, const char *function, const char *name)
{
    size_t has = size_of(given);
    if (!given) return lc_fail(LC_ERR_ARGUMENT, "%s: the arguments pointer is NULL", function);
    if (!has)
        return lc_fail(LC_ERR_ARGUMENT, "%s: the arguments have no size; start from %s_defaults()", function, name);
    if (has > size) return newer(function, has, size);
    memcpy(to, given, has);
    return LC_OK;
}

lc_status lc__reserved_check(void *const reserved[2], const char *what)
{
    if (!reserved[0] && !reserved[1]) return LC_OK;
    return lc_fail(
        LC_ERR_ARGUMENT,
        "%s has something in its reserved members, which this library, lightc %s, does not know: the program "
        "was compiled with the headers of a newer one, or the struct did not begin with zeros",
        what, lc_version());
}

lc_status lc__ops_check(size_t size, const void *given, size_t required, const char *what, const char *init)
{
    size_t has = size_of(given);
    if (has < required)
        return lc_fail(LC_ERR_ARGUMENT, "%s needs a struct that starts with %s; it is missing or has no size", what,
                       init);
    return has > size ? newer(what, has, size) : LC_OK;
}

lc_status lc__ops_take(void *to, size_t size, const void *given, size_t required, const char *what, const char *init)
{
    LC_TRY(lc__ops_check(size, given, required, what, init));
    memcpy(to, given, *(const size_t *)given);
    return LC_OK;
}
