/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of loggers and profilers that do nothing, for tests of their vtables. */
#ifndef LC_TESTS_IDLE_OPS_H
#define LC_TESTS_IDLE_OPS_H

#include <lightc/lightc.h>
#include <stdio.h>

static inline lc_status no_run(void *self, const lc_run_info *run)
{
    (void)self, (void)run;
    return LC_OK;
}
static inline lc_status no_row(void *self, const lc_log_row *row)
{
    (void)self, (void)row;
    return LC_OK;
}
static inline void no_span(void *self, const lc_span *span)
{
    (void)self, (void)span;
}
static inline lc_status no_report(void *self, const char *stage, double seconds, FILE *out)
{
    (void)self, (void)stage, (void)seconds, (void)out;
    return LC_OK;
}

#endif
