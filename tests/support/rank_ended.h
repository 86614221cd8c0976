/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher that reports how a rank ended, as soon as it is known to the coordinator. */
#ifndef LC_TESTS_RANK_ENDED_H
#define LC_TESTS_RANK_ENDED_H

#include "comm/control/control.h"
#include "comm/control/times.h"

/* Reports that the rank of `o` ended `how`. A coordinator that refuses the launcher, or is gone, hears nothing. */
static inline void report_rank_ended(const lc__control_args *o, const char *how)
{
    lc__control_args soon = *o;
    lc__watch *w;
    soon.times.start = LC__SECONDS(LC__OBITUARY_MS);
    if (lc__watch_open(&soon, "a launcher", 1, &w) < 0) return;
    lc__watch_report(w, o->rank, how);
    lc__watch_close(w);
}

#endif
