/* SPDX-License-Identifier: Apache-2.0 */
/* Argument structs of callers, which may have been compiled with other versions of them. */
#include "base/args.h"

#include <string.h>

lc_status lc__args_take(void *to, size_t size, const void *given, const char *function, const char *name)
{
    if (!given) return lc_fail(LC_ERR_ARGUMENT, "%s: the arguments pointer is NULL", function);
    size_t given_size = *(const size_t *)given;
    if (given_size < sizeof(size_t) || given_size > 65536)
        return lc_fail(LC_ERR_ARGUMENT, "%s: the arguments have no size; start from %s_defaults()", function, name);
    if (given_size > size)
        return lc_fail(LC_ERR_ARGUMENT,
                       "%s: the arguments are %zu bytes and those of this library, lightc %s, %zu; the program was "
                       "compiled with the headers of a newer one",
                       function, given_size, lc_version(), size);
    memcpy(to, given, given_size);
    return LC_OK;
}
