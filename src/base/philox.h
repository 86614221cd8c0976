/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10, inline, so that kernels can run several blocks side by side (plain 32-bit arithmetic: compilers
 * vectorize a loop over blocks). */
#ifndef LC_BASE_PHILOX_H
#define LC_BASE_PHILOX_H

#include <lightc/op.h>
#include <lightc/random.h>

static inline void lc__philox(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4])
{
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)c0 * 0xD2511F53u, p1 = (uint64_t)c2 * 0xCD9E8D57u;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The stream of one call of a random operator: block i is lc__philox(key, i, hi, out). Logical element e takes word
 * e & 3 of block e >> 2. */
typedef struct lc__rng_stream {
    uint64_t key, hi;
} lc__rng_stream;

static inline lc__rng_stream lc__rng_stream_of(const lc_call *call)
{
    lc__rng_stream s;
    s.key = lc_random_key(lc_random_key(call->rng->seed, (uint64_t)call->ints[0]), (uint64_t)call->ints[1]);
    s.hi = (call->rng->step << 24) + call->rng->micro_batch;
    return s;
}

/* A word as a number in [0, 1) that f32 holds exactly. Dropout keeps an element iff this >= p (compared in double). */
static inline double lc__word_uniform(uint32_t word)
{
    return (double)(word >> 8) * 0x1p-24;
}

#endif
