/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of which a rank holds a slice, and sharded flat buffers. */
#include "tensor/slice.h"

#include "base/number.h"
#include "comm/agree.h"
#include "tensor/host_access.h"
#include "tensor/initial.h"

#include <stdlib.h>
#include <string.h>

static char *element(const lc_tensor *t, int64_t i)
{
    return (char *)t->device_data + (size_t)i * lc_dtype_size(t->type.dtype);
}

int64_t lc__slice_of(const lc__sharding *s, const lc__unit *u, int64_t begin, int64_t count, int64_t *at)
{
    int64_t low = u->offset + s->rank * u->slice, from = begin > low ? begin : low;
    int64_t end = begin + count < low + u->slice ? begin + count : low + u->slice;
    *at = end > from ? from - low : 0;
    return end > from ? end - from : 0;
}

/* ---- tensors in slices ---- */

void lc__tensor_slice(const lc_tensor *t, int64_t *begin, int64_t *count)
{
    *begin = t->is_slice ? t->slice_begin : 0;
    *count = t->is_slice ? t->slice_count : lc__numel(&t->type);
}

void lc__tensor_place(lc_tensor *t, lc_tensor *base, int64_t at)
{
    lc_tensor_ref(base);
    if (t->base)
        lc_tensor_unref(t->base);
    else
        t->on->ops->free(t->on->context, t->device_data, t->bytes ? t->bytes : 1);
    t->base = base;
    t->device_data = element(base, at);
    t->is_slice = false;
    t->slices = NULL;
    t->id = lc__new_id(t);
    t->other_id = 0;
    t->graph = NULL;
}

void lc__tensor_share(const lc_tensor *t, int64_t *begin, int64_t *count)
{
    lc__tensor_slice(t, begin, count);
    if (!t->is_slice || !t->slices) return;
    int64_t replica = t->slices->replica, replicas = t->slices->replicas;
    int64_t from = *count * replica / replicas, to = *count * (replica + 1) / replicas;
    *begin += from;
    *count = to - from;
}

static void set_slice(lc_tensor *t, const lc__sharding *s, int64_t begin, int64_t count)
{
    t->is_slice = true;
    t->slices = s;
    t->slice_begin = begin;
    t->slice_count = count;
}

void lc__tensor_cut(lc_tensor *t, lc_tensor *base, int64_t at, const lc__sharding *s, int64_t begin, int64_t count)
{
    /* Only a device can fail; its next call reports that. */
    if (!t->initial)
        (void)!lc__device_copy(base->on, element(base, at), t->on, element(t, begin),
                               (size_t)count * lc_dtype_size(t->type.dtype));
    lc__tensor_place(t, base, at);
    set_slice(t, s, begin, count);
}

/* This rank's slice, followed by zeros: *part has room for `room` elements. */
static lc_status take_slice(lc_tensor *t, int64_t room, char **part)
{
    size_t width = lc_dtype_size(t->type.dtype);
    lc_view slice;
    *part = calloc((size_t)room + 1, width);
    if (!*part) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for a slice", (size_t)room * width);
    LC_TRY(lc__tensor_map(t, LC__READ, &slice));
    memcpy(*part, slice.data, (size_t)t->slice_count * width);
    lc__tensor_unmap(t, LC__READ);
    return LC_OK;
}

/* `mine`: whether this rank can. Before each transfer the ranks agree that all can, since one that could not would be
 * waited for. */
static lc_status collect(lc_tensor *t, lc_status mine, int root, char *whole)
{
    lc_comm *comm = t->slices->comm;
    int n = lc_comm_size(comm), rank = lc_comm_rank(comm);
    size_t width = lc_dtype_size(t->type.dtype);
    int64_t range[2] = {t->slice_begin, t->slice_count}, most = 0;
    int64_t *ranges = calloc((size_t)n, sizeof range);
    char *part = NULL, *all = NULL;
    bool wanted = root < 0 || rank == root;
    lc_status status;
    if (mine >= 0 && !ranges) mine = lc_fail(LC_ERR_MEMORY, "out of memory: the slices of a tensor");
    LC_TRY_GOTO(status, done, lc__ranks_agree(comm, mine));
    LC_TRY_GOTO(status, done, lc_comm_all_gather(comm, range, ranges, 2, LC_I64, NULL));
    for (int i = 0; i < n; i++) most = ranges[2 * i + 1] > most ? ranges[2 * i + 1] : most;
    mine = take_slice(t, most, &part);
    all = wanted ? malloc((size_t)n * (size_t)most * width + 1) : NULL;
    if (mine >= 0 && wanted && !all)
        mine = lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for the slices of a tensor",
                       (size_t)n * (size_t)most * width);
    LC_TRY_GOTO(status, done, lc__ranks_agree(comm, mine));
    if (root < 0)
        status = lc_comm_all_gather(comm, part, all, most, t->type.dtype, NULL);
    else
        status = lc_comm_gather(comm, part, all, most, t->type.dtype, root, NULL);
    for (int i = 0; i < n && status >= 0 && wanted && whole; i++)
        memcpy(whole + (size_t)ranges[2 * i] * width, all + (size_t)i * (size_t)most * width,
               (size_t)ranges[2 * i + 1] * width);
done:
    free(ranges);
    free(part);
    free(all);
    return status;
}

static bool is_row_major(const lc_tensor *t)
{
    return t->layout == LC_ROW_MAJOR || t->type.ndim < 3;
}

lc_status lc__tensor_gather(lc_tensor *t, lc_status mine, int root, void *data)
{
    size_t bytes = (size_t)lc__numel(&t->type) * lc_dtype_size(t->type.dtype);
    if (!t->is_slice) return mine >= 0 && data ? lc_tensor_read(t, data, bytes) : mine;
    if (!t->slices)
        return lc_fail(LC_ERR_STATE, "slices of this tensor were on ranks that are lost; load a checkpoint");
    lc_status status = mine < 0 ? mine : lc__tensor_wait(t);
    if (is_row_major(t) || !data) return collect(t, status, root, data);
    char *whole = malloc(bytes + 1);
    if (status >= 0 && !whole)
        status = lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes for the slices of a tensor", bytes);
    status = collect(t, status, root, whole);
    lc_view from, to;
    lc__view_of(&t->type, t->layout, whole, &from);
    lc__view_of(&t->type, LC_ROW_MAJOR, data, &to);
    if (status >= 0) lc__copy_strided(&from, &to);
    free(whole);
    return status;
}

lc_status lc__tensor_revive(lc_tensor *p)
{
    lc_flat *flat = p->flat;
    if (!p->is_slice || p->slices || !flat) return LC_OK;
    if (flat->parameter->is_slice) {
        lc_tensor *whole;
        LC_TRY(lc__tensor_reserve(p->type.dtype, 1, &flat->count, LC_ROW_MAJOR, &whole));
        lc__flat_set_whole(flat, whole);
        LC_TRY(lc__flat_make_gradients(flat));
    }
    lc__tensor_place(p, flat->parameter, flat->offset[p->flat_index]);
    return LC_OK;
}

lc_status lc__tensor_cut_value(const lc_tensor *t, const void *data, void *slice)
{
    size_t width = lc_dtype_size(t->type.dtype), bytes = (size_t)lc__numel(&t->type) * width;
    char *whole = NULL;
    const char *from = data;
    if (!t->slice_count) return LC_OK;
    if (!is_row_major(t)) {
        lc_view a, b;
        whole = malloc(bytes + 1);
        if (!whole) return lc_fail(LC_ERR_MEMORY, "out of memory: %zu bytes to write a tensor", bytes);
        lc__view_of(&t->type, LC_ROW_MAJOR, (void *)(uintptr_t)data, &a);
        lc__view_of(&t->type, t->layout, whole, &b);
        lc__copy_strided(&a, &b);
        from = whole;
    }
    memcpy(slice, from + (size_t)t->slice_begin * width, (size_t)t->slice_count * width);
    free(whole);
    return LC_OK;
}

lc_status lc__tensor_write_slice(lc_tensor *t, const void *data)
{
    lc_view slice;
    LC_TRY(lc__tensor_wait(t));
    if (!t->slices && t->flat) {
        LC_TRY(lc__tensor_revive(t));
        return lc_tensor_write(t, data, (size_t)lc__numel(&t->type) * lc_dtype_size(t->type.dtype));
    }
    LC_TRY(lc__tensor_map(t, LC__WRITE, &slice));
    lc_status status = lc__tensor_cut_value(t, data, slice.data);
    lc__tensor_unmap(t, LC__WRITE);
    return status;
}

/* A handle for parameter i's slice of a sharded buffer. */
static lc_status part_of(const lc_flat *flat, int i, lc_tensor *buffer, lc_tensor **out)
{
    const lc__sharding *s = flat->sharding;
    const lc_tensor *p = flat->parameters[i];
    const lc__unit *u = s->units;
    lc_type type = p->type;
    int64_t at;
    type.dtype = buffer->type.dtype;
    while (i >= u->first + u->n) u++;
    int64_t count = lc__slice_of(s, u, flat->offset[i], lc__numel(&p->type), &at);
    LC_TRY(lc__tensor_range(buffer, (size_t)(u->at + at) * lc_dtype_size(type.dtype), &type, p->layout, out));
    set_slice(*out, s, count ? u->offset + s->rank * u->slice + at - flat->offset[i] : 0, count);
    return LC_OK;
}

lc_status lc__flat_state_tensor(lc_tensor *state, const lc_tensor *p, lc_tensor **out)
{
    const lc_flat *flat = p->flat;
    lc_type type = p->type;
    type.dtype = state->type.dtype;
    if (lc__numel(&state->type) != (flat->sharding ? flat->sharding->count : flat->count))
        return lc_fail(LC_ERR_STATE, "this optimizer state belongs to slices that no longer exist: another trainer has "
                                     "trained or evaluated the module since; save it from that trainer");
    if (flat->sharding) return part_of(flat, p->flat_index, state, out);
    return lc__tensor_range(state, (size_t)flat->offset[p->flat_index] * lc_dtype_size(type.dtype), &type, p->layout,
                            out);
}

lc_status lc__tensor_like(const lc_tensor *of, lc_tensor **out)
{
    lc_tensor *memory;
    int64_t begin, count, room;
    if (!of->is_slice) return lc__tensor_new_on(of->on, of->type.dtype, of->type.ndim, of->type.shape, of->layout, out);
    lc__tensor_slice(of, &begin, &count);
    room = count ? count : 1;
    LC_TRY(lc__tensor_new_on(of->on, of->type.dtype, 1, &room, LC_ROW_MAJOR, &memory));
    lc_status status = lc__tensor_range(memory, 0, &of->type, of->layout, out);
    lc_tensor_unref(memory); /* the range keeps it alive */
    LC_TRY(status);
    set_slice(*out, of->slices, begin, count);
    return LC_OK;
}

lc_status lc__tensor_slice_view(const lc_tensor *t, lc_tensor **view)
{
    lc_type type = {.dtype = t->type.dtype, .ndim = 1, .shape = {t->slice_count}};
    if (*view && (*view)->base == t->base && (*view)->device_data == t->device_data &&
        (*view)->type.shape[0] == t->slice_count)
        return LC_OK;
    lc_tensor_unref(*view);
    *view = NULL;
    return lc__tensor_range(t->base, (size_t)((char *)t->device_data - (char *)t->base->device_data), &type,
                            LC_ROW_MAJOR, view);
}

/* ---- flat buffers in slices ---- */

void lc__sharding_free(lc__sharding *s)
{
    if (!s) return;
    lc_tensor_unref(s->gradient);
    lc_tensor_unref(s->parameter);
    free(s->units);
    free(s);
}

lc_status lc__flat_nowhere(lc_tensor *base, int64_t count, const lc__sharding *s, lc_tensor **out)
{
    lc_type type = {.dtype = base->type.dtype, .ndim = 1, .shape = {count}};
    LC_TRY(lc__tensor_range(base, 0, &type, LC_ROW_MAJOR, out));
    set_slice(*out, s, 0, 0);
    return LC_OK;
}

static lc_status make_gradients(lc_flat *flat, lc_dtype dtype)
{
    const lc__sharding *s = flat->sharding;
    bool sliced = s && s->gradient;
    lc_tensor *gradient;
    if (sliced)
        LC_TRY(lc__flat_nowhere(s->gradient, flat->count, s, &gradient));
    else
        LC_TRY(lc__tensor_reserve(dtype, 1, &flat->count, LC_ROW_MAJOR, &gradient));
    lc_tensor_unref(flat->gradient);
    flat->gradient = gradient;
    for (int i = 0; i < flat->n; i++) {
        const lc_tensor *p = flat->parameters[i];
        lc_tensor *one = NULL;
        if (!p) continue;
        lc_type type = p->type;
        type.dtype = gradient->type.dtype;
        if (sliced)
            LC_TRY(part_of(flat, i, s->gradient, &one));
        else
            LC_TRY(lc__tensor_range(gradient, (size_t)flat->offset[i] * lc_dtype_size(type.dtype), &type, p->layout,
                                    &one));
        lc_tensor_unref(flat->gradients[i]);
        flat->gradients[i] = one;
    }
    memset(flat->has_gradient, 0, (size_t)flat->n);
    return LC_OK;
}

lc_status lc__flat_make_gradients(lc_flat *flat)
{
    return make_gradients(flat, flat->gradient->type.dtype);
}

lc_status lc__flat_sums_in_f32(lc_flat *flat, bool yes)
{
    lc_dtype stored = flat->parameter->type.dtype, dtype = yes ? lc__wide_dtype(stored) : stored;
    lc__sharding *s = flat->sharding;
    if (flat->gradient->type.dtype == dtype) return LC_OK;
    if (s && s->gradient) {
        lc_tensor *slices;
        LC_TRY(lc_tensor_new(dtype, 1, &s->count, &slices));
        lc_tensor_unref(s->gradient);
        s->gradient = slices;
    }
    return make_gradients(flat, dtype);
}

void lc__flat_set_whole(lc_flat *flat, lc_tensor *whole)
{
    lc_tensor_unref(flat->parameter);
    flat->parameter = whole;
}

lc_status lc__flat_forget_sharding(lc_flat *flat)
{
    lc__sharding *s = flat->sharding;
    if (!s) return LC_OK;
    flat->sharding = NULL;
    flat->parameter->slices = flat->gradient->slices = NULL;
    for (int i = 0; i < flat->n; i++) {
        if (flat->parameters[i]) flat->parameters[i]->slices = NULL;
        if (flat->gradients[i]) flat->gradients[i]->slices = NULL;
    }
    lc_status status = s->gradient && !s->parameter && flat->refs > 0 ? lc__flat_make_gradients(flat) : LC_OK;
    lc__sharding_free(s);
    return status;
}
