/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients on the wire in half as many bytes (PyTorch's bf16_compress_hook and fp16_compress_hook): a bucket is
 * divided by the number of ranks, so that its sum stays in range, rounded, and summed over the ranks in that type,
 * which adds in f32 and rounds once (comm.h). All ranks get the same bits. */
#ifndef LC_PARALLEL_REDUCE_COMPRESS_H
#define LC_PARALLEL_REDUCE_COMPRESS_H

#include <lightc/tensor.h>

typedef struct lc__wire lc__wire;

/* "none", "bf16" or "fp16"; NULL: none, as LC_F32. */
lc_status lc__wire_find(const char *name, lc_dtype *out) LC_MUST_USE;

lc_status lc__wire_new(lc_dtype dtype, int ranks, lc__wire **out) LC_MUST_USE;
void lc__wire_free(lc__wire *w); /* NULL is fine */
lc_dtype lc__wire_dtype(const lc__wire *w);
/* Makes room for this many elements and buckets to be packed before they are unpacked. */
lc_status lc__wire_reserve(lc__wire *w, int64_t elements, int buckets) LC_MUST_USE;

/* Packs data [count] of floating-point numbers; the result is sent, and summed in place. */
void *lc__wire_pack(lc__wire *w, void *data, lc_dtype dtype, int64_t count);
/* After all sums have arrived: unpacks them to where they were packed from. */
void lc__wire_unpack(lc__wire *w);

#endif
