/* SPDX-License-Identifier: Apache-2.0 */
/* Instruction sets of this machine. */
#ifndef LC_BACKENDS_CPU_UNITS_H
#define LC_BACKENDS_CPU_UNITS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lc__units {
    bool avx2, f16c, avx512; /* avx512: F, BW, DQ and VL */
    bool avx512_bf16, avx512_fp16, amx_bf16, amx_fp16;
} lc__units;

lc__units lc__units_find(void);
/* Only avx512_bf16, at no cost: the host of a virtual machine takes its time to answer for the others. */
bool lc__units_have_bf16(void);
/* Whether vectors multiply bf16 faster than f32: AMD's do, Intel's do not (measured). */
bool lc__units_bf16_is_fast(void);
/* "avx2 f16c avx512"; "" if there are none. */
void lc__units_names(char *text, size_t size);

#endif
