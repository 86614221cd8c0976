/* SPDX-License-Identifier: Apache-2.0 */
/* Low copies of parameters: rounded to 16 bits, as products of mixed precision read them, and kept from step to step.
 *
 * A flat buffer has a buffer of copies for each type, at the same offsets. A copy knows which value it was rounded
 * from: memory counts how often it was written. So a step rounds a parameter again only if something has written it
 * since; updates of optimizers write both (optim/keep_low.c). Writes to persistent tensors are noted by
 * lc__tensor_written, when the host unmaps one, and by plans that have run. */
#ifndef LC_TENSOR_LOW_H
#define LC_TENSOR_LOW_H

#include "tensor/tensor_impl.h"

static inline int lc__low_kind(lc_dtype dtype)
{
    return dtype == LC_F16;
}

/* The copies of one type. */
typedef struct lc__low {
    lc_tensor *all;     /* 1-D; memory is taken only where there is a copy */
    lc_tensor **copies; /* by parameter, with its shape and layout; NULL: no step has read one */
    struct lc__low_origin {
        uint64_t id, writes;
    } * from; /* by parameter: the value that the copy was rounded from */
} lc__low;

/* The copy of parameter k in a type of 16 bits, which the flat buffer owns; it may not have a value yet. */
lc_status lc__low_copy(lc_flat *flat, int k, lc_dtype dtype, lc_tensor **out) LC_MUST_USE;
/* Whether it is the parameter's value, rounded. */
bool lc__low_is_current(const lc_flat *flat, int k, int kind);
/* For kernels that round a parameter to `at`: whether they must, and that they have. Memory other than the copy's is
 * always old. */
bool lc__low_is_old(const lc_flat *flat, int k, int kind, const void *at);
void lc__low_made(const lc_flat *flat, int k, int kind, const void *at);
/* The memory of all copies. */
int64_t lc__low_bytes(const lc_flat *flat);
/* Also where offsets change: the copies have the old ones. */
void lc__low_free(lc_flat *flat);

/* The counters of writes to the memory that t is in, one for each kind of copy. */
uint64_t *lc__tensor_writes(lc_tensor *t);
/* t's memory has been written, and so have no copies. */
void lc__tensor_written(lc_tensor *t);

#endif
