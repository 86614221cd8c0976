/* SPDX-License-Identifier: Apache-2.0 */
/* The precisions, for src/builtin.c. */
#ifndef LC_PRECISION_PRECISIONS_H
#define LC_PRECISION_PRECISIONS_H

#include <lightc/precision.h>

extern const lc_precision_ops lc__precision_32_true, lc__precision_64_true, lc__precision_bf16_true,
    lc__precision_16_true, lc__precision_bf16_mixed, lc__precision_16_mixed;

#endif
