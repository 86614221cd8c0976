/* SPDX-License-Identifier: Apache-2.0 */
/* A program may trap floating-point errors (feenableexcept). lightc computes without traps, since NaN and infinity are
 * values to it, and gives the program its traps back. */
#ifndef LC_BASE_FLOAT_TRAPS_H
#define LC_BASE_FLOAT_TRAPS_H

/* Until the end of the function that it is in, this thread has no traps. */
#define LC__WITHOUT_TRAPS() __attribute__((cleanup(lc__traps_restore), unused)) int traps_before_ = lc__traps_off()

/* Returns the traps that were on; 0: none, and nothing changed. */
int lc__traps_off(void);
/* Turns *traps on again. What raised them since is forgotten. */
void lc__traps_restore(const int *traps);

#endif
