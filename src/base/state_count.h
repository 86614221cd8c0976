/* SPDX-License-Identifier: Apache-2.0 */
/* Counters read from a checkpoint, with a limit so that nothing computed from them overflows. */
#ifndef LC_BASE_STATE_COUNT_H
#define LC_BASE_STATE_COUNT_H

#include <lightc/state.h>

/* No run counts further; options that count have the same limit. */
#define LC__MOST_COUNT INT64_C(1000000000000000)

/* lc_state_get_int of a number from `least` to LC__MOST_COUNT. LC_ERR_FORMAT names the key and the number. */
lc_status lc__state_get_count(const lc_state *s, const char *key, int64_t least, int64_t *out) LC_MUST_USE;

#endif
