/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by schedule.c (flat collectives) and two_levels.c. */
#ifndef LC_COMM_EXCHANGE_SCHEDULE_IMPL_H
#define LC_COMM_EXCHANGE_SCHEDULE_IMPL_H

#include "comm/call.h"
#include "comm/exchange/schedule.h"

/* Adds a range to a message. */
void lc__message_add(lc__schedule *s, lc__message *m, const void *at, int64_t bytes, const int64_t *ready,
                     int64_t from);
lc__combination *lc__combination_add(lc__schedule *s, int first, int step, int n, void *to);

/* Part i of n: equal parts in whole grains, the last ones smaller. Returns where it begins. */
int64_t lc__part(int64_t all, int n, int i, int64_t *bytes);

bool lc__is_on_two_levels(const lc__schedule *s, const lc_comm_call *call);
lc_status lc__two_levels_begin(lc__schedule *s, const lc_comm_call *call, int64_t bytes) LC_MUST_USE;

/* Calls of no elements may have no memory. */
static inline void *lc__at(const void *base, int64_t offset)
{
    return base ? (char *)(uintptr_t)base + offset : NULL;
}

#endif
