/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of src/data. */
#ifndef LC_DATA_INTERNAL_H
#define LC_DATA_INTERNAL_H

#include "base/handle.h"
#include <lightc/data.h>

#include <stdatomic.h>

struct lc_dataset {
    lc__mark mark;
    lc_dataset_ops ops; /* defaults filled in */
    void *self;
    atomic_long refs;
    int64_t length;
    lc_sample_spec spec;
    size_t bytes[LC_MAX_BATCH_TENSORS]; /* of a sample, per field */
    size_t scratch;
};

/* `n` rounded up to a multiple of 64. */
static inline size_t lc__align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* 64-byte aligned memory for `n` bytes (at least 64), freed with free(); NULL with an error message set. */
void *lc__data_alloc(size_t n, const char *what);

/* Fills a dataset's optional slots; checks required ones. */
lc_status lc__field_check(const lc_field *f, const char *dataset);
bool lc__field_same(const lc_field *a, const lc_field *b);

/* dst[i] = src[i] * scale + shift, for n numbers. Vectorized; the same result on every instruction set. */
void lc__convert_u8_f32(const uint8_t *src, float *dst, int64_t n, float scale, float shift);

/* `given` with its defaults filled in (NULL: one rank), or an error. */
lc_status lc__share_resolve(const lc_share *given, lc_share *out) LC_MUST_USE;
/* The most samples that any rank gets of a global batch. `share` is resolved. */
int64_t lc__share_most(const lc_share *share, int64_t full);

/* See lc_dataloader_ops. */
bool lc__dataloader_is_per_rank(const lc_dataloader *l);
bool lc__dataloader_can_cut(const lc_dataloader *l);
lc_status lc__dataloader_cut(lc_dataloader *l, int64_t begin, int64_t n, lc_batch **out) LC_MUST_USE;

/* Reads a whole file; *size is its length. The caller frees. `cap` bounds the size. */
lc_status lc__read_file(const char *path, size_t cap, void **data, size_t *size);

#endif
