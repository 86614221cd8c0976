/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and persistent tensors. */
#include "tensor/tensor_impl.h"
#include "base/handle.h"
#include "tensor/host_access.h"
#include "tensor/initial.h"

#include <lightc/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- shapes and strides ---- */

int64_t lc__numel(const lc_type *type)
{
    int64_t n = 1;
    for (int i = 0; i < type->ndim; i++) n *= type->shape[i];
    return n;
}

const char *lc__shape_text(const lc_type *type, char *buffer, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < type->ndim && at < size; i++)
        at += (size_t)snprintf(buffer + at, size - at, "%c%lld", i ? ',' : '[', (long long)type->shape[i]);
    if (at < size) snprintf(buffer + at, size - at, type->ndim ? "]" : "[]");
    return buffer;
}

lc_status lc__type_check(lc_dtype dtype, int ndim, const int64_t *shape, lc_type *out, size_t *bytes)
{
    if (dtype == LC_DTYPE_DEFAULT) dtype = LC_F32;
    size_t total = lc_dtype_size(dtype);
    if (!total) return lc_fail(LC_ERR_DTYPE, "%d is not a data type", (int)dtype);
    if (ndim < 0 || ndim > LC_MAX_DIMS)
        return lc_fail(LC_ERR_SHAPE, "a tensor has 0 to %d dimensions, not %d", LC_MAX_DIMS, ndim);
    if (ndim > 0 && !shape) return lc_fail(LC_ERR_ARGUMENT, "shape is NULL");
    memset(out, 0, sizeof *out);
    out->dtype = dtype;
    out->ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return lc_fail(LC_ERR_SHAPE, "dimension %d has negative size %lld", i, (long long)shape[i]);
        out->shape[i] = shape[i];
        if (__builtin_mul_overflow(total, (size_t)shape[i], &total) || total > PTRDIFF_MAX)
            return lc_fail(LC_ERR_SHAPE, "a tensor of this shape exceeds the address space");
    }
    *bytes = total;
    return LC_OK;
}

bool lc__type_equal(const lc_type *a, const lc_type *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
}

void lc__dense_strides(const lc_type *type, lc_layout layout, int64_t *stride)
{
    int64_t step = 1;
    int n = type->ndim;
    if (layout == LC_CHANNELS_LAST && n >= 3) {
        stride[1] = 1;
        step = type->shape[1];
        for (int i = n - 1; i >= 2; i--) {
            stride[i] = step;
            step *= type->shape[i];
        }
        stride[0] = step;
        return;
    }
    for (int i = n - 1; i >= 0; i--) {
        stride[i] = step;
        step *= type->shape[i];
    }
}

bool lc__is_dense(int ndim, const int64_t *shape, const int64_t *stride, lc_layout layout)
{
    lc_type type = {.ndim = ndim};
    int64_t dense[LC_MAX_DIMS];
    for (int i = 0; i < ndim; i++) {
        type.shape[i] = shape[i];
        if (shape[i] == 0) return true;
    }
    lc__dense_strides(&type, layout, dense);
    for (int i = 0; i < ndim; i++)
        if (shape[i] > 1 && stride[i] != dense[i]) return false;
    return true;
}

bool lc__is_matrix(int ndim, const int64_t *shape, const int64_t *stride)
{
    if (ndim == 0) return true;
    int64_t cols = shape[ndim - 1], c = stride[ndim - 1];
    if (ndim == 1) return cols == 1 || c == 1;
    int64_t rows = shape[ndim - 2], r = stride[ndim - 2];
    if ((c == 1 || cols == 1) && (rows == 1 || r >= cols)) return true;
    return (r == 1 || rows == 1) && (cols == 1 || c >= rows);
}

void lc__view_of(const lc_type *type, lc_layout layout, void *data, lc_view *out)
{
    memset(out, 0, sizeof *out);
    out->data = data;
    out->dtype = type->dtype;
    out->ndim = type->ndim;
    memcpy(out->shape, type->shape, sizeof out->shape);
    lc__dense_strides(type, layout, out->stride);
}

lc_type lc__view_type(const lc_view *v)
{
    lc_type type = {.dtype = v->dtype, .ndim = v->ndim};
    memcpy(type.shape, v->shape, sizeof type.shape);
    return type;
}

void lc__broadcast_view(lc_view *v, const lc_view *out)
{
    lc_view wide = *v;
    int shift = out->ndim - v->ndim;
    for (int d = 0; d < out->ndim; d++) {
        bool repeats = d < shift || (v->shape[d - shift] == 1 && out->shape[d] != 1);
        wide.stride[d] = repeats ? 0 : v->stride[d - shift];
        wide.shape[d] = out->shape[d];
    }
    wide.ndim = out->ndim;
    *v = wide;
}

size_t lc__view_span(const lc_view *v)
{
    int64_t last = 0;
    for (int i = 0; i < v->ndim; i++) {
        if (v->shape[i] == 0) return 0;
        last += (v->shape[i] - 1) * v->stride[i];
    }
    return (size_t)(last + 1) * lc_dtype_size(v->dtype);
}

bool lc__overlap(const lc_tensor *a, const lc_tensor *b)
{
    if (a == b) return true;
    if (a->is_slice || b->is_slice) return false; /* they use the memory of their slices */
    const char *at = a->device_data, *other = b->device_data;
    return at < other + b->bytes && other < at + a->bytes;
}

static void copy_dims(char *to, const char *from, const lc_view *t, const lc_view *f, int dim, size_t size)
{
    if (dim == t->ndim) {
        memcpy(to, from, size);
        return;
    }
    int64_t n = t->shape[dim];
    int64_t ts = t->stride[dim] * (int64_t)size, fs = f->stride[dim] * (int64_t)size;
    if (dim == t->ndim - 1 && ts == (int64_t)size && fs == (int64_t)size) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    for (int64_t i = 0; i < n; i++) copy_dims(to + i * ts, from + i * fs, t, f, dim + 1, size);
}

void lc__copy_strided(const lc_view *from, const lc_view *to)
{
    for (int i = 0; i < to->ndim; i++)
        if (to->shape[i] == 0) return;
    copy_dims(to->data, from->data, to, from, 0, lc_dtype_size(to->dtype));
}

/* ---- handles ---- */

static const lc_tensor error_tensor = {.type = {.dtype = LC_F32}, .kind = LC_TENSOR_ERROR};

lc_tensor *lc__error_tensor(void)
{
    return (lc_tensor *)(uintptr_t)&error_tensor; /* never written: every writer checks the kind */
}

lc_status lc__not_a_tensor(const lc_tensor *t, const char *function)
{
    if (!t) return lc_fail(LC_ERR_ARGUMENT, "%s: the tensor is NULL", function);
    return lc_fail(LC_ERR_ARGUMENT,
                   "%s: this is not a tensor; it was never made, has been freed, or is an object of another type",
                   function);
}

lc_dtype lc_tensor_dtype(const lc_tensor *t)
{
    LC__IS_TENSOR(t, LC_DTYPE_DEFAULT);
    return lc__seen_type(t)->dtype;
}
lc_dtype lc_tensor_storage(const lc_tensor *t)
{
    LC__IS_TENSOR(t, LC_DTYPE_DEFAULT);
    return t->type.dtype;
}
int lc_tensor_ndim(const lc_tensor *t)
{
    LC__IS_TENSOR(t, 0);
    return t->type.ndim;
}
const int64_t *lc_tensor_shape(const lc_tensor *t)
{
    LC__IS_TENSOR(t, NULL);
    return t->type.shape;
}
const lc_type *lc_tensor_type(const lc_tensor *t)
{
    LC__IS_TENSOR(t, NULL);
    return lc__seen_type(t);
}
int64_t lc_tensor_numel(const lc_tensor *t)
{
    LC__IS_TENSOR(t, 0);
    return lc__numel(&t->type);
}
bool lc_tensor_is_persistent(const lc_tensor *t)
{
    LC__IS_TENSOR(t, false);
    return t->kind >= LC_TENSOR_PERSISTENT;
}
bool lc_tensor_is_error(const lc_tensor *t)
{
    return !lc__is_tensor(t) || t->kind == LC_TENSOR_ERROR;
}
bool lc_tensor_requires_grad(const lc_tensor *t)
{
    LC__IS_TENSOR(t, false);
    return t->requires_grad;
}

int64_t lc_tensor_dim(const lc_tensor *t, int dim)
{
    LC__IS_TENSOR(t, 0);
    if (dim < 0) dim += t->type.ndim;
    return dim >= 0 && dim < t->type.ndim ? t->type.shape[dim] : 0;
}

/* Unique without a counter: no two tensors have the same address at the same time. */
uint64_t lc__new_id(const lc_tensor *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    uint64_t id = lc_random_key(lc_random_key(ns, (uint64_t)(uintptr_t)t), t->id);
    return id ? id : 1;
}

void lc_tensor_set_requires_grad(lc_tensor *t, bool requires_grad)
{
    LC__IS_TENSOR(t, );
    if (t->kind != LC_TENSOR_PERSISTENT || t->requires_grad == requires_grad) return;
    /* Operations that read the tensor before are planned with the old value, so they run now. If that fails, the step
     * keeps the error. */
    (void)!lc__tensor_run(t);
    uint64_t other = t->other_id ? t->other_id : lc__new_id(t);
    t->requires_grad = requires_grad;
    if (t->flat) t->flat->trained[t->flat_index] = requires_grad;
    t->other_id = t->id; /* each value of requires_grad has its own id, and so its own plans */
    t->id = other;
    t->graph = NULL;
}

static lc_status new_handle(const lc_device *on, lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout,
                            lc_tensor **out)
{
    lc_type type;
    size_t bytes;
    *out = NULL;
    LC_TRY(lc__type_check(dtype, ndim, shape, &type, &bytes));
    lc_tensor *t = calloc(1, sizeof *t);
    if (!t) return lc_fail(LC_ERR_MEMORY, "out of memory for a tensor handle");
    t->type = type;
    t->kind = LC_TENSOR_PERSISTENT;
    t->layout = ndim >= 3 ? layout : LC_ROW_MAJOR;
    t->bytes = bytes;
    t->refs = 1;
    t->on = on;
    t->id = lc__new_id(t);
    *out = t;
    return LC_OK;
}

lc_status lc_tensor_new(lc_dtype dtype, int ndim, const int64_t *shape, lc_tensor **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    return lc_tensor_new_layout(dtype, ndim, shape, LC_ROW_MAJOR, out);
}

static lc_status new_storage(const lc_device *on, lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout,
                             bool reserve, lc_tensor **out)
{
    LC_TRY(new_handle(on, dtype, ndim, shape, layout, out));
    lc_tensor *t = *out;
    size_t bytes = t->bytes ? t->bytes : 1;
    lc_status status = reserve ? t->on->ops->reserve(t->on->context, bytes, &t->device_data)
                               : t->on->ops->alloc(t->on->context, bytes, &t->device_data);
    if (status != LC_OK) {
        char text[128];
        lc__shape_text(&t->type, text, sizeof text);
        free(t);
        *out = NULL;
        return lc_fail_context(status, "a tensor of %s %s", lc_dtype_name(dtype ? dtype : LC_F32), text);
    }
    return LC_OK;
}

lc_status lc_tensor_new_layout(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout, lc_tensor **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    const lc_device *on;
    *out = NULL;
    LC_TRY(lc__device_default(&on));
    return lc__tensor_new_on(on, dtype, ndim, shape, layout, out);
}

lc_status lc__tensor_new_on(const lc_device *on, lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout,
                            lc_tensor **out)
{
    return new_storage(on, dtype, ndim, shape, layout, false, out);
}

lc_status lc__tensor_reserve(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout, lc_tensor **out)
{
    const lc_device *on;
    *out = NULL;
    LC_TRY(lc__device_default(&on));
    return new_storage(on, dtype, ndim, shape, layout, true, out);
}

lc_status lc__tensor_reserve_on(const lc_device *on, const lc_type *type, lc_layout layout, lc_tensor **out)
{
    return new_storage(on, type->dtype, type->ndim, type->shape, layout, true, out);
}

lc_status lc__tensor_range(lc_tensor *base, size_t offset, const lc_type *type, lc_layout layout, lc_tensor **out)
{
    LC_TRY(new_handle(base->on, type->dtype, type->ndim, type->shape, layout, out));
    (*out)->base = lc_tensor_ref(base);
    (*out)->device_data = (char *)base->device_data + offset;
    return LC_OK;
}

int lc__tensor_file(lc_tensor *t)
{
    int fd = -1;
    if (t->base || t->kind != LC_TENSOR_PERSISTENT || !t->on->ops->share) return -1;
    if (!t->file) t->on->ops->share(t->on->context, t->device_data, t->bytes, &fd), t->file = 1 + fd;
    return t->file - 1;
}

static void release_storage(lc_tensor *t)
{
    if (t->base) {
        lc_tensor_unref(t->base);
        return;
    }
    t->on->ops->free(t->on->context, t->device_data, t->bytes ? t->bytes : 1);
    if (t->file) close(t->file - 1);
    t->file = 0;
}

void lc__tensor_move(lc_tensor *t, lc_tensor *base, size_t offset)
{
    void *to = (char *)base->device_data + offset;
    /* Only a device can fail; its next call reports that. */
    if (!t->initial) (void)!lc__device_copy(base->on, to, t->on, t->device_data, t->bytes);
    lc__tensor_rehome(t, base, offset);
}

void lc__tensor_rehome(lc_tensor *t, lc_tensor *base, size_t offset)
{
    release_storage(t);
    t->on = base->on;
    t->base = lc_tensor_ref(base);
    t->device_data = (char *)base->device_data + offset;
    t->id = lc__new_id(t);
    t->other_id = 0;
    t->graph = NULL;
}

lc_status lc__tensor_to(lc_tensor *t, const lc_device *on)
{
    lc_tensor *base;
    LC_TRY(lc__tensor_reserve_on(on, &t->type, t->layout, &base));
    lc__tensor_move(t, base, 0);
    lc_tensor_unref(base);
    return LC_OK;
}

lc_status lc_input_new(lc_dtype dtype, int ndim, const int64_t *shape, lc_layout layout, void *data, lc_tensor **out)
{
    LC__NEEDS(out, LC_ERR_ARGUMENT);
    LC_TRY(new_handle(lc__host_device(), dtype, ndim, shape, layout, out));
    (*out)->kind = LC_TENSOR_INPUT;
    (*out)->device_data = data;
    return LC_OK;
}

void lc_input_set(lc_tensor *input, void *data, int64_t samples)
{
    LC__IS_TENSOR(input, );
    if (input->kind != LC_TENSOR_INPUT) return;
    input->device_data = data;
    input->pin = NULL;
    if (input->type.ndim && input->type.shape[0] != samples) {
        input->type.shape[0] = samples;
        input->bytes = (size_t)lc__numel(&input->type) * lc_dtype_size(input->type.dtype);
        input->graph = NULL; /* the graph sees another value, so another plan */
    }
}

void lc__input_set_sizes(lc_tensor *input, void *data, int64_t samples, const int64_t *sizes)
{
    lc_type *type = &input->type;
    size_t bytes = (size_t)(type->ndim - 1) * sizeof *sizes;
    if (memcmp(type->shape + 1, sizes, bytes) != 0) {
        memcpy(type->shape + 1, sizes, bytes);
        type->shape[0] = -1;
    }
    lc_input_set(input, data, samples);
}

lc_tensor *lc_tensor_ref(lc_tensor *t)
{
    if (!t) return NULL;
    LC__IS_TENSOR(t, NULL);
    if (t->kind >= LC_TENSOR_PERSISTENT) __atomic_fetch_add(&t->refs, 1, __ATOMIC_RELAXED);
    return t;
}

void lc_tensor_unref(lc_tensor *t)
{
    if (!t) return;
    LC__IS_TENSOR_OR_NULL(t, );
    if (t->kind < LC_TENSOR_PERSISTENT) return;
    if (t->is_kept && __atomic_load_n(&t->refs, __ATOMIC_RELAXED) == 1) { /* the graph's */
        (void)lc__not_a_tensor(t, __func__);
        return;
    }
    if (t->modules && __atomic_load_n(&t->refs, __ATOMIC_RELAXED) == t->modules) {
        (void)lc_fail(LC_ERR_STATE,
                      "lc_tensor_unref: the tensor belongs to a module, which drops it when it is released");
        return;
    }
    if (__atomic_sub_fetch(&t->refs, 1, __ATOMIC_ACQ_REL) > 0 || lc__tensor_keep(t)) return;
    lc__flat_leave(t);
    if (t->base || t->kind == LC_TENSOR_PERSISTENT) release_storage(t);
    lc__tensor_forget_initial(t);
    free(t->seen);
    lc_tensor_unref(t->as_seen.copy);
    *(volatile lc_tensor_kind *)&t->kind = (lc_tensor_kind)0; /* no longer a tensor */
    free(t);
}
