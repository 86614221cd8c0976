/* SPDX-License-Identifier: Apache-2.0 */
/* What the headers of operators share. */
#ifndef LIGHTC_OPS_TYPES_H
#define LIGHTC_OPS_TYPES_H

#include <lightc/op.h>

/* How a loss over many elements becomes one number. */
typedef enum lc_reduction {
    LC_REDUCE_MEAN = 0,
    LC_REDUCE_SUM = 1,
    LC_REDUCE_NONE = 2,
    LC_REDUCE_BATCHMEAN = 3, /* lc_kl_div: the sum divided by the first dimension */
} lc_reduction;

/* The same number for every dimension: lc_conv2d(x, w, b, .stride = LC_EACH(2), .padding = LC_EACH(1)). */
/* clang-format off */
#define LC_EACH(n) {(n), (n), (n)}
/* clang-format on */

#endif
