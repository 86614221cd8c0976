/* SPDX-License-Identifier: Apache-2.0 */
/* A row of either table, with its operands. */
#ifndef LC_CHECK_FORM_H
#define LC_CHECK_FORM_H

#include "check/check.h"
#include "check/shape.h"

#include "base/number.h"

enum { FORM_INPUTS = 6 };

typedef struct form {
    int n_in;
    shape in[FORM_INPUTS];
    char kind[FORM_INPUTS]; /* n normal, p positive, u in (0,1), m a mask, i an index below `below` */
    int64_t below[FORM_INPUTS];
    bool grad[FORM_INPUTS];
    const void *row;
    lc_tensor *(*build)(const void *row, lc_tensor *const *in);
} form;

/* Checks the calls of the row: as it is, and with sizes of 0, 1 and more where the operator takes them. */
lc_status check_form(check *c, const form *f) LC_MUST_USE;

#endif
