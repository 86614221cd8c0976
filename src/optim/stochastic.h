/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic rounding of updated parameters of 16 bits (LC_OPTIMIZER_ARGS). Element e of a parameter is rounded by word
 * e & 3 of block e >> 2 of a stream of its own for each update, so neither slices, pieces nor threads change it. */
#ifndef LC_OPTIM_STOCHASTIC_H
#define LC_OPTIM_STOCHASTIC_H

#include "base/half.h"
#include "base/philox.h"

#include <lightc/tensor.h>

/* `parameter`: its index in the optimizer; `updates`: done before this one. */
static inline lc__rng_stream lc__rounding_stream(const lc_call *call, int64_t parameter, double updates)
{
    const uint64_t name = lc_random_key_name(call->rng->seed, "stochastic_rounding");
    return (lc__rng_stream){.key = lc_random_key(name, (uint64_t)parameter), .hi = (uint64_t)updates};
}

static inline uint32_t lc__rounding_word(const lc__rng_stream *s, int64_t element)
{
    uint32_t words[4];
    lc__philox(s->key, (uint64_t)element >> 2, s->hi, words);
    return words[element & 3];
}

/* parameters[i], which is the given element of its parameter */
static inline void lc__store_random(void *parameters, lc_dtype dtype, int64_t i, float value, const lc__rng_stream *s,
                                    int64_t element)
{
    const uint32_t word = lc__rounding_word(s, element);
    ((uint16_t *)parameters)[i] =
        dtype == LC_F16 ? lc__f32_to_f16_random(value, word) : lc__f32_to_bf16_random(value, word);
}

#endif
