/* SPDX-License-Identifier: Apache-2.0 */
/* Master weights (LC_OPTIMIZER_ARGS): f32 copies of parameters of 16 bits. */
#ifndef LC_OPTIM_MASTER_H
#define LC_OPTIM_MASTER_H

#include "base/number.h"

#include <string.h>

/* What an update of element i begins with: its copy, unless that does not round to the parameter. Then the copy has not
 * been made yet, or something else has written the parameter. */
static inline float lc__master_of(const void *parameters, lc_dtype dtype, int64_t i, const float *master)
{
    const size_t width = lc_dtype_size(dtype);
    uint64_t rounded = 0;
    lc__store_number(&rounded, dtype, (double)master[i]);
    if (!memcmp(&rounded, (const char *)parameters + (size_t)i * width, width)) return master[i];
    return (float)lc__number_at(parameters, dtype, i);
}

static inline void lc__master_store(void *parameters, lc_dtype dtype, int64_t i, float *master, float value)
{
    master[i] = value;
    lc__set_number(parameters, dtype, i, (double)value);
}

#endif
