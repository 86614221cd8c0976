/* SPDX-License-Identifier: Apache-2.0 */
/* The norm of gradients, and the factor that clips them by it, as operators. */
#ifndef LC_OPTIM_CLIP_H
#define LC_OPTIM_CLIP_H

#include "base/exact_sum.h"
#include "record/graph_impl.h"

/* The second, with a peer, adds up over ranks. */
extern const lc_op lc__op_clip_coefficient, lc__op_clip_over_ranks;
/* The ints of clip_coefficient, and the part that its kernels share: from the sum of this rank's squares to the
 * results. */
enum {
    LC__CLIP_DTYPE,
    LC__CLIP_PEER,
    LC__CLIP_UNSCALE,
    LC__CLIP_ONLY_FINITE,
    LC__CLIP_FIRST,
    LC__NORM_BLOCK_BYTES = 256
};
void lc__clip_finish(const lc_call *c, lc__exact_sum *sum);

#endif
