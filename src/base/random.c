/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers from counters: nothing here has a state. */
#include <math.h>

#include "base/philox.h"
#include "base/handle.h"

/* Streams of one key that must not overlap. */
enum { STREAM_UNIFORM = 0, STREAM_NORMAL = 1, STREAM_BELOW = 2 };

void lc_philox4x32(uint64_t key, uint64_t counter_lo, uint64_t counter_hi, uint32_t out[4])
{
    LC__NEEDS(out, );
    lc__philox(key, counter_lo, counter_hi, out);
}

/* A bijection of 64 bits in which every input bit changes every output bit with probability one half (the finalizer
 * of MurmurHash3). */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53u;
    x ^= x >> 33;
    return x;
}

uint64_t lc_random_key(uint64_t key, uint64_t number)
{
    /* Bijective in each argument: children of one key never collide. The odd factor keeps the roles apart. */
    return mix(key * 0x9E3779B97F4A7C15u + mix(number + 0xD1B54A32D192ED03u));
}

uint64_t lc_random_key_name(uint64_t key, const char *name)
{
    LC__NEEDS(name, 0);
    uint64_t hash = 0xCBF29CE484222325u; /* FNV-1a */
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) hash = (hash ^ *p) * 0x100000001B3u;
    return lc_random_key(key ^ 0xA5A5A5A5A5A5A5A5u, hash);
}

static uint64_t join(uint32_t lo, uint32_t hi)
{
    return (uint64_t)hi << 32 | lo;
}

double lc_random_uniform(uint64_t key, uint64_t i)
{
    uint32_t w[4];
    lc__philox(key, i, STREAM_UNIFORM, w);
    return (double)(join(w[0], w[1]) >> 11) * 0x1p-53;
}

double lc_random_normal(uint64_t key, uint64_t i)
{
    uint32_t w[4];
    lc__philox(key, i, STREAM_NORMAL, w);
    /* In (0, 1], so that the logarithm is finite. */
    double u = ((double)(join(w[0], w[1]) >> 11) + 1.0) * 0x1p-53;
    double v = (double)(join(w[2], w[3]) >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586477 * v);
}

uint64_t lc_random_below(uint64_t key, uint64_t i, uint64_t n)
{
    uint32_t w[4];
    lc__philox(key, i, STREAM_BELOW, w);
    /* The high half of x * n. */
    uint64_t x = join(w[0], w[1]), x0 = (uint32_t)x, x1 = x >> 32, n0 = (uint32_t)n, n1 = n >> 32;
    uint64_t carry = (x0 * n0 >> 32) + (uint32_t)(x1 * n0) + (uint32_t)(x0 * n1);
    return x1 * n1 + (x1 * n0 >> 32) + (x0 * n1 >> 32) + (carry >> 32);
}
