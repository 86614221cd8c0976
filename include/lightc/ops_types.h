/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the headers of operators. */
#ifndef LIGHTC_OPS_TYPES_H
#define LIGHTC_OPS_TYPES_H

#include <lightc/args.h>
#include <lightc/op.h>

/* How a loss over many elements becomes one number. */
typedef enum lc_reduction {
    LC_REDUCE_MEAN = 0,
    LC_REDUCE_SUM = 1,
    LC_REDUCE_NONE = 2,
    LC_REDUCE_BATCHMEAN = 3, /* lc_kl_div: the sum divided by the first dimension */
} lc_reduction;

/* A short list of numbers, LC_DIMS(2, 3): dimensions, sizes, strides of a convolution in each dimension. */
typedef struct lc_dims {
    int n;
    int64_t dim[LC_MAX_DIMS];
} lc_dims;
#define LC_DIMS(...) LC_LITERAL(lc_dims, LC_COUNT(__VA_ARGS__), {LC_MAP_(LC_INT_, , __VA_ARGS__)})

#endif
