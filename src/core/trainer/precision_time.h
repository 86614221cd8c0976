/* SPDX-License-Identifier: Apache-2.0 */
/* What a precision costs on this machine. */
#ifndef LC_CORE_TRAINER_PRECISION_TIME_H
#define LC_CORE_TRAINER_PRECISION_TIME_H

#include <lightc/graph.h>
#include <stdatomic.h>

/* How many times longer than in f32 products take in f16 and in bf16, in thousandths; 0: not yet measured. Tests set
 * them, since what is measured depends on the machine. */
extern atomic_int lc__product_ratios[2];

enum { LC__SLOWER_SIZE = 200 };

/* At the start of a run on `g` whose precision is called `name`: if products of its 16 bits take longer than those of
 * f32, writes into `text` that they do, else "". Measures for some milliseconds, once a process and type. */
lc_status lc__precision_slower(const lc_graph *g, const char *name, char text[LC__SLOWER_SIZE]) LC_MUST_USE;

#endif
