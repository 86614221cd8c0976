/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values, made lazily. The initial value of a parameter depends only on its seed, its path and the index of
 * each element. So it is made when it is first needed: at the parameter's place at that time, only this rank's slice if
 * it is sliced (slice.h), and never if a checkpoint is read into it. Until then its memory is address space without
 * pages.
 *
 * Code must fill a module's tensor before it reads or writes its memory: lc__tensor_map and operators do so, and after
 * the set-up of a run a module has nothing left to fill (lc__module_fill). */
#ifndef LC_TENSOR_INITIAL_H
#define LC_TENSOR_INITIAL_H

#include <lightc/module.h>
#include "tensor/tensor_impl.h"

/* A description of an initial value, for code that compares or sends it. */
typedef struct lc__initial {
    lc_init init; /* uniform, normal or constant */
    uint64_t key;
    int64_t zeros_from, zeros; /* that many elements from zeros_from on are zero */
} lc__initial;

/* Gives t the initial value `init`, with the random stream `key`. Fails if such a value cannot be made. */
lc_status lc__tensor_start_as(lc_tensor *t, lc_init init, uint64_t key) LC_MUST_USE;
/* Call it right after that: elements [from, from + count) are zero. */
lc_status lc__tensor_start_with_zeros(lc_tensor *t, int64_t from, int64_t count) LC_MUST_USE;
/* Gives t an initial value received from another rank. */
lc_status lc__tensor_set_initial(lc_tensor *t, const lc__initial *initial) LC_MUST_USE;
/* Drops the initial value: all of the tensor is about to be written. */
void lc__tensor_forget_initial(lc_tensor *t);
/* Makes the initial value, if that has not been done: the whole, or this rank's part. */
lc_status lc__tensor_fill(lc_tensor *t) LC_MUST_USE;
/* Writes elements [begin, begin + count) of t's initial value, row-major, to `data`. */
void lc__initial_range(const lc_tensor *t, int64_t begin, int64_t count, void *data);

#endif
