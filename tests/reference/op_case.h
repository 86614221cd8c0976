/* SPDX-License-Identifier: Apache-2.0 */
/* A case of ops.json, and the operators that cases name. */
#ifndef REFERENCE_OP_CASE_H
#define REFERENCE_OP_CASE_H

#include "check.h"

enum { MAX_INPUTS = 12 };

/* A case while it runs: named operands, attributes, and (for batch norm) tensors to read as further results. */
typedef struct op_case {
    const char *name;
    const cJSON *attrs;
    int n;
    const char *names[MAX_INPUTS];
    lc_tensor *tensors[MAX_INPUTS];
    lc_tensor *more[2]; /* out1, out2 */
} op_case;

typedef lc_tensor *op_fn(op_case *c);

/* NULL if there is none of that name. */
op_fn *op_named(const char *name);

#endif
