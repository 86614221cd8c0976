/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of an operand, as rows of operators have it (rows_math.h, form.h). */
#ifndef LC_CHECK_SHAPE_H
#define LC_CHECK_SHAPE_H

#include <lightc/lightc.h>

typedef struct shape {
    int n;
    int64_t d[LC_MAX_DIMS];
} shape;

#endif
