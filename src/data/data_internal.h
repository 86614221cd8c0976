/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of src/data. */
#ifndef LC_DATA_INTERNAL_H
#define LC_DATA_INTERNAL_H

#include "base/handle.h"
#include "base/owned.h"
#include "device/device.h"
#include <lightc/data.h>

#include <stdatomic.h>

struct lc_dataset {
    lc__mark mark;
    lc_dataset_ops ops; /* defaults filled in */
    void *self;
    atomic_long refs;
    int64_t length;
    lc_sample_spec spec;
    size_t bytes[LC_MAX_BATCH_TENSORS]; /* of a sample, per field; 0: samples differ */
    bool differs;                       /* samples have different sizes */
    size_t scratch;
    int transforms[LC_MAX_BATCH_TENSORS]; /* of each field, one on the other; each draws numbers of its own */
};

/* `n` rounded up to a multiple of 64. */
static inline size_t lc__align64(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* 64-byte aligned memory for `n` bytes (at least 64), freed with free(); NULL with an error message set. */
void *lc__data_alloc(size_t n, const char *what);
/* The same, but whole pages that nothing else has; *n becomes their size. */
void *lc__data_alloc_pages(size_t *n, const char *what);

/* See lc_dataset_ops. */
void lc__dataset_times(const lc_dataset *d, lc_loader_times *add);
const char *lc__dataset_source(const lc_dataset *d, int64_t index);

/* How long this thread has read, decoded and transformed samples: the library's datasets add to it, and a loader takes
 * what was added while its batches were made, so that several loaders can share a dataset. */
typedef struct lc__sample_times {
    int64_t read_ns, decode_ns, transform_ns;
} lc__sample_times;
extern _Thread_local lc__sample_times lc__spent;

/* Takes note that `d` gives the fields of `part`, with the transforms that these have. */
void lc__dataset_made_of(lc_dataset *d, const lc_dataset *part);

/* Fills a dataset's optional slots; checks required ones. */
lc_status lc__field_check(const lc_field *f, const char *dataset);
bool lc__field_differs(const lc_field *f); /* a size is 0: samples differ in it */
/* In what two fields differ ("shape"); NULL: they are the same. */
const char *lc__field_difference(const lc_field *a, const lc_field *b);

/* An error unless the transform has what every one must have. */
lc_status lc__transform_check(const lc_transform *t) LC_MUST_USE;
/* Calls `describe`: the field that the transform makes of `in`. A failure without a message, and a request (LC_SKIP,
 * LC_STOP), become errors that name the transform. */
lc_status lc__transform_describe(const lc_transform *t, const lc_field *in, lc_field *out) LC_MUST_USE;
/* The owner of a transform takes it (an error if another has it, or had it), and frees it, or leaves it to the caller.
 * Until then lc_transform_release does not free it. */
lc_status lc__transform_own(const lc_transform *t) LC_MUST_USE;
void lc__transform_disown(const lc_transform *t);
void lc__transform_free(lc_transform *t);
lc_status lc__sampler_own(const lc_sampler *s) LC_MUST_USE;
void lc__sampler_free(lc_sampler *s);
/* Bytes of scratch memory, a multiple of 64, for a field whose size is known. */
size_t lc__transform_scratch(const lc_transform *t, const lc_field *in);
/* The parts of a chain, in their order; NULL: t is none. */
const lc_transform *lc__compose_parts(const lc_transform *t, int *n);
/* Whether `t` can make a sample `out` of rows of `part`, which it reads, some at a time: it is a chain whose first
 * transform only cuts that part out, and the others work by rows. */
bool lc__transform_takes_rows(const lc_transform *t, const lc_field *out, const lc_box *part);
/* Makes `out`, rows of such a sample, of `in`, the same rows of the part. `streams`: past the caches, if it can; then
 * lc__stores_arrive follows after the last. */
size_t lc__transform_rows_scratch(const lc_transform *t, const lc_field *in);
lc_status lc__transform_rows(const lc_transform *t, const lc_field *in, const void *src, const lc_field *out, void *dst,
                             uint64_t key, void *scratch, bool streams) LC_MUST_USE;
/* Whether a sample is so large that it is written past the caches. */
bool lc__transform_streams(const lc_field *out);
/* Has what this thread wrote past the caches be in memory before what it writes from now on. */
static inline void lc__stores_arrive(void)
{
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}
/* Makes a sample of a batch. An error names the transform. */
lc_status lc__transform_apply(const lc_transform *t, const lc_field *in, const void *src, const lc_field *out,
                              void *dst, uint64_t key, void *scratch) LC_MUST_USE;

/* The types of numbers in arrays and files: the data types, and those that only conversions read. */
typedef enum lc__number {
    LC__NO_NUMBER = 0,
    LC__F32 = LC_F32,
    LC__F64 = LC_F64,
    LC__F16 = LC_F16,
    LC__BF16 = LC_BF16,
    LC__I64 = LC_I64,
    LC__I32 = LC_I32,
    LC__U8 = LC_U8,
    LC__BOOL = LC_BOOL,
    LC__I8 = 64,
    LC__U16,
    LC__I16,
    LC__U32,
    LC__U64,
} lc__number;

size_t lc__number_size(lc__number number);      /* bytes; 0 if invalid */
const char *lc__number_name(lc__number number); /* "u16"; static */

/* dst[i] = src[i] * scale + shift, for n numbers; the same result on every instruction set. src need not be aligned. */
typedef void lc__convert_fn(const void *src, void *dst, int64_t n, double scale, double shift);
/* Whether there is a conversion; *fn is NULL for a plain copy. `scaled`: with a scale or a shift. */
bool lc__conversion(lc__number from, lc_dtype to, bool scaled, lc__convert_fn **fn);
/* The same conversion, for memory that batches are made in again and again. If other cores have read the last batch,
 * writing its lines takes three times as long as writing past the caches; so that is what it does then, if it can, and
 * lc__stores_arrive follows after the last sample. */
lc__convert_fn *lc__conversion_into_batch(lc__convert_fn *fn);
/* In a random order samples are not in the caches: the next one is fetched while this one is converted. */
static inline void lc__fetch_sample(const char *from, size_t bytes)
{
    for (size_t b = 0; b < bytes && b < 1024; b += 64) __builtin_prefetch(from + b);
}

/* `given` with its defaults filled in (NULL: one rank), or an error. */
lc_status lc__share_resolve(const lc_share *given, lc_share *out) LC_MUST_USE;
/* The most samples that any rank gets of a global batch. `share` is resolved. */
int64_t lc__share_most(const lc_share *share, int64_t full);

/* A loader of the library, which can have its batches in memory that is registered with a device. `pin` is called with
 * that device (NULL: none) when no epoch runs. */
typedef lc_status lc__pin_fn(void *self, const lc_device *on);
lc_status lc__dataloader_new(const lc_dataloader_ops *ops, lc__pin_fn *pin, void *self,
                             lc_dataloader **out) LC_MUST_USE;
/* Whether it belongs to a combined loader, which clears this before it frees it. */
bool lc__dataloader_is_part(const lc_dataloader *l);
void lc__dataloader_set_part(lc_dataloader *l, bool is_part);
/* From now on the batches of such a loader are in memory that is registered with `on`, if it registers any. If that
 * changes something, a running epoch ends. */
lc_status lc__dataloader_pin(lc_dataloader *l, const lc_device *on) LC_MUST_USE;

/* See lc_dataloader_ops. */
bool lc__dataloader_is_per_rank(const lc_dataloader *l);
bool lc__dataloader_can_cut(const lc_dataloader *l);
lc_status lc__dataloader_cut(lc_dataloader *l, int64_t begin, int64_t n, lc_batch **out) LC_MUST_USE;

/* See lc_dataloader_ops: -1 is none ever. */
int64_t lc__dataloader_replaced(lc_dataloader *l, const char **why);

/* The fields of a window of tokens, "x", and of those one further, "y". */
lc_status lc__windows_describe(int64_t window, lc_sample_spec *spec);

/* Reads a whole file; *size is its length. The caller frees. `cap` bounds the size. */
lc_status lc__read_file(const char *path, size_t cap, void **data, size_t *size);

#endif
