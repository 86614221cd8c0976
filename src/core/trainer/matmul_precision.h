/* SPDX-License-Identifier: Apache-2.0 */
/* The option float32_matmul_precision. */
#ifndef LC_CORE_TRAINER_MATMUL_PRECISION_H
#define LC_CORE_TRAINER_MATMUL_PRECISION_H

#include <lightc/graph.h>

/* NULL: highest. */
lc_status lc__matmul_precision_parse(const char *text, lc_matmul_precision *out) LC_MUST_USE;
/* If a graph that was asked for a lower precision computes in the highest: why, else NULL. Static. */
const char *lc__matmul_precision_falls_back(const lc_graph *g);

#endif
