/* SPDX-License-Identifier: Apache-2.0 */
/* Samplers: which samples an epoch has, in which order. To add one: an lc_sampler_ops and a constructor. */
#include "base/args.h"
#include "data_internal.h"
#include "base/handle.h"

#include <stdlib.h>

/* Fisher-Yates. The numbers come from the key of (seed, epoch) and the position, two to a Philox block. */
void lc_random_permutation(uint64_t seed, int64_t epoch, int64_t n, int64_t *out)
{
    LC__NEEDS(out, );
    uint64_t key = lc_random_key(lc_random_key_name(seed, "permutation"), (uint64_t)epoch);
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = 0; i + 1 < n; i++) {
        if (!(i & 1)) lc_philox4x32(key, (uint64_t)i, 0, words);
        uint64_t r = (uint64_t)words[2 * (i & 1)] << 32 | words[2 * (i & 1) + 1];
        /* The high half of r * m is uniform in [0, m), to 2^-64. */
        int64_t j = i + (int64_t)(uint64_t)(((unsigned __int128)r * (uint64_t)(n - i)) >> 64);
        int64_t swap = out[i];
        out[i] = out[j];
        out[j] = swap;
    }
}

typedef struct simple_sampler {
    int64_t n;
    uint64_t seed;
} simple_sampler;

static int64_t simple_length(void *self, int64_t epoch)
{
    (void)epoch;
    return ((simple_sampler *)self)->n;
}

static lc_status sequential_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    (void)self, (void)epoch;
    for (int64_t i = 0; i < n; i++) indices[i] = i;
    return LC_OK;
}

static lc_status random_order(void *self, int64_t epoch, int64_t n, int64_t *indices)
{
    lc_random_permutation(((simple_sampler *)self)->seed, epoch, n, indices);
    return LC_OK;
}

static const lc_sampler_ops sequential_ops = {
    LC_SAMPLER_OPS_INIT,       .name = "sequential",   .length = simple_length,
    .order = sequential_order, .free = lc__owned_free,
};
static const lc_sampler_ops random_ops = {
    LC_SAMPLER_OPS_INIT, .name = "random", .length = simple_length, .order = random_order, .free = lc__owned_free,
};

static lc_status simple_new(const lc_sampler_ops *ops, int64_t n, uint64_t seed, lc_sampler *out)
{
    *out = (lc_sampler){0};
    if (n < 0) return lc_fail(LC_ERR_ARGUMENT, "a sampler cannot have %lld samples", (long long)n);
    simple_sampler *s = lc__owned_new(sizeof *s, NULL);
    if (!s) return lc_fail(LC_ERR_MEMORY, "out of memory for a sampler");
    *s = (simple_sampler){n, seed};
    *out = (lc_sampler){ops, s};
    return LC_OK;
}

lc_status lc_sampler_sequential(int64_t n, lc_sampler *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return simple_new(&sequential_ops, n, 0, out);
}

lc_status lc_sampler_random(int64_t n, uint64_t seed, lc_sampler *out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return simple_new(&random_ops, n, seed, out);
}
