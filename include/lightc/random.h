/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11).
 *
 * A value depends only on (key, counter), so results are the same for any number of threads and in any order. */
#ifndef LIGHTC_RANDOM_H
#define LIGHTC_RANDOM_H

#include <lightc/base.h>

LC_BEGIN_DECLS

/* Four random 32-bit words for a key and a 128-bit counter. */
LC_API void lc_philox4x32(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4]);

/* A key derived from a parent key and a number or a name (avalanche mix; used to give every parameter, sample and
 * operator its own stream). */
LC_API uint64_t lc_random_key(uint64_t key, uint64_t number);
LC_API uint64_t lc_random_key_name(uint64_t key, const char *name);

/* Number i of a stream. */
LC_API double lc_random_uniform(uint64_t key, uint64_t i);             /* in [0, 1), 53 bits */
LC_API double lc_random_normal(uint64_t key, uint64_t i);              /* mean 0, variance 1 (Box-Muller) */
LC_API uint64_t lc_random_below(uint64_t key, uint64_t i, uint64_t n); /* in [0, n), unbiased to 2^-64 */

LC_END_DECLS
#endif
