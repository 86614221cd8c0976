/* SPDX-License-Identifier: Apache-2.0 */
/* The operands of a call before and after it ran on the host, dense row-major. */
#ifndef LC_CHECK_VALUES_H
#define LC_CHECK_VALUES_H

#include "check/check.h"

enum { VALUES_MOST = 64 };

typedef struct values {
    int n;
    lc_view before[VALUES_MOST], after[VALUES_MOST]; /* after: of results, and of inputs that are written */
    lc_view twice;                                   /* result 0, added to itself (LC_KERNEL_ACCUMULATES) */
    lc_dtype low;                                    /* what operands of an f32 call are stored in (stored.c), or 0 */
} values;

/* Operand i of the inputs, then the results. */
const lc_view *values_operand(const lc_call *call, int i);
bool values_is_written(const lc_call *call, int i);
/* A copy, dense row-major, whose data the caller frees. */
lc_status values_copy(const lc_view *v, lc_view *out) LC_MUST_USE;
/* Keeps the values of `before`, or of `after`: then the call has run, and runs once more if its kernel can add. */
lc_status values_keep(lc_call *call, bool after, values *v) LC_MUST_USE;
void values_forget(values *v);

/* ---- calls.c ---- */
/* Runs the backend's kernels for calls like this, in all layouts. *any: there are some. */
lc_status check_layouts(check *c, const lc_call *like, const values *v, bool *any) LC_MUST_USE;
lc_status check_has_kernel(check *c, const lc_call *like, bool *yes) LC_MUST_USE;
uint64_t check_hash(const lc_call *call);

/* ---- stored.c ---- */
/* The call's forms in which f32 values are stored in 16 bits. The call has not run yet; v: its values before that. */
lc_status check_stored(check *c, lc_graph *g, lc_call *call, const values *v) LC_MUST_USE;

#endif
