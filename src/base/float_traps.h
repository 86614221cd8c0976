/* SPDX-License-Identifier: Apache-2.0 */
/* A program may trap floating-point errors (feenableexcept). lightc computes without traps, since NaN and infinity are
 * values to it, and gives the program its traps back. */
#ifndef LC_BASE_FLOAT_TRAPS_H
#define LC_BASE_FLOAT_TRAPS_H

#include <stdbool.h>

/* Returns the traps that were on; 0: none, and nothing changed. */
int lc__traps_off(void);
/* Turns traps on again. What raised them since is forgotten. */
void lc__traps_on(int traps);

/* Cheap where a register says it. */
static inline bool lc__may_trap(void)
{
#ifdef __x86_64__
    return (~__builtin_ia32_stmxcsr() & 0x1f80) != 0;
#else
    return true;
#endif
}

static inline void lc__traps_restore(const int *traps)
{
    if (*traps > 0) lc__traps_on(*traps);
}

/* Until the end of the function that it is in, this thread has no traps. */
#define LC__WITHOUT_TRAPS()                                                                                            \
    __attribute__((cleanup(lc__traps_restore), unused)) int traps_before_ = lc__may_trap() ? lc__traps_off() : 0

#endif
