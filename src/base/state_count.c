/* SPDX-License-Identifier: Apache-2.0 */
#include "base/state_count.h"

#include <inttypes.h>

lc_status lc__state_get_count(const lc_state *s, const char *key, int64_t least, int64_t *out)
{
    int64_t value;
    LC_TRY(lc_state_get_int(s, key, &value));
    if (value < least || value > LC__MOST_COUNT)
        return lc_fail(LC_ERR_FORMAT, "state \"%s\" is %" PRId64 ", and must be from %" PRId64 " to %" PRId64,
                       key ? key : "(an element)", value, least, LC__MOST_COUNT);
    *out = value;
    return LC_OK;
}
