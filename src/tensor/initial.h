/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values that have not been needed yet. The initial value of a parameter depends only on its seed, its path and
 * the index of each element. So it is made when it is first needed: at the parameter's place at that time, only this
 * rank's slice of a sliced one (slice.h), and never for one that a checkpoint is read into. Until then its memory is
 * addresses without pages.
 *
 * Any code that reads or writes the memory of a module's tensor must have filled it: lc__tensor_map does, operators do,
 * and after the set-up of a run a module has nothing to fill (lc__module_fill). */
#ifndef LC_TENSOR_INITIAL_H
#define LC_TENSOR_INITIAL_H

#include <lightc/module.h>
#include "tensor/tensor_impl.h"

/* How a value begins; for code that compares it or sends it. */
typedef struct lc__initial {
    lc_init init; /* uniform, normal or constant */
    uint64_t key;
    int64_t zeros_from, zeros; /* so many elements from there are zero */
} lc__initial;

/* The value of t is as `init` says, with the random stream `key`. Errors of values that cannot be made are reported
 * here. */
lc_status lc__tensor_start_as(lc_tensor *t, lc_init init, uint64_t key) LC_MUST_USE;
/* Except that elements [from, from + count) are zero. Call it right after that. */
lc_status lc__tensor_start_with_zeros(lc_tensor *t, int64_t from, int64_t count) LC_MUST_USE;
/* As received from another rank. */
lc_status lc__tensor_set_initial(lc_tensor *t, const lc__initial *initial) LC_MUST_USE;
/* All of the value is about to be written. */
void lc__tensor_forget_initial(lc_tensor *t);
/* The initial value, if there is none yet: whole, or this rank's part. */
lc_status lc__tensor_fill(lc_tensor *t) LC_MUST_USE;
/* [begin, begin + count) of t's elements, row-major, of an initial value. */
void lc__initial_range(const lc_tensor *t, int64_t begin, int64_t count, void *data);

#endif
