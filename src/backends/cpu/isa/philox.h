/* SPDX-License-Identifier: Apache-2.0 */
/* The words of many Philox counters, computed side by side (base/philox.h has the definition). */
#ifndef LC_BACKENDS_CPU_ISA_PHILOX_H
#define LC_BACKENDS_CPU_ISA_PHILOX_H

#include "base/philox.h"

#define COUNTERS 64 /* at a time */

/* Words of counters first, first + 1, ...: words[4 i + k] is word k of counter first + i. */
static void philox_words(const lc__rng_stream *s, uint64_t first, uint32_t *restrict words)
{
    uint32_t c0[COUNTERS], c1[COUNTERS], c2[COUNTERS], c3[COUNTERS];
    uint32_t k0 = (uint32_t)s->key, k1 = (uint32_t)(s->key >> 32);
    for (int i = 0; i < COUNTERS; i++) {
        uint64_t counter = first + (uint64_t)i;
        c0[i] = (uint32_t)counter;
        c1[i] = (uint32_t)(counter >> 32);
        c2[i] = (uint32_t)s->hi;
        c3[i] = (uint32_t)(s->hi >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COUNTERS; i++) {
            uint64_t p0 = (uint64_t)c0[i] * 0xD2511F53u, p1 = (uint64_t)c2[i] * 0xCD9E8D57u;
            uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
            c0[i] = n0;
            c2[i] = n2;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < COUNTERS; i++) {
        words[4 * i] = c0[i];
        words[4 * i + 1] = c1[i];
        words[4 * i + 2] = c2[i];
        words[4 * i + 3] = c3[i];
    }
}

#endif
