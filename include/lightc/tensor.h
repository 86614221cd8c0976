/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors.
 *
 * Two kinds share one handle type:
 * - *persistent* tensors own storage and live until their last reference is dropped: parameters, buffers, constants,
 *   batches. Made by lc_tensor_new and the nn layers; reference counted. One that is dropped within a step that uses it
 *   lives until that step is over.
 * - *step* tensors are results of operations recorded in the current step. They belong to the step's graph, need no
 *   freeing, and expire when the step ends; using an expired one is an error that says so.
 *
 * Shapes are PyTorch's logical shapes: images N,C,H,W; conv weights O,I/groups,kH,kW; linear weights out,in. The order
 * of a tensor in memory is its layout, which users never need to know: host access goes through lc_tensor_read and
 * lc_tensor_write, which use row-major order. */
#ifndef LIGHTC_TENSOR_H
#define LIGHTC_TENSOR_H

#include <lightc/status.h>

#define LC_MAX_DIMS 8

/* X(identifier, value, name, bytes, name in safetensors). Only ever grows at the end. */
#define LC_DTYPE_LIST(X)                                                                                               \
    X(LC_F32, 1, "f32", 4, "F32")                                                                                      \
    X(LC_F64, 2, "f64", 8, "F64")                                                                                      \
    X(LC_F16, 3, "f16", 2, "F16")                                                                                      \
    X(LC_BF16, 4, "bf16", 2, "BF16")                                                                                   \
    X(LC_I64, 5, "i64", 8, "I64")                                                                                      \
    X(LC_I32, 6, "i32", 4, "I32")                                                                                      \
    X(LC_U8, 7, "u8", 1, "U8")                                                                                         \
    X(LC_BOOL, 8, "bool", 1, "BOOL")

typedef enum lc_dtype {
    LC_DTYPE_DEFAULT = 0, /* f32 */
#define LC_DTYPE_ENUM(id, value, name, bytes, st) id = value,
    LC_DTYPE_LIST(LC_DTYPE_ENUM)
#undef LC_DTYPE_ENUM
} lc_dtype;

/* The memory layout of a dense tensor. */
typedef enum lc_layout {
    LC_ROW_MAJOR = 0,     /* last logical dimension fastest */
    LC_CHANNELS_LAST = 1, /* dimension 1 fastest: N,C,H,W is stored N,H,W,C; conv weights O,I,kH,kW as O,kH,kW,I */
} lc_layout;

/* The numbers that products of f32 matrices multiply (PyTorch's torch.set_float32_matmul_precision). Sums are f32. */
typedef enum lc_matmul_precision {
    LC_MATMUL_HIGHEST = 0, /* f32 */
    LC_MATMUL_HIGH,        /* each number is the sum of two of bf16: about 16 bits, three products */
    LC_MATMUL_MEDIUM,      /* bf16: 8 bits */
} lc_matmul_precision;

typedef struct lc_tensor lc_tensor;

/* Shape and data type of a value. */
typedef struct lc_type {
    lc_dtype dtype;
    int ndim;
    int64_t shape[LC_MAX_DIMS];
} lc_type;

LC_BEGIN_DECLS

/* ---- data types ---- */
LC_API size_t lc_dtype_size(lc_dtype dtype);      /* bytes of an element; 0 if invalid */
LC_API const char *lc_dtype_name(lc_dtype dtype); /* "f32"; static */
LC_API bool lc_dtype_is_float(lc_dtype dtype);

/* ---- what a tensor is ---- */
LC_API lc_dtype lc_tensor_dtype(const lc_tensor *t);
/* The type in which values are stored: lc_tensor_dtype, except for parameters under 64-true, bf16-true and 16-true. A
 * step tensor has lc_tensor_dtype here, too: how its values are stored is only decided when the step is planned. */
LC_API lc_dtype lc_tensor_storage(const lc_tensor *t);
LC_API int lc_tensor_ndim(const lc_tensor *t);
LC_API int64_t lc_tensor_dim(const lc_tensor *t, int dim); /* dim may count from the end: -1 is the last */
LC_API const int64_t *lc_tensor_shape(const lc_tensor *t); /* ndim entries; borrowed */
LC_API int64_t lc_tensor_numel(const lc_tensor *t);
LC_API const lc_type *lc_tensor_type(const lc_tensor *t); /* borrowed */
LC_API bool lc_tensor_is_persistent(const lc_tensor *t);
/* True if the tensor is the result of a failed operation (the step's first error is reported once, by the step). */
LC_API bool lc_tensor_is_error(const lc_tensor *t);

/* ---- persistent tensors ---- */
/* A new persistent tensor, zero-filled, reference count 1. */
LC_API lc_status lc_tensor_new(lc_dtype dtype, int ndim, const int64_t *shape, lc_tensor **out) LC_MUST_USE;
/* The same with a chosen memory layout. */
LC_API lc_status lc_tensor_new_layout(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout,
                                      lc_tensor **out) LC_MUST_USE;
LC_API lc_tensor *lc_tensor_ref(lc_tensor *t); /* returns t */
LC_API void lc_tensor_unref(lc_tensor *t);     /* NULL is fine; step tensors are ignored */

/* Whether gradients are computed for a persistent tensor (default: no; parameters: yes). In a step this holds for what
 * is recorded from then on; what was recorded before with the tensor runs first, if the value changes. */
LC_API void lc_tensor_set_requires_grad(lc_tensor *t, bool requires_grad);
LC_API bool lc_tensor_requires_grad(const lc_tensor *t);

/* Copies the value out, row-major, into `data` of exactly `bytes` bytes. `bytes` decides the type: that of
 * lc_tensor_dtype, or of lc_tensor_storage. On a step tensor this runs the step up to there first. */
LC_API lc_status lc_tensor_read(lc_tensor *t, void *data, size_t bytes) LC_MUST_USE;
/* As lc_tensor_read, also for parameters that a strategy keeps in slices: the strategy sharded does so while training
 * runs, and lc_tensor_read is then an error. For those, collective over the strategy's ranks. */
LC_API lc_status lc_tensor_gather(lc_tensor *t, void *data, size_t bytes) LC_MUST_USE;
/* Replaces the value of a persistent tensor from row-major `data` of exactly `bytes` bytes. (If the tensor is kept in
 * slices, each rank takes its own: give the same value on all ranks.) */
LC_API lc_status lc_tensor_write(lc_tensor *t, const void *data, size_t bytes) LC_MUST_USE;
/* The value of a one-element tensor. On a step tensor this runs the step up to there first. */
LC_API lc_status lc_item(lc_tensor *t, double *value) LC_MUST_USE;

LC_END_DECLS

#endif
