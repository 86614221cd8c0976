/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LC_CHECK_SHAPE_H
#define LC_CHECK_SHAPE_H

#include <lightc/lightc.h>

typedef struct shape {
    int n;
    int64_t d[LC_MAX_DIMS];
} shape;

#endif
