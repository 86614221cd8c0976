/* SPDX-License-Identifier: Apache-2.0 */
/* Sharding: a rank keeps a part of tensors that are otherwise whole on every rank (ZeRO stages 1 to 3).
 *
 * The parameters of a flat buffer are grouped into *units* in their order there: about a bucket's worth of whole
 * parameters, or one large one. A unit is cut into as many slices of equal size as there are ranks, the last ones
 * padded; rank r has slice r of every unit. So a unit travels by one reduce_scatter or all_gather, in place.
 *
 * The ranks that have a slice each may be a part of all ranks: then there are several copies (replicas) of the whole.
 * After the ranks of each copy have added up the gradients of a slice, the ranks that have this slice in all copies do.
 *
 *   stage   whole on every rank         slices
 *   1       parameters, gradients       optimizer state
 *   2       parameters                  optimizer state, gradients
 *   3                                   optimizer state, gradients, parameters
 *
 * Slices of one kind are one after the other in a *slice buffer*: the gradients', the parameters', and one for each
 * optimizer and state. They have the same offsets in all of them. Whole tensors are at the offsets of the flat buffer,
 * whose units are padded to N slices. Slices begin on multiples of 256 bytes, relative to the parameter too: numbers
 * that are combined in blocks of that size do not depend on the ranks.
 *
 * For code that reads or writes tensors (checkpoints, host access): a tensor of which a rank holds a slice has its
 * whole type and a range [slice_begin, slice_begin + slice_count) of its elements, in the memory order of the whole
 * tensor (its layout); `device_data` points to the start of the range. lc__tensor_slice gives it. lc_tensor_write takes
 * the whole value on every rank and keeps the part; lc__tensor_gather does the reverse. lc__flat_state_tensor makes
 * such a handle for one parameter's part of an optimizer's state buffer, or a plain one if nothing is sharded. */
#ifndef LC_TENSOR_SLICE_H
#define LC_TENSOR_SLICE_H

#include <lightc/comm.h>
#include "tensor/tensor_impl.h"

typedef struct lc__unit {
    int first, n;   /* parameters of the flat buffer */
    int64_t offset; /* in the flat buffer, elements */
    int64_t count;  /* to the end of the last parameter */
    int64_t slice;  /* elements per rank */
    int64_t at;     /* offset of a slice in slice buffers */
} lc__unit;

typedef struct lc__sharding {
    int stage;
    lc_comm *comm; /* the ranks that have a slice each; borrowed */
    size_t unit_bytes;
    const void *owner; /* the last reducer to shard it, which may undo that */
    int rank, size;
    int replica, replicas; /* the number of copies, and this one's index */
    lc__unit *units;
    int n_units;
    int64_t count;        /* elements of a slice buffer */
    lc_tensor *gradient;  /* from stage 2 on */
    lc_tensor *parameter; /* in stage 3, while parameters are in slices */
} lc__sharding;

/* The intersection of [begin, begin + count) of a flat buffer and this rank's slice of a unit: its first element,
 * counted from the slice's begin, and its size; 0, 0 if empty. */
int64_t lc__slice_of(const lc__sharding *s, const lc__unit *u, int64_t begin, int64_t count, int64_t *at);

/* ---- tensors in slices ---- */

/* The range of t's elements that this rank holds: all of them if t is not in slices. */
void lc__tensor_slice(const lc_tensor *t, int64_t *begin, int64_t *count);
/* The part of that range that this rank writes when every rank writes its own: replicas have the same elements, and
 * divide them. */
void lc__tensor_share(const lc_tensor *t, int64_t *begin, int64_t *count);
/* Writes the whole value, row-major, to `data`, which has room for the whole tensor, on rank `root` of the ranks that
 * have the slices (-1: on all; elsewhere data may be NULL). If t is not in slices it is only read. Else collective.
 * `mine`: the caller's status so far; a caller that has failed calls it nevertheless, since the others would wait for
 * it, and all ranks get the error. */
lc_status lc__tensor_gather(lc_tensor *t, lc_status mine, int root, void *data) LC_MUST_USE;
/* Keeps this rank's slice of the whole value, row-major. A parameter whose other slices were on ranks that are gone
 * becomes whole. */
lc_status lc__tensor_write_slice(lc_tensor *t, const void *data) LC_MUST_USE;
/* Copies this rank's slice of the whole value, row-major. */
lc_status lc__tensor_cut_value(const lc_tensor *t, const void *data, void *slice) LC_MUST_USE;
/* Gives such a parameter memory for its whole value, which is written later. */
lc_status lc__tensor_revive(lc_tensor *t) LC_MUST_USE;
/* Another tensor of the type, layout and device of `of`; if that is sliced, with the same slice. */
lc_status lc__tensor_like(const lc_tensor *of, lc_tensor **out) LC_MUST_USE;
/* The slice of t that this rank holds, which is not empty, as a 1-D tensor for operators, in memory order. *view: NULL,
 * or an earlier result, which is kept as long as the slice has not moved. */
lc_status lc__tensor_slice_view(const lc_tensor *t, lc_tensor **view) LC_MUST_USE;
/* One parameter's slice of a buffer of optimizer state, with the parameter's type and layout. */
lc_status lc__flat_state_tensor(lc_tensor *state, const lc_tensor *parameter, lc_tensor **out) LC_MUST_USE;

/* Moves `t` to memory of `base`, from element `at`, where it is whole; its value is not copied. */
void lc__tensor_place(lc_tensor *t, lc_tensor *base, int64_t at);
/* Reduces t, which is whole, to [begin, begin + count), in `base` from element `at`; the rest is on the ranks of
 * `s`. */
void lc__tensor_cut(lc_tensor *t, lc_tensor *base, int64_t at, const lc__sharding *s, int64_t begin, int64_t count);

/* ---- flat buffers in slices (parallel/shard/shard.h cuts them) ---- */

/* Makes the flat buffer as if it had never been sharded, except for parameters that were not gathered: those stay in
 * slices that nobody can assemble any more, until they are written. Not collective. */
lc_status lc__flat_forget_sharding(lc_flat *flat);

/* The tensor that stands for a whole buffer of `count` elements of which this rank has slices only: an empty slice in
 * `base`. Nodes may have it as an operand until parallel/reduce/place_slices.c replaces it by units; a plan that still
 * reads it after that is refused (engine/plan/lower.c). */
lc_status lc__flat_nowhere(lc_tensor *base, int64_t count, const lc__sharding *s, lc_tensor **out) LC_MUST_USE;
/* Makes new handles for gradients, in the flat buffer's present form. */
lc_status lc__flat_make_gradients(lc_flat *flat) LC_MUST_USE;
/* Parameters are now whole in `whole`, at the flat buffer's offsets. */
void lc__flat_set_whole(lc_flat *flat, lc_tensor *whole);
void lc__sharding_free(lc__sharding *s);

#endif
