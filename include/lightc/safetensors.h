/* SPDX-License-Identifier: Apache-2.0 */
/* Files of named tensors in the safetensors format, which PyTorch, NumPy and other tools read and write.
 *
 * Reading trusts nothing in the file: offsets, shapes and sizes are checked against each other and against the length
 * of the file before any memory is allocated. Messages name the file and the tensor. */
#ifndef LIGHTC_SAFETENSORS_H
#define LIGHTC_SAFETENSORS_H

#include <lightc/tensor.h>

typedef struct lc_safetensors lc_safetensors;

/* A tensor to be written: either `tensor`, or `type` and row-major `data`. */
typedef struct lc_named_tensor {
    const char *name;
    lc_tensor *tensor; /* NULL: type and data hold the value */
    lc_type type;      /* ignored if tensor is given */
    const void *data;
} lc_named_tensor;

/* A pair of texts for the file's "__metadata__". */
typedef struct lc_text_pair {
    const char *key, *value;
} lc_text_pair;

/* A file's header entry for one of its tensors. */
typedef struct lc_safetensor_info {
    const char *name;  /* borrowed from the file */
    const char *dtype; /* as the file names it: "F32" */
    lc_type type;      /* type.dtype is 0 for data types that lightc does not have */
    uint64_t offset;   /* of the first byte, from the start of the file */
    uint64_t bytes;
} lc_safetensor_info;

/* Elements of a tensor that are contiguous in one file, counted in the order in which the file has them. */
typedef struct lc_safetensor_piece {
    const char *path; /* borrowed */
    int64_t first, count;
} lc_safetensor_piece;

LC_BEGIN_DECLS

/* Writes a temporary file, makes it durable (fsync) and renames it to `path`: at every moment `path` is either the old
 * file or complete. */
LC_API lc_status lc_safetensors_save(const char *path, int64_t n, const lc_named_tensor *tensors, int n_metadata,
                                     const lc_text_pair *metadata) LC_MUST_USE;

/* Opens a file and checks its header. */
LC_API lc_status lc_safetensors_open(const char *path, lc_safetensors **out) LC_MUST_USE;
LC_API void lc_safetensors_close(lc_safetensors *f); /* NULL is fine */

LC_API const char *lc_safetensors_path(const lc_safetensors *f); /* as it was opened; borrowed */
LC_API int64_t lc_safetensors_count(const lc_safetensors *f);    /* tensors in it */
/* Tensor i in the order of the data. Borrowed. */
LC_API const lc_safetensor_info *lc_safetensors_info(const lc_safetensors *f, int64_t i);
/* Its number, or -1. */
LC_API int64_t lc_safetensors_find(const lc_safetensors *f, const char *name);
/* The number of pieces of tensor i: one, except in sharded checkpoints. *piece (may be NULL) is number k of them. */
LC_API int64_t lc_safetensors_pieces(const lc_safetensors *f, int64_t i, int64_t k, lc_safetensor_piece *piece);
/* The value of a key of "__metadata__", or NULL. Borrowed. */
LC_API const char *lc_safetensors_metadata(const lc_safetensors *f, const char *key);
/* Pair i of "__metadata__", sorted by key; NULL after the last. Borrowed. */
LC_API const lc_text_pair *lc_safetensors_metadata_at(const lc_safetensors *f, int64_t i);

/* Copies tensor i, row-major, into `data` of exactly `bytes` bytes. */
LC_API lc_status lc_safetensors_read(lc_safetensors *f, int64_t i, void *data, size_t bytes) LC_MUST_USE;
/* Copies `count` bytes from byte `offset` of tensor i. */
LC_API lc_status lc_safetensors_read_range(lc_safetensors *f, int64_t i, uint64_t offset, void *data,
                                           size_t count) LC_MUST_USE;
/* Replaces the value of a persistent tensor by that of `name`. Shapes and data types must be equal. */
LC_API lc_status lc_safetensors_load(lc_safetensors *f, const char *name, lc_tensor *t) LC_MUST_USE;
/* The same for n tensors, of which only name and tensor are used, in the order of the file. All are checked before the
 * first is written. With `strict`, a tensor of the file that is not in the list is an error too. */
LC_API lc_status lc_safetensors_load_all(lc_safetensors *f, int64_t n, const lc_named_tensor *tensors,
                                         bool strict) LC_MUST_USE;

LC_END_DECLS
#endif
